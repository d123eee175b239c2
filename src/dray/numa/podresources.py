"""The kubelet's podresources API, v1: what each running container has been given, as messages with their wire form.

The messages are declared here with upstream's field numbers, and read and written without generated code: unknown fields are
passed over, absent ones have their zero value. ``METHODS`` are the calls that a client or a server needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, TypeVar

import msgspec

SERVICE: Final = "v1.PodResourcesLister"
LIST: Final = f"/{SERVICE}/List"
ALLOCATABLE: Final = f"/{SERVICE}/GetAllocatableResources"
GET: Final = f"/{SERVICE}/Get"
DEPTH_MAX: Final = 16

Kind = Literal["string", "int", "message"]
M = TypeVar("M", bound="Message")


class WireError(ValueError):
    """The bytes are not a message of this kind."""


class Field(msgspec.Struct, frozen=True):
    number: int
    name: str
    kind: Kind = "string"
    repeated: bool = False
    type: Any = None


class Message(msgspec.Struct):
    """Subclasses list the wire form of their fields."""

    fields: ClassVar[tuple[Field, ...]] = ()


class NUMANode(Message):
    id: int = 0

    fields = (Field(1, "id", "int"),)


class TopologyInfo(Message):
    nodes: list[NUMANode] = []

    fields = (Field(1, "nodes", "message", True, NUMANode),)


class ContainerDevices(Message):
    resource_name: str = ""
    device_ids: list[str] = []
    topology: TopologyInfo | None = None

    fields = (
        Field(1, "resource_name"),
        Field(2, "device_ids", repeated=True),
        Field(3, "topology", "message", type=TopologyInfo),
    )


class ContainerMemory(Message):
    memory_type: str = ""
    size: int = 0
    topology: TopologyInfo | None = None

    fields = (Field(1, "memory_type"), Field(2, "size", "int"), Field(3, "topology", "message", type=TopologyInfo))


class CDIDevice(Message):
    name: str = ""

    fields = (Field(1, "name"),)


class ClaimResource(Message):
    cdi_devices: list[CDIDevice] = []
    driver_name: str = ""
    pool_name: str = ""
    device_name: str = ""
    share_id: str = ""

    fields = (
        Field(1, "cdi_devices", "message", True, CDIDevice),
        Field(2, "driver_name"),
        Field(3, "pool_name"),
        Field(4, "device_name"),
        Field(5, "share_id"),
    )


class DynamicResource(Message):
    claim_name: str = ""
    claim_namespace: str = ""
    claim_resources: list[ClaimResource] = []

    fields = (
        Field(2, "claim_name"),
        Field(3, "claim_namespace"),
        Field(4, "claim_resources", "message", True, ClaimResource),
    )


class ContainerResources(Message):
    name: str = ""
    devices: list[ContainerDevices] = []
    cpu_ids: list[int] = []
    memory: list[ContainerMemory] = []
    dynamic_resources: list[DynamicResource] = []

    fields = (
        Field(1, "name"),
        Field(2, "devices", "message", True, ContainerDevices),
        Field(3, "cpu_ids", "int", True),
        Field(4, "memory", "message", True, ContainerMemory),
        Field(5, "dynamic_resources", "message", True, DynamicResource),
    )


class PodResources(Message):
    name: str = ""
    namespace: str = ""
    containers: list[ContainerResources] = []

    fields = (Field(1, "name"), Field(2, "namespace"), Field(3, "containers", "message", True, ContainerResources))


class ListPodResourcesRequest(Message):
    pass


class ListPodResourcesResponse(Message):
    pod_resources: list[PodResources] = []

    fields = (Field(1, "pod_resources", "message", True, PodResources),)


class AllocatableResourcesRequest(Message):
    pass


class AllocatableResourcesResponse(Message):
    devices: list[ContainerDevices] = []
    cpu_ids: list[int] = []
    memory: list[ContainerMemory] = []

    fields = (
        Field(1, "devices", "message", True, ContainerDevices),
        Field(2, "cpu_ids", "int", True),
        Field(3, "memory", "message", True, ContainerMemory),
    )


class GetPodResourcesRequest(Message):
    pod_name: str = ""
    pod_namespace: str = ""

    fields = (Field(1, "pod_name"), Field(2, "pod_namespace"))


class GetPodResourcesResponse(Message):
    pod_resources: PodResources | None = None

    fields = (Field(1, "pod_resources", "message", type=PodResources),)


# path -> (request, response)
METHODS: Final[dict[str, tuple[type[Message], type[Message]]]] = {
    LIST: (ListPodResourcesRequest, ListPodResourcesResponse),
    ALLOCATABLE: (AllocatableResourcesRequest, AllocatableResourcesResponse),
    GET: (GetPodResourcesRequest, GetPodResourcesResponse),
}


# --------------------------------------------------------------------------------------------------------------- to bytes


def encode(message: Message) -> bytes:
    """The wire form; numbers in lists are packed, as proto3 has it."""
    out = bytearray()
    for field in message.fields:
        value = getattr(message, field.name)
        if field.kind == "int" and field.repeated:
            if value:
                _put(out, field.number, b"".join(_varint(number) for number in value))
            continue
        for item in value if field.repeated else (value,):
            _encode_one(out, field, item)
    return bytes(out)


def _encode_one(out: bytearray, field: Field, value: Any) -> None:
    if field.kind == "message":
        if value is not None:
            _put(out, field.number, encode(value))
    elif field.kind == "int":
        if value:
            out += _varint(field.number << 3) + _varint(value)
    elif value or field.repeated:
        _put(out, field.number, value.encode())


def _put(out: bytearray, number: int, payload: bytes) -> None:
    out += _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# ------------------------------------------------------------------------------------------------------------- from bytes


def decode(type: type[M], data: bytes, depth: int = 0) -> M:
    """The message in these bytes. Raises WireError."""
    if depth > DEPTH_MAX:
        raise WireError("nested too deeply")
    made = type()
    by_number = {field.number: field for field in type.fields}
    for number, value in _entries(data):
        field = by_number.get(number)
        if field is None:
            continue
        items = _values(field, value, depth)
        if field.repeated:
            getattr(made, field.name).extend(items)
        elif items:
            setattr(made, field.name, items[-1])
    return made


def _values(field: Field, value: int | bytes, depth: int) -> Sequence[Any]:
    if field.kind == "int":
        if isinstance(value, int):
            return [_signed(value)]
        return [_signed(number) for number in _packed(value)]
    if isinstance(value, int):
        raise WireError(f"field {field.name}: a number where there should be bytes")
    if field.kind == "message":
        return [decode(field.type, value, depth + 1)]
    try:
        return [value.decode()]
    except UnicodeDecodeError as error:
        raise WireError(f"field {field.name}: not UTF-8") from error


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _packed(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _read_varint(data, position)
        yield value


def _entries(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        match tag & 7:
            case 0:
                value, position = _read_varint(data, position)
                yield tag >> 3, value
            case 2:
                length, position = _read_varint(data, position)
                if position + length > len(data):
                    raise WireError("the message ends too early")
                yield tag >> 3, data[position : position + length]
                position += length
            case 1 | 5 as wire:
                position += 8 if wire == 1 else 4
            case wire:
                raise WireError(f"wire type {wire} is not known")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise WireError("a number ends too early or is too long")
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, position
        shift += 7
