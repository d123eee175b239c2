"""How much of each resource a pod needs, as the scheduler counts it.

cpu is counted in thousandths, everything else in whole units. Init containers run one after another, so only the largest
counts; sidecars (init containers that restart always) keep running beside everything that starts after them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.core import Container, PodSpec, ResourceList
from dray.api.quantity import Quantity

Amounts = dict[str, int]

# What a container that asks for nothing is taken to use when nodes are compared; never when they are filtered.
ASSUMED: Final[Amounts] = {"cpu": 100, "memory": 200 * 1024 * 1024}
_POD_LEVEL: Final = ("cpu", "memory")


def amount(resource: str, value: str | int | float) -> int:
    quantity = Quantity.parse(value)
    return quantity.milli if resource == "cpu" else quantity.value


def amounts(resources: ResourceList) -> Amounts:
    return {name: amount(name, value) for name, value in resources.items()}


def container_requests(container: Container) -> Amounts:
    """Requests of one container; a limit without a request is a request, as API defaulting has it."""
    return amounts({**container.resources.limits, **container.resources.requests})


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def pod_requests(spec: PodSpec) -> Amounts:
    """What a node must have left for the pod."""
    return _total(spec, {})


def assumed_usage(spec: PodSpec) -> Amounts:
    """As ``pod_requests``, with containers that name no cpu or memory taken to use a little, so that they spread."""
    return _total(spec, ASSUMED)


def _total(spec: PodSpec, missing: Amounts) -> Amounts:
    pod_level = _pod_level(spec)
    assumed = {name: value for name, value in missing.items() if name not in pod_level}
    total = _containers(spec, assumed)
    total.update(pod_level)
    _add(total, amounts(spec.overhead))
    return {name: value for name, value in total.items() if value}


def _pod_level(spec: PodSpec) -> Amounts:
    """Pod-level requests: they replace the sum of the containers for cpu, memory and huge pages."""
    if spec.resources is None:
        return {}
    named = {**spec.resources.limits, **spec.resources.requests}
    return amounts({name: value for name, value in named.items() if name in _POD_LEVEL or name.startswith("hugepages-")})


def _containers(spec: PodSpec, assumed: Amounts) -> Amounts:
    running: Amounts = {}
    for container in spec.containers:
        _add(running, {**assumed, **container_requests(container)})
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        needed = {**assumed, **container_requests(container)}
        if is_sidecar(container):
            _add(running, needed)
            _add(sidecars, needed)
            _raise(peak, sidecars)
        else:
            _add(needed, sidecars)
            _raise(peak, needed)
    _raise(running, peak)
    return running


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Amounts, other: Amounts) -> None:
    for name, value in other.items():
        if value > total.get(name, 0):
            total[name] = value


def names(spec: PodSpec) -> Iterable[str]:
    """Every resource that a container of the pod names."""
    for container in (*spec.init_containers, *spec.containers):
        yield from container_requests(container)
