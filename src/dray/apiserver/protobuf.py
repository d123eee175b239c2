"""Protobuf request bodies, as typed Go clients send them: decoded to the plain objects that JSON would give.

Only reading is needed: every client that writes protobuf also reads JSON. The shape of a message is that of the declared
struct; ``protobuf.numbers`` says which field has which number. Numbers that are not declared are skipped, as protobuf asks.
"""

from __future__ import annotations

import base64
import struct as packing
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import msgspec

from dray.api import wire
from dray.api.times import format_micro_time, format_time
from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.schema import Schemas, Struct, Type

_MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 64
# Fields of a schema that hold a schema or something else, and the number of the schema in them.
_SCHEMAS: Final = {"items": 1, "additionalProperties": 2, "additionalItems": 2}


class _Named(NamedTuple):
    api_version: str
    kind: str


def decode(data: bytes, schemas: Schemas) -> dict[str, Any]:
    """The object in a Kubernetes protobuf body."""
    try:
        return _Decoder(schemas).envelope(data)
    except (ValueError, packing.error, msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid protobuf: {error}") from error
    except (AttributeError, TypeError) as error:  # a number where the declaration has bytes, or the other way round
        raise bad_request("the body is not valid protobuf: a field is of another wire type than declared") from error


@cache
def _numbers() -> dict[str, dict[int, str]]:
    text = resources.files("dray.apiserver").joinpath("protobuf.numbers").read_text(encoding="utf-8")
    made = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, *fields = line.split(" ")
            made[name] = {int(number): field for number, _, field in (part.partition("=") for part in fields if part)}
    return made


class _Decoder:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def envelope(self, data: bytes) -> dict[str, Any]:
        if not data.startswith(_MAGIC):
            raise ValueError("it does not start with k8s")
        envelope = dict(_fields(data[len(_MAGIC) :]))
        type_meta = dict(_fields(envelope.get(1, b"")))
        api_version, kind = type_meta.get(1, b"").decode(), type_meta.get(2, b"").decode()
        named = _Named("v1" if kind == "DeleteOptions" else api_version, kind)
        struct = self._schemas.kind(named)
        if struct is None:
            message = f"{api_version} {kind} cannot be read as protobuf; send JSON"
            raise ApiError(415, "UnsupportedMediaType", message)
        obj = self._struct(struct, envelope.get(2, b""), 0)
        return obj | {"apiVersion": api_version, "kind": kind}

    def _struct(self, struct: Struct, data: bytes, depth: int, within: str = "") -> dict[str, Any]:
        """``within`` names the numbers of an inlined message: its fields are those of ``struct``."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        file = _file(struct)
        numbers = _numbers().get(f"{file}.{within or struct.name}", {})
        made: dict[str, Any] = {}
        for number, value in _fields(data):
            name = numbers.get(number, "")
            if name.startswith("*"):
                made |= self._struct(struct, value, depth + 1, name[1:])
                continue
            field = struct.fields.get(name)
            if name in _SCHEMAS and struct.name == "JSONSchemaProps":
                made[name] = self._schema(struct, name, dict(_fields(value)), depth + 1)
            elif field is not None:
                self._put(made, name, field.type, value, depth)
        return made

    def _schema(self, struct: Struct, name: str, parts: dict[int, Any], depth: int) -> Any:
        """A schema, or what may stand in its place: a list of schemas, or whether anything is allowed."""
        given = parts.get(_SCHEMAS[name])
        if given is not None:
            return self._struct(struct, given, depth)
        return bool(parts.get(1)) if name != "items" else []

    def _put(self, made: dict[str, Any], name: str, type_: Type, value: Any, depth: int) -> None:
        if type_.shape == "list":
            assert type_.item is not None
            made.setdefault(name, []).append(self._value(type_.item, value, depth))
        elif type_.shape == "map":
            assert type_.item is not None
            entry = dict(_fields(value))
            key = entry.get(1, b"").decode()
            made.setdefault(name, {})[key] = self._value(type_.item, entry.get(2, b""), depth)
        else:
            converted = self._value(type_, value, depth)
            if converted is not None:
                made[name] = converted

    def _value(self, type_: Type, value: Any, depth: int) -> Any:
        if type_.shape == "struct":
            return self._struct(self._schemas.struct(type_.name), value, depth + 1)
        if type_.shape == "list":
            assert type_.item is not None
            return [self._value(type_.item, item, depth) for number, item in _fields(value) if number == 1]
        return _scalar(type_.name, value)


def _file(struct: Struct) -> str:
    """``io.k8s.api.core.v1`` is in the file ``core``; other versions than v1 are part of the name."""
    group, _, version = struct.package.rpartition(".")
    name = group.rpartition(".")[2]
    return name if version == "v1" else f"{name}_{version}"


def _scalar(name: str, value: Any) -> Any:
    if name == "string":
        return value.decode() if value != b"" else ""
    if name in ("int32", "int64"):
        return wire.signed(value or 0)
    if name == "bool":
        return bool(value)
    if name == "float":
        number = packing.unpack("<d", value)[0]
        return int(number) if number.is_integer() else number
    if name == "bytes":
        return base64.b64encode(value).decode()
    parts = dict(_fields(value))
    if name == "quantity":
        return parts.get(1, b"0").decode() or "0"
    if name == "intOrString":
        return parts.get(3, b"").decode() if parts.get(1) else wire.signed(parts.get(2, 0))
    if name == "any":
        return msgspec.json.decode(parts[1]) if parts.get(1) else None
    return _time(name, parts)


def _time(name: str, parts: dict[int, Any]) -> str | None:
    """An empty time is the zero time, which JSON writes as null."""
    if 1 not in parts:
        return None
    seconds = wire.signed(parts[1])
    return format_micro_time(seconds + parts.get(2, 0) / 1e9) if name == "microtime" else format_time(seconds)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message: ints for varints, bytes for everything else."""
    return ((number, value) for number, _, value in wire.parts(data))
