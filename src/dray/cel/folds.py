"""Logic and the loops that macros become, without the fold that upstream makes of them: same results, same costs.

``all`` and ``exists`` absorb failures as ``&&`` and ``||`` do: a decisive element wins over an earlier failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from dray.cel.errors import Failure
from dray.cel.library.sequences import insert
from dray.cel.values import bounded, from_key, type_name

Frame = list[Any]
Closure = Callable[[Frame], Any]
_METER: Final = 1
_GO_TYPES: Final = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "kubernetes.Semver": "cel.Semver",
}


def not_bool(position: int) -> Failure:
    return Failure("no such overload", position)


def junction(terms: list[Closure], decisive: bool, position: int) -> Closure:
    """``||`` if true decides, ``&&`` if false does."""
    if len(terms) == 2:
        return _pair(terms[0], terms[1], decisive, position)
    other = not decisive

    def evaluate(frame: Frame) -> bool:
        failed: Failure | None = None
        for term in terms:
            try:
                value: object = term(frame)
            except Failure as failure:
                failed = failed or failure
                continue
            if value is decisive:
                return decisive
            if value is not other and failed is None:
                failed = not_bool(position)
        if failed is not None:
            raise failed
        return other

    return evaluate


def _pair(first: Closure, second: Closure, decisive: bool, position: int) -> Closure:
    other = not decisive

    def evaluate(frame: Frame) -> bool:
        try:
            value: object = first(frame)
            if value is decisive:
                return decisive
            if value is not other:
                raise not_bool(position)
        except Failure as failure:
            if _decides(second, frame, decisive):
                return decisive
            raise failure
        value = second(frame)
        if value is decisive or value is other:
            return bool(value)
        raise not_bool(position)

    return evaluate


def _decides(term: Closure, frame: Frame, decisive: bool) -> bool:
    try:
        return term(frame) is decisive
    except Failure:
        return False


def conditional(test: Closure, yes: Closure, no: Closure, position: int) -> Closure:
    def evaluate(frame: Frame) -> Any:
        value = test(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        raise not_bool(position)

    return evaluate


class Loop:
    """Goes over a list or map and puts each element (or key), or index and element (key and value), into the frame."""

    __slots__ = ("first", "metered", "over", "position", "second")

    def __init__(self, over: Closure, first: int, second: int | None, position: int, metered: bool) -> None:
        self.over = over
        self.first = first
        self.second = second
        self.position = position
        self.metered = metered

    def turns(self, frame: Frame) -> Iterable[Any]:
        """Sets the variables of each turn; what it yields does not matter."""
        value = self.over(frame)
        if not isinstance(value, tuple | dict):
            name = type_name(value)
            raise Failure(f"got '{_GO_TYPES.get(name, name)}', expected iterable type", self.position)
        return self._single(frame, value) if self.second is None else self._double(frame, value)

    def _single(self, frame: Frame, value: Any) -> Iterable[Any]:
        first = self.first
        if isinstance(value, tuple):
            for element in value:
                frame[first] = element
                yield None
        else:
            for key in list(value):
                frame[first] = from_key(key)
                yield None

    def _double(self, frame: Frame, value: Any) -> Iterable[Any]:
        first, second = self.first, self.second
        assert second is not None
        pairs = enumerate(value) if isinstance(value, tuple) else [(from_key(key), element) for key, element in value.items()]
        for key, element in pairs:
            frame[first], frame[second] = key, element
            yield None

    def charge(self, frame: Frame, cost: int) -> None:
        if self.metered:
            frame[_METER].spend(cost)


def quantifier(loop: Loop, predicate: Closure, exists: bool) -> Closure:
    other = not exists
    # The condition of upstream's fold is asked once more before it stops, if there is another element.
    condition = 3 if exists else 2

    def evaluate(frame: Frame) -> bool:
        failed: Failure | None = None
        loop.charge(frame, 1)
        turns = iter(loop.turns(frame))
        for _ in turns:
            loop.charge(frame, condition + 1)
            try:
                value: object = predicate(frame)
            except Failure as failure:
                failed = failed or failure
                continue
            if value is exists:
                if loop.metered and next(turns, turns) is not turns:
                    loop.charge(frame, condition)
                return exists
            if value is not other:
                failed = failed or not_bool(loop.position)
        if failed is not None:
            raise failed
        return other

    return evaluate


def _holds(loop: Loop, test: Closure, frame: Frame) -> bool:
    value = test(frame)
    if value is True or value is False:
        return bool(value)
    raise not_bool(loop.position)


def exactly_one(loop: Loop, test: Closure) -> Closure:
    def evaluate(frame: Frame) -> bool:
        count = 0
        loop.charge(frame, 2)
        for _ in loop.turns(frame):
            if _holds(loop, test, frame):
                loop.charge(frame, 2)
                count += 1
        return count == 1

    return evaluate


def gather_list(loop: Loop, test: Closure | None, made: Closure) -> Closure:
    def evaluate(frame: Frame) -> tuple[Any, ...]:
        built: list[Any] = []
        loop.charge(frame, 1)
        for _ in loop.turns(frame):
            if test is None or _holds(loop, test, frame):
                loop.charge(frame, 12)
                built.append(made(frame))
        bounded(len(built))
        return tuple(built)

    return evaluate


def gather_map(loop: Loop, test: Closure | None, made: list[Closure]) -> Closure:
    """One closure makes a map to merge, or two make a key and a value."""

    def evaluate(frame: Frame) -> dict[Any, Any]:
        built: dict[Any, Any] = {}
        loop.charge(frame, 1)
        for _ in loop.turns(frame):
            if test is not None and not _holds(loop, test, frame):
                continue
            loop.charge(frame, 2)
            added = [closure(frame) for closure in made]
            try:
                built = insert(built, *added)
            except Failure as failure:
                failure.position = loop.position
                raise
        return built

    return evaluate
