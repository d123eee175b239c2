"""Expressions ready to run, and the cache of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from dray.cel import types
from dray.cel.checker import CONSUMABLE_CAPACITY, LIST_ATTRIBUTES, attribute_type, check, device_names
from dray.cel.compiler import FIRST_SLOT, compile_tree
from dray.cel.device import DeviceView
from dray.cel.errors import CompileError, CostLimitExceeded, EvaluationError, Failure, Overrun
from dray.cel.estimate import device_limit, estimate
from dray.cel.meter import Meter
from dray.cel.parser import parse
from dray.cel.reads import paths_read
from dray.cel.tree import Node
from dray.cel.values import Optional, Semver, TypeValue, type_name

COST_LIMIT: Final = 1_000_000
STORED: Final = frozenset({CONSUMABLE_CAPACITY, LIST_ATTRIBUTES})
"""What an expression that is already in the API may use, whatever the gates are now."""

Scalar = bool | int | str | Semver
Value = Scalar | tuple[Scalar, ...]


class Program:
    """One compiled expression. Immutable, and without state between evaluations."""

    __slots__ = ("_closure", "_frame", "estimated_cost", "expression", "limit", "metered", "reads")

    def __init__(self, expression: str, node: Node, limit: int) -> None:
        self.expression = expression
        self.limit = limit
        self.reads = paths_read(node)
        cost = estimate(node, device_limit)
        self.estimated_cost = cost.maximum
        self.metered = cost.maximum > limit or cost.amplifies
        self._closure, slots = compile_tree(node, self.metered)
        self._frame = [None] * (slots - FIRST_SLOT)

    def __repr__(self) -> str:
        return f"Program({self.expression!r})"

    def matches(self, view: DeviceView) -> bool:
        """Whether the device is selected."""
        result = self._evaluate(view)
        if result is True or result is False:
            return bool(result)
        found = _within(result)
        if found is True or found is False:
            return bool(found)
        raise EvaluationError(f"CEL result of type {type_name(result)} could not be converted to bool", 0, self.expression)

    def value(self, view: DeviceView) -> Value:
        """The value of a derived attribute: a bool, int, string or version, or a list of one kind of those."""
        result = self._evaluate(view)
        if type(result) is tuple:
            result = elements = tuple([_within(element) for element in result])
        else:
            result = _within(result)
            elements = (result,)
        for index, element in enumerate(elements):
            if type(element) not in (bool, int, str, Semver):
                raise EvaluationError(f"unsupported CEL return type: {type_name(element)}", 0, self.expression)
            if type(element) is not type(elements[0]):
                wanted = type_name(elements[0])
                message = f"expected list element at index {index} to be {wanted}, got {type_name(element)}"
                raise EvaluationError(message, 0, self.expression)
        return result  # type: ignore[no-any-return]

    def _evaluate(self, view: DeviceView) -> Any:
        if not view.loaded:
            view.load()
        if view.error is not None:
            raise EvaluationError(view.error, 0, self.expression)
        try:
            return self._closure([view, Meter(self.limit) if self.metered else None, *self._frame])
        except Failure as failure:
            raise EvaluationError(failure.message, max(failure.position, 0), self.expression) from None
        except Overrun:
            raise CostLimitExceeded("operation cancelled: actual cost limit exceeded", 0, self.expression) from None
        except RecursionError:
            raise EvaluationError("expression is nested too deeply to be evaluated here", 0, self.expression) from None


def _within(result: Any) -> Any:
    """What an optional has, however deep; the name of a type. A program that gives one of these gives that, as upstream."""
    while type(result) is Optional:
        result = result.value
    return result.name if type(result) is TypeValue else result


def compile(expression: str, *, features: frozenset[str] = STORED, limit: int = COST_LIMIT, derived: bool = False) -> Program:
    """The program for an expression; a CompileError if it is not valid.

    ``features`` are the names of the gates that are on (others than the two that matter here are ignored); the default is what
    stored expressions may use. ``derived`` is for derived attributes, which give a value instead of a verdict.
    Programs and errors are remembered, the least recently used are forgotten.
    """
    found = _compile(expression, features & STORED, limit, derived)
    if isinstance(found, CompileError):
        raise CompileError(found.message, found.position, expression)
    return found


@lru_cache(maxsize=4096)
def _compile(expression: str, features: frozenset[str], limit: int, derived: bool) -> Program | CompileError:
    try:
        node = parse(expression)
        kind = check(node, expression, device_names(features))
        _check_result(kind, expression, features, derived)
        return Program(expression, node, limit)
    except CompileError as error:
        return error
    except Failure as failure:
        return CompileError(failure.message, max(failure.position, 0), expression)
    except RecursionError:
        return CompileError("expression is nested too deeply", 0, expression)


def _check_result(kind: types.Type, expression: str, features: frozenset[str], derived: bool) -> None:
    if not derived:
        if kind not in (types.BOOL, attribute_type(features)):
            raise CompileError(f"must evaluate to bool or the unknown type, not {kind}", 0, expression)
        return
    lists = LIST_ATTRIBUTES in features
    scalar = kind.parameters[0] if lists and kind.kind == "list" else kind
    if scalar not in (types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER):
        allowed = "a primitive scalar (string, integer, boolean, semver)" + (" or a list of these scalars" if lists else "")
        raise CompileError(f"must evaluate to {allowed}, not {kind}", 0, expression)
