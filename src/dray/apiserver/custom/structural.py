"""Whether a schema is structural: every place has one type, said outside of ``allOf``, ``anyOf``, ``oneOf`` and ``not``.

Only of such a schema is it clear what to prune, what to default and what to merge. All problems are told, with the path of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dray.api.validation.errors import FieldError, forbidden, not_supported, required
from dray.apiserver.custom import validation
from dray.apiserver.custom.keywords import BadKeyword, keywords
from dray.apiserver.custom.rules import Compiled
from dray.apiserver.custom.shaping import shaped
from dray.apiserver.custom.structure import Node

Schema = dict[str, Any]
Errors = Iterator[FieldError]

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = {
    "$ref": "$ref is not supported",
    "additionalItems": "additionalItems is not supported",
    "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported",
    "patternProperties": "patternProperties is not supported",
    "id": "id is not supported",
    "$schema": "$schema is not supported",
}
# What shapes an object may not be said in alternatives.
_SHAPING: Final = (
    "additionalProperties",
    "default",
    "description",
    "title",
    "nullable",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)
_JUNCTIONS: Final = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_MAX_PLACES: Final = 50_000


def problems(schema: Schema, path: str) -> Errors:
    """Everything that keeps the schema of a kind from being used."""
    if schema.get("type") != "object":
        if schema.get("type"):
            yield _wrong_type(schema, path, "must be object at the root")
        else:
            yield required(f"{path}.type", "must not be empty at the root")
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    if "additionalProperties" in schema and schema["additionalProperties"] is not False:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    yield from _metadata((schema.get("properties") or {}).get("metadata") or {}, f"{path}.properties[metadata]")
    walk = _Walk()
    found = list(walk.place(schema, path, "at the root"))
    yield from found
    if not found and not walk.too_large:
        yield from _Judged(schema, path).problems()


def _metadata(schema: Schema, path: str) -> Errors:
    """Only the name of an object may be restricted."""
    if set(schema.get("properties") or {}) - {"name", "generateName"}:
        yield forbidden(path, "must not specify anything other than name and generateName, but metadata is implicitly specified")
    for name in ("allOf", "anyOf", "oneOf", "not", "enum", "required", "default", "additionalProperties"):
        if schema.get(name):
            yield forbidden(f"{path}.{name}", "must not be used for metadata")


class _Walk:
    """Goes over every place of the structure."""

    def __init__(self) -> None:
        self.places = 0
        self.too_large = False

    def place(self, schema: Schema, path: str, where: str) -> Errors:
        self.places += 1
        if self.places > _MAX_PLACES:
            if not self.too_large:
                self.too_large = True
                yield FieldError(path, "TooMany", self.places, f"the schema has more than {_MAX_PLACES} places")
            return
        yield from _unsupported(schema, path)
        yield from _type(schema, path, where)
        yield from _lists(schema, path)
        yield from _keywords(schema, path)
        yield from self.children(schema, path)
        for name in _JUNCTIONS:
            for index, each in enumerate(schema.get(name) or ()):
                if schema.get("x-kubernetes-int-or-string") and _says_int_or_string(schema, name, index):
                    continue
                yield from self.alternative(each, f"{path}.{name}[{index}]")
        if isinstance(schema.get("not"), dict):
            yield from self.alternative(schema["not"], f"{path}.not")

    def children(self, schema: Schema, path: str) -> Errors:
        additional, items = schema.get("additionalProperties"), schema.get("items")
        if additional is not None and schema.get("properties"):
            yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        if additional is False:
            yield forbidden(f"{path}.additionalProperties", "must not be false: what is not specified is pruned anyway")
        for name, each in (schema.get("properties") or {}).items():
            yield from self.place(each, f"{path}.properties[{name}]", "for specified object fields")
        if isinstance(additional, dict):
            yield from self.place(additional, f"{path}.additionalProperties", "for specified object fields")
        if isinstance(items, dict):
            yield from self.place(items, f"{path}.items", "for specified array items")
        elif isinstance(items, list):
            yield forbidden(f"{path}.items", "items must be a schema object and not an array")
        elif schema.get("type") == "array":
            yield required(f"{path}.items", "must be specified")

    def alternative(self, schema: Schema, path: str) -> Errors:
        """A part that only restricts values."""
        self.places += 1
        if self.places > _MAX_PLACES:
            return
        yield from _unsupported(schema, path)
        for name in _SHAPING:
            if schema.get(name) not in (None, "", False, [], {}):
                yield forbidden(f"{path}.{name}", "must be empty to be structural")
        yield from _keywords(schema, path)
        for name, each in (schema.get("properties") or {}).items():
            yield from self.alternative(each, f"{path}.properties[{name}]")
        if isinstance(schema.get("items"), dict):
            yield from self.alternative(schema["items"], f"{path}.items")
        for name in _JUNCTIONS:
            for index, each in enumerate(schema.get(name) or ()):
                yield from self.alternative(each, f"{path}.{name}[{index}]")
        if isinstance(schema.get("not"), dict):
            yield from self.alternative(schema["not"], f"{path}.not")


def _unsupported(schema: Schema, path: str) -> Errors:
    for name, words in _UNSUPPORTED.items():
        if schema.get(name):
            yield forbidden(f"{path}.{name}", words)
    if schema.get("uniqueItems"):
        yield forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")


def _says_int_or_string(schema: Schema, name: str, index: int) -> bool:
    """The one place where alternatives may say types: number or text."""
    given = schema[name]
    if name == "anyOf":
        return bool(given == _INT_OR_STRING)
    return bool(name == "allOf" and index == 0 and given[0].get("anyOf") == _INT_OR_STRING)


def _type(schema: Schema, path: str, where: str) -> Errors:
    given = schema.get("type") or ""
    mixed, kept = schema.get("x-kubernetes-int-or-string"), schema.get("x-kubernetes-preserve-unknown-fields")
    if given and given not in TYPES:
        yield not_supported(f"{path}.type", given, TYPES)
    if mixed and given:
        yield forbidden(f"{path}.type", "must be empty if x-kubernetes-int-or-string is true")
    if not given and not mixed and not kept and where != "at the root":
        yield required(f"{path}.type", f"must not be empty {where}")
    if kept is False:
        yield FieldError(f"{path}.x-kubernetes-preserve-unknown-fields", "Invalid", False, "must be true or undefined")
    if kept and given not in ("", "object"):
        yield FieldError(f"{path}.type", "Invalid", given, "must be object if x-kubernetes-preserve-unknown-fields is true")
    if schema.get("x-kubernetes-embedded-resource"):
        if given != "object":
            yield FieldError(f"{path}.type", "Invalid", given, "must be object if x-kubernetes-embedded-resource is true")
        if not schema.get("properties") and not kept:
            words = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
            yield required(f"{path}.properties", words)


def _keywords(schema: Schema, path: str) -> Errors:
    try:
        keywords(schema)
    except BadKeyword as error:
        yield FieldError(f"{path}.{error.keyword}", "Invalid", error.value, error.message)


def _lists(schema: Schema, path: str) -> Errors:
    listed, mapped = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-map-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if mapped is not None:
        if mapped not in ("atomic", "granular"):
            yield not_supported(f"{path}.x-kubernetes-map-type", mapped, ("atomic", "granular"))
        if schema.get("type") != "object":
            yield _wrong_type(schema, path, "must be object if x-kubernetes-map-type is specified")
    if listed is None:
        if keys:
            yield required(f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty")
        return
    if listed not in ("atomic", "map", "set"):
        yield not_supported(f"{path}.x-kubernetes-list-type", listed, ("atomic", "map", "set"))
    if schema.get("type") != "array":
        yield _wrong_type(schema, path, "must be array if x-kubernetes-list-type is specified")
        return
    items = schema.get("items")
    if listed == "map" and isinstance(items, dict):
        yield from _keyed(items, keys, path)
    elif keys:
        yield FieldError(
            f"{path}.x-kubernetes-list-map-keys", "Invalid", keys, "must be empty if x-kubernetes-list-type is not map"
        )
    if listed == "set" and isinstance(items, dict):
        yield from _set(items, path)


def _wrong_type(schema: Schema, path: str, words: str) -> FieldError:
    return FieldError(f"{path}.type", "Invalid", schema.get("type") or "", words)


def _set(items: Schema, path: str) -> Errors:
    if items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", "cannot be nullable when x-kubernetes-list-type is set")
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        words = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield FieldError(f"{path}.items.x-kubernetes-map-type", "Invalid", items.get("x-kubernetes-map-type") or "", words)
    if items.get("type") == "array" and items.get("x-kubernetes-list-type") not in (None, "atomic"):
        words = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield FieldError(f"{path}.items.x-kubernetes-list-type", "Invalid", items["x-kubernetes-list-type"], words)


def _keyed(items: Schema, keys: list[str], path: str) -> Errors:
    place = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(place, "must not be empty if x-kubernetes-list-type is map")
    if items.get("type") != "object":
        yield _wrong_type(items, f"{path}.items", "must be object if parent array's x-kubernetes-list-type is map")
    if items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", "cannot be nullable when x-kubernetes-list-type is map")
    for index, key in enumerate(keys):
        known = (items.get("properties") or {}).get(key)
        if key in keys[:index]:
            yield FieldError(f"{place}[{index}]", "Duplicate", key)
        if known is None:
            yield FieldError(place, "Invalid", key, "entries must all be names of item properties")
        elif known.get("type") not in ("boolean", "integer", "number", "string") and not known.get("x-kubernetes-int-or-string"):
            yield FieldError(
                f"{path}.items.properties[{key}].type",
                "Invalid",
                known.get("type") or "",
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            )
        elif key not in (items.get("required") or ()) and "default" not in known:
            words = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", words)


class _Judged:
    """What can only be judged of a schema that compiles: defaults and rules."""

    def __init__(self, schema: Schema, path: str) -> None:
        self._node, self._path = Node(schema), path

    def problems(self) -> Errors:
        yield from self._defaults(self._node, self._path)
        yield from Compiled(self._node, self._path).problems()

    def _defaults(self, node: Node, path: str) -> Errors:
        for name, below in node.properties.items():
            place = f"{path}.properties[{name}]"
            if any(name == known for known, _ in node.defaults):
                yield from _default(below, f"{place}.default")
            yield from self._defaults(below, place)
        for inner, place in ((node.additional, "additionalProperties"), (node.items, "items")):
            if inner is not None:
                yield from self._defaults(inner, f"{path}.{place}")


def _default(node: Node, path: str) -> Errors:
    if node.default is None and not node.nullable:
        yield FieldError(path, "Invalid", None, "must not be null: the field is not nullable")
        return
    unknown: list[str] = []
    filled = shaped(node.default, node, "", unknown, fill=True)
    if unknown:
        yield FieldError(path, "Invalid", node.default, f"must not have unknown fields: {', '.join(unknown[:10])}")
    wrapped = Node({"type": "object"})
    wrapped.properties["default"] = node
    for problem in validation.problems(wrapped, {"default": filled}, None):
        yield FieldError(path + problem.path.removeprefix("default"), problem.type, problem.value, problem.detail)
