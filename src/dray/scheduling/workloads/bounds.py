"""Sums before searches: what cannot fit whoever leaves is not searched for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dray.api.resource import DeviceKey, ResourceClaim
from dray.books.nodes import Nodes, Placed
from dray.devices import Devices
from dray.devices.views import NodeView
from dray.scheduling.waiting.queue import QueuedPod

# What there is most of is looked at last.
_COMMON: Final = frozenset({"cpu", "memory"})


def enough_free(nodes: Nodes, members: Sequence[QueuedPod], gone: Iterable[Placed], from_devices: Callable[[str], bool]) -> bool:
    """Whether the nodes have in all what the members ask for, without these pods: where nobody is evicted, nothing else becomes
    free."""
    asked: dict[str, int] = {}
    for pending in members:
        for name, value in pending.demand.requests:
            if value and not from_devices(name):
                asked[name] = asked.get(name, 0) + value
    freed = by_node(gone)
    return all(_has(nodes, freed, name, asked[name]) for name in sorted(asked, key=_COMMON.__contains__))


def too_few_devices(engine: Devices, claims: Iterable[ResourceClaim], spare: int) -> bool:
    """Whether all nodes together have fewer free devices of a class than claims that have none yet ask for at least, even if so
    many more become free."""
    asked = asked_of_classes(claims)
    return any(_fewer_free(engine, class_name, count - spare) for class_name, count in asked.items())


def asked_of_classes(claims: Iterable[ResourceClaim]) -> Counter[str]:
    """How many devices of each class claims ask for at least; nothing is said of requests with several classes to choose from."""
    asked = Counter[str]()
    for request in (each for claim in claims for each in claim.spec.devices.requests):
        ways = [request.exactly] if request.exactly is not None else request.first_available
        if len({way.device_class_name for way in ways}) == 1 and not (request.exactly and request.exactly.admin_access):
            asked[ways[0].device_class_name] += min(1 if way.allocation_mode == "All" else way.count for way in ways)
    return asked


def _fewer_free(engine: Devices, class_name: str, wanted: int) -> bool:
    """Devices that several may share count as enough, and those that several nodes reach once."""
    selection, own, reached = engine.compiler.of_class(class_name), 0, set[DeviceKey]()
    for name in engine.inventory.nodes if selection is not None else ():
        view = engine.inventory.view(name)
        if view is None or selection is None:
            continue
        free = selection.on(view.layout)[0] & view.layout.here & ~view.taken()
        if any(kind.multiple for kind in view.layout.kinds):
            return False
        if view.fabric:
            reached.update(key for position, key in enumerate(view.keys()) if free >> position & 1)
        else:
            own += free.bit_count()
        if own + len(reached) >= wanted:
            return False
    return True


def whole_devices(engine: Devices, view: NodeView, class_name: str, among: int) -> int | None:
    """Those of the class among the devices at these positions; None where several may share one of them."""
    selection = engine.compiler.of_class(class_name)
    found = selection.on(view.layout)[0] & among if selection is not None else 0
    return None if any(kind.multiple and found >> at & 1 for at, kind in enumerate(view.layout.kinds)) else found


def _has(nodes: Nodes, freed: dict[str, dict[str, int]], name: str, wanted: int) -> bool:
    found = 0
    for info in nodes:
        free = info.allocatable.get(name, 0) - info.requested.get(name, 0)
        if freed and (more := freed.get(info.name)) is not None:
            free += more.get(name, 0)
        if free > 0:
            found += free
            if found >= wanted:
                return True
    return False


def by_node(pods: Iterable[Placed]) -> dict[str, dict[str, int]]:
    """What pods hold, by node and resource."""
    found: dict[str, list[Placed]] = {}
    for placed in pods:
        found.setdefault(placed.node, []).append(placed)
    return {node: held(each) for node, each in found.items()}


def held(pods: Iterable[Placed]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for placed in pods:
        for name, value in placed.demand.requests:
            sums[name] = sums.get(name, 0) + value
    return sums
