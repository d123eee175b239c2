"""What pods request of each node, summed up anew from the pods alone: a second reading, without the scheduler's own sums, so that
these can be checked against it."""

from __future__ import annotations

from dray.api.core import Container, Pod
from dray.api.kinds import NODES, PODS
from dray.api.quantity import Quantity, quantities
from dray.cluster.world import World

Used = dict[str, tuple[Quantity, Quantity]]


def node_usage(world: World) -> dict[str, Used]:
    """By node and resource: requested and allocatable. Resources that devices serve are left to the devices."""
    totals: dict[str, dict[str, Quantity]] = {name: {} for name in world.all(NODES)}
    for pod in world.all(PODS).values():
        if pod.spec.node_name in totals and not pod.terminal:
            _add(totals[pod.spec.node_name], {**requests(pod), "pods": Quantity.of(1)})
    usage: dict[str, Used] = {}
    for name, node in world.all(NODES).items():
        allocatable = {resource: Quantity.parse(value) for resource, value in node.status.allocatable.items()}
        usage[name] = {
            resource: (totals[name].get(resource, Quantity(0)), total) for resource, total in sorted(allocatable.items())
        }
    return usage


def requests(pod: Pod) -> dict[str, Quantity]:
    """Containers run together; init containers one after the other, beside the sidecars that started before them."""
    spec = pod.spec
    together: dict[str, Quantity] = {}
    for container in spec.containers:
        _add(together, _of(container))
    sidecars: dict[str, Quantity] = {}
    most: dict[str, Quantity] = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(sidecars, _of(container))
            _add(together, _of(container))
            _most(most, sidecars)
        else:
            alone = _of(container)
            _add(alone, sidecars)
            _most(most, alone)
    _most(together, most)
    if spec.resources is not None:
        together.update(quantities({**spec.resources.limits, **spec.resources.requests}))
    _add(together, quantities(spec.overhead))
    return together


def _of(container: Container) -> dict[str, Quantity]:
    return quantities({**container.resources.limits, **container.resources.requests})


def _add(into: dict[str, Quantity], more: dict[str, Quantity]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, Quantity(0)) + amount


def _most(into: dict[str, Quantity], other: dict[str, Quantity]) -> None:
    for name, amount in other.items():
        into[name] = max(into.get(name, Quantity(0)), amount)
