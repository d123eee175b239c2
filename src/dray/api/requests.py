"""How much of each resource a pod needs: the rule, for any kind of number, and the numbers of the scheduler.

Init containers run one after another, so only the largest counts; sidecars (init containers that restart always) keep running
beside everything that starts after them. The scheduler counts cpu in thousandths, everything else in whole units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self, TypeVar

from dray.api.core import Container, PodSpec, ResourceList
from dray.api.quantity import Quantity

Amounts = dict[str, int]


class Number(Protocol):
    """Whole units, or exact quantities."""

    def __add__(self, other: Any, /) -> Self: ...

    def __gt__(self, other: Any, /) -> bool: ...


N = TypeVar("N", bound=Number)

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
    total = together(spec, lambda container: {**assumed, **container_requests(container)})
    total.update(pod_level)
    add(total, amounts(spec.overhead))
    return {name: value for name, value in total.items() if value}


def _pod_level(spec: PodSpec) -> Amounts:
    """Pod-level requests: they replace the sum of the containers for cpu, memory and huge pages."""
    if spec.resources is None:
        return {}
    named = {**spec.resources.limits, **spec.resources.requests}
    return amounts({name: value for name, value in named.items() if is_pod_level(name)})


def is_pod_level(resource: str) -> bool:
    """Whether an amount of the pod as a whole replaces the sum of its containers."""
    return resource in _POD_LEVEL or resource.startswith("hugepages-")


def together(spec: PodSpec, of: Callable[[Container], dict[str, N]]) -> dict[str, N]:
    """What the containers of a pod need at most at one time, where ``of`` says what one of them needs."""
    running: dict[str, N] = {}
    for container in spec.containers:
        add(running, of(container))
    sidecars: dict[str, N] = {}
    peak: dict[str, N] = {}
    for container in spec.init_containers:
        needed = of(container)
        if is_sidecar(container):
            add(running, needed)
            add(sidecars, needed)
            _raise(peak, sidecars)
        else:
            add(needed, sidecars)
            _raise(peak, needed)
    _raise(running, peak)
    return running


def add(total: dict[str, N], more: Mapping[str, N]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _raise(total: dict[str, N], other: Mapping[str, N]) -> None:
    for name, value in other.items():
        if name not in total or value > total[name]:
            total[name] = value
