"""Owner references: who controls what, and the writes that take an object over or let it go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.api.kinds import Kind
from dray.api.meta import Object
from dray.cluster.port import Write


def controller_of(found: Object) -> Iterable[str]:
    """For an index: the uid of the controller."""
    controller = found.metadata.controller
    return (controller.uid,) if controller is not None else ()


def orphan_in(found: Object) -> Iterable[str]:
    """For an index: the namespace of an object that nothing controls."""
    return (found.metadata.namespace,) if found.metadata.controller is None else ()


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
