"""Volumes and claims: a claim is bound to the smallest volume that fits it, and neither goes while it is in use.

Always true: a volume names the claim before the claim names the volume, so that two claims never have one volume; a claim whose
class waits for its first consumer gets the volume that the scheduler gives it, and no other; volumes are never made, only bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.core import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from dray.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Kind
from dray.api.quantity import Quantity
from dray.api.selectors import selects
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.scheduling.plugins.volumes import BIND_COMPLETED, SELECTED_NODE

PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
PV_PROTECTION: Final = "kubernetes.io/pv-protection"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"


class Volumes(Keyed):
    """The decider. Keys are ``claim namespace/name`` and ``volume name``."""

    name = "volumes"
    kinds: Sequence[Kind] = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, PODS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._users = world.index(PODS, _claims_of)
        self._claimed = world.index(PERSISTENT_VOLUMES, _claim_of)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == PODS:
            found = (pod for pod in (change.old, change.new) if isinstance(pod, Pod))
            return [f"claim {key}" for pod in found for key in _claims_of(pod)]
        if change.kind == PERSISTENT_VOLUME_CLAIMS:
            claim = change.object
            assert isinstance(claim, PersistentVolumeClaim)
            volume = [f"volume {claim.spec.volume_name}"] if claim.spec.volume_name else []
            return [f"claim {claim.key}", *volume, *(f"volume {name}" for name in self._claimed[claim.key])]
        waiting = [f"claim {key}" for key, claim in self.world.all(PERSISTENT_VOLUME_CLAIMS).items() if _waits(claim)]
        return waiting if change.kind == STORAGE_CLASSES else [f"volume {change.object.metadata.name}", *waiting]

    def decide(self, key: str, now: float) -> list[Write]:
        sort, _, name = key.partition(" ")
        if sort == "volume":
            volume: PersistentVolume | None = self.world.get(PERSISTENT_VOLUMES, name)
            return self._volume(volume) if volume is not None else self._gone(key)
        claim: PersistentVolumeClaim | None = self.world.get(PERSISTENT_VOLUME_CLAIMS, name)
        return self._claim(claim) if claim is not None else self._gone(key)

    def _gone(self, key: str) -> list[Write]:
        self.forget(key)
        return []

    # ------------------------------------------------------------------------------------------------------- volumes

    def _volume(self, volume: PersistentVolume) -> list[Write]:
        reference = volume.spec.claim_ref
        claim: Any = self.world.get(PERSISTENT_VOLUME_CLAIMS, f"{reference.namespace}/{reference.name}") if reference else None
        ours = claim is not None and reference is not None and reference.uid in ("", claim.uid)
        if volume.metadata.deletion_timestamp is not None:
            free = PV_PROTECTION in volume.metadata.finalizers and not (ours and claim.metadata.deletion_timestamp is None)
            return [_unprotected(PERSISTENT_VOLUMES, volume, PV_PROTECTION)] if free else []
        if reference is None or (not ours and not reference.uid):
            return _phase(PERSISTENT_VOLUMES, volume, "Available")
        if not ours:
            return self._released(volume)
        return _phase(PERSISTENT_VOLUMES, volume, "Bound") if claim.spec.volume_name == volume.metadata.name else []

    def _released(self, volume: PersistentVolume) -> list[Write]:
        if volume.spec.persistent_volume_reclaim_policy == "Delete" and volume.status.phase == "Released":
            return [Write("delete", PERSISTENT_VOLUMES, name=volume.metadata.name, uid=volume.uid)]
        return _phase(PERSISTENT_VOLUMES, volume, "Released")

    # -------------------------------------------------------------------------------------------------------- claims

    def _claim(self, claim: PersistentVolumeClaim) -> list[Write]:
        if claim.metadata.deletion_timestamp is not None:
            pods = [self.world.get(PODS, key) for key in self._users[claim.key]]
            used = any(not pod.terminal and pod.spec.node_name for pod in pods)
            held = PVC_PROTECTION in claim.metadata.finalizers and not used
            return [_unprotected(PERSISTENT_VOLUME_CLAIMS, claim, PVC_PROTECTION)] if held else []
        if claim.spec.volume_name:
            return self._bound(claim)
        if claim.spec.storage_class_name is None and (chosen := self._default_class()) is not None:
            return [_patch(PERSISTENT_VOLUME_CLAIMS, claim, {"spec": {"storageClassName": chosen}})]
        return self._bind(claim)

    def _default_class(self) -> str | None:
        """Of several default classes the newest."""
        found = [
            each for each in self.world.all(STORAGE_CLASSES).values() if each.metadata.annotations.get(DEFAULT_CLASS) == "true"
        ]
        newest = max(found, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None)
        return newest.metadata.name if newest is not None else None

    def _waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        found: StorageClass | None = self.world.get(STORAGE_CLASSES, claim.spec.storage_class_name or "")
        waits = found is not None and found.volume_binding_mode == "WaitForFirstConsumer"
        return waits and SELECTED_NODE not in claim.metadata.annotations

    def _bind(self, claim: PersistentVolumeClaim) -> list[Write]:
        volume = self._given(claim)
        if volume is None and not self._waits_for_consumer(claim):
            volume = self._fitting(claim)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            return _phase(PERSISTENT_VOLUME_CLAIMS, claim, "Pending")
        reference = volume.spec.claim_ref
        if reference is None or reference.uid != claim.uid:
            taken = {"spec": {"claimRef": _reference(claim)}, "metadata": {"annotations": {BOUND_BY: "yes"}}}
            return [_patch(PERSISTENT_VOLUMES, volume, taken, versioned=True)]
        annotations = {BIND_COMPLETED: "yes", BOUND_BY: "yes"}
        body = {"spec": {"volumeName": volume.metadata.name}, "metadata": {"annotations": annotations}}
        return [_patch(PERSISTENT_VOLUME_CLAIMS, claim, body)]

    def _given(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that somebody chose for the claim: a user, or a scheduler for the first consumer."""
        mine = (self.world.get(PERSISTENT_VOLUMES, name) for name in self._claimed[claim.key])
        return next((each for each in mine if each.spec.claim_ref.uid in ("", claim.uid)), None)

    def _bound(self, claim: PersistentVolumeClaim) -> list[Write]:
        volume: PersistentVolume | None = self.world.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
        if volume is None:
            completed = BIND_COMPLETED in claim.metadata.annotations
            return _phase(PERSISTENT_VOLUME_CLAIMS, claim, "Lost" if completed else "Pending")
        reference = volume.spec.claim_ref
        if reference is None or (not reference.uid and f"{reference.namespace}/{reference.name}" == claim.key):
            return [_patch(PERSISTENT_VOLUMES, volume, {"spec": {"claimRef": _reference(claim)}}, versioned=True)]
        if reference.uid != claim.uid:
            return _phase(PERSISTENT_VOLUME_CLAIMS, claim, "Pending")
        if BIND_COMPLETED not in claim.metadata.annotations:
            return [_patch(PERSISTENT_VOLUME_CLAIMS, claim, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}})]
        shown: dict[str, Any] = {"accessModes": list(volume.spec.access_modes), "capacity": volume.spec.capacity}
        if volume.spec.volume_attributes_class_name:
            shown["currentVolumeAttributesClassName"] = volume.spec.volume_attributes_class_name
        return _phase(PERSISTENT_VOLUME_CLAIMS, claim, "Bound", shown)

    def _fitting(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The smallest free volume that has what the claim asks for."""
        found = [each for each in self.world.all(PERSISTENT_VOLUMES).values() if _fits(claim, each)]
        return min(found, key=lambda each: (_size(each.spec.capacity), each.metadata.name), default=None)


def _fits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    spec = volume.spec
    if spec.claim_ref is not None or volume.metadata.deletion_timestamp is not None:
        return False
    if (claim.spec.storage_class_name or "") != spec.storage_class_name or not set(claim.spec.access_modes) <= set(
        spec.access_modes
    ):
        return False
    if (claim.spec.volume_attributes_class_name or "") != (spec.volume_attributes_class_name or ""):
        return False
    if (claim.spec.volume_mode or "Filesystem") != (spec.volume_mode or "Filesystem"):
        return False
    if claim.spec.selector is not None and not selects(claim.spec.selector, volume.metadata.labels):
        return False
    return _size(spec.capacity) >= _size(claim.spec.resources.requests)


def _size(amounts: Any) -> int:
    return Quantity.parse(amounts.get("storage", "0")).nanos


def _waits(claim: Any) -> bool:
    return not claim.spec.volume_name or claim.status.phase != "Bound"


def _claims_of(pod: Any) -> Iterable[str]:
    namespace = pod.metadata.namespace
    sources = ((volume.persistent_volume_claim, volume) for volume in pod.spec.volumes)
    named = [f"{namespace}/{source.claim_name}" for source, _ in sources if source is not None]
    own = [f"{namespace}/{pod.metadata.name}-{volume.name}" for volume in pod.spec.volumes if volume.ephemeral is not None]
    return (*named, *own)


def _claim_of(volume: Any) -> Iterable[str]:
    reference = volume.spec.claim_ref
    return (f"{reference.namespace}/{reference.name}",) if reference is not None else ()


def _reference(claim: PersistentVolumeClaim) -> dict[str, Any]:
    metadata = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": claim.uid,
        "resourceVersion": metadata.resource_version,
    }


def _patch(kind: Kind, found: Any, body: dict[str, Any], *, versioned: bool = False) -> Write:
    version = found.metadata.resource_version if versioned else ""
    return Write("patch", kind, found.metadata.namespace, found.metadata.name, body, uid=found.uid, resource_version=version)


def _phase(kind: Kind, found: Any, phase: str, more: dict[str, Any] | None = None) -> list[Write]:
    if found.status.phase == phase:
        return []
    body = {"status": {"phase": phase, **(more or {})}}
    namespace, name = found.metadata.namespace, found.metadata.name
    return [Write("patch", kind, namespace, name, body, subresource="status", uid=found.uid)]


def _unprotected(kind: Kind, found: Any, finalizer: str) -> Write:
    kept = [each for each in found.metadata.finalizers if each != finalizer]
    return _patch(kind, found, {"metadata": {"finalizers": kept or None}}, versioned=True)
