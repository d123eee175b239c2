"""Which simulated nodes have zones, as their annotation ``dray.dev/numa`` says it in JSON::

    {"topologyManager": {"policy": "restricted", "scope": "pod"},
     "zones": [{"cpus": 32, "memory": "128Gi", "devices": {"nvidia.com/gpu": 4}}, …],
     "publish": {"after": "5s", "jitter": "2s"}, "exporter": {"after": "2s"}}

Hardware descriptions write it for every node (``numa:`` of a Node). Always true: a node has the zones of its annotation from the
moment that its kubelet looks at it; a kubelet that starts again finds who had what, as it does in its state files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from dray.api.core import Node, Pod
from dray.api.durations import seconds
from dray.api.kinds import NODES, PODS
from dray.api.quantity import Quantity, QuantityError
from dray.api.topology import Policy, Scope
from dray.cluster.world import World
from dray.nodes.machine import MEMORY, MachineZone
from dray.nodes.topology import Config, Topology

NUMA: Final = "dray.dev/numa"
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Amount = str | int

log = logging.getLogger(__name__)


class ZonesError(ValueError):
    """What a node's zones are said to be is wrong: says what and where."""


class _Struct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class _Manager(_Struct, frozen=True):
    policy: Policy = "none"
    scope: Scope = "container"
    prefer_closest_numa_nodes: bool = msgspec.field(default=False, name="preferClosestNUMANodes")
    max_allowable_numa_nodes: int = msgspec.field(default=8, name="maxAllowableNUMANodes")


class _Zone(_Struct, frozen=True):
    cpus: Count = 0
    memory: Amount = 0
    hugepages: dict[str, Amount] = {}
    devices: dict[str, Count] = {}
    reserved_cpus: Count = msgspec.field(default=0, name="reservedCPUs")
    reserved_memory: Amount = 0


class _Publishing(_Struct, frozen=True):
    """When what changed shows: in NodeResourceTopology, or in the records of pods."""

    after: str = "1s"
    jitter: str = "0s"


class Zoning(_Struct, frozen=True):
    """The zones of a node and how its kubelet treats them. ``exporter`` None: nobody reports where pods are."""

    zones: tuple[_Zone, ...]
    topology_manager: _Manager = _Manager()
    cpu_manager_policy: Literal["none", "static"] = "static"
    memory_manager_policy: Literal["None", "Static"] = "Static"
    distances: tuple[tuple[int, ...], ...] | None = None
    publish: _Publishing = _Publishing()
    exporter: _Publishing | None = _Publishing()

    def made(self) -> Topology:
        """Raises ZonesError."""
        manager = self.topology_manager
        config = Config(
            manager.policy,
            manager.scope,
            self.cpu_manager_policy,
            self.memory_manager_policy,
            manager.prefer_closest_numa_nodes,
            manager.max_allowable_numa_nodes,
        )
        zones = [_machine(number, zone) for number, zone in enumerate(self.zones)]
        if self.distances is not None and {len(zones)} != {len(self.distances), *map(len, self.distances)}:
            raise ZonesError(f"distances must be {len(zones)} lists of {len(zones)} numbers, one for each zone")
        try:
            return Topology(zones, config, self.distances)
        except ValueError as error:
            raise ZonesError(str(error)) from error

    def amounts(self) -> tuple[dict[str, str], dict[str, str]]:
        """What a node with these zones has in all, and what of it pods can use."""
        capacity: dict[str, int] = {}
        reserved: dict[str, int] = {}
        for zone in self.made().zones:
            for name, amount in ({"cpu": zone.cpus} | zone.memory | zone.devices).items():
                capacity[name] = capacity.get(name, 0) + amount
            for name, amount in ({"cpu": zone.reserved_cpus} | zone.reserved_memory).items():
                reserved[name] = reserved.get(name, 0) + amount
        usable = {name: amount - reserved.get(name, 0) for name, amount in capacity.items()}
        return {k: str(v) for k, v in capacity.items()}, {k: str(v) for k, v in usable.items()}


def _machine(number: int, zone: _Zone) -> MachineZone:
    sizes = {MEMORY: zone.memory, **{f"hugepages-{size}": amount for size, amount in zone.hugepages.items()}}
    memory = {name: _bytes(amount, f"zones[{number}].{name}") for name, amount in sizes.items()}
    memory = {name: size for name, size in memory.items() if size}
    reserved = _bytes(zone.reserved_memory, f"zones[{number}].reservedMemory")
    if zone.reserved_cpus > zone.cpus or reserved > memory.get(MEMORY, 0):
        raise ZonesError(f"zones[{number}]: more is reserved than there is")
    return MachineZone(number, zone.cpus, zone.reserved_cpus, memory, {MEMORY: reserved} if reserved else {}, zone.devices)


def _bytes(amount: Amount, where: str) -> int:
    try:
        found = Quantity.parse(amount).value
    except QuantityError as error:
        raise ZonesError(f"{where}: {error}") from error
    if found < 0:
        raise ZonesError(f"{where}: {amount} is negative")
    return found


def zoning(given: Any) -> Zoning:
    """A description from its JSON, decoded; everything in it is looked at. Raises ZonesError."""
    try:
        found = msgspec.convert(given, Zoning)
    except msgspec.ValidationError as error:
        raise ZonesError(str(error)) from error
    if not found.zones:
        raise ZonesError("zones: at least one is needed")
    for name, times in (("publish", found.publish), ("exporter", found.exporter)):
        for field in ("after", "jitter") if times is not None else ():
            try:
                seconds(getattr(times, field))
            except ValueError as error:
                raise ZonesError(f"{name}.{field}: {error}") from error
    found.made()
    return found


class Disks:
    """What outlives a kubelet: who had what, by the uid of its node. One for each run of a cluster."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, Zoning, Topology]] = {}


class ZonedNodes(Mapping[str, Topology]):
    """The simulated nodes with zones, by name."""

    def __init__(self, world: World, disks: Disks | None = None) -> None:
        self._world, self._disks = world, disks or Disks()
        self._pods = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        # Nodes by uid whose kubelet has looked through its state files.
        self._awake: set[str] = set()
        self._wrong: set[tuple[str, str]] = set()

    def __getitem__(self, name: str) -> Topology:
        found = self._found(name)
        if found is None:
            raise KeyError(name)
        return found[2]

    def __iter__(self) -> Iterator[str]:
        return (name for name in sorted(self._world.all(NODES)) if self._found(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._found(name) is not None

    def zoning(self, name: str) -> Zoning:
        found = self._found(name)
        if found is None:
            raise KeyError(name)
        return found[1]

    def _found(self, name: str) -> tuple[str, Zoning, Topology] | None:
        node: Node | None = self._world.get(NODES, name)
        text = node.metadata.annotations.get(NUMA, "") if node is not None else ""
        if node is None or not text:
            return None
        known = self._disks.kept.get(node.uid)
        if known is None or known[0] != text:
            made = self._made(name, text)
            if made is None:
                return None
            known = self._disks.kept[node.uid] = made
        if node.uid not in self._awake and self._world.is_listed(PODS):
            self._awake.add(node.uid)
            self._sweep(name, known[2])
        return known

    def _made(self, name: str, text: str) -> tuple[str, Zoning, Topology] | None:
        if (name, text) in self._wrong:
            return None
        try:
            described = zoning(msgspec.json.decode(text))
            return text, described, described.made()
        except (ZonesError, msgspec.DecodeError) as error:
            self._wrong.add((name, text))
            told = {"node": name, "annotation": NUMA, "error": str(error)}
            log.warning("cannot read the zones of a node, simulating it without zones", extra=told)
            return None

    def _sweep(self, name: str, topology: Topology) -> None:
        """Pods that went while the kubelet was down have left what they had."""
        pods: Sequence[Pod] = [self._world.get(PODS, key) for key in self._pods[name]]
        here = {pod.uid for pod in pods if not pod.terminal}
        for uid in topology.held() - here:
            topology.release(uid)
