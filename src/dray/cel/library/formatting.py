"""``"%s is %d".format([...])``: the verbs s, d, f, e, b, x, X and o."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from dray.cel.errors import Failure
from dray.cel.library.conversions import text_of
from dray.cel.values import Duration, Timestamp, TypeValue, Uint, bounded, from_key, type_name

_VERB: Final = re.compile(r"%(?:(%)|(?:\.([0-9]{0,9}))?(.?))", re.DOTALL)
_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip
_DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def quote(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


def format_text(template: str, values: tuple[Any, ...]) -> str:
    out: list[str] = []
    at = used = length = 0
    for verb in _VERB.finditer(template):
        out.append(template[at : verb.start()])
        at = verb.end()
        if verb[1]:
            out.append("%")
            continue
        render = _renderer(verb[3], verb[2])
        if used >= len(values):
            raise Failure(f"index {used} out of range")
        out.append(render(values[used]))
        used += 1
        length += len(out[-1])
        bounded(length)
    out.append(template[at:])
    return "".join(out)


def verbs(template: str) -> list[str]:
    """The verb of each value that the template asks for; a Failure if it is not a template."""
    found: list[str] = []
    for verb in _VERB.finditer(template):
        if not verb[1]:
            _renderer(verb[3], verb[2])
            found.append(verb[3])
    return found


def _renderer(verb: str, precision: str | None) -> Callable[[Any], str]:
    if not verb:
        raise Failure("could not parse formatting clause: unexpected end of string")
    if verb in "fe":
        digits = int(precision) if precision else _DEFAULT_PRECISION
        if digits > _MAX_PRECISION:
            raise Failure(f"precision {digits} is too large: at most {_MAX_PRECISION} is allowed")
        return lambda value: _fixed(value, digits) if verb == "f" else _scientific(value)
    if verb not in _VERBS:
        raise Failure(f"could not parse formatting clause: unrecognized formatting clause {verb!r}")
    return _VERBS[verb]


_NUMBERS: Final = ("int", "uint")
# What each verb writes: the names of the types, and how a refusal names them. Texts are numbers if they say NaN or infinity.
_TAKES: Final[dict[str, tuple[frozenset[str], str]]] = {
    "s": (
        frozenset(["list", "map", "int", "uint", "double", "bool", "string", "bytes", "type", "null_type"])
        | {"google.protobuf.Timestamp", "google.protobuf.Duration"},
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    ),
    "d": (frozenset(_NUMBERS), "decimal clause can only be used on integers"),
    "f": (frozenset(["double", "string"]), "fixed-point clause can only be used on doubles"),
    "e": (frozenset(["double", "string"]), "scientific clause can only be used on doubles"),
    "b": (frozenset([*_NUMBERS, "bool"]), "only integers and bools can be formatted as binary"),
    "o": (frozenset(_NUMBERS), "octal clause can only be used on integers"),
    "x": (frozenset([*_NUMBERS, "string", "bytes"]), "only integers, byte buffers, and strings can be formatted as hex"),
}


def refusal(verb: str, kind: str) -> Failure | None:
    """Why the verb can write no value of the type with this name."""
    return None if kind in _TAKES[verb.lower()][0] else _refuse(verb, kind)


def _refuse(verb: str, kind: str) -> Failure:
    return Failure(f"error during formatting: {_TAKES[verb.lower()][1]}, was given {kind}")


def _string(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(element) for element in value) + "]"
    if isinstance(value, dict):
        entries = sorted((_literal(from_key(key)), _literal(element)) for key, element in value.items())
        return "{" + ", ".join(f"{key}:{element}" for key, element in entries) + "}"
    if type(value) in _PRINTABLE:
        return text_of(value)
    raise _refuse("s", type_name(value))


_PRINTABLE: Final = frozenset({bool, int, Uint, float, str, bytes, Duration, Timestamp, TypeValue})


def _literal(value: Any) -> str:
    """How a value is written inside a list or map."""
    if type(value) is str:
        return quote(value)
    if type(value) is bytes:
        return "b" + quote(text_of(value))
    if type(value) is float:
        return f"{value:.{_DEFAULT_PRECISION}f}" if math.isfinite(value) else quote(text_of(value))
    if type(value) is Duration:
        return f"duration({quote(text_of(value))})"
    if type(value) is Timestamp:
        return f"timestamp({quote(text_of(value))})"
    return _string(value)


def _number(value: Any, verb: str) -> float:
    if type(value) is float:
        return value
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise _refuse(verb, type_name(value))


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    return None if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def _fixed(value: Any, digits: int) -> str:
    number = _number(value, "f")
    return _special(number) or f"{number:,.{digits}f}"


def _scientific(value: Any) -> str:
    """Whatever precision is asked for: upstream takes it for the least width of the text."""
    number = _number(value, "e")
    special = _special(number)
    if special is not None:
        return special
    mantissa, _, exponent = f"{number:.{_DEFAULT_PRECISION}e}".partition("e")
    sign = "⁻" if exponent[0] == "-" else ""
    return f"{mantissa}×10{sign}{exponent[1:].translate(_SUPERSCRIPT)}"


def _decimal(value: Any) -> str:
    if type(value) in (int, Uint):
        return str(int(value))
    raise _refuse("d", type_name(value))


def _binary(value: Any) -> str:
    if type(value) in (int, Uint, bool):
        return format(int(value), "b")
    raise _refuse("b", type_name(value))


def _octal(value: Any) -> str:
    if type(value) in (int, Uint):
        return format(int(value), "o")
    raise _refuse("o", type_name(value))


def _hexadecimal(value: Any) -> str:
    if type(value) in (int, Uint):
        return format(int(value), "x")
    if type(value) is str:
        return value.encode("utf-8", "replace").hex()
    if type(value) is bytes:
        return value.hex()
    raise _refuse("x", type_name(value))


_VERBS: Final[dict[str, Callable[[Any], str]]] = {
    "s": _string,
    "d": _decimal,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda value: _hexadecimal(value).upper(),
}
