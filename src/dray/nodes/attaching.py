"""What a fabric could attach to nodes that are there, so that pods which wait would fit: by the scheduler's own checks.

Always true: for pods that start together it is worked out as a whole. Their next step is tried as their scheduler would, with one
attachment more each time, until all of them start; where that does not come about, nothing is to be attached for any of them, and
the member is named for which there was nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.core import Node, Pod
from dray.api.gates import Gates
from dray.api.kinds import NODES, PODS, RESOURCE_SLICES
from dray.api.resource import Device, DeviceKey, ResourceSlice
from dray.api.selectors import node_selector_matches
from dray.cluster.world import World
from dray.devices.amounts import DETACHED
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.placing.state import CycleState
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.session import Session

SPARE: Final = "fabric.dray.dev/spare"
FROM: Final = "fabric.dray.dev/attached-from"
# Keeps everybody from a device while it is taken away from a node, as DETACHED does where the fabric has it.
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


class _Held(NamedTuple):
    """A session that was held for nobody, and the gang that is asked about: who of it is to be placed, and whether they are."""

    ask: Ask
    session: Session
    job: Job
    members: list[QueuedPod]

    @property
    def starts(self) -> bool:
        return bool(self.members) and not any(pending.uid in self.job.waiting for pending in self.members)


def for_gang(
    world: World, pod: Pod, config: Config, gates: Gates | None, now: float, taken: Iterable[str] = ()
) -> ForGang | None:
    """What has to be attached for the gang of the pod; None for a pod that is to start by itself. Without members where the gang
    has nothing to place, where something else than room is against it, or where others would have what is attached.
    ``taken``: names of devices that are spoken for."""

    def held(world: World) -> _Held | None:
        ask = Ask(Scheduler(world, msgspec.structs.replace(config, in_flight=2**31), gates), now)
        session = ask.survey()
        job = ask.scheduler.workloads.jobs.of(pod.uid)
        members = session.members.next(job) if job is not None else []
        ask.scheduler.workloads.rehearse(session)
        return _Held(ask, session, job, members) if job is not None else None

    as_it_is = held(world)
    if as_it_is is None or len(as_it_is.members) == 1:
        return None
    own = as_it_is.job.pods
    answer = _search(_without_others(world, own), held, list(taken))
    if answer.stuck is not None or not answer.members:
        return answer
    for each in answer.attachments:
        world = _with(world, each)
    then = held(world)
    if then is None or not then.starts:
        return ForGang()
    answer.used = _given(then.ask.scheduler, answer.members)
    return answer


def _search(world: World, held: Callable[[World], _Held | None], taken: list[str]) -> ForGang:
    """One attachment after the other, each for the first member that has no place yet."""
    found: list[Attachment] = []
    for _ in range(_MOST_STEPS):
        then = held(world)
        if then is None or not then.members:
            return ForGang()
        answer = ForGang([pending.pod for pending in then.members], group=then.job.name)
        if then.starts:
            answer.attachments = _merged(found)
            return answer
        missing = then.session.missing.get(then.job.key)
        if missing is None or missing.refused is None:
            return ForGang()
        with then.ask.scheduler.workloads.stuck(then.session, then.members) as state:
            more = attachment(world, then.ask, state, taken) if state is not None else None
        if state is None or more is None:
            answer.stuck = state.pod if state is not None else answer.members[-1]
            answer.placed = [pod.uid for pod in answer.members].index(answer.stuck.uid)
            return answer
        found.append(more)
        world = _with(world, more)
    return ForGang()


def _without_others(world: World, own: Container[str]) -> World:
    """Without pods that wait as the gang does: they are asked about by themselves."""
    pods = {key: pod for key, pod in world.all(PODS).items() if pod.spec.node_name or pod.uid in own}
    return World.of({**{kind: world.all(kind) for kind in world.kinds}, PODS: pods})


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
        DeviceKey.of(result)
        for each in placed
        if each is not None
        for _, allocation in each.given.values()
        for result in allocation.devices.results
    }
