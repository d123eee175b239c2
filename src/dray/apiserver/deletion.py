"""How an object goes: at once, after its grace period, or when its finalizers are done.

Decides only; whoever asked stores or removes. Garbage collection itself is a controller's work: here the finalizers that
make it happen (``orphan``, ``foregroundDeletion``) are set and taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dray.api.times import format_time, parse_time
from dray.apiserver.errors import conflict
from dray.apiserver.registry import Resource
from dray.apiserver.store import Entry, not_stored


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.DeleteOptions."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: tuple[str, ...] | None = None

    @property
    def policy(self) -> str:
        if self.orphan_dependents is not None:
            return "Orphan" if self.orphan_dependents else "Background"
        return self.propagation_policy or ""


# Pods of a ReplicationController outlive it unless the client says otherwise.
_DEFAULT_POLICY: Final = {"replicationcontrollers": "Orphan"}


class Removal(msgspec.Struct, frozen=True):
    """What a delete leads to: gone ``now``, or still there as ``entry`` (the one stored, if nothing changes)."""

    entry: Entry
    now: bool


class Deletion:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def decide(self, resource: Resource, old: Entry, options: DeleteOptions) -> Removal:
        _preconditions(resource, old.object["metadata"], options.preconditions)
        obj = old.copy()
        metadata = obj["metadata"]
        _finalizers(metadata, options.policy or _DEFAULT_POLICY.get(resource.kind.resource, ""))
        grace = _grace(resource, obj, options)
        if resource.kind.resource == "namespaces":
            return self._namespace(obj, old)
        if grace == 0 and not metadata.get("finalizers"):
            return Removal(not_stored(obj), now=True)
        if metadata.get("deletionTimestamp"):
            return self._again(obj, old, grace)
        self._mark(metadata, grace)
        return Removal(not_stored(obj), now=False)

    def _mark(self, metadata: dict[str, Any], grace: int) -> None:
        metadata["deletionTimestamp"] = format_time(self._clock() + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1

    def _again(self, obj: dict[str, Any], old: Entry, grace: int) -> Removal:
        """A repeated delete can only shorten the grace period."""
        metadata = obj["metadata"]
        before = metadata.get("deletionGracePeriodSeconds") or 0
        if grace < before:
            start = parse_time(metadata["deletionTimestamp"]) - before
            metadata["deletionTimestamp"] = format_time(max(start + grace, self._clock()))
            metadata["deletionGracePeriodSeconds"] = grace
        return Removal(not_stored(obj) if obj != old.object else old, now=False)

    def _namespace(self, obj: dict[str, Any], old: Entry) -> Removal:
        """A namespace goes when its content is gone: ``spec.finalizers`` says who still has to see to that."""
        metadata = obj["metadata"]
        if not obj.get("spec", {}).get("finalizers") and not metadata.get("finalizers"):
            return Removal(not_stored(obj), now=True)
        if not metadata.get("deletionTimestamp"):
            self._mark(metadata, 0)
        obj.setdefault("status", {})["phase"] = "Terminating"
        return Removal(not_stored(obj) if obj != old.object else old, now=False)


def _preconditions(resource: Resource, metadata: dict[str, Any], wanted: Preconditions | None) -> None:
    if wanted is None:
        return
    if wanted.uid is not None and wanted.uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {metadata['uid']}"
        raise conflict(resource.kind, metadata["name"], why)
    if wanted.resource_version is not None and wanted.resource_version != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {wanted.resource_version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise conflict(resource.kind, metadata["name"], why)


def _finalizers(metadata: dict[str, Any], policy: str) -> None:
    if not policy:
        return
    kept = [f for f in metadata.get("finalizers") or () if f not in ("orphan", "foregroundDeletion")]
    added = {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}.get(policy, [])
    if kept + added:
        metadata["finalizers"] = kept + added
    else:
        metadata.pop("finalizers", None)


def _grace(resource: Resource, obj: dict[str, Any], options: DeleteOptions) -> int:
    """Only pods have one."""
    if resource.kind.resource != "pods":
        return 0
    spec, status = obj.get("spec", {}), obj.get("status", {})
    asked = options.grace_period_seconds
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    return 1 if grace < 0 else int(grace)
