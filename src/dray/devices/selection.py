"""Which devices a request selects: the expressions of its class and its own, over the devices of a layout.

An expression is evaluated once per distinct projection of what it can read, ever; errors are results like any other. An
error becomes a refusal only when a search looks at the device that has it, as upstream does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dray import cel
from dray.api.resource import DeviceAttribute
from dray.cel import CompileError, CostLimitExceeded, EvaluationError, Semver
from dray.devices.shapes import Shape
from dray.devices.views import NodeLayout

if TYPE_CHECKING:
    from dray.cel import Program, Value

# After so many shapes on which one expression ran into its cost limit, it counts as too dear for every other shape too:
# evaluating it further would cost seconds and end in the same refusal.
COSTLY_SHAPES = 16
# Attributes that change all the time must not fill the memory with answers about their past.
RESULTS_KEPT = 200_000
# The owner of expressions that stand in the request itself.
OWN: Final = "claim"


class Source(NamedTuple):
    """Where an expression stands: ``class gpu`` or ``claim``, and its number there."""

    owner: str
    number: int
    expression: str


class Failure(NamedTuple):
    """An expression that could not be evaluated. ``compile`` errors do not depend on the device."""

    source: Source
    message: str
    compile: bool

    def text(self, device: str) -> str:
        if self.compile:
            return f"{self.source.owner}: selector #{self.source.number}: CEL compile error: {self.message}"
        return f"{self.source.owner}: selector #{self.source.number} on device {device}: CEL runtime error: {self.message}"


class Column:
    """One expression, and what it was for each projection that was asked for."""

    __slots__ = ("_costly", "_last", "_results", "failure", "program")

    def __init__(self, expression: str) -> None:
        self.program: Program | None = None
        self.failure = ""
        self._results: dict[object, bool | str] = {}
        self._costly = 0
        self._last = ""
        try:
            self.program = cel.compile(expression)
        except CompileError as error:
            self.failure = str(error)

    def at(self, shape: Shape) -> bool | str:
        """True, False, or why it cannot be told."""
        assert self.program is not None
        key = shape.projection(self.program.reads)
        found = self._results.get(key)
        if found is None:
            if len(self._results) >= RESULTS_KEPT:
                self._results.clear()
            found = self._results[key] = self._evaluate(self.program, shape)
        return found

    def _evaluate(self, program: Program, shape: Shape) -> bool | str:
        if self._costly >= COSTLY_SHAPES:
            return self._last
        try:
            return program.matches(shape.view)
        except EvaluationError as error:
            message = _sentence(error)
            if isinstance(error, CostLimitExceeded):
                self._costly += 1
                self._last = message
            return message


class DerivedColumn:
    """One derived attribute's expression, likewise. It is stored, so it may use what it could use when it was written."""

    __slots__ = ("_results", "failure", "program")

    def __init__(self, expression: str) -> None:
        self.program: Program | None = None
        self.failure = ""
        self._results: dict[object, DeviceAttribute | str] = {}
        try:
            self.program = cel.compile(expression, derived=True)
        except CompileError as error:
            self.failure = str(error)

    def at(self, shape: Shape) -> DeviceAttribute | str:
        if self.program is None:
            return self.failure
        key = shape.projection(self.program.reads)
        found = self._results.get(key)
        if found is None:
            if len(self._results) >= RESULTS_KEPT:
                self._results.clear()
            try:
                found = attribute_of(self.program.value(shape.view))
            except EvaluationError as error:
                found = error.message
            self._results[key] = found
        return found


class Selection:
    """The expressions of one request, in upstream's order: those of the class, then its own."""

    __slots__ = ("columns", "key", "sources")

    def __init__(self, sources: tuple[Source, ...], columns: tuple[Column, ...]) -> None:
        self.key = sources
        self.sources = sources
        self.columns = columns

    def on(self, layout: NodeLayout) -> tuple[int, dict[int, Failure]]:
        """The positions for which every expression holds, and those where one cannot be evaluated."""
        found = layout.cache.get(self.key)
        if found is None:
            found = layout.cache[self.key] = self._evaluate(layout)
        return found  # type: ignore[return-value]

    def _evaluate(self, layout: NodeLayout) -> tuple[int, dict[int, Failure]]:
        mask = 0
        failures: dict[int, Failure] = {}
        verdicts: dict[int, bool | Failure] = {}
        for position, kind in enumerate(layout.kinds):
            shape = kind.shape
            verdict = verdicts.get(shape.serial)
            if verdict is None:
                verdict = verdicts[shape.serial] = self.verdict(shape)
            if verdict is True:
                mask |= 1 << position
            elif verdict is not False:
                failures[position] = verdict
        return mask, failures

    def verdict(self, shape: Shape) -> bool | Failure:
        for source, column in zip(self.sources, self.columns):
            if column.program is None:
                return Failure(source, column.failure, True)
            verdict = column.at(shape)
            if verdict is False:
                return False
            if verdict is not True:
                return Failure(source, verdict, False)
        return True


def _sentence(error: EvaluationError) -> str:
    """Upstream's words, without the position, which the reason carries by itself."""
    return str(error).partition(": ")[2]


def attribute_of(value: Value) -> DeviceAttribute:
    """A derived value as an attribute; an empty list has no type, and as an empty list of strings matches nothing."""
    if isinstance(value, tuple):
        return _list_attribute(value)
    if isinstance(value, bool):
        return DeviceAttribute(bool_=value)
    if isinstance(value, int):
        return DeviceAttribute(int_=int(value))
    if isinstance(value, str):
        return DeviceAttribute(string=value)
    return DeviceAttribute(version=str(value))


def _list_attribute(values: tuple[bool | int | str | Semver, ...]) -> DeviceAttribute:
    first = values[0] if values else ""
    if isinstance(first, bool):
        return DeviceAttribute(bools=tuple(bool(value) for value in values))
    if isinstance(first, int):
        return DeviceAttribute(ints=tuple(value for value in values if isinstance(value, int)))
    if isinstance(first, str):
        return DeviceAttribute(strings=tuple(str(value) for value in values))
    return DeviceAttribute(versions=tuple(str(value) for value in values))
