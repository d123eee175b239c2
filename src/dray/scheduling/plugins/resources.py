"""Whether a node has enough left, and how well a pod would fill it.

A resource that a device class offers under its extended name is left to the devices where the node itself has none of it.
Scores compare what would be in use after the pod is placed; containers that ask for nothing are taken to use a little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dray.api.quantity import BINARY_SI, DECIMAL_SI, NANO, Quantity
from dray.books.demand import Demand
from dray.books.nodes import NodeInfo
from dray.scheduling.arguments import FitArgs, ResourceWeight, Shape
from dray.scheduling.plugins.base import MAX_SCORE, Check, Compiled, Measure, PodShape, Reasons, because, codes_of

_TOO_MANY_PODS: Final = because("TooManyPods")
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "pods")

OffersDevices = Callable[[str], bool]
"""Whether a device class maps this extended resource name."""
DevicesOf = Callable[[str, str], tuple[int, int]]
"""How many devices a node has of an extended resource that a class maps, and how many of them are in use."""


def readable(resource: str, value: int) -> str:
    """An amount as people write it: thousandths of cpu; powers of two for what is counted in bytes, unless those of ten take
    fewer digits (``2G``, not ``1953125Ki``)."""
    if resource == "cpu":
        return str(Quantity(value * NANO // 1000))
    by_ten = str(Quantity(value * NANO, DECIMAL_SI))
    if not (resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")):
        return by_ten
    return min(str(Quantity(value * NANO, BINARY_SI)), by_ten, key=_digits)


def _digits(text: str) -> int:
    return sum(letter.isdigit() for letter in text)


def is_extended(name: str) -> bool:
    """A name with a domain that is not Kubernetes' own: what device plugins and device classes offer."""
    if name.startswith("deviceclass.resource.kubernetes.io/"):
        return True
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io") and not name.startswith("requests.")


# ------------------------------------------------------------------------------------------------------------- filter


def fit(demand: Demand, args: FitArgs, offers_devices: OffersDevices) -> Check:
    wanted = tuple(_counted(demand, args))
    from_devices = frozenset(name for name, _ in wanted if is_extended(name) and offers_devices(name))

    def check(info: NodeInfo) -> Reasons | None:
        if len(info.pods) + 1 > info.allowed_pods:
            return _TOO_MANY_PODS
        allocatable, requested = info.allocatable, info.requested
        for name, value in wanted:
            if value > allocatable.get(name, 0) - requested.get(name, 0):
                return _lacking(info)
        return None

    def check_with_devices(info: NodeInfo) -> Reasons | None:
        if len(info.pods) + 1 > info.allowed_pods:
            return _TOO_MANY_PODS
        for name, value in wanted:
            if value > info.free(name) and not (name in from_devices and not info.allocatable.get(name)):
                return _lacking(info)
        return None

    def _lacking(info: NodeInfo) -> Reasons:
        lacking: list[Reasons] = []
        for name, value in wanted:
            if value <= info.free(name) or (name in from_devices and not info.allocatable.get(name)):
                continue
            # A node whose device plugin went goes on to say that it has 0: as little as one that never had one.
            known = info.allocatable.get(name) if is_extended(name) else name in info.allocatable or name in _NATIVE
            if known:
                lacking.append(because("ResourcesInsufficient", resource=name, needed=readable(name, value)))
            else:
                lacking.append(because("ResourceUnknown", resource=name))
        return tuple(reason for reasons in lacking for reason in reasons)

    return check_with_devices if from_devices else check


def _counted(demand: Demand, args: FitArgs) -> list[tuple[str, int]]:
    def ignored(name: str) -> bool:
        return is_extended(name) and (name in args.ignored_resources or name.partition("/")[0] in args.ignored_groups)

    return [(name, value) for name, value in demand.requests if value and not ignored(name)]


# -------------------------------------------------------------------------------------------------------------- scores


def from_devices(demand: Demand, resources: tuple[ResourceWeight, ...], offers_devices: OffersDevices) -> frozenset[str]:
    """The resources among those to be scored that the pod asks for and that devices may provide."""
    wanted = {name for name, value in demand.requests if value and is_extended(name) and offers_devices(name)}
    return frozenset(weight.name for weight in resources if weight.name in wanted)


def allocation_score(demand: Demand, args: FitArgs, offers_devices: OffersDevices, devices_of: DevicesOf) -> Measure:
    """Least, most or shaped use of the resources that the arguments name, weighted."""
    by_devices = from_devices(demand, args.resources, offers_devices)
    wanted = tuple((weight.name, weight.weight, _demanded(demand, weight.name)) for weight in args.resources)
    # An extended resource that the pod does not ask for says nothing about the node.
    wanted = tuple(entry for entry in wanted if entry[2] or entry[0] in _NATIVE)
    rate = _RATES[args.strategy](args.shape)

    def measure(info: NodeInfo) -> int:
        score = weights = 0
        usage, requested, allocatable = info.usage, info.requested, info.allocatable
        for name, weight, more in wanted:
            total = allocatable.get(name, 0)
            used = usage[name] if name in usage else requested.get(name, 0)
            if total <= 0 and name in by_devices:
                total, used = devices_of(name, info.name)
            if total <= 0:
                continue
            used += more
            score += rate(used, total) * weight
            weights += weight
        return score // weights if weights else 0

    return measure


def _demanded(demand: Demand, name: str) -> int:
    if name in ("cpu", "memory"):
        return demand.assumed.get(name, 0)
    return dict(demand.requests).get(name, 0)


def _least(_: tuple[Shape, ...]) -> Callable[[int, int], int]:
    return lambda used, total: (total - used) * MAX_SCORE // total if used <= total else 0


def _most(_: tuple[Shape, ...]) -> Callable[[int, int], int]:
    return lambda used, total: min(used, total) * MAX_SCORE // total


def _shaped(shape: tuple[Shape, ...]) -> Callable[[int, int], int]:
    points = [(point.utilization, point.score * 10) for point in shape]

    def rate(used: int, total: int) -> int:
        return _interpolate(points, MAX_SCORE if used > total else used * MAX_SCORE // total)

    return rate


def _interpolate(points: list[tuple[int, int]], at: int) -> int:
    for index, (x, y) in enumerate(points):
        if at <= x:
            if index == 0:
                return y
            before_x, before_y = points[index - 1]
            return before_y + (y - before_y) * (at - before_x) // (x - before_x)
    return points[-1][1]


_RATES: Final[Mapping[str, Callable[[tuple[Shape, ...]], Callable[[int, int], int]]]] = {
    "LeastAllocated": _least,
    "MostAllocated": _most,
    "RequestedToCapacityRatio": _shaped,
}


def balance_score(
    demand: Demand, resources: tuple[ResourceWeight, ...], offers_devices: OffersDevices, devices_of: DevicesOf
) -> Measure | None:
    """How alike the fractions of the resources in use would be; nothing to say for pods that ask for none of them."""
    wanted = tuple((weight.name, dict(demand.requests).get(weight.name, 0)) for weight in resources)
    if not any(more for _, more in wanted):
        return None
    by_devices = from_devices(demand, resources, offers_devices)

    def measure(info: NodeInfo) -> int:
        fractions = []
        for name, more in wanted:
            total, used = info.allocatable.get(name, 0), info.requested.get(name, 0)
            if total <= 0 and name in by_devices:
                total, used = devices_of(name, info.name)
            if total > 0:
                fractions.append(min((used + more) / total, 1.0))
        return int((1 - _spread(fractions)) * MAX_SCORE)

    return measure


def _spread(fractions: list[float]) -> float:
    """The standard deviation; half the distance for two."""
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return abs(fractions[0] - fractions[1]) / 2
    mean = sum(fractions) / len(fractions)
    return float((sum((fraction - mean) ** 2 for fraction in fractions) / len(fractions)) ** 0.5)


# ---------------------------------------------------------------------------------------------------------- plugins


class NodeResourcesFit:
    name = "NodeResourcesFit"
    codes = codes_of(name)

    def __init__(self, offers_devices: OffersDevices, devices_of: DevicesOf) -> None:
        self._offers, self._devices_of = offers_devices, devices_of

    def compile(self, shape: PodShape) -> Compiled:
        demand, args = shape.demand, shape.profile.fit
        measure = None if _pulls_apart(shape) else allocation_score(demand, args, self._offers, self._devices_of)
        by_devices = from_devices(demand, args.resources, self._offers)
        return Compiled(["node", "devices"] if by_devices else ["node"], check=fit(demand, args, self._offers), measure=measure)


def _pulls_apart(shape: PodShape) -> bool:
    """Spreading by cpu and memory would undo the packing of devices, for the pods that need devices."""
    return shape.packs_devices and shape.profile.fit.strategy == "LeastAllocated"


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    codes = codes_of(name)

    def __init__(self, offers_devices: OffersDevices, devices_of: DevicesOf) -> None:
        self._offers, self._devices_of = offers_devices, devices_of

    def compile(self, shape: PodShape) -> Compiled | None:
        demand, resources = shape.demand, shape.profile.balanced
        measure = balance_score(demand, resources, self._offers, self._devices_of)
        if measure is None:
            return None
        by_devices = from_devices(demand, resources, self._offers)
        return Compiled(["node", "devices"] if by_devices else ["node"], measure=measure)
