"""Which prepared devices a container of a pod sees, and how they are.

A container sees the devices of the claims that it names, or of one request of them, and those that stand for the extended
resources that it asks for. Init containers are containers here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dray.api.core import Container, Pod
from dray.api.quantity import Quantity
from dray.nodes.drivers import Health, PreparedDevice
from dray.nodes.preparing import Entry

HealthOf = Callable[[str, str, str], Health | None]  # driver, pool, device
MESSAGE_MAX = 1024


def devices(pod: Pod, container: Container, entries: Mapping[str, Entry]) -> list[tuple[str, PreparedDevice]]:
    """(driver, device) for each device that the container sees. ``entries`` by the claim's name in the pod."""
    found: list[tuple[str, PreparedDevice]] = []
    for wanted in container.resources.claims:
        if (entry := entries.get(wanted.name)) is not None:
            found += _of_request(entry, wanted.request)
    extended = pod.status.extended_resource_claim_status
    if extended is not None and (entry := entries.get("")) is not None:
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name and _asks(container, mapping.resource_name):
                found += _of_request(entry, mapping.request_name)
    return found


def cdi_ids(pod: Pod, container: Container, entries: Mapping[str, Entry]) -> list[str]:
    """What the container runtime would be given."""
    return [name for _, device in devices(pod, container, entries) for name in device.cdi_ids]


def uses(pod: Pod, container: Container) -> list[str]:
    """The claims of the pod that concern a container, by their names in the pod."""
    named = [wanted.name for wanted in container.resources.claims]
    extended = pod.status.extended_resource_claim_status
    if extended is not None and any(mapping.container_name == container.name for mapping in extended.request_mappings):
        named.append("")
    return list(dict.fromkeys(named))


def health(container: Container, entries: Mapping[str, Entry], of: HealthOf) -> list[dict[str, Any]]:
    """``allocatedResourcesStatus``: as upstream, for claims that the container names, not for extended resources."""
    told = []
    for wanted in container.resources.claims:
        if (entry := entries.get(wanted.name)) is None:
            continue
        units: dict[str, dict[str, Any]] = {}
        for driver, device in _of_request(entry, wanted.request):
            name = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
            units.setdefault(name, {"resourceID": name, **_health(of(driver, device.pool, device.device))})
        name = f"claim:{wanted.name}/{wanted.request}" if wanted.request else f"claim:{wanted.name}"
        told.append({"name": name, "resources": list(units.values())})
    return told


def every(pod: Pod) -> Sequence[Container]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _of_request(entry: Entry, request: str) -> Iterator[tuple[str, PreparedDevice]]:
    for driver, state in entry.drivers.items():
        for device in state.devices:
            if not request or not device.requests or request in device.requests:
                yield driver, device


def _asks(container: Container, resource: str) -> bool:
    amount = container.resources.requests.get(resource, container.resources.limits.get(resource, 0))
    return Quantity.parse(amount).value > 0


def _health(found: Health | None) -> dict[str, str]:
    if found is None:
        return {"health": "Unknown"}
    if not found.message:
        return {"health": found.status}
    message = found.message if len(found.message) <= MESSAGE_MAX else found.message[: MESSAGE_MAX - 3] + "..."
    return {"health": found.status, "message": message}
