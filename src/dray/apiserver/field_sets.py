"""Sets of fields of an object, as managedFields has them (FieldsV1).

A set is a tree of dicts. Keys are path elements: ``f:name`` for a member of a struct or map, ``k:{...}`` for a list element
found by its keys, ``v:...`` for an element of a set; ``.`` in a node means that the path to the node itself is in the set.
On the wire, a node with nothing but ``.`` is written as an empty object.

Sets are never changed once made; all functions return new ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Final

from dray.apiserver.schema import Field, Schemas, Struct, Type

FieldSet = dict[str, Any]

SELF: Final = "."
LEAF: Final[FieldSet] = {SELF: {}}


# algebra


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    made = dict(one)
    for key, child in other.items():
        made[key] = {} if key == SELF else union(made[key], child) if key in made else child
    return made


def minus(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in the first but not in the second."""
    made: FieldSet = {}
    for key, child in one.items():
        if key not in other:
            made[key] = child
        elif key != SELF and (left := minus(child, other[key])):
            made[key] = left
    return made


def _with_self(fields: FieldSet) -> FieldSet:
    return fields if SELF in fields else {SELF: {}, **fields}


def to_wire(fields: FieldSet) -> FieldSet:
    return {key: {} if key == SELF or child == LEAF else to_wire(child) for key, child in fields.items()}


def from_wire(fields: Any) -> FieldSet:
    """Anything that is not a set reads as an empty one."""
    if not isinstance(fields, dict):
        return {}
    return {key: {} if key == SELF else from_wire(child) or LEAF for key, child in fields.items()}


# fields of objects


@dataclass(slots=True)
class _Changes:
    """What a comparison finds below one place."""

    changed: FieldSet = field(default_factory=dict)
    removed: FieldSet = field(default_factory=dict)


class Fields:
    """Walks objects along the declarations of their kinds."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def of_object(self, struct: Struct, obj: dict[str, Any]) -> FieldSet:
        """The fields that an applied configuration sets."""
        return self._of_struct(struct, obj, containers=False)

    def changes(self, struct: Struct, old: dict[str, Any], new: dict[str, Any]) -> tuple[FieldSet, FieldSet]:
        """The fields that an update set or changed, and those that it removed."""
        found = _Changes()
        self._compare_members(struct, None, old, new, found)
        return found.changed, found.removed

    def _of_struct(self, struct: Struct, obj: dict[str, Any], *, containers: bool) -> FieldSet:
        made: FieldSet = {}
        for name, value in obj.items():
            declared = struct.fields.get(name)
            if declared is None:
                continue
            # Most fields are scalars, so these do not take the way of the others.
            scalar = declared.type.shape == "scalar"
            if fields := LEAF if scalar else self._of(declared.type, declared, value, containers=containers):
                made[f"f:{name}"] = fields
        return made

    def _of(self, type_: Type, declared: Field | None, value: Any, *, containers: bool) -> FieldSet:
        """``containers``: also the struct, map or list itself, as for one that was not there before."""
        if not isinstance(value, dict | list) or not value or self._is_atomic(type_, declared):
            return LEAF
        struct = self._schemas.resolve(type_)
        if struct is not None and isinstance(value, dict):
            made = self._of_struct(struct, value, containers=containers)
        elif type_.shape == "map" and type_.item is not None and isinstance(value, dict):
            item = type_.item
            made = {f"f:{key}": _with_self(self._of(item, None, child, containers=containers)) for key, child in value.items()}
        elif declared is not None and isinstance(value, list):
            made = {
                element: _with_self(self._element(type_, child, containers=containers))
                for element, child in _elements(declared, value).items()
            }
        else:
            return LEAF
        return _with_self(made) if containers else made

    def _element(self, type_: Type, child: Any, *, containers: bool) -> FieldSet:
        return self._of(type_.item, None, child, containers=containers) if type_.item is not None else LEAF

    def _is_atomic(self, type_: Type, declared: Field | None) -> bool:
        if type_.shape == "list":
            return declared is None or declared.list_type not in ("map", "set")
        if type_.shape == "scalar" or (declared is not None and declared.list_type == "atomic"):
            return True
        struct = self._schemas.resolve(type_)
        return struct is not None and struct.atomic

    # comparing

    def _compare_members(
        self, struct: Struct | None, type_: Type | None, old: dict[str, Any], new: dict[str, Any], found: _Changes
    ) -> None:
        for name in old.keys() | new.keys():
            before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
            if before is after or before == after:
                continue
            declared = struct.fields.get(name) if struct is not None else None
            inner = declared.type if declared is not None else type_.item if type_ is not None else None
            if inner is not None:
                self._compare(f"f:{name}", inner, declared, before, after, found)

    def _compare(self, key: str, type_: Type, declared: Field | None, before: Any, after: Any, found: _Changes) -> None:
        if after is _ABSENT:
            found.removed[key] = self._of(type_, declared, before, containers=True)
        elif before is _ABSENT:
            found.changed[key] = self._of(type_, declared, after, containers=True)
        elif self._is_atomic(type_, declared) or type(before) is not type(after):
            # A list that is written as null was there before, but nothing in it was.
            fields = self._of(type_, declared, after, containers=before is None)
            found.changed[key] = fields if before is not None or fields == LEAF else minus(fields, LEAF)
        else:
            inside = _Changes()
            self._compare_inside(type_, declared, before, after, inside)
            if inside.changed:
                found.changed[key] = inside.changed
            if inside.removed:
                found.removed[key] = inside.removed

    def _compare_inside(self, type_: Type, declared: Field | None, before: Any, after: Any, found: _Changes) -> None:
        if isinstance(after, dict):
            self._compare_members(self._schemas.resolve(type_), type_, before, after, found)
            return
        assert declared is not None
        assert type_.item is not None
        old, new = _elements(declared, before), _elements(declared, after)
        for key in old.keys() | new.keys():
            one, other = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if one != other:
                self._compare(key, type_.item, None, one, other, found)


_ABSENT: Final = object()


def _elements(declared: Field, values: list[Any]) -> dict[str, Any]:
    """The elements of a list by their path element; of two with one key the first counts."""
    made: dict[str, Any] = {}
    for value in values:
        made.setdefault(element_key(declared, value), value)
    return made


def element_key(declared: Field, value: Any) -> str:
    if len(declared.list_keys) == 1 and isinstance(value, dict) and type(found := value.get(declared.list_keys[0])) is str:
        return f'k:{{"{declared.list_keys[0]}":{encode_basestring(found)}}}'
    if declared.list_type == "map" and isinstance(value, dict):
        defaults = dict(declared.key_defaults)
        keys = {key: value.get(key, defaults.get(key)) for key in sorted(declared.list_keys)}
        present = {key: found for key, found in keys.items() if found is not None}
        return "k:" + json.dumps(present, separators=(",", ":"), ensure_ascii=False)
    return "v:" + json.dumps(value, separators=(",", ":"), ensure_ascii=False)
