"""The CPU, memory and device managers of a simulated kubelet: who has which CPU, how much memory and which device.

Each manager does what its original does, container by container: it offers hints for a request, gives out what the Topology
Manager settled on, lets later containers of a pod use again what an ordinary init container had, and takes back. Nothing here
is shared with ``dray.numa``, which predicts the same decisions in another way: tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, Literal, TypeVar

import msgspec

# A set of zones that could serve a request, and whether it is one of the narrowest.
Offer = tuple[frozenset[int], bool]
# None: any zone will do. Empty: no zone will do.
Offers = list[Offer] | None

MEMORY: Final = "memory"
T = TypeVar("T")


class MachineZone(msgspec.Struct, frozen=True):
    """One NUMA node. Amounts are totals; ``reserved`` ones are for the system. Memory types: ``memory``, ``hugepages-…``."""

    number: int
    cpus: int = 0
    reserved_cpus: int = 0
    memory: dict[str, int] = {}
    reserved_memory: dict[str, int] = {}
    devices: dict[str, int] = {}
    unhealthy: dict[str, int] = {}


class AllocationFailed(Exception):
    """A manager could not give out what was asked for: the kubelet's UnexpectedAdmissionError."""


def zone_sets(zones: Sequence[int]) -> Iterator[frozenset[int]]:
    """Every set of zones, narrow ones first."""
    for size in range(1, len(zones) + 1):
        yield from map(frozenset, combinations(zones, size))


# ------------------------------------------------------------------------------------------------------------------- CPUs


class Cpus:
    """The static CPU Manager. Every CPU has a number; zones have consecutive ones."""

    def __init__(self, zones: Sequence[MachineZone], split: Literal["packed", "lowest"]) -> None:
        self.zone_of: dict[int, int] = {}
        self._reserved: set[int] = set()
        for zone in zones:
            first = len(self.zone_of)
            numbers = range(first, first + zone.cpus)
            self.zone_of.update(dict.fromkeys(numbers, zone.number))
            self._reserved.update(numbers[: zone.reserved_cpus])
        self._free = set(self.zone_of) - self._reserved
        self._split = split
        self._reusable: dict[str, set[int]] = {}
        self.given: dict[tuple[str, str], frozenset[int]] = {}

    def offers(self, pod: str, request: int) -> Offers:
        reusable = self._reusable.get(pod, set())
        zones = sorted(set(self.zone_of.values()))
        least = len(zones)
        found: list[frozenset[int]] = []
        must = {self.zone_of[cpu] for cpu in reusable}
        for zone_set in zone_sets(zones):
            if len(zone_set) < least and sum(zone in zone_set for zone in self.zone_of.values()) >= request:
                least = len(zone_set)
            matching = len(reusable) + sum(self.zone_of[cpu] in zone_set for cpu in self._free)
            if must <= zone_set and matching >= request:
                found.append(zone_set)
        return [(zone_set, len(zone_set) == least) for zone_set in found]

    def allocate(self, pod: str, container: str, request: int, affinity: frozenset[int] | None, *, init: bool) -> None:
        reusable = self._reusable.setdefault(pod, set())
        usable = self._free | reusable
        if len(usable) < request:
            raise AllocationFailed(f"not enough cpus available to satisfy request: requested={request}, available={len(usable)}")
        aligned = usable if affinity is None else {cpu for cpu in usable if self.zone_of[cpu] in affinity}
        taken = self._take(aligned, min(request, len(aligned)))
        taken |= self._take(usable - taken, request - len(taken))
        self._free -= taken
        self.given[pod, container] = frozenset(taken)
        if init:
            reusable |= taken
        else:
            reusable -= taken

    def _take(self, usable: set[int], request: int) -> set[int]:
        """Which CPUs: whole zones first, then from the zones with the fewest left, unless the lowest are wanted."""
        if self._split == "lowest" or not request:
            return set(sorted(usable)[:request])
        taken: set[int] = set()
        by_zone = self._by_zone(usable)
        for zone in sorted(by_zone):
            whole = sum(other == zone for other in self.zone_of.values())
            if len(by_zone[zone]) == whole <= request - len(taken):
                taken |= by_zone[zone]
        rest = self._by_zone(usable - taken)
        for zone in sorted(rest, key=lambda zone: (len(rest[zone]), zone)):
            taken |= set(sorted(rest[zone])[: request - len(taken)])
        return taken

    def _by_zone(self, cpus: set[int]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for cpu in cpus:
            found.setdefault(self.zone_of[cpu], set()).add(cpu)
        return found

    def restore(self, pod: str, container: str, by_zone: Mapping[int, int]) -> None:
        """The container has so many of each zone, as before its kubelet started again."""
        taken: set[int] = set()
        for zone, count in by_zone.items():
            free = sorted(cpu for cpu in self._free if self.zone_of[cpu] == zone)
            taken |= set(_exactly(free, count, "cpus"))
        self._free -= taken
        self.given[pod, container] = frozenset(taken)

    def release(self, pod: str, containers: Iterable[str]) -> None:
        """Give back what these containers have and no other container of the pod."""
        gone = set().union(*(self.given.pop((pod, name), frozenset()) for name in containers))
        kept = set().union(*(cpus for (owner, _), cpus in self.given.items() if owner == pod))
        self._free |= gone - kept

    def forget(self, pod: str) -> None:
        """The pod is admitted or gone: nothing of it is reused any more."""
        self._reusable.pop(pod, None)

    def available(self, zone: int) -> int:
        return sum(self.zone_of[cpu] == zone for cpu in self._free)

    def allocatable(self) -> list[int]:
        return sorted(set(self.zone_of) - self._reserved)


def _exactly(free: list[T], count: int, what: str) -> list[T]:
    if len(free) < count:
        raise AllocationFailed(f"{count} {what} that the container had are not free")
    return free[:count]


# ---------------------------------------------------------------------------------------------------------------- devices


class Devices:
    """The Device Manager with device plugins that know their zones. A device's name starts with its zone's number."""

    def __init__(self, zones: Sequence[MachineZone]) -> None:
        self.zone_of: dict[str, dict[str, int]] = {}
        self._free: dict[str, set[str]] = {}
        for zone in zones:
            for resource, count in zone.devices.items():
                names = [f"{zone.number}-{number:03}" for number in range(count)]
                self.zone_of.setdefault(resource, {}).update(dict.fromkeys(names, zone.number))
                self._free.setdefault(resource, set()).update(names[zone.unhealthy.get(resource, 0) :])
        self._healthy = {resource: frozenset(names) for resource, names in self._free.items()}
        self._reusable: dict[tuple[str, str], set[str]] = {}
        self.given: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
        # Also what init containers had and nobody uses any more: it stays with the pod.
        self._of_pod: dict[str, dict[str, set[str]]] = {}

    def offers(self, pod: str, resource: str, request: int) -> Offers:
        zone_of, free = self.zone_of[resource], self._free[resource]
        reusable = self._reusable.get((pod, resource), set())
        if len(free | reusable) < request:
            return []
        zones = sorted(set(zone_of.values()))
        least = len(zones)
        found: list[frozenset[int]] = []
        for zone_set in zone_sets(zones):
            if len(zone_set) < least and sum(zone in zone_set for zone in zone_of.values()) >= request:
                least = len(zone_set)
            if any(zone_of[device] not in zone_set for device in reusable):
                continue
            if len(reusable) + sum(zone_of[device] in zone_set for device in free) >= request:
                found.append(zone_set)
        return [(zone_set, len(zone_set) == least) for zone_set in found]

    def allocate(
        self, pod: str, container: str, resource: str, request: int, affinity: frozenset[int] | None, *, init: bool
    ) -> None:
        zone_of, free = self.zone_of[resource], self._free[resource]
        reusable = self._reusable.setdefault((pod, resource), set())
        taken = set(sorted(reusable)[:request])
        missing = request - len(taken)
        if len(free) < missing:
            raise AllocationFailed(
                f"requested number of devices unavailable for {resource}. Requested: {missing}, Available: {len(free)}"
            )
        near = [device for device in sorted(free) if affinity is None or zone_of[device] in affinity]
        far = [device for device in sorted(free) if device not in near]
        new = set((near + far)[:missing])
        free -= new
        taken |= new
        self.given.setdefault((pod, container), {})[resource] = frozenset(taken)
        self._of_pod.setdefault(pod, {}).setdefault(resource, set()).update(taken)
        if init:
            reusable |= taken
        else:
            reusable -= taken

    def restore(self, pod: str, container: str, resource: str, by_zone: Mapping[int, int]) -> None:
        """The container has so many of each zone, as before its kubelet started again."""
        taken: set[str] = set()
        for zone, count in by_zone.items():
            free = sorted(device for device in self._free[resource] if self.zone_of[resource][device] == zone)
            taken |= set(_exactly(free, count, resource))
        self._free[resource] -= taken
        self.given.setdefault((pod, container), {})[resource] = frozenset(taken)
        self._of_pod.setdefault(pod, {}).setdefault(resource, set()).update(taken)

    def release(self, pod: str) -> None:
        for resource, names in self._of_pod.pop(pod, {}).items():
            self._free[resource] |= names
        for key in [key for key in self.given if key[0] == pod]:
            del self.given[key]

    def forget(self, pod: str) -> None:
        for key in [key for key in self._reusable if key[0] == pod]:
            del self._reusable[key]

    def available(self, resource: str, zone: int) -> int:
        return sum(self.zone_of[resource][device] == zone for device in self._free[resource])

    def healthy(self, resource: str) -> frozenset[str]:
        return self._healthy[resource]


# ----------------------------------------------------------------------------------------------------------------- memory


class _Cell:
    """One zone in the eyes of the Memory Manager."""

    def __init__(self, zone: MachineZone) -> None:
        self.allocatable = {name: size - zone.reserved_memory.get(name, 0) for name, size in zone.memory.items()}
        self.free = dict(self.allocatable)
        self.assignments = 0
        self.group = frozenset({zone.number})


class Block(msgspec.Struct):
    """Memory of one type that a container was given from a set of zones."""

    type: str
    size: int
    zones: frozenset[int]


class Memory:
    """The static Memory Manager: zones that serve a container together are bound to each other until all that memory is back."""

    def __init__(self, zones: Sequence[MachineZone]) -> None:
        self.cells = {zone.number: _Cell(zone) for zone in zones}
        self.given: dict[tuple[str, str], list[Block]] = {}
        self._reusable: dict[str, dict[tuple[frozenset[int], str], int]] = {}

    def offers(self, pod: str, request: Mapping[str, int]) -> Offers:
        """One list for all types together; None, no opinion, when nothing can be offered."""
        found: list[frozenset[int]] = []
        least = len(self.cells)
        for zone_set in zone_sets(sorted(self.cells)):
            cells = [self.cells[zone] for zone in zone_set]
            if any(sum(cell.allocatable.get(name, 0) for cell in cells) < size for name, size in request.items()):
                continue
            least = min(least, len(zone_set))
            if self._bound(zone_set) or not self._enough(pod, zone_set, request):
                continue
            found.append(zone_set)
        return [(zone_set, len(zone_set) == least) for zone_set in found] or None

    def _bound(self, zone_set: frozenset[int]) -> bool:
        if len(zone_set) == 1:
            return len(self.cells[next(iter(zone_set))].group) > 1
        return self._violates(zone_set)

    def _violates(self, zone_set: frozenset[int]) -> bool:
        if len(zone_set) == 1:
            return False
        used = [self.cells[zone] for zone in zone_set if self.cells[zone].assignments]
        return any(len(cell.group) == 1 or cell.group != zone_set for cell in used)

    def _enough(self, pod: str, zone_set: frozenset[int], request: Mapping[str, int]) -> bool:
        reusable = self._reusable.get(pod, {})
        return all(self._free(zone_set, name) + reusable.get((zone_set, name), 0) >= size for name, size in request.items())

    def _free(self, zone_set: frozenset[int], name: str) -> int:
        return sum(self.cells[zone].free.get(name, 0) for zone in zone_set)

    def allocate(
        self,
        pod: str,
        container: str,
        request: Mapping[str, int],
        affinity: frozenset[int] | None,
        preferred: bool,
        *,
        init: bool,
        inits: Sequence[str],
    ) -> None:
        """``init``: this is an ordinary init container; ``inits`` are those before it."""
        zone_set = self._settled(pod, request, affinity, preferred)
        if self._violates(zone_set):
            raise AllocationFailed("[memorymanager] preferred hint violates NUMA node allocation")
        reusable = self._reusable.setdefault(pod, {})
        blocks = []
        for name, size in request.items():
            again = reusable.get((zone_set, name), 0)
            self._draw(zone_set, name, max(size - again, 0))
            blocks.append(Block(name, size, zone_set))
            if init:
                reusable[zone_set, name] = max(again, size)
            elif again:
                reusable[zone_set, name] = max(again - size, 0)
        self._shrink(pod, inits, blocks)
        self.given[pod, container] = blocks

    def restore(self, pod: str, container: str, request: Mapping[str, int], zone_set: frozenset[int]) -> None:
        """The container has this from these zones together, as before its kubelet started again."""
        short = any(self._free(zone_set, name) < size for name, size in request.items())
        if short or self._bound(zone_set):
            raise AllocationFailed("[memorymanager] the memory that the container had is not free")
        for name, size in request.items():
            self._draw(zone_set, name, size)
        self.given[pod, container] = [Block(name, size, zone_set) for name, size in request.items()]

    def _settled(self, pod: str, request: Mapping[str, int], affinity: frozenset[int] | None, preferred: bool) -> frozenset[int]:
        """The set to use: the Topology Manager's, or the best that contains it when that has not enough."""
        zone_set = affinity
        if zone_set is None:
            offers = self.offers(pod, request)
            if not offers:
                raise AllocationFailed("[memorymanager] failed to get the default NUMA affinity")
            zone_set, narrow = _best(offers)
            if preferred and not narrow:
                raise AllocationFailed("[memorymanager] failed to find the default preferred hint")
            preferred = narrow
        if all(self._free(zone_set, name) >= size for name, size in request.items()):
            return zone_set
        wider = [offer for offer in self.offers(pod, request) or () if offer[0] >= zone_set]
        if not wider:
            raise AllocationFailed("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
        extended, narrow = _best(wider)
        if preferred and not narrow:
            raise AllocationFailed("[memorymanager] failed to find the extended preferred hint")
        return extended

    def _draw(self, zone_set: frozenset[int], name: str, size: int) -> None:
        for zone in sorted(zone_set):
            cell = self.cells[zone]
            cell.assignments += 1
            cell.group = zone_set
            given = min(cell.free.get(name, 0), size)
            if given:
                cell.free[name] -= given
                size -= given

    def _shrink(self, pod: str, inits: Sequence[str], blocks: Sequence[Block]) -> None:
        """What is used again is no longer in the books of the init container that had it first."""
        earlier = [block for name in inits for block in self.given.get((pod, name), ())]
        for block in blocks:
            left = block.size
            for old in earlier:
                if old.type == block.type and old.zones == block.zones:
                    used = min(old.size, left)
                    old.size -= used
                    left -= used

    def release(self, pod: str, containers: Iterable[str]) -> None:
        for name in containers:
            for block in self.given.pop((pod, name), ()):
                self._give_back(block)

    def _give_back(self, block: Block) -> None:
        size = block.size
        for zone in sorted(block.zones):
            cell = self.cells[zone]
            cell.assignments -= 1
            if not cell.assignments:
                cell.group = frozenset({zone})
            back = min(size, cell.allocatable.get(block.type, 0) - cell.free.get(block.type, 0))
            if back:
                cell.free[block.type] += back
                size -= back

    def forget(self, pod: str) -> None:
        self._reusable.pop(pod, None)


def _best(offers: Sequence[Offer]) -> Offer:
    """Preferred before others, then narrow before wide, then the lowest."""
    return min(offers, key=lambda offer: (not offer[1], len(offer[0]), sum(1 << zone for zone in offer[0])))
