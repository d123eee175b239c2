"""What a taint on devices would do, before it does: the pods that must leave, whose they are, and where they would go.

The pods are those that the eviction controller would evict, worked out by the same code. Whether a pod finds another place is
asked of a scheduler through ``FindsPlace``, one pod after the other in the order of their priorities, so that two pods are not
promised the same place, and for a bounded time: ``asked`` says of how many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from dray.api.amounts import counted
from dray.api.consumers import is_pod
from dray.api.core import Pod, PodDisruptionBudget
from dray.api.gates import Gates
from dray.api.kinds import (
    DEVICE_TAINT_RULES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from dray.api.selectors import selects
from dray.api.times import format_time, parse_time
from dray.api.tolerations import evicts
from dray.cluster.port import Change
from dray.cluster.world import World
from dray.controllers.taints import Affected, Taints, Users, claims_in_use, taint_text
from dray.explain.owners import owner_of
from dray.explain.targets import unpublished
from dray.scheduling.ask import Ask
from dray.scheduling.placing.state import Placement
from dray.scheduling.scheduler import Scheduler

# How long pods are asked about: whoever waits for the answer wants to decide something.
ASK_SECONDS: Final = 20.0

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
    unpublished: str = ""
    """Which part of the target nobody publishes, if any: the rule may be meant for later, or misspelt."""
    without_effect: str = ""
    """Why the rule does nothing at all, where taints or their rules are switched off."""


def blast(
    world: World, rule: DeviceTaintRule, finds_place: FindsPlace | None = None, clock: Callable[[], float] = time.monotonic
) -> Blast:
    """``finds_place`` is asked about the pods that have an owner, because the others do not come back."""
    affected = Users(world).affected(rule)
    taints = Taints()
    for slice in world.all(RESOURCE_SLICES).values():
        taints.change_slice(None, slice)
    owners = _by_owner(world, affected)
    asked = _ask(world, owners, finds_place, clock) if finds_place is not None else 0
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
        unpublished(rule.spec.device_selector, world.all(RESOURCE_SLICES).values()) if rule.spec.device_selector else "",
    )


def previewed(world: World, rule: DeviceTaintRule, now: float, *, ask: bool, gates: Gates | None) -> Blast:
    """What the rule would do; ``ask``: also where the pods would go, which takes longer."""
    taint_now = msgspec.structs.replace(rule.spec.taint, effect="NoExecute", time_added=format_time(now))
    executed = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint_now))
    found = blast(world, executed)
    if off := rules_off(gates):
        nobody: dict[str, Any] = {"pods": 0, "namespaces": 0, "owners": [], "budgets": []}
        found = msgspec.structs.replace(found, **nobody, without_effect=off)
    if ask and found.pods:
        leaving = {leaves.pod: parse_time(leaves.at) for owner in found.owners for leaves in owner.pods}
        found = blast(world, executed, Places(world, executed, leaving, max(now, *leaving.values()), gates))
    found.taint = taint_text(rule.spec.taint)
    return found


def rules_off(gates: Gates | None) -> str:
    """Why rules are as good as none, or nothing where they hold."""
    off = [gate for gate in ("DRADeviceTaints", "DRADeviceTaintRules") if gates is not None and not gates(gate)]
    return f"the feature gate {off[0]} is off" if off else ""


# ---------------------------------------------------------------------------------------------------------------- words


def told(found: Blast, wanted: DeviceTaint) -> list[str]:
    """What the rule is about and what it would do, in sentences."""
    published, allocated = counted(found.published, "published device"), counted(found.allocated, "allocation")
    doubt = f" ({found.unpublished})" if found.unpublished else ""
    about = f"{found.taint} on {found.selector}: {published}, {allocated}{doubt}."
    if found.without_effect:
        return [about, f"It does nothing: {found.without_effect}."]
    if not found.pods:
        return [about, "No pod would be evicted."]
    would = "evicts" if evicts(wanted) else "evicts nobody; with NoExecute it would evict"
    return [about, f"It {would} {counted(found.pods, 'pod')} in {counted(found.namespaces, 'namespace')}:"]


def does(found: Blast, wanted: DeviceTaint) -> str:
    """The same in a few words, for a question."""
    if found.without_effect:
        return f"does nothing: {found.without_effect}"
    if not evicts(wanted):
        return f"keeps new pods from {found.selector}"
    return f"evicts {counted(found.pods, 'pod')} in {counted(found.namespaces, 'namespace')} from {found.selector}"


def asked_told(found: Blast) -> list[str]:
    """That the time was not enough to ask about every pod that is made again, where it was not."""
    again = sum(len(owner.pods) for owner in found.owners if owner.owner)
    if not 0 < found.asked < again:
        return []
    return [f"The scheduler was asked about {found.asked} of the {again} pods that are made again; then the time was up."]


def budgets_told(found: Blast) -> list[str]:
    """The budgets that allow less at once than would have to leave."""
    short = [budget for budget in found.budgets if budget.evicted > budget.allowed]
    return [f"Budget {budget.budget} allows {budget.allowed} of the {budget.evicted} at once" for budget in short]


def selector_text(selector: DeviceTaintSelector | None) -> str:
    if selector is None:
        return "no device"
    if not selector.by_names:
        return "no device: it selects by class or expression, which only Kubernetes 1.34 and older knew"
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


def _ask(world: World, owners: Iterable[Owner], finds_place: FindsPlace, clock: Callable[[], float]) -> int:
    made_again = [leaves for owner in owners if owner.owner for leaves in owner.pods]
    until = clock() + ASK_SECONDS
    for asked, leaves in enumerate(sorted(made_again, key=lambda leaves: -(world.get(PODS, leaves.pod).spec.priority or 0))):
        if clock() > until:
            return asked
        leaves.place_then = finds_place(world.get(PODS, leaves.pod)) or ""
        leaves.finds_place = bool(leaves.place_then)
    return len(made_again)


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

    A pod that found a place keeps it, with its devices, for the pods that are asked about after it. ``now`` is when the last of
    them leaves: until then one may tolerate the taint.
    """

    def __init__(
        self, world: World, rule: DeviceTaintRule, leaving: Iterable[str], now: float, gates: Gates | None = None
    ) -> None:
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
        self._scheduler = Scheduler(self._world, gates=gates)
        self._ask = Ask(self._scheduler, now)
        self._ask.count_promises()

    def __call__(self, pod: Pod) -> str | None:
        waiting: Pod = self._world.get(PODS, pod.key)
        placement = self._ask.decide(waiting)
        if placement is None:
            return None
        for kind, found in _kept(waiting, placement):
            for change in self._put(kind, found):
                self._scheduler.observe(change, self._now)
        return placement.node

    def _free(self, claim: ResourceClaim, gone: set[str]) -> None:
        if not {user.uid for user in claim.status.reserved_for if is_pod(user)} <= gone:
            return
        if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
            self._world.forget(RESOURCE_CLAIMS, claim.key, claim.uid)
        else:
            self._put(RESOURCE_CLAIMS, msgspec.structs.replace(claim, status=ResourceClaimStatus()))

    def _put(self, kind: Kind, found: Pod | ResourceClaim | DeviceTaintRule) -> Sequence[Change]:
        self._version += 1
        metadata = msgspec.structs.replace(found.metadata, resource_version=str(self._version))
        return self._world.put(kind, msgspec.json.encode(msgspec.structs.replace(found, metadata=metadata)))


def _kept(pod: Pod, placement: Placement) -> Iterator[tuple[Kind, Pod | ResourceClaim]]:
    """The objects as they are when the pod is where it goes."""
    user = ResourceClaimConsumerReference("", "pods", pod.metadata.name, pod.uid)
    for claim, result in zip(placement.open, placement.results):
        yield RESOURCE_CLAIMS, _allocated(claim, result, user)
    for claim in placement.pinned:
        assert claim.status.allocation is not None
        yield RESOURCE_CLAIMS, _allocated(claim, claim.status.allocation, user)
    if (special := placement.special) is not None:
        metadata = msgspec.structs.replace(special.claim.metadata, name=f"{pod.metadata.name}-then")
        made = msgspec.structs.replace(special.claim, metadata=metadata)
        yield RESOURCE_CLAIMS, _allocated(made, special.allocation, user)
    yield PODS, msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=placement.node))


def _allocated(claim: ResourceClaim, result: AllocationResult, user: ResourceClaimConsumerReference) -> ResourceClaim:
    status = msgspec.structs.replace(claim.status, allocation=result, reserved_for=(*claim.status.reserved_for, user))
    return msgspec.structs.replace(claim, status=status)


def _pending(pod: Pod) -> Pod:
    changes: dict[str, object] = {"phase": "Pending", "nominated_node_name": "", "conditions": ()}
    status = msgspec.structs.replace(pod.status, extended_resource_claim_status=None, **changes)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)


def _copy(world: World) -> World:
    made = World(world.kinds)
    for kind in world.kinds:
        made.replace(kind, [msgspec.json.encode(found) for found in world.all(kind).values()])
    return made
