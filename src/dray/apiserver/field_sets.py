"""Sets of fields of an object, as managedFields has them (FieldsV1).

A set is a tree of dicts, in the form that is on the wire. Keys are path elements: ``f:name`` for a member of a struct or
map, ``k:{...}`` for a list element found by its keys, ``v:...`` for an element of a set. The path to a node is in the set if
the node is empty or has the key ``.``; only the root is different: empty, it is the empty set.

Sets are never changed once made, so their parts are shared; all functions return new ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import msgspec

from dray.apiserver.schema import Field, Schemas, Struct, Type

FieldSet = dict[str, Any]

SELF: Final = "."
_REMEMBERED_BYTES: Final = 4096
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
LEAF: Final[FieldSet] = {}


# algebra


def is_member(node: FieldSet) -> bool:
    """Whether the path to this node is in the set."""
    return not node or SELF in node


def with_self(node: FieldSet) -> FieldSet:
    return node if is_member(node) else {SELF: {}, **node}


def without_self(node: FieldSet) -> FieldSet:
    return {key: child for key, child in node.items() if key != SELF} if SELF in node else node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Of two whole sets."""
    made = dict(one)
    for key, child in other.items():
        made[key] = _united(made[key], child) if key in made else child
    return made


def _united(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one:
        return with_self(other)
    return with_self(one) if not other else union(one, other)


def minus(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in the first whole set but not in the second."""
    if not other:
        return one
    made: FieldSet = {}
    for key, child in one.items():
        left = _left(child, other[key]) if key in other else child
        if left is not None:
            made[key] = left
    return made


def _left(one: FieldSet, other: FieldSet) -> FieldSet | None:
    inner = minus(without_self(one), without_self(other))
    if is_member(one) and not is_member(other):
        return {SELF: {}, **inner} if inner else LEAF
    return inner or None


def common(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in both whole sets."""
    made: FieldSet = {}
    for key, child in one.items():
        if key in other and key != SELF:
            both = is_member(child) and is_member(other[key])
            inner = common(without_self(child), without_self(other[key]))
            if both or inner:
                made[key] = with_self(inner) if both and inner else inner
    return made


def in_order(fields: FieldSet) -> FieldSet:
    """The same set with its elements in the order in which they are written. Objects of one sort share theirs."""
    encoded = _encode(fields)
    return _remembered(encoded) if len(encoded) <= _REMEMBERED_BYTES else _sorted(encoded)


def _sorted(encoded: bytes) -> FieldSet:
    made: FieldSet = msgspec.json.decode(_encode_sorted(msgspec.json.decode(encoded)))
    return made


_remembered = lru_cache(maxsize=1024)(_sorted)


def paths(fields: FieldSet, above: str = "") -> Iterator[str]:
    """The members of a set as people read them: ``.spec.containers[name="app"].image``."""
    for key in sorted(fields):
        if key != SELF:
            path = above + _words(key)
            if is_member(fields[key]):
                yield path
            yield from paths(fields[key], path)


def _words(key: str) -> str:
    sort, _, value = key.partition(":")
    if sort == "f":
        return f".{value}"
    if sort == "k":
        shown = (f"{name}={json.dumps(given, ensure_ascii=False)}" for name, given in sorted(json.loads(value).items()))
        return f"[{','.join(shown)}]"
    return f"[={value}]" if sort == "v" else f"[{value}]"


def from_wire(fields: Any) -> FieldSet:
    """A set from a client; anything that is not a set reads as an empty one."""
    if not isinstance(fields, dict):
        return {}
    return fields if _is_tree(fields) else {}


def _is_tree(fields: FieldSet) -> bool:
    return all(type(child) is dict and _is_tree(child) for child in fields.values())


# fields of objects


# The fields of a value that is not empty. ``containers``: also the structs, maps and lists in it, as for what was not there
# before; ``marked``: and the value itself.
Walk = Callable[[Any, bool, bool], FieldSet]


class _Place(NamedTuple):
    """What a walk needs to know of a field: its path element, and how to go on below it (None for a field that is whole)."""

    key: str
    below: Walk | None
    type: Type
    declared: Field
    struct: Struct | None

    def fields(self, value: Any, *, containers: bool) -> FieldSet:
        return self.below(value, containers, containers) if self.below is not None and value else LEAF


class _OpenPlaces(dict[str, _Place]):
    """Of a struct that may have fields that are not declared: those are made up as they come."""

    def __init__(self, declared: dict[str, _Place], struct: Struct, place: Callable[[Field], _Place]) -> None:
        super().__init__(declared)
        self._struct, self._place = struct, place

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        if found is None:
            declared = self._struct.member(name)
            assert declared is not None
            found = self._place(declared)
        return found


@dataclass(slots=True)
class _Changes:
    """What a comparison finds below one place."""

    changed: FieldSet = field(default_factory=dict)
    removed: FieldSet = field(default_factory=dict)


class Fields:
    """Walks objects along the declarations of their kinds."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._places: dict[int, dict[str, _Place]] = {}
        self._walks: dict[int, Walk] = {}

    def of_object(self, struct: Struct, obj: dict[str, Any]) -> FieldSet:
        """The fields that an applied configuration sets."""
        return self._in_struct(struct)(obj, False, False)

    def changes(self, struct: Struct, old: dict[str, Any], new: dict[str, Any]) -> tuple[FieldSet, FieldSet]:
        """The fields that an update set or changed, and those that it removed."""
        found = _Changes()
        self._compare_struct(struct, old, new, found)
        return found.changed, found.removed

    def places(self, struct: Struct) -> dict[str, _Place]:
        """The fields of a struct, prepared once. Declarations live until ``forget``, so their identity is a key."""
        made = self._places.get(id(struct))
        if made is None:
            made = {name: self._place(declared) for name, declared in struct.fields.items()}
            if struct.open:
                made = _OpenPlaces(made, struct, self._place)
            self._places[id(struct)] = made
        return made

    def forget(self) -> None:
        self._places.clear()
        self._walks.clear()

    def _place(self, declared: Field) -> _Place:
        type_ = declared.type
        below: Walk | None = None
        if type_.shape == "list" and declared.list_type in ("map", "set"):
            assert type_.item is not None
            below = _in_list(declared, self._in_type(type_.item))
        elif declared.list_type != "atomic":
            below = self._in_type(type_)
        return _Place(f"f:{declared.name}", below, type_, declared, self._schemas.resolve(type_))

    # walking

    def _in_type(self, type_: Type) -> Walk | None:
        """Lists in lists and maps are whole."""
        struct = self._schemas.resolve(type_)
        if struct is not None:
            return None if struct.atomic else self._in_struct(struct)
        return _in_map(self._in_type(type_.item)) if type_.shape == "map" and type_.item is not None else None

    def _in_struct(self, struct: Struct) -> Walk:
        found = self._walks.get(id(struct))
        if found is None:
            found = self._walks[id(struct)] = self._new_walk(struct)
        return found

    def _new_walk(self, struct: Struct) -> Walk:
        places: dict[str, _Place] = {}

        def walk(value: Any, containers: bool, marked: bool) -> FieldSet:
            if type(value) is not dict:
                return LEAF
            nonlocal places
            if not places:  # now, not before: structs may contain themselves
                places = self.places(struct)
            made: FieldSet = {SELF: LEAF} if marked else {}
            for name, child in value.items():
                place = places.get(name)
                if place is not None:
                    key, below = place[:2]
                    made[key] = below(child, containers, containers) if below is not None and child else LEAF
            return made if len(made) > marked else LEAF

        return walk

    # comparing

    def _compare_struct(self, struct: Struct, old: dict[str, Any], new: dict[str, Any], found: _Changes) -> None:
        if not old:
            found.changed.update(self._in_struct(struct)(new, True, False))
            return
        places = self.places(struct)
        for name, after in new.items():
            before = old.get(name, _ABSENT)
            if before is after or before == after:
                continue
            place = places.get(name)
            if place is not None:
                self._compare_place(place, before, after, found)
        for name in old.keys() - new.keys():
            place = places.get(name)
            if place is not None:
                found.removed[place.key] = place.fields(old[name], containers=True)

    def _compare_place(self, place: _Place, before: Any, after: Any, found: _Changes) -> None:
        key, below = place.key, place.below
        if before is _ABSENT:
            found.changed[key] = place.fields(after, containers=True)
        elif before is None:
            # A list that is written as null was there before, but nothing in it was.
            found.changed[key] = below(after, True, False) if below is not None and after else LEAF
        elif below is None or type(before) is not type(after) or (place.struct is not None and type(after) is not dict):
            found.changed[key] = place.fields(after, containers=False)
        else:
            inside = _Changes()
            self._compare_inside(place, before, after, inside)
            _put(found, key, inside)

    def _compare_inside(self, place: _Place, before: Any, after: Any, found: _Changes) -> None:
        if place.struct is not None:
            self._compare_struct(place.struct, before, after, found)
        elif place.type.item is not None:
            item = place.type.item
            old = _elements(place.declared, before) if isinstance(before, list) else {f"f:{key}": v for key, v in before.items()}
            new = _elements(place.declared, after) if isinstance(after, list) else {f"f:{key}": v for key, v in after.items()}
            for key in old.keys() | new.keys():
                one, other = old.get(key, _ABSENT), new.get(key, _ABSENT)
                if one != other:
                    self._compare_item(key, item, one, other, found)

    def _compare_item(self, key: str, item: Type, before: Any, after: Any, found: _Changes) -> None:
        struct = self._schemas.resolve(item)
        if after is _ABSENT:
            found.removed[key] = _element(self._in_type(item), before, containers=True)
        elif before is _ABSENT:
            found.changed[key] = _element(self._in_type(item), after, containers=True)
        elif struct is None or struct.atomic or type(before) is not type(after) or type(after) is not dict:
            found.changed[key] = _element(self._in_type(item), after, containers=False)
        else:
            inside = _Changes()
            self._compare_struct(struct, before, after, inside)
            _put(found, key, inside)


def _element(below: Walk | None, value: Any, *, containers: bool) -> FieldSet:
    """An element of a list or map is in the set itself."""
    return below(value, containers, True) if below is not None and value else LEAF


def _in_list(declared: Field, item: Walk | None) -> Walk:
    def walk(value: Any, containers: bool, marked: bool) -> FieldSet:
        made: FieldSet = {SELF: LEAF} if marked else {}
        for key, child in _elements(declared, value).items():
            made[key] = item(child, containers, True) if item is not None and child else LEAF
        return made

    return walk


def _in_map(item: Walk | None) -> Walk:
    def walk(value: Any, containers: bool, marked: bool) -> FieldSet:
        if type(value) is not dict:
            return LEAF
        made: FieldSet = {SELF: LEAF} if marked else {}
        for key, child in value.items():
            made[f"f:{key}"] = item(child, containers, True) if item is not None and child else LEAF
        return made

    return walk


def _put(found: _Changes, key: str, inside: _Changes) -> None:
    if inside.changed:
        found.changed[key] = inside.changed
    if inside.removed:
        found.removed[key] = inside.removed


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
        present = {key: given for key, given in keys.items() if given is not None}
        return "k:" + json.dumps(present, separators=(",", ":"), ensure_ascii=False)
    return "v:" + json.dumps(value, separators=(",", ":"), ensure_ascii=False)
