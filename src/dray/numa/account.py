"""The account of zones: what each pod has in the zones of its node, over all nodes (``dray.books.Account``).

Always true: a holder has something on one node at most; what is free there follows from the postings alone, so that posting
what was before undoes it. Beside amounts an entry says how sure it is: a kubelet decides by itself where a pod goes, and until
it has, what was predicted may come out otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from dray.numa.demand import Demand
from dray.numa.layout import State
from dray.numa.tally import Tally, Usage

Sure = Literal["observed", "admitted", "starting", "doubtful", "assumed"]
"""``starting``: predicted, and the kubelet has not admitted the pod yet: another one that it admits before may change where this
one goes. ``admitted``: predicted, and admitted since; of equal pods that started beside each other it is not known which is in
which of their zones. ``doubtful``: nothing is recorded, or what is may well not be so. ``assumed``: the same, and it has been
waited for long enough."""
UNSURE: Final = ("starting", "doubtful")


class Held(msgspec.Struct, frozen=True):
    """What a pod has on a node; ``asked`` is what it was given for."""

    node: str
    usage: Usage
    asked: Demand
    sure: Sure = "observed"


# Contents of nodes that have a number.
_NUMBERED: Final = 65536
_NOBODY: Final[Mapping[str, Held]] = MappingProxyType({})


class ZoneAccount:
    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._held: dict[str, Held] = {}
        self._on: dict[str, dict[str, Held]] = {}
        self._unsure: dict[str, dict[str, Held]] = {}
        # By node what ``stamp`` said, while it holds; and by content, whose numbers are never given to another one.
        self.stamps: dict[str, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._next = count(1)
        # Who has come to be unsure since somebody took this; perhaps in a trial.
        self.fresh: dict[str, None] = {}

    # ---------------------------------------------------------------------------------------------------------- reading

    def tally(self, node: str) -> Tally | None:
        return self._tallies.get(node)

    def entry(self, holder: str) -> Held | None:
        return self._held.get(holder)

    def on(self, node: str) -> Mapping[str, Held]:
        """Who has something on the node."""
        return self._on.get(node, _NOBODY)

    def unsure(self, node: str) -> Mapping[str, Held]:
        """Whose zones on the node may be others than it says here."""
        return self._unsure.get(node, _NOBODY)

    def holders(self) -> Iterable[tuple[str, Held]]:
        return self._held.items()

    def stamp(self, node: str) -> int:
        """A number that nodes share which have the same zones with the same free in them, and are as sure of it; 0 for a node
        of which no zones are known."""
        found = self.stamps.get(node)
        if found is None:
            tally = self._tallies.get(node)
            if tally is None:
                return 0
            found = self.stamps[node] = self._number(tally.state(), self._unsure.get(node))
        return found

    def _number(self, state: State, unsure: Mapping[str, Held] | None) -> int:
        content: Hashable = (state, frozenset([(held.asked, held.sure) for held in unsure.values()])) if unsure else state
        found = self._numbers.get(content)
        if found is None:
            if len(self._numbers) >= _NUMBERED:
                self._numbers.clear()
            found = self._numbers[content] = next(self._next)
        return found

    def state_without(self, node: str, present: Iterable[str]) -> State:
        """The node's zones if nobody but those present had anything there."""
        tally = self._tallies[node]
        gone = self._on.get(node, {}).keys() - set(present)
        taken = [(holder, tally.post(holder, None)) for holder in sorted(gone)]
        state = tally.state()
        for holder, usage in taken:
            tally.post(holder, usage)
        return state

    # --------------------------------------------------------------------------------------------------------- changing

    def open(self, node: str, tally: Tally) -> None:
        """The node has these zones now. Who had something in the ones before has nothing until it is posted again."""
        self.close(node)
        self._tallies[node] = tally

    def changed(self, node: str) -> None:
        """What is free there was changed otherwise than by posting."""
        self.stamps.pop(node, None)

    def close(self, node: str) -> None:
        """Nothing is known of the node's zones any more."""
        self._tallies.pop(node, None)
        self._unsure.pop(node, None)
        self.stamps.pop(node, None)
        for holder in self._on.pop(node, {}):
            del self._held[holder]

    def post(self, holder: str, entry: Held | None) -> Held | None:
        before = self._held.pop(holder, None)
        if before is not None:
            self.stamps.pop(before.node, None)
            self._tallies[before.node].post(holder, None)
            _drop(self._on, before.node, holder)
            _drop(self._unsure, before.node, holder)
        if entry is not None:
            self.stamps.pop(entry.node, None)
            self._held[holder] = entry
            self._tallies[entry.node].post(holder, entry.usage)
            self._on.setdefault(entry.node, {})[holder] = entry
            if entry.sure in UNSURE:
                self._unsure.setdefault(entry.node, {})[holder] = entry
                self.fresh[holder] = None
        return before


def _drop(by_node: dict[str, dict[str, Held]], node: str, holder: str) -> None:
    found = by_node.get(node)
    if found is not None:
        found.pop(holder, None)
        if not found:
            del by_node[node]
