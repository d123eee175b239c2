"""Simulated kubelets: one decider is the kubelet of many nodes.

It registers its nodes and keeps their leases fresh. A pod bound to one of them is taken or rejected (``dray.nodes.admission``);
once taken, its claims are prepared by the drivers (``dray.nodes.preparing``), it starts after a moment, and then runs until an
annotation says otherwise or it is deleted:

- ``dray.dev/starts-after``: how long starting takes (else the kubelet's ``start_seconds``)
- ``dray.dev/finishes-after``: the pod succeeds this long after its start
- ``dray.dev/fails-after``, with ``dray.dev/exit-code`` (1): it fails this long after its start
- ``dray.dev/crashes-after``: its containers exit this long after each start; the restart policy says what follows.
  ``dray.dev/crashes`` is how often (else for ever)
- ``dray.dev/stops-after``: how long it takes to stop when deleted (1s), never longer than its grace period

``dray.dev/kubelet: stopped`` on a Node stops its kubelet, as a lost node's: pods stay as they are and the lease runs out. When
the annotation goes the kubelet starts again.

Always true: a pod never runs with a claim that is not allocated, not reserved for it or not prepared, and never goes before its
claims are unprepared; what a pod does next follows from what the API and the checkpoint show, so a restarted kubelet goes on
where the last one stopped. A Node that somebody deletes stays deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dray.api.consumers import claim_names, claims_of, reserves
from dray.api.core import Node, Pod
from dray.api.digits import whole
from dray.api.durations import seconds
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.times import parse_time
from dray.cluster.metrics import Meter, Silent
from dray.cluster.port import Change, Outcome, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes import containers, podstatus
from dray.nodes.admission import Admission, Rejection, Sums, rejected
from dray.nodes.drivers import Drivers, Health, NotYet, Simulated
from dray.nodes.faults import SIMULATED
from dray.nodes.heartbeats import SECONDS as HEARTBEAT_SECONDS
from dray.nodes.heartbeats import Heartbeats
from dray.nodes.preparing import RETRY_SECONDS, Checkpoint, Entry, Preparing, Refused
from dray.nodes.restarts import Restarts, restarts

STARTS: Final = "dray.dev/starts-after"
FINISHES: Final = "dray.dev/finishes-after"
FAILS: Final = "dray.dev/fails-after"
CRASHES_AFTER: Final = "dray.dev/crashes-after"
CRASHES: Final = "dray.dev/crashes"
EXIT_CODE: Final = "dray.dev/exit-code"
STOPS: Final = "dray.dev/stops-after"
DEVICES: Final = "dray.dev/devices"
CDI_DEVICES: Final = "dray.dev/cdi-devices"

KUBELET: Final = "dray.dev/kubelet"
# A start that is sooner over is not announced: the status that says so would be out of date when it is read.
ANNOUNCED_SECONDS: Final = 1.0
GONE_SECONDS: Final = 60.0
TERMINATED: Final = 143

Status = dict[str, Any]


class Kubelets(Keyed):
    """The decider. Keys are ``node NAME``, ``pod namespace/name`` and ``gone NODE UID`` for a pod that went while its claims were
    prepared. ``manifests`` are the Nodes to be; ``heartbeat`` 0 leaves leases alone."""

    name = "kubelets"
    source = "kubelet"
    kinds: Sequence[Kind] = (NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES)

    def __init__(
        self,
        world: World,
        manifests: Iterable[dict[str, Any]],
        *,
        start_seconds: float = 0.5,
        heartbeat: float = HEARTBEAT_SECONDS,
        drivers: Drivers | None = None,
        admission: Admission | None = None,
        checkpoint: Checkpoint | None = None,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(world)
        self._heartbeats = Heartbeats(manifests, heartbeat)
        self._start_seconds = start_seconds
        self._drivers = drivers or Simulated(world)
        self.admission = admission
        self.meter: Meter = meter or Silent()
        self._preparing = Preparing(self._drivers, checkpoint, self.meter)
        self._pods_by_node = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._pods_by_claim = world.index(PODS, claims_of)
        self._sums: dict[str, Sums] = {}
        self._rejected: dict[str, Rejection] = {}  # by uid of the pod
        self._seen: dict[str, tuple[str, str]] = {}  # pod -> its node and uid
        self._told: dict[str, tuple[int, bool, podstatus.Resources]] = {}  # by uid: restarts, whether it waits, devices
        self._cleared: set[str] = set()  # pods that have ended, and whose claims are unprepared
        self._stopped: set[str] = set()
        self._swept: set[str] = set()
        self._moments: dict[str, tuple[str, str, float]] = {}  # pod -> its uid, what it is doing, when that is done
        self._work.add(f"node {name}" for name in self._heartbeats.manifests)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == NODES:
            name = change.object.metadata.name
            return [f"node {name}", *self._pods_on(name)] if self._simulates(name) else []
        if change.kind == RESOURCE_CLAIMS:
            return [f"pod {key}" for key in self._pods_by_claim[change.object.key]]
        if change.kind == RESOURCE_SLICES:
            return self._affected(change)
        pod = change.object
        assert isinstance(pod, Pod)
        # A pod that was here is let go even if its node is no longer in the API.
        return [f"pod {pod.key}"] if pod.key in self._seen or self._simulates(pod.spec.node_name) else []

    def stir(self, node: str) -> None:
        """Something about the node's drivers changed: look at its pods again."""
        self._work.add([f"node {node}", *self._pods_on(node)])
        self._work.add(f"gone {node} {uid}" for entry in self._preparing.on(node).values() for uid in entry.pods)

    def _pods_on(self, node: str) -> list[str]:
        return [f"pod {key}" for key in self._pods_by_node[node]]

    def _affected(self, change: Change) -> list[str]:
        """Pods whose devices may be in another state of health: those on the slice's node, where it has one."""
        old, new = change.old, change.new
        assert isinstance(old, ResourceSlice | None)
        assert isinstance(new, ResourceSlice | None)
        if old is None or new is None or old.metadata.annotations == new.metadata.annotations:
            return []
        if new.spec.node_name:
            return self._pods_on(new.spec.node_name)
        return [f"pod {key}" for claim in self._pods_by_claim.values() for key in self._pods_by_claim[claim]]

    def _simulates(self, name: str) -> bool:
        """A node that was asked for, or one in the API that says that it is simulated: after a restart, or made by a user."""
        if name in self._heartbeats.manifests:
            return True
        node = self.world.get(NODES, name)
        return node is not None and node.metadata.labels.get(SIMULATED) == "true"

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        kind, _, name = key.partition(" ")
        if kind == "node":
            self._heartbeats.ended(name, outcome, now)

    def decide(self, key: str, now: float) -> list[Write]:
        kind, _, name = key.partition(" ")
        if kind == "node":
            return self._tend(name, now)
        if kind == "gone":
            node, _, uid = name.partition(" ")
            return self._bury(node, uid, now)
        pod: Pod | None = self.world.get(PODS, name)
        if (seen := self._seen.get(name)) is not None and (pod is None or pod.uid != seen[1]):
            self._gone(name, *seen, now)
        if pod is None or not self._simulates(pod.spec.node_name):
            self.forget(key)
            return []
        self._seen[name] = (pod.spec.node_name, pod.uid)
        return [] if self._halted(pod.spec.node_name) else self._run(pod, now)

    # ------------------------------------------------------------------------------------------------------- nodes

    def _tend(self, name: str, now: float) -> list[Write]:
        node: Node | None = self.world.get(NODES, name)
        if self._halted(name):
            self._stopped.add(name)
            return []
        if name in self._stopped:
            self._stopped.discard(name)
            self._preparing.restarted(name)
            for key in self._pods_on(name):
                self.look_at(key, now)
            if node is not None:
                return [self._heartbeats.ready(name, node.uid, now, transition=True)]
        self._sweep(name, now)
        return self._heartbeats.tend(name, node, now, lambda at: self.look_at(f"node {name}", at))

    def _halted(self, name: str) -> bool:
        node: Node | None = self.world.get(NODES, name)
        return node is not None and node.metadata.annotations.get(KUBELET) == "stopped"

    def _sweep(self, name: str, now: float) -> None:
        """Pods that went while no kubelet ran have left their claims prepared."""
        if name in self._swept:
            return
        self._swept.add(name)
        here = {self.world.get(PODS, key).uid for key in self._pods_by_node[name]}
        held = {uid for entry in self._preparing.on(name).values() for uid in entry.pods}
        for uid in sorted(held - here):
            self.look_at(f"gone {name} {uid}", now)

    def _room(self, name: str) -> Sums:
        """What pods on the node hold; at first, those that ran before this kubelet did."""
        found = self._sums.get(name)
        if found is None:
            found = self._sums[name] = Sums()
            node = self.world.get(NODES, name)
            pods = [self.world.get(PODS, key) for key in self._pods_by_node[name]]
            for pod in sorted(pods, key=lambda pod: (pod.status.start_time or "", pod.key)):
                if pod.status.start_time and not pod.terminal:
                    found.take(pod)
                    if self.admission is not None and node is not None:
                        self.admission.restore(node, pod, self._claims(pod)[0])
        return found

    # ---------------------------------------------------------------------------------------------- pods: the start

    def _run(self, pod: Pod, now: float) -> list[Write]:
        if pod.metadata.deletion_timestamp is not None:
            return self._stop(pod, now)
        if pod.terminal:
            self._clear(pod, now)
            return []
        if pod.status.phase == "Running":
            return self._go_on(pod, now)
        return self._start(pod, now)

    def _start(self, pod: Pod, now: float) -> list[Write]:
        claims, missing = self._claims(pod)
        node: Node | None = self.world.get(NODES, pod.spec.node_name)
        if node is None:
            return []
        if (rejection := self._admit(node, pod, claims)) is not None:
            why = rejection.message
            self.say(self._recorder.warning(PODS, pod, rejection.reason, why, action="Admit", now=now))
            return [_status(pod, rejected(rejection))]
        if missing:
            self._moments.pop(pod.key, None)
            return self._hindered(pod, missing, 60.0, now)
        outcome = self._preparing.prepare(pod.spec.node_name, pod, list(claims.values()), now)
        if isinstance(outcome, Refused):
            return self._hindered(pod, f"prepare dynamic resources: {outcome.why}", RETRY_SECONDS, now)
        if isinstance(outcome, NotYet):
            return self._later(pod, outcome.until, now)
        due = self._moment(pod, "start", now + self._annotated(pod, STARTS, self._start_seconds, now))
        if now < due:
            return self._later(pod, due, now)
        if self.admission is not None:
            self.admission.started(pod.spec.node_name, pod)
        self.say(self._recorder.normal(PODS, pod, "Started", "Containers started", action="Starting", now=now))
        return [_status(pod, self._running(pod, now))]

    def _admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        room = self._room(node.metadata.name)
        if pod.uid in room:
            return None
        known = self._rejected.get(pod.uid)
        if known is None and self.admission is not None:
            known = self.admission.admit(node, pod, claims)
        if known is None and (known := room.refusal(node, pod)) is not None and self.admission is not None:
            self.admission.release(node.metadata.name, pod.uid)
        if known is None:
            room.take(pod)
        elif pod.uid not in self._rejected:
            self._rejected[pod.uid] = known
            self.meter.count("kubelet_admission_rejections_total", (known.reason,))
        return known

    def _hindered(self, pod: Pod, why: str, retry: float, now: float) -> list[Write]:
        words = f"Failed to prepare dynamic resources: {why}"
        self.say(self._recorder.warning(PODS, pod, "FailedPrepareDynamicResources", words, action="Prepare", now=now))
        return self._later(pod, now + retry, now)

    def _later(self, pod: Pod, due: float | None, now: float) -> list[Write]:
        if pod.status.start_time is None and (due is None or due - now > ANNOUNCED_SECONDS):
            return [_status(pod, podstatus.starting(pod, now))]
        if due is not None:
            self.look_at(f"pod {pod.key}", due)
        return []

    def _running(self, pod: Pod, now: float) -> Status:
        entries = self.entries(pod)
        resources = self._resources(pod, entries)
        self._told[pod.uid] = (0, False, resources)
        body = podstatus.running(pod, resources, now)
        given = [f"{c.name}={','.join(ids)}" for c in containers.every(pod) if (ids := containers.cdi_ids(pod, c, entries))]
        devices = [
            f"{driver}/{device.pool}/{device.device}" + (f"/{device.share}" if device.share else "")
            for entry in entries.values()
            for driver, state in entry.drivers.items()
            for device in state.devices
        ]
        if devices:
            body["metadata"] = {"annotations": {DEVICES: ", ".join(devices), CDI_DEVICES: ";".join(given)}}
        return body

    # ------------------------------------------------------------------------------------------- pods: while they run

    def _go_on(self, pod: Pod, now: float) -> list[Write]:
        room = self._room(pod.spec.node_name)
        room.take(pod)
        if (change := podstatus.renewed(pod, now)) is not None:
            return [_status(pod, change)]
        if (limit := podstatus.deadline(pod)) is not None:
            if now >= limit:
                return [_status(pod, podstatus.expired(pod, now))]
            self.look_at(f"pod {pod.key}", limit)
        began = _began(pod, now)
        end = self._end(pod, began, now)
        if end is not None and end[0] <= now:
            if not self._unprepared(pod, now):
                return []
            self._release(pod)
            return [_status(pod, podstatus.finished(pod, end[1], now))]
        if end is not None:
            self.look_at(f"pod {pod.key}", end[0])
        self._prepare_again(pod, now)
        self._moments.pop(pod.key, None)
        return self._progress(pod, began, now)

    def _prepare_again(self, pod: Pod, now: float) -> None:
        """A kubelet that starts again asks the drivers again; the pod runs on whatever they say."""
        claims, _ = self._claims(pod)
        outcome = self._preparing.prepare(pod.spec.node_name, pod, list(claims.values()), now) if claims else None
        if isinstance(outcome, NotYet) and outcome.until is not None:
            self.look_at(f"pod {pod.key}", outcome.until)
        elif isinstance(outcome, Refused):
            self.look_at(f"pod {pod.key}", now + RETRY_SECONDS)

    def _end(self, pod: Pod, began: float, now: float) -> tuple[float, int] | None:
        """When the pod ends by itself, and with which exit code."""
        ends: list[tuple[float, int]] = []
        if FINISHES in pod.metadata.annotations:
            ends.append((began + self._annotated(pod, FINISHES, float("inf"), now), 0))
        if FAILS in pod.metadata.annotations:
            ends.append((began + self._annotated(pod, FAILS, float("inf"), now), self._exit_code(pod, now)))
        if CRASHES_AFTER in pod.metadata.annotations and pod.spec.restart_policy == "Never":
            ends.append((began + self._annotated(pod, CRASHES_AFTER, float("inf"), now), self._exit_code(pod, now)))
        return min(ends, default=None)

    def _progress(self, pod: Pod, began: float, now: float) -> list[Write]:
        """What has changed since it was last told: restarts, and how the pod's devices are."""
        state = self._restarts(pod, began, now)
        if state.next is not None:
            self.look_at(f"pod {pod.key}", state.next)
        resources = self._resources(pod, self.entries(pod))
        news = (state.count, state.since is None, resources)
        before = self._told.get(pod.uid)
        if before == news or (before is None and not state.last_end and not resources):
            return []
        self._told[pod.uid] = news
        if state.since is None and (before is None or not before[1]):
            self._tell_back_off(pod, state, now)
        return [_status(pod, podstatus.progress(pod, state, resources, now))]

    def _restarts(self, pod: Pod, began: float, now: float) -> Restarts:
        if CRASHES_AFTER not in pod.metadata.annotations or pod.spec.restart_policy == "Never":
            return Restarts(0, began, None)
        times, code = self._counted(pod, CRASHES, 0, now), self._exit_code(pod, now)
        return restarts(began, self._annotated(pod, CRASHES_AFTER, 1e9, now), code, times, now)

    def _tell_back_off(self, pod: Pod, state: Restarts, now: float) -> None:
        why = f"Back-off restarting failed containers of pod {pod.metadata.name}: exit code {state.exit_code}"
        self.say(self._recorder.warning(PODS, pod, "BackOff", why, action="Restart", now=now))

    def _resources(self, pod: Pod, entries: Mapping[str, Entry]) -> podstatus.Resources:
        node = pod.spec.node_name

        def of(driver: str, pool: str, device: str) -> Health | None:
            return self._drivers.health(node, driver, pool, device)

        told = {container.name: containers.health(container, entries, of) for container in pod.spec.containers}
        return {name: given for name, given in told.items() if given}

    # ------------------------------------------------------------------------------------------------ pods: the end

    def _stop(self, pod: Pod, now: float) -> list[Write]:
        """Deleted: it stops within its grace period, its claims are unprepared, and then it is gone."""
        grace = pod.metadata.deletion_grace_period_seconds or 0
        takes = 0.0 if pod.terminal or pod.status.phase != "Running" else min(self._annotated(pod, STOPS, 1.0, now), grace)
        due = self._moment(pod, "stop", now + takes)
        deadline = parse_time(pod.metadata.deletion_timestamp or "") if grace else now
        if now < min(due, deadline):
            self.look_at(f"pod {pod.key}", min(due, deadline))
            return []
        if not self._unprepared(pod, now):
            return []
        self._release(pod)
        if pod.metadata.finalizers and not pod.terminal:
            # Whoever holds it back wants to see how it ended.
            return [_status(pod, podstatus.finished(pod, TERMINATED, now))]
        return [Write("delete", PODS, pod.metadata.namespace, pod.metadata.name, {"gracePeriodSeconds": 0}, uid=pod.uid)]

    def _clear(self, pod: Pod, now: float) -> None:
        """It has ended, by itself or because somebody said so: nothing of it stays."""
        if self._unprepared(pod, now):
            self._release(pod)

    def _unprepared(self, pod: Pod, now: float) -> bool:
        """Whether the drivers have let go of the pod's claims; if not yet, the pod is looked at again."""
        known = bool(self._preparing.of(pod.spec.node_name, pod.uid))
        if pod.uid in self._cleared or not (known or pod.status.start_time):
            return True
        claims = [] if pod.terminal or pod.uid in self._rejected else list(self._claims(pod)[0].values())
        outcome = self._preparing.unprepare(pod.spec.node_name, pod.uid, claims, now)
        if isinstance(outcome, NotYet) and outcome.until is not None:
            self.look_at(f"pod {pod.key}", outcome.until)
        elif isinstance(outcome, Refused):
            self.look_at(f"pod {pod.key}", now + RETRY_SECONDS)
            why = f"Failed to unprepare dynamic resources: {outcome.why}"
            self.say(self._recorder.warning(PODS, pod, "FailedUnprepareDynamicResources", why, action="Unprepare", now=now))
        if outcome is None:
            self._cleared.add(pod.uid)
        return outcome is None

    def _release(self, pod: Pod) -> None:
        self._let_go(pod.spec.node_name, pod.uid)

    def _let_go(self, node: str, uid: str) -> None:
        if node in self._sums:
            self._sums[node].release(uid)
        if self.admission is not None:
            self.admission.release(node, uid)
        self._told.pop(uid, None)
        self._rejected.pop(uid, None)

    def _gone(self, key: str, node: str, uid: str, now: float) -> None:
        """The pod is no longer in the API, whether this kubelet had a hand in that or not."""
        self._seen.pop(key, None)
        self._let_go(node, uid)
        self._cleared.discard(uid)
        if self._preparing.of(node, uid):
            self.look_at(f"gone {node} {uid}", now)

    def _bury(self, node: str, uid: str, now: float) -> list[Write]:
        if self._halted(node) or any(self.world.get(PODS, key).uid == uid for key in self._pods_by_node[node]):
            return []
        outcome = self._preparing.unprepare(node, uid, (), now)
        if outcome is None:
            self.forget(f"gone {node} {uid}")
        else:
            again = outcome.until if isinstance(outcome, NotYet) else now + GONE_SECONDS
            self.look_at(f"gone {node} {uid}", now + GONE_SECONDS if again is None else again)
        return []

    # ------------------------------------------------------------------------------------------------ what is known

    def pods(self, node: str) -> list[Pod]:
        """The pods that the node has taken and that have not ended."""
        room = self._room(node)
        return [pod for key in self._pods_by_node[node] if (pod := self.world.get(PODS, key)).uid in room]

    def entries(self, pod: Pod) -> dict[str, Entry]:
        """What is prepared for a pod, by the claim's name in the pod."""
        known = self._preparing.on(pod.spec.node_name)
        keyed = ((entry, known.get(f"{pod.metadata.namespace}/{name}")) for entry, name in claim_names(pod))
        return {name: entry for name, entry in keyed if entry is not None and pod.uid in entry.pods}

    def _claims(self, pod: Pod) -> tuple[dict[str, ResourceClaim], str]:
        """The pod's claims by their name in the pod, or what one of them lacks."""
        found: dict[str, ResourceClaim] = {}
        for entry, name in claim_names(pod):
            claim: ResourceClaim | None = self.world.get(RESOURCE_CLAIMS, f"{pod.metadata.namespace}/{name}") if name else None
            if claim is None:
                return {}, f"claim {name or entry} does not exist"
            if claim.status.allocation is None:
                return {}, f"claim {name} is not allocated"
            if not reserves(claim, pod):
                return {}, f"claim {name} is not reserved for the pod"
            found[entry] = claim
        return found, ""

    def _annotated(self, pod: Pod, annotation: str, default: float, now: float) -> float:
        text = pod.metadata.annotations.get(annotation)
        if text is None:
            return default
        try:
            return seconds(text)
        except ValueError as error:
            self._not_read(pod, annotation, str(error), now)
            return default

    def _counted(self, pod: Pod, annotation: str, least: int, now: float) -> int | None:
        text = pod.metadata.annotations.get(annotation)
        if text is None:
            return None
        number = whole(text)
        if number is not None and number >= least:
            return number
        self._not_read(pod, annotation, f"{text!r} is not an integer of at least {least}", now)
        return None

    def _exit_code(self, pod: Pod, now: float) -> int:
        return self._counted(pod, EXIT_CODE, 1, now) or 1

    def _not_read(self, pod: Pod, annotation: str, why: str, now: float) -> None:
        note = f"annotation {annotation}: {why}"
        self.say(self._recorder.warning(PODS, pod, "InvalidAnnotation", note, action="Run", now=now))

    def _moment(self, pod: Pod, what: str, at: float) -> float:
        """When something that began will be done: decided once for each pod."""
        known = self._moments.get(pod.key)
        if known is None or known[:2] != (pod.uid, what):
            known = self._moments[pod.key] = (pod.uid, what, at)
        return known[2]

    def forget(self, key: str) -> None:
        super().forget(key)
        self._moments.pop(key.partition(" ")[2], None)


def _began(pod: Pod, now: float) -> float:
    """When the pod's containers first started."""
    for condition in pod.status.conditions:
        if condition.type == "PodReadyToStartContainers" and condition.status == "True" and condition.last_transition_time:
            return parse_time(condition.last_transition_time)
    return parse_time(pod.status.start_time) if pod.status.start_time else now


def _status(pod: Pod, body: Status) -> Write:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    return Write("patch", PODS, namespace, name, body, subresource="status", patch="strategic", uid=pod.uid)
