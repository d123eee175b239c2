"""Whether kubelets take what the scheduler binds: a pod that a kubelet refuses has failed for good, and was placed in vain.

Always true: only pods that the scheduler bound are judged, on nodes that stayed as they were, while nothing goes wrong between
the parts of the cluster and nobody puts pods on nodes or ends kubelets by hand: what the scheduler could not know is nobody's
fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.runtime.virtual import Written
from tests.simulate.judging_queues import Plain, Run
from tests.simulate.settled import Settled

_OF_ZONES: Final = ("TopologyAffinityError", "UnexpectedAdmissionError")
_REFUSED: Final = (*_OF_ZONES, "OutOf", "NodePorts", "NodeAffinity", "TaintToleration")
# Until everybody has seen that a node publishes its zones.
_SEEN: Final = 1.0


class Admissions:
    """Follows the writes of a run; ``wrong`` has what is wrong, of which pod, and how. ``foreseeable``: whether the scheduler can
    know at all what kubelets do."""

    def __init__(self, simulation: Run, settled: Settled, foreseeable: bool) -> None:
        self._simulation, self._settled = simulation, settled
        self.wrong: list[tuple[str, str, str]] = []
        self._ours: dict[str, bool] = {}  # pods that the scheduler bound, and whether it knew the zones of the node
        self._published: dict[str, float] = {}  # nodes that publish their zones, and since when
        if foreseeable:
            simulation.listen(self._written)
            simulation.follow(self._followed)

    def _followed(self, table: str, key: str, raw: bytes | None) -> None:
        if table == NODE_RESOURCE_TOPOLOGIES.resource and raw is not None:
            self._published.setdefault(key, self._simulation.elapsed)
        elif table == NODE_RESOURCE_TOPOLOGIES.resource:
            self._published.pop(key, None)

    def _written(self, written: Written) -> None:
        write = written.write
        if written.error is not None or write.kind != PODS:
            return
        pod = self._simulation.objects(PODS).get(write.key)
        if pod is None:
            return
        if written.host == "scheduler" and write.subresource == "binding":
            since = self._published.get(pod["spec"]["nodeName"], self._simulation.elapsed)
            self._ours[pod["metadata"]["uid"]] = since + _SEEN <= self._simulation.elapsed
        elif written.host == "nodes" and pod["metadata"]["uid"] in self._ours:
            now = self._simulation.elapsed
            self.wrong += [("refused", f"pod/{write.key}", f"{how} at {now:.0f} s") for how in self._of(pod, write.body or {})]

    def _of(self, pod: Plain, change: Plain) -> Iterator[str]:
        status = change.get("status", {})
        reason, node = str(status.get("reason", "")), pod["spec"]["nodeName"]
        if status.get("phase") != "Failed" or not reason.startswith(_REFUSED) or self._settled.harmful:
            return
        if reason in _OF_ZONES and not self._ours[pod["metadata"]["uid"]]:
            return
        if self._settled.object(NODES.resource, node, soon=False):
            yield f"is refused by node {node}: {reason}: {status.get('message', '')}"


def foreseeable(documents: list[Plain]) -> bool:
    """Whether nobody ends kubelets, or hides from the scheduler what is on nodes."""
    steps = [step for each in documents if each["kind"] == "Scenario" for step in each["spec"].get("steps", ())]
    crashes = (step["crash"]["host"] != "scheduler" for step in steps if "crash" in step)
    stopped = ("dray.dev/kubelet" in (step["patch"]["metadata"].get("annotations") or {}) for step in steps if "patch" in step)
    return all(crashes) and not any(stopped)
