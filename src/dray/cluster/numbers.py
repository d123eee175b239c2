"""Numbers that grow, move or spread, and their page in Prometheus' text format.

Always true: what is counted costs a few instructions and no lock, because it happens in one loop for every write; a page may be
made beside it, from another thread. Prometheus' own client takes longer to load than everything else a scheduler needs before it
can ask its cluster.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from dray.api import features
from dray.api.gates import GATES, Gates, stage

FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""What is added to the name of the family, labels, value."""


class Number(Protocol):
    def samples(self) -> Iterator[Sample]: ...


class Counter:
    """Grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by

    def samples(self) -> Iterator[Sample]:
        yield "", (), self.value


class Gauge:
    """Moves; or is asked for when somebody wants to know."""

    __slots__ = ("_read", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def set_function(self, read: Callable[[], float]) -> None:
        self._read = read

    def samples(self) -> Iterator[Sample]:
        yield "", (), self._read() if self._read is not None else self.value


class Histogram:
    """How many were at most how much."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, float("inf"))
        self._counts = [0] * len(self._bounds)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def samples(self) -> Iterator[Sample]:
        total = 0
        for bound, count in zip(self._bounds, tuple(self._counts)):
            total += count
            yield "_bucket", (("le", _number(bound)),), total
        yield "_count", (), total
        yield "_sum", (), self.sum


N = TypeVar("N", bound=Number)


class Family(Generic[N]):
    """One name, and a number for each set of values of its labels. Without labels it has its number from the start."""

    def __init__(self, name: str, kind: str, text: str, labels: Sequence[str], make: Callable[[], N]) -> None:
        self.name, self.kind, self._text, self._names = name, kind, text, tuple(labels)
        self._make = make
        self._numbers: dict[tuple[str, ...], N] = {}
        if not labels:
            self.labels()

    def labels(self, *values: str) -> N:
        found = self._numbers.get(values)
        if found is None:
            if len(values) != len(self._names):
                raise ValueError(f"metric {self.name} has the labels {', '.join(self._names) or '(none)'}, got {values}")
            found = self._numbers[values] = self._make()
        return found

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self._text.translate(_IN_HELP)}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, number in tuple(self._numbers.items()):
            named = tuple(zip(self._names, values))
            for suffix, more, value in number.samples():
                yield f"{self.name}{suffix}{_braced((*named, *more))} {_number(value)}"


class Registry:
    """All families of one process, in the order in which they were declared."""

    def __init__(self) -> None:
        self._families: dict[str, Family[Counter] | Family[Gauge] | Family[Histogram]] = {}

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Family[Counter]:
        made = Family(name, "counter", text, labels, Counter)
        self._declare(made)
        return made

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Family[Gauge]:
        made = Family(name, "gauge", text, labels, Gauge)
        self._declare(made)
        return made

    def histogram(self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> Family[Histogram]:
        made = Family(name, "histogram", text, labels, lambda: Histogram(bounds))
        self._declare(made)
        return made

    def text(self) -> bytes:
        """The page."""
        return "".join(f"{line}\n" for family in tuple(self._families.values()) for line in family.lines()).encode()

    def _declare(self, family: Family[Counter] | Family[Gauge] | Family[Histogram]) -> None:
        if family.name in self._families:
            raise ValueError(f"metric {family.name} is declared twice")
        self._families[family.name] = family


_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def tell_features(registry: Registry, gates: Gates) -> None:
    """Which features are on in this process, as Kubernetes' own tell it."""
    enabled = registry.gauge(features.METRIC, "The stage of each feature, and whether it is on.", ("name", "stage"))
    for name in sorted(GATES):
        enabled.labels(name, stage(name)).set(int(gates(name)))


def _braced(labels: Sequence[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in sorted(labels))
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text := repr(float(value)), text)
