"""What the served kinds look like: their fields, types, merge keys and words.

``load()`` gives the one ``Schemas``. Files are read when a kind of theirs is first asked for. Everything here is a pure
function of the declarations and the object given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from dray.apiserver.schema import text
from dray.apiserver.schema.convert import Converters, WrongType
from dray.apiserver.schema.decode import DecodeError, decode_json
from dray.apiserver.schema.openapi import ResourceOf, document
from dray.apiserver.schema.text import OPEN, OPEN_STRUCT, Field, Struct, Type

__all__ = [
    "WRONG_TYPE",
    "DecodeError",
    "Field",
    "KindLike",
    "Problem",
    "Schemas",
    "Struct",
    "Structure",
    "Type",
    "decode_json",
    "load",
]

# Structs of defined kinds are named ``custom group/version Kind/place``.
CUSTOM: Final = "custom "
Schema = dict[str, Any]
UNKNOWN_FIELD: Final = "unknown field"
WRONG_TYPE: Final = "wrong type"


class KindLike(Protocol):
    """Anything that names a kind: ``dray.api.kinds.Kind`` or an entry of the registry."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in an object that its type does not allow.

    ``category`` is ``unknown field`` (dropped, a warning or an error as the client asked) or ``wrong type`` (always an error).
    """

    path: str
    message: str
    category: str


class Structure(Protocol):
    """The schema of a kind that is not declared here but defined while the server runs."""

    @property
    def structs(self) -> Mapping[str, Struct]: ...

    @property
    def struct(self) -> Struct: ...

    @property
    def published(self) -> Schema: ...

    def normalise(self, obj: dict[str, Any], *, fill: bool) -> tuple[dict[str, Any], list[Problem]]: ...


class Schemas:
    """All declared types. Ask for a kind by anything that has ``api_version`` and ``kind``."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], Struct] = {}
        self._structs: dict[str, Struct] = {OPEN.name: OPEN_STRUCT}
        self._converters = Converters(self.struct)
        self._partial = Converters(self.struct, fill=False)
        self._custom: dict[tuple[str, str], Structure] = {}

    def extended(self) -> Schemas:
        """The same declarations, to which a server can add kinds of its own."""
        made = Schemas()
        made._kinds, made._structs = self._kinds.copy(), self._structs
        made._converters, made._partial = self._converters, self._partial
        return made

    def define(self, kinds: Mapping[tuple[str, str], Structure]) -> None:
        """The kinds that are defined, by API version and kind, instead of those that were."""
        self._custom = dict(kinds)

    def custom(self, kind: KindLike) -> Structure | None:
        return self._custom.get((kind.api_version, kind.kind)) if self._custom else None

    def part(self, name: str, value: Any) -> tuple[Any, list[Problem]]:
        """A value as the struct of this name stores it, and what was wrong with it."""
        unknown: list[str] = []
        try:
            made = self._converters.struct(name)(value, unknown)
        except WrongType as error:
            return value, [Problem(error.place, str(error), WRONG_TYPE)]
        return made, self.unknown_fields(self.struct(name), value) if unknown else []

    def struct(self, name: str) -> Struct:
        """A struct by its full name in the declarations: ``core.PodSpec``."""
        found = self._structs.get(name)
        if found is None and name.startswith(CUSTOM):
            _, api_version, place = name.split(" ", 2)
            return self._custom[api_version, place.partition("/")[0]].structs[name]
        if found is None:
            file, _, local = name.rpartition(".")
            found = self._structs[name] = text.read(file.replace("_", "."))[local]
        return found

    def kind(self, kind: KindLike) -> Struct | None:
        """The declaration of a kind, or None where it is not declared."""
        key = (kind.api_version, kind.kind)
        found = self._kinds.get(key)
        if found is None and (custom := self.custom(kind)) is not None:
            return custom.struct
        if found is None and (file := self._file(*key)):
            found = text.read(file).get(kind.kind)
            if found is not None:
                self._kinds[key] = found
        return found

    def normalise(
        self, kind: KindLike, obj: dict[str, Any], stored: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The object as it would be stored, and what was wrong with it. What it shares with ``stored`` is taken as it is.

        With a ``wrong type`` problem there is nothing to store and the object given comes back.
        """
        if (custom := self.custom(kind)) is not None:
            return custom.normalise(obj, fill=True)
        return self._convert(self._converters, kind, obj, stored)

    def _convert(
        self, converters: Converters, kind: KindLike, obj: dict[str, Any], stored: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], list[Problem]]:
        struct = self.kind(kind)
        if struct is None:
            return obj, []
        unknown: list[str] = []
        try:
            made = converters.struct(self._reference(kind))(obj, unknown, stored)
        except WrongType as error:
            return obj, [Problem(error.place, str(error), WRONG_TYPE)]
        return made, self.unknown_fields(struct, obj) if unknown else []

    def partial(self, kind: KindLike, obj: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """As ``normalise``, for a part of an object: canonical and without unknown fields, but nothing is filled in."""
        if (custom := self.custom(kind)) is not None:
            return custom.normalise(obj, fill=False)
        return self._convert(self._partial, kind, obj)

    def unknown_fields(self, struct: Struct, obj: dict[str, Any]) -> list[Problem]:
        paths: list[str] = []
        self._collect_unknown(Type("struct", ""), obj, "", paths, struct)
        return [Problem(path, f'unknown field "{path}"', UNKNOWN_FIELD) for path in paths]

    def openapi_v3(self, resources: Iterable[ResourceOf], *, version: str = "v1") -> dict[str, Any]:
        """The OpenAPI document of the resources of one group and version."""
        return document(self, resources, version)

    def resolve(self, type_: Type) -> Struct | None:
        """The struct behind a type, if it is one."""
        return self.struct(type_.name) if type_.shape == "struct" else None

    def _collect_unknown(self, type_: Type, value: Any, path: str, paths: list[str], struct: Struct | None = None) -> None:
        struct = struct or self.resolve(type_)
        if struct is not None and isinstance(value, dict):
            for key, child in value.items():
                place = f"{path}.{key}" if path else key
                field = struct.fields.get(key)
                if field is None:
                    paths.append(place)
                else:
                    self._collect_unknown(field.type, child, place, paths)
        elif type_.shape == "list" and type_.item is not None and isinstance(value, list):
            for index, child in enumerate(value):
                self._collect_unknown(type_.item, child, f"{path}[{index}]", paths)
        elif type_.shape == "map" and type_.item is not None and isinstance(value, dict):
            for key, child in value.items():
                self._collect_unknown(type_.item, child, f"{path}.{key}", paths)

    def _reference(self, kind: KindLike) -> str:
        file = self._file(kind.api_version, kind.kind)
        return f"{file.replace('.', '_')}.{kind.kind}"

    def _file(self, api_version: str, kind: str) -> str:
        if api_version == "v1" and kind in ("Status", "DeleteOptions"):
            return "meta"
        return _FILES.get(api_version, "")


# API version -> file. The name of a file is the group's first label, and the version where it is not v1.
_FILES: Final = {
    "v1": "core",
    "admissionregistration.k8s.io/v1": "admissionregistration",
    "apiextensions.k8s.io/v1": "apiextensions",
    "apiregistration.k8s.io/v1": "apiregistration",
    "apps/v1": "apps",
    "authentication.k8s.io/v1": "authentication",
    "authorization.k8s.io/v1": "authorization",
    "autoscaling/v1": "autoscaling",
    "autoscaling/v2": "autoscaling.v2",
    "batch/v1": "batch",
    "certificates.k8s.io/v1": "certificates",
    "coordination.k8s.io/v1": "coordination",
    "discovery.k8s.io/v1": "discovery",
    "events.k8s.io/v1": "events",
    "flowcontrol.apiserver.k8s.io/v1": "flowcontrol",
    "networking.k8s.io/v1": "networking",
    "node.k8s.io/v1": "node",
    "policy/v1": "policy",
    "rbac.authorization.k8s.io/v1": "rbac",
    "resource.k8s.io/v1": "resource",
    "resource.k8s.io/v1alpha3": "resource.v1alpha3",
    "resource.k8s.io/v1beta1": "resource.v1beta1",
    "resource.k8s.io/v1beta2": "resource.v1beta2",
    "scheduling.k8s.io/v1": "scheduling",
    "scheduling.k8s.io/v1alpha3": "scheduling.v1alpha3",
    "scheduling.k8s.io/v1beta1": "scheduling.v1beta1",
    "storage.k8s.io/v1": "storage",
}


@cache
def load() -> Schemas:
    """The declarations that Dray serves."""
    return Schemas()
