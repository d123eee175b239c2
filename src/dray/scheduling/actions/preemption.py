"""Making room by evicting pods of lower priority, for node resources and for devices: who would have to go.

Always true: looking for victims is a trial of the books that is not kept. Victims are on the node
that is to be freed; only where that does not help, and devices that several nodes can use are wanted, are those looked at that
hold such devices elsewhere. What it costs grows with the number of victims, not with the number of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from dray.api.codes import CURABLE
from dray.api.core import Pod, PodDisruptionBudget
from dray.api.kinds import POD_DISRUPTION_BUDGETS, PODS, RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.api.selectors import selects
from dray.api.times import parse_time
from dray.books.journal import Account, Books
from dray.books.nodes import NodeInfo, Nodes, Placed
from dray.cluster.world import World
from dray.devices import Devices
from dray.devices.ledger import Entry, PoolKey
from dray.numa.account import Held
from dray.numa.masks import bits
from dray.scheduling.actions.nominator import Nominator
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.plugins.base import Reasons
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.waiting.queue import QueuedPod

# Nodes on which room is really tried to be made; more would cost more than a better choice is worth.
_MOST_TRIES: Final = 256
# Zones of a node whose pods are tried by themselves: as many as a kubelet allows unless it is told otherwise.
_MOST_ZONES: Final = 8
# For devices that are held elsewhere: nodes that are tried (one is as good as the other) and holders that are looked at.
_MOST_BEYOND: Final = 8
_MOST_HOLDERS: Final = 512
# What is told by pods or volumes of the whole cluster: whether it stays is seen only when the pods are taken out.
_OF_MORE_THAN_THE_NODE: Final = ("Volume", "TopologySpread", "PodAffinity", "PodAntiAffinity")
# Of more pods than this, halves are tried together.
_ONE_BY_ONE: Final = 8


class Eviction:
    """The pods that have to go so that one pod fits on a node, and what it gets there."""

    __slots__ = ("node", "others", "placement", "rank", "victims", "why")

    def __init__(
        self,
        placement: Placement,
        victims: list[Placed],
        violations: int = 0,
        why: Mapping[str, str] | None = None,
        others: Mapping[str, Pod] | None = None,
    ) -> None:
        self.node = placement.node
        # By node: who of the pods that start together comes there, where they are several.
        self.others = others or {}
        # By uid: why the victim has to go, where that is not its priority.
        self.why = why or {}
        self.placement = placement
        self.victims = victims
        priorities = [victim.demand.priority for victim in victims]
        # Upstream's order: budgets, then who is hit hardest, then how many, then who has run the shortest.
        highest = max(priorities, default=-(2**31))
        started = min((_started(v.pod) for v in victims if v.demand.priority == highest), default=0.0)
        self.rank = (violations, highest, sum(priority + 2**31 for priority in priorities), len(victims), -started)


class Preemption:
    def __init__(self, parts: Parts, cycle: Cycle, nominator: Nominator) -> None:
        self._world, self._books, self._nodes, self._engine = parts.world, parts.books, parts.nodes, parts.engine
        self._zones = parts.zones
        self._intents, self._binder = parts.claims.intents, parts.binder
        self._cycle, self._nominator = cycle, nominator
        # Victims and for which pod each was evicted, until everything that the victim used is free.
        self._evicted: dict[str, str] = {}
        self._victims: dict[str, dict[str, None]] = {}
        # Told of a pod that nobody evicts any more, and that may stay.
        self.over: Callable[[str], None] = lambda uid: None
        # Told of a pod when it comes to be evicted, or is not any more.
        self.noted: Callable[[str], None] = lambda uid: None
        self._claims_of = parts.world.index(RESOURCE_CLAIMS, lambda claim: [user.uid for user in claim.status.reserved_for])

    def may_help(self, refused: NotPlaced) -> bool:
        state = refused.state
        if state is None or not state.profile.preempts or state.demand.preemption_policy == "Never":
            return False
        return bool(refused.refusal.codes & CURABLE) and not self._nominator.shares_claims(state)

    def made_for_others(self, members: Sequence[QueuedPod]) -> bool:
        """Whether room is being made already for a claim of these, by a pod that is none of them: once it has its devices they
        may all use it."""
        if not len(self._nominator):
            return False
        own = {"", *(each.uid for each in members)}
        claims = (self._world.get(RESOURCE_CLAIMS, key) for each in members for key in claim_keys(each.pod))
        return any(claim is not None and self._nominator.waits_for(claim.uid) not in own for claim in claims)

    # -------------------------------------------------------------------------------------------------- who is leaving

    def evict(self, uid: str, preemptor: str) -> None:
        self._forget(uid)
        self.noted(uid)
        self._evicted[uid] = preemptor
        self._victims.setdefault(preemptor, {})[uid] = None

    def _forget(self, uid: str) -> None:
        preemptor = self._evicted.pop(uid, "")
        if preemptor:
            self.noted(uid)
            victims = self._victims[preemptor]
            del victims[uid]
            if not victims:
                del self._victims[preemptor]

    @property
    def evicting(self) -> bool:
        return bool(self._evicted)

    def evicted(self) -> Iterable[str]:
        """Who is being evicted, also those that are gone and have not given back everything yet."""
        return self._evicted

    def preemptor_of(self, uid: str) -> str:
        return self._evicted.get(uid, "")

    def leaves(self, uid: str) -> bool:
        """Whether the pod is being evicted or deleted, or is gone and its claims are not given back yet."""
        placed = self._nodes.placed(uid)
        return uid in self._evicted or (placed is not None and placed.leaving)

    def gone_with_claims(self) -> list[str]:
        """Victims that are gone, and for which claims are still reserved."""
        return [uid for uid in self._evicted if self._nodes.placed(uid) is None]

    def end(self, preemptor: str) -> None:
        """Nobody leaves for this pod any more as far as it is concerned: it is placed, gone, or looks for others."""
        for uid in list(self._victims.get(preemptor, ())):
            self._forget(uid)
            self.over(uid)

    def gone(self, uid: str) -> None:
        """The victim is gone; it counts until nothing is reserved for it any more."""
        if uid in self._evicted and not self._claims_of[uid]:
            self._forget(uid)

    def claim_changed(self, before: ResourceClaim | None) -> None:
        if self._evicted and before is not None:
            for consumer in before.status.reserved_for:
                if self._nodes.placed(consumer.uid) is None:
                    self.gone(consumer.uid)

    def under_way(self, state: CycleState, node: str) -> Eviction | None:
        """The pods that are leaving already, if what they leave on the node is enough for the pod."""
        info = self._nodes.get(node)
        if info is None:
            return None
        if not state.pending.nominated:
            self._remember(state.pod.uid)
        leaving = {placed.pod.uid: placed for placed in info.pods.values() if placed.pod.metadata.deletion_timestamp is not None}
        gone: list[str] = []
        for uid in list(self._victims.get(state.pod.uid, ())):
            placed = self._nodes.placed(uid)
            if placed is None:
                gone.append(uid)
            elif placed.standing in ("decided", "writing") and self._binder.bindings.get(uid) is not None:
                # It had not started, and has found another place.
                self._forget(uid)
            else:
                leaving[uid] = placed
        if not leaving and not gone:
            return None
        with self._books.trial():
            out = self._taken_out(state)
            out.take(leaving.values())
            out.free(gone)
            placement = self._fits(state, info)
            return Eviction(placement, list(leaving.values())) if placement is not None else None

    def _taken_out(self, state: CycleState) -> TakenOut:
        """In a trial: nobody yet, but what the pod itself was promised."""
        own = self._nominator.get(state.pod.uid)
        if own is not None:
            self._nominator.lift(own)
        kept = {claim.uid for claim in state.resolved.pinned}
        return TakenOut(self, self._books, self._nodes, self._engine, kept)

    def _remember(self, preemptor: str) -> None:
        """After a restart: pods with claims that are leaving, or that are gone and have not given back their claims yet, may
        have made room for this one."""
        for claim in self._world.all(RESOURCE_CLAIMS).values():
            for consumer in claim.status.reserved_for:
                placed = self._nodes.placed(consumer.uid)
                gone = placed is None and not _exists(self._world, claim, consumer)
                leaving = placed is not None and placed.pod.metadata.deletion_timestamp is not None
                if (gone or leaving) and consumer.uid not in self._evicted:
                    self.evict(consumer.uid, preemptor)

    # ---------------------------------------------------------------------------------------------------- who could go

    def find(self, state: CycleState) -> Eviction | None:
        """The least harmful eviction that makes room, if there is any."""
        profile = state.profile
        wanted = max(len(self._nodes) * profile.min_candidate_nodes_percentage // 100, profile.min_candidate_nodes_absolute)
        tried = islice(self._promising(state), _MOST_TRIES)
        found = list(islice((eviction for info in tried if (eviction := self._try_here(state, info)) is not None), wanted))
        if not found and state.needs_devices:
            beyond = islice(self._reaching(state), _MOST_BEYOND)
            found = list(islice((eviction for info in beyond if (eviction := self._try_beyond(state, info)) is not None), 1))
        return min(found, key=lambda eviction: eviction.rank, default=None)

    def _curable(self, state: CycleState) -> Iterator[NodeInfo]:
        verdicts: dict[str, Reasons] | None = None
        if state.view is None:
            verdicts = self._cycle.candidates(state).verdicts()
        for info in self._nodes.order:
            if verdicts is None or any(reason.code in CURABLE for reason in verdicts.get(info.name, ())):
                yield info

    def _promising(self, state: CycleState) -> Iterator[NodeInfo]:
        return (info for info in self._curable(state) if self._lower(state, info))

    def _reaching(self, state: CycleState) -> Iterator[NodeInfo]:
        """Nodes that can use devices which others hold; first those on which nothing else is missing."""
        plan = self._cycle.plan(state)
        found = [info for info in self._curable(state) if self._engine.inventory.shared_pools(info.name)]
        return iter(sorted(found, key=lambda info: plan.refuses(info) is not None))

    def _lower(self, state: CycleState, info: NodeInfo) -> list[Placed]:
        priority = state.demand.priority
        return [placed for placed in info.pods.values() if placed.demand.priority < priority]

    def _try_here(self, state: CycleState, info: NodeInfo) -> Eviction | None:
        lower = self._lower(state, info)
        refused = self._cycle.plan(state).refuses(info)
        if refused is None and state.needs_devices and not any(self.claims(placed.pod.uid) for placed in lower):
            return None
        return self._try(state, info, lower) if self._may_do(state, info, lower, refused) else None

    def _may_do(self, state: CycleState, info: NodeInfo, lower: list[Placed], refused: Reasons | None) -> bool:
        """Whether it is worth trying: without all of them at once, as far as that can be told without taking them out."""
        if refused is not None:
            own = info.pods.get(state.pod.uid)
            still = self._cycle.plan(state).refuses(info.without([*lower, own] if own is not None else lower))
            if still is not None and not any(reason.code.startswith(_OF_MORE_THAN_THE_NODE) for reason in still):
                return False
        return state.leftover is not None or self._cycle.devices.could(state, info)

    def _try_beyond(self, state: CycleState, info: NodeInfo) -> Eviction | None:
        holders = self._holders(state, info)
        return self._try(state, info, [*self._lower(state, info), *holders]) if holders else None

    def _holders(self, state: CycleState, info: NodeInfo) -> list[Placed]:
        """Pods of lower priority on other nodes that hold devices which this node can use; the least important of many."""
        found: dict[str, Placed] = {}
        for uid, key in self._engine.holders_beyond(info.name).items():
            users = [self._nodes.placed(user) for user in self._users(uid, key)]
            if all(placed is not None and placed.demand.priority < state.demand.priority for placed in users):
                found.update({p.pod.uid: p for p in users if p is not None and self._nodes.node_of(p.pod.uid) != info.name})
        ordered = sorted(found.values(), key=lambda placed: (placed.demand.priority, -_started(placed.pod)))
        return ordered[:_MOST_HOLDERS]

    def _users(self, uid: str, key: str) -> set[str]:
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
        if claim is not None and claim.uid == uid:
            return self._users_of(claim)
        owner = self._nominator.promised_to(uid)
        return {owner} if owner else {""}

    def room(self, state: CycleState, info: NodeInfo, pods: list[Placed]) -> Eviction | None:
        """Whom of these pods it takes, if all may go, whatever their priority; for people who ask, not for the scheduler."""
        return self._try(state, info, pods)

    def _try(self, state: CycleState, info: NodeInfo, lower: list[Placed]) -> Eviction | None:
        """Where zones decide, sparing the most important first may leave several of one zone to go where one of another would
        do: then the pods of each zone are tried by themselves."""
        found = self._evicting(state, info, lower)
        if found is None or len(found.victims) < 2:
            return found
        others = [self._evicting(state, info, pods) for pods in self._by_zone(info, lower)]
        return min((found, *(each for each in others if each is not None)), key=lambda each: each.rank)

    def _by_zone(self, info: NodeInfo, lower: list[Placed]) -> list[list[Placed]]:
        """By zone of the node the pods with something in it, where these are not all."""
        found: dict[int, list[Placed]] = {}
        for placed in lower:
            held = self._zones.entry(placed.pod.uid)
            for place in bits(held.usage.mask) if held is not None and held.node == info.name else ():
                found.setdefault(place, []).append(placed)
        return [pods for _, pods in islice(sorted(found.items()), _MOST_ZONES) if len(pods) < len(lower)]

    def _evicting(self, state: CycleState, info: NodeInfo, lower: list[Placed]) -> Eviction | None:
        with self._books.trial():
            trial = self._taken_out(state)
            trial.take(lower)
            placement = self._fits(state, info)
            if placement is None:
                return None
            violating = self._violating(lower)
            order = sorted(lower, key=lambda placed: (placed.pod.uid not in violating, *_importance(placed)))
            placement = self._spare(state, info, order, trial, placement)
            victims = [placed for placed in order if placed.pod.uid in trial.out]
            return Eviction(placement, victims, sum(placed.pod.uid in violating for placed in victims))

    def _spare(self, state: CycleState, info: NodeInfo, pods: Sequence[Placed], trial: TakenOut, found: Placement) -> Placement:
        """Give back whom the pod leaves room for, the most important first; answers what it gets then. Of many, halves are tried
        as a whole, which ends the same as one after the other would and costs as much as there are victims."""
        if len(pods) > _ONE_BY_ONE:
            trial.give_back(pods)
            fits = self._fits(state, info)
            if fits is not None:
                return fits
            trial.take(pods)
            half = len(pods) // 2
            found = self._spare(state, info, pods[:half], trial, found)
            return self._spare(state, info, pods[half:], trial, found)
        for placed in pods:
            trial.give_back((placed,))
            fits = self._fits(state, info)
            if fits is None:
                trial.take((placed,))
            else:
                found = fits
        return found

    def _fits(self, state: CycleState, info: NodeInfo) -> Placement | None:
        found = self._cycle.try_on(state, info)
        return found if isinstance(found, Placement) else None

    # ------------------------------------------------------------------------------------------------ claims of victims

    def claims(self, uid: str) -> list[tuple[str, set[str]]]:
        """What a pod has or is about to have, as the ledger names it, each with all the pods that use it."""
        binding = self._binder.bindings.get(uid)
        on_its_way = binding.claims if binding is not None else self._nominator.shared(uid)
        keys = dict.fromkeys((*self._claims_of[uid], *on_its_way))
        known = (self._world.get(RESOURCE_CLAIMS, key) for key in keys)
        found = [(claim.uid, self._users_of(claim)) for claim in known if claim is not None]
        if binding is not None and binding.special is not None and not binding.special.name:
            found.append((binding.special.claim.uid, {uid}))
        found.extend((name, {uid}) for name in self._nominator.charged(uid))
        return found

    def used_by(self, pods: Iterable[Pod]) -> set[str]:
        """The claims that these pods use or are to use, as the ledger names them."""
        keys = (key for pod in pods if pod.spec.resource_claims for key in claim_keys(pod))
        return {claim.uid for key in keys if (claim := self._world.get(RESOURCE_CLAIMS, key)) is not None}

    def _users_of(self, claim: ResourceClaim) -> set[str]:
        """Pods that are gone use nothing, even if the claim still names them; those that are promised a place with it will."""
        alive = {user.uid for user in claim.status.reserved_for if _exists(self._world, claim, user)}
        return alive.union(self._intents.joining(claim), self._nominator.sharing(claim.uid))

    def _violating(self, lower: list[Placed]) -> set[str]:
        """Pods whose eviction would break a disruption budget, the more important ones protected first."""
        if POD_DISRUPTION_BUDGETS not in self._world.kinds:
            return set()
        budgets: list[PodDisruptionBudget] = list(self._world.all(POD_DISRUPTION_BUDGETS).values())
        left = {budget.uid: budget.status.disruptions_allowed for budget in budgets}
        violating: set[str] = set()
        for placed in sorted(lower, key=_importance):
            for budget in budgets:
                if protects(budget, placed.pod):
                    left[budget.uid] -= 1
                    if left[budget.uid] < 0:
                        violating.add(placed.pod.uid)
        return violating


class Noted(NamedTuple):
    out: dict[str, Placed]
    besides: dict[str, list[tuple[Account, Any]]]
    freed: dict[str, Entry]
    whole: bool


class TakenOut:
    """In a trial: pods that are taken out, with the claims that nobody else uses, and may be given back one by one. ``kept``:
    claims that whoever they make room for uses with them."""

    def __init__(self, preemption: Preemption, books: Books, nodes: Nodes, engine: Devices, kept: Container[str]) -> None:
        self._preemption, self._books, self._nodes, self._ledger = preemption, books, nodes, engine.ledger
        self._kept = kept
        self.out: dict[str, Placed] = {}
        # What they have besides while they are on a node.
        self._besides: dict[str, list[tuple[Account, Any]]] = {}
        self._gone: set[str] = set()
        self._claims: dict[str, list[tuple[str, set[str]]]] = {}
        self._freed: dict[str, Entry] = {}

    def take(self, pods: Iterable[Placed]) -> None:
        pods = list(pods)
        for placed in pods:
            uid = placed.pod.uid
            self.out[uid] = placed
            self._besides[uid] = [(each, entry) for each in self._nodes.followers if (entry := each.entry(uid)) is not None]
            self._nodes.displace(uid)
            for account, entry in self._besides[uid]:
                if isinstance(entry, Held) and not entry.recorded:  # which zones it leaves, no record says
                    self._books.post(account, uid, entry)
        self._settle(placed.pod.uid for placed in pods)

    @property
    def freed(self) -> Container[str]:
        """The claims that nobody uses who is not out."""
        return self._freed

    def has_slots(self, uid: str) -> bool:
        """Whether the pod has slots of its own on its node, as zones are: given back, it has the very same ones."""
        return bool(self._besides.get(uid))

    def had_of(self, uid: str, pools: Container[PoolKey]) -> bool:
        """Whether the pod, which is out, had devices of these pools."""
        had = (self._freed.get(claim) for claim, _ in self._claims.get(uid, ()))
        return any(charge.device[:2] in pools for entry in had if entry is not None for charge in entry.charges)

    def give_back(self, pods: Iterable[Placed]) -> None:
        pods = list(pods)
        for placed in pods:
            uid = placed.pod.uid
            self._nodes.place(self.out.pop(uid))
            for account, entry in self._besides.pop(uid):
                self._books.post(account, uid, entry)
        self._settle(placed.pod.uid for placed in pods)

    def free(self, gone: Iterable[str]) -> None:
        """Claims of pods that do not exist any more."""
        self._gone.update(gone)
        self._settle(self._gone)

    def noted(self, pods: Iterable[Placed] | None = None) -> Noted:
        """Who is out (of these pods, which all are; else at all), to ``restore`` when a trial from here on is undone."""
        if pods is None:
            return Noted(dict(self.out), dict(self._besides), dict(self._freed), whole=True)
        uids = [placed.pod.uid for placed in pods]
        out, besides = {uid: self.out[uid] for uid in uids}, {uid: self._besides[uid] for uid in uids}
        return Noted(out, besides, dict(self._freed), whole=False)

    def restore(self, noted: Noted) -> None:
        if noted.whole:
            self.out, self._besides = noted.out, noted.besides
        else:
            self.out.update(noted.out)
            self._besides.update(noted.besides)
        self._freed = noted.freed

    def _settle(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if uid not in self._claims:
                self._claims[uid] = [each for each in self._preemption.claims(uid) if each[0] not in self._kept]
            for claim, users in self._claims[uid]:
                unused = all(user in self.out or user in self._gone for user in users)
                if unused and claim not in self._freed and (entry := self._ledger.entry(claim)) is not None:
                    self._freed[claim] = entry
                    self._ledger.release(claim)
                elif not unused and claim in self._freed:
                    self._books.post(self._ledger, claim, self._freed.pop(claim))


def _exists(world: World, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> bool:
    """Whether what uses a claim is still there; of what is not a pod nothing is known, so it is."""
    if consumer.resource != "pods":
        return True
    pod: Pod | None = world.get(PODS, f"{claim.metadata.namespace}/{consumer.name}")
    return pod is not None and pod.uid == consumer.uid and not pod.terminal


def protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """As upstream's scheduler reads budgets: one without requirements protects nobody here, nor does any a pod without labels."""
    selector, metadata = budget.spec.selector, pod.metadata
    if budget.metadata.namespace != metadata.namespace or not metadata.labels or selector is None:
        return False
    return bool(selector.match_labels or selector.match_expressions) and selects(selector, metadata.labels)


def _importance(placed: Placed) -> tuple[int, float, str]:
    """The most important first; the same whatever the order in which pods came."""
    return -placed.demand.priority, _started(placed.pod), placed.pod.uid


def _started(pod: Pod) -> float:
    stamp = pod.status.start_time or pod.metadata.creation_timestamp
    return parse_time(stamp) if stamp else 0.0
