"""The spread constraints of pods that have none of their own, for the pods of one service or workload.

Always true: a pod that nothing selects or owns gets none. Where the World does not mirror services and workloads, no pod does.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Pod
from dray.api.kinds import SERVICES
from dray.api.meta import OwnerReference
from dray.api.selectors import Requirement, label_requirements
from dray.cluster.world import World
from dray.scheduling.kinds import OWNER_KINDS
from dray.scheduling.plugins.terms import Requirements

_BY_OWNER: Final = {(kind.api_version, kind.kind): kind for kind in OWNER_KINDS if kind is not SERVICES}


class Owners:
    """Which pods belong together, as services and workloads say."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._services = world.index(SERVICES, lambda found: (found.metadata.namespace,)) if SERVICES in world.kinds else None

    def requirements(self, pod: Pod) -> Requirements:
        """What the pods have in common that belong with this one; empty where nothing says so."""
        labels = self._of_services(pod)
        owner = pod.metadata.controller if pod.metadata.owner_references else None
        if not labels and owner is None:
            return ()
        spec = self._spec(pod, owner) if owner is not None else None
        if isinstance(spec, dict):
            labels = {**labels, **(spec.get("selector") or {})}
        equal = tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))
        own = label_requirements(spec.selector) if spec is not None and not isinstance(spec, dict) else None
        return (*equal, *(own or ()))

    def _of_services(self, pod: Pod) -> dict[str, str]:
        merged: dict[str, str] = {}
        if self._services is not None:
            mine = pod.metadata.labels.items()
            for key in self._services[pod.metadata.namespace]:
                selector = self._world.get(SERVICES, key).spec.get("selector")
                if selector and selector.items() <= mine:
                    merged.update(selector)
        return merged

    def _spec(self, pod: Pod, owner: OwnerReference) -> Any:
        kind = _BY_OWNER.get((owner.api_version, owner.kind))
        if kind is None or kind not in self._world.kinds:
            return None
        found: Any = self._world.get(kind, f"{pod.metadata.namespace}/{owner.name}")
        return found.spec if found is not None and found.uid == owner.uid else None
