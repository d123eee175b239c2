"""OpenAPI v3 documents of the served kinds, made from their declarations.

kubectl reads them to learn which fields exist (``explain``), how lists merge (``apply``), and that the server itself
validates fields (the ``fieldValidation`` parameter of PATCH). A document is a pure function of the declarations and the
resources given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from dray.apiserver.schema.text import Field, Struct, Type

Document = dict[str, Any]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_SPECIAL: Final[dict[str, tuple[str, Document]]] = {
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"description": "An exact amount, such as 500m, 1.5 or 4Gi.", "oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "time": (f"{_META}.Time", {"description": "A time in RFC 3339, to the second.", "type": "string", "format": "date-time"}),
    "microtime": (
        f"{_META}.MicroTime",
        {"description": "A time in RFC 3339, to the microsecond.", "type": "string", "format": "date-time"},
    ),
    "intOrString": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {
            "description": "A number, or a text such as 25%.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    "any": ("io.k8s.apimachinery.pkg.runtime.RawExtension", {"description": "Any JSON object.", "type": "object"}),
}
_SCALARS: Final[dict[str, Document]] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
}
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
# kubectl apply sends the most elaborate one that is listed, and of kinds that are defined nobody knows how to merge.
_PLAIN_PATCHES: Final = tuple(each for each in _PATCHES if "strategic" not in each)
_JSON: Final = "application/json"


class KindOf(Protocol):
    """Where a kind lives: ``dray.api.kinds.Kind``."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def namespaced(self) -> bool: ...
    @property
    def api_version(self) -> str: ...


class SubresourceOf(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def verbs(self) -> Sequence[str]: ...
    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def kind(self) -> str: ...


class ResourceOf(Protocol):
    """A served kind: an entry of the registry."""

    @property
    def kind(self) -> KindOf: ...
    @property
    def verbs(self) -> Sequence[str]: ...
    @property
    def subresources(self) -> Sequence[SubresourceOf]: ...
    @property
    def list_name(self) -> str: ...


class Declarations(Protocol):
    """``Schemas``, as far as it is needed here."""

    def struct(self, name: str) -> Struct: ...
    def kind(self, kind: Any) -> Struct | None: ...
    def custom(self, kind: Any) -> Any: ...


def document(declarations: Declarations, resources: Iterable[ResourceOf], version: str) -> Document:
    """The document of one group and version."""
    components = _Components(declarations)
    paths: Document = {}
    for resource in resources:
        custom = declarations.custom(resource.kind)
        if custom is not None:
            paths |= _Paths(resource, components.custom(custom.published, resource), components, _PLAIN_PATCHES).all()
            continue
        struct = declarations.kind(resource.kind)
        if struct is not None:
            paths |= _Paths(resource, components.kind(struct, resource.kind), components).all()
    return {
        "openapi": "3.0.0",
        "info": {"title": "Dray", "version": version},
        "paths": paths,
        "components": {"schemas": components.schemas},
    }


class _Components:
    """The schemas that a document refers to, each made once."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations
        self.schemas: Document = {}

    def kind(self, struct: Struct, kind: KindOf) -> str:
        """The schema of a kind and of its list."""
        name = self.struct(struct)
        self.schemas[name]["x-kubernetes-group-version-kind"] = [_gvk(kind.group, kind.version, kind.kind)]
        self.schemas[f"{name}List"] = self._list(name, kind, f"{kind.kind}List")
        return name

    def custom(self, schema: Document, resource: ResourceOf) -> str:
        """The schema of a kind that is defined, named as Go's packages would be, and of its list."""
        kind = resource.kind
        name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
        self.named("meta.ObjectMeta")
        self.schemas[name] = schema | {"x-kubernetes-group-version-kind": [_gvk(kind.group, kind.version, kind.kind)]}
        self.schemas[f"{name}List"] = self._list(name, kind, resource.list_name)
        return name

    def other_kind(self, api_version: str, kind: str) -> str:
        """The schema of a kind that a subresource takes, if it is declared."""
        struct = self._declarations.kind(_Named(api_version, kind))
        return self.struct(struct) if struct is not None else ""

    def struct(self, struct: Struct) -> str:
        name = struct.full_name
        if name not in self.schemas:
            made = self.schemas[name] = self._described(struct.words, type="object")
            if struct.atomic:
                made["x-kubernetes-map-type"] = "atomic"
            needed = [field.name for field in struct.fields.values() if field.required]
            if needed:
                made["required"] = needed
            if struct.fields:  # as with parameters, an empty object is lost when Go writes it again
                made["properties"] = {field.name: self._field(field) for field in struct.fields.values()}
        return name

    def named(self, name: str) -> Document:
        return _reference(self.struct(self._declarations.struct(name)))

    def _list(self, name: str, kind: KindOf, list_name: str) -> Document:
        return {
            "description": f"A list of {kind.kind} objects.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": self.named("meta.ListMeta"),
                "items": {"type": "array", "items": _reference(name)},
            },
            "x-kubernetes-group-version-kind": [_gvk(kind.group, kind.version, list_name)],
        }

    def _field(self, field: Field) -> Document:
        made = self._described(field.words, **self._type(field.type, wrapped=bool(field.words)))
        if field.type.list_type:
            key = "x-kubernetes-list-type" if field.type.shape == "list" else "x-kubernetes-map-type"
            made[key] = field.type.list_type
        if field.type.list_keys:
            made["x-kubernetes-list-map-keys"] = list(field.type.list_keys)
        if field.strategies:
            made["x-kubernetes-patch-strategy"] = ",".join(field.strategies)
        if field.merge_key:
            made["x-kubernetes-patch-merge-key"] = field.merge_key
        return made

    def _type(self, type_: Type, *, wrapped: bool = False) -> Document:
        if type_.shape == "list":
            assert type_.item is not None
            return {"type": "array", "items": self._type(type_.item)}
        if type_.shape == "map":
            assert type_.item is not None
            return {"type": "object", "additionalProperties": self._type(type_.item)}
        if type_.shape == "scalar" and type_.name in _SCALARS:
            made = dict(_SCALARS[type_.name])
            return made | {"enum": list(type_.values)} if type_.values else made
        reference = self._special(type_.name) if type_.shape == "scalar" else self.named(type_.name)
        return {"allOf": [reference]} if wrapped else reference

    def _special(self, name: str) -> Document:
        full, schema = _SPECIAL[name]
        self.schemas.setdefault(full, schema)
        return _reference(full)

    def _described(self, words: str, **rest: Any) -> Document:
        return {"description": words, **rest} if words else rest


class _Paths:
    """The paths of one resource and its subresources."""

    def __init__(self, resource: ResourceOf, schema: str, components: _Components, patches: tuple[str, ...] = _PATCHES) -> None:
        self.resource, self.kind, self.schema, self.components = resource, resource.kind, schema, components
        self.patches = patches
        group = f"/apis/{self.kind.group}/{self.kind.version}" if self.kind.group else f"/api/{self.kind.version}"
        self.collection = (
            f"{group}/namespaces/{{namespace}}/{self.kind.plural}" if self.kind.namespaced else f"{group}/{self.kind.plural}"
        )
        self.everywhere = f"{group}/{self.kind.plural}"

    def all(self) -> Document:
        paths = {self.collection: self._collection(), f"{self.collection}/{{name}}": self._object()}
        if self.kind.namespaced and "list" in self.resource.verbs:
            paths[self.everywhere] = {"get": self._operation("list", f"{self.schema}List")}
        for sub in self.resource.subresources:
            paths[f"{self.collection}/{{name}}/{sub.name}"] = self._subresource(sub)
        return {path: operations for path, operations in paths.items() if operations}

    def _collection(self) -> Document:
        made = {
            "get": ("list", self._operation("list", f"{self.schema}List")),
            "post": ("create", self._writing("post", self.schema)),
            "delete": ("deletecollection", self._operation("deletecollection", f"{_META}.Status")),
        }
        return self._placed(made)

    def _object(self) -> Document:
        made = {
            "get": ("get", self._operation("get", self.schema)),
            "put": ("update", self._writing("put", self.schema)),
            "patch": ("patch", self._writing("patch", self.schema)),
            "delete": ("delete", self._operation("delete", f"{_META}.Status")),
        }
        return self._placed(made)

    def _placed(self, made: dict[str, tuple[str, Document]]) -> Document:
        return {method: operation for method, (verb, operation) in made.items() if verb in self.resource.verbs}

    def _subresource(self, sub: SubresourceOf) -> Document:
        schema, gvk = self.schema, _gvk(self.kind.group, self.kind.version, self.kind.kind)
        if sub.kind:
            gvk = _gvk(sub.group, sub.version, sub.kind)
            schema = self.components.other_kind(f"{sub.group}/{sub.version}".lstrip("/"), sub.kind) or schema
        methods = {"get": "get", "update": "put", "patch": "patch", "create": "post"}
        return {
            methods[verb]: (self._operation("get", schema) if verb == "get" else self._writing(methods[verb], schema))
            | {"x-kubernetes-group-version-kind": gvk}
            for verb in sub.verbs
            if verb in methods
        }

    def _operation(self, action: str, schema: str) -> Document:
        if schema.startswith(_META):
            self.components.named("meta.Status")
        parameters = [_query(name) for name in _PARAMETERS.get(action, ())]
        return {
            "tags": [f"{self.kind.group or 'core'}_{self.kind.version}"],
            **({"parameters": parameters} if parameters else {}),  # an empty list is lost when Go writes it again
            "responses": {"200": {"description": "OK", "content": {_JSON: {"schema": _reference(schema)}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(self.kind.group, self.kind.version, self.kind.kind),
        }

    def _writing(self, action: str, schema: str) -> Document:
        body = {"type": "object"} if action == "patch" else _reference(schema)
        types = self.patches if action == "patch" else (_JSON,)
        content = {media: {"schema": body} for media in types}
        return self._operation(action, schema) | {"requestBody": {"content": content, "required": True}}


class _Named:
    def __init__(self, api_version: str, kind: str) -> None:
        self.api_version, self.kind = api_version, kind


_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_PARAMETERS: Final = {
    "list": (
        "allowWatchBookmarks",
        "continue",
        "fieldSelector",
        "labelSelector",
        "limit",
        "resourceVersion",
        "timeoutSeconds",
        "watch",
    ),
    "post": _WRITE,
    "put": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "propagationPolicy"),
    "deletecollection": ("dryRun", "fieldSelector", "labelSelector", "propagationPolicy"),
}


def _query(name: str) -> Document:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def _reference(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def _gvk(group: str, version: str, kind: str) -> Document:
    return {"group": group, "kind": kind, "version": version}
