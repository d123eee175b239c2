"""Who uses a claim: pods, which name theirs in spec and status, and PodGroups, which stand for the pods that name them."""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.meta import OwnerReference
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference

GROUP_API = "scheduling.k8s.io"


def group_of(pod: Pod) -> str:
    """The name of the PodGroup that the pod belongs to; empty without one."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def claim_names(pod: Pod) -> list[tuple[str, str]]:
    """(name in the pod, name of the claim) for each claim that a pod needs; the latter is empty until it is known.

    The claim that stands for extended resources has no name in the pod. An entry that needs no claim is left out.
    """
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [
        (entry.name, entry.resource_claim_name or made.get(entry.name) or "")
        for entry in pod.spec.resource_claims
        if entry.resource_claim_name or entry.name not in made or made[entry.name]
    ]
    if (extended := pod.status.extended_resource_claim_status) is not None:
        names.append(("", extended.resource_claim_name))
    return names


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Keys of the claims that a pod needs, as far as they are known."""
    return tuple(f"{pod.metadata.namespace}/{name}" for _, name in claim_names(pod) if name)


def is_pod(consumer: ResourceClaimConsumerReference) -> bool:
    return consumer.resource == "pods" and not consumer.api_group


def is_group(consumer: ResourceClaimConsumerReference) -> bool:
    return consumer.resource == "podgroups" and consumer.api_group == GROUP_API


def reserves(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for the pod, by itself or as one of its group."""
    group = group_of(pod)
    return any(
        consumer.uid == pod.uid or (group != "" and is_group(consumer) and consumer.name == group)
        for consumer in claim.status.reserved_for
    )


def owns(pod: Pod, owner: OwnerReference | None) -> bool:
    """Whether the controller of a generated claim is the pod, or the group of the pod."""
    if owner is None:
        return False
    grouped = owner.kind == "PodGroup" and owner.api_version.partition("/")[0] == GROUP_API
    return owner.uid == pod.uid or (grouped and owner.name == group_of(pod))
