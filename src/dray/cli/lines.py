"""Commands that answer questions line by line: JSON in, one line of JSON out for each, in the same order. A pretty-printed
object is one question; a line with nothing in it is none, and gets no answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import click
import msgspec

LINE_MAX: Final = 512 * 1024 * 1024


def answer_lines(file: BinaryIO, answer: Callable[[bytes], tuple[dict[str, Any], bool]]) -> bool:
    """Print what ``answer`` says to each line, and whether it could be answered at all; True when all could."""
    if file.isatty():
        click.echo("Reading questions from standard input, one JSON object each; Ctrl-D to end.", err=True)
    out = sys.stdout.buffer
    complete = True
    for text in _lines(file):
        told, answered = answer(text)
        complete = complete and answered
        out.write(msgspec.json.encode(told) + b"\n")
        out.flush()
    return complete


def unreadable(error: Exception) -> str:
    """What is wrong with a line: that it is no JSON at all, or what in it is not as it has to be."""
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError) and not isinstance(error, msgspec.ValidationError):
        return f"not JSON: {error}; a question is a JSON object, on one line or pretty-printed"
    return str(error)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The questions: each a line, or an object over several lines as people and tools write it."""
    ahead = b""
    while text := ahead or file.readline(LINE_MAX + 1):
        ahead = b""
        if text.startswith(b"{") and not _whole(text):
            parts, ahead = _continued(file, len(text))
            joined = b"".join((text, *parts))
            yield from [joined] if _whole(joined) else [part for part in (text, *parts) if part.strip()]
        elif text.strip():
            yield text


def _continued(file: BinaryIO, size: int) -> tuple[list[bytes], bytes]:
    """What follows the first line of an object, up to the brace that closes it or the line that begins another, which comes
    along."""
    parts: list[bytes] = []
    while size <= LINE_MAX and (line := file.readline(LINE_MAX + 1)):
        if line.startswith(b"{"):
            return parts, line
        parts.append(line)
        size += len(line)
        if line.startswith(b"}"):
            break
    return parts, b""


def _whole(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
