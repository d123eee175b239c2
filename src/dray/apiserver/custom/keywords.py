"""The keywords of a schema that look at one value: limits, patterns, enums, formats.

Each becomes a function made once per schema. Patterns run in RE2, so that no pattern and no value takes more than linear time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from dray.api.validation.errors import FieldError, not_supported, too_long
from dray.apiserver.custom.formats import CHECKED
from dray.cel.errors import Failure
from dray.cel.library.text import pattern

Keyword = Callable[[Any, str], Iterator[FieldError]]
Schema = dict[str, Any]

# A value that is wrong in itself, with the words of upstream after "<path> in body ".
_Wrong = Callable[[Any], str | None]


class BadKeyword(ValueError):
    """A keyword cannot be used: names the keyword and says why."""

    def __init__(self, keyword: str, value: Any, message: str) -> None:
        super().__init__(message)
        self.keyword, self.value, self.message = keyword, value, message


def keywords(schema: Schema) -> tuple[Keyword, ...]:
    """The functions for what the schema says of a single value. Raises BadKeyword for a pattern that is none."""
    made: list[Keyword] = []
    if schema.get("enum"):
        made.append(_enum(schema["enum"]))
    if "maxLength" in schema:
        made.append(_max_length(schema["maxLength"]))
    if "maxItems" in schema:
        made.append(_at_most(list, schema["maxItems"]))
    if "maxProperties" in schema:
        made.append(_at_most(dict, schema["maxProperties"]))
    made.extend(map(_plain, (*_numbers(schema), *_sizes(schema), *_texts(schema))))
    made.extend(_format(schema))
    return tuple(made)


def _plain(wrong: _Wrong) -> Keyword:
    def check(value: Any, path: str) -> Iterator[FieldError]:
        message = wrong(value)
        if message is not None:
            shown = int(value) if isinstance(value, float) and value.is_integer() else value
            # Of what has too little in it, only the number is shown.
            shown = len(shown) if isinstance(shown, list | dict) else shown
            yield FieldError(path, "Invalid", shown, f"{path} in body {message}")

    return check


def _enum(allowed: list[Any]) -> Keyword:
    plain = {(type(value), value) for value in allowed if isinstance(value, str | bool | int | float)}
    nested = [value for value in allowed if isinstance(value, dict | list | None)]
    shown = [value if isinstance(value, str) else str(value) for value in allowed]

    def check(value: Any, path: str) -> Iterator[FieldError]:
        if isinstance(value, dict | list | None):
            fine = value in nested
        else:
            fine = (type(value), value) in plain or (_is_number(value) and _close(value, plain))
        if not fine:
            yield not_supported(path, value, shown)

    return check


def _close(value: Any, plain: set[tuple[type, Any]]) -> bool:
    """1 and 1.0 are the same number."""
    return (float, float(value)) in plain or (float(value).is_integer() and (int, int(value)) in plain)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _max_length(limit: int) -> Keyword:
    def check(value: Any, path: str) -> Iterator[FieldError]:
        if type(value) is str and len(value) > limit:
            yield too_long(path, limit)

    return check


def _at_most(kind: type[list[Any]] | type[dict[str, Any]], limit: int) -> Keyword:
    def check(value: Any, path: str) -> Iterator[FieldError]:
        if isinstance(value, kind) and len(value) > limit:
            noun = "item" if limit == 1 else "items"
            yield FieldError(path, "TooMany", len(value), f"{len(value)}: must have at most {limit} {noun}")

    return check


def _numbers(schema: Schema) -> Iterator[_Wrong]:
    least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if least is not None:
        beyond = schema.get("exclusiveMinimum", False)
        words = f"should be greater than {_shown(least)}" if beyond else f"should be greater than or equal to {_shown(least)}"
        yield lambda value: words if _is_number(value) and (value < least or (beyond and value == least)) else None
    if most is not None:
        below = schema.get("exclusiveMaximum", False)
        text = f"should be less than {_shown(most)}" if below else f"should be less than or equal to {_shown(most)}"
        yield lambda value: text if _is_number(value) and (value > most or (below and value == most)) else None
    if step:
        yield lambda value: f"should be a multiple of {_shown(step)}" if _is_number(value) and not _divides(step, value) else None
    limits = _RANGES.get(schema.get("format") or "") if schema.get("type") in ("integer", "number") else None
    if limits is not None:
        name, low, high = limits
        yield lambda value: f"must be of type {name}" if _is_number(value) and not low <= value <= high else None


_RANGES: Final = {
    "int32": ("int32", -(2**31), 2**31 - 1),
    "int64": ("int64", -(2**63), 2**63 - 1),
    "uint32": ("uint32", 0, 2**32 - 1),
    "uint64": ("uint64", 0, 2**64 - 1),
    "float": ("float", -3.4028234663852886e38, 3.4028234663852886e38),
}


def _divides(step: float, value: float) -> bool:
    if isinstance(step, int) and isinstance(value, int):
        return value % step == 0
    try:
        quotient = value / step
    except (OverflowError, ZeroDivisionError):
        return False
    return math.isfinite(quotient) and quotient == int(quotient)


def _shown(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 2**63 else str(number)


def _sizes(schema: Schema) -> Iterator[_Wrong]:
    if "minLength" in schema:
        shortest = schema["minLength"]
        chars = f"should be at least {shortest} chars long"
        yield lambda value: chars if type(value) is str and len(value) < shortest else None
    if "minItems" in schema:
        fewest = schema["minItems"]
        items = f"should have at least {fewest} items"
        yield lambda value: items if type(value) is list and len(value) < fewest else None
    if "minProperties" in schema:
        least = schema["minProperties"]
        members = f"should have at least {least} properties"
        yield lambda value: members if type(value) is dict and len(value) < least else None


def _texts(schema: Schema) -> Iterator[_Wrong]:
    expression = schema.get("pattern")
    if expression:
        try:
            search = pattern(expression).search
        except Failure as failure:
            raise BadKeyword("pattern", expression, f"must be a valid regular expression, but isn't: {failure.message}") from None
        yield lambda value: f"should match '{expression}'" if type(value) is str and search(value) is None else None


def _format(schema: Schema) -> Iterator[Keyword]:
    """A text of the wrong format counts as a value of the wrong type."""
    format = schema.get("format") or ""
    accepts = CHECKED.get(format.replace("-", "")) if schema.get("type") == "string" else None
    if accepts is None:
        return

    def check(value: Any, path: str) -> Iterator[FieldError]:
        if type(value) is str and not accepts(value):
            yield FieldError(path, "TypeInvalid", value, f'{path} in body must be of type {format}: "{value}"')

    yield check
