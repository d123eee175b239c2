"""Laying what a policy wants over an object: only what its type declares, and nothing that is replaced as a whole.

Somebody who sets one field of an atomic struct or list would clear all others, so that is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from dray.apiserver.field_sets import keyed_by
from dray.apiserver.merging import Merge
from dray.apiserver.schema import KindLike, Schemas, Struct, Type
from dray.cel.values import Uint

Object = dict[str, Any]

_NUMBERS: Final = frozenset({"int32", "int64", "float"})
_TEXTS: Final = frozenset({"string", "time", "microtime", "bytes"})
# What upstream's server publishes no schema of under its own group and version.
_WITHOUT_TYPE: Final = ("Eviction", "Scale", "TokenRequest")
_GO: Final[dict[type, str]] = {str: "string", bool: "bool", Uint: "uint64", type(None): "structpb.NullValue"}


class Misfit(Exception):
    """The configuration cannot be applied; the message says why."""


class Unlike(Exception):
    """It was applied, but what came of it is no object of its kind."""


class Configurations:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def applied(self, kind: KindLike, obj: Object, wanted: Object) -> Object:
        """The object with the configuration laid over it."""
        struct = self._schemas.kind(kind)
        if struct is None or kind.kind in _WITHOUT_TYPE:
            group, _, version = kind.api_version.rpartition("/")
            named = f"{group}/{version}, Kind={kind.kind}"
            raise Misfit(f"failed to convert patch object to typed object: no corresponding type for {named}")
        wanted = {**wanted, "apiVersion": kind.api_version, "kind": kind.kind}
        wrong = list(self._wrong_fields(struct, wanted, ""))
        if wrong:
            shown = wrong[0] if len(wrong) == 1 else "\n  ".join(["errors:", *wrong])
            raise Misfit(f"failed to convert patch object to typed object: {shown}")
        whole = list(self._atomic_fields(struct, wanted, ""))
        if whole:
            told = f"may not mutate atomic arrays, maps or structs: {', '.join(whole)}"
            raise Misfit(f"invalid ApplyConfiguration: {told}")
        canonical, problems = self._schemas.partial(kind, wanted)
        if problems:
            raise Unlike(f"unable to convert unstructured object to {kind.api_version}, Kind={kind.kind}: {problems[0].message}")
        return Merge(self._schemas).structs(struct, obj, canonical)

    # ------------------------------------------------------------------------------------------------------------- types

    def _wrong_fields(self, struct: Struct, value: Object, path: str) -> Iterator[str]:
        for name, child in value.items():
            field = struct.member(name)
            if field is None:
                yield f"{path}.{name}: field not declared in schema"
            else:
                yield from self._wrong(field.type, child, f"{path}.{name}")

    def _wrong(self, type_: Type, value: Any, path: str) -> Iterator[str]:
        struct = self._schemas.resolve(type_)
        if struct is not None or type_.shape == "map":
            if struct is not None and struct.open:
                return
            if not isinstance(value, dict):
                yield f"{path}: expected map, got &{{{_told(value)}}}"
            elif struct is not None:
                yield from self._wrong_fields(struct, value, path)
            elif type_.item is not None:
                for key, child in value.items():
                    yield from self._wrong(type_.item, child, f"{path}.{key}")
        elif type_.shape == "list":
            if isinstance(value, list):
                yield from self._wrong_elements(type_, value, path)
            else:
                yield f"{path}: expected list, got &{{{_told(value)}}}"
        elif type_.name in _NUMBERS:
            if isinstance(value, bool | Uint) or not isinstance(value, int | float):
                yield f"{path}: expected numeric (int or float), got {_GO.get(type(value), type(value).__name__)}"
        elif type_.name in _TEXTS and not isinstance(value, str):
            yield f"{path}: expected string, got {_shown(value)}"
        elif type_.name == "bool" and not isinstance(value, bool):
            yield f"{path}: expected boolean, got &{{{_told(value)}}}"

    def _wrong_elements(self, type_: Type, value: list[Any], path: str) -> Iterator[str]:
        assert type_.item is not None
        for index, child in enumerate(value):
            yield from self._wrong(type_.item, child, f"{path}[{index}]")
        if type_.list_type in ("map", "set"):
            keys = [keyed_by(type_)(child) for child in value]
            for key in dict.fromkeys(key for key in keys if keys.count(key) > 1):
                sort, _, told = key.partition(":")
                given = json.loads(told)
                words = ",".join(f"{name}={json.dumps(each)}" for name, each in given.items()) if sort == "k" else f"={told}"
                yield f"{path}: duplicate entries for key [{words}]"

    # ------------------------------------------------------------------------------------------------------------ wholes

    def _atomic_fields(self, struct: Struct, value: Object, path: str) -> Iterator[str]:
        for name, child in value.items():
            field = struct.fields.get(name)
            if field is not None:
                yield from self._atomic(field.type, child, f"{path}.{name}")

    def _atomic(self, type_: Type, value: Any, path: str) -> Iterator[str]:
        struct = self._schemas.resolve(type_)
        if isinstance(value, dict):
            if type_.list_type == "atomic" or (struct is not None and struct.atomic):
                yield path
            if struct is not None:
                yield from self._atomic_fields(struct, value, path)
        elif isinstance(value, list) and type_.item is not None:
            if type_.list_type not in ("map", "set"):
                yield path
            for index, child in enumerate(value):
                yield from self._atomic(type_.item, child, f"{path}[{index}]")


def _told(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(_told, value))}]"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _shown(value: Any) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool | int | float | str) else type(value).__name__
    return f"&value.valueUnstructured{{Value:{'0' if value is None else text}}}"
