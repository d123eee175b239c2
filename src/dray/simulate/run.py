"""Running a scenario: the embedded API server, scheduler, controllers and simulated nodes on virtual time.

Always true: the same scenario and seed give the same report, byte for byte. Invariants are checked on the API server's own state
at one instant, while it runs and at the end.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dray.api.consumers import claims_of
from dray.api.core import Pod
from dray.api.kinds import EVENTS, NODES, PODS, RESOURCE_CLAIMS, Kind
from dray.api.resource import ResourceClaim
from dray.api.times import parse_time
from dray.api.words import as_json
from dray.apiserver.catalog import CATALOG
from dray.cluster.metrics import Meter
from dray.cluster.port import Decider, Refused, Write
from dray.cluster.world import World
from dray.controllers.sets import SETS, Setting, deciders, kinds
from dray.explain.answer import Why
from dray.explain.failures import FailedBinding, failed_bindings
from dray.explain.queued import Outlooks
from dray.explain.queues import QueueTree, survey
from dray.explain.snapshot import KINDS
from dray.explain.verify import Finding, verify
from dray.explain.why import why
from dray.numa.placement import OBSERVED, PREDICTED, shares_of
from dray.runtime.hand import USER, Hand, place_of, ready_node
from dray.runtime.inprocess import InProcess, of_a_server
from dray.runtime.machines import Machines
from dray.runtime.virtual import Clock, Virtual, Written
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS
from dray.scheduling.scheduler import Scheduler
from dray.simulate.recording import Recorder
from dray.simulate.scenario import Action, Scenario
from dray.simulate.taken import Taken

Plain = dict[str, Any]

CHECKS_MAX: Final = 120
# Nodes and waiting pods up to which the scheduler's parts are held against each other after each of its steps.
VALIDATED_MAX: Final = 300


class Eviction(msgspec.Struct):
    namespace: str
    name: str
    at: float
    by: str


class Happening(msgspec.Struct, omit_defaults=True):
    """An event; one that was told several times says how often, and when last."""

    at: float
    object: str
    type: str
    reason: str
    message: str
    count: int = 1
    last: float | None = None


class Invariants(msgspec.Struct):
    checked: int
    violated: list[dict[str, Any]]


class Refusal(msgspec.Struct):
    """Something in the scenario that the API did not take: it was simulated without it."""

    at: float
    object: str
    where: str
    message: str

    @property
    def text(self) -> str:
        return f"{self.where}: {self.object}: {self.message}"


class Report(msgspec.Struct, rename="camel"):
    """What came of it. The shape is fixed for scripts; keys may be added."""

    seed: int
    until: float
    pods: list[dict[str, Any]]
    evictions: list[Eviction]
    events: list[Happening]
    invariants: Invariants
    refused: list[str]
    digest: str
    refused_objects: list[Refusal]


def simulate(scenario: Scenario, recorder: Recorder | None = None) -> Report:
    """Run it to its end; with a ``recorder``, everything that changes is written down."""
    simulation = Simulation(scenario, recorder=recorder)
    simulation.run(scenario.until)
    return simulation.report()


class Validated:
    """A scheduler that is asked after each ``act`` whether its parts agree, while the cluster is small enough for that."""

    def __init__(self, scheduler: Scheduler, tell: Callable[[list[str]], None]) -> None:
        self._scheduler, self._tell = scheduler, tell
        self.name, self.kinds = scheduler.name, scheduler.kinds
        self.observe, self.wake = scheduler.observe, scheduler.wake

    def act(self, now: float) -> list[Write]:
        writes = self._scheduler.act(now)
        if len(self._scheduler.nodes) + len(self._scheduler.queue) <= VALIDATED_MAX:
            wrong = self._scheduler.validate()
            if wrong:
                self._tell(wrong)
        return writes


class Simulation:
    """A scenario while it runs: ``run`` goes on to a time, ``world`` is what the API server has then. The invariants are checked
    every ``check_every`` seconds in which something changed; where it is not said, as often as a long scenario allows."""

    def __init__(
        self,
        scenario: Scenario,
        meter: Meter | None = None,
        check_every: float | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._scenario, self._meter = scenario, meter
        self.gates = scenario.gates
        self._interval = check_every or max(scenario.until / CHECKS_MAX, 1.0)
        self.clock = Clock(scenario.start)
        self._core = InProcess(self.clock, seed=scenario.seed, gates=scenario.gates)
        self._virtual = Virtual(self._core, self.clock, seed=scenario.seed, faults=scenario.faults)
        self._virtual.listeners.append(self._written)
        if recorder is not None:
            recorder.begin(scenario.seed, scenario.until, self._virtual.epoch, scenario.gates)
            self._core.tell(lambda table, key, value: recorder.written(self._virtual.elapsed, table, key, value))
        self._bound: dict[str, float] = {}
        self._evictions: list[Eviction] = []
        self._refused: list[Refusal] = []
        self._hand = Hand(self._core)
        self._taken = Taken(action.body for action in scenario.actions if action.kind is not None)
        self._violated: dict[Finding, float] = {}
        self._checked = 0
        self._changed = True
        self._begin()

    def _begin(self) -> None:
        scenario, virtual = self._scenario, self._virtual
        for action in scenario.actions:
            if action.at == 0 and action.verb != "crash":
                self._do(action)
            elif action.at <= scenario.until:
                virtual.at(action.at, lambda action=action: self._do(action))  # type: ignore[misc]
        self._start_hosts()
        for number in range(1, int(scenario.until / self._interval) + 1):
            virtual.at(number * self._interval, self._check)

    def run(self, until: float) -> None:
        """Until this much time has passed since the start; the invariants are checked then too."""
        self._virtual.run(until)
        self._changed = True
        self._check()

    @property
    def elapsed(self) -> float:
        return self._virtual.elapsed

    def listen(self, listener: Callable[[Written], None]) -> None:
        """It is told of every write of a decider, and what came of it."""
        self._virtual.listeners.append(listener)

    def follow(self, listener: Callable[[str, str, bytes | None], None]) -> None:
        """It is told of everything that the API server has or writes: table, key and what is there; None where that is gone."""
        self._core.tell(listener)

    # -------------------------------------------------------------------------------------------------------- hosts

    def _start_hosts(self) -> None:
        self._virtual.start("scheduler", SCHEDULER_KINDS, self._scheduler)
        self._virtual.start("controllers", kinds(tuple(SETS), CATALOG.owned), self._controllers)
        machines = Machines((), heartbeat=self._scenario.heartbeat, seed=self._scenario.seed)
        self._virtual.start("nodes", Machines.kinds, machines.deciders)

    def _scheduler(self, world: World) -> Sequence[Decider]:
        shares = random.Random(f"shares {self._scenario.seed} {self.clock.now}")

        def new_share() -> str:
            return str(uuid.UUID(int=shares.getrandbits(128), version=4))

        scheduler = Scheduler(world, self._scenario.config, self._scenario.gates, self._meter, new_share)
        return [Validated(scheduler, self._inconsistent)]

    def _controllers(self, world: World) -> Sequence[Decider]:
        return deciders(tuple(SETS), Setting(world, self._scenario.gates, CATALOG.owned))

    # ------------------------------------------------------------------------------------------------------ actions

    def _do(self, action: Action) -> None:
        if action.verb == "crash":
            self._virtual.crash(action.body["host"], action.body["down"])
            return
        try:
            self._write(action)
        except Refused as error:
            self._refused.append(Refusal(_rounded(action.at), _named(action), action.where, str(error)))
        self._changed = True

    def _write(self, action: Action) -> None:
        kind, body = action.kind, action.body
        assert kind is not None
        namespace, name = place_of(kind, body)
        if action.verb == "drain":
            for key, leaves in self._hand.drain(name):
                if leaves:
                    self._evicted(key.partition("/")[0], key.partition("/")[2], USER)
        elif action.verb == "delete":
            self._hand.delete(kind, namespace, name)
            if kind == PODS:
                self._evicted(namespace, name, USER)
        elif action.verb == "patch":
            self._hand.change(kind, body)
        else:
            self._apply(kind, ready_node(body, self.clock.now) if kind == NODES else body)

    def _apply(self, kind: Kind, body: Plain) -> None:
        if of_a_server(body):
            self._taken.put(self._core, kind, body)
        else:
            self._hand.apply(kind, body)

    # ----------------------------------------------------------------------------------------------------- watching

    def _written(self, written: Written) -> None:
        write = written.write
        if written.error is not None or write.kind == EVENTS:
            return
        self._changed = True
        if write.kind != PODS:
            return
        if write.subresource == "binding":
            self._bound[write.key] = self._virtual.elapsed
        elif write.subresource == "eviction" or (write.verb == "delete" and written.host != "nodes"):
            self._evicted(write.namespace, write.name, written.host)

    def _evicted(self, namespace: str, name: str, by: str) -> None:
        self._evictions.append(Eviction(namespace, name, _rounded(self._virtual.elapsed), by))

    def objects(self, kind: Kind) -> dict[str, Plain]:
        """As the API server has them at this instant."""
        return self._core.all(kind)

    def world(self) -> World:
        """The API server's state at this instant."""
        world = World(KINDS)
        for kind in KINDS:
            raws, _ = self._core.list(kind)
            world.replace(kind, raws)
        return world

    def _check(self) -> None:
        if not self._changed:
            return
        self._changed = False
        self._checked += 1
        for found in verify(self.world()).violations:
            self._violated.setdefault(found, self._virtual.elapsed)

    def _inconsistent(self, wrong: list[str]) -> None:
        for text in wrong:
            self._violated.setdefault(Finding("scheduler", ("scheduler",), text), self._virtual.elapsed)

    # ------------------------------------------------------------------------------------------------------- report

    def report(self) -> Report:
        world = self.world()
        failures = self.failures()
        outlooks = self.outlooks(world, failures)
        pods = [self._pod(world, pod, failures, outlooks) for _, pod in sorted(world.all(PODS).items())]
        return Report(
            self._scenario.seed,
            self._scenario.until,
            pods,
            self._evictions,
            self._events(),
            self.invariants,
            [refused.text for refused in self._refused],
            self.digest,
            self._refused,
        )

    @property
    def invariants(self) -> Invariants:
        violated = [{**msgspec.to_builtins(found), "at": _rounded(at)} for found, at in self._violated.items()]
        return Invariants(self._checked, violated)

    @property
    def digest(self) -> str:
        """Of every write so far: equal for equal runs."""
        return self._virtual.digest

    def _pod(self, world: World, pod: Pod, failures: list[FailedBinding], outlooks: Outlooks) -> dict[str, Any]:
        at = self._bound.get(pod.key)
        waits = not pod.spec.node_name and not pod.terminal
        answer = self.why(world, pod, failures, outlooks) if waits else None
        return {
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "phase": pod.status.phase,
            "node": pod.spec.node_name or None,
            "boundAt": _rounded(at) if at is not None and pod.spec.node_name else None,
            "claims": [_claim(claim) for claim in _claims(world, pod)],
            "numa": _zones(pod),
            "reasons": [as_json(reason) for reason in answer.reasons] if answer is not None else [],
            "summary": answer.summary if answer is not None else "",
        }

    def failures(self) -> list[FailedBinding]:
        return failed_bindings(self.objects(EVENTS).values())

    def outlooks(self, world: World, failures: list[FailedBinding]) -> Outlooks:
        """For asking about many pods at this instant."""
        return Outlooks(world, self.clock.now, self._scenario.config, self._scenario.gates, failures)

    def queues(self) -> QueueTree:
        """What ``dray queues`` says at this instant."""
        return survey(self.world(), self.clock.now, self._scenario.config, self._scenario.gates)

    def why(self, world: World, pod: Pod, failures: list[FailedBinding], outlooks: Outlooks | None) -> Why:
        """What ``dray why`` says of a pod at this instant; ``outlooks``: where many are asked about."""
        config, gates = self._scenario.config, self._scenario.gates
        return why(world, pod, now=self.clock.now, config=config, gates=gates, failures=failures, outlooks=outlooks)

    def _events(self) -> list[Happening]:
        found = [_happening(event, self._virtual.epoch) for event in self.objects(EVENTS).values()]
        return sorted(found, key=lambda event: (event.at, event.object, event.reason, event.message))


def _named(action: Action) -> str:
    assert action.kind is not None
    return "/".join([action.kind.kind.lower(), *filter(None, place_of(action.kind, action.body))])


def _claims(world: World, pod: Pod) -> list[ResourceClaim]:
    found = [world.get(RESOURCE_CLAIMS, key) for key in claims_of(pod)]
    return [claim for claim in found if claim is not None]


def _claim(claim: ResourceClaim) -> dict[str, Any]:
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    devices = []
    for result in results:
        device = {"request": result.request, "driver": result.driver, "pool": result.pool, "device": result.device}
        devices.append({**device, "shareID": result.share_id} if result.share_id else device)
    return {"name": claim.metadata.name, "devices": devices}


def _zones(pod: Pod) -> dict[str, dict[str, str]] | None:
    """Where the pod is, by zone: as observed, else as predicted."""
    annotations = pod.metadata.annotations
    shares = shares_of(annotations.get(OBSERVED) or annotations.get(PREDICTED) or "")
    return {
        share.zone.removeprefix("node-"): {name: str(value) for name, value in share.amount.items()} for share in shares
    } or None


def _happening(event: dict[str, Any], epoch: float) -> Happening:
    about = event.get("regarding") or event.get("involvedObject") or {}
    at = event.get("eventTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    name = "/".join(part for part in (about.get("namespace"), about.get("name")) if part)
    series = event.get("series") or {}
    return Happening(
        _rounded(parse_time(at) - epoch) if at else 0.0,
        f"{str(about.get('kind') or '').lower()}/{name}",
        str(event.get("type") or ""),
        str(event.get("reason") or ""),
        str(event.get("note") or event.get("message") or ""),
        int(series.get("count") or 1),
        _rounded(parse_time(last) - epoch) if (last := series.get("lastObservedTime")) else None,
    )


def _rounded(value: float) -> float:
    return round(value, 6)
