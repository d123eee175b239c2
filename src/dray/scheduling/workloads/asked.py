"""What pods take of their queues: of nodes each by itself, of devices through claims.

Always true: a claim counts once, however many pods use it. What is allocated counts as it is; what is not yet counts as the most
that it can become, so that no limit is exceeded: the largest of alternatives, and for ``allocationMode: All`` the devices of
the node, or of the node that has most while there is none. What only looks at devices (admin access) takes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from dray.api.kinds import NODES
from dray.api.resource import DeviceRequest, DeviceSubRequest, ResourceClaim
from dray.cluster.world import World
from dray.devices import Devices
from dray.scheduling.shape.claims import requests

GPU: Final = "gpu"
# The class of NVIDIA's driver counts as a GPU in a queue.
GPU_CLASS: Final = "gpu.nvidia.com"
CLASS_PREFIX: Final = "deviceclass/"

Amounts = dict[str, float]


class Asked(NamedTuple):
    """What a pod takes by itself, and by claim (uid) what it takes together with whoever else uses the claim."""

    own: Amounts
    claims: dict[str, Amounts]


def together(asked: Iterable[Asked], held: Container[str] = ()) -> Amounts:
    """What several pods take in all; claims that are ``held`` cost nothing more."""
    found: Amounts = {}
    seen: set[str] = set()
    for each in asked:
        add(found, each.own)
        for uid, amounts in each.claims.items():
            if uid not in held and uid not in seen:
                seen.add(uid)
                add(found, amounts)
    return found


def add(into: Amounts, amounts: Amounts, sign: float = 1.0) -> None:
    for name, value in amounts.items():
        if value or name not in into:
            into[name] = into.get(name, 0.0) + sign * value


def resource_of(device_class: str) -> str:
    """What devices of a class are in a queue."""
    return GPU if device_class == GPU_CLASS else CLASS_PREFIX + device_class


class DevicesAsked:
    """How much claims take."""

    def __init__(self, world: World, engine: Devices) -> None:
        self._world, self._engine = world, engine
        self._most: dict[str, int] = {}

    def look_again(self) -> None:
        """Devices may have come or gone."""
        self._most.clear()

    def in_all(self, device_class: str) -> int:
        nodes = self._world.all(NODES).values()
        return sum(self._engine.in_class(node.metadata.name, device_class)[0] for node in nodes)

    def of(self, claim: ResourceClaim, node: str, counted: Container[str]) -> Amounts:
        """Of what is ``counted``; ``node``: where its pod is, or empty."""
        allocation = claim.status.allocation
        if allocation is None:
            found: Amounts = {}
            for request in claim.spec.devices.requests:
                add(found, self._at_most(request, node))
        else:
            classes = {name: each.device_class_name for name, each in requests(claim)}
            given = [classes.get(each.request, "") for each in allocation.devices.results if not each.admin_access]
            found = {}
            for name in given:
                add(found, {resource_of(name): 1.0})
        return {name: value for name, value in found.items() if name == GPU or name in counted}

    def _at_most(self, request: DeviceRequest, node: str) -> Amounts:
        if request.exactly is not None:
            return {} if request.exactly.admin_access else self._of_one(request.exactly, node)
        found: Amounts = {}
        for each in request.first_available:
            for name, value in self._of_one(each, node).items():
                found[name] = max(found.get(name, 0.0), value)
        return found

    def _of_one(self, request: DeviceSubRequest, node: str) -> Amounts:
        kind = request.device_class_name
        if request.allocation_mode == "All":
            count = self._engine.in_class(node, kind)[0] if node else self._most_of(kind)
        else:
            count = max(1, request.count)
        return {resource_of(kind): float(count)}

    def _most_of(self, device_class: str) -> int:
        if device_class not in self._most:
            nodes = self._world.all(NODES).values()
            counts = (self._engine.in_class(node.metadata.name, device_class)[0] for node in nodes)
            self._most[device_class] = max(counts, default=0)
        return self._most[device_class]
