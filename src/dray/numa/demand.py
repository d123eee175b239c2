"""What of a pod the kubelet would align with zones, as a value: equal pods have equal demands.

Only what a Topology Manager's hint providers look at is in it: devices of every pod; exclusive CPUs of Guaranteed pods, for
containers that ask for whole ones; memory and huge pages of Guaranteed pods. Which of these a node aligns is for the node's
layout to say. Amounts of cpu are in thousandths, everything else in whole units.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from dray.api.core import Container, Pod, ResourceList
from dray.api.quantity import Quantity

Role = Literal["app", "sidecar", "init"]
# (resource, amount), by name of resource; nothing of zero.
Amounts = tuple[tuple[str, int], ...]

CPU: Final = "cpu"
MEMORY: Final = "memory"
HUGE_PAGES: Final = "hugepages-"
_NO_DEVICES: Final = frozenset({"ephemeral-storage", "storage", "pods"})


def is_memory(resource: str) -> bool:
    """Memory and every size of huge pages: the Memory Manager treats them as one."""
    return resource == MEMORY or resource.startswith(HUGE_PAGES)


def is_device(resource: str) -> bool:
    """Whether a device plugin may serve this resource."""
    return not (resource == CPU or is_memory(resource) or resource in _NO_DEVICES or resource.startswith("attachable-volumes-"))


class Unit(msgspec.Struct, frozen=True):
    """One container. ``init`` is an ordinary init container: what it had can be used again by those after it."""

    role: Role
    needs: Amounts


class Demand(msgspec.Struct, frozen=True, cache_hash=True):
    """``units`` in the order in which a kubelet admits them; ``pod`` is what it asks hints for where the whole pod is aligned."""

    units: tuple[Unit, ...] = ()
    pod: Amounts = ()

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(name for unit in self.units for name, _ in unit.needs)


def demand(pod: Pod) -> Demand:
    """The demand of a pod. Raises QuantityError for an amount that is none."""
    guaranteed = is_guaranteed(pod) and not _pod_level(pod)
    inits = pod.spec.init_containers
    units = [Unit("sidecar" if c.restart_policy == "Always" else "init", _needs(c, guaranteed)) for c in inits]
    units += [Unit("app", _needs(container, guaranteed)) for container in pod.spec.containers]
    kept = tuple(unit for unit in units if unit.needs)
    return Demand(kept, _of_pod(kept))


def is_guaranteed(pod: Pod) -> bool:
    """The class that the API server wrote down, or what it would write."""
    if pod.status.qos_class:
        return pod.status.qos_class == "Guaranteed"
    if pod.spec.resources is not None and _pod_level(pod):
        return _equal([(pod.spec.resources.requests, pod.spec.resources.limits)])
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return _equal([(container.resources.requests, container.resources.limits) for container in containers])


def _equal(pairs: Iterable[tuple[ResourceList, ResourceList]]) -> bool:
    """Every pair limits cpu and memory, and the sums of requests and limits are the same."""
    balance = {CPU: 0, MEMORY: 0}
    some = False
    for requests, limits in pairs:
        some = True
        for resource in balance:
            limit = Quantity.parse(limits.get(resource, 0)).nanos
            if not limit:
                return False
            balance[resource] += limit - Quantity.parse(requests.get(resource, limits[resource])).nanos
    return some and not any(balance.values())


def _pod_level(pod: Pod) -> bool:
    """Whether the pod as a whole names cpu or memory: then a kubelet aligns neither, unless an alpha gate is on."""
    named = pod.spec.resources
    return named is not None and any(name == CPU or is_memory(name) for name in (*named.requests, *named.limits))


def _needs(container: Container, guaranteed: bool) -> Amounts:
    named = {**container.resources.requests, **container.resources.limits}
    found = []
    for name in sorted(named):
        if is_device(name):
            amount = Quantity.parse(named[name]).value
        elif guaranteed:
            amount = _exclusive(name, container.resources.requests.get(name, named[name]))
        else:
            continue
        if amount > 0:
            found.append((name, amount))
    return tuple(found)


def _exclusive(name: str, value: str | int | float) -> int:
    quantity = Quantity.parse(value)
    if name == CPU:
        return quantity.milli if quantity.milli % 1000 == 0 else 0
    return quantity.value if is_memory(name) else 0


def _of_pod(units: Iterable[Unit]) -> Amounts:
    """The most that is needed at one time: init containers run one by one beside the sidecars before them."""
    apps: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for unit in units:
        for name, amount in unit.needs:
            if unit.role == "app":
                apps[name] = apps.get(name, 0) + amount
            elif unit.role == "sidecar":
                sidecars[name] = sidecars.get(name, 0) + amount
            else:
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
    lasting = {name: apps.get(name, 0) + sidecars.get(name, 0) for name in {*apps, *sidecars}}
    # The Memory Manager asks for the types of memory that app containers name, and for no others.
    total = {
        name: max(lasting.get(name, 0), peak.get(name, 0)) for name in {*lasting, *peak} if name in apps or not is_memory(name)
    }
    return tuple(sorted(total.items()))
