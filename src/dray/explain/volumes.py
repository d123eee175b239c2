"""Volumes that are to be made for a pod on the node that was chosen for it: which claims it waits for, and whom to look at.

Always true: the scheduler has done its part, so nobody is told to look after it.
"""

from __future__ import annotations

from typing import NamedTuple

from dray.api.core import PersistentVolumeClaim, Pod, StorageClass
from dray.api.kinds import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from dray.cluster.world import World
from dray.scheduling.plugins.volumes import SELECTED_NODE, bound, volume_claim_keys


class Made(NamedTuple):
    """A volume claim that has a node and no volume yet; ``provisioner``: who makes that, where the class can be read."""

    claim: str
    node: str
    provisioner: str


def being_made(world: World, pod: Pod) -> list[Made]:
    found = list[Made]()
    if PERSISTENT_VOLUME_CLAIMS not in world.kinds:
        return found
    for key in volume_claim_keys(pod.metadata.namespace, pod.metadata.name, pod.spec.volumes):
        claim: PersistentVolumeClaim | None = world.get(PERSISTENT_VOLUME_CLAIMS, key)
        node = claim.metadata.annotations.get(SELECTED_NODE, "") if claim is not None and not bound(claim) else ""
        if claim is not None and node:
            found.append(Made(key, node, _provisioner(world, claim)))
    return found


def _provisioner(world: World, claim: PersistentVolumeClaim) -> str:
    known = STORAGE_CLASSES in world.kinds
    cls: StorageClass | None = world.get(STORAGE_CLASSES, claim.spec.storage_class_name or "") if known else None
    return cls.provisioner if cls is not None else ""


def summary(pod: Pod, made: list[Made]) -> str:
    claims = " and ".join(each.claim for each in made)
    makers = sorted({each.provisioner for each in made if each.provisioner})
    by = f" by {' and '.join(makers)}" if makers else ""
    what = "volume claims" if len(made) > 1 else "volume claim"
    return f"pod {pod.key} waits for {what} {claims}, to be provisioned{by} for node {made[0].node}."


def help_with(made: list[Made]) -> list[str]:
    found = []
    for each in made:
        namespace, _, name = each.claim.partition("/")
        found.append(f"see what its provisioner says of the volume claim: kubectl describe pvc {name} -n {namespace}")
    makers = sorted({each.provisioner for each in made if each.provisioner})
    return [*found, *(f"see whether the provisioner {maker} runs" for maker in makers)]
