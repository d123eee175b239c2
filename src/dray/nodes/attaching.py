"""What a fabric could attach to nodes that are there, so that pods which wait would fit: by the scheduler's own checks.

Always true: for pods that start together it is worked out as a whole. Their next step is tried as their scheduler would, with one
attachment more each time, until all of them start; where that does not come about, nothing is to be attached for any of them, and
the member is named for which there was nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Node, Pod
from dray.api.gates import Gates
from dray.api.kinds import NODES, RESOURCE_SLICES
from dray.api.resource import Device, ResourceSlice
from dray.api.selectors import node_selector_matches
from dray.cluster.world import World
from dray.devices.ledger import DeviceKey
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.placing.state import CycleState
from dray.scheduling.scheduler import Scheduler

SPARE: Final = "fabric.dray.dev/spare"
FROM: Final = "fabric.dray.dev/attached-from"
# Keeps everybody from a device: where the fabric has it, and while it is taken away from a node.
DETACHED: Final = "fabric.dray.dev/detached"
DETACHING: Final = "fabric.dray.dev/detaching"
_MOST_DEVICES: Final = 8
_MOST_NODES: Final = 100
# Attachments that are tried one after the other for pods that start together.
_MOST_STEPS: Final = 64

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
            for devices in _alike(free(spare, attached, set(taken)), count):
                for node in _reached(world, spare):
                    if _would_do(ask, state, spare, on_node(spare, node, attached), node, devices):
                        return Attachment(spare.metadata.name, spare.spec.driver, node, tuple(each.name for each in devices))
    return None


def free(spare: ResourceSlice, attached: Sequence[ResourceSlice], taken: set[str]) -> list[Device]:
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
        body_of(spare, node, [*(known.spec.devices if known is not None else ()), *devices], known), ResourceSlice
    )
    engine.put_slice(tried)
    try:
        return ask.would_do(state, node)
    finally:
        if known is not None:
            engine.put_slice(known)
        else:
            engine.remove_slice(tried.metadata.name)


def on_node(spare: ResourceSlice, node: str, attached: Iterable[ResourceSlice]) -> ResourceSlice | None:
    own = (each for each in attached if each.metadata.labels[FROM] == spare.metadata.name)
    return next((each for each in own if each.spec.node_name == node), None)


def body_of(spare: ResourceSlice, node: str, devices: Sequence[Device], known: ResourceSlice | None) -> Plain:
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


# ------------------------------------------------------------------------------------------------------ pods that start together


class ForGang(msgspec.Struct):
    """``attachments`` make all ``members`` start (none, where they would start as it is); ``used``: the devices that they have
    then. Or ``stuck``: the member for which nothing could be attached when ``placed`` of the others had their places."""

    members: list[Pod] = []
    attachments: list[Attachment] = []
    used: set[DeviceKey] = set()
    stuck: Pod | None = None
    placed: int = 0
    group: str = ""


def for_gang(
    world: World, pod: Pod, config: Config, gates: Gates | None, now: float, taken: Iterable[str] = ()
) -> ForGang | None:
    """What has to be attached for the gang of the pod; None for a pod that is to start by itself. Without members where the gang
    has nothing to place, or something else than room against it. ``taken``: names of devices that are spoken for."""
    config, taken = msgspec.structs.replace(config, in_flight=2**31), list(taken)
    found: list[Attachment] = []
    for _ in range(_MOST_STEPS):
        scheduler = Scheduler(world, config, gates)
        ask = Ask(scheduler, now)
        session = ask.survey()
        job = scheduler.workloads.jobs.of(pod.uid)
        members = session.members.next(job) if job is not None else []
        if job is None or len(members) == 1:
            return None
        scheduler.workloads.rehearse(session)
        answer = ForGang([pending.pod for pending in members], group=job.name)
        if members and not any(pending.uid in job.waiting for pending in members):
            answer.attachments, answer.used = _merged(found), _given(scheduler, answer.members)
            return answer
        missing = session.missing.get(job.key)
        if not members or missing is None or missing.refused is None:
            return ForGang()
        with scheduler.workloads.stuck(session, members) as state:
            more = attachment(world, ask, state, taken) if state is not None else None
        if state is None or more is None:
            answer.stuck = state.pod if state is not None else answer.members[-1]
            answer.placed = answer.members.index(answer.stuck)
            return answer
        found.append(more)
        world = _with(world, more)
    return ForGang()


def _with(world: World, more: Attachment) -> World:
    """The world as it is when this is attached."""
    slices = world.all(RESOURCE_SLICES)
    spare: ResourceSlice = slices[more.spare]
    known = on_node(spare, more.node, attached_slices(world))
    devices = [device for device in spare.spec.devices if device.name in more.devices]
    made = body_of(spare, more.node, [*(known.spec.devices if known is not None else ()), *devices], known)
    name = made["metadata"]["name"]
    objects = {kind: world.all(kind) for kind in world.kinds}
    return World.of({**objects, RESOURCE_SLICES: {**slices, name: msgspec.convert(made, ResourceSlice)}})


def _merged(found: Iterable[Attachment]) -> list[Attachment]:
    """One for each spare slice and node: one write."""
    devices: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        devices.setdefault((each.spare, each.driver, each.node), []).extend(each.devices)
    return [Attachment(spare, driver, node, tuple(names)) for (spare, driver, node), names in devices.items()]


def _given(scheduler: Scheduler, members: Iterable[Pod]) -> set[DeviceKey]:
    placed = (scheduler.nodes.placed(pod.uid) for pod in members)
    return {
        DeviceKey(result.driver, result.pool, result.device)
        for each in placed
        if each is not None
        for _, allocation in each.given.values()
        for result in allocation.devices.results
    }
