"""Pods that come to their kubelet late, because their devices or volumes are made ready first, and those that go ahead of them.

A kubelet gives out the lowest zones that will do to whoever comes, so the order matters. Always true: nobody is let ahead of a
pod that would not fit after it; who is bound has the zones that its kubelet finds free then, without those that are kept for
pods that come later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from dray.books.nodes import NodeInfo
from dray.numa.account import UNSURE, Held, Sure
from dray.numa.demand import Demand
from dray.numa.layout import State
from dray.numa.placement import INIT_MEMORY_PREDICTED, PREDICTED, encode, encode_passing
from dray.numa.tally import Usage
from dray.scheduling.parts import Parts

if TYPE_CHECKING:
    from dray.scheduling.plugins.zones import Zones


class Foreseen(NamedTuple):
    """What a pod is going to have on a node, for the books and for its record."""

    usage: Usage
    sure: Sure
    record: str
    notes: Mapping[str, str]


class Arrival(NamedTuple):
    """Whether a pod that was waited for may be bound now: it ``comes``, with another record where others came before it; it
    ``waits`` for one that is on its way to the same kubelet; or its kubelet would have it ``refused``."""

    verdict: Literal["comes", "waits", "refused"]
    notes: Mapping[str, str]


_AS_DECIDED: Final = Arrival("comes", {})


class Latecomers:
    def __init__(self, zones: Zones, parts: Parts) -> None:
        self._zones, self._account, self._nodes = zones, parts.zones, parts.nodes
        self._books, self._wakeups = parts.books, parts.wakeups

    def robbed(self, info: NodeInfo, asked: Demand) -> str:
        """A pod that cannot come to the node's kubelet yet, and that would not fit there any more if one with this demand came
        first, or ''."""
        waiting = self._behind(info, asked)
        if not waiting:
            return ""
        absent = (self._account.on(info.name).keys() - info.pods.keys()) | waiting.keys()
        tally = self._account.tally_without(info.name, absent)
        for uid, each in (("", asked), *((uid, held.asked) for uid, held in waiting.items())):
            verdict = self._zones.evaluators.admit(tally.state, each)
            if not verdict.admit:
                return info.pods[uid or next(iter(waiting))].pod.key
            tally = tally.plus(self._zones.entry(tally.state, each, verdict)[0])
        return ""

    def _behind(self, info: NodeInfo, asked: Demand) -> Mapping[str, Held]:
        """Who is to be on the node, and comes to its kubelet after one with this demand that is bound now. Among equal pods it
        does not matter who comes first."""
        awaited = self._account.awaited(info.name)
        return {uid: held for uid, held in awaited.items() if uid in info.pods and held.asked is not asked}

    def foreseen(self, info: NodeInfo, asked: Demand) -> Foreseen | None:
        """What a pod gets on the node that is bound now: as the kubelet finds it, without those that come later."""
        state = self._zones.state(info)
        if state is None:
            return None
        if waiting := self._behind(info, asked):
            state = self._account.state_without(info.name, info.pods.keys() - waiting.keys())
        return self._foreseen(state, asked)

    def _foreseen(self, state: State, asked: Demand) -> Foreseen | None:
        verdict = self._zones.placement(state, asked)
        if not verdict.placement:
            return None
        notes = {PREDICTED: (record := encode(verdict.placement, state.layout))}
        if verdict.passing:
            notes[INIT_MEMORY_PREDICTED] = encode_passing(verdict.passing, state.layout)
        return Foreseen(*self._zones.entry(state, asked, verdict), record, notes)

    def foresee_again(self, node: str) -> None:
        """Something became free on the node: who is to come and is not bound yet finds it so, in the order of their decisions."""
        info, on = self._nodes.get(node), self._account.on(node)
        coming = {uid: held for uid, held in on.items() if held.sure == "starting" and not self._zones.bound(uid)}
        if info is None or not coming:
            return
        present = info.pods.keys() - coming.keys() - self._account.awaited(node).keys()
        tally = self._account.tally_without(node, on.keys() - present)
        for uid, held in coming.items():
            verdict = self._zones.placement(tally.state, held.asked)
            if not verdict.placement:
                break
            usage, sure = self._zones.entry(tally.state, held.asked, verdict)
            tally = tally.plus(usage)
            if usage != held.usage:
                self._books.post(self._account, uid, msgspec.structs.replace(held, usage=usage, sure=sure))
        # Nobody has left by that.
        self._wakeups.zones_vacated.pop(node, None)

    def arrival(self, uid: str) -> Arrival:
        """Whether a pod may be bound that had to wait for its devices or volumes, while others came."""
        held = self._account.entry(uid)
        info = self._nodes.get(held.node) if held is not None else None
        if held is None or info is None or held.sure not in (*UNSURE, "awaited"):
            return _AS_DECIDED
        if held.sure == "starting":
            # Nobody came who could have changed anything.
            self._zones.comes(uid, held)
            return _AS_DECIDED
        coming = self._account.unsure(held.node).items()
        if any(found.asked is not held.asked and not self._zones.admitted(other) for other, found in coming):
            return Arrival("waits", {})
        state = self._account.state_without(held.node, info.pods.keys() - {uid, *self._account.awaited(held.node)})
        if not self._zones.evaluators.admit(state, held.asked).admit:
            return Arrival("refused", {})
        if (found := self._foreseen(state, held.asked)) is None:
            return _AS_DECIDED
        self._zones.comes(uid, Held(held.node, found.usage, held.asked, found.sure, found.record))
        return Arrival("comes", found.notes)
