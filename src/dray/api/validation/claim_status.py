"""The status of a ResourceClaim: allocation, reservations, and what drivers report about devices.

Every status is checked against the one before: an allocation that is set can only be cleared, never changed.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from dray.api.resource import ADMIN_ACCESS_LABEL
from dray.api.validation.binding import binding_conditions, skipped_operations
from dray.api.validation.claims import Requests, admin_access_refused, device_config, json_object
from dray.api.validation.device_names import device_name, driver_name, pool_name, share_id
from dray.api.validation.errors import (
    Errors,
    each,
    each_of_map,
    forbidden,
    immutable,
    invalid,
    longest,
    one_of,
    required,
    too_many,
    unique,
)
from dray.api.validation.selectors import conditions, node_selector
from dray.api.validation.slices import compatibility_groups, counter_name
from dray.api.validation.taints import tolerations

Object = dict[str, Any]
DeviceId = tuple[Any, ...]

MAX_RESERVED: Final = 256
MAX_RESULTS: Final = 32
MAX_CONFIGS: Final = 64
MAX_CONDITIONS: Final = 8
MAX_IPS: Final = 16
MAX_INTERFACE_NAME: Final = 256
MAX_HARDWARE_ADDRESS: Final = 128
MAX_COUNTER_SETS: Final = 2
_SOURCES: Final = ("FromClaim", "FromClass")


def claim_status(new: Object, old: Object, namespace_labels: dict[str, str] | None) -> Errors:
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation, allocated_before = status.get("allocation"), before.get("allocation")
    yield from _reservations(status, before, deleted=bool((new.get("metadata") or {}).get("deletionTimestamp")))
    yield from _device_statuses(status.get("devices"), allocation)
    if allocation is None:
        return
    if allocated_before is not None:
        yield from immutable(allocation, allocated_before, "status.allocation")
        return
    yield from _allocation(allocation, Requests(new.get("spec") or {}), "status.allocation")
    yield from _admin_access(allocation, namespace_labels)


# reservations


def _reservations(status: Object, before: Object, *, deleted: bool) -> Errors:
    reserved, path = status.get("reservedFor") or [], "status.reservedFor"
    yield from each(reserved, MAX_RESERVED, path, _consumer)
    yield from unique(reserved, path, lambda item: item.get("uid"), MAX_RESERVED)
    if not reserved:
        return
    if status.get("allocation") is None:
        yield forbidden(path, "may not be specified when `allocated` is not set")
    elif deleted and any(consumer not in (before.get("reservedFor") or []) for consumer in reserved):
        yield forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")


def _consumer(consumer: Object, path: str) -> Errors:
    for field in ("resource", "name", "uid"):
        if not consumer.get(field):
            yield required(f"{path}.{field}")


# allocation


def _allocation(allocation: Object, requests: Requests, path: str) -> Errors:
    devices = allocation.get("devices") or {}
    yield from each(devices.get("results"), MAX_RESULTS, f"{path}.devices.results", lambda item, at: _result(item, at, requests))
    yield from each(devices.get("config"), MAX_CONFIGS, f"{path}.devices.config", lambda item, at: _config(item, at, requests))
    if allocation.get("nodeSelector") is not None:
        yield from node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")


def _result(result: Object, path: str, requests: Requests) -> Errors:
    yield from requests.reference(result.get("request") or "", f"{path}.request")
    yield from driver_name(result.get("driver"), f"{path}.driver")
    yield from pool_name(result.get("pool"), f"{path}.pool")
    yield from device_name(result.get("device"), f"{path}.device")
    yield from binding_conditions(result, path)
    yield from tolerations(result, path)
    if result.get("shareID") is not None:
        yield from share_id(result["shareID"], f"{path}.shareID")
    yield from skipped_operations(result.get("skipNodeOperations"), f"{path}.skipNodeOperations")
    yield from each_of_map(
        result.get("compatibilityGroups"), MAX_COUNTER_SETS, f"{path}.compatibilityGroups", counter_name, compatibility_groups
    )


def _config(config: Object, path: str, requests: Requests) -> Errors:
    yield from one_of(config.get("source"), _SOURCES, f"{path}.source")
    yield from requests.references(config.get("requests"), f"{path}.requests")
    yield from device_config(config, path)


def _admin_access(allocation: Object, namespace_labels: dict[str, str] | None) -> Errors:
    if namespace_labels is None or namespace_labels.get(ADMIN_ACCESS_LABEL) == "true":
        return
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("adminAccess"):
            yield admin_access_refused(f"status.allocation.devices.results[{index}].adminAccess")


# what drivers report


def device_id(entry: Object) -> DeviceId:
    return tuple(entry.get(field) or "" for field in ("driver", "pool", "device", "shareID"))


def _device_statuses(devices: list[Object] | None, allocation: Object | None) -> Errors:
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    allocated = {device_id(result) for result in results}
    yield from each(devices, None, "status.devices", lambda item, at: _device_status(item, at, allocated))
    yield from unique(devices, "status.devices", lambda item: "/".join(filter(None, device_id(item))))


def _device_status(device: Object, path: str, allocated: set[DeviceId]) -> Errors:
    yield from driver_name(device.get("driver"), f"{path}.driver")
    yield from pool_name(device.get("pool"), f"{path}.pool")
    yield from device_name(device.get("device"), f"{path}.device")
    if device.get("shareID") is not None:
        yield from share_id(device["shareID"], f"{path}.shareID")
    if device_id(device) not in allocated:
        yield invalid(path, "/".join(filter(None, device_id(device))), "must be an allocated device in the claim")
    found = device.get("conditions") or []
    if len(found) > MAX_CONDITIONS:
        yield too_many(f"{path}.conditions", len(found), MAX_CONDITIONS)
    yield from conditions(found, f"{path}.conditions")
    if device.get("data") is not None:
        yield from json_object(device["data"], f"{path}.data")
    yield from _network(device.get("networkData") or {}, f"{path}.networkData")


def _network(data: Object, path: str) -> Errors:
    yield from longest(data.get("interfaceName"), MAX_INTERFACE_NAME, f"{path}.interfaceName")
    yield from longest(data.get("hardwareAddress"), MAX_HARDWARE_ADDRESS, f"{path}.hardwareAddress")
    yield from each(data.get("ips"), MAX_IPS, f"{path}.ips", _interface_address)
    yield from unique(data.get("ips"), f"{path}.ips", lambda address: address, MAX_IPS)


def _interface_address(address: str, path: str) -> Errors:
    """``10.1.2.3/24``: an address with the length of its network, in canonical form."""
    try:
        if "/" not in address:
            raise ValueError
        parsed = ipaddress.ip_interface(address)
    except ValueError:
        yield invalid(path, address, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")
        return
    if str(parsed) != address:
        yield invalid(path, address, f'must be in canonical form ("{parsed}")')
