"""The scheduler: a decider that gives every pod a node, and its claims devices.

Always true: what was decided counts at once (nodes, ports, devices), so the next decision sees it while the writes of the
last are still under way. Nothing is remembered that the API does not show, except caches and decisions being written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.api.core import LabelSelector, PersistentVolume, PersistentVolumeClaim, Pod
from dray.api.gates import Gates
from dray.api.kinds import (
    CSI_NODES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Kind,
)
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.api.selectors import selects
from dray.books.changes import EVERYTHING
from dray.books.demand import Demands
from dray.books.nodes import Nodes
from dray.cluster.metrics import Meter, Silent
from dray.cluster.port import Change, ClusterError, Conflict, Event, Outcome, Write
from dray.cluster.world import World
from dray.devices import DeviceKey, Devices
from dray.scheduling.actions.nominator import Nominator
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.actions.room import Room
from dray.scheduling.binding.binder import Binder, Binding
from dray.scheduling.binding.conditions import Device
from dray.scheduling.binding.claims import ClaimWriter
from dray.scheduling.config import Config, Profile
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.plan import Facts
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import NotPlaced, Placement
from dray.scheduling.plugins.images import ImageNodes
from dray.scheduling.plugins.neighbours import Neighbours
from dray.scheduling.plugins.owners import OWNER_KINDS, Owners
from dray.scheduling.plugins.volumes import Volumes
from dray.scheduling.shape.claims import claim_keys, claim_topic, runs_with
from dray.scheduling.shape.extended import ClassNames, DeviceBacked, Special, is_special
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting import events as topics
from dray.scheduling.waiting.hints import (
    changed_since,
    claim_matters,
    pod_matters,
    same_node,
    unbound_claim_keys,
    with_conditions,
)
from dray.scheduling.waiting.queue import Group, Queue, QueuedPod

KINDS: Final[tuple[Kind, ...]] = (
    NODES,
    PODS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    POD_DISRUPTION_BUDGETS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    *OWNER_KINDS,
)
# Decisions in one call of ``act``: the shell starts writing them while the next ones are made.
_PER_ACT: Final = 256


class Scheduler:
    name = "scheduler"
    kinds = KINDS

    def __init__(
        self,
        world: World,
        config: Config | None = None,
        gates: Gates | None = None,
        engine: Devices | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.world = world
        self.config = config or Config()
        self.gates = gates or Gates.dray()
        self.meter: Meter = meter or Silent()
        self.engine: Devices = engine if engine is not None else Devices(self.gates, budget=self.config.search_budget)
        self.nodes = Nodes()
        self.demands = Demands()
        self.classes = ClassNames()
        self.queue = Queue(self.config.initial_backoff, self.config.max_backoff)
        self._profiles = self.config.by_name
        conditions_on = self.gates("DRADeviceBindingConditions")
        self.desk = ClaimWriter(world, conditions_on, self._reserved, self._lost, self._release, self._names_us)
        self.binder = Binder(world, self.desk, self, self.meter, waits=conditions_on)
        self.neighbours = Neighbours(self.nodes, self._namespaces_like, Owners(world))
        self.volumes = Volumes(world, self.nodes)
        self.images = ImageNodes(self.nodes)
        backed = DeviceBacked(self.gates("DRAExtendedResource"), self.classes, self.engine)
        facts = Facts(backed.offers, backed.on_node, self.images.shared_by, self.volumes.check, self.nodes.state_of)
        self.cycle = Cycle(
            world,
            self.nodes,
            self.queue,
            self.engine,
            self.classes,
            facts,
            self.neighbours,
            self.volumes,
            self.desk,
            self.gates("DRAExtendedResource"),
            conditions_on,
            self.gates("DRADeviceTaints"),
            self.meter,
        )
        self.reports = Reports(self.queue)
        nominations = Nominator(self.nodes, self.engine, self.cycle.freed)
        self.preemption = Preemption(world, self.nodes, self.cycle, self.engine, self.desk, self.binder, nominations)
        parts = (self.queue, self.nodes, self.cycle, self.binder, nominations, self.preemption, self.reports, self.meter)
        self.room = Room(self, *parts)
        self._woken: dict[str, None] = {}
        self._resting: dict[DeviceKey, float] = {}
        self._sweep_at: float | None = None
        self._pods_by_claim = world.index(PODS, unbound_claim_keys)
        self._handlers: dict[Kind, Callable[[Change, float], None]] = {
            PODS: self._pod,
            NODES: self._node,
            RESOURCE_CLAIMS: self._claim,
            RESOURCE_SLICES: self._slice,
            DEVICE_CLASSES: self._class,
            DEVICE_TAINT_RULES: self._rule,
            PERSISTENT_VOLUMES: self._volume,
            PERSISTENT_VOLUME_CLAIMS: self._volume,
            STORAGE_CLASSES: self._volume,
            CSI_NODES: self._volume,
            NAMESPACES: self._namespace,
        }
        for kind in self._handlers:
            if kind in world.kinds:
                for found in list(world.all(kind).values()):
                    self._handlers[kind](Change(kind, None, found), 0.0)

    # ------------------------------------------------------------------------------------------------------- the decider

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Outcome):
            self._outcome(event, now)
            return
        handler = self._handlers.get(event.kind)
        if handler is not None:
            handler(event, now)

    def act(self, now: float) -> list[Write]:
        self._end_rests(now)
        self._wake_waiting(now)
        self.reports.tell_late(now)
        self._sweep(now)
        self.binder.due(now)
        self._decide(now)
        writes = [*self.desk.writes(now), *self.room.writes()]
        # After the desk: a claim that turned out to be settled lets its pods go on at once.
        writes.extend(self.binder.writes())
        self.reports.add(self.binder.events())
        writes.extend(self.reports.writes())
        self._gauges()
        return writes

    def wake(self) -> float | None:
        if self.queue.count("active") and self.binder.in_flight < self.config.in_flight:
            return 0.0
        times = [part.next_due() for part in (self.queue, self.binder, self.desk, self.reports)]
        times.extend(self._resting.values())
        if self.queue.count("waiting"):
            times.append(self._sweep_at)
        return min((at for at in times if at is not None), default=None)

    def _gauges(self) -> None:
        for queue, pods in self.queue.sizes().items():
            self.meter.gauge("scheduler_pending_pods", pods, (queue,))

    # -------------------------------------------------------------------------------------------------------- decisions

    def _decide(self, now: float) -> None:
        for _ in range(_PER_ACT):
            if self.binder.in_flight >= self.config.in_flight:
                return
            pending = self.queue.pop(now)
            if pending is None:
                return
            profile = self._profiles[pending.demand.scheduler_name]
            started = self.meter.seconds()
            try:
                placement = self._find(pending, profile, now)
            except NotPlaced as refused:
                if not self.room.make(pending, refused, profile, now):
                    self._refuse(pending, refused, profile, now)
                result = "unschedulable"
            else:
                self._place(pending, placement, profile, now)
                result = "scheduled"
            took = self.meter.seconds() - started
            self.meter.observe("scheduler_scheduling_attempt_duration_seconds", took, (result, profile.scheduler_name))

    def _find(self, pending: QueuedPod, profile: Profile, now: float) -> Placement:
        """A node for the pod, timed; raises ``NotPlaced``."""
        started, status = self.meter.seconds(), "Unschedulable"
        try:
            placement = self.room.decide(pending, profile, now)
            status = "Success"
            return placement
        finally:
            name = "scheduler_framework_extension_point_duration_seconds"
            self.meter.observe(name, self.meter.seconds() - started, ("Filter", status, profile.scheduler_name))

    def _place(self, pending: QueuedPod, placement: Placement, profile: Profile, now: float) -> None:
        pod = pending.pod
        self.nodes.place(pod, pending.demand, placement.node, assumed=True)
        self._woken[topics.PODS] = None
        if pending.nominated:
            self.room.placed(pending, placement)
        self.queue.placed(pending, now)
        self.meter.count("scheduler_schedule_attempts_total", ("scheduled", profile.scheduler_name))
        if pending.swept:
            self.meter.count("dray_missed_wakeups_total")
        for claim, result in zip(placement.open, placement.results):
            self.engine.hold(claim, result)
            self.desk.allocate(claim, result, pod, now)
        for claim in placement.pinned:
            self.desk.reserve(claim, pod)
        binding = Binding(pending, placement.node, profile, now)
        binding.told = placement.told
        if placement.special is not None:
            self.engine.hold(placement.special.claim, placement.special.allocation)
            binding.special = placement.special
        if pending.demand.volumes:
            binding.volumes = self.volumes.unbound(pending.demand)
        self.binder.start(binding, placement.open, placement.pinned, now, placement.leftover)

    def _refuse(self, pending: QueuedPod, refused: NotPlaced, profile: Profile, now: float) -> None:
        pod, refusal = pending.pod, refused.refusal
        own = frozenset(claim_topic(key) for key in claim_keys(pod)) if pod.spec.resource_claims else frozenset()
        group = self.queue.refuse(pending, refused.key, refusal, refused.topics | own | self.room.hopes(refused), now)
        if refused.wish is not None:
            group.stamp = changed_since(refused.wish.view)
        if not refused.shared:
            self.meter.count("scheduler_schedule_attempts_total", ("unschedulable", profile.scheduler_name))
        if refused.free_claims:
            self._free_one(refused.free_claims[0], pod)
            for device in refused.failed:
                self.rest(device, now)
        if "ClaimDeleting" in refusal.codes:
            # It goes when all have let it go, also a pod for which it was reserved before a restart.
            for key in claim_keys(pod):
                self.desk.unreserve(key, pod.uid)
        self.reports.refused(pending, refusal, now)

    def _free_one(self, claim: ResourceClaim, pod: Pod) -> None:
        """One claim per attempt is given back, so that it can be allocated where the pod fits."""
        if claim.metadata.controller is not None and claim.metadata.controller.uid == pod.uid and is_special(claim):
            self.desk.delete(claim, pod.key)
        else:
            self.desk.deallocate(claim)

    def _release(self, uid: str) -> None:
        self.engine.release(uid)
        self.desk.contested.discard(uid)
        self._devices_freed(EVERYTHING)

    # ------------------------------------------------------------------------- what binding and making room ask of us

    def woken(self, *found: str) -> None:
        self._woken.update(dict.fromkeys(found))

    def _reserved(self, uid: str, key: str, now: float) -> None:
        self.binder.reserved(uid, key, now)

    def _lost(self, uid: str, key: str, error: ClusterError | None, now: float) -> None:
        self.binder.lost(uid, key, error, now)

    def undo(self, pending: QueuedPod, reason: Reason | None, now: float, node: str = "") -> None:
        """The decision for a pod does not hold: it is decided on once more, and until then its room on ``node`` is kept."""
        pod = pending.pod
        self._leave_node(pod.uid)
        current: Pod | None = self.world.get(PODS, pod.key)
        if current is None or current.uid != pod.uid or current.spec.node_name or not self._is_ours(current):
            return
        pending.pod = current
        if node:
            self.room.keep(pending, node)
        if reason is not None:
            refusal = Refusal(((reason, 0),))
            pending.refusal, pending.reported = refusal, None
            profile = self._profiles[pending.demand.scheduler_name]
            self.reports.tell(pending, refusal, now, clear_nominated=not node)
            self.meter.count("scheduler_schedule_attempts_total", ("error", profile.scheduler_name))
        if reason is None or reason.code == "ClaimLost":
            self.queue.push(pending, now)
        else:
            self.queue.fail(pending, now)

    def bound(self, pending: QueuedPod, node: str, now: float) -> None:
        self.meter.observe("scheduler_pod_scheduling_attempts", pending.attempts)
        attempts = str(pending.attempts) if pending.attempts < 15 else "15+"
        self.meter.observe("scheduler_pod_scheduling_sli_duration_seconds", now - pending.seen, (attempts,))

    def rest(self, device: Device, now: float) -> None:
        """A device that could not be bound is left alone for a while."""
        key = DeviceKey(device.driver, device.pool, device.name)
        self.engine.rest(key)
        self._resting[key] = now + self.config.device_rest

    def _end_rests(self, now: float) -> None:
        for key in [key for key, until in self._resting.items() if until <= now]:
            del self._resting[key]
            self.engine.wake(key)
            self._devices_freed(EVERYTHING)

    def adopt(self, special: Special, claim: ResourceClaim) -> None:
        """The special claim has its real identity now; what it holds stays held."""
        if special.claim.uid != claim.uid:
            self.engine.release(special.claim.uid)
            self.engine.hold(claim, special.allocation)
            if special.claim.uid in self.desk.contested:
                self.desk.contested.remove(special.claim.uid)
                self.desk.contested.add(claim.uid)
            special.claim = claim

    def abandon(self, special: Special) -> None:
        self._release(special.claim.uid)

    def volume_for(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolume | None:
        info = self.nodes.get(node)
        return self.volumes.match(claim, info.node) if info is not None else None

    def runs_with(self, claim: ResourceClaim) -> bool:
        return runs_with(claim, self.nodes)

    # ---------------------------------------------------------------------------------------------------------- outcomes

    def _outcome(self, outcome: Outcome, now: float) -> None:
        write = outcome.write
        if isinstance(outcome.error, Conflict):
            self.meter.count("dray_write_conflicts_total", (write.kind.resource,))
        if self.reports.ended(outcome, now):
            return
        if write.kind is PODS and write.verb == "delete":
            self.room.ended(outcome, now)
        elif write.kind is RESOURCE_CLAIMS and write.name:
            self.desk.observe(outcome, now)
        else:
            self.binder.observe(outcome, now)

    # -------------------------------------------------------------------------------------------------------------- pods

    def _names_us(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self._profiles

    def _is_ours(self, pod: Pod) -> bool:
        return self._names_us(pod) and not pod.terminal and pod.metadata.deletion_timestamp is None

    def _pod(self, change: Change, now: float) -> None:
        new, old = change.new, change.old
        if new is None or new.terminal:  # type: ignore[attr-defined]
            self._pod_gone(change.object.uid)
        elif new.spec.node_name:  # type: ignore[attr-defined]
            self._pod_placed(new, now)  # type: ignore[arg-type]
        elif self._is_ours(new):  # type: ignore[arg-type]
            self._pod_pending(old, new, now)  # type: ignore[arg-type]
        else:
            self._pod_gone(new.uid)

    def _pod_gone(self, uid: str) -> None:
        pending = self.queue.forget(uid)
        if pending is not None and pending.pod.spec.resource_claims:
            self._give_back_claims(pending.pod)
        self.binder.pod_gone(uid)
        self.room.forget(uid)
        self._leave_node(uid)
        self.preemption.gone(uid)

    def _give_back_claims(self, pod: Pod) -> None:
        """A claim that was allocated for a pod that never started, and that no other pod names, is free again."""
        for key in claim_keys(pod):
            claim: ResourceClaim | None = self.world.get(RESOURCE_CLAIMS, key)
            unused = claim is not None and claim.status.allocation is not None and not claim.status.reserved_for
            if claim is not None and unused and not self._pods_by_claim[key]:
                self.desk.deallocate(claim)

    def _leave_node(self, uid: str) -> None:
        placed = self.nodes.placed(uid)
        if placed is not None:
            self.room.left(placed, self.nodes.displace(uid))
            self._woken[topics.FREE] = None
            self._woken[topics.PODS] = None
            if placed.pod.spec.resource_claims:
                self._woken[topics.DEVICES] = None

    def _pod_placed(self, pod: Pod, now: float) -> None:
        placed = self.nodes.placed(pod.uid)
        demand = (
            placed.demand if placed is not None and placed.pod.spec.containers == pod.spec.containers else self.demands.of(pod)
        )
        self.queue.forget(pod.uid)
        self.room.bound(pod.uid, now)
        self.room.forget(pod.uid)
        binding = self.binder.get(pod.uid)
        if binding is not None and binding.node == pod.spec.node_name and binding.stage == "binding":
            self.binder.confirm(binding, now)
        elif binding is not None:
            self.binder.bound_by_others(binding)
        if placed is not None and (placed.demand is not demand or self.nodes.where(pod.uid) != pod.spec.node_name):
            # It was resized, or is elsewhere than it was to be: there may be room now where it was.
            self._woken[topics.FREE] = None
        self.nodes.place(pod, demand, pod.spec.node_name)
        self._woken[topics.PODS] = None

    def _namespaces_like(self, selector: LabelSelector) -> list[str]:
        found = self.world.all(NAMESPACES).values() if NAMESPACES in self.world.kinds else ()
        return [namespace.metadata.name for namespace in found if selects(selector, namespace.metadata.labels)]

    def _pod_pending(self, old: Pod | None, new: Pod, now: float) -> None:
        binding = self.binder.get(new.uid)
        if binding is not None:
            binding.pending.pod = new
            return
        pending = self.queue.get(new.uid)
        if pending is None and self.nodes.placed(new.uid) is not None:
            # Bound a moment ago: the watch is behind the answer to our write.
            return
        if pending is None:
            self.queue.push(QueuedPod(new, self.demands.of(new), now), now)
            return
        changed = old is None or pod_matters(old, new)
        pending.pod = new
        self.room.seen(old, pending, now)
        if changed:
            pending.demand = self.demands.of(new)
            pending.blocked_until = 0.0
            self.queue.push(pending, now)

    # ------------------------------------------------------------------------------------------------- nodes and devices

    def _node(self, change: Change, now: float) -> None:
        old, new = change.old, change.new
        self.images.changed(old, new)
        if new is None:
            self.nodes.remove(change.object.metadata.name)
            self.room.node_gone(change.object.metadata.name, now)
            self.binder.node_gone(change.object.metadata.name, now)
            self.neighbours.relabelled()
            self.engine.remove_node(change.object.metadata.name)
            self._woken[topics.PODS] = None
            return
        if old is not None and same_node(old, new):
            # A heartbeat.
            return
        self.nodes.put(new)  # type: ignore[arg-type]
        if old is None or old.metadata.labels != new.metadata.labels:
            self.neighbours.relabelled()
        self.engine.put_node(new)  # type: ignore[arg-type]
        self.cycle.freed.note(new.metadata.name)
        self.room.opened(new.metadata.name)
        self._woken[topics.NODE] = None
        self._woken[topics.FREE] = None
        self._woken[topics.PODS] = None

    def _devices_freed(self, node: str) -> None:
        self.cycle.freed.note(node)
        self.room.opened(node)
        self._woken[topics.DEVICES] = None

    def _claim(self, change: Change, now: float) -> None:
        old: ResourceClaim | None = change.old  # type: ignore[assignment]
        new: ResourceClaim | None = change.new  # type: ignore[assignment]
        key = change.object.key
        before = old.status.allocation if old is not None else None
        after = new.status.allocation if new is not None else None
        if new is None:
            self.engine.remove_claim(change.object.uid)
            self.cycle.forget_claim(change.object.uid)
            self.desk.gone(change.object.uid)
        elif before != after:
            # Also from one allocation to another: the watch does not show every state.
            if after is not None and not self.engine.ledger.held(new.uid):
                self.desk.contested.update(self.engine.rivals(after))
            self.engine.put_claim(new)
        if before is not None and before != after:
            for result in before.devices.results:
                self._pool_changed(result.driver, result.pool)
        self.preemption.claim_changed(old)
        self.desk.touched(key)
        self.binder.claim_changed(key, now)
        if claim_matters(old, new):
            self._woken[claim_topic(key)] = None

    def _pool_changed(self, driver: str, pool: str) -> None:
        """Devices of the pool may do now that did not before, on every node that has some."""
        nodes = self.engine.inventory.reach((driver, pool))
        for name in sorted(nodes) if nodes is not None else (EVERYTHING,):
            self._devices_freed(name)

    def _slice(self, change: Change, now: float) -> None:
        new: Any = change.new
        old: Any = change.old
        if new is None:
            self.engine.remove_slice(change.object.metadata.name)
        else:
            self.engine.put_slice(new)
        self.cycle.scorer.binding_conditions += with_conditions(new) - with_conditions(old)
        for found in (old, new):
            if found is not None:
                self._devices_freed(found.spec.node_name or EVERYTHING)
                self._pool_changed(found.spec.driver, found.spec.pool.name)

    def _class(self, change: Change, now: float) -> None:
        new: Any = change.new
        if new is None:
            self.engine.remove_class(change.object.metadata.name)
            self.classes.remove(change.object.metadata.name)
        else:
            self.engine.put_class(new)
            self.classes.put(new)
        self.cycle.forget_candidates()
        self._woken[topics.CLASSES] = None
        self._devices_freed(EVERYTHING)

    def _volume(self, change: Change, now: float) -> None:
        self.binder.volume_changed(change.object.key, now)
        self._woken[topics.VOLUMES] = None
        if change.kind is CSI_NODES:  # how many volumes a node attaches
            self._woken[topics.FREE] = None

    def _namespace(self, change: Change, now: float) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.neighbours.namespaces_changed()
            self._woken[topics.PODS] = None

    def _rule(self, change: Change, now: float) -> None:
        new: Any = change.new
        if new is None:
            self.engine.remove_rule(change.object.metadata.name)
        else:
            self.engine.put_rule(new)
        self._devices_freed(EVERYTHING)

    # ----------------------------------------------------------------------------------------------------------- waking

    def _wake_waiting(self, now: float) -> None:
        woken, self._woken = self._woken, {}
        opening = self.room.openings()
        for topic in woken:
            for group in self.queue.under(topic):
                if topic == topics.PODS and group.stamp is not None and not group.stamp():
                    continue
                if topic not in (topics.NODE, topics.FREE, topics.DEVICES) or self._may_do_now(group) or opening(group):
                    self.queue.wake(group, now)

    def _may_do_now(self, group: Group) -> bool:
        """Whether any node will do now as far as nodes and freed devices go. Without its candidates at hand: perhaps."""
        candidates = self.cycle.kept(group.key)
        if candidates is None:
            return True
        candidates.catch_up()
        return candidates.best() is not None

    def _forget_unused(self) -> None:
        """Shapes of pods and claims that nobody has any more."""
        used = {placed.demand for info in self.nodes for placed in info.pods.values()}
        used.update(pending.demand for pending in self.queue)
        self.demands.keep(used)
        self.cycle.forget_shapes({demand.id for demand in used})

    def _sweep(self, now: float) -> None:
        """Pods that waited for long are tried again; one that can be placed shows that a wake-up was missed."""
        if self._sweep_at is None:
            self._sweep_at = now + self.config.sweep_interval
        if now < self._sweep_at:
            return
        self._sweep_at = now + self.config.sweep_interval
        self._forget_unused()
        for group in self.queue.groups():
            if now - group.since >= self.config.sweep_interval:
                leader = self.queue.wake(group, now)
                if leader is not None:
                    leader.swept = True
                    group.since = now
