"""NUMA: nodes whose kubelet would take the pod, and those where its resources come to lie best.

A check predicts the kubelet's verdict from what is free in the node's zones, and keeps to what the pod itself limits; a score
ranks the nodes that will do. What the pod is going to have is posted, so that the next pod sees it, and is written with the
binding as the pod's record. Where no node publishes zones, or for a pod of which nothing is aligned, there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.core import Pod
from dray.api.reason import Reason
from dray.books.journal import Account
from dray.books.nodes import NodeInfo
from dray.numa.account import Held, ZoneAccount
from dray.numa.demand import Demand
from dray.numa.evaluate import Verdict, nearest, reason
from dray.numa.intent import SAID, Intent, IntentError, intent, limited, refusal
from dray.numa.layout import State
from dray.numa.scores import nearness, score_of
from dray.numa.tally import Tally
from dray.scheduling.arguments import ZoneArgs
from dray.scheduling.plugins.base import Check, Compiled, Measure, PodShape, Reasons, because, codes_of
from dray.scheduling.plugins.late import Foreseen
from dray.scheduling.plugins.zones import Zones

# Of which pod the zones are not known is said where somebody asks.
_UNKNOWN: Final = because("ZonePlacementUnknown")
_KEPT_FOR: Final = because("ZonesKept")
_UNPUBLISHED: Final = because("ZonesUnpublished")
# Holders that a reason names; the rest is counted.
_NAMED: Final = 5
# Nodes' states of which the answers are kept, for each demand.
_KEPT: Final = 16384
# Of what a verdict says, the data that a shared refusal keeps: the rest are numbers of one node.
_SHARED: Final = ("resource", "needed", "width", "policy", "widths", "total", "kept", "requests")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class NUMA:
    name = "NUMA"
    codes = codes_of(name)

    def __init__(self, zones: Zones, account: ZoneAccount) -> None:
        self._zones, self._account = zones, account

    def sign(self, pod: Pod) -> Hashable:
        """What is read of a pod beside its spec: what it says about zones."""
        annotations = pod.metadata.annotations
        return tuple(annotations.get(name) for name in SAID) if annotations else None

    def compile(self, shape: PodShape) -> Compiled | None:
        zones = self._zones
        if not zones.any:
            return None
        asked = zones.asked(shape.pod, shape.demand)
        if not asked.units:
            return None
        try:
            own = intent(shape.pod)
        except IntentError as error:
            wrong = because("ZoneIntentInvalid", error=str(error))
            return Compiled(check=lambda info: wrong)
        taking = _Taking(zones, self._account, asked)
        return Compiled(
            ["node", "zones"],
            check=_check(zones, asked, own),
            measure=_measure(zones, asked, shape.profile.zones),
            posts=taking.posts,
            notes=taking.notes,
            state=zones.stamp,
        )


# --------------------------------------------------------------------------------------------------------------- check


def _check(zones: Zones, asked: Demand, own: Intent | None) -> Check:
    """The node that is picked is checked once more, and pods of a shape fill many nodes alike: answers are kept by the node's
    stamp."""
    judge = _judge(zones, asked, own)
    said: dict[Hashable, Reasons | None] = {}

    def check(info: NodeInfo) -> Reasons | None:
        key = zones.kept(info)
        if key is None:
            return judge(info)
        if key not in said:
            if len(said) >= _KEPT:
                said.clear()
            said[key] = judge(info)
        return said[key]

    return check


def _judge(zones: Zones, asked: Demand, own: Intent | None) -> Check:
    evaluators, refusals = zones.evaluators, zones.refusals
    limits = own is not None and bool(limited(asked, own).units)

    def judge(info: NodeInfo) -> Reasons | None:
        state = zones.state(info)
        if state is None:
            return _UNPUBLISHED if limits else None
        plan = evaluators.plan(state.layout, asked)
        depends = plan.handled and plan.never is None
        if depends and zones.doubtful(info):
            return _UNKNOWN
        verdict = evaluators.admit(state, asked)
        if not verdict.admit:
            return _shared(verdict, state)
        if depends and zones.starting(info, asked):
            return _UNKNOWN
        if depends and zones.late.robbed(info, asked):
            return _KEPT_FOR
        if own is not None and (against := refusal(own, state, asked, evaluators)) is not None:
            return (against,)
        if info.name in refusals.on and (before := refusals.reason(info.name, asked, state)) is not None:
            return because("ZoneRefusedBefore", refused=before)
        return None

    return judge


def _shared(verdict: Verdict, state: State) -> Reasons:
    found = reason(verdict, state)
    assert found is not None
    data: dict[str, Any] = {name: found.data[name] for name in _SHARED if name in found.data}
    return (Reason(found.code, "", data),)


def told(zones: Zones, asked: Demand, info: NodeInfo, said: Reason) -> Reason:
    """A shared refusal with the node's numbers: the zones that come nearest, what they lack, and who has it."""
    if said.code == "ZonePlacementUnknown":
        return Reason(said.code, said.object, {**said.data, "pod": zones.doubtful(info) or zones.starting(info, asked)})
    if said.code == "ZonesKept":
        return Reason(said.code, said.object, {**said.data, "pod": zones.late.robbed(info, asked)})
    state = zones.state(info)
    verdict = zones.evaluators.admit(state, asked) if state is not None else None
    found = reason(verdict, state, info.name) if verdict is not None and state is not None else None
    if verdict is None or state is None or found is None or found.code != said.code:
        return said
    near = nearest(verdict.refusal, state) if verdict.refusal is not None and found.code != "ZonesApart" else None
    holders = zones.holders(info, *near) if near is not None else []
    more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
    data = {**found.data, **({"holders": ", ".join(holders[:_NAMED]) + more} if holders else {})}
    return Reason(found.code, found.object, data)


# --------------------------------------------------------------------------------------------------------------- score


def _measure(zones: Zones, asked: Demand, args: ZoneArgs) -> Measure:
    evaluators = zones.evaluators
    weights = {weight.name: weight.weight for weight in args.weights}
    known: dict[State, int] = {}

    def score(state: State) -> int:
        if state.layout.policy == "none":
            return 0
        found = score_of(args.strategy, state, evaluators.plan(state.layout, asked), weights)
        if args.distances:
            mask = 0
            for each in zones.placement(state, asked).masks:
                mask |= each
            found = found * nearness(state.layout, mask) // 100
        return found

    def measure(info: NodeInfo) -> int:
        state = zones.state(info)
        if state is None:
            return 0
        found = known.get(state)
        if found is None:
            if len(known) >= _KEPT:
                known.clear()
            found = known[state] = score(state)
        return found

    return measure


# -------------------------------------------------------------------------------------------------------------- taking


class _Taking:
    """What a pod is going to have on a node, for the books and for its record; the same on all nodes with the same tally."""

    def __init__(self, zones: Zones, account: ZoneAccount, asked: Demand) -> None:
        self._zones, self._account, self._asked = zones, account, asked
        self._known: dict[Tally, Foreseen | None] = {}

    def _of(self, info: NodeInfo) -> Foreseen | None:
        tally = self._zones.tally(info)
        if tally is None:
            return self._zones.late.foreseen(info, self._asked)
        if tally not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[tally] = self._zones.late.foreseen(info, self._asked)
        return self._known[tally]

    def posts(self, info: NodeInfo) -> list[tuple[Account, object]]:
        found = self._of(info)
        if found is None:
            return []
        return [(self._account, Held(info.name, found.usage, self._asked, found.sure, found.record))]

    def notes(self, info: NodeInfo) -> Mapping[str, str]:
        found = self._of(info)
        return found.notes if found is not None else _NOTHING
