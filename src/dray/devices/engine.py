"""Everything known about devices in one cluster, and the question that it answers: which devices for these claims here?

``Devices`` is told about objects as they change and asked about nodes. It does no I/O and knows no clock; the only thing
that it makes up is the id of a new share, and where that comes from is given to it. Asking changes nothing: what is decided
is charged with ``hold`` until the claim itself shows it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal

import msgspec

from dray.api.core import Node
from dray.api.gates import Gates
from dray.api.reason import Reason
from dray.api.resource import AllocationResult, DeviceClass, DeviceKey, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.books.journal import Books, Standing
from dray.devices.answers import INVALID_POOLS, Answer, Answers
from dray.devices.demand import Compiler, Demand, Limit, Without
from dray.devices.explain import Explainer, Explanation, Outlines
from dray.devices.inventory import Inventory
from dray.devices.ledger import Charge, charged, charges_of
from dray.devices.overdrawn import Overdraft, Overdrafts
from dray.devices.packing import DeviceScore, scores
from dray.devices.problem import Analysis
from dray.devices.rating import Rating, Scale, rate
from dray.devices.result import Assembly, Unwritable
from dray.devices.search import BUDGET
from dray.devices.views import NodeView

# Of a demand, states that nodes might be in for which it is remembered whether it would fit.
STATES_KEPT = 4096
# Steps for each change that an explanation tries.
TRIAL_BUDGET = 500

# Which of the devices that would do: upstream's first fit, or the ones that waste least (``dray.devices.packing``).
Order = Literal["first", "packing"]


class Verdict(msgspec.Struct):
    """An answer for one node.

    ``ok`` with ``results``, one per claim in order; or not, with at most one of: ``error`` and ``node_error`` (only this node
    is affected), ``error`` alone (no node can do it as things stand), nothing (it does not fit here now).
    """

    ok: bool
    results: tuple[AllocationResult, ...] = ()
    error: str = ""
    node_error: bool = False
    steps: int = 0
    # What stands behind an error; ``Devices.explain`` says more about a plain refusal.
    reasons: tuple[Reason, ...] = ()
    # How good the chosen alternatives are: upstream's score, 8 for the first of a list, 7 for the second...
    score: int = 0
    # What ``Devices.rate`` said about it, where it was asked before.
    rating: Rating | None = None


class Devices:
    """The allocator over an inventory and a ledger."""

    def __init__(
        self,
        gates: Gates,
        *,
        new_share: Callable[[], str] | None = None,
        budget: int = BUDGET,
        by_pool: bool = False,
        books: Books | None = None,
    ) -> None:
        """``by_pool``: prefer pools without binding conditions, as upstream does, instead of devices without them."""
        self.gates = gates
        self.books = books if books is not None else Books()
        self.inventory = Inventory(gates, by_pool=by_pool, books=self.books)
        self.ledger = self.inventory.ledger
        self.scale = Scale()
        self.compiler = Compiler(gates)
        self.analysis = Analysis(gates)
        self._assembly = Assembly(gates, new_share if new_share is not None else lambda: str(uuid.uuid4()))
        self._shareable = gates("DRAConsumableCapacity")
        self._answers = Answers(self.inventory, self.analysis, budget)
        self._overdrafts = Overdrafts(self.inventory)

    # ------------------------------------------------------------------------------------------------ what is known

    def put_slice(self, slice: ResourceSlice, key: str = "") -> None:
        """``key`` tells apart slices that have one name, which no cluster has but test data may."""
        self.inventory.put_slice(slice, key)
        self.scale.note(slice.spec.driver, slice.spec.devices)

    def remove_slice(self, name: str) -> None:
        self.inventory.remove_slice(name)

    def put_rule(self, rule: DeviceTaintRule) -> None:
        self.inventory.put_rule(rule)

    def remove_rule(self, name: str) -> None:
        self.inventory.remove_rule(name)

    def put_class(self, cls: DeviceClass) -> None:
        self.compiler.put_class(cls)

    def remove_class(self, name: str) -> None:
        self.compiler.remove_class(name)

    def put_node(self, node: Node) -> None:
        self.inventory.put_node(node)

    def remove_node(self, name: str) -> None:
        self.inventory.remove_node(name)

    def advance(self, now: float) -> bool:
        """It is later: whether a toleration ended that an answer counted on. Until it is called, none ever ends."""
        return self.analysis.advance(now)

    def prepare(self) -> None:
        """Look at every node now, so that the first question does not have to."""
        for name in self.inventory.nodes:
            view = self.inventory.view(name)
            if view is not None:
                self.inventory.state(view)

    # ------------------------------------------------------------------------------------------------ what is in use

    def put_claim(self, claim: ResourceClaim) -> None:
        """Charge what the claim's status says, instead of whatever was held or charged for it before.

        A claim that is shown without allocation keeps what is held for it: the decision is on its way.
        """
        allocation = claim.status.allocation
        if allocation is not None:
            self.charge(claim, (allocation,), "shown")
        elif claim.uid not in self.ledger.on_the_way():
            self.remove_claim(claim.uid)

    def remove_claim(self, uid: str) -> None:
        self.ledger.release(uid)

    def charge(self, claim: ResourceClaim, allocations: Sequence[AllocationResult], standing: Standing) -> None:
        """The claim has all that these allocations name, each device once: what is shown, and what may be on its way."""
        about = claim.metadata
        self.ledger.charge(about.uid, self._charges(allocations), standing, about.key)

    def _charges(self, allocations: Sequence[AllocationResult]) -> tuple[Charge, ...]:
        if len(allocations) == 1:
            return charges_of(allocations[0], shareable=self._shareable)
        shares = ((charge, r.share_id) for a in allocations for charge, r in charged(a, shareable=self._shareable))
        return tuple(charge for charge, _ in dict.fromkeys(shares))

    def hold(self, claim: ResourceClaim, result: AllocationResult) -> None:
        """Charge a decision that is not written yet. ``put_claim`` replaces it once the API shows the allocation."""
        self.charge(claim, (result,), "decided")

    def hand_over(self, uid: str, claim: ResourceClaim) -> bool:
        """What is held under this name is the claim's, unless it has devices already: whether it was."""
        if self.ledger.entry(claim.metadata.uid) is not None:
            self.ledger.release(uid)
            return False
        return self.ledger.hand_over(uid, claim.metadata.uid, claim.metadata.key)

    def release(self, uid: str) -> None:
        """Take back a hold, or plan as if the claim's allocation were gone."""
        self.ledger.release(uid)

    def promise(self, claim: ResourceClaim, result: AllocationResult) -> None:
        """Keep devices for a claim that cannot have them yet, beside whoever has them now."""
        charges = charges_of(result, shareable=self._shareable)
        self.ledger.charge(promised(claim.uid), charges, "promised", claim.key)

    def take_back(self, claim_uid: str) -> None:
        """Nothing is promised to the claim any more."""
        self.remove_claim(promised(claim_uid))

    def rest(self, device: DeviceKey) -> None:
        """Keep a device from new allocations for a while; its counters stay available to others."""
        self.ledger.charge(_rest_uid(device), (Charge(device, "rest"),))

    def wake(self, device: DeviceKey) -> None:
        """End a device's rest."""
        self.ledger.release(_rest_uid(device))

    def owner_name(self, uid: str) -> str:
        """``namespace/name`` of a claim that holds something; of anybody else, the uid."""
        return self.ledger.name_of(uid) or uid

    def charges(self, uid: str) -> tuple[Charge, ...]:
        return self.ledger.charges(uid)

    def owners(self, device: DeviceKey) -> tuple[str, ...]:
        """The uids of the claims that hold the device."""
        return self.ledger.owners(device)

    def holders_beyond(self, node_name: str) -> dict[str, str]:
        """Claims that hold devices which this node can use and others can too: ``namespace/name`` by uid."""
        pools = sorted(self.inventory.shared_pools(node_name))
        keys = (DeviceKey(*pool, device) for pool in pools for device in self.ledger.holdings(pool))
        return {uid: name for key in keys for uid in self.ledger.owners(key) if (name := self.ledger.name_of(uid))}

    def overdrawn(self, uid: str) -> Overdraft | None:
        """What this claim has beside another one although there is not enough for both: it has to give way."""
        return self._overdrafts.of(uid)

    def rivals(self, allocation: AllocationResult) -> list[str]:
        """The uids of claims whose decision is on its way and cannot be beside somebody else's allocation, which counts by now;
        or of which that cannot be told."""
        if not (under_way := self.ledger.on_the_way()):
            return []
        devices = {charge.device for charge in charges_of(allocation, shareable=self._shareable)}
        pools = {(device.driver, device.pool) for device in devices}

        def crosses(uid: str) -> bool:
            near = [charge.device for charge in self.ledger.charges(uid) if (charge.device.driver, charge.device.pool) in pools]
            return bool(near) and (self.overdrawn(uid) is not None or any(map(self._overdrafts.unclear, near)))

        return sorted(uid for uid in under_way if crosses(uid))

    # ------------------------------------------------------------------------------------------------------ questions

    def allocate(
        self, node_name: str, claims: Sequence[ResourceClaim], order: Order = "first", within: Limit | None = None
    ) -> Verdict:
        """Which devices the claims would get on this node. Charges nothing. The order never decides whether they fit;
        ``within`` does: no other devices are taken."""
        demand = self.compiler.demand(tuple(claims))
        if demand.error is not None:
            return self._impossible(demand, claims)
        if within is not None:
            demand = demand.within(within)
        view = self.inventory.view(node_name)
        if view is None:
            return Verdict(False, error=f'node "{node_name}" is not known', node_error=True)
        answer = self._answers.answer(view, demand, claims)
        if order == "packing":
            answer = self._answers.packed(view, demand, answer)
        return self._verdict(view, demand, claims, answer)

    def without(self, node_name: str, devices: Collection[DeviceKey]) -> Limit:
        """On this node all devices but these, for ``allocate``."""
        view = self.inventory.view(node_name)
        return Without(sum(1 << at for at, key in enumerate(view.keys()) if key in devices) if view is not None else 0)

    def in_class(self, node_name: str, class_name: str) -> tuple[int, int]:
        """How many devices of the node the class selects, and how many of them are in use."""
        view, selection = self.inventory.view(node_name), self.compiler.of_class(class_name)
        if view is None or selection is None:
            return 0, 0
        mask = selection.on(view.layout)[0] & view.layout.here
        return mask.bit_count(), (mask & (view.taken() | view.shared())).bit_count()

    def scores(self, node_name: str, claims: Sequence[ResourceClaim], order: Order = "first") -> tuple[DeviceScore, ...]:
        """What speaks for each device that ``allocate`` gives, in the order of picking; nothing where nothing fits."""
        demand = self.compiler.demand(tuple(claims))
        view = self.inventory.view(node_name)
        if demand.error is not None or view is None:
            return ()
        answer = self._answers.answer(view, demand, claims)
        if order == "packing":
            answer = self._answers.packed(view, demand, answer)
        return scores(self.analysis.problem(demand, view.layout), view, answer.picks or [])

    def rate(self, node_name: str, claims: Sequence[ResourceClaim], order: Order = "first") -> Rating | None:
        """How good what ``allocate`` gives is, compared with other nodes; None where nothing fits."""
        demand = self.compiler.demand(tuple(claims))
        view = self.inventory.view(node_name)
        if demand.error is not None or view is None:
            return None
        answer = self._answers.answer(view, demand, claims)
        if answer.picks is None:
            return None
        if order == "packing":
            answer = self._answers.packed(view, demand, answer)
        if answer.rating is None or answer.scale != self.scale.serial:
            problem = self.analysis.problem(demand, view.layout)
            answer.rating, answer.scale = rate(problem, view, answer.picks or [], answer.score, self.scale), self.scale.serial
        return answer.rating

    def refusing(self, node_names: Iterable[str], claims: Sequence[ResourceClaim]) -> Iterator[tuple[str, Verdict]]:
        """The nodes on which the claims do not fit, in the order given; for the others no result is put together."""
        demand = self.compiler.demand(tuple(claims))
        if demand.error is not None:
            yield "", self._impossible(demand, claims)
            return
        for name in node_names:
            view = self.inventory.view(name)
            if view is None:
                yield name, Verdict(False, error=f'node "{name}" is not known', node_error=True)
                continue
            answer = self._answers.answer(view, demand, claims)
            if answer.picks is None:
                yield name, self._verdict(view, demand, claims, answer)

    def first_fit(
        self, node_names: Sequence[str], claims: Sequence[ResourceClaim], start: int = 0, order: Order = "first"
    ) -> tuple[str, Verdict]:
        """The first node on which the claims fit, and the verdict there; '' and a refusal where there is none.

        The search goes once around, beginning with number ``start``; ``order`` is about the devices of a node.
        """
        demand = self.compiler.demand(tuple(claims))
        if demand.error is not None:
            return "", self._impossible(demand, claims)
        inventory = self.inventory
        views = inventory.views
        refused = self._answers.current(demand).refused
        steps = 0
        total = len(node_names)
        for number in range(start, start + total):
            name = node_names[number] if number < total else node_names[number - total]
            view = views.get(name)
            if view is None:
                view = inventory.view(name)
                if view is None:
                    continue
            # Most nodes of a full cluster are in a state that refused this demand before.
            if (view.state or inventory.state(view)) in refused:
                continue
            answer = self._answers.answer(view, demand, claims)
            steps += answer.steps
            if answer.picks is not None:
                if order == "packing":
                    answer = self._answers.packed(view, demand, answer)
                return name, self._verdict(view, demand, claims, answer)
            if answer.error and not answer.node_error:
                return "", self._verdict(view, demand, claims, answer)
        return "", Verdict(False, steps=steps)

    def fits(self, node_name: str, claims: Sequence[ResourceClaim], without: str = "") -> bool:
        """Whether the claims would fit, as things are or without one claim (by uid). Looks less far than ``allocate``."""
        with self._looking_less_far(), self.books.trial():
            if without:
                self.ledger.release(without)
            return self.allocate(node_name, claims).ok

    @contextmanager
    def _looking_less_far(self) -> Iterator[None]:
        budget, self._answers.budget = self._answers.budget, min(self._answers.budget, TRIAL_BUDGET)
        try:
            yield
        finally:
            self._answers.budget = budget

    def could(self, node_name: str, claims: Sequence[ResourceClaim], holders: Collection[str] = ()) -> bool:
        """Whether the claims would fit if only these holders had any device that the node sees; the same for all nodes that look
        alike. Where some do, it looks less far than ``allocate``, and what it does not find out counts as possible."""
        demand = self.compiler.demand(tuple(claims))
        view = self.inventory.view(node_name)
        if demand.error is not None or view is None:
            return False
        charges = [charge for holder in holders for charge in self.ledger.charges(holder)]
        supposed = self.inventory.held(view, charges) if charges else None
        state: Hashable = supposed.state_key() if supposed is not None else view.layout.serial
        known = demand.could.get(state)
        if known is None:
            with self._looking_less_far() if charges else nullcontext():
                answer = self._answers.solve(supposed or self.inventory.held(view), demand, claims)
            if len(demand.could) >= STATES_KEPT:
                demand.could.clear()
            known = demand.could[state] = answer.picks is not None or answer.spent
        return known

    def explain(self, node_name: str, claims: Sequence[ResourceClaim], known: Outlines | None = None) -> Explanation:
        """Why the claims do not fit on this node: per node, request and device, and what would help. ``known``: what was found
        out about other nodes since anything changed; more is put into it."""
        verdict = self.allocate(node_name, claims)
        if verdict.ok:
            return Explanation(())
        view = self.inventory.view(node_name)
        demand = self.compiler.demand(tuple(claims))
        if view is None or demand.error is not None:
            return Explanation(verdict.reasons)
        problem = self.analysis.problem(demand, view.layout)
        explainer = Explainer(self, view, problem, claims, binding=self.analysis.binding, now=self.analysis.now)
        found = explainer.explain(self.inventory.state(view), known if known is not None else {})
        unreadable = tuple(self._answers.incomplete(view, key) for key in view.incomplete)
        found.reasons = verdict.reasons or (*found.reasons, *unreadable)
        return found

    # ------------------------------------------------------------------------------------------------------- verdicts

    def _verdict(self, view: NodeView, demand: Demand, claims: Sequence[ResourceClaim], answer: Answer) -> Verdict:
        if answer.picks is None:
            reasons = answer.reasons
            if answer.spent:
                reasons = (Reason("SearchBudget", f"node/{view.name}", {"steps": answer.steps}),)
            elif answer.error == INVALID_POOLS:
                reasons = tuple(self._answers.invalid(view, key) for key, _ in view.invalid)
            return Verdict(False, error=answer.error, node_error=answer.node_error, steps=answer.steps, reasons=reasons)
        try:
            results = self._assembly.results(view, demand, claims, answer.picks, answer.chosen)
        except Unwritable as error:
            claim = claims[error.claim].key
            reason = Reason("InvalidRequest", f"claim/{claim}", {"detail": str(error)})
            return Verdict(False, error=f"claim {claim}: {error}", steps=answer.steps, reasons=(reason,))
        return Verdict(True, results, steps=answer.steps, score=answer.score, rating=answer.rating)

    def _impossible(self, demand: Demand, claims: Sequence[ResourceClaim]) -> Verdict:
        error = demand.error
        assert error is not None
        claim = claims[error.claim].key
        text = error.text(claim)
        data = {"detail": text} if error.code == "InvalidRequest" else error.data
        return Verdict(False, error=text, reasons=(Reason(error.code, f"claim/{claim}", data),))


def promised(claim_uid: str) -> str:
    """Under which name the ledger keeps what is promised to a claim."""
    return f"promised/{claim_uid}"


def _rest_uid(device: DeviceKey) -> str:
    return f"rest/{device}"
