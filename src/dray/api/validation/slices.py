"""ResourceSlices: what drivers publish.

Parts of a device that are stored already and did not change are not checked again, so that a driver can update a slice that was
accepted under older rules.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api import names
from dray.api.gates import Gates
from dray.api.quantity import Quantity
from dray.api.validation.binding import binding_conditions, skipped_operations
from dray.api.validation.capacity import capacity
from dray.api.validation.device_names import attribute_name, device_name, driver_name, full_attribute_name, pool_name
from dray.api.validation.errors import (
    Errors,
    FieldError,
    each,
    each_of_map,
    immutable,
    invalid,
    longest,
    named,
    not_found,
    required,
    unique,
)
from dray.api.validation.selectors import node_selector
from dray.api.validation.taints import MAX_TAINTS, taint

Object = dict[str, Any]

MAX_DEVICES: Final = 128
MAX_DEVICES_ADVANCED: Final = 64
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMPTIONS: Final = 2
MAX_GROUPS: Final = 2
MAX_ATTRIBUTES_AND_CAPACITIES: Final = 32
MAX_ATTRIBUTE_VALUES: Final = 48
MAX_ATTRIBUTE_LENGTH: Final = 64
_LISTS: Final = ("ints", "bools", "strings", "versions")
_VALUES: Final = ("int", "bool", "string", "version", *_LISTS)
_ATTRIBUTE_KINDS: Final = ", ".join(f"`{kind}`" for kind in _VALUES)
_SLICE_NODES: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_NODES: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)


def resource_slice(obj: Object, old: Object | None, gates: Gates) -> Errors:
    spec = obj.get("spec") or {}
    before = (old.get("spec") or {}) if old is not None else None
    yield from driver_name(spec.get("driver"), "spec.driver")
    yield from _pool(spec.get("pool") or {}, "spec.pool")
    if before is not None:
        yield from _unchanged(spec, before)
    yield from _slice_nodes(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _devices(spec, before, gates)
    counter_sets = spec.get("sharedCounters")
    yield from each(counter_sets, MAX_COUNTER_SETS, "spec.sharedCounters", _counter_set)
    yield from unique(counter_sets, "spec.sharedCounters", lambda item: item.get("name"), MAX_COUNTER_SETS)
    if spec.get("partitionTypeAttribute") is not None:
        yield from _partition_type(spec)
    yield from skipped_operations(spec.get("skipNodeOperations"), "spec.skipNodeOperations")


def _unchanged(spec: Object, before: Object) -> Errors:
    yield from immutable((spec.get("pool") or {}).get("name"), (before.get("pool") or {}).get("name"), "spec.pool.name")
    yield from immutable(spec.get("driver"), before.get("driver"), "spec.driver")
    yield from immutable(spec.get("nodeName"), before.get("nodeName"), "spec.nodeName")


def _pool(pool: Object, path: str) -> Errors:
    yield from pool_name(pool.get("name"), f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid(f"{path}.generation", generation, "must be greater than or equal to zero")


# which nodes


def _slice_nodes(spec: Object) -> Errors:
    errors, given = _node_fields(spec, "spec", "must be either unset or set to a non-empty string")
    yield from errors
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if spec.get("nodeSelector") is not None and len(terms) != 1:
        yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
    if spec.get("perDeviceNodeSelection"):
        given.append("`perDeviceNodeSelection`")
    elif spec.get("perDeviceNodeSelection") is False:
        yield invalid("spec.perDeviceNodeSelection", False, "must be either unset or set to true")
    if not given:
        yield required("spec", _SLICE_NODES)
    elif len(given) > 1:
        yield invalid("spec", "{" + ", ".join(given) + "}", f"{_SLICE_NODES}, but multiple fields are set")


def _node_fields(owner: Object, path: str, empty_name: str) -> tuple[list[FieldError], list[str]]:
    """What is wrong with nodeName, nodeSelector and allNodes, and which of them are given."""
    errors: list[FieldError] = []
    given: list[str] = []
    name, selector, every = owner.get("nodeName"), owner.get("nodeSelector"), owner.get("allNodes")
    if name:
        given.append("`nodeName`")
        errors += named(names.subdomain, name, f"{path}.nodeName")
    elif name is not None:
        errors.append(invalid(f"{path}.nodeName", name, empty_name))
    if selector is not None:
        given.append("`nodeSelector`")
        errors += node_selector(selector, f"{path}.nodeSelector")
    if every:
        given.append("`allNodes`")
    elif every is not None:
        errors.append(invalid(f"{path}.allNodes", every, "must be either unset or set to true"))
    return errors, given


def _device_nodes(device: Object, path: str, *, per_device: bool) -> Errors:
    if not per_device:
        if any(device.get(field) is not None for field in ("nodeName", "nodeSelector", "allNodes")):
            words = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true"
            yield invalid(path, None, f"{words} in the ResourceSlice spec")
        return
    errors, given = _node_fields(device, path, "must not be empty")
    yield from errors
    if not given:
        yield required(path, _DEVICE_NODES)
    elif len(given) > 1:
        yield invalid(path, "{" + ", ".join(given) + "}", _DEVICE_NODES)


# devices


def _devices(spec: Object, before: Object | None, gates: Gates) -> Errors:
    devices = spec.get("devices") or []
    limit = MAX_DEVICES_ADVANCED if any(map(_is_advanced, devices)) else MAX_DEVICES
    old = {device.get("name"): device for device in (before or {}).get("devices") or ()}
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def check(device: Object, path: str) -> Errors:
        return _device(device, old.get(device.get("name")), path, per_device, gates)

    yield from each(devices, limit, "spec.devices", check)
    yield from unique(devices, "spec.devices", lambda device: device.get("name"), limit)


def _is_advanced(device: Object) -> bool:
    """Features that make devices large halve the number that fits in a slice."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(attribute.get(kind) is not None for attribute in (device.get("attributes") or {}).values() for kind in _LISTS)


def _device(device: Object, old: Object | None, path: str, per_device: bool, gates: Gates) -> Errors:
    yield from device_name(device.get("name"), f"{path}.name")
    yield from _sizes(device, path)
    yield from each_of_map(device.get("attributes"), None, f"{path}.attributes", attribute_name, _attribute)
    if old is None or old.get("capacity") != device.get("capacity"):
        shared = bool(device.get("allowMultipleAllocations"))

        def check(value: Object, place: str) -> Errors:
            return capacity(value, place, shared=shared, gates=gates)

        yield from each_of_map(device.get("capacity"), None, f"{path}.capacity", attribute_name, check)
    if old is None or old.get("taints") != device.get("taints"):
        yield from each(device.get("taints"), MAX_TAINTS, f"{path}.taints", lambda item, at: taint(item, None, at))
    consumed = device.get("consumesCounters")
    yield from each(consumed, MAX_CONSUMPTIONS, f"{path}.consumesCounters", _consumption)
    yield from unique(consumed, f"{path}.consumesCounters", lambda item: item.get("counterSet"), MAX_CONSUMPTIONS)
    yield from _device_nodes(device, path, per_device=per_device)
    yield from binding_conditions(device, path)
    yield from _node_resources(device, f"{path}.nodeAllocatableResources")


def _sizes(device: Object, path: str) -> Errors:
    attributes = device.get("attributes") or {}
    total = len(attributes) + len(device.get("capacity") or {})
    if total > MAX_ATTRIBUTES_AND_CAPACITIES:
        words = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        yield invalid(path, total, words)
    values = sum(max(1, sum(len(attribute.get(kind) or ()) for kind in _LISTS)) for attribute in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        yield invalid(path, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}")


def _attribute(attribute: Object, path: str) -> Errors:
    given = [kind for kind in _VALUES if attribute.get(kind) is not None]
    for kind in given:
        value = attribute[kind]
        if kind in _LISTS and not value:
            yield invalid(f"{path}.{kind}", value, "must not be empty if specified")
        elif kind in ("string", "version"):
            yield from _text(value, f"{path}.{kind}", version=kind == "version")
        elif kind in ("strings", "versions"):
            for index, text in enumerate(value):
                yield from _text(text, f"{path}.{kind}[{index}]", version=kind == "versions")
    if len(given) != 1:
        shown = "{" + ", ".join(given) + "}" if given else ""
        yield invalid(path, shown, f"must specify {'exactly one' if given else 'one'} of: {_ATTRIBUTE_KINDS}")


def _text(value: str, path: str, *, version: bool) -> Errors:
    if version and not names.is_semver(value):
        yield invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    yield from longest(value, MAX_ATTRIBUTE_LENGTH, path)


# counters


def counter_name(name: str, path: str) -> Errors:
    yield from named(names.label, name, path)


def _counter_set(counter_set: Object, path: str) -> Errors:
    yield from _set_name(counter_set.get("name"), f"{path}.name")
    yield from _counters(counter_set.get("counters"), f"{path}.counters")


def _consumption(consumption: Object, path: str) -> Errors:
    yield from _set_name(consumption.get("counterSet"), f"{path}.counterSet")
    yield from _counters(consumption.get("counters"), f"{path}.counters")
    yield from compatibility_groups(consumption.get("compatibilityGroups"), f"{path}.compatibilityGroups")


def _set_name(name: str | None, path: str) -> Errors:
    if not name:
        yield required(path)
    else:
        yield from counter_name(name, path)


def _counters(counters: dict[str, Object] | None, path: str) -> Errors:
    if not counters:
        yield required(path)
    yield from each_of_map(counters, MAX_COUNTERS, path, counter_name, lambda item, at: ())


def compatibility_groups(groups: list[str] | None, path: str) -> Errors:
    yield from each(groups, MAX_GROUPS, path, lambda item, at: named(names.label, item, at))
    yield from unique(groups, path, lambda item: item, MAX_GROUPS)


def _partition_type(spec: Object) -> Errors:
    """Devices that consume counters say of which type they are, in the attribute that the slice names."""
    name, path = spec["partitionTypeAttribute"], "spec.partitionTypeAttribute"
    wrong = list(full_attribute_name(name, path))
    devices = spec.get("devices") or []
    if not any(device.get("consumesCounters") for device in devices):
        yield invalid(path, name, "may only be set on a slice which declares devices that consume counters")
    yield from wrong
    if wrong:
        return
    bare = name.removeprefix(f"{spec.get('driver')}/")
    for index, device in enumerate(devices):
        if not device.get("consumesCounters"):
            continue
        attributes = device.get("attributes") or {}
        found, place = attributes.get(name, attributes.get(bare)), f"spec.devices[{index}].attributes[{name}]"
        if found is None:
            words = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            yield required(place, words)
        elif found.get("string") is None:
            yield invalid(place, found, "must be a string value because `partitionTypeAttribute` names this attribute")


# node resources that devices stand for


def _node_resources(device: Object, path: str) -> Errors:
    for name, resource in (device.get("nodeAllocatableResources") or {}).items():
        place = f"{path}[{name}]"
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            yield invalid(place, name, "must be a node allocatable resource name")
        mapping, overhead = resource.get("mapping"), resource.get("overhead")
        if mapping is None and overhead is None:
            yield required(place, "at least one of mapping or overhead must be set")
        if mapping is not None:
            yield from _mapping(mapping, device.get("capacity") or {}, f"{place}.mapping")
        if overhead is not None:
            yield from _overhead(overhead, f"{place}.overhead")


def _mapping(mapping: Object, capacities: Object, path: str) -> Errors:
    key, factor, devices = mapping.get("capacityKey"), mapping.get("capacityMultiplier"), mapping.get("deviceMultiplier")
    if key == "":
        yield invalid(f"{path}.capacityKey", "", "capacityKey must not be an empty string")
    elif key is not None and key not in capacities:
        yield not_found(f"{path}.capacityKey", key)
    if key is not None and factor is None:
        yield required(f"{path}.capacityMultiplier", "capacityMultiplier is required when capacityKey is set")
    if key is None and factor is not None:
        yield required(f"{path}.capacityKey", "capacityKey is required when capacityMultiplier is set")
    for field, amount in (("capacityMultiplier", factor), ("deviceMultiplier", devices)):
        if amount is not None and Quantity.parse(amount).nanos <= 0:
            yield invalid(f"{path}.{field}", str(amount), "must be positive")


def _overhead(overhead: Object, path: str) -> Errors:
    given = {field: overhead[field] for field in ("perPod", "perContainer") if overhead.get(field) is not None}
    if not given:
        yield invalid(path, "", "at least one of perPod or perContainer must be set")
    for field, amount in given.items():
        if Quantity.parse(amount).nanos < 0:
            yield invalid(f"{path}.{field}", str(amount), "must be non-negative")
