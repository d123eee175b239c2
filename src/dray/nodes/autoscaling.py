"""Devices as nodes are to a cluster autoscaler: a fabric attaches some to a node for pods that wait, and takes back idle ones.

KEP-5007's alternative to waiting for devices while a pod is bound. What a fabric has is in a slice with the label
``fabric.dray.dev/spare``: it says which nodes its devices can be attached to, and each of them has a taint, so that no
scheduler gives it to anybody where it is. What is attached to a node is in a slice of that node, made from it. A pod that waits
and would fit on a node with one device more, or a few, gets them; what nobody used for a while goes back.

Always true: what the fabric has never changes, so a device is attached exactly where a slice of a node has it, and every step is
one write. A device that goes back is tainted first and taken away only when nobody was given it in between. For pods that start
together all is attached that they need, or nothing, and what they are about to use is not taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.resource import Device, DeviceKey, ResourceSlice
from dray.api.times import parse_time
from dray.cluster.port import Change, Event, Outcome, Write
from dray.cluster.recorder import Recorder
from dray.cluster.world import World
from dray.nodes.attaching import (
    DETACHING,
    Attachment,
    ForGang,
    attached_slices,
    attachment,
    body_of,
    for_gang,
    free,
    on_node,
    spare_slices,
)
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS
from dray.scheduling.placing.state import NotPlaced
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.workloads.jobs import Job

# Between a look and the next, and how long a pod waits before it is helped: its scheduler may be about to place it.
LOOK_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 2.0
# How long after an attach what a gang was found to use is kept for it.
KEPT_SECONDS: Final = 60.0

log = logging.getLogger(__name__)
Plain = dict[str, Any]

# ------------------------------------------------------------------------------------------------------------ the decider


class _UnderWay(NamedTuple):
    """What is being attached for these pods, and when it is."""

    pods: set[str]
    what: list[Attachment]
    at: float


class DeviceAutoscaler:
    """Looks every ``LOOK_SECONDS`` while pods wait or devices are attached. ``attach_seconds``: how long the fabric takes;
    ``idle_seconds``: how long a device is kept that nobody uses."""

    name = "device-autoscaler"
    kinds: Sequence[Kind] = SCHEDULER_KINDS

    def __init__(
        self, world: World, *, attach_seconds: float = 3.0, idle_seconds: float = 600.0, gates: Gates | None = None
    ) -> None:
        self._world, self._gates = world, gates or Gates.dray()
        self._attach_seconds, self._idle_seconds = attach_seconds, idle_seconds
        # For whom (the uid of a pod, the name of a gang): what is being attached.
        self._attaching: dict[str, _UnderWay] = {}
        # By gang: the devices that it is about to use, and until when they are kept for it.
        self._kept: dict[str, tuple[set[DeviceKey], float]] = {}
        # By gang: how the cluster was when there was too little for it.
        self._lacking: dict[str, int] = {}
        self._changes = 0
        self._recorder = Recorder(self.name)
        self._idle: dict[tuple[str, str], float] = {}  # slice and device -> since when nobody uses it
        self._writing: set[str] = set()
        self._look_at: float | None = 0.0

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Outcome):
            self._writing.discard(event.write.name)
            return
        self._changes += isinstance(event, Change) and event.kind != EVENTS
        if isinstance(event, Change) and event.kind in (PODS, RESOURCE_SLICES, RESOURCE_CLAIMS):
            self._look_at = min(self._look_at if self._look_at is not None else now + LOOK_SECONDS, now + LOOK_SECONDS)

    def wake(self) -> float | None:
        return self._look_at

    def act(self, now: float) -> list[Write]:
        if self._look_at is None or now < self._look_at:
            return []
        refused = self._refused()
        events = self._choose([pod for pod, since in refused if since + PATIENCE_SECONDS <= now], now)
        writes = [*self._attach(now), *self._detach(now)]
        writes = [write for write in writes if write.name not in self._writing]
        self._writing |= {write.name for write in writes}
        # Who was refused only just is looked at again.
        busy = refused or self._attaching or attached_slices(self._world)
        self._look_at = now + LOOK_SECONDS if busy else None
        return [*writes, *events]

    # ------------------------------------------------------------------------------------------------------ attaching

    def _refused(self) -> list[tuple[Pod, float]]:
        """Pods that a scheduler could not place, and since when, the most important first."""
        pods: Iterable[Pod] = self._world.all(PODS).values()
        waiting = ((pod, _refused_since(pod)) for pod in pods if not pod.spec.node_name and not pod.terminal)
        found = [(pod, since) for pod, since in waiting if since is not None]
        return sorted(found, key=lambda each: (-(each[0].spec.priority or 0), each[0].metadata.creation_timestamp, each[0].key))

    def _choose(self, waiting: Sequence[Pod], now: float) -> list[Write]:
        """What each of them needs attached, if anything would do; one look at the cluster for all. Gangs are decided on while
        nothing else is under way, so that what they were found to need is what they need; who comes after one waits meanwhile.
        Answers the events that tell of gangs for which there is too little."""
        there = {pod.uid for pod in waiting}
        self._attaching = {whom: found for whom, found in self._attaching.items() if found.pods & there}
        self._kept = {whom: kept for whom, kept in self._kept.items() if kept[1] > now}
        self._lacking = {whom: then for whom, then in self._lacking.items() if then == self._changes}
        new = [pod for pod in waiting if not any(pod.uid in found.pods for found in self._attaching.values())]
        if not new or not spare_slices(self._world):
            return []
        world, events = self._world.copied(), list[Write]()
        config = Config(profiles=tuple(Profile(scheduler_name=name) for name in _schedulers(world)))
        ask, decided = Ask(Scheduler(world, config, self._gates), now), set[str]()
        ask.scheduler.workloads.know()
        for pod in new:
            job = ask.scheduler.workloads.jobs.of(pod.uid)
            if job is not None and job.key in decided:
                continue
            gang = self._gang(pod, job, world, config, now) if job is not None and not job.single else None
            if job is not None and gang is not None:
                decided.add(job.key)
                if self._attaching:
                    break
                events += self._decide(job, gang, there, now)
            else:
                self._alone(pod, world, ask, now)
        return events

    def _alone(self, pod: Pod, world: World, ask: Ask, now: float) -> None:
        if any(len(found.pods) > 1 for found in self._attaching.values()):
            return
        try:
            found = attachment(world, ask, ask.state(pod), self._taken())
        except NotPlaced:
            return
        if found is not None and not any(found.node == other.node for each in self._attaching.values() for other in each.what):
            self._attaching[pod.uid] = _UnderWay({pod.uid}, [found], now + self._attach_seconds)

    def _taken(self) -> list[str]:
        return [name for found in self._attaching.values() for each in found.what for name in each.devices]

    def _gang(self, pod: Pod, job: Job, world: World, config: Config, now: float) -> ForGang | None:
        """What has to be attached for a gang. Looked for again only when something changed; without an answer for a pod that is
        to be placed by itself."""
        if self._lacking.get(job.key) == self._changes:
            return ForGang()
        return for_gang(world, pod, config, self._gates, now, self._taken())

    def _decide(self, job: Job, gang: ForGang, there: set[str], now: float) -> list[Write]:
        if not gang.members:
            return []
        if gang.stuck is not None:
            self._lacking[job.key] = self._changes
            return self._tell(gang, gang.stuck, now)
        self._lacking.pop(job.key, None)
        until = now + self._attach_seconds + KEPT_SECONDS
        self._kept[job.key] = gang.used, until
        pods = {pod.uid for pod in gang.members}
        if gang.attachments and pods <= there:
            self._attaching[job.key] = _UnderWay(pods, gang.attachments, now + self._attach_seconds)
        return []

    def _tell(self, gang: ForGang, stuck: Pod, now: float) -> list[Write]:
        why = f"the spare devices are enough for {gang.placed} of its {len(gang.members)} pods"
        note = f"no devices attached for podgroup {gang.group}: {why}, but not for {stuck.key}"
        log.info("not enough spare devices for a gang", extra={"group": gang.group, "placed": gang.placed, "stuck": stuck.key})
        return self._recorder.warning(PODS, stuck, "FabricTooSmall", note, action="Attach", now=now)

    def _attach(self, now: float) -> Iterator[Write]:
        for whom, found in list(self._attaching.items()):
            if found.at > now:
                continue
            del self._attaching[whom]
            attached = attached_slices(self._world)
            spares = [self._world.get(RESOURCE_SLICES, each.spare) for each in found.what]
            if not all(spare is not None and _has(spare, each, attached) for spare, each in zip(spares, found.what)):
                continue  # somebody else was quicker, or the fabric lost them: the pods are looked at again
            for spare, each in zip(spares, found.what):
                known = on_node(spare, each.node, attached)
                own = {device.name: device for device in spare.spec.devices}
                devices = [*(known.spec.devices if known is not None else ()), *(own[name] for name in each.devices)]
                yield _published(body_of(spare, each.node, devices, known), known)

    # ------------------------------------------------------------------------------------------------------ detaching

    def _detach(self, now: float) -> Iterator[Write]:
        used = {
            DeviceKey.of(result)
            for claim in self._world.all(RESOURCE_CLAIMS).values()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        }
        for devices, _ in self._kept.values():
            used |= devices
        seen: set[tuple[str, str]] = set()
        for known in attached_slices(self._world):
            yield from self._of_slice(known, used, seen, now)
        self._idle = {key: since for key, since in self._idle.items() if key in seen}

    def _of_slice(self, known: ResourceSlice, used: set[DeviceKey], seen: set[tuple[str, str]], now: float) -> Iterator[Write]:
        kept: list[Device] = []
        for device in known.spec.devices:
            key = (known.metadata.name, device.name)
            leaving = any(taint.key == DETACHING for taint in device.taints)
            if DeviceKey(known.spec.driver, known.spec.pool.name, device.name) in used:
                self._idle.pop(key, None)
                kept.append(_without_taint(device) if leaving else device)
                continue
            seen.add(key)
            since = self._idle.setdefault(key, now)
            if leaving:
                continue  # it was tainted at an earlier look, and nobody was given it since
            kept.append(_with_taint(device) if now - since >= self._idle_seconds else device)
        if kept != list(known.spec.devices):
            yield _changed(known, kept)


def _schedulers(world: World) -> list[str]:
    return sorted({pod.spec.scheduler_name or "default-scheduler" for pod in world.all(PODS).values()})


def _has(spare: ResourceSlice, wanted: Attachment, attached: Sequence[ResourceSlice]) -> bool:
    return set(wanted.devices) <= {device.name for device in free(spare, attached, set())}


def _refused_since(pod: Pod) -> float | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            since = condition.last_transition_time
            return parse_time(since) if since else 0.0
    return None


def _published(body: Plain, known: ResourceSlice | None) -> Write:
    name = body["metadata"]["name"]
    if known is None:
        return Write("create", RESOURCE_SLICES, "", name, body)
    version = known.metadata.resource_version
    return Write("patch", RESOURCE_SLICES, "", name, {"spec": body["spec"]}, uid=known.uid, resource_version=version)


def _changed(known: ResourceSlice, devices: Sequence[Device]) -> Write:
    """The slice with these devices, or, without any, no slice."""
    name, version = known.metadata.name, known.metadata.resource_version
    if not devices:
        return Write("delete", RESOURCE_SLICES, "", name, uid=known.uid, resource_version=version)
    pool = {"name": known.spec.pool.name, "generation": known.spec.pool.generation + 1, "resourceSliceCount": 1}
    spec = {"pool": pool, "devices": [msgspec.to_builtins(device) for device in devices]}
    return Write("patch", RESOURCE_SLICES, "", name, {"spec": spec}, uid=known.uid, resource_version=version)


def _with_taint(device: Device) -> Device:
    plain = msgspec.to_builtins(device)
    return msgspec.convert(
        {**plain, "taints": [*(plain.get("taints") or ()), {"key": DETACHING, "effect": "NoSchedule"}]}, Device
    )


def _without_taint(device: Device) -> Device:
    return msgspec.structs.replace(device, taints=tuple(taint for taint in device.taints if taint.key != DETACHING))
