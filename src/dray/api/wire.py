"""Protocol buffers: bytes as fields (``parts``, ``varint``), and messages as dataclasses whose fields carry their numbers.

Of messages there is as much as the kubelet's interfaces need. A field is declared as ``name: Annotated[TYPE, NUMBER]``, TYPE
being ``str``, ``bool``, ``int`` (any of the 64-bit integers and enums), ``str | None`` (optional), a message,
``dict[str, Message]``, or a tuple of strings, integers or messages.

Always true: unknown fields are skipped, absent ones have their default, and whatever bytes come in, reading ends with a message
or a ``WireError`` after work in proportion to their number.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Final, TypeVar

M = TypeVar("M")

VARINT: Final = 0
BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_DEPTH: Final = 16


class WireError(ValueError):
    """Bytes that are no such message."""


class _Field:
    """How one field is written. ``of`` is the type of its value, or of each of its values."""

    __slots__ = ("keyed", "many", "name", "number", "of", "optional")

    def __init__(self, name: str, number: int, type_: Any) -> None:
        self.name, self.number = name, number
        origin, arguments = typing.get_origin(type_), typing.get_args(type_)
        self.optional = origin in (types.UnionType, typing.Union)
        self.many = origin is tuple
        self.keyed = origin is dict
        self.of: Any = arguments[1] if self.keyed else arguments[0] if arguments else type_


_declared: dict[Any, tuple[_Field, ...]] = {}


def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    found = _declared.get(kind)
    if found is None:
        hints = typing.get_type_hints(kind, include_extras=True)
        found = _declared[kind] = tuple(_Field(name, *reversed(typing.get_args(hint))) for name, hint in hints.items())
    return found


# ------------------------------------------------------------------------------------------------------------- writing


def encode(message: Any) -> bytes:
    """A message as bytes."""
    out = bytearray()
    for field in _fields(type(message)):
        value = getattr(message, field.name)
        if field.keyed:
            for key, item in value.items():
                _put(out, field.number, _entry(key, item))
        elif field.many:
            _put_many(out, field, value)
        elif value is not None and (field.optional or is_dataclass(value) or value):
            _put(out, field.number, value)
    return bytes(out)


def _entry(key: str, value: Any) -> bytes:
    out = bytearray()
    _put(out, 1, key)
    _put(out, 2, value)
    return bytes(out)


def _put_many(out: bytearray, field: _Field, values: tuple[Any, ...]) -> None:
    if field.of is int and values:
        _put(out, field.number, b"".join(varint(value) for value in values))
    elif field.of is not int:
        for value in values:
            _put(out, field.number, value)


def _put(out: bytearray, number: int, value: Any) -> None:
    if isinstance(value, int):
        out += varint(number << 3 | VARINT) + varint(int(value))
        return
    raw = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else encode(value)
    out += varint(number << 3 | BYTES) + varint(len(raw)) + raw


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ------------------------------------------------------------------------------------------------------------- reading


def decode(kind: type[M], raw: bytes, depth: int = 0) -> M:
    """The message that the bytes are. Raises WireError."""
    if depth > _DEPTH:
        raise WireError(f"{kind.__name__} is nested too deeply")
    known = {field.number: field for field in _fields(kind)}
    found: dict[str, Any] = {}
    for number, wire, value in parts(raw):
        if wire not in _FIXED and (field := known.get(number)) is not None:
            _take(kind, found, field, value, depth)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def _take(kind: type[Any], found: dict[str, Any], field: _Field, value: int | bytes, depth: int) -> None:
    if field.keyed:
        key, item = _read_entry(field, _bytes(kind, field, value), depth)
        found.setdefault(field.name, {})[key] = item
    elif field.many and field.of is int and isinstance(value, bytes):
        found.setdefault(field.name, []).extend(signed(number) for number in _numbers(value))
    elif field.many:
        found.setdefault(field.name, []).append(_value(kind, field, value, depth))
    else:
        found[field.name] = _value(kind, field, value, depth)


def _read_entry(field: _Field, raw: bytes, depth: int) -> tuple[str, Any]:
    key, item = b"", b""
    for number, wire, value in parts(raw):
        if wire == BYTES:
            key, item = (value, item) if number == 1 else (key, value) if number == 2 else (key, item)
    return _text(key), decode(field.of, item, depth + 1)


def _value(kind: type[Any], field: _Field, value: int | bytes, depth: int) -> Any:
    if field.of in (int, bool):
        if isinstance(value, bytes):
            raise WireError(f"{kind.__name__}.{field.name} is not a number")
        return bool(value) if field.of is bool else signed(value)
    raw = _bytes(kind, field, value)
    return _text(raw) if field.of is str else decode(field.of, raw, depth + 1)


def _bytes(kind: type[Any], field: _Field, value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise WireError(f"{kind.__name__}.{field.name} is a number")
    return value


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8") from error


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def parts(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) for each field: an int for a varint, bytes for everything else. Raises WireError."""
    at = 0
    while at < len(raw):
        tag, at = _read_varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _read_varint(raw, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, at = _read_varint(raw, at)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise WireError(f"field {number} has the unknown wire type {wire}")
        if at + length > len(raw):
            raise WireError("the message ends too soon")
        yield number, wire, raw[at : at + length]
        at += length


def _numbers(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        value, at = _read_varint(raw, at)
        yield value


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
    raise WireError("a number does not end")
