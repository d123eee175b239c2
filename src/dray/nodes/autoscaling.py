"""Devices as nodes are to a cluster autoscaler: a fabric attaches some to a node for pods that wait, and takes back idle ones.

KEP-5007's alternative to waiting for devices while a pod is bound. What a fabric has is in a slice with the label
``fabric.dray.dev/spare``: it says which nodes its devices can be attached to, and each of them has a taint, so that no
scheduler gives it to anybody where it is. What is attached to a node is in a slice of that node, made from it. A pod that waits
and would fit on a node with one device more, or a few, gets them; what nobody used for a while goes back.

Always true: what the fabric has never changes, so a device is attached exactly where a slice of a node has it, and every step is
one write. A device that goes back is tainted first and taken away only when nobody was given it in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Node, Pod
from dray.api.gates import Gates
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.resource import Device, ResourceSlice
from dray.api.selectors import node_selector_matches
from dray.api.times import parse_time
from dray.cluster.port import Change, Event, Outcome, Write
from dray.cluster.world import World
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS
from dray.scheduling.placing.state import CycleState, NotPlaced
from dray.scheduling.scheduler import Scheduler

SPARE: Final = "fabric.dray.dev/spare"
FROM: Final = "fabric.dray.dev/attached-from"
# Keeps everybody from a device: where the fabric has it, and while it is taken away from a node.
DETACHED: Final = "fabric.dray.dev/detached"
DETACHING: Final = "fabric.dray.dev/detaching"
_MOST_DEVICES: Final = 8
_MOST_NODES: Final = 100
# Between a look and the next, and how long a pod waits before it is helped: its scheduler may be about to place it.
LOOK_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 2.0

Plain = dict[str, Any]


class Attachment(msgspec.Struct, frozen=True):
    """Devices of what the fabric has (``spare``, the name of its slice) that would make a node do."""

    spare: str
    driver: str
    node: str
    devices: tuple[str, ...]


def spare_slices(world: World) -> list[ResourceSlice]:
    found: Iterable[ResourceSlice] = world.all(RESOURCE_SLICES).values()
    return sorted((each for each in found if each.metadata.labels.get(SPARE) == "true"), key=lambda each: each.metadata.name)


def attached_slices(world: World) -> list[ResourceSlice]:
    found: Iterable[ResourceSlice] = world.all(RESOURCE_SLICES).values()
    return sorted((each for each in found if each.metadata.labels.get(FROM)), key=lambda each: each.metadata.name)


def attachment(world: World, ask: Ask, state: CycleState, taken: Iterable[str] = ()) -> Attachment | None:
    """The fewest devices that would make some node do; ``taken``: names of devices that are spoken for."""
    spares = spare_slices(world) if state.needs_devices else []
    attached = attached_slices(world) if spares else []
    for count in range(1, _MOST_DEVICES + 1):
        for spare in spares:
            for devices in _alike(_free(spare, attached, set(taken)), count):
                for node in _reached(world, spare):
                    if _would_do(ask, state, spare, _on(spare, node, attached), node, devices):
                        return Attachment(spare.metadata.name, spare.spec.driver, node, tuple(each.name for each in devices))
    return None


def _free(spare: ResourceSlice, attached: Sequence[ResourceSlice], taken: set[str]) -> list[Device]:
    """What the fabric has and no node."""
    own = (each for each in attached if each.metadata.labels[FROM] == spare.metadata.name)
    used = {device.name for each in own for device in each.spec.devices} | taken
    return [device for device in spare.spec.devices if device.name not in used]


def _alike(devices: Sequence[Device], count: int) -> Iterator[list[Device]]:
    """So many of each kind of device there is."""
    kinds: dict[bytes, list[Device]] = {}
    for device in devices:
        shape = msgspec.json.encode((device.attributes, device.capacity), order="sorted")
        kinds.setdefault(shape, []).append(device)
    return (found[:count] for found in kinds.values() if len(found) >= count)


def _reached(world: World, spare: ResourceSlice) -> list[str]:
    """The nodes to which its devices can be attached."""
    selector = spare.spec.node_selector
    nodes: list[Node] = [world.all(NODES)[name] for name in sorted(world.all(NODES))]
    fit = [node for node in nodes if spare.spec.all_nodes or (selector is not None and node_selector_matches(selector, node))]
    return [node.metadata.name for node in fit if not node.spec.unschedulable][:_MOST_NODES]


def _would_do(
    ask: Ask, state: CycleState, spare: ResourceSlice, known: ResourceSlice | None, node: str, devices: Sequence[Device]
) -> bool:
    """With these devices beside those that are attached to the node already, if any are (``known``)."""
    engine = ask.scheduler.engine
    tried = msgspec.convert(
        _body(spare, node, [*(known.spec.devices if known is not None else ()), *devices], known), ResourceSlice
    )
    engine.put_slice(tried)
    try:
        return ask.would_do(state, node)
    finally:
        if known is not None:
            engine.put_slice(known)
        else:
            engine.remove_slice(tried.metadata.name)


def _on(spare: ResourceSlice, node: str, attached: Iterable[ResourceSlice]) -> ResourceSlice | None:
    own = (each for each in attached if each.metadata.labels[FROM] == spare.metadata.name)
    return next((each for each in own if each.spec.node_name == node), None)


def _body(spare: ResourceSlice, node: str, devices: Sequence[Device], known: ResourceSlice | None) -> Plain:
    """The slice of what is attached to a node."""
    generation = known.spec.pool.generation + 1 if known is not None else 1
    pool = {"name": f"{spare.spec.pool.name}.{node}", "generation": generation, "resourceSliceCount": 1}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": f"{spare.metadata.name}-{node}", "labels": {FROM: spare.metadata.name}},
        "spec": {"driver": spare.spec.driver, "nodeName": node, "pool": pool, "devices": [_usable(each) for each in devices]},
    }


def _usable(device: Device) -> Plain:
    made: Plain = msgspec.to_builtins(device)
    taints = [taint for taint in made.get("taints") or () if taint["key"] != DETACHED]
    return {**{key: value for key, value in made.items() if key != "taints"}, **({"taints": taints} if taints else {})}


# ------------------------------------------------------------------------------------------------------------ the decider


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
        self._attaching: dict[str, tuple[Attachment, float]] = {}  # uid of the pod -> what is being attached, until when
        self._idle: dict[tuple[str, str], float] = {}  # slice and device -> since when nobody uses it
        self._writing: set[str] = set()
        self._look_at: float | None = 0.0

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Outcome):
            self._writing.discard(event.write.name)
        elif isinstance(event, Change) and event.kind in (PODS, RESOURCE_SLICES, RESOURCE_CLAIMS):
            self._look_at = min(self._look_at if self._look_at is not None else now + LOOK_SECONDS, now + LOOK_SECONDS)

    def wake(self) -> float | None:
        return self._look_at

    def act(self, now: float) -> list[Write]:
        if self._look_at is None or now < self._look_at:
            return []
        waiting = self._waiting(now)
        self._choose(waiting, now)
        writes = [*self._attach(now), *self._detach(now)]
        writes = [write for write in writes if write.name not in self._writing]
        self._writing |= {write.name for write in writes}
        busy = waiting or self._attaching or attached_slices(self._world)
        self._look_at = now + LOOK_SECONDS if busy else None
        return writes

    # ------------------------------------------------------------------------------------------------------ attaching

    def _waiting(self, now: float) -> list[Pod]:
        """Pods that a scheduler could not place for a while, the most important first."""
        pods: Iterable[Pod] = self._world.all(PODS).values()
        found = [pod for pod in pods if not pod.spec.node_name and not pod.terminal and _refused_since(pod, now)]
        return sorted(found, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.key))

    def _choose(self, waiting: Sequence[Pod], now: float) -> None:
        """What each of them needs attached, if anything would do; one look at the cluster for all."""
        there = {pod.uid for pod in waiting}
        self._attaching = {uid: found for uid, found in self._attaching.items() if uid in there}
        new = [pod for pod in waiting if pod.uid not in self._attaching]
        if not new or not spare_slices(self._world):
            return
        world = self._world.copied()
        names = sorted({pod.spec.scheduler_name or "default-scheduler" for pod in new})
        config = Config(profiles=tuple(Profile(scheduler_name=name) for name in names))
        ask = Ask(Scheduler(world, config, self._gates), now)
        for pod in new:
            taken = [name for found, _ in self._attaching.values() for name in found.devices]
            try:
                found = attachment(world, ask, ask.state(pod), taken)
            except NotPlaced:
                continue
            if found is not None and not any(other.node == found.node for other, _ in self._attaching.values()):
                self._attaching[pod.uid] = (found, now + self._attach_seconds)

    def _attach(self, now: float) -> Iterator[Write]:
        for uid, (found, at) in list(self._attaching.items()):
            if at > now:
                continue
            del self._attaching[uid]
            spare: ResourceSlice | None = self._world.get(RESOURCE_SLICES, found.spare)
            attached = attached_slices(self._world)
            free = {device.name: device for device in _free(spare, attached, set())} if spare is not None else {}
            if spare is None or not set(found.devices) <= set(free):
                continue  # somebody else was quicker, or the fabric lost them: the pod is looked at again
            known = _on(spare, found.node, attached)
            devices = [*(known.spec.devices if known is not None else ()), *(free[name] for name in found.devices)]
            yield _published(_body(spare, found.node, devices, known), known)

    # ------------------------------------------------------------------------------------------------------ detaching

    def _detach(self, now: float) -> Iterator[Write]:
        used = {
            (result.driver, result.pool, result.device)
            for claim in self._world.all(RESOURCE_CLAIMS).values()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        }
        seen: set[tuple[str, str]] = set()
        for known in attached_slices(self._world):
            yield from self._of_slice(known, used, seen, now)
        self._idle = {key: since for key, since in self._idle.items() if key in seen}

    def _of_slice(
        self, known: ResourceSlice, used: set[tuple[str, str, str]], seen: set[tuple[str, str]], now: float
    ) -> Iterator[Write]:
        kept: list[Device] = []
        for device in known.spec.devices:
            key = (known.metadata.name, device.name)
            leaving = any(taint.key == DETACHING for taint in device.taints)
            if (known.spec.driver, known.spec.pool.name, device.name) in used:
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


def _refused_since(pod: Pod, now: float) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            since = condition.last_transition_time
            return not since or parse_time(since) + PATIENCE_SECONDS <= now
    return False


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
