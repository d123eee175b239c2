"""What kubelets refused, so that the same is not tried again: a pod of the same demand, on the same node, in the same state.

A refused pod is dead and its replacement has another name, so it is the demand that is remembered. As soon as anything in the
node's zones changes, it may be tried again. Always true: asking forgets nothing, so that it may be asked about states that are
only thought of.
"""

from __future__ import annotations

from typing import Final

from dray.numa.demand import Demand
from dray.numa.layout import State

TOPOLOGY_AFFINITY_ERROR: Final = "TopologyAffinityError"
REASONS: Final = frozenset({TOPOLOGY_AFFINITY_ERROR, "UnexpectedAdmissionError", "SMTAlignmentError"})
# Not the kubelet's: the pod was spread over more zones than it allows, and is to be placed anew.
SPREAD: Final = "NUMASpanMissed"
REMEMBERED: Final = 10_000


class Refusals:
    """By node and demand the state in which a kubelet refused, the oldest forgotten first. ``serial`` changes with each."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Demand], tuple[State | None, str]] = {}
        # How many of each node; a node of which nothing is remembered is not in it.
        self.on: dict[str, int] = {}
        self.serial = 0

    def note(self, node: str, demand: Demand, state: State | None, reason: str) -> bool:
        """A pod failed on the node with this reason when its zones were in this state (without the pod), None if they are not
        known. What is no refusal of a kubelet's managers is not remembered. Answers whether the node had refused such a pod
        before."""
        if reason not in REASONS and reason != SPREAD:
            return False
        again = self._drop((node, demand))
        while len(self._known) >= REMEMBERED:
            self._drop(next(iter(self._known)))
        self._known[node, demand] = (state, reason)
        self.on[node] = self.on.get(node, 0) + 1
        self.serial += 1
        return again

    def reason(self, node: str, demand: Demand, state: State) -> str | None:
        """Why the kubelet would refuse again, None when it was never asked or something has changed since."""
        found = self._known.get((node, demand))
        return found[1] if found is not None and found[0] == state else None

    def forget(self, node: str) -> None:
        """The node is gone, its kubelet was set up anew, or enough time has passed."""
        if node in self.on:
            for key in [key for key in self._known if key[0] == node]:
                self._drop(key)
            self.serial += 1

    def _drop(self, key: tuple[str, Demand]) -> bool:
        if self._known.pop(key, None) is None:
            return False
        self.on[key[0]] -= 1
        if not self.on[key[0]]:
            del self.on[key[0]]
        return True
