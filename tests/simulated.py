"""A simulated cluster on virtual time with controllers and nodes, and words for what tests do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dray.api.gates import Gates
from dray.api.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    Kind,
)
from dray.cluster.port import Decider, Write
from dray.cluster.world import World
from dray.controllers.deployments import Deployments
from dray.controllers.garbage import Garbage
from dray.controllers.jobs import Jobs
from dray.controllers.namespaces import Namespaces
from dray.controllers.replicasets import ReplicaSets
from dray.nodes.hardware import hardware
from dray.nodes.kubelet import Kubelets
from dray.runtime.faults import NONE, Faults
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock, Virtual

KINDS = (PODS, REPLICA_SETS, DEPLOYMENTS, JOBS, NAMESPACES, CONFIG_MAPS, SERVICE_ACCOUNTS)


class Place:
    """A simulated cluster: API server, controllers, and nodes to which pods are bound as soon as they appear."""

    def __init__(self, seed: int = 0, faults: Faults = NONE, gates: Gates | None = None) -> None:
        clock = Clock()
        self.core = InProcess(clock, seed=seed, gates=gates)
        self.shell = Virtual(self.core, clock, seed=seed, faults=faults)

    def start(self, name: str, kinds: Sequence[Kind], deciders: Callable[[World], Sequence[Decider]]) -> None:
        self.shell.start(name, kinds, deciders)

    def start_controllers(self) -> None:
        def controllers(world: World) -> list[Decider]:
            return [ReplicaSets(world), Deployments(world), Jobs(world), Garbage(world, KINDS), Namespaces(world, KINDS)]

        self.start("controllers", KINDS, controllers)

    def start_nodes(self, count: int = 3) -> None:
        names = self.start_kubelets(count)
        self.start("binder", (PODS,), lambda world: [Binder(world, names)])

    def start_kubelets(self, count: int = 3) -> list[str]:
        made = hardware([f"plain:{count}"])
        self.start("nodes", Kubelets.kinds, lambda world: [Kubelets(world, made.nodes, heartbeat=0)])
        return [node["metadata"]["name"] for node in made.nodes]

    def create(self, kind: Kind, body: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return self.shell.user(Write("create", kind, namespace if kind.namespaced else "", body["metadata"]["name"], body))

    def patch(self, kind: Kind, name: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self.shell.user(Write("patch", kind, "default", name, body, **more))

    def delete(self, kind: Kind, name: str, **options: Any) -> None:
        self.shell.user(Write("delete", kind, "default" if kind.namespaced else "", name, options or None))

    def pass_time(self, seconds: float) -> None:
        self.shell.run(self.shell.elapsed + seconds)

    def all(self, kind: Kind, **labels: str) -> list[dict[str, Any]]:
        objects = self.core.all(kind).values()
        return [o for o in objects if labels.items() <= o["metadata"].get("labels", {}).items()]

    def get(self, kind: Kind, name: str) -> dict[str, Any] | None:
        return self.core.get(kind, f"default/{name}" if kind.namespaced else name)


class Binder:
    """The least scheduler: each pending pod goes to the next node."""

    name = "binder"
    kinds = (PODS,)

    def __init__(self, world: World, nodes: Sequence[str]) -> None:
        self._world, self._nodes = world, nodes
        self._due: dict[str, None] = {}
        self._bound = 0

    def observe(self, event: Any, now: float) -> None:
        key = getattr(getattr(event, "new", None), "key", None) or getattr(getattr(event, "write", None), "key", None)
        if key:
            self._due[key] = None

    def act(self, now: float) -> list[Write]:
        due, self._due = self._due, {}
        pods = (self._world.get(PODS, key) for key in due)
        return [self._bind(pod) for pod in pods if pod is not None and not pod.spec.node_name and not pod.terminal]

    def _bind(self, pod: Any) -> Write:
        self._bound += 1
        target = {"kind": "Node", "name": self._nodes[self._bound % len(self._nodes)]}
        metadata = {"name": pod.metadata.name, "uid": pod.uid}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        return Write("create", PODS, pod.metadata.namespace, pod.metadata.name, body, subresource="binding")

    def wake(self) -> float | None:
        return None
