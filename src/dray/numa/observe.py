"""From what a kubelet says its containers have (podresources) to the records of where each pod is.

What names one zone counts there: CPUs by the machine's map from CPU to zone, devices and memory by their own topology. Memory
that names several zones was drawn from them together and is recorded as a group; a device that names several, or none, belongs
to no zone and is left out, as is a CPU that the machine does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dray.numa.demand import CPU, MEMORY
from dray.numa.layout import spelt
from dray.numa.placement import GROUPS_OBSERVED, OBSERVED, GroupShare, ZoneShare
from dray.numa.podresources import ContainerResources, PodResources, TopologyInfo


class Observed(msgspec.Struct):
    """By zone number the amounts there; by set of zone numbers the memory drawn from them together."""

    zones: dict[int, dict[str, int]] = {}
    groups: dict[tuple[int, ...], dict[str, int]] = {}


def observe(pod: PodResources, cpu_zones: Mapping[int, int]) -> Observed:
    """What a pod has, over all of its containers. ``cpu_zones``: CPU -> zone number."""
    found = Observed()
    for container in pod.containers:
        _add_container(found, container, cpu_zones)
    return found


def as_annotations(found: Observed, names: Mapping[int, str] | None = None) -> dict[str, str | None]:
    """The annotations that say this, None for one that should not be there. ``names``: what the node's topology calls its
    zones, where that is not ``node-<number>``."""

    def named(zone: int) -> str:
        return (names or {}).get(zone, f"node-{zone}")

    shares = sorted((ZoneShare(named(zone), _spelt(amounts)) for zone, amounts in found.zones.items()), key=lambda s: s.zone)
    groups = [GroupShare([named(zone) for zone in zones], _spelt(amounts)) for zones, amounts in sorted(found.groups.items())]
    return {OBSERVED: _text(shares), GROUPS_OBSERVED: _text(groups)}


def _text(shares: list[Any]) -> str | None:
    return msgspec.json.encode(shares).decode() if shares else None


def _spelt(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {name: spelt(name, amounts[name]) for name in sorted(amounts)}


def _add_container(found: Observed, container: ContainerResources, cpu_zones: Mapping[int, int]) -> None:
    for cpu in container.cpu_ids:
        if cpu in cpu_zones:
            _add(found.zones.setdefault(cpu_zones[cpu], {}), CPU, 1000)
    for devices in container.devices:
        zones = _zones(devices.topology)
        if len(zones) == 1 and devices.device_ids:
            _add(found.zones.setdefault(zones[0], {}), devices.resource_name, len(devices.device_ids))
    for memory in container.memory:
        zones, kind = _zones(memory.topology), memory.memory_type or MEMORY
        if len(zones) == 1 and memory.size:
            _add(found.zones.setdefault(zones[0], {}), kind, memory.size)
        elif len(zones) > 1:
            _add(found.groups.setdefault(zones, {}), kind, memory.size)


def _zones(topology: TopologyInfo | None) -> tuple[int, ...]:
    return () if topology is None else tuple(sorted({node.id for node in topology.nodes}))


def _add(amounts: dict[str, int], name: str, amount: int) -> None:
    amounts[name] = amounts.get(name, 0) + amount
