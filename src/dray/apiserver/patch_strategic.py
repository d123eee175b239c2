"""Strategic merge patches: lists merge by key, as the declarations of the kinds say.

Directives in a patch: ``$patch: replace|delete|merge`` in an object or as a list element, ``$retainKeys``,
``$setElementOrder/<list>`` and ``$deleteFromPrimitiveList/<list>``. A field that is not declared merges as RFC 7386 says.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from dray.apiserver.patch_errors import PatchError, refused, unreadable
from dray.apiserver.schema import Field, Schemas, Struct

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"
_GONE: Final = object()


def strategic_merge(current: dict[str, Any], patch: dict[str, Any], struct: Struct, schemas: Schemas) -> dict[str, Any]:
    """The object after the patch. Neither argument is changed."""
    return _Merge(schemas).maps(current, patch, struct)


class _Merge:
    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas

    def maps(self, current: dict[str, Any], patch: dict[str, Any], struct: Struct | None) -> dict[str, Any]:
        directive = patch.get(_DIRECTIVE)
        if directive == "replace":
            return {key: _plain(value) for key, value in patch.items() if value is not None and not _is_directive(key)}
        if directive == "delete":
            return {}
        if directive not in (None, "merge"):
            raise unreadable(f"unknown patch type: {directive!r}")
        made = _retained(current, patch)
        for key, value in patch.items():
            if key.startswith(_DELETE):
                _delete_primitives(made, key[len(_DELETE) :], value)
            elif not key.startswith("$"):
                self._member(made, key, value, patch, struct)
            elif key.startswith(_ORDER) and key[len(_ORDER) :] not in patch:
                self._reorder(made, key[len(_ORDER) :], value, struct)
            elif key not in (_DIRECTIVE, _RETAIN) and not key.startswith(_ORDER):
                raise unreadable(f"unknown directive {key!r}")
        return made

    def _member(self, made: dict[str, Any], key: str, value: Any, patch: dict[str, Any], struct: Struct | None) -> None:
        field = struct.fields.get(key) if struct else None
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            self._map_member(made, key, value, field)
        elif isinstance(value, list) and field is not None and "merge" in field.strategies:
            current = made.get(key)
            made[key] = self._lists(current if isinstance(current, list) else [], value, patch.get(_ORDER + key), field)
        else:
            made[key] = _plain(value)

    def _map_member(self, made: dict[str, Any], key: str, value: dict[str, Any], field: Field | None) -> None:
        current = made.get(key)
        if field is not None and "replace" in field.strategies:
            made[key] = _plain(value)
            return
        inner = self.schemas.resolve(field.type) if field else None
        if not isinstance(current, dict) and value.get(_DIRECTIVE) == "delete":
            made.pop(key, None)
            return
        made[key] = self.maps(current if isinstance(current, dict) else {}, value, inner)

    def _lists(self, current: list[Any], patch: list[Any], order: Any, field: Field) -> list[Any]:
        if not field.merge_key:
            made = current + [value for value in dict.fromkeys(_scalars(patch)) if value not in current]
            return _ordered(made, current, order if order is not None else patch, lambda item: item)
        return self._lists_of_maps(current, patch, order, field)

    def _lists_of_maps(self, current: list[Any], patch: list[Any], order: Any, field: Field) -> list[Any]:
        items = [item for item in patch if isinstance(item, dict)]
        if len(items) != len(patch):
            raise unreadable(f"the elements of {field.name} must be objects")
        if any(item.get(_DIRECTIVE) == "replace" for item in items):
            return [_plain(item) for item in items if item.get(_DIRECTIVE) != "replace"]
        assert field.type.item is not None
        struct = self.schemas.resolve(field.type.item)
        made: list[Any] = list(current)
        places: dict[Any, list[int]] = {}
        for index, have in enumerate(made):
            places.setdefault(_key(have, field.merge_key), []).append(index)
        for item in items:
            self._list_item(made, places, item, field.merge_key, struct)
        kept = [item for item in made if item is not _GONE]
        return _ordered(kept, current, order if order is not None else items, lambda item: _key(item, field.merge_key))

    def _list_item(
        self, made: list[Any], places: dict[Any, list[int]], item: dict[str, Any], key: str, struct: Struct | None
    ) -> None:
        if key not in item:
            raise refused(f"map: {str(item)[:200]} does not contain declared merge key: {key}")
        found = places.get(_key(item, key), [])
        if item.get(_DIRECTIVE) == "delete":
            for index in found:
                made[index] = _GONE
            found.clear()
        elif found:
            made[found[0]] = self.maps(made[found[0]], item, struct)
        else:
            places[_key(item, key)] = [len(made)]
            made.append(self.maps({}, item, struct))

    def _reorder(self, made: dict[str, Any], key: str, order: Any, struct: Struct | None) -> None:
        field = struct.fields.get(key) if struct else None
        current = made.get(key)
        if field is not None and isinstance(current, list) and "merge" in field.strategies:
            made[key] = self._lists(current, [], order, field)


def _retained(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(current)
    names = set(_scalars(keep))
    extra = [key for key, value in patch.items() if not key.startswith("$") and value is not None and key not in names]
    if extra:
        raise unreadable(f"the $retainKeys directive does not list {', '.join(extra)}, which the patch sets")
    return {key: value for key, value in current.items() if key in names}


def _delete_primitives(made: dict[str, Any], key: str, gone: Any) -> None:
    values = set(_scalars(gone))
    current = made.get(key)
    if isinstance(current, list):
        made[key] = [value for value in current if not (isinstance(value, str | int | float) and value in values)]


def _scalars(values: Any) -> list[Any]:
    if not isinstance(values, list) or not all(isinstance(value, str | int | float) for value in values):
        raise unreadable("a list of strings or numbers is expected")
    return values


def _ordered(made: list[Any], before: list[Any], order: Any, key_of: Any) -> list[Any]:
    """As ``order`` says, or else the patch; what it does not name stays where it was relative to what was there before, so new
    elements come first."""
    if not isinstance(order, list):
        raise unreadable("$setElementOrder must be a list")
    wanted = {_hashable(key_of(item)): place for place, item in enumerate(order)}
    named = [item for item in made if _hashable(key_of(item)) in wanted]
    named.sort(key=lambda item: wanted[_hashable(key_of(item))])
    others = [item for item in made if _hashable(key_of(item)) not in wanted]
    was = {_hashable(key_of(item)): place for place, item in enumerate(before)}
    return _interleave(named, others, lambda item: was.get(_hashable(key_of(item)), -1))


def _interleave(named: list[Any], others: list[Any], place: Any) -> list[Any]:
    made: list[Any] = []
    waiting = others[::-1]
    for item in named:
        while waiting and place(waiting[-1]) < place(item):
            made.append(waiting.pop())
        made.append(item)
    return made + waiting[::-1]


def _key(item: Any, merge_key: str) -> Any:
    return _hashable(item.get(merge_key)) if isinstance(item, dict) else None


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else repr(value)


def _plain(value: Any) -> Any:
    """A value without directives and nulls, as it is stored where nothing was before."""
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items() if child is not None and not _is_directive(key)}
    if isinstance(value, list):
        return [
            _plain(child) for child in value if not (isinstance(child, dict) and child.get(_DIRECTIVE) in ("delete", "replace"))
        ]
    return copy.copy(value)


def _is_directive(key: str) -> bool:
    return key in (_DIRECTIVE, _RETAIN) or key.startswith((_ORDER, _DELETE))


__all__ = ["PatchError", "strategic_merge"]
