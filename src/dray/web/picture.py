"""The map: every node and every device with its state, made anew only where something changed.

A picture consists of parts, one for each pool and each node. Always true: a part is the same object as in the picture before
when nothing that it shows has changed, so two pictures are compared by identity, and what changed is found without looking into
it. The states and the words are those of ``dray devices``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Final

import msgspec

from dray.api.core import Node
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_CLASSES, DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceClass, DeviceKey, ResourceClaim, ResourceSlice
from dray.cel import CelError, DeviceView, Program, compile
from dray.cluster.world import World
from dray.explain.failures import failed_bindings, resting
from dray.explain.inventory import AWAITS, STATES, Row, SetRow, inventory
from dray.explain.published import Published
from dray.numa.devices import pcie_roots, root_zones, zone_numbers
from dray.scheduling.config import Config
from dray.web.moments import Moment

PoolKey = tuple[str, str]
# What a cell shows beside its state.
ATTACHING: Final = 1
RESTING: Final = 2
_ANSWERS_KEPT: Final = 200_000
_NONE: Final[frozenset[str]] = frozenset()
_DRIVER_ALONE: Final = frozenset({("driver",)})


class Cell(msgspec.Struct, array_like=True, frozen=True):
    """A device. ``state``: position in STATES; ``used``: the part of it that is taken, in percent; ``zone``: -1 where nothing
    says so; ``within``: the counter set that it draws on; ``classes``: positions in the picture's classes; ``mark``: bits."""

    name: str
    state: int
    used: int
    zone: int
    root: str
    within: str
    classes: list[int]
    pods: list[str]
    mark: int


class Bar(msgspec.Struct, array_like=True, frozen=True):
    """A counter of a counter set, in words and in percent."""

    within: str
    counter: str
    used: str
    total: str
    percent: int


class PoolPart(msgspec.Struct, frozen=True):
    """``node``: where its devices are; empty or ``*`` for pools that several nodes reach."""

    driver: str
    pool: str
    node: str
    devices: list[Cell]
    bars: list[Bar]


class NodePart(msgspec.Struct, frozen=True):
    name: str
    ready: bool
    cordoned: bool
    labels: dict[str, str]


class Picture(msgspec.Struct):
    """``states`` and ``classes`` name what the cells give by position. ``waiting``: pods without a node."""

    number: int
    at: float
    states: tuple[str, ...]
    classes: list[str]
    pools: dict[str, PoolPart]
    nodes: dict[str, NodePart]
    waiting: int
    pods: int


class Changed(msgspec.Struct, omit_defaults=True):
    """What to put into a picture with number ``since``; None where something went."""

    since: int
    number: int
    at: float
    waiting: int
    pods: int
    pools: dict[str, PoolPart | None] = {}
    nodes: dict[str, NodePart | None] = {}


def changed(old: Picture, new: Picture) -> Changed | None:
    """None when ``new`` cannot be told as a change of ``old``."""
    if old.classes != new.classes:
        return None
    return Changed(
        old.number, new.number, new.at, new.waiting, new.pods, _different(old.pools, new.pools), _different(old.nodes, new.nodes)
    )


def _different(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: part for key, part in new.items() if old.get(key) is not part}
    found.update((key, None) for key in old if key not in new)
    return found


# --------------------------------------------------------------------------------------------------------------- making


class _Seen(msgspec.Struct):
    """What a part was made of, objects compared by identity, and the part."""

    made_of: list[Any]
    rests: frozenset[str]
    part: PoolPart

    def current(self, made_of: list[Any], rests: frozenset[str]) -> bool:
        return self.rests == rests and _identical(self.made_of, made_of)


class Painter:
    """Makes pictures, one after the other, of moments of one scene."""

    def __init__(self, config: Config | None = None, gates: Gates | None = None) -> None:
        self._gates = gates
        self._rest = (config or Config()).device_rest
        self._pools: dict[PoolKey, _Seen] = {}
        self._nodes: dict[str, tuple[Node, NodePart]] = {}
        self._classes = _Classes()

    def paint(self, moment: Moment) -> Picture:
        world = moment.world
        classes = sorted(world.all(DEVICE_CLASSES).values(), key=lambda found: found.key)
        self._classes.follow(classes)
        rests = {device for device, _ in resting(failed_bindings(moment.events), self._rest, moment.at)}
        pools = {"/".join(part_key): part for part_key, part in self._painted(world, classes, rests)}
        waiting = sum(not pod.spec.node_name and not pod.terminal for pod in world.all(PODS).values())
        names = [found.key for found in classes]
        nodes = {part.name: part for part in self._node_parts(world)}
        return Picture(moment.number, moment.at, STATES, names, pools, nodes, waiting, len(world.all(PODS)))

    def _node_parts(self, world: World) -> Iterator[NodePart]:
        kept = {}
        for name, node in sorted(world.all(NODES).items()):
            known = self._nodes.get(name)
            part = known[1] if known is not None and known[0] is node else _node_part(node)
            if known is not None and known[1] == part:
                part = known[1]  # a heartbeat shows nothing
            kept[name] = (node, part)
            yield part
        self._nodes = kept

    def _painted(self, world: World, classes: Sequence[DeviceClass], rests: set[str]) -> Iterator[tuple[PoolKey, PoolPart]]:
        slices, claims = _by_pool(world)
        rules = list(world.all(DEVICE_TAINT_RULES).values())
        kept = {}
        for key in sorted(slices):
            here = frozenset(name for name in rests if name.startswith(f"{key[0]}/{key[1]}/")) if rests else _NONE
            made_of = [*slices[key], None, *claims.get(key, ()), None, *rules, None, *classes]
            seen = self._pools.get(key)
            if seen is None or not seen.current(made_of, here):
                part = self._part(world, slices[key], claims.get(key, ()), here)
                seen = _Seen(made_of, here, seen.part if seen is not None and seen.part == part else part)
            kept[key] = seen
            yield key, seen.part
        self._pools = kept

    def _part(
        self, world: World, slices: Sequence[ResourceSlice], claims: Iterable[ResourceClaim], rests: frozenset[str]
    ) -> PoolPart:
        published = Published(world, slices, claims, gates=self._gates)
        found = inventory(published)
        devices = [published.devices[DeviceKey(row.driver, row.pool, row.device)].device for row in found.devices]
        roots = root_zones(device.attributes for device in devices)
        cells = [self._cell(row, device, roots, rests) for row, device in zip(found.devices, devices)]
        spec = slices[0].spec
        where = next((row.node for row in found.devices), spec.node_name or "")
        return PoolPart(spec.driver, spec.pool.name, where, cells, [_bar(row) for row in found.counter_sets])

    def _cell(self, row: Row, device: Device, roots: dict[str, frozenset[int]], rests: frozenset[str]) -> Cell:
        zones = zone_numbers(device.attributes, roots)
        mark = ATTACHING if row.detail.startswith(AWAITS) else 0
        mark |= RESTING if f"{row.driver}/{row.pool}/{row.device}" in rests else 0
        return Cell(
            row.device,
            STATES.index(row.state),
            _used(row),
            min(zones) if zones else -1,
            next(iter(pcie_roots(device.attributes)), ""),
            next((entry.counter_set for entry in device.consumes_counters), ""),
            self._classes.of(row.driver, device),
            [pod for user in row.users for pod in user.pods or [f"claim {user.claim}"]],
            mark,
        )


def _identical(old: Sequence[Any], new: Sequence[Any]) -> bool:
    return len(old) == len(new) and all(map(is_, old, new))


def _by_pool(world: World) -> tuple[dict[PoolKey, list[ResourceSlice]], dict[PoolKey, list[ResourceClaim]]]:
    slices: dict[PoolKey, list[ResourceSlice]] = {}
    for slice in world.all(RESOURCE_SLICES).values():
        slices.setdefault((slice.spec.driver, slice.spec.pool.name), []).append(slice)
    claims: dict[PoolKey, list[ResourceClaim]] = {}
    for claim in world.all(RESOURCE_CLAIMS).values():
        if (allocation := claim.status.allocation) is None:
            continue
        results = allocation.devices.results
        if len(results) == 1:  # most are; a set for each of them is half of the work
            claims.setdefault((results[0].driver, results[0].pool), []).append(claim)
            continue
        for key in {(result.driver, result.pool) for result in results}:
            claims.setdefault(key, []).append(claim)
    return slices, claims


def _node_part(node: Node) -> NodePart:
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return NodePart(node.key, ready, node.spec.unschedulable, node.metadata.labels)


def _used(row: Row) -> int:
    """How much of the device is taken: of its capacities, the one that is taken most."""
    if row.state == "allocated":
        return 100
    parts = [_percent(numbers["used"], numbers["total"]) for numbers in row.capacity.values()]
    return max(parts, default=0) if row.users else 0


def _bar(row: SetRow) -> Bar:
    return Bar(row.counter_set, row.counter, row.used, row.total, _percent(row.used, row.total))


def _percent(used: str, total: str) -> int:
    whole = Quantity.parse(total).nanos
    return round(100 * Quantity.parse(used).nanos / whole) if whole else 0


class _Classes:
    """Which classes a device belongs to. An expression is evaluated once for devices that look the same to it."""

    def __init__(self) -> None:
        self._followed: list[DeviceClass] = []
        self._programs: list[list[Program] | None] = []
        self._answers: dict[tuple[int, int, Any], bool] = {}

    def follow(self, classes: Sequence[DeviceClass]) -> None:
        if _identical(classes, self._followed):
            return
        self._followed = list(classes)
        self._programs = [_programs(found) for found in classes]
        self._answers.clear()

    def of(self, driver: str, device: Device) -> list[int]:
        view = DeviceView.of(driver, device)
        return [number for number, programs in enumerate(self._programs) if programs is not None and self._all(number, view)]

    def _all(self, number: int, view: DeviceView) -> bool:
        programs = self._programs[number]
        assert programs is not None
        return all(self._matches(number, place, program, view) for place, program in enumerate(programs))

    def _matches(self, number: int, place: int, program: Program, view: DeviceView) -> bool:
        # Most classes ask for the driver alone; then nothing else of the device needs to be read.
        seen = view.driver if program.reads == _DRIVER_ALONE else view.projection(program.reads)
        key = (number, place, seen)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _ANSWERS_KEPT:
                self._answers.clear()
            try:
                found = program.matches(view)
            except CelError:
                found = False  # a device that a class cannot be asked about is not in it
            self._answers[key] = found
        return found


def _programs(found: DeviceClass) -> list[Program] | None:
    """None for a class whose expressions nobody understands: no device is in it."""
    try:
        return [compile(selector.cel.expression) for selector in found.spec.selectors if selector.cel is not None]
    except CelError:
        return None
