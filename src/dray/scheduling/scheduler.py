"""The scheduler: a decider that gives every pod a node, and its claims devices.

Always true: what was decided counts at once in the books, so the next decision sees it while the writes of the last are still
under way. Nothing is remembered that the API does not show, except caches and decisions being written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dray.api.core import LabelSelector, Pod
from dray.api.gates import Gates
from dray.api.kinds import NAMESPACES, PODS, RESOURCE_CLAIMS
from dray.api.selectors import selects
from dray.cluster.metrics import Meter, Silent
from dray.cluster.port import ClusterError, Conflict, Event, Outcome, Write
from dray.cluster.world import World
from dray.scheduling.actions.preemptor import Preemptor
from dray.scheduling.binding.bindings import Binding, Ended
from dray.scheduling.binding.gang import Gang
from dray.scheduling.binding.writing import write_failed
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS
from dray.scheduling.observing import Observer
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.needs import Needs
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import NotPlaced, Placement
from dray.scheduling.plugins.devices import DynamicResources
from dray.scheduling.plugins.images import ImageNodes
from dray.scheduling.plugins.neighbours import Neighbours
from dray.scheduling.plugins.owners import Owners
from dray.scheduling.plugins.registry import plugins
from dray.scheduling.plugins.volumes import Volumes
from dray.scheduling.plugins.zone_devices import DevicesInZones
from dray.scheduling.plugins.zones import Zones
from dray.scheduling.shape.claims import claim_keys, claim_topic
from dray.scheduling.telling.reports import Reports
from dray.scheduling.validation import violations
from dray.scheduling.waiting import events
from dray.scheduling.waiting.hints import changed_since
from dray.scheduling.waiting.queue import Group, QueuedPod
from dray.scheduling.workloads.part import Workloads
from dray.scheduling.workloads.together import Seat

# Decisions in one call of ``act``: the shell starts writing them while the next ones are made. While little is being written
# these are fewer, so that the first binding waits for few decisions: what is under way doubles with each call.
_PER_ACT: Final = 256
_AT_FIRST: Final = 32
# How long people may be told of a refusal what was so when it was made, although nodes or devices changed since.
_STALE: Final = 30.0
# A server that failed to bind a pod so often in a row does not do it in a moment.
_FAILED_OFTEN: Final = 3
# Events that may make something free for pods, as far as nodes and devices go.
_OPENING: Final = frozenset((events.NODE, events.FREE, events.DEVICES))


class Scheduler:
    name = "scheduler"
    kinds = KINDS

    def __init__(
        self,
        world: World,
        config: Config | None = None,
        gates: Gates | None = None,
        meter: Meter | None = None,
        new_share: Callable[[], str] | None = None,
    ) -> None:
        """``new_share`` gives ids to shares of devices, where they are to be the same every time."""
        self.world = world
        self.config = config or Config()
        self.gates = gates or Gates.dray()
        self.meter: Meter = meter or Silent()
        parts = self.parts = Parts(world, self.config, self.gates, self.meter, new_share)
        self.engine, self.nodes, self.demands, self.queue = parts.engine, parts.nodes, parts.demands, parts.queue
        self.claims, self.binder = parts.claims, parts.binder
        self._outbox = parts.binder.outbox
        self._profiles = self.config.by_name
        neighbours = Neighbours(parts.nodes, self._namespaces_like, Owners(world))
        volumes = Volumes(world, parts.nodes, parts.volumes)
        images = ImageNodes(parts.nodes)
        devices = DynamicResources(parts)
        self.zones = Zones(parts)
        self.claims.has_node = self.nodes.settled
        self.binder.overtakes = self.zones.overtakes
        self.binder.arrival = self.zones.late.arrival
        self.zones.on_its_way = self.binder.on_its_way
        devices.limits = DevicesInZones(self.zones, parts.engine).limits
        needs = Needs(parts, neighbours, volumes, devices)
        self.cycle = Cycle(parts, needs, plugins(parts, volumes, images, devices, self.zones), volumes, devices)
        self.reports = Reports(parts.queue)
        self.preemptor = Preemptor(parts, self.cycle, self.reports)
        self._observer = Observer(parts, self.cycle, self.preemptor, self.reports, neighbours, images, self.zones)
        self._sweep_at = 0.0
        self.workloads = Workloads(
            parts, self.cycle, self.preemptor, self.reports, self._profiles, self._take_together, self.config.queues
        )
        self._observer.everything()

    # ------------------------------------------------------------------------------------------------------- the decider

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Outcome):
            self._outcome(event, now)
        else:
            self.workloads.observe(event)
            self._observer.observe(event, now)
            if self.workloads.listening and event.kind is PODS:
                self.workloads.counted(event)
        if self.claims.news or self._outbox.ended:
            self._settle(now)

    def act(self, now: float) -> list[Write]:
        self.parts.rests.end(now)
        self.queue.end_pauses(now)
        if self.engine.advance(now):
            self.parts.wakeups.devices()
        self.zones.due(now)
        self.claims.end_doubts(now)
        self._wake_waiting(now)
        self.reports.tell_late(now)
        self._sweep(now)
        self.binder.due(now)
        self._settle(now)
        self._decide(now)
        self.workloads.run(now)
        self.binder.due(now)
        writes = self.claims.writes(now)
        # A claim that turned out to be settled lets its pods go on at once.
        self._settle(now)
        writes += [*self.claims.writes(now), *self.preemptor.writes(), *self.workloads.writes(), *self._outbox.writes()]
        self.reports.add(self._outbox.events())
        writes.extend(self.reports.writes(now))
        self._gauges()
        return writes

    def wake(self) -> float | None:
        if self.queue.count("active") and self.binder.in_flight < self.config.in_flight:
            return 0.0
        parts = (self.queue, self.binder.bindings, self.claims, self.reports, self.parts.rests, self.zones)
        times = [part.next_due() for part in parts]
        if self.workloads.may_start_more():
            times.append(self.workloads.next_due())
        if self.queue.count("waiting"):
            times.append(self._sweep_at)
        return min((at for at in times if at is not None), default=None)

    def validate(self) -> list[str]:
        """Every invariant between the parts that does not hold, in words; what simulations ask after each ``act``."""
        return violations(self.parts, self.preemptor.nominator, self.workloads)

    def _gauges(self) -> None:
        for queue, pods in self.queue.sizes().items():
            self.meter.gauge("scheduler_pending_pods", pods, (queue,))

    # -------------------------------------------------------------------------------------------------------- decisions

    def _decide(self, now: float) -> None:
        most = min(self.config.in_flight, max(_AT_FIRST, 2 * self.binder.in_flight))
        for _ in range(_PER_ACT):
            if self.binder.in_flight >= most:
                return
            pending = self.queue.pop(now)
            while pending is not None and self.workloads.collect(pending, now):
                pending = self.queue.pop(now)
            if pending is None:
                return
            profile = self._profiles[pending.demand.scheduler_name]
            started = self.meter.seconds()
            try:
                placement = self.preemptor.decide(pending, profile, now)
            except NotPlaced as refused:
                self._looked(started, "Unschedulable", profile)
                if pending.failed_until > now:
                    self.queue.look_later(pending, now)
                elif not self.preemptor.make(pending, refused, profile, now):
                    self._refuse(pending, refused, profile, now)
                result = "unschedulable"
            else:
                self._looked(started, "Success", profile)
                self._place(pending, placement, profile, now)
                result = "scheduled"
            took = self.meter.seconds() - started
            self.meter.observe("scheduler_scheduling_attempt_duration_seconds", took, (result, profile.scheduler_name))

    def _looked(self, started: float, status: str, profile: Profile) -> None:
        name = "scheduler_framework_extension_point_duration_seconds"
        self.meter.observe(name, self.meter.seconds() - started, ("Filter", status, profile.scheduler_name))

    def _place(
        self, pending: QueuedPod, placement: Placement, profile: Profile, now: float, gang: Gang[Binding] | None = None
    ) -> None:
        # What was decided on just before it may have made room: that would have woken it in a moment.
        if pending.swept and not (pending.group and self.parts.wakeups.happened(pending.group.topics)):
            self.meter.count("dray_missed_wakeups_total")
        self.queue.placed(pending, now)
        self.meter.count("scheduler_schedule_attempts_total", ("scheduled", profile.scheduler_name))
        if pending.nominated or placement.rested:
            # What it was promised and what it takes are one change: others hear only of what is left.
            with self.parts.books.trial() as trial:
                self.preemptor.placed(pending)
                self.parts.rests.taken(placement.rested)
                self._take(pending, placement, profile, now, gang)
                trial.keep()
        else:
            self._take(pending, placement, profile, now, gang)

    def _take_together(self, seats: Sequence[Seat], now: float) -> None:
        """Members of a gang have their places, all at once; they are bound when all of them can be."""
        gang: Gang[Binding] | None = Gang() if len(seats) > 1 else None
        decided: set[str] = set()
        for pending, placement in seats:
            profile = self._profiles[pending.demand.scheduler_name]
            if any(claim.uid in decided for claim in (*placement.open, *placement.pinned)):
                self._share(pending, placement, profile, now)
            decided.update(claim.uid for claim in placement.open)
            self._place(pending, placement, profile, now, gang)

    def _share(self, pending: QueuedPod, placement: Placement, profile: Profile, now: float) -> None:
        """What the pod shares with other members is theirs by now; what it has by itself is what was found for all at once:
        another choice might take what a member that comes after it has."""
        own = {claim.uid: result for claim, result in zip(placement.open, placement.results)}
        resolved = self.cycle.state(pending, profile, now).resolved
        placement.open, placement.pinned, placement.allocations = resolved.open, resolved.pinned, resolved.allocations
        placement.results = [own[claim.uid] for claim in resolved.open]

    def _take(self, pending: QueuedPod, placement: Placement, profile: Profile, now: float, gang: Gang[Binding] | None) -> None:
        self.nodes.place(placement.placed(pending.pod, pending.demand, "decided"))
        for account, entry in placement.postings:
            self.parts.books.post(account, pending.uid, entry)
        self.binder.start(pending, placement, profile, now, gang)

    def _refuse(self, pending: QueuedPod, refused: NotPlaced, profile: Profile, now: float) -> None:
        pod, refusal = pending.pod, self.preemptor.without_room(refused)
        own = frozenset(claim_topic(key) for key in claim_keys(pod)) if pod.spec.resource_claims else frozenset()
        awaited = refused.topics | own | self.preemptor.events_for(refused)
        known = self.queue.group(refused.key)
        before = known.refusal if known is not None else None
        group = self.queue.refuse(pending, refused.key, refusal, awaited, now)
        if before is not None and not refusal.says_the_same(before.told_to(refusal.claims)):
            self.reports.tell_others(group)
        if refused.state is not None:
            group.stamp = changed_since(refused.state.view)
        candidates = self.cycle.kept(refused.key)
        group.told = candidates.told if candidates is not None else None
        if not refused.shared:
            self.meter.count("scheduler_schedule_attempts_total", ("unschedulable", profile.scheduler_name))
        if refused.free_claims:
            # One per attempt, so that it can be allocated where the pod fits.
            self.claims.give_back(refused.free_claims[0], pod)
            for device in refused.failed:
                self.parts.rests.rest(device, now)
        if "ClaimDeleting" in refusal.codes:
            # It goes when all have let it go, also a pod for which it was reserved before a restart.
            for key in claim_keys(pod):
                self.claims.unreserve(key, pod.uid)
        self.reports.refused(pending, refusal, now)

    # ------------------------------------------------------------------------------------------------- what came of them

    def _settle(self, now: float) -> None:
        """What became of claims moves bindings on; bindings that ended give their pods back."""
        while self.claims.news or self._outbox.ended:
            self.binder.settled(self.claims.take_news(), now)
            for each in self._outbox.take_ended():
                if each.bound:
                    self._bound(each, now)
                else:
                    self._undo(each, now)

    def _bound(self, ended: Ended, now: float) -> None:
        pending = ended.pending
        self.meter.observe("scheduler_pod_scheduling_attempts", pending.attempts)
        attempts = str(pending.attempts) if pending.attempts < 15 else "15+"
        self.meter.observe("scheduler_pod_scheduling_sli_duration_seconds", now - pending.seen, (attempts,))

    def _undo(self, ended: Ended, now: float) -> None:
        """The decision for a pod does not hold: it is decided on once more, and until then its room may be kept."""
        pending, reason, node = ended.pending, ended.reason, ended.node
        self.nodes.displace(pending.uid)
        current: Pod | None = self.world.get(PODS, pending.pod.key)
        if current is None or current.uid != pending.uid or not self._observer.is_ours(current):
            return
        pending.pod = current
        if node:
            self.preemptor.keep(pending, node)
        if reason is not None:
            refusal = Refusal(((reason, 0),))
            pending.refusal = refusal
            profile = self._profiles[pending.demand.scheduler_name]
            if node:
                self.reports.failed(pending, refusal, now)
            else:
                pending.reported = None
                self.reports.tell(pending, refusal, now)
            self.meter.count("scheduler_schedule_attempts_total", ("error", profile.scheduler_name))
        if reason is None or reason.code == "ClaimLost":
            self.queue.push(pending, now)
        elif reason.code in ("BindingFailed", "BindingTimeout"):
            self.queue.fail_devices(pending, now)
        else:
            self.queue.fail(pending, now)

    def _outcome(self, outcome: Outcome, now: float) -> None:
        write = outcome.write
        if isinstance(outcome.error, Conflict):
            self.meter.count("dray_write_conflicts_total", (write.kind.resource,))
        if self.reports.ended(outcome, now):
            return
        if write.kind is PODS and write.verb == "delete":
            self.preemptor.ended(outcome, now)
        elif write.kind is RESOURCE_CLAIMS and write.name:
            self.claims.ended(outcome, now)
        else:
            self.binder.observe(outcome, now)
            if write.subresource == "binding" and outcome.error is not None:
                self._tell_of_bind(write.uid, outcome.error, now)

    def _tell_of_bind(self, uid: str, error: ClusterError, now: float) -> None:
        """The server fails again and again to bind a pod, which keeps its place: people see why it does not start."""
        binding = self.binder.bindings.get(uid)
        if binding is not None and binding.failures >= _FAILED_OFTEN and (reason := write_failed(error)) is not None:
            self.reports.tell(binding.pending, Refusal(((reason, 0),)), now, only_as_seen=True)

    # ----------------------------------------------------------------------------------------------------------- waking

    def _namespaces_like(self, selector: LabelSelector) -> list[str]:
        found = self.world.all(NAMESPACES).values() if NAMESPACES in self.world.kinds else ()
        return [namespace.metadata.name for namespace in found if selects(selector, namespace.metadata.labels)]

    def _wake_waiting(self, now: float) -> None:
        happened, openings = self.parts.wakeups.take()
        self.workloads.happened(happened, now)
        opens_to = self.preemptor.opens_to(openings)
        if not _OPENING.isdisjoint(happened):
            self.queue.stir()
        for event in happened:
            rested = event == events.DEVICES and self.parts.rests.opened_by(openings.nodes)
            for group in self.queue.under(event):
                if event == events.PODS and group.stamp is not None and not group.stamp():
                    continue
                if event not in _OPENING or rested or self._may_do_now(group) or opens_to(group):
                    self.queue.wake(group, now)
                else:
                    group.stale = True
                    self._sweep_at = min(self._sweep_at, now + _STALE)

    def _may_do_now(self, group: Group) -> bool:
        """Whether any node will do now as far as nodes and freed devices go, or is refused for something else than before:
        then other events can change that. Without its candidates at hand: perhaps."""
        candidates = self.cycle.kept(group.key)
        if candidates is None:
            return True
        candidates.catch_up()
        return candidates.best() is not None or candidates.told != group.told

    def _sweep(self, now: float) -> None:
        """Pods that waited for long are tried again; one that can be placed shows that a wake-up was missed. Those sooner
        that may be told something else now, though they still fit nowhere."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + self.config.sweep_interval
        self._forget_unused()
        for group in self.queue.groups():
            due = group.since + (_STALE if group.stale else self.config.sweep_interval)
            if due > now:
                self._sweep_at = min(self._sweep_at, due)
                continue
            leader = self.queue.wake(group, now)
            if leader is not None:
                leader.swept = True
                group.since = now

    def _forget_unused(self) -> None:
        """Shapes of pods and claims that nobody has any more."""
        used = {placed.demand for placed in self.nodes.all_placed()}
        used.update(pending.demand for pending in self.queue)
        self.demands.keep(used)
        self.cycle.needs.forget({demand.id for demand in used})
        self.zones.forget({demand.id for demand in used})
