"""Conversions between the basic types, with Go's ways of reading and writing numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from dray.cel.errors import Failure
from dray.cel.library.times import SECOND, parse_duration, parse_timestamp, timestamp_of_seconds, timestamp_text
from dray.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, Timestamp, TypeValue, Uint, type_name

_BOOLEANS: Final = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
_EXPONENT_FROM: Final = 6
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_UNSIGNED: Final = re.compile(r"[0-9]{1,40}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,6})?|(?i:inf(?:inity)?|nan))"
)


def identity(value: Any) -> Any:
    return value


def string_to_bool(text: str) -> bool:
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    raise Failure(f"type conversion error from 'string' to 'bool': {text[:80]!r}")


def string_to_int(text: str) -> int:
    if _INTEGER.fullmatch(text):
        value = int(text)
        if INT_MIN <= value <= INT_MAX:
            return value
    raise Failure(f"type conversion error from 'string' to 'int': {text[:80]!r}")


def string_to_uint(text: str) -> Uint:
    if _UNSIGNED.fullmatch(text):
        value = int(text)
        if value <= UINT_MAX:
            return Uint(value)
    raise Failure(f"type conversion error from 'string' to 'uint': {text[:80]!r}")


def string_to_double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise Failure(f"type conversion error from 'string' to 'double': {text[:80]!r}")
    value = float(text)
    if math.isinf(value) and "n" not in text.lower():
        raise Failure(f"type conversion error from 'string' to 'double': {text[:80]!r}")
    return value


def double_to_int(value: float) -> int:
    if not math.isfinite(value) or value <= INT_MIN or value >= 2.0**63:
        raise Failure("integer overflow")
    return int(value)


def double_to_uint(value: float) -> Uint:
    if not math.isfinite(value) or value < 0 or value >= 2.0**64:
        raise Failure("unsigned integer overflow")
    return Uint(int(value))


def int_to_uint(value: int) -> Uint:
    if value < 0:
        raise Failure("unsigned integer overflow")
    return Uint(value)


def uint_to_int(value: int) -> int:
    if value > INT_MAX:
        raise Failure("integer overflow")
    return int(value)


def bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Failure("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """The shortest form, as Go's %g writes it: with an exponent below 1e-4 and from 1e6 on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    sign, digits, scale = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) + int(scale) - 1
    if value != 0 and (power < -4 or power >= _EXPONENT_FROM):
        head, rest = str(digits[0]), "".join(map(str, digits[1:]))
        return f"{'-' * sign}{head}{'.' * bool(rest)}{rest}e{power:+03d}"
    return _plain(value)


def _plain(value: float) -> str:
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration_text(value: Duration) -> str:
    return _plain(value.nanos / SECOND) + "s"


def text_of(value: Any) -> str:
    """What ``string(value)`` gives, for the types that it takes."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return double_text(value)
    if kind is bytes:
        return bytes_to_string(value)
    if kind is Duration:
        return duration_text(value)
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is TypeValue:
        return str(value.name)
    return str(int(value))


DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    ("type", "type", "(A) -> type(A)", lambda value: TypeValue(type_name(value))),
    ("dyn", "to_dyn", "(A) -> dyn", identity),
    ("bool", "bool_to_bool", "(bool) -> bool", identity),
    ("bool", "string_to_bool", "(string) -> bool", string_to_bool),
    ("bytes", "bytes_to_bytes", "(bytes) -> bytes", identity),
    ("bytes", "string_to_bytes", "(string) -> bytes", lambda text: text.encode("utf-8", "replace")),
    ("double", "double_to_double", "(double) -> double", identity),
    ("double", "int64_to_double", "(int) -> double", float),
    ("double", "string_to_double", "(string) -> double", string_to_double),
    ("double", "uint64_to_double", "(uint) -> double", float),
    ("duration", "duration_to_duration", "(duration) -> duration", identity),
    ("duration", "string_to_duration", "(string) -> duration", parse_duration),
    ("int", "int64_to_int64", "(int) -> int", identity),
    ("int", "double_to_int64", "(double) -> int", double_to_int),
    ("int", "duration_to_int64", "(duration) -> int", lambda value: value.nanos),
    ("int", "string_to_int64", "(string) -> int", string_to_int),
    ("int", "timestamp_to_int64", "(timestamp) -> int", lambda value: value.nanos // SECOND),
    ("int", "uint64_to_int64", "(uint) -> int", uint_to_int),
    ("string", "string_to_string", "(string) -> string", identity),
    ("string", "bool_to_string", "(bool) -> string", text_of),
    ("string", "bytes_to_string", "(bytes) -> string", bytes_to_string),
    ("string", "double_to_string", "(double) -> string", double_text),
    ("string", "duration_to_string", "(duration) -> string", duration_text),
    ("string", "int64_to_string", "(int) -> string", str),
    ("string", "timestamp_to_string", "(timestamp) -> string", timestamp_text),
    ("string", "uint64_to_string", "(uint) -> string", text_of),
    ("timestamp", "timestamp_to_timestamp", "(timestamp) -> timestamp", identity),
    ("timestamp", "int64_to_timestamp", "(int) -> timestamp", timestamp_of_seconds),
    ("timestamp", "string_to_timestamp", "(string) -> timestamp", parse_timestamp),
    ("uint", "uint64_to_uint64", "(uint) -> uint", identity),
    ("uint", "double_to_uint64", "(double) -> uint", double_to_uint),
    ("uint", "int64_to_uint64", "(int) -> uint", int_to_uint),
    ("uint", "string_to_uint64", "(string) -> uint", string_to_uint),
]
