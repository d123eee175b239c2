"""A whole cluster on virtual time, to bring your own parts to.

Always true: the same seed, parts and calls give the same run. A part (a *host*) has its own watch of the API server and its own
World, as a process would; it can be delayed, refused and crashed by ``faults``, and crashed by ``crash``.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import EVENTS, NODES, PODS, Kind
from dray.apiserver.catalog import CATALOG
from dray.cluster.metrics import Meter
from dray.cluster.port import Decider, Write
from dray.cluster.world import World
from dray.controllers.sets import SETS, Setting, deciders, kinds
from dray.explain.answer import Why
from dray.explain.failures import failed_bindings
from dray.explain.snapshot import KINDS
from dray.explain.verify import Report, verify
from dray.explain.why import why
from dray.runtime.faults import NONE, Faults
from dray.runtime.local import served_kind
from dray.runtime.machines import Machines
from dray.runtime.virtual import Clock, Virtual
from dray.scheduling.config import EMBEDDED, Config
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS
from dray.scheduling.scheduler import Scheduler
from dray.testing.server import Plain, Server


def scheduler(
    world: World, config: Config | None = None, gates: Gates | None = None, *, seed: int | str = 0, meter: Meter | None = None
) -> Scheduler:
    """Dray's scheduler, with everything random in it from the seed."""
    shares = random.Random(f"shares {seed}")
    return Scheduler(world, config, gates, meter, lambda: str(uuid.UUID(int=shares.getrandbits(128), version=4)))


class VirtualCluster:
    """An API server and a clock. Nothing else runs until it is started."""

    def __init__(self, *, seed: int = 0, faults: Faults = NONE, gates: Gates | None = None, config: Config = EMBEDDED) -> None:
        self.seed, self.config, self.gates = seed, config, gates or Gates.dray()
        self.clock = Clock()
        self.server = Server(self.clock, seed=seed, gates=self.gates)
        self.shell = Virtual(self.server, self.clock, seed=seed, faults=faults)

    # ------------------------------------------------------------------------------------------------------- parts

    def start(self, name: str, kinds: Sequence[Kind], deciders: Callable[[World], Sequence[Decider]]) -> None:
        """A process of yours: ``deciders`` gets a fresh World of ``kinds`` whenever it starts, also after a crash."""
        self.shell.start(name, kinds, deciders)

    def start_all(self) -> None:
        self.start_scheduler()
        self.start_controllers()
        self.start_nodes()

    def start_scheduler(self, meter: Meter | None = None) -> None:
        def made(world: World) -> list[Decider]:
            return [scheduler(world, self.config, self.gates, seed=f"{self.seed} {self.clock.now}", meter=meter)]

        self.start("scheduler", SCHEDULER_KINDS, made)

    def start_controllers(self, *chosen: str) -> None:
        """Claims from templates, workloads, namespaces, garbage: all of them, or those chosen."""
        names = chosen or tuple(SETS)

        def made(world: World) -> list[Decider]:
            return deciders(names, Setting(world, self.gates, CATALOG.owned))

        self.start("controllers", kinds(names, CATALOG.owned), made)

    def start_nodes(self, manifests: Iterable[Plain] = (), *, heartbeat: float = 0) -> None:
        """Kubelets for every simulated Node there is or will be, with their zones, faults of devices, and the fabric of the
        example hardware. With a ``heartbeat`` they renew leases that often: a node whose kubelet is stopped is noticed."""
        machines = Machines(tuple(manifests), heartbeat=heartbeat, seed=self.seed)
        self.start("nodes", Machines.kinds, machines.deciders)

    def crash(self, name: str, down: float = 1.0) -> None:
        """The process stops dead; it starts again, knowing nothing, ``down`` seconds later."""
        self.shell.crash(name, down)

    # -------------------------------------------------------------------------------------------------------- time

    @property
    def elapsed(self) -> float:
        return self.shell.elapsed

    def run(self, seconds: float) -> None:
        """Let time pass, with everything that happens in it."""
        self.shell.run(self.shell.elapsed + seconds)

    def run_until(self, done: Callable[[], bool], limit: float = 3600.0) -> None:
        """Until ``done`` holds; an ``AssertionError`` when it does not within ``limit`` seconds of virtual time."""
        if not self.shell.run_until(done, limit):
            raise AssertionError(f"it did not happen within {limit:g} s of virtual time")

    def at(self, elapsed: float, action: Callable[[], None]) -> None:
        """Do something at a time counted from the start, while ``run`` goes on."""
        self.shell.at(elapsed, action)

    # ------------------------------------------------------------------------------------------------------- users

    def create(self, *bodies: Plain) -> Plain:
        """As ``kubectl create`` does it; what the API refuses is raised. The last one, as the API answered."""
        answer: Plain = {}
        for body in bodies:
            kind = served_kind(body)
            namespace = str(body["metadata"].get("namespace") or "default") if kind.namespaced else ""
            answer = self.shell.user(Write("create", kind, namespace, str(body["metadata"].get("name") or ""), body))
        return answer

    def patch(self, kind: Kind, name: str, body: Plain, *, namespace: str = "default", **how: Any) -> Plain:
        """``how``: ``subresource="status"``, ``patch="strategic"`` and the like, as in ``Write``."""
        return self.shell.user(Write("patch", kind, namespace if kind.namespaced else "", name, body, **how))

    def delete(self, kind: Kind, name: str, *, namespace: str = "default", **options: Any) -> None:
        self.shell.user(Write("delete", kind, namespace if kind.namespaced else "", name, options or None))

    def plant(self, *bodies: Plain) -> None:
        """Objects that are there as they are given, status and all, as if they had always been."""
        for body in bodies:
            self.server.plant(body)
        self.shell.pump()

    # ----------------------------------------------------------------------------------------------------- looking

    def get(self, kind: Kind, name: str, namespace: str = "default") -> Plain | None:
        return self.server.get(kind, f"{namespace}/{name}" if kind.namespaced else name)

    def all(self, kind: Kind, **labels: str) -> list[Plain]:
        found = self.server.all(kind).values()
        return [each for each in found if labels.items() <= (each["metadata"].get("labels") or {}).items()]

    def world(self) -> World:
        """What the API server has now, typed."""
        world = World(KINDS)
        for kind in KINDS:
            world.replace(kind, self.server.list(kind)[0])
        return world

    def why(self, name: str, namespace: str = "default") -> Why:
        """What ``dray why`` says of a pod."""
        world = self.world()
        pod: Pod = world.all(PODS)[f"{namespace}/{name}"]
        failures = failed_bindings(self.server.all(EVENTS).values())
        return why(world, pod, now=self.clock.now, config=self.config, gates=self.gates, failures=failures)

    def verify(self) -> Report:
        """What ``dray verify`` finds."""
        return verify(self.world())

    def nodes(self) -> list[str]:
        return sorted(self.server.all(NODES))
