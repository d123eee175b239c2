"""What kubelets refused, so that the same is not tried again: a pod of the same demand, on the same node, in the same state.

A refused pod is dead and its replacement has another name, so it is the demand that is remembered. As soon as anything in the
node's zones changes, it may be tried again.
"""

from __future__ import annotations

from typing import Final

from dray.numa.demand import Demand
from dray.numa.layout import State

REASONS: Final = frozenset({"TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError"})
REMEMBERED: Final = 10_000


class Refusals:
    """By node and demand the state in which a kubelet refused, the oldest forgotten first."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Demand], tuple[State, str]] = {}

    def note(self, node: str, demand: Demand, state: State, reason: str) -> None:
        """A pod failed on the node with this reason when its zones were in this state (without the pod). What is no refusal of
        a kubelet's managers is not remembered."""
        if reason not in REASONS:
            return
        self._known.pop((node, demand), None)
        while len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[node, demand] = (state, reason)

    def reason(self, node: str, demand: Demand, state: State) -> str | None:
        """Why the kubelet would refuse again, None when it was never asked or something has changed since."""
        found = self._known.get((node, demand))
        if found is None:
            return None
        if found[0] != state:
            del self._known[node, demand]
            return None
        return found[1]

    def forget(self, node: str) -> None:
        """The node is gone, or its kubelet was set up anew."""
        for key in [key for key in self._known if key[0] == node]:
            del self._known[key]
