"""A compiled schema as a declaration: what managedFields and server-side apply need to know of a kind.

Objects with properties are structs, others maps; a list is merged only where its schema says how. What a schema leaves open is
managed as it comes: objects member by member, everything else as a whole.
"""

from __future__ import annotations

from typing import Any, Final

from dray.apiserver.custom.structure import ABSENT, Node
from dray.apiserver.schema import CUSTOM
from dray.apiserver.schema.text import IMPLIED, OPEN, Field, Struct, Type

ANY: Final = Type("scalar", "any")


class Declared:
    """The structs of one version of a kind. ``structs`` has all of them by the names that types use."""

    def __init__(self, group_version: str, kind: str, root: Node) -> None:
        self.structs: dict[str, Struct] = {}
        made = self._struct(f"{CUSTOM}{group_version} {kind}", kind, root, is_kind=True)
        made.fields = {**{field.name: field for field in IMPLIED}, **{n: f for n, f in made.fields.items() if n not in _OWN}}
        self.struct = made

    def _struct(self, name: str, title: str, node: Node, *, is_kind: bool = False) -> Struct:
        made = Struct(title, "custom", is_kind, node.map_type == "atomic", "", open=node.open)
        self.structs[name] = made
        made.fields = {each: self._field(f"{name}/{each}", each, below) for each, below in node.properties.items()}
        if node.embedded:
            for own in IMPLIED:
                made.fields.setdefault(own.name, Field(own.name, OPEN if own.name == "metadata" else ANY, "?"))
        return made

    def _field(self, place: str, name: str, node: Node) -> Field:
        return Field(name, self._type(place, node), "?")

    def _type(self, place: str, node: Node) -> Type:
        if node.type == "array":
            keys = node.list_keys if node.list_type == "map" else ()
            item = self._type(f"{place}/items", node.items) if node.items is not None else ANY
            return Type("list", "", item, (), node.list_type, keys, _key_defaults(node, keys))
        if node.type == "object" and node.additional is not None and not node.properties:
            whole = "atomic" if node.map_type == "atomic" else ""
            return Type("map", item=self._type(f"{place}/*", node.additional), list_type=whole)
        if node.type == "object" or node.properties or node.open:
            self._struct(place, place, node)
            return Type("struct", place)
        return ANY


_OWN: Final = tuple(field.name for field in IMPLIED)


def _key_defaults(node: Node, keys: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    known = node.items.properties if node.items is not None else {}
    return tuple((key, known[key].default) for key in keys if key in known and known[key].default is not ABSENT)
