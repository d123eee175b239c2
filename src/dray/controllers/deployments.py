"""Deployments: one ReplicaSet per template, rolled from the old to the new within maxSurge and maxUnavailable.

Always true: the ReplicaSet of a template is found by comparing templates, so it is made once; only ReplicaSets that this
Deployment controls are scaled; what ``kubectl rollout`` reads (revision annotations, observedGeneration, the Progressing and
Available conditions) is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import ReplicaSet
from dray.api.digits import whole
from dray.api.kinds import DEPLOYMENTS, PODS, REPLICA_SETS, RESOURCE_QUOTAS, Kind
from dray.api.meta import Object
from dray.api.selectors import selects
from dray.api.times import parse_time
from dray.api.workloads import Deployment
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import owning
from dray.controllers.creating import suffix
from dray.controllers.deployment_status import status_of
from dray.controllers.keyed import Keyed
from dray.controllers.rollout import Sized, limits, next_sizes

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"
NOT_COPIED: Final = frozenset({REVISION, DESIRED, MAXIMUM, "kubectl.kubernetes.io/last-applied-configuration"})
HISTORY: Final = 10


class Deployments(Keyed):
    """The decider. Keys are ``namespace/name`` of Deployments."""

    name = "deployments"
    kinds: Sequence[Kind] = (DEPLOYMENTS, REPLICA_SETS, PODS, RESOURCE_QUOTAS)
    counted = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sets = world.index(REPLICA_SETS, owning.controller_of)
        self._orphans = world.index(REPLICA_SETS, owning.orphan_in)
        self._pods = world.index(PODS, owning.controller_of)
        self._owners = owning.Owners(world, DEPLOYMENTS, self._selects)
        self._set_by_uid = world.index(REPLICA_SETS, lambda found: (found.uid,))

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == DEPLOYMENTS:
            return [change.object.key]
        if change.kind == PODS:
            return self._waiting_for(change)
        return self._owners.of(change)

    def _waiting_for(self, change: Change) -> Iterable[str]:
        """Only a pod that is gone or done matters: Recreate waits for it."""
        controller = change.object.metadata.controller
        if controller is None or (change.new is not None and not change.new.terminal):  # type: ignore[attr-defined]
            return []
        sets = (self.world.get(REPLICA_SETS, key) for key in self._set_by_uid[controller.uid])
        owners = (found.metadata.controller for found in sets)
        return [key for owner in owners if owner is not None for key in self._owners.with_uid[owner.uid]]

    def _selects(self, key: str, found: Object) -> bool:
        return selects(self.world.get(DEPLOYMENTS, key).spec.selector, found.metadata.labels)

    def decide(self, key: str, now: float) -> list[Write]:
        found: Deployment | None = self.world.get(DEPLOYMENTS, key)
        if found is None:
            self.forget(key)
            return []
        owned = sorted((self.world.get(REPLICA_SETS, each) for each in self._sets[found.uid]), key=_age)
        new = next((each for each in owned if _same_template(found, each)), None)
        old = [each for each in owned if each is not new]
        if found.metadata.deletion_timestamp is not None:
            return self._report(found, new, old, now)
        if adopted := self._adoptions(found):
            return adopted
        writes = self._roll(found, new, old) + self._annotate(found, new, old)
        return writes + self._clean(found, new, old) + self._report(found, new, old, now)

    def _adoptions(self, found: Deployment) -> list[Write]:
        strays = (self.world.get(REPLICA_SETS, key) for key in self._orphans[found.metadata.namespace])
        return [
            owning.adopt(REPLICA_SETS, each, DEPLOYMENTS, found)
            for each in strays
            if each.metadata.deletion_timestamp is None and selects(found.spec.selector, each.metadata.labels)
        ]

    # ---------------------------------------------------------------------------------------------------- rolling

    def _roll(self, found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> list[Write]:
        desired = _desired(found)
        if found.spec.paused:
            newest = new or (old[-1] if old else None)
            return [_scale(newest, desired)] if newest is not None and _desired(newest) != desired else []
        if found.spec.strategy.type == "Recreate":
            return self._recreate(found, new, old)
        rolling = found.spec.strategy.rolling_update
        surge, unavailable = limits(desired, rolling.max_surge if rolling else None, rolling.max_unavailable if rolling else None)
        if new is None:
            room = desired + surge - sum(_desired(each) for each in old)
            return [self._create(found, old, max(0, min(desired, room)))]
        sizes = next_sizes(desired, surge, unavailable, _sized(new), [_sized(each) for each in old])
        return [_scale(each, sizes[each.key]) for each in (new, *old) if sizes.get(each.key, _desired(each)) != _desired(each)]

    def _recreate(self, found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> list[Write]:
        if shrinking := [_scale(each, 0) for each in old if _desired(each)]:
            return shrinking
        if any(not self._finished(key) for each in old for key in self._pods[each.uid]):
            return []
        if new is None:
            return [self._create(found, old, _desired(found))]
        return [_scale(new, _desired(found))] if _desired(new) != _desired(found) else []

    def _finished(self, key: str) -> bool:
        return bool(self.world.get(PODS, key).terminal)

    def _create(self, found: Deployment, old: list[ReplicaSet], replicas: int) -> Write:
        template = found.spec.template
        plain = msgspec.to_builtins(template)
        digest = suffix(msgspec.json.encode(plain, order="sorted"), found.status.collision_count or 0, length=10)
        name = f"{found.metadata.name[:240]}-{digest}"
        taken = self.world.get(REPLICA_SETS, f"{found.metadata.namespace}/{name}")
        if taken is not None:  # another template with the same digest, or an object that is going
            count = (found.status.collision_count or 0) + 1
            return _patch(DEPLOYMENTS, found, {"status": {"collisionCount": count}}, "status")
        body = _replica_set(found, plain, name, digest, replicas)
        body["metadata"]["annotations"] = {**_copied(found), **_sizes(found), REVISION: str(_latest(old) + 1)}
        return Write("create", REPLICA_SETS, found.metadata.namespace, name, body)

    # ----------------------------------------------------------------------------------- revisions, history, status

    def _annotate(self, found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> list[Write]:
        """The new ReplicaSet has the highest revision, also when a rollback made it new again."""
        if new is None:
            return []
        mine, latest = _revision(new), _latest(old)
        revision = mine if mine > latest else latest + 1
        writes = []
        wanted = {**_copied(found), **_sizes(found), REVISION: str(revision)}
        if not wanted.items() <= new.metadata.annotations.items():
            writes.append(_patch(REPLICA_SETS, new, {"metadata": {"annotations": wanted}}))
        if new.spec.min_ready_seconds != found.spec.min_ready_seconds:
            writes.append(_patch(REPLICA_SETS, new, {"spec": {"minReadySeconds": found.spec.min_ready_seconds}}))
        if found.metadata.annotations.get(REVISION) != str(revision):
            # With the status, because a change of annotations alone would count as a new generation.
            writes.append(_patch(DEPLOYMENTS, found, {"metadata": {"annotations": {REVISION: str(revision)}}}, "status"))
        return writes

    def _clean(self, found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> list[Write]:
        keep = found.spec.revision_history_limit if found.spec.revision_history_limit is not None else HISTORY
        idle = [
            each
            for each in sorted(old, key=_revision)
            if not _desired(each) and not each.status.replicas and each.metadata.deletion_timestamp is None
        ]
        if new is None or new.status.available_replicas < _desired(found):
            return []
        surplus = idle[: max(0, len(idle) - keep)]
        return [owning.delete(REPLICA_SETS, each, propagationPolicy="Background") for each in surplus]

    def _report(self, found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet], now: float) -> list[Write]:
        status, due = status_of(found, new, old, _desired(found), now)
        if due is not None:
            self.look_at(found.key, due)
        return [_patch(DEPLOYMENTS, found, {"status": status}, "status")] if status is not None else []


def _replica_set(found: Deployment, template: dict[str, Any], name: str, digest: str, replicas: int) -> dict[str, Any]:
    labels = {**found.spec.template.metadata.labels, HASH: digest}
    selector = msgspec.to_builtins(found.spec.selector) if found.spec.selector is not None else {}
    metadata = {"name": name, "namespace": found.metadata.namespace, "labels": labels}
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {**metadata, "ownerReferences": [owning.reference(DEPLOYMENTS, found)]},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": found.spec.min_ready_seconds,
            "selector": {**selector, "matchLabels": {**selector.get("matchLabels", {}), HASH: digest}},
            "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}},
        },
    }


def _desired(found: Deployment | ReplicaSet) -> int:
    return found.spec.replicas if found.spec.replicas is not None else 1


def _sized(found: ReplicaSet) -> Sized:
    return Sized(found.key, _desired(found), found.status.available_replicas)


def _age(found: ReplicaSet) -> tuple[float, str]:
    created = found.metadata.creation_timestamp
    return (parse_time(created) if created else 0.0, found.metadata.name)


def _revision(found: ReplicaSet) -> int:
    return whole(found.metadata.annotations.get(REVISION, "")) or 0


def _latest(sets: list[ReplicaSet]) -> int:
    return max(map(_revision, sets), default=0)


def _same_template(found: Deployment, each: ReplicaSet) -> bool:
    mine, theirs = found.spec.template, each.spec.template
    labels = {key: value for key, value in theirs.metadata.labels.items() if key != HASH}
    return (
        mine.spec == theirs.spec and mine.metadata.labels == labels and mine.metadata.annotations == theirs.metadata.annotations
    )


def _copied(found: Deployment) -> dict[str, str]:
    return {key: value for key, value in found.metadata.annotations.items() if key not in NOT_COPIED}


def _sizes(found: Deployment) -> dict[str, str]:
    desired = _desired(found)
    rolling = found.spec.strategy.rolling_update
    recreate = found.spec.strategy.type == "Recreate"
    surge = 0 if recreate else limits(desired, rolling.max_surge if rolling else None, None)[0]
    return {DESIRED: str(desired), MAXIMUM: str(desired + surge)}


def _scale(found: ReplicaSet, replicas: int) -> Write:
    return _patch(REPLICA_SETS, found, {"spec": {"replicas": replicas}})


def _patch(kind: Kind, found: Any, body: dict[str, Any], subresource: str = "") -> Write:
    return Write("patch", kind, found.metadata.namespace, found.metadata.name, body, subresource=subresource, uid=found.uid)
