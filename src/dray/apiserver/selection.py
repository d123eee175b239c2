"""Which objects a list, a watch or a deletecollection is about: namespace, label selector and field selector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypedDict

import msgspec

from dray.api.label_selectors import parse_label_selector
from dray.api.selectors import Requirement, SelectorError, field_value, matches_all, parse_field_selector
from dray.apiserver.errors import bad_request
from dray.apiserver.registry import Resource
from dray.apiserver.store import Entry, Matcher, encode

_MAX_SELECTOR: Final = 64 * 1024
_DECODERS: Final = 256
_OTHER: Final = bool | int | float | str | list[Any] | None


@lru_cache(maxsize=_DECODERS)
def _decoder(paths: frozenset[str]) -> Callable[[bytes], dict[str, Any]]:
    """Of objects with nothing but these fields in them: reading past the others costs little."""
    tree: dict[str, Any] = {}
    for path in paths:
        place = tree
        for name in path.split("."):
            place = place.setdefault(name, {})
    decode: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(_part(tree)).decode
    return decode


def _part(tree: dict[str, Any]) -> Any:
    """A type with these members. One that is not an object, as objects of an older schema may have it, is taken as it is."""
    members = {name: _part(below) | _OTHER if below else Any for name, below in tree.items()}
    make: Any = TypedDict
    return make("Part", members, total=False)


def _unknown_field(resource: Resource, field: str) -> str:
    if resource.fields or resource.structure is not None:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


class Selection:
    """A parsed selection. ``matches`` is None when every object of the namespace is meant."""

    __slots__ = ("_absent", "_decode", "_fields", "_labels", "_namespaced", "_needed", "_paths", "prefix")

    def __init__(self, resource: Resource, namespace: str, labels: str = "", fields: str = "") -> None:
        if len(labels) > _MAX_SELECTOR or len(fields) > _MAX_SELECTOR:
            raise bad_request("the selector is too long")
        try:
            self._labels: tuple[Requirement, ...] = parse_label_selector(labels) if labels else ()
            self._fields = parse_field_selector(fields) if fields else ()
        except SelectorError as error:
            raise bad_request(str(error)) from error
        self._absent, self._paths = resource.fields, resource.field_paths
        self._namespaced = resource.kind.namespaced
        self.prefix = f"{namespace}/" if resource.kind.namespaced and namespace else ""
        for field, _, _ in self._fields:
            if field not in resource.fields and field not in ("metadata.name", "metadata.namespace"):
                raise bad_request(_unknown_field(resource, field))
        paths = (path for field, _, _ in self._fields for path in self._paths.get(field, (field,)))
        self._decode = _decoder(frozenset((*paths, *(("metadata.labels",) if labels else ()))))
        self._needed = tuple(self._texts())

    @property
    def matches(self) -> Matcher | None:
        return self._matches if self._labels or self._fields else None

    def chooses(self, entry: Entry) -> bool:
        """As ``matches``, of a stored object of which no more is decoded than is asked about."""
        raw = entry.raw
        for text in self._needed:
            if text not in raw:
                return False
        return self._matches(entry.look(self._decode))

    def _texts(self) -> Iterator[bytes]:
        """What is written somewhere in every object that matches: to look for it costs next to nothing."""
        for label in self._labels:
            if label.operator == "In" and len(label.values) == 1:
                yield b"%s:%s" % (encode(label.key), encode(label.values[0]))
        for field, operator, value in self._fields:
            if operator == "=" and value and value != self._absent.get(field):
                yield encode(value)[1:-1]

    @property
    def name(self) -> str:
        """The one name that can match, if there is only one."""
        return next((value for field, operator, value in self._fields if field == "metadata.name" and operator == "="), "")

    @property
    def key(self) -> str:
        """The key of the one object that can match; "" where several can."""
        return self.prefix + self.name if self.name and (self.prefix or not self._namespaced) else ""

    def _value(self, obj: dict[str, Any], field: str) -> str:
        paths = self._paths.get(field)
        if paths is None:
            return field_value(obj, field)
        return next((value for path in paths if (value := field_value(obj, path))), "")

    def _matches(self, obj: dict[str, Any]) -> bool:
        if self._labels and not matches_all(self._labels, obj["metadata"].get("labels") or {}):
            return False
        for field, operator, value in self._fields:
            found = self._value(obj, field) or self._absent.get(field, "")
            if (found == value) != (operator == "="):
                return False
        return True
