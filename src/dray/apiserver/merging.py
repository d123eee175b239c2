"""Laying an applied configuration over an object, and taking away what it no longer has: as structured-merge-diff does it.

A list or map is merged element by element where its declaration says so, at any depth, and replaced as a whole otherwise.
Nothing is changed in place.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any

from dray.apiserver.field_sets import SELF, FieldSet, is_member, keyed_by, with_self
from dray.apiserver.schema import Schemas, Struct, Type

Object = dict[str, Any]


class Merge:
    """An object with a configuration laid over it."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def structs(self, struct: Struct, current: Object, wanted: Object) -> Object:
        made = dict(current)
        for name, value in wanted.items():
            field = struct.member(name)
            made[name] = self._values(field.type, current.get(name), value) if field is not None else value
        return made

    def _values(self, type_: Type, current: Any, wanted: Any) -> Any:
        struct = self._schemas.resolve(type_)
        atomic = type_.list_type == "atomic" or (struct is not None and struct.atomic)
        if atomic or type(current) is not type(wanted):
            return copy.deepcopy(wanted)
        if isinstance(wanted, dict) and struct is not None:
            return self.structs(struct, current, wanted)
        if isinstance(wanted, dict) and type_.item is not None:
            item = type_.item
            return current | {key: self._values(item, current.get(key), value) for key, value in wanted.items()}
        if isinstance(wanted, list) and type_.list_type in ("map", "set") and type_.item is not None:
            return self._lists(type_, type_.item, current, wanted)
        return copy.deepcopy(wanted)

    def _lists(self, type_: Type, item: Type, current: list[Any], wanted: list[Any]) -> list[Any]:
        """Elements of both come in the order of the configuration; the others stay where they are among them."""
        keyed = keyed_by(type_)
        keys = [keyed(value) for value in current]
        had = dict(zip(reversed(keys), reversed(current), strict=True))
        new = {keyed(value): value for value in wanted}
        return [
            current[place] if place is not None else self._values(item, had.get(key), new[key])
            for key, place in _interleaved(keys, list(new))
        ]


def _interleaved(current: list[str], wanted: list[str]) -> Iterator[tuple[str, int | None]]:
    """The keys of both lists in the order in which structured-merge-diff puts them; those not wanted with their place."""
    asked, present, left, right = set(wanted), set(current), 0, 0
    shared = deque(key for key in wanted if key in present)
    done: set[str] = set()
    while left < len(current) or right < len(wanted):
        if left < len(current) and right < len(wanted):
            key = current[left]
            if key == wanted[right]:
                yield key, None
                done.add(key)
                left, right = left + 1, right + 1
                if shared:
                    shared.popleft()
                continue
            if key in asked and shared and shared[0] != key:
                left += 1
                continue
        if left < len(current):
            key = current[left]
            if key not in asked:
                yield key, left
                left += 1
                continue
            if key in done:
                left += 1
        if right < len(wanted):
            key = wanted[right]
            yield key, None
            done.add(key)
            right += 1
            if shared and shared[0] == key:
                shared.popleft()


class Removal:
    """Objects without some of their fields."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def named(self, struct: Struct, fields: FieldSet) -> FieldSet:
        """The set with every declared field of a struct in it of which it has a part: such fields go as a whole, with their last
        part."""
        return self._named(struct, None, fields)

    def _named(self, struct: Struct | None, item: Type | None, fields: FieldSet) -> FieldSet:
        made: FieldSet = {}
        for key, below in fields.items():
            declared = struct.fields.get(key[2:]) if struct is not None and key.startswith("f:") else None
            type_ = declared.type if declared is not None else item
            if below and key != SELF and type_ is not None:
                below = self._named(self._schemas.resolve(type_), type_.item, below)
            made[key] = with_self(below) if declared is not None else below
        return made

    def structs(self, struct: Struct | None, value: Object, gone: FieldSet, item: Type | None = None) -> Object:
        made: Object = {}
        for name, child in value.items():
            below = gone.get(f"f:{name}")
            if below is None:
                made[name] = child
            elif not is_member(below):
                declared = struct.member(name) if struct is not None else None
                made[name] = self._left(declared.type if declared is not None else item, child, below)
        return made

    def _left(self, type_: Type | None, value: Any, gone: FieldSet) -> Any:
        """What is left of a value of which a part goes; null for nothing, which is not the same as being removed."""
        struct = self._schemas.resolve(type_) if type_ is not None else None
        if type_ is None or type_.list_type == "atomic" or (struct is not None and struct.atomic):
            return None
        if isinstance(value, dict):
            return self.structs(struct, value, gone, type_.item) or None
        if isinstance(value, list) and type_.item is not None:
            return self._elements(type_, type_.item, value, gone) or None
        return value

    def _elements(self, type_: Type, item: Type, values: list[Any], gone: FieldSet) -> list[Any]:
        made, keyed = [], keyed_by(type_)
        for value in values:
            below = gone.get(keyed(value))
            if below is None:
                made.append(value)
            elif not is_member(below):
                made.append(self._left(item, value, below))
        return made
