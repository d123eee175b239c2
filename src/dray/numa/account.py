"""The account of zones: what each pod has in the zones of its node, over all nodes (``dray.books.Account``).

Always true: a holder has something on one node at most; what is free there follows from the postings alone, so that posting
what was before undoes it. Beside amounts an entry says how sure it is: a kubelet decides by itself where a pod goes, and until
it has, what was predicted may come out otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from dray.numa.demand import Demand
from dray.numa.layout import State
from dray.numa.tally import Doubt, Tally, Usage

Sure = Literal["observed", "deduced", "admitted", "starting", "awaited", "doubtful", "assumed"]
"""``starting``: predicted, and the kubelet has not admitted the pod yet: another one that it admits before may change where this
one goes. ``awaited``: the same, and it has been waited for long enough: it cannot come to its kubelet before its devices or
volumes are ready. ``admitted``: predicted, and admitted since; of equal pods that started beside each other it is not known
which is in which of their zones. ``deduced``: as certain as if it had been observed, because what the node published would not
add up otherwise. ``doubtful``: nothing is recorded, or what is may well not be so. ``assumed``: the same, and
it has been waited for long enough."""
UNSURE: Final[tuple[Sure, ...]] = ("starting", "doubtful")
KNOWN: Final[tuple[Sure, ...]] = ("observed", "deduced")


class Held(msgspec.Struct, frozen=True):
    """What a pod has on a node; ``asked`` is what it was given for. ``record`` is the annotation that says the same, where it
    was decided here. ``recorded``: a record of the pod says so, or will; else nobody counts on that becoming free with it."""

    node: str
    usage: Usage
    asked: Demand
    sure: Sure = "observed"
    record: str = ""
    recorded: bool = True

    @property
    def doubt(self) -> Doubt:
        if self.sure == "awaited":
            # What others may do depends on what they would find without it.
            return self.asked, self.sure, self.usage
        return (self.asked, self.sure) if self.sure in UNSURE else None

    @property
    def foreseen(self) -> Held:
        """The same for whoever is placed with it in one plan, and bound after it: when that comes, it is there."""
        return msgspec.structs.replace(self, sure="assumed") if self.sure in UNSURE else self


_NOBODY: Final[Mapping[str, Held]] = MappingProxyType({})


class ZoneAccount:
    def __init__(self) -> None:
        # By node what all its pods have: shared by nodes which have the same zones with the same taken of them, and are as sure
        # of it.
        self.tallies: dict[str, Tally] = {}
        self._held: dict[str, Held] = {}
        self._on: dict[str, dict[str, Held]] = {}
        # Who has come to be unsure since somebody took this; perhaps in a trial.
        self.fresh: dict[Sure, dict[str, None]] = {sure: {} for sure in UNSURE}

    # ---------------------------------------------------------------------------------------------------------- reading

    def entry(self, holder: str) -> Held | None:
        return self._held.get(holder)

    def on(self, node: str) -> Mapping[str, Held]:
        """Who has something on the node."""
        return self._on.get(node, _NOBODY)

    def unsure(self, node: str) -> Mapping[str, Held]:
        """Whose zones on the node may be others than it says here."""
        tally = self.tallies.get(node)
        if tally is None or not tally.doubts:
            return _NOBODY
        return {holder: held for holder, held in self.on(node).items() if held.sure in UNSURE}

    def holders(self) -> Iterable[tuple[str, Held]]:
        return self._held.items()

    def awaited(self, node: str) -> Mapping[str, Held]:
        """Who is going to have something on the node, and cannot come to its kubelet yet."""
        tally = self.tallies.get(node)
        if tally is None or not tally.doubts:
            return _NOBODY
        return {holder: held for holder, held in self.on(node).items() if held.sure == "awaited"}

    def state_without(self, node: str, present: Iterable[str]) -> State:
        """The node's zones if nobody but those present had anything there."""
        return self.tally_without(node, self.on(node).keys() - set(present)).state

    def tally_without(self, node: str, absent: Iterable[str]) -> Tally:
        tally, held = self.tallies[node], self.on(node)
        for holder in absent:
            tally = tally.minus(held[holder].usage, held[holder].doubt)
        return tally

    # --------------------------------------------------------------------------------------------------------- changing

    def open(self, node: str, tally: Tally) -> None:
        """The node has these zones now. Who had something in the ones before has nothing until it is posted again."""
        self.close(node)
        self.tallies[node] = tally

    def close(self, node: str) -> None:
        """Nothing is known of the node's zones any more."""
        self.tallies.pop(node, None)
        for holder in self._on.pop(node, {}):
            del self._held[holder]

    def post(self, holder: str, entry: Held | None) -> Held | None:
        before = self._held.pop(holder, None)
        tallies = self.tallies
        if before is not None:
            node = before.node
            tallies[node] = tallies[node].minus(before.usage, before.doubt)
            if entry is None or entry.node != node:
                self._drop(node, holder)
        if entry is not None:
            node = entry.node
            tallies[node] = tallies[node].plus(entry.usage, entry.doubt)
            self._held[holder] = entry
            # Who stays keeps its place among those who came before it and after it.
            self._on.setdefault(node, {})[holder] = entry
            if entry.sure in UNSURE:
                self.fresh[entry.sure][holder] = None
        return before

    def _drop(self, node: str, holder: str) -> None:
        found = self._on[node]
        del found[holder]
        if not found:
            del self._on[node]
