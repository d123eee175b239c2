"""A run written down: every object each time that it changed, with when, as lines of JSON, compressed.

The first line says what was run: ``{"recording": 1, "seed": …, "until": …, "start": …}``, with ``feature_gates`` where some were
switched. Each line after it is either ``{"at": SECONDS, "object": {…}}``, the object as the API server had it from then on, or
``{"at": SECONDS, "gone": {…}}`` with the last of it. Always true: times never go back; the same scenario and seed give the same
lines; a file that is broken or that holds more than anybody records is an error that names the line. While it is written, what
has happened so far can be read.
"""

from __future__ import annotations

import gzip
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from dray.api.gates import GateError, Gates

VERSION: Final = 1
# How much is held back from those who read along: bytes, and parts of the run's time. By what is written, never by the clock,
# because equal runs give equal files.
_HELD_BYTES: Final = 64 << 10
_HELD_PARTS: Final = 200
LINE_MAX: Final = 4 << 20
BYTES_MAX: Final = 2 << 30
# Packed bytes at once: they can become a thousand times as many.
_CHUNK: Final = 64 << 10


class RecordingError(Exception):
    """The file is not a recording, or not whole: names file and line. Whoever made it must act."""


class Head(msgspec.Struct, omit_defaults=True):
    """``start``: when the run began, in seconds since the epoch; ``until``: how long it lasted; ``feature_gates``: those that
    were not as Dray has them."""

    recording: int
    seed: int
    until: float
    start: float
    feature_gates: dict[str, bool] = {}

    @property
    def gates(self) -> Gates:
        return Gates.dray().updated(self.feature_gates)


class Step(msgspec.Struct, omit_defaults=True):
    """Exactly one of ``object`` and ``gone`` is set."""

    at: float
    object: dict[str, Any] | None = None
    gone: dict[str, Any] | None = None


class Recorder:
    """``with Recorder(path) as recorder``: what is told while this lasts is in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[tuple[str, str], bytes] = {}
        self._held = 0
        self._shown_until = self._part = 0.0

    def __enter__(self) -> Self:
        # No time and no name in the file: equal runs give equal bytes.
        self._raw = self._path.open("wb")
        self._file = gzip.GzipFile("", "wb", 6, self._raw, mtime=0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        self._raw.close()

    def begin(self, seed: int, until: float, start: float, gates: Gates) -> None:
        self._part = until / _HELD_PARTS
        switched = {name: gates(name) for name in sorted(gates.on ^ Gates.dray().on)}
        self._line(msgspec.json.encode(Head(VERSION, seed, until, start, switched)))
        self._show(0.0)

    def written(self, at: float, table: str, key: str, value: bytes | None) -> None:
        if self._held >= _HELD_BYTES or at >= self._shown_until:
            self._show(at)
        place, when = (table, key), b'{"at":%s,' % msgspec.json.encode(round(at, 6))
        if value is not None:
            self._last[place] = value
            self._line(b'%s"object":%s}' % (when, value))
        elif (last := self._last.pop(place, None)) is not None:
            self._line(b'%s"gone":%s}' % (when, last))

    def _line(self, line: bytes) -> None:
        self._held += len(line)
        self._file.write(line + b"\n")

    def _show(self, at: float) -> None:
        self._file.flush()
        self._held, self._shown_until = 0, at + self._part


def read(path: Path) -> tuple[Head, Iterator[Step]]:
    """What was run, and its steps in order. Raises RecordingError, also while the steps are read."""
    lines = _lines(path)
    return _head(path, next(lines, b"")), _steps(path, lines)


class Tail:
    """A recording that may still be written: ``more()`` gives what came since, ``head`` is there when its line is, and ``ended``
    says that nothing comes any more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._packed = zlib.decompressobj(wbits=31)
        self._position, self._left, self._text = 0, BYTES_MAX, b""
        self._lines: deque[bytes] = deque()
        self._steps = _steps(path, self._taken())
        self.head: Head | None = None

    @property
    def ended(self) -> bool:
        return self._packed.eof

    def more(self) -> list[Step]:
        """A bounded part of what came since; nothing when there is nothing yet. Raises RecordingError."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                packed = file.read(_CHUNK)
            self._position += len(packed)
            text = self._packed.decompress(packed)
        except (OSError, zlib.error) as error:
            raise RecordingError(f"{self._path}: cannot be read: {error}") from error
        self._left -= len(text)
        *lines, self._text = (self._text + text).split(b"\n")
        if len(self._text) > LINE_MAX or self._left < 0:
            raise RecordingError(f"{self._path}: a line or the whole file is too large for a recording")
        self._lines.extend(lines)
        if self.head is None and self._lines:
            self.head = _head(self._path, self._lines.popleft())
        return [next(self._steps) for _ in range(len(self._lines))]

    def _taken(self) -> Iterator[bytes]:
        while True:
            yield self._lines.popleft()


def _head(path: Path, line: bytes) -> Head:
    try:
        head = msgspec.json.decode(line, type=Head)
        Gates.dray().updated(head.feature_gates)  # raises where one is not known
    except (msgspec.DecodeError, UnicodeDecodeError, GateError) as error:
        raise RecordingError(f"{path}: not a recording of `dray simulate --record`: {error}") from error
    if head.recording != VERSION:
        raise RecordingError(f"{path}: a recording of version {head.recording}; this Dray reads version {VERSION}")
    return head


def _steps(path: Path, lines: Iterator[bytes]) -> Iterator[Step]:
    decoder, last = msgspec.json.Decoder(Step), 0.0
    for number, line in enumerate(lines, 2):
        try:
            step = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordingError(f"{path}: line {number}: {error}") from error
        if (step.object is None) == (step.gone is None):
            raise RecordingError(f"{path}: line {number}: needs either object or gone")
        if step.at < last:
            raise RecordingError(f"{path}: line {number}: at {step.at:g} s, after one at {last:g} s")
        last = step.at
        yield step


def _lines(path: Path) -> Iterator[bytes]:
    left = BYTES_MAX
    try:
        with gzip.open(path, "rb") as file:
            number = 0
            while line := file.readline(LINE_MAX + 1):
                number += 1
                left -= len(line)
                if len(line) > LINE_MAX:
                    raise RecordingError(f"{path}: line {number} is longer than {LINE_MAX >> 20} MiB")
                if left < 0:
                    raise RecordingError(f"{path}: holds more than {BYTES_MAX >> 30} GiB")
                yield line
    except gzip.BadGzipFile as error:
        raise RecordingError(f"{path}: not a recording of `dray simulate --record`: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from error
