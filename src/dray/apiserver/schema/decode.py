"""JSON in: bytes become plain data, within bounds, and repeated keys are found.

Whatever the bytes are, the cost is bounded: nesting beyond ``MAX_DEPTH`` is refused, and so are numbers longer than any that
Go takes. Text that is no Unicode is read as Go reads it: each byte, and each half of a pair of surrogates, that stands for
nothing becomes U+FFFD. So everything that is decoded can be encoded again.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import Any, Final

MAX_DEPTH: Final = 200
_MAX_DIGITS: Final = 400
_REPLACEMENT: Final = "\ufffd"
# The escapes of a string one by one, so that the backslash of one is not taken for the start of the next.
_ESCAPES: Final = re.compile(r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class DecodeError(ValueError):
    """The bytes are not JSON that a Kubernetes API takes. The message is for the client."""


def decode_json(data: bytes) -> tuple[Any, list[str]]:
    """The decoded value, and the paths of fields given more than once (the last one counts)."""
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        made = dict(items)
        repeated = repeated or len(made) != len(items)
        return made

    value = _load(data, pairs)
    _bound_depth(value, data)
    return value, _duplicates(data) if repeated else []


def _load(data: bytes, hook: Any) -> Any:
    try:
        return json.loads(
            _text(data), object_pairs_hook=hook, parse_constant=_no_constant, parse_int=_integer, parse_float=_number
        )
    except RecursionError:
        raise DecodeError("exceeded max depth") from None
    except json.JSONDecodeError as error:
        raise DecodeError(_words(error)) from None


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _REPLACEMENT, error.start + 1


codecs.register_error("dray.each_byte", _each_byte)


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "dray.each_byte")
    if not _SURROGATE.search(text):
        return text
    return _ESCAPES.sub(lambda found: _REPLACEMENT if found[1] else found[0], text)


def _words(error: json.JSONDecodeError) -> str:
    if error.pos >= len(error.doc.rstrip()):
        return "unexpected end of JSON input"
    return f"invalid character {error.doc[error.pos]!r} at offset {error.pos}: {error.msg.lower()}"


def _no_constant(name: str) -> Any:
    raise DecodeError(f"invalid character {name[0]!r} looking for beginning of value")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise DecodeError(f"number of {len(text)} digits is out of range")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise DecodeError(f"json: cannot unmarshal number {text[:64]} into Go value of type float64")
    return number


def _bound_depth(value: Any, data: bytes) -> None:
    """Only bodies with many brackets can be deep, so most are not walked at all."""
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise DecodeError(f"exceeded max depth of {MAX_DEPTH}")
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]


def _duplicates(data: bytes) -> list[str]:
    """The slow way, once something is known to be repeated: pairs are kept as such, then walked with their paths."""
    found: list[str] = []
    _walk(_load(data, _Pairs), "", found)
    return found


class _Pairs(list[tuple[str, Any]]):
    """The members of one JSON object in the order given, repeated ones too."""


def _walk(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            place = f"{path}.{key}" if path else key
            if key in seen and place not in found:
                found.append(place)
            seen.add(key)
            _walk(child, place, found)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _walk(child, f"{path}[{index}]", found)
