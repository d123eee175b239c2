"""How much of each resource a pod needs: the rule, for any kind of number, and the numbers of the scheduler.

Init containers run one after another, so only the largest counts; sidecars (init containers that restart always) keep running
beside everything that starts after them. The scheduler counts cpu in thousandths, everything else in whole units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, Self, TypeVar

from dray.api.core import Container, Node, PodSpec, ResourceList
from dray.api.quantity import Quantity, quantities

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


def offered_by(nodes: Iterable[Node]) -> set[str]:
    """The resources of which some node has any: one whose device plugin went goes on to say that it has 0."""
    return {name for node in nodes for name, value in node.status.allocatable.items() if amount(name, value)}


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
    pod_level = _of_pod(spec)
    assumed = {name: value for name, value in missing.items() if name not in pod_level}
    total = together(spec, lambda container: {**assumed, **container_requests(container)})
    total.update(pod_level)
    add(total, amounts(spec.overhead))
    return {name: value for name, value in total.items() if value}


def _of_pod(spec: PodSpec) -> Amounts:
    if spec.resources is None:
        return {}
    requests, limits = amounts(spec.resources.requests), amounts(spec.resources.limits)
    return pod_level_requests(requests, limits, together(spec, container_requests))


# -------------------------------------------------------------------------------------------------- of the pod as a whole


def is_pod_level(resource: str) -> bool:
    """Whether an amount of the pod as a whole replaces the sum of its containers."""
    return resource in _POD_LEVEL or is_huge_pages(resource)


def is_huge_pages(resource: str) -> bool:
    return resource.startswith("hugepages-")


def pod_level_requests(requests: Mapping[str, N], limits: Mapping[str, N], asked: Mapping[str, N]) -> dict[str, N]:
    """The requests of a pod as a whole, completed: what is limited or requested only in part is requested as its containers do
    (``asked``), else up to the limit. Huge pages are always requested up to the limit."""
    given, most = _pod_level(requests), _pod_level(limits)
    if not given and not most:
        return {}
    of_containers = {n: v for n, v in _pod_level(asked).items() if not (is_huge_pages(n) and n in most)}
    return {**most, **of_containers, **given}


def _pod_level(resources: Mapping[str, N]) -> dict[str, N]:
    return {name: value for name, value in resources.items() if is_pod_level(name)}


# ------------------------------------------------------------------------------------------------------ of all containers


def together(spec: PodSpec, of: Callable[[Container], dict[str, N]]) -> dict[str, N]:
    """What the containers of a pod need at most at one time, where ``of`` says what one of them needs."""
    return _at_most(map(of, spec.containers), ((of(container), is_sidecar(container)) for container in spec.init_containers))


def together_in(spec: Mapping[str, Any], field: str) -> dict[str, Quantity]:
    """What the containers of a pod spec as in JSON name under ``field`` (requests, limits) at most at one time."""

    def of(container: Mapping[str, Any]) -> dict[str, Quantity]:
        return quantities((container.get("resources") or {}).get(field) or {})

    inits = ((of(container), container.get("restartPolicy") == "Always") for container in spec.get("initContainers") or ())
    return _at_most(map(of, spec.get("containers") or ()), inits)


def _at_most(containers: Iterable[dict[str, N]], inits: Iterable[tuple[dict[str, N], bool]]) -> dict[str, N]:
    running: dict[str, N] = {}
    for needed in containers:
        add(running, needed)
    sidecars: dict[str, N] = {}
    peak: dict[str, N] = {}
    for needed, stays in inits:
        if stays:
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
