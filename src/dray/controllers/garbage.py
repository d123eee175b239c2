"""Garbage collection: dependents go with their owners, in the background, in the foreground, or not at all (orphans).

Always true: an object is deleted only when every owner that it names, by uid, is known to be gone. An owner that the World does
not show is asked for first, with an empty patch that changes nothing, because watches of two kinds may be at different times.
Owners of kinds that nobody watches count as living. In a circle of owners that are deleted in the foreground nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.api.meta import Object, OwnerReference
from dray.cluster.port import Change, Conflict, NotFound, Outcome, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
GONE_MAX: Final = 20_000


class Garbage(Keyed):
    """The decider. Keys are ``resource namespace/name``."""

    name = "garbage"

    def __init__(self, world: World, kinds: Sequence[Kind]) -> None:
        super().__init__(world)
        self.kinds = tuple(kinds)
        self._by_resource = {kind.resource: kind for kind in kinds}
        self._by_reference = {(kind.api_version, kind.kind): kind for kind in kinds}
        self._dependents = {kind: world.index(kind, _owners) for kind in kinds}
        self._uids = {kind: world.index(kind, lambda found: (found.uid,)) for kind in kinds}
        self._gone: dict[str, None] = {}  # owners that are known not to exist

    def concerned(self, change: Change) -> Iterable[str]:
        before, after = change.old, change.new
        if after is None and before is not None:
            self._bury(before.uid)
            return [*self._dependents_of(before.uid), *self._owners_of(before)]
        assert after is not None
        if before is not None and _links(before) == _links(after):
            return []
        keys = [_key(change.kind, after)]
        if after.metadata.deletion_timestamp is not None:
            keys += self._dependents_of(after.uid)
        if before is not None:
            keys += self._owners_of(before)
        return keys

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        write = outcome.write
        if write.verb != "patch" or write.body:
            return
        # A conflict proves nothing by itself: the name is another's only if the World shows that, too.
        other: Object | None = self.world.get(write.kind, write.key) if isinstance(outcome.error, Conflict) else None
        if isinstance(outcome.error, NotFound) or (other is not None and other.uid != write.uid):
            self._bury(write.uid)

    def decide(self, key: str, now: float) -> list[Write]:
        resource, _, name = key.partition(" ")
        kind = self._by_resource[resource]
        found: Object | None = self.world.get(kind, name) if kind in self._uids else None
        if found is None:
            self.forget(key)
            return []
        if found.metadata.deletion_timestamp is not None:
            return self._leave(kind, found)
        if found.metadata.owner_references:
            return self._judge(kind, found, now)
        return []

    # ----------------------------------------------------------------------------------------- an owner that leaves

    def _leave(self, kind: Kind, found: Object) -> list[Write]:
        dependents = [self._at(key) for key in self._dependents_of(found.uid)]
        if ORPHAN in found.metadata.finalizers:
            if dependents:
                return [_drop(each_kind, each, [found.uid]) for each_kind, each in dependents]
            return [_without_finalizer(kind, found, ORPHAN)]
        if FOREGROUND in found.metadata.finalizers:
            blocking = [each for _, each in dependents if _blocks(each, found.uid)]
            return [] if blocking else [_without_finalizer(kind, found, FOREGROUND)]
        return []

    # ------------------------------------------------------------------------------------- a dependent and its owners

    def _judge(self, kind: Kind, found: Object, now: float) -> list[Write]:
        living, leaving, gone, unknown = self._sorted(found)
        if unknown:
            self.look_at(_key(kind, found), now + 30.0)
            return [self._ask(found, owner) for owner in unknown]
        if living:
            return [_drop(kind, found, [owner.uid for owner in (*gone, *leaving)])] if gone or leaving else []
        if leaving:
            dependents = [self._at(key)[1] for key in self._dependents_of(found.uid)]
            if any(map(_leaving, dependents)) and any(owner.block_owner_deletion for owner in found.metadata.owner_references):
                return [_unblocked(kind, found)]  # a circle of owners: somebody must not wait
            return [_delete(kind, found, "Foreground" if dependents else "Background")]
        return [_delete(kind, found, _policy(found))]

    def _sorted(self, found: Object) -> tuple[list[OwnerReference], ...]:
        living: list[OwnerReference] = []
        leaving: list[OwnerReference] = []
        gone: list[OwnerReference] = []
        unknown: list[OwnerReference] = []
        for owner in found.metadata.owner_references:
            kind = self._by_reference.get((owner.api_version, owner.kind))
            if owner.uid in self._gone:
                gone.append(owner)
            elif kind is None:
                living.append(owner)
            elif (shown := self._shown(kind, owner.uid)) is None:
                unknown.append(owner)
            elif _leaving(shown):
                leaving.append(owner)
            else:
                living.append(owner)
        return living, leaving, gone, unknown

    def _shown(self, kind: Kind, uid: str) -> Object | None:
        for key in self._uids[kind][uid]:
            shown: Object | None = self.world.get(kind, key)
            return shown
        return None

    def _ask(self, found: Object, owner: OwnerReference) -> Write:
        kind = self._by_reference[(owner.api_version, owner.kind)]
        namespace = found.metadata.namespace if kind.namespaced else ""
        return Write("patch", kind, namespace, owner.name, {}, uid=owner.uid)

    # ------------------------------------------------------------------------------------------------------- indexes

    def follow(self, kind: Kind, api_versions: Sequence[str]) -> None:
        """One more kind to look after, of which objects may speak in these versions."""
        if kind not in self._uids:
            self.kinds = (*self.kinds, kind)
            self._dependents[kind] = self.world.index(kind, _owners)
            self._uids[kind] = self.world.index(kind, lambda found: (found.uid,))
        self._by_resource[kind.resource] = kind
        self._by_reference |= {(version, kind.kind): kind for version in api_versions}

    def unfollow(self, kind: Kind) -> None:
        self.kinds = tuple(each for each in self.kinds if each != kind)
        self._by_reference = {name: each for name, each in self._by_reference.items() if each != kind}
        self._dependents.pop(kind, None)
        self._uids.pop(kind, None)

    def _dependents_of(self, uid: str) -> Iterable[str]:
        for kind, index in self._dependents.items():
            for key in index[uid]:
                yield f"{kind.resource} {key}"

    def _owners_of(self, found: Object) -> Iterable[str]:
        for owner in found.metadata.owner_references:
            kind = self._by_reference.get((owner.api_version, owner.kind))
            if kind is not None:
                for key in self._uids[kind][owner.uid]:
                    yield f"{kind.resource} {key}"

    def _at(self, key: str) -> tuple[Kind, Object]:
        resource, _, name = key.partition(" ")
        kind = self._by_resource[resource]
        return kind, self.world.get(kind, name)

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]


def _key(kind: Kind, found: Object) -> str:
    return f"{kind.resource} {found.key}"


def _owners(found: Object) -> Iterable[str]:
    return tuple(owner.uid for owner in found.metadata.owner_references)


def _links(found: Object) -> tuple[Any, ...]:
    """What garbage collection looks at."""
    metadata = found.metadata
    return metadata.owner_references, metadata.finalizers, metadata.deletion_timestamp


def _blocks(found: Object, uid: str) -> bool:
    return any(owner.uid == uid and owner.block_owner_deletion for owner in found.metadata.owner_references)


def _leaving(found: Object) -> bool:
    """Being deleted, and waiting for its dependents."""
    return found.metadata.deletion_timestamp is not None and FOREGROUND in found.metadata.finalizers


def _unblocked(kind: Kind, found: Object) -> Write:
    """An object whose owners do not wait for it any more."""
    free = [msgspec.structs.replace(owner, block_owner_deletion=False) for owner in found.metadata.owner_references]
    return _versioned(kind, found, {"metadata": {"ownerReferences": free}})


def _policy(found: Object) -> str:
    if ORPHAN in found.metadata.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in found.metadata.finalizers else "Background"


def _delete(kind: Kind, found: Object, policy: str) -> Write:
    body = {"propagationPolicy": policy}
    return Write("delete", kind, found.metadata.namespace, found.metadata.name, body, uid=found.uid)


def _drop(kind: Kind, found: Object, uids: list[str]) -> Write:
    """Takes owners out of the references; what else changes them meanwhile is respected by the version."""
    kept = [owner for owner in found.metadata.owner_references if owner.uid not in uids]
    body = {"metadata": {"ownerReferences": kept or None}}
    return _versioned(kind, found, body)


def _without_finalizer(kind: Kind, found: Object, finalizer: str) -> Write:
    kept = [each for each in found.metadata.finalizers if each != finalizer]
    return _versioned(kind, found, {"metadata": {"finalizers": kept or None}})


def _versioned(kind: Kind, found: Object, body: dict[str, Any]) -> Write:
    metadata = found.metadata
    return Write(
        "patch", kind, metadata.namespace, metadata.name, body, uid=found.uid, resource_version=metadata.resource_version
    )
