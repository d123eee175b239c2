"""Owner references: who controls what, whom a change concerns, and the writes that take an object over or let it go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dray.api.kinds import Kind
from dray.api.meta import Object
from dray.cluster.port import Change, Write
from dray.cluster.world import World


def controller_of(found: Object) -> tuple[str, ...]:
    """The uid of the controller, if there is one: for an index."""
    controller = found.metadata.controller
    return (controller.uid,) if controller is not None else ()


def orphan_in(found: Object) -> Iterable[str]:
    """For an index: the namespace of an object that nothing controls."""
    return (found.metadata.namespace,) if found.metadata.controller is None else ()


class Owners:
    """The objects of a kind that own others, or would: those that nothing controls and that they select."""

    def __init__(self, world: World, kind: Kind, selects: Callable[[str, Object], bool]) -> None:
        """``selects``: whether the owner of this key would take an object that nothing controls."""
        self._selects = selects
        self.with_uid = world.index(kind, lambda found: (found.uid,))
        self._in = world.index(kind, lambda found: (found.metadata.namespace,))

    def of(self, change: Change) -> list[str]:
        """The keys of those whom it concerns that something changed, or changed hands."""
        return [key for found in (change.old, change.new) if found is not None for key in self._wanting(found)]

    def _wanting(self, found: Object) -> Iterable[str]:
        if (controller := found.metadata.controller) is not None:
            return self.with_uid[controller.uid]
        return [key for key in self._in[found.metadata.namespace] if self._selects(key, found)]


def reference(kind: Kind, owner: Object) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.metadata.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adopt(kind: Kind, found: Object, owner_kind: Kind, owner: Object) -> Write:
    body = {"metadata": {"ownerReferences": [reference(owner_kind, owner)]}}
    return _patch(kind, found, body)


def release(kind: Kind, found: Object, owner_uid: str) -> Write:
    return _patch(kind, found, {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}})


def _patch(kind: Kind, found: Object, body: dict[str, Any]) -> Write:
    return Write("patch", kind, found.metadata.namespace, found.metadata.name, body, patch="strategic", uid=found.uid)


def delete(kind: Kind, found: Object, **options: Any) -> Write:
    """Deletes exactly this object."""
    return Write("delete", kind, found.metadata.namespace, found.metadata.name, options or None, uid=found.uid)
