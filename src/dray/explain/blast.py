"""What a taint on devices would do, before it does: the pods that must leave, whose they are, and where they would go.

The pods are those that the eviction controller would evict, worked out by the same code. Whether a pod finds another place is
asked of a scheduler through ``FindsPlace``, one pod after the other, so that two pods are not promised the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dray.api.core import Pod, PodDisruptionBudget
from dray.api.kinds import (
    DEVICE_TAINT_RULES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceClaimStatus,
)
from dray.api.selectors import selects
from dray.api.times import format_time
from dray.cluster.world import World
from dray.controllers.taints import Affected, Taints, Users, claims_in_use, split_name, taint_text
from dray.explain.why import why

ASKED_MAX: Final = 20
# Asking a scheduler about a pod takes a look at the whole cluster: so many objects are looked at in all.
LOOKED_AT_MAX: Final = 150_000

FindsPlace = Callable[[Pod], str | None]


class Leaves(msgspec.Struct, rename="camel"):
    """One pod that must leave. ``finds_place`` is None where nobody was asked."""

    pod: str
    node: str
    devices: list[str]
    at: str
    finds_place: bool | None = None
    place_then: str = ""


class Owner(msgspec.Struct, rename="camel"):
    """Pods of one owner. Without one nobody makes them again."""

    namespace: str
    owner: str
    pods: list[Leaves]


class BudgetHit(msgspec.Struct, rename="camel"):
    """A disruption budget of pods that must leave: how many it allows, and how many it would be."""

    budget: str
    allowed: int
    evicted: int


class Blast(msgspec.Struct, rename="camel"):
    """What a rule is about and what it would do with the effect ``NoExecute``."""

    rule: str
    selector: str
    taint: str
    published: int
    allocated: int
    pods: int
    namespaces: int
    owners: list[Owner]
    budgets: list[BudgetHit]
    asked: int = 0


def blast(world: World, rule: DeviceTaintRule, finds_place: FindsPlace | None = None) -> Blast:
    """``finds_place`` is asked about the first pods, those that have an owner, because the others do not come back."""
    affected = Users(world).affected(rule)
    taints = Taints()
    for slice in world.all(RESOURCE_SLICES).values():
        taints.change_slice(None, slice)
    owners = _by_owner(world, affected)
    asked = _ask(world, owners, finds_place) if finds_place is not None else 0
    return Blast(
        rule.metadata.name,
        selector_text(rule.spec.device_selector),
        taint_text(rule.spec.taint),
        taints.count_published(rule.spec.device_selector),
        affected.allocated,
        len(affected.pods),
        len(affected.namespaces),
        owners,
        _budgets(world, affected.pods),
        asked,
    )


def selector_text(selector: DeviceTaintSelector | None) -> str:
    if selector is None:
        return "no device"
    parts = (selector.driver, selector.pool, selector.device)
    return "/".join(part if part is not None else "*" for part in parts) if any(parts) else "every device of every driver"


def _by_owner(world: World, affected: Affected) -> list[Owner]:
    made: dict[tuple[str, str], Owner] = {}
    for key, eviction in sorted(affected.pods.items()):
        pod: Pod = world.get(PODS, key)
        place = (pod.metadata.namespace, owner_of(world, pod))
        devices = list(dict.fromkeys(cause.device for cause in eviction.causes))
        leaves = Leaves(key, pod.spec.node_name, devices, format_time(eviction.when))
        made.setdefault(place, Owner(*place, [])).pods.append(leaves)
    return [made[place] for place in sorted(made)]


def owner_of(world: World, pod: Pod) -> str:
    """``Deployment/web``, ``Job/train``, or nothing."""
    owner = pod.metadata.controller
    if owner is None:
        return ""
    if owner.kind == "ReplicaSet" and REPLICA_SETS in world.kinds:
        found = world.get(REPLICA_SETS, f"{pod.metadata.namespace}/{owner.name}")
        above = found.metadata.controller if found is not None else None
        owner = above or owner
    return f"{owner.kind}/{owner.name}"


def _ask(world: World, owners: Iterable[Owner], finds_place: FindsPlace) -> int:
    size = sum(len(world.all(kind)) for kind in (PODS, NODES, RESOURCE_CLAIMS))
    most = min(ASKED_MAX, max(1, LOOKED_AT_MAX // size))
    wanted = [leaves for owner in owners if owner.owner for leaves in owner.pods][:most]
    for leaves in wanted:
        leaves.place_then = finds_place(world.get(PODS, leaves.pod)) or ""
        leaves.finds_place = bool(leaves.place_then)
    return len(wanted)


def _budgets(world: World, pods: Iterable[str]) -> list[BudgetHit]:
    leaving: list[Pod] = [world.get(PODS, key) for key in pods]
    found = []
    for key, budget in sorted(world.all(POD_DISRUPTION_BUDGETS).items()):
        assert isinstance(budget, PodDisruptionBudget)
        hit = [p for p in leaving if p.metadata.namespace == budget.metadata.namespace]
        count = sum(selects(budget.spec.selector, pod.metadata.labels) for pod in hit)
        if count:
            found.append(BudgetHit(key, budget.status.disruptions_allowed, count))
    return found


# ------------------------------------------------------------------------------------------------------- other places


class Places:
    """A scheduler on a cluster in which the rule holds and the pods have left: where each of them would go.

    A pod that found a place keeps it, with its devices, for the pods that are asked about after it.
    """

    def __init__(self, world: World, rule: DeviceTaintRule, leaving: Iterable[str], now: float) -> None:
        self._now = now
        self._version = 1 << 60  # newer than anything that was read
        self._world = _copy(world)
        self._put(DEVICE_TAINT_RULES, rule)
        pods: list[Pod] = [world.get(PODS, key) for key in leaving]
        gone = {pod.uid for pod in pods}
        for pod in pods:
            for claim in claims_in_use(world, pod):
                self._free(claim, gone)
            self._put(PODS, _pending(pod))

    def __call__(self, pod: Pod) -> str | None:
        answer = why(self._world, self._world.get(PODS, pod.key), now=self._now)
        if not answer.fits:
            return None
        node = answer.choice.node if answer.choice is not None else answer.fits[0]
        chosen = answer.choice.of(node) if answer.choice is not None else None
        placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        self._put(PODS, placed)
        self._take(pod, [score.device for score in chosen.devices] if chosen is not None else [])
        return node

    def _free(self, claim: ResourceClaim, gone: set[str]) -> None:
        if not {user.uid for user in claim.status.reserved_for} <= gone:
            return
        if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
            self._world.forget(RESOURCE_CLAIMS, claim.key, claim.uid)
        else:
            self._put(RESOURCE_CLAIMS, msgspec.structs.replace(claim, status=ResourceClaimStatus()))

    def _take(self, pod: Pod, devices: list[str]) -> None:
        """Held for the pod, whichever of its claims they are for."""
        results = tuple(DeviceRequestAllocationResult("", *split_name(name)) for name in devices)
        if results:
            status = ResourceClaimStatus(AllocationResult(DeviceAllocationResult(results)))
            metadata = msgspec.structs.replace(pod.metadata, name=f"{pod.metadata.name}-then", uid=f"{pod.uid}-then")
            self._put(RESOURCE_CLAIMS, ResourceClaim(metadata, status=status))

    def _put(self, kind: Kind, found: Pod | ResourceClaim | DeviceTaintRule) -> None:
        self._version += 1
        metadata = msgspec.structs.replace(found.metadata, resource_version=str(self._version))
        self._world.put(kind, msgspec.json.encode(msgspec.structs.replace(found, metadata=metadata)))


def _pending(pod: Pod) -> Pod:
    changes: dict[str, object] = {"phase": "Pending", "nominated_node_name": "", "conditions": ()}
    status = msgspec.structs.replace(pod.status, extended_resource_claim_status=None, **changes)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)


def _copy(world: World) -> World:
    made = World(world.kinds)
    for kind in world.kinds:
        made.replace(kind, [msgspec.json.encode(found) for found in world.all(kind).values()])
    return made
