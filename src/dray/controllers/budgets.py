"""Disruption budgets: how many of the selected pods may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.api.core import Pod, PodDisruptionBudget
from dray.api.kinds import POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS, Kind
from dray.api.selectors import selects
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import podstate
from dray.controllers.keyed import Keyed
from dray.controllers.rollout import bound

_OWNERS = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS}


class Budgets(Keyed):
    """The decider. Keys are ``namespace/name`` of PodDisruptionBudgets."""

    name = "budgets"
    kinds: Sequence[Kind] = (POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._budgets = world.index(POD_DISRUPTION_BUDGETS, lambda found: (found.metadata.namespace,))
        self._pods = world.index(PODS, lambda found: (found.metadata.namespace,))

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == POD_DISRUPTION_BUDGETS:
            return [change.object.key]
        return tuple(self._budgets[change.object.metadata.namespace])

    def decide(self, key: str, now: float) -> list[Write]:
        budget: PodDisruptionBudget | None = self.world.get(POD_DISRUPTION_BUDGETS, key)
        if budget is None:
            self.forget(key)
            return []
        pods = [self.world.get(PODS, pod) for pod in self._pods[budget.metadata.namespace]]
        chosen = [pod for pod in pods if not pod.terminal and selects(budget.spec.selector, pod.metadata.labels)]
        healthy = sum(podstate.active(pod) and podstate.ready(pod) for pod in chosen)
        expected, desired = self._wanted(budget, chosen)
        status = {
            "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "observedGeneration": budget.metadata.generation,
        }
        known = budget.status
        shown = [
            known.disruptions_allowed,
            known.current_healthy,
            known.desired_healthy,
            known.expected_pods,
            known.observed_generation,
        ]
        if list(status.values()) == shown:
            return []
        namespace, name = budget.metadata.namespace, budget.metadata.name
        return [Write("patch", POD_DISRUPTION_BUDGETS, namespace, name, {"status": status}, subresource="status", uid=budget.uid)]

    def _wanted(self, budget: PodDisruptionBudget, pods: list[Pod]) -> tuple[int, int]:
        """How many pods there should be, and how many of them must stay healthy."""
        minimum, maximum = budget.spec.min_available, budget.spec.max_unavailable
        if maximum is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - bound(maximum, "0", expected, up=True))
        if isinstance(minimum, str):
            expected = self._scale(pods)
            return expected, bound(minimum, "1", expected, up=True)
        return len(pods), minimum if minimum is not None else 1

    def _scale(self, pods: list[Pod]) -> int:
        """The replicas that the controllers of the pods want; pods without one that is known count themselves."""
        total, seen = 0, set()
        for pod in pods:
            owner = pod.metadata.controller
            kind = _OWNERS.get(owner.kind) if owner is not None else None
            found = self.world.get(kind, f"{pod.metadata.namespace}/{owner.name}") if kind is not None and owner else None
            if found is None:
                total += 1
            elif found.uid not in seen:
                seen.add(found.uid)
                total += found.spec.replicas if found.spec.replicas is not None else 1
        return total
