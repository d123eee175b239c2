"""Object metadata and the base of all typed objects.

Typed objects are immutable by convention: nothing changes one after it was decoded. Lists are tuples for that reason.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")


# What an API server takes for a whole number. Python's have no end, and what is packed or sent has one.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Struct(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A subset of an API type. Unknown fields are ignored on decoding; absent fields have their zero value."""


class OwnerReference(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    generate_name: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: Int64 = 0
    last_transition_time: str | None = None


class Object(Struct):
    """The least that every object has; also what is decoded of kinds that Dray does not look into."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def uid(self) -> str:
        return self.metadata.uid


class DecodeError(ValueError):
    """An object from the API does not have the shape of its kind: names the object and the field."""


def decode(type: type[T], raw: bytes | msgspec.Raw | dict[str, Any]) -> T:
    """Decode one object. ``null`` counts as absent, as it does for Go."""
    try:
        if isinstance(raw, dict):
            return msgspec.convert(raw, type)
        return _decoder(type).decode(raw)
    except msgspec.ValidationError:
        return _decode_with_nulls(type, raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{type.__name__}: {error}") from error


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(type: type[T]) -> msgspec.json.Decoder[T]:
    found = _decoders.get(type)
    if found is None:
        found = _decoders[type] = msgspec.json.Decoder(type)
    return found


def _decode_with_nulls(type: type[T], raw: bytes | msgspec.Raw | dict[str, Any]) -> T:
    plain: Any = {}
    try:
        plain = raw if isinstance(raw, dict) else msgspec.json.decode(raw)
        return msgspec.convert(without_nulls(plain), type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # also for numbers that no field could hold
        metadata = plain.get("metadata") if isinstance(plain, dict) else None
        metadata = metadata if isinstance(metadata, dict) else {}
        name = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
        raise DecodeError(f"{type.__name__} {name}".rstrip() + f": {error}") from error


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value
