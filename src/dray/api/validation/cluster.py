"""The other kinds: configuration, nodes, services, storage, priorities, leases, events."""

from __future__ import annotations

import base64
from typing import Any, Final

from dray.api import names
from dray.api.quantity import Quantity
from dray.api.validation.errors import (
    Errors,
    duplicate,
    forbidden,
    immutable,
    invalid,
    named,
    one_of,
    required,
    required_name,
    too_long,
)
from dray.api.validation.selectors import labels

Object = dict[str, Any]

MAX_DATA: Final = 1024 * 1024
MAX_USER_PRIORITY: Final = 1_000_000_000
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ACCESS: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_RECLAIM: Final = ("Delete", "Retain", "Recycle")
_BINDING: Final = ("Immediate", "WaitForFirstConsumer")
_AFFINITIES: Final = ("ClientIP", "None")
_SERVICES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PREEMPTION: Final = ("Never", "PreemptLowerPriority")


def _spec(obj: Object) -> Object:
    found: Object = obj.get("spec") or {}
    return found


# configuration


def config_map(obj: Object) -> Errors:
    texts, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", texts), ("binaryData", binary)):
        for key in values:
            yield from named(names.config_key, key, f"{field}[{key}]")
    for key in texts.keys() & binary.keys():
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    size = sum(len(value.encode()) for value in texts.values()) + sum(len(value) * 3 // 4 for value in binary.values())
    if size > MAX_DATA:
        yield too_long("", MAX_DATA)


def config_map_update(new: Object, old: Object) -> Errors:
    yield from _kept_when_immutable(new, old, ("data", "binaryData"))
    yield from config_map(new)


def secret(obj: Object) -> Errors:
    data = obj.get("data") or {}
    for key in data:
        yield from named(names.config_key, key, f"data[{key}]")
    if sum(len(base64.b64decode(value)) for value in data.values()) > MAX_DATA:
        yield too_long("data", MAX_DATA)


def secret_update(new: Object, old: Object) -> Errors:
    yield from immutable(new.get("type"), old.get("type"), "type")
    yield from _kept_when_immutable(new, old, ("data",))
    yield from secret(new)


def _kept_when_immutable(new: Object, old: Object, fields: tuple[str, ...]) -> Errors:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield forbidden(field, "field is immutable when `immutable` is set")


# nodes


def node(obj: Object) -> Errors:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(_spec(obj).get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        yield from required_name(names.qualified_name, key, f"{path}.key")
        yield from named(names.label_value, taint.get("value") or "", f"{path}.value")
        yield from one_of(effect, _TAINT_EFFECTS, f"{path}.effect")
        if (key, effect) in seen:
            yield duplicate(path, taint)._replace(detail="taints must be unique by key and effect pair")
        seen.add((key, effect))
    yield from _amounts((obj.get("status") or {}).get("capacity"), "status.capacity")
    yield from _amounts((obj.get("status") or {}).get("allocatable"), "status.allocatable")


def _amounts(amounts: dict[str, str] | None, path: str) -> Errors:
    for name, amount in (amounts or {}).items():
        yield from named(names.qualified_name, name, f"{path}.{name}")
        if Quantity.parse(amount).nanos < 0:
            yield invalid(f"{path}.{name}", amount, "must be greater than or equal to 0")


# services


def service(obj: Object) -> Errors:
    spec = _spec(obj)
    headless_or_external = spec.get("clusterIP") == "None" or spec.get("type") == "ExternalName"
    yield from one_of(spec.get("type"), _SERVICES, "spec.type")
    ports = spec.get("ports") or []
    if not ports and not headless_or_external:
        yield required("spec.ports")
    if spec.get("type") == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    seen: set[str] = set()
    for index, port in enumerate(ports):
        yield from _service_port(port, f"spec.ports[{index}]", alone=len(ports) == 1, seen=seen)
    yield from labels(spec.get("selector"), "spec.selector")
    yield from one_of(spec.get("sessionAffinity"), _AFFINITIES, "spec.sessionAffinity", optional=True)


def _service_port(port: Object, path: str, *, alone: bool, seen: set[str]) -> Errors:
    name, number = port.get("name") or "", port.get("port") or 0
    if name:
        yield from named(names.label, name, f"{path}.name")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
    elif not alone:
        yield required(f"{path}.name")
    if not 1 <= number <= 65535:
        yield invalid(f"{path}.port", number, "must be between 1 and 65535, inclusive")
    target = port.get("targetPort")
    if isinstance(target, str):
        yield from named(names.port_name, target, f"{path}.targetPort")
    elif target and not 1 <= target <= 65535:
        yield invalid(f"{path}.targetPort", target, "must be between 1 and 65535, inclusive")
    yield from one_of(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{path}.protocol")


# storage


def volume(obj: Object) -> Errors:
    spec = _spec(obj)
    yield from _access_modes(spec)
    if not spec.get("capacity"):
        yield required("spec.capacity")
    yield from _amounts(spec.get("capacity"), "spec.capacity")
    yield from one_of(spec.get("persistentVolumeReclaimPolicy"), _RECLAIM, "spec.persistentVolumeReclaimPolicy", optional=True)
    if spec.get("hostPath") is not None and not spec["hostPath"].get("path"):
        yield required("spec.hostPath.path")


def volume_claim(obj: Object) -> Errors:
    spec = _spec(obj)
    yield from _access_modes(spec)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield required("spec.resources[storage]")
    elif Quantity.parse(storage).nanos <= 0:
        yield invalid("spec.resources[storage]", storage, "must be greater than zero")


def _access_modes(spec: Object) -> Errors:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from one_of(mode, _ACCESS, "spec.accessModes")


def volume_claim_update(new: Object, old: Object) -> Errors:
    """Once created, a claim can only be bound and grow."""
    after, before = dict(_spec(new)), dict(_spec(old))
    changing = ("resources", "volumeAttributesClassName") + (() if before.get("volumeName") else ("volumeName",))
    for field in changing:
        after.pop(field, None)
        before.pop(field, None)
    if not before.get("storageClassName") and before.get("storageClassName") is None:
        after.pop("storageClassName", None)  # the default class may be filled in later
    if after != before:
        words = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        yield forbidden("spec", words)
    yield from volume_claim(new)


def storage_class(obj: Object) -> Errors:
    if not obj.get("provisioner"):
        yield required("provisioner")
    else:
        yield from named(names.qualified_name, obj["provisioner"].lower(), "provisioner")
    yield from one_of(obj.get("reclaimPolicy"), _RECLAIM[:2], "reclaimPolicy")
    yield from one_of(obj.get("volumeBindingMode"), _BINDING, "volumeBindingMode")


def storage_class_update(new: Object, old: Object) -> Errors:
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        if new.get(field) != old.get(field):
            yield forbidden(field, f"updates to {field} are forbidden.")
    yield from storage_class(new)


# priorities, leases, events


def priority_class(obj: Object) -> Errors:
    value = obj.get("value") or 0
    name = (obj.get("metadata") or {}).get("name") or ""
    if value > MAX_USER_PRIORITY and not name.startswith("system-"):
        words = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        yield forbidden("value", words)
    yield from one_of(obj.get("preemptionPolicy"), _PREEMPTION, "preemptionPolicy", optional=True)


def priority_class_update(new: Object, old: Object) -> Errors:
    if (new.get("value") or 0) != (old.get("value") or 0):
        yield forbidden("value", "may not be changed in an update.")
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        yield invalid("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable")
    yield from priority_class(new)


def lease(obj: Object) -> Errors:
    spec = _spec(obj)
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def event(obj: Object) -> Errors:
    """An event lies in the namespace of what it is about; cluster-scoped things are told about in ``default``."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    path = "involvedObject" if "involvedObject" in obj else "regarding"
    namespace = (obj.get("metadata") or {}).get("namespace") or ""
    if about.get("namespace"):
        if about["namespace"] != namespace:
            yield invalid(f"{path}.namespace", about["namespace"], "does not match event.namespace")
    elif namespace not in ("", "default", "kube-system"):
        yield invalid(f"{path}.namespace", about.get("namespace") or "", "does not match event.namespace")
