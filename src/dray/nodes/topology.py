"""The Topology Manager of a simulated kubelet: it admits a pod into zones, or refuses it, as a real one would.

``admit`` really gives out CPUs, memory and devices, zone by zone; ``remove`` takes them back; ``podresources`` says who has
what, as the kubelet's socket does; ``topology`` is the NodeResourceTopology that an exporter would publish now. Always true:
a refused pod has nothing, and nothing is given twice. The decision is made by walking through hints, as the original does,
and shares no code with ``dray.numa``, which predicts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from dray.api.core import Container, Pod, ResourceList
from dray.api.quantity import Quantity
from dray.api.topology import (
    CPU_MANAGER_ATTRIBUTE,
    GROUP,
    MEMORY_MANAGER_ATTRIBUTE,
    POLICY_ATTRIBUTE,
    PREFER_CLOSEST_ATTRIBUTE,
    SCOPE_ATTRIBUTE,
    Policy,
    Scope,
)
from dray.nodes.machine import MEMORY, AllocationFailed, Cpus, Devices, MachineZone, Memory, Offer, Offers
from dray.numa.fingerprint import ATTRIBUTE, METHOD_ATTRIBUTE, fingerprint
from dray.numa.podresources import (
    AllocatableResourcesResponse,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    ListPodResourcesResponse,
    NUMANode,
    PodResources,
    TopologyInfo,
)

# Walking through all sets of more zones than this would not end; real kubelets have the same trouble.
ZONES_MAX: Final = 10

Affinity = frozenset[int] | None


class Config(msgspec.Struct, frozen=True):
    """What a kubelet's configuration says about zones. ``split``: how CPUs are taken from a set of several zones; ``lowest``
    is simpler than what a kubelet does, and can be foreseen."""

    policy: Policy = "none"
    scope: Scope = "container"
    cpu_manager: Literal["none", "static"] = "static"
    memory_manager: Literal["None", "Static"] = "Static"
    prefer_closest: bool = False
    max_numa_nodes: int = 8
    split: Literal["packed", "lowest"] = "packed"


class Assignment(msgspec.Struct, frozen=True):
    """The zones that each container was aligned with; None where any would do."""

    affinity: dict[str, tuple[int, ...] | None]


class Rejection(msgspec.Struct, frozen=True):
    """The pod goes to phase Failed with this reason and message; it does not come back."""

    reason: Literal["TopologyAffinityError", "UnexpectedAdmissionError"]
    message: str


class _Held(msgspec.Struct):
    """A pod that was admitted."""

    namespace: str
    name: str
    inits: list[str]
    sidecars: list[str]
    apps: list[str]


class Had:
    """What a pod had, by zone, and from sets of zones together; used up as its containers are given it again."""

    def __init__(self, zones: Mapping[int, Mapping[str, int]], groups: Mapping[frozenset[int], Mapping[str, int]]) -> None:
        self._zones = {zone: dict(amounts) for zone, amounts in zones.items()}
        self._groups = {zone_set: dict(amounts) for zone_set, amounts in groups.items()}

    def taken(self, name: str, amount: int) -> dict[int, int]:
        """So much of it, all from one zone if that had as much, and had little more. Raises AllocationFailed."""
        zones = [(left, zone) for zone, amounts in self._zones.items() if (left := amounts.get(name, 0))]
        found: dict[int, int] = {}
        for _, zone in sorted(zones, key=lambda each: (each[0] < amount, each)):
            part = min(self._zones[zone][name], amount)
            self._zones[zone][name] -= part
            amount -= part
            if part:
                found[zone] = part
        if amount:
            raise AllocationFailed(f"no record of where {amount} of {name} were")
        return found

    def memory(self, request: Mapping[str, int]) -> frozenset[int]:
        """The zones that this came from together. Raises AllocationFailed."""
        first = next(iter(request))
        for zone, amounts in sorted(self._zones.items(), key=lambda each: (each[1].get(first, 0), each[0])):
            if _used_up(amounts, request):
                return frozenset({zone})
        for zone_set, amounts in self._groups.items():
            if _used_up(amounts, request):
                return zone_set
        drawn = [self.taken(name, amount) for name, amount in request.items()]
        return frozenset(zone for by_zone in drawn for zone in by_zone)


def _used_up(amounts: dict[str, int], request: Mapping[str, int]) -> bool:
    """Takes it, if all of it is there."""
    if any(amounts.get(name, 0) < amount for name, amount in request.items()):
        return False
    for name, amount in request.items():
        amounts[name] -= amount
    return True


class Topology:
    """One node's managers behind the Topology Manager."""

    def __init__(self, zones: Sequence[MachineZone], config: Config, distances: Sequence[Sequence[int]] | None = None) -> None:
        self.config = config
        limit = max(self.config.max_numa_nodes, 8)
        if len(zones) > limit and self.config.policy != "none":
            raise ValueError(f"unsupported on machines with more than {limit} NUMA Nodes: {len(zones)}; raise max_numa_nodes")
        if len(zones) > ZONES_MAX and self.config.policy != "none":
            raise ValueError(
                f"a simulated kubelet walks through all sets of zones and can do so for {ZONES_MAX}, not {len(zones)}"
            )
        self.zones = tuple(zones)
        self._distances = distances
        self._cpus, self._devices, self._memory = Cpus(zones, self.config.split), Devices(zones), Memory(zones)
        self._held: dict[str, _Held] = {}
        self.version = 0

    # --------------------------------------------------------------------------------------------------------------- admit

    def admit(self, pod: Pod) -> Assignment | Rejection:
        """Give the pod what it needs, or nothing. Asked again for a pod that it has, it changes nothing."""
        uid = pod.uid
        if uid in self._held:
            return Assignment({})
        order = [*pod.spec.init_containers, *pod.spec.containers]
        ordinary = [c.name for c in pod.spec.init_containers if c.restart_policy != "Always"]
        sidecars = [c.name for c in pod.spec.init_containers if c.restart_policy == "Always"]
        apps = [container.name for container in pod.spec.containers]
        self._held[uid] = _Held(pod.metadata.namespace, pod.metadata.name, ordinary, sidecars, apps)
        try:
            found = self._by_pod(pod, order) if self.config.scope == "pod" else self._by_container(pod, order)
        except AllocationFailed as error:
            found = Rejection("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        self._forget(uid)
        if isinstance(found, Rejection):
            self.remove(pod)
        self.version += 1
        return found

    def _by_container(self, pod: Pod, order: Sequence[Container]) -> Assignment | Rejection:
        affinity: dict[str, tuple[int, ...] | None] = {}
        for container in order:
            wants = self._wants(pod, [container])
            settled, preferred, admitted = self._merge(self._offers(pod.uid, wants))
            if not admitted:
                return _REJECTED
            self._allocate(pod, container, settled, preferred)
            affinity[container.name] = None if settled is None else tuple(sorted(settled))
        return Assignment(affinity)

    def _by_pod(self, pod: Pod, order: Sequence[Container]) -> Assignment | Rejection:
        settled, preferred, admitted = self._merge(self._offers(pod.uid, self._wants(pod, order)))
        if not admitted:
            return _REJECTED
        for container in order:
            self._allocate(pod, container, settled, preferred)
        return Assignment(dict.fromkeys((c.name for c in order), None if settled is None else tuple(sorted(settled))))

    def restore(self, pod: Pod, had: Had) -> bool:
        """Give a pod again what it had before this kubelet started, as its state files would say; nothing, and False, where that
        does not add up. What only its init containers had is not in it."""
        uid = pod.uid
        if uid in self._held:
            return True
        running = [c for c in pod.spec.init_containers if c.restart_policy == "Always"] + list(pod.spec.containers)
        ordinary = [c.name for c in pod.spec.init_containers if c.restart_policy != "Always"]
        sidecars = [c.name for c in pod.spec.init_containers if c.restart_policy == "Always"]
        apps = [container.name for container in pod.spec.containers]
        self._held[uid] = _Held(pod.metadata.namespace, pod.metadata.name, ordinary, sidecars, apps)
        try:
            for container in running:
                self._restore(uid, container.name, self._exclusive(pod, container), had)
        except AllocationFailed:
            self.release(uid)
            return False
        self.version += 1
        return True

    def _restore(self, uid: str, container: str, wants: Mapping[str, int], had: Had) -> None:
        memory = {name: amount for name, amount in wants.items() if _is_memory(name)}
        for name, amount in wants.items():
            if name in memory:
                continue
            by_zone = had.taken(name, amount)
            if name == "cpu":
                self._cpus.restore(uid, container, by_zone)
            else:
                self._devices.restore(uid, container, name, by_zone)
        if memory:
            self._memory.restore(uid, container, memory, had.memory(memory))

    # ------------------------------------------------------------------------------------------------------------ requests

    def _wants(self, pod: Pod, containers: Sequence[Container]) -> dict[str, int]:
        """What hints are asked for. With several containers: the most that runs at one time."""
        if len(containers) == 1:
            return self._exclusive(pod, containers[0])
        beside: dict[str, int] = {}
        most: dict[str, int] = {}
        apps: dict[str, int] = {}
        inits = {container.name for container in pod.spec.init_containers}
        for container in containers:
            for name, amount in self._exclusive(pod, container).items():
                if container.name not in inits:
                    apps[name] = apps.get(name, 0) + amount
                elif container.restart_policy == "Always":
                    beside[name] = beside.get(name, 0) + amount
                else:
                    most[name] = max(most.get(name, 0), beside.get(name, 0) + amount)
        names = {name for name in {*beside, *most, *apps} if name in apps or not _is_memory(name)}
        return {name: max(most.get(name, 0), apps.get(name, 0) + beside.get(name, 0)) for name in names}

    def _exclusive(self, pod: Pod, container: Container) -> dict[str, int]:
        """What of a container's resources its own zones would be looked for."""
        limits = {**container.resources.requests, **container.resources.limits}
        found = {name: Quantity.parse(value).value for name, value in limits.items() if name in self._devices.zone_of}
        if _guaranteed(pod) and not _pod_level(pod):
            requests = {**container.resources.limits, **container.resources.requests}
            cpu = Quantity.parse(requests.get("cpu", 0))
            if self.config.cpu_manager == "static" and cpu == Quantity.of(cpu.value):
                found["cpu"] = cpu.value
            if self.config.memory_manager == "Static":
                found.update({name: Quantity.parse(value).value for name, value in requests.items() if _is_memory(name)})
        return {name: amount for name, amount in found.items() if amount}

    # --------------------------------------------------------------------------------------------------------------- hints

    def _offers(self, uid: str, wants: Mapping[str, int]) -> list[Offers]:
        if self.config.policy == "none":
            return []
        found: list[Offers] = [
            self._devices.offers(uid, name, amount) for name, amount in wants.items() if name in self._devices.zone_of
        ]
        if "cpu" in wants:
            found.append(self._cpus.offers(uid, wants["cpu"]))
        memory = {name: amount for name, amount in wants.items() if _is_memory(name)}
        if memory:
            found.append(self._memory.offers(uid, memory))
        return found

    def _merge(self, offers: Sequence[Offers]) -> tuple[Affinity, bool, bool]:
        """(the set to align with, whether it is preferred, whether the pod is admitted)."""
        policy = self.config.policy
        if policy == "none":
            return None, False, True
        everywhere = frozenset(zone.number for zone in self.zones)
        lists: list[list[tuple[Affinity, bool]]] = []
        for given in offers:
            choices: list[tuple[Affinity, bool]] = [(None, True)] if given is None else list(given) or [(None, False)]
            if policy == "single-numa-node":
                choices = [(zones, good) for zones, good in choices if good and (zones is None or len(zones) == 1)]
            lists.append(choices)
        best = self._walk(lists, everywhere)
        zones, preferred = best if best is not None else (everywhere, False)
        if policy == "single-numa-node" and zones == everywhere:
            return None, preferred, preferred
        return zones, preferred, preferred or policy == "best-effort"

    def _walk(self, lists: Sequence[Sequence[tuple[Affinity, bool]]], everywhere: frozenset[int]) -> Offer | None:
        """The best of all combinations. They are built list by list, equal ones once: (all in common, the one set named so far
        or None when there were several, all preferred)."""
        nothing_named: frozenset[int] = frozenset()
        partial: set[tuple[frozenset[int], frozenset[int] | None, bool]] = {(everywhere, nothing_named, True)}
        for choices in lists:
            step = set()
            for common, named, good in partial:
                for zones, preferred in choices:
                    if zones is None:
                        step.add((common, named, good and preferred))
                    else:
                        same = zones if named in (nothing_named, zones) else None
                        step.add((common & zones, same, good and preferred))
            partial = step
        target = max((min((len(z) for z, _ in choices if z is not None), default=0) for choices in lists), default=0)
        whole = [(common, good and named is not None) for common, named, good in partial if common]
        return min(whole, key=lambda offer: self._rank(offer, target), default=None)

    def _rank(self, offer: Offer, target: int) -> tuple[Any, ...]:
        zones, preferred = offer
        size = len(zones)
        distance = 0.0
        if self.config.prefer_closest and self._distances is not None and self.config.policy != "single-numa-node":
            position = {zone.number: index for index, zone in enumerate(self.zones)}
            distance = sum(self._distances[position[a]][position[b]] for a in zones for b in zones) / size**2
        # Sets that are not preferred should be near the target and not above it.
        worse = 0 if preferred or size <= target else 1
        order = size if preferred or worse else target - size
        return not preferred, worse, order, distance, sum(1 << zone for zone in zones)

    # ---------------------------------------------------------------------------------------------------------- give, take

    def _allocate(self, pod: Pod, container: Container, affinity: Affinity, preferred: bool) -> None:
        held = self._held[pod.uid]
        init = container.name in held.inits
        wants = self._exclusive(pod, container)
        for name, amount in wants.items():
            if name in self._devices.zone_of:
                self._devices.allocate(pod.uid, container.name, name, amount, affinity, init=init)
        if "cpu" in wants:
            self._cpus.allocate(pod.uid, container.name, wants["cpu"], affinity, init=init)
        memory = {name: amount for name, amount in wants.items() if _is_memory(name)}
        if memory:
            before = held.inits[: held.inits.index(container.name)] if init else self._inits_before(pod, container)
            self._memory.allocate(pod.uid, container.name, memory, affinity, preferred, init=init, inits=before)

    def _inits_before(self, pod: Pod, container: Container) -> list[str]:
        names = [c.name for c in pod.spec.init_containers]
        earlier = names[: names.index(container.name)] if container.name in names else names
        return [name for name in earlier if name in self._held[pod.uid].inits]

    def _forget(self, uid: str) -> None:
        for part in (self._cpus, self._devices, self._memory):
            part.forget(uid)

    def started(self, pod: Pod) -> None:
        """The init containers are done: their memory comes back, their CPUs and devices stay with the pod."""
        held = self._held.get(pod.uid)
        if held is not None and held.inits:
            self._memory.release(pod.uid, held.inits)
            self.version += 1

    def remove(self, pod: Pod) -> None:
        """The pod is gone, with all that it had."""
        self.release(pod.uid)

    def held(self) -> set[str]:
        """Who has something."""
        return set(self._held)

    def release(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is None:
            return
        everyone = [*held.inits, *held.sidecars, *held.apps]
        self._cpus.release(uid, everyone)
        self._memory.release(uid, everyone)
        self._devices.release(uid)
        self.version += 1

    # ------------------------------------------------------------------------------------------------------------- reports

    def podresources(self) -> ListPodResourcesResponse:
        """What the kubelet's socket lists: app containers and sidecars; of init containers nothing."""
        return ListPodResourcesResponse(
            tuple(PodResources(held.name, held.namespace, self.containers(uid)) for uid, held in self._held.items())
        )

    def containers(self, uid: str) -> tuple[ContainerResources, ...]:
        """What the containers of one pod have, as they are listed; nothing for a pod that is not here."""
        held = self._held.get(uid)
        return () if held is None else tuple(self._reported(uid, name) for name in (*held.sidecars, *held.apps))

    def _reported(self, uid: str, container: str) -> ContainerResources:
        devices: list[ContainerDevices] = []
        for resource, names in sorted(self._devices.given.get((uid, container), {}).items()):
            zone_of = self._devices.zone_of[resource]
            devices += [ContainerDevices(resource, (name,), _info([zone_of[name]])) for name in sorted(names)]
        memory = tuple(
            ContainerMemory(block.type, block.size, _info(sorted(block.zones)))
            for block in self._memory.given.get((uid, container), ())
        )
        cpus = tuple(sorted(self._cpus.given.get((uid, container), ())))
        return ContainerResources(container, tuple(devices), cpus, memory)

    def allocatable(self) -> AllocatableResourcesResponse:
        devices = tuple(
            ContainerDevices(resource, (name,), _info([zone_of[name]]))
            for resource, zone_of in sorted(self._devices.zone_of.items())
            for name in sorted(self._devices.healthy(resource))
        )
        memory = tuple(
            ContainerMemory(name, size, _info([zone]))
            for zone, cell in self._memory.cells.items()
            for name, size in cell.allocatable.items()
        )
        return AllocatableResourcesResponse(devices, tuple(self._cpus.allocatable()), memory)

    def zone_of_cpus(self) -> dict[int, int]:
        """CPU -> zone: what an exporter reads from the machine."""
        return dict(self._cpus.zone_of)

    def cpu_lists(self) -> dict[str, str]:
        """The same as the files of a machine, by path: ``node0/cpulist``."""
        by_zone: dict[int, list[int]] = {zone.number: [] for zone in self.zones}
        for cpu, zone in self._cpus.zone_of.items():
            by_zone[zone].append(cpu)
        return {f"node{zone}/cpulist": ",".join(map(str, cpus)) + "\n" for zone, cpus in by_zone.items()}

    def topology(self, node: str) -> dict[str, Any]:
        """The NodeResourceTopology that describes this moment."""
        config = self.config
        attributes = {
            POLICY_ATTRIBUTE: config.policy,
            SCOPE_ATTRIBUTE: config.scope,
            CPU_MANAGER_ATTRIBUTE: config.cpu_manager,
            MEMORY_MANAGER_ATTRIBUTE: config.memory_manager,
            PREFER_CLOSEST_ATTRIBUTE: str(config.prefer_closest).lower(),
            ATTRIBUTE: fingerprint((held.namespace, held.name) for held in self._held.values()),
            METHOD_ATTRIBUTE: "all",
        }
        return {
            "apiVersion": f"{GROUP}/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": node},
            "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
            "zones": [self._zone(index, zone) for index, zone in enumerate(self.zones)],
        }

    def _zone(self, index: int, zone: MachineZone) -> dict[str, Any]:
        cell = self._memory.cells[zone.number]
        rows = [("cpu", zone.cpus, zone.cpus - zone.reserved_cpus, self._cpus.available(zone.number))] if zone.cpus else []
        rows += [(name, size, cell.allocatable[name], cell.free[name]) for name, size in zone.memory.items()]
        for name, count in zone.devices.items():
            rows.append((name, count, count - zone.unhealthy.get(name, 0), self._devices.available(name, zone.number)))
        resources = [
            {"name": name, "capacity": str(capacity), "allocatable": str(allocatable), "available": str(available)}
            for name, capacity, allocatable, available in rows
        ]
        found: dict[str, Any] = {"name": f"node-{zone.number}", "type": "Node", "resources": resources}
        if self._distances is not None:
            found["costs"] = [
                {"name": f"node-{other.number}", "value": value} for other, value in zip(self.zones, self._distances[index])
            ]
        return found


_REJECTED: Final = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")


def _info(zones: Iterable[int]) -> TopologyInfo:
    return TopologyInfo(tuple(map(NUMANode, zones)))


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith("hugepages-")


def _pod_level(pod: Pod) -> bool:
    whole = pod.spec.resources
    return whole is not None and any(name == "cpu" or _is_memory(name) for name in (*whole.requests, *whole.limits))


def _guaranteed(pod: Pod) -> bool:
    if pod.status.qos_class:
        return pod.status.qos_class == "Guaranteed"
    parts = [container.resources for container in (*pod.spec.init_containers, *pod.spec.containers)]
    if pod.spec.resources is not None and _pod_level(pod):
        parts = [pod.spec.resources]
    return bool(parts) and all(_fixed(part.requests, part.limits) for part in parts)


def _fixed(requests: ResourceList, limits: ResourceList) -> bool:
    return all(
        Quantity.parse(limits.get(name, 0))
        and Quantity.parse(requests.get(name, limits.get(name, 0))) == Quantity.parse(limits[name])
        for name in ("cpu", MEMORY)
    )
