"""The write that starts the binding of a volume claim, and whether what it got will do."""

from __future__ import annotations

from typing import Any

from dray.api.core import PersistentVolume, PersistentVolumeClaim
from dray.api.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from dray.cluster.port import Write
from dray.cluster.world import World
from dray.scheduling.plugins.volumes import SELECTED_NODE, reachable


def binds_volume(claim: PersistentVolumeClaim, to: PersistentVolume | str, about: str) -> Write:
    """The volume is given to the claim; or whoever makes volumes is told the node."""
    metadata = claim.metadata
    if isinstance(to, str):
        body: dict[str, Any] = {"metadata": {"annotations": {SELECTED_NODE: to}}}
        return Write("patch", PERSISTENT_VOLUME_CLAIMS, metadata.namespace, metadata.name, body, uid=claim.uid, about=about)
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata.namespace}
    reference |= {"name": metadata.name, "uid": claim.uid}
    body = {"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}, "spec": {"claimRef": reference}}
    version = to.metadata.resource_version
    return Write("patch", PERSISTENT_VOLUMES, "", to.metadata.name, body, uid=to.uid, resource_version=version, about=about)


def reaches(world: World, claim: PersistentVolumeClaim, node_name: str) -> bool:
    """Whether the volume that the claim is bound to can be had on the node."""
    volume: PersistentVolume | None = world.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
    node = world.get(NODES, node_name)
    return volume is None or node is None or reachable(volume, node)
