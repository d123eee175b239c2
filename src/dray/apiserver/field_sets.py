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
from typing import Any, Final

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
# The path element of an element of a list.
Keyed = Callable[[Any], str]


@dataclass(slots=True)
class _Shape:
    """What a walk needs to know of a type: how to go on below a value (None where it is whole), the struct that it is, or, for
    lists and maps, the shape of what is in it; ``keyed`` is there for lists whose elements are merged one by one."""

    below: Walk | None = None
    struct: Struct | None = None
    item: _Shape | None = None
    keyed: Keyed | None = None

    def fields(self, value: Any, containers: bool, marked: bool) -> FieldSet:
        return self.below(value, containers, marked) if self.below is not None and value else LEAF

    def inner(self, value: Any) -> dict[str, Any]:
        """What is in a list or map, by path element."""
        if self.keyed is None:
            return {f"f:{name}": child for name, child in value.items()}
        return _by_key(self.keyed, value)


# The fields of a struct, prepared once: path element and shape of each.
_Places = dict[str, tuple[str, _Shape]]


class _OpenPlaces(_Places):
    """Of a struct that may have fields that are not declared: those are made up as they come."""

    def __init__(self, declared: _Places, struct: Struct, place: Callable[[Field], tuple[str, _Shape]]) -> None:
        super().__init__(declared)
        self._struct, self._place = struct, place

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name)
        if found is None:
            declared = self._struct.member(name)
            assert declared is not None
            key, shape = self._place(declared)
            found = key, _Shape(_marked(shape.below), shape.struct)
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
        self._places: dict[int, _Places] = {}
        self._walks: dict[int, Walk] = {}

    def of_object(self, struct: Struct, obj: dict[str, Any]) -> FieldSet:
        """The fields that an applied configuration sets."""
        return self._in_struct(struct)(obj, False, False)

    def changes(self, struct: Struct, old: dict[str, Any], new: dict[str, Any]) -> tuple[FieldSet, FieldSet]:
        """The fields that an update set or changed, and those that it removed."""
        found = _Changes()
        self._compare_struct(struct, old, new, found)
        return found.changed, found.removed

    def forget(self) -> None:
        self._places.clear()
        self._walks.clear()

    def _places_of(self, struct: Struct) -> _Places:
        """Declarations live until ``forget``, so their identity is a key."""
        made = self._places.get(id(struct))
        if made is None:
            made = {name: self._place(declared) for name, declared in struct.fields.items()}
            if struct.open:
                made = _OpenPlaces(made, struct, self._place)
            self._places[id(struct)] = made
        return made

    def _place(self, declared: Field) -> tuple[str, _Shape]:
        return f"f:{declared.name}", self._shape(declared.type)

    def _shape(self, type_: Type) -> _Shape:
        struct = self._schemas.resolve(type_)
        if type_.list_type == "atomic" or (struct is not None and struct.atomic):
            return _Shape(None, struct)
        if struct is not None:
            return _Shape(self._in_struct(struct), struct)
        if type_.item is None or (type_.shape == "list" and type_.list_type not in ("map", "set")):
            return _WHOLE
        item = self._shape(type_.item)
        if type_.shape == "map":
            return _Shape(_in_map(item.below), None, item)
        keyed = keyed_by(type_)
        return _Shape(_in_list(keyed, item.below), None, item, keyed)

    # walking

    def _in_struct(self, struct: Struct) -> Walk:
        found = self._walks.get(id(struct))
        if found is None:
            found = self._walks[id(struct)] = self._new_walk(struct)
        return found

    def _new_walk(self, struct: Struct) -> Walk:
        find: Callable[[str], tuple[str, _Shape] | None] | None = None

        def walk(value: Any, containers: bool, marked: bool) -> FieldSet:
            if type(value) is not dict:
                return LEAF
            nonlocal find
            if find is None:  # now, not before: structs may contain themselves
                find = self._places_of(struct).get
            made: FieldSet = {SELF: LEAF} if marked else {}
            for name, child in value.items():
                place = find(name)
                if place is not None:
                    key, shape = place
                    below = shape.below
                    if below is not None and child:
                        made[key] = below(child, containers, containers)
                    elif containers or child != [] or shape.keyed is None:  # of a list that is merged only elements are set
                        made[key] = LEAF
            return made if len(made) > marked else LEAF

        return walk

    # comparing

    def _compare_struct(self, struct: Struct, old: dict[str, Any], new: dict[str, Any], found: _Changes) -> None:
        if not old:
            found.changed.update(self._in_struct(struct)(new, True, False))
            return
        places = self._places_of(struct)
        for name, after in new.items():
            before = old.get(name, _ABSENT)
            if before is after or before == after:
                continue
            place = places.get(name)
            if place is not None:
                self._compare_place(*place, before, after, found)
        if len(old) == len(new) and old.keys() == new.keys():
            return
        for name in old.keys() - new.keys():
            place = places.get(name)
            if place is not None:
                key, shape = place
                found.removed[key] = shape.fields(old[name], True, True)

    def _compare_place(self, key: str, shape: _Shape, before: Any, after: Any, found: _Changes) -> None:
        if before is _ABSENT:
            found.changed[key] = shape.fields(after, True, True)
        elif before is None:
            # A list that is written as null was there before, but nothing in it was.
            found.changed[key] = shape.fields(after, True, False)
        else:
            self._compare_both(key, shape, before, after, found, marked=False)

    def _compare_both(self, key: str, shape: _Shape, before: Any, after: Any, found: _Changes, *, marked: bool) -> None:
        """``marked``: an element of a list or map is in the set itself."""
        struct = shape.struct
        if after is None and before and shape.below is not None:
            after = type(before)()
        if shape.below is None or type(before) is not type(after) or (struct is not None and type(after) is not dict):
            found.changed[key] = shape.fields(after, False, marked)
            return
        inside = _Changes()
        if struct is not None:
            self._compare_struct(struct, before, after, inside)
        elif shape.item is not None:
            self._compare_inner(shape, shape.item, before, after, inside)
        if inside.changed:
            found.changed[key] = inside.changed
        if inside.removed:
            found.removed[key] = inside.removed

    def _compare_inner(self, shape: _Shape, item: _Shape, before: Any, after: Any, found: _Changes) -> None:
        old, new = shape.inner(before), shape.inner(after)
        for key in old.keys() | new.keys():
            one, other = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if one is _ABSENT:
                found.changed[key] = item.fields(other, True, True)
            elif other is _ABSENT:
                found.removed[key] = item.fields(one, True, True)
            elif one != other:
                self._compare_both(key, item, one, other, found, marked=True)


_WHOLE: Final = _Shape()
_ABSENT: Final = object()


def _marked(below: Walk | None) -> Walk | None:
    """What is not declared is in the set itself, as an element of a map is."""
    if below is None:
        return None
    return lambda value, containers, marked: below(value, containers, marked or not containers)


def _in_list(keyed: Keyed, item: Walk | None) -> Walk:
    def walk(value: Any, containers: bool, marked: bool) -> FieldSet:
        if type(value) is not list:
            return LEAF
        made: FieldSet = {SELF: LEAF} if marked else {}
        for child in value:
            key = keyed(child)
            if key not in made:
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


def _by_key(keyed: Keyed, values: list[Any]) -> dict[str, Any]:
    """The elements of a list by their path element; of two with one key the first counts."""
    made: dict[str, Any] = {}
    for value in values:
        made.setdefault(keyed(value), value)
    return made


def keyed_by(type_: Type) -> Keyed:
    """How the elements of a list of this type are told apart."""
    if type_.list_type != "map":
        return _value_key
    defaults, keys = dict(type_.key_defaults), sorted(type_.list_keys)

    def keyed(value: Any) -> str:
        if type(value) is not dict:
            return _value_key(value)
        found = {key: value.get(key, defaults.get(key)) for key in keys}
        present = {key: given for key, given in found.items() if given is not None}
        return "k:" + json.dumps(present, separators=(",", ":"), ensure_ascii=False)

    if len(keys) > 1:
        return keyed
    head, only = f'k:{{"{keys[0]}":', keys[0]

    def named(value: Any) -> str:
        if type(value) is dict and type(found := value.get(only)) is str:
            return f"{head}{encode_basestring(found)}}}"
        return keyed(value)

    return named


def _value_key(value: Any) -> str:
    return "v:" + json.dumps(value, separators=(",", ":"), ensure_ascii=False)
