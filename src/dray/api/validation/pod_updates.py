"""Changes of pods: most of a pod's spec is fixed once it exists; its status follows the spec."""

from __future__ import annotations

import copy
from typing import Any, Final

from dray.api import names
from dray.api.validation.errors import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    longest,
    named,
    not_found,
    not_supported,
    one_of,
    required,
    required_name,
    unique,
)
from dray.api.validation.pods import MAX_SECONDS, images, pod_spec

Object = dict[str, Any]

_MUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CONTAINERS: Final = ("containers", "initContainers")
_HEALTH: Final = ("Healthy", "Unhealthy", "Unknown")
MAX_HEALTH_MESSAGE: Final = 1024


def pod_update(new: Object, old: Object) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    yield from pod_spec(spec, "spec")
    yield from images(spec)
    for field in _CONTAINERS:
        if len(spec.get(field) or ()) != len(before.get(field) or ()):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    yield from _deadline(spec, before)
    yield from _tolerations(spec, before)
    yield from _gates(spec, before)
    changed = _changed_fields(spec, before)
    if changed:
        yield forbidden("spec", f"{_MUTABLE}\nchanged: {', '.join(changed)}")


def _changed_fields(spec: Object, before: Object) -> list[str]:
    """The fixed fields that differ, once what may change is made equal."""
    after = copy.deepcopy(spec)
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _restore(after, before, field)
    for kind in _CONTAINERS:
        for container, had in zip(after.get(kind) or (), before.get(kind) or (), strict=True):
            _restore(container, had, "image")
    grace = before.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and after.get("terminationGracePeriodSeconds") == 1:
        after["terminationGracePeriodSeconds"] = grace
    if before.get("schedulingGates"):
        _restore_gated(after, before)
    return [f"spec.{field}" for field in sorted(after.keys() | before.keys()) if after.get(field) != before.get(field)]


def _restore(target: Object, source: Object, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _restore_gated(after: Object, before: Object) -> None:
    """While a pod is gated, where it may run can still be narrowed."""
    wanted, had = after.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if all(wanted.get(key) == value for key, value in had.items()):
        _restore(after, before, "nodeSelector")
    if not (before.get("affinity") or {}).get("nodeAffinity"):
        _restore(after, before, "affinity")


def _deadline(spec: Object, before: Object) -> Errors:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if new is None and old is not None:
        yield invalid("spec.activeDeadlineSeconds", new, f"must not update from a positive integer to nil value: {old}")
    elif new is not None and old is not None and old < new <= MAX_SECONDS:
        yield invalid("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")


def _tolerations(spec: Object, before: Object) -> Errors:
    new = [_without_seconds(toleration) for toleration in spec.get("tolerations") or ()]
    for old in before.get("tolerations") or ():
        if _without_seconds(old) not in new:
            yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
            return


def _without_seconds(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _gates(spec: Object, before: Object) -> Errors:
    had = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in had:
            words = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", words)


# status


def pod_status(new: Object, old: Object) -> Errors:
    spec, status = new.get("spec") or {}, new.get("status") or {}
    if spec.get("nodeName") != (old.get("spec") or {}).get("nodeName"):
        yield forbidden("status.nodeName", "may not be changed directly")
    if status.get("nominatedNodeName"):
        yield from named(names.subdomain, status["nominatedNodeName"], "status.nominatedNodeName")
    yield from _claim_statuses(status.get("resourceClaimStatuses"), spec)
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None:
        yield from _extended_claim(extended, spec, "status.extendedResourceClaimStatus")
    for field, kind in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        for index, container in enumerate(status.get(field) or ()):
            yield from _allocated(container, spec, kind, extended, f"status.{field}[{index}]")


def _claim_statuses(statuses: list[Object] | None, spec: Object) -> Errors:
    path = "status.resourceClaimStatuses"
    listed = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    for index, status in enumerate(statuses or ()):
        place = f"{path}[{index}]"
        if status.get("name") not in listed:
            yield invalid(f"{place}.name", status.get("name") or "", "must match the name of an entry in `spec.resourceClaims`")
        if status.get("resourceClaimName") is not None:
            yield from named(names.subdomain, status["resourceClaimName"], f"{place}.resourceClaimName")
    yield from unique(statuses, path, lambda status: status.get("name"))


def _extended_claim(extended: Object, spec: Object, path: str) -> Errors:
    """Which request of the special claim serves which container's extended resource."""
    yield from required_name(names.subdomain, extended.get("resourceClaimName"), f"{path}.resourceClaimName")
    mappings = extended.get("requestMappings") or []
    if not mappings:
        yield required(f"{path}.requestMappings", "at least one request mapping is required")
    found = {container.get("name"): container for kind in _CONTAINERS for container in spec.get(kind) or ()}
    seen: set[tuple[Any, ...]] = set()
    for index, mapping in enumerate(mappings):
        place = f"{path}.requestMappings[{index}]"
        key = tuple(mapping.get(field) or "" for field in ("containerName", "resourceName", "requestName"))
        container = found.get(key[0])
        if container is None:
            yield not_found(f"{place}.containerName", key[0])
        elif key[1] not in ((container.get("resources") or {}).get("requests") or {}):
            yield not_found(f"{place}.resourceName", key[1])
        yield from required_name(names.label, key[2], f"{place}.requestName")
        if key in seen:
            yield duplicate(place, "/".join(key))
        seen.add(key)


def _allocated(status: Object, spec: Object, kind: str, extended: Object | None, path: str) -> Errors:
    container: Object = next((c for c in spec.get(kind) or () if c.get("name") == status.get("name")), {})
    supported = _resource_names(container, extended)
    for index, allocated in enumerate(status.get("allocatedResourcesStatus") or ()):
        place = f"{path}.allocatedResourcesStatus[{index}]"
        if allocated.get("name") not in supported:
            yield not_supported(f"{place}.name", allocated.get("name") or "", sorted(supported))
        units = allocated.get("resources") or []
        for number, unit in enumerate(units):
            yield from _health(unit, f"{place}.resources[{number}]")
        for error in unique(units, f"{place}.resources", lambda unit: unit.get("resourceID")):
            yield error._replace(path=f"{error.path}.resourceID")


def _resource_names(container: Object, extended: Object | None) -> set[str]:
    listed = container.get("resources") or {}
    supported = set(listed.get("requests") or {}) | set(listed.get("limits") or {})
    for claim in listed.get("claims") or ():
        supported.add(f"claim:{claim.get('name')}" + (f"/{claim['request']}" if claim.get("request") else ""))
    for mapping in (extended or {}).get("requestMappings") or ():
        if mapping.get("containerName") == container.get("name"):
            supported.add(f"claim:{(extended or {}).get('resourceClaimName')}/{mapping.get('requestName')}")
    return supported


def _health(unit: Object, path: str) -> Errors:
    yield from one_of(unit.get("health"), _HEALTH, f"{path}.health", optional=True)
    message = unit.get("message")
    if message == "":
        yield required(f"{path}.message", "must be non-empty if set")
    yield from longest(message, MAX_HEALTH_MESSAGE, f"{path}.message")
