"""How answers change the World: the one place where both shells agree on it."""

from __future__ import annotations

from typing import Any

from dray.cluster.port import Change, Write
from dray.cluster.world import World


def apply_answer(world: World, write: Write, answer: dict[str, Any]) -> list[Change]:
    """What is known after this answer, before the watch says so. Kinds that nobody watches change nothing."""
    kind = write.kind
    if kind not in world.kinds:
        return []
    if write.verb == "delete":
        return _deleted(world, write, answer)
    if answer.get("kind") == kind.kind and "metadata" in answer:
        return world.put(kind, answer, answer=True)
    return []


def _deleted(world: World, write: Write, answer: dict[str, Any]) -> list[Change]:
    """The API answers with a Status when the object is gone, and for some kinds with the object, gone or going."""
    if answer.get("kind") == "Status":
        uid = str((answer.get("details") or {}).get("uid") or "")
        return world.forget(write.kind, write.key, uid) if uid else []
    metadata = answer.get("metadata") or {}
    going = metadata.get("deletionTimestamp") and (metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))
    if going:
        return world.put(write.kind, answer, answer=True)
    return world.remove(write.kind, answer, answer=True)
