"""Whether gangs start whole: soon after the first of its pods is bound a gang has as many as it needs.

Always true: only gangs and nodes that nothing happened to are judged, while nothing goes wrong between the parts of the cluster
and the scheduler runs: a gang of which a member goes meanwhile, or whose binds were sent by halves, may lack one for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.api.kinds import NODES, POD_GROUPS, PODS
from dray.runtime.virtual import Written
from tests.simulate.judging_queues import Plain, Run, group_of
from tests.simulate.settled import Settled

# How long it may take from the first bind to the last: longer than one kubelet is waited for before the next pod comes to it.
SECONDS: Final = 5.0


class Starts:
    """Follows the writes of a run; ``wrong`` has what is wrong, of which gang, and how. ``crashes``: of the scheduler."""

    def __init__(self, simulation: Run, settled: Settled, crashes: Sequence[float]) -> None:
        self._simulation, self._settled, self._crashes = simulation, settled, crashes
        self.wrong: list[tuple[str, str, str]] = []
        # By gang: since when it is being bound, and the pods that it had then.
        self._begun: dict[str, tuple[float, set[str]]] = {}
        simulation.listen(self._written)

    def _written(self, written: Written) -> None:
        now = self._simulation.elapsed
        for group in [group for group, (at, _) in self._begun.items() if at + SECONDS <= now]:
            self._look(group, *self._begun.pop(group))
        write = written.write
        if written.error is None and written.host == "scheduler" and write.subresource == "binding":
            group = group_of(self._simulation.objects(PODS)[write.key])
            if group and group not in self._begun:
                self._begun[group] = now, {pod["metadata"]["uid"] for pod in self._pods(group)}

    def _pods(self, group: str) -> list[Plain]:
        return [pod for pod in self._simulation.objects(PODS).values() if group_of(pod) == group]

    def _look(self, group: str, since: float, had: set[str]) -> None:
        pods = [pod for pod in self._pods(group) if pod["metadata"]["uid"] in had]
        least = self._simulation.objects(POD_GROUPS).get(group, {}).get("spec", {}).get("minMember", 0)
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        if bound < least and len(pods) == len(had) and not any(map(_goes, pods)) and self._is_quiet(group, since):
            self.wrong.append(("starts in part", f"podgroup/{group}", f"{bound} of {least} are bound at {since:.0f} s"))

    def _is_quiet(self, group: str, since: float) -> bool:
        """Whether nothing happened from a while before on."""
        crashed = any(since - SECONDS <= at <= self._simulation.elapsed for at in self._crashes)
        same = self._settled.from_the_start(POD_GROUPS.resource, group) and self._settled.every(NODES.resource)
        return same and not crashed and not self._settled.harmful


def _goes(pod: Plain) -> bool:
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
