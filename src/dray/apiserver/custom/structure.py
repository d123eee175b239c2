"""A structural schema, compiled into a tree of nodes: one for each place in an object.

Compiling assumes a schema that ``definition`` accepted. Nothing here looks at an object.
"""

from __future__ import annotations

from typing import Any, Final

from dray.apiserver.custom.keywords import Keyword, keywords

Schema = dict[str, Any]

ABSENT: Final = object()


class Node:
    """What may stand at one place.

    extra: members that ``properties`` does not name are allowed; ``additional`` is what they look like (None: nothing is said).
    open: what is not specified is kept.
    has_rules: there is a rule here or somewhere below.
    defaults: the members that are put in where they are absent.
    """

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "default",
        "defaults",
        "embedded",
        "extra",
        "has_rules",
        "int_or_string",
        "items",
        "keywords",
        "list_keys",
        "list_type",
        "map_type",
        "none_of",
        "nullable",
        "one_of",
        "open",
        "properties",
        "required",
        "rules",
        "schema",
        "type",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.type: str = schema.get("type") or ""
        self.nullable = bool(schema.get("nullable"))
        self.open = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        self.int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
        self.list_type: str = schema.get("x-kubernetes-list-type") or "atomic"
        self.list_keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self.map_type: str = schema.get("x-kubernetes-map-type") or "granular"
        self.rules: tuple[Schema, ...] = tuple(schema.get("x-kubernetes-validations") or ())
        self.required: tuple[str, ...] = tuple(schema.get("required") or ())
        self.default: Any = schema.get("default", ABSENT)
        self.properties: dict[str, Node] = {name: Node(each) for name, each in (schema.get("properties") or {}).items()}
        additional = schema.get("additionalProperties")
        self.extra = bool(additional) or isinstance(additional, dict)
        self.additional = Node(additional) if isinstance(additional, dict) else None
        items = schema.get("items")
        self.items = Node(items) if isinstance(items, dict) else None
        self.defaults = tuple((name, node.default) for name, node in self.properties.items() if node.default is not ABSENT)
        self.keywords: tuple[Keyword, ...] = keywords(schema)
        self.all_of = tuple(map(Node, schema.get("allOf") or ()))
        self.any_of = tuple(map(Node, schema.get("anyOf") or ()))
        self.one_of = tuple(map(Node, schema.get("oneOf") or ()))
        self.none_of = Node(schema["not"]) if isinstance(schema.get("not"), dict) else None
        below = (*self.properties.values(), self.additional, self.items)
        self.has_rules: bool = bool(self.rules) or any(node is not None and node.has_rules for node in below)

    def member(self, name: str) -> Node | None:
        """What a member looks like; None where nothing is said about it."""
        found = self.properties.get(name)
        return found if found is not None else self.additional


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; true is not 1."""
    if one is other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
