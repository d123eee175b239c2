"""ResourceClaims, their templates, and DeviceClasses: what users write.

The spec of a claim and of a template never changes after creation, so an update is checked for that alone.
"""

from __future__ import annotations

import json
from typing import Any, Final

from dray.api import names
from dray.api.gates import Gates
from dray.api.resource import ADMIN_ACCESS_LABEL
from dray.api.validation.device_names import device_name, driver_name, full_attribute_name
from dray.api.validation.errors import (
    Errors,
    each,
    forbidden,
    immutable,
    invalid,
    named,
    not_supported,
    required,
    required_name,
    too_long,
    unique,
)
from dray.api.validation.expressions import MAX_COST, Costs, expression
from dray.api.validation.selectors import annotation_keys, labels
from dray.api.validation.taints import requested_tolerations

Object = dict[str, Any]

MAX_REQUESTS: Final = 32
MAX_ALTERNATIVES: Final = 8
MAX_SELECTORS: Final = 32
MAX_CONSTRAINTS: Final = 32
MAX_CONFIGS: Final = 32
MAX_DERIVED: Final = 32
MAX_PARAMETERS: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")
_ONE_VARIANT: Final = "exactly one of `exactly` or `firstAvailable` is required"
_REFERENCE: Final = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


class Requests:
    """The names that a claim's other fields may refer to: ``request`` and ``request/subrequest``."""

    def __init__(self, claim_spec: Object) -> None:
        self._names: dict[str, set[str]] = {}
        for request in (claim_spec.get("devices") or {}).get("requests") or ():
            self._names[request.get("name") or ""] = {sub.get("name") or "" for sub in request.get("firstAvailable") or ()}

    def has(self, reference: str) -> bool:
        request, slash, sub = reference.partition("/")
        return request in self._names and (not slash or sub in self._names[request])

    def reference(self, value: str, path: str) -> Errors:
        parts = value.split("/")
        if len(parts) <= 2:
            for part in parts:
                yield from named(names.label, part, path)
        if not self.has(value):
            yield invalid(path, value, _REFERENCE)

    def references(self, values: list[str] | None, path: str) -> Errors:
        yield from each(values, MAX_REQUESTS, path, self.reference)
        yield from unique(values, path, lambda value: value, MAX_REQUESTS)


# claims and templates


def claim(obj: Object, gates: Gates, namespace_labels: dict[str, str] | None) -> Errors:
    spec = obj.get("spec") or {}
    yield from claim_spec(spec, "spec", gates)
    yield from _admin_access(spec, "spec", namespace_labels)


def claim_update(new: Object, old: Object) -> Errors:
    yield from immutable(new.get("spec"), old.get("spec"), "spec")


def template(obj: Object, gates: Gates, namespace_labels: dict[str, str] | None) -> Errors:
    spec = obj.get("spec") or {}
    metadata = spec.get("metadata") or {}
    yield from labels(metadata.get("labels"), "spec.metadata.labels")
    yield from annotation_keys(metadata.get("annotations"), "spec.metadata.annotations")
    yield from claim_spec(spec.get("spec") or {}, "spec.spec", gates)
    yield from _admin_access(spec.get("spec") or {}, "spec.spec", namespace_labels)


def claim_spec(spec: Object, path: str, gates: Gates) -> Errors:
    devices = spec.get("devices") or {}
    requests = Requests(spec)
    checks = _DeviceRequests(devices, gates)
    place = f"{path}.devices"
    yield from each(devices.get("requests"), MAX_REQUESTS, f"{place}.requests", checks.request)
    yield from unique(devices.get("requests"), f"{place}.requests", lambda item: item.get("name"), MAX_REQUESTS)
    yield from each(
        devices.get("constraints"),
        MAX_CONSTRAINTS,
        f"{place}.constraints",
        lambda item, at: _constraint(item, at, requests, gates),
    )
    yield from each(devices.get("config"), MAX_CONFIGS, f"{place}.config", lambda item, at: _claim_config(item, at, requests))
    if checks.costs.total > MAX_COST:
        yield forbidden(place, "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit")


def _admin_access(spec: Object, path: str, namespace_labels: dict[str, str] | None) -> Errors:
    """Admin access is for namespaces that an administrator has marked for it."""
    if (namespace_labels or {}).get(ADMIN_ACCESS_LABEL) == "true":
        return
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield admin_access_refused(f"{path}.devices.requests[{index}].adminAccess")


def admin_access_refused(path: str) -> Any:
    return forbidden(path, f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace")


class _DeviceRequests:
    """Checks requests, knowing which attributes the claim's constraints use and what derived attributes cost so far."""

    def __init__(self, devices: Object, gates: Gates) -> None:
        self.gates = gates
        self.costs = Costs()
        self._used: dict[str, set[str]] = {}
        for constraint in devices.get("constraints") or ():
            attribute = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
            for target in constraint.get("requests") or [""]:
                self._used.setdefault(target, set()).add(attribute)

    def request(self, request: Object, path: str) -> Errors:
        yield from device_name(request.get("name"), f"{path}.name")
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
        name = request.get("name") or ""
        if exactly is None and not alternatives:
            yield required(path, _ONE_VARIANT)
        elif exactly is not None and alternatives:
            yield invalid(path, None, f"{_ONE_VARIANT}, but multiple fields are set")
        if exactly is not None:
            yield from self._exact(exactly, f"{path}.exactly", name)
        place = f"{path}.firstAvailable"
        yield from each(alternatives, MAX_ALTERNATIVES, place, lambda item, at: self._alternative(item, at, name))
        yield from unique(alternatives, place, lambda item: item.get("name"), MAX_ALTERNATIVES)

    def _alternative(self, sub: Object, path: str, parent: str) -> Errors:
        yield from device_name(sub.get("name"), f"{path}.name")
        yield from self._exact(sub, path, f"{parent}/{sub.get('name') or ''}")

    def _exact(self, request: Object, path: str, reference: str) -> Errors:
        yield from required_name(names.subdomain, request.get("deviceClassName"), f"{path}.deviceClassName")
        yield from each(request.get("selectors"), MAX_SELECTORS, f"{path}.selectors", self._selector)
        derived = request.get("derivedAttributes")
        yield from each(derived, MAX_DERIVED, f"{path}.derivedAttributes", lambda item, at: self._derived(item, at, reference))
        yield from unique(derived, f"{path}.derivedAttributes", lambda item: item.get("name"), MAX_DERIVED)
        yield from _mode(request, path)
        yield from requested_tolerations(request, path)

    def _selector(self, selector: Object, path: str) -> Errors:
        yield from device_selector(selector, path, self.gates)

    def _derived(self, attribute: Object, path: str, reference: str) -> Errors:
        name = attribute.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        else:
            yield from full_attribute_name(name, f"{path}.name")
            targets = ("", reference, reference.partition("/")[0])
            if not any(name in self._used.get(target, ()) for target in targets):
                words = "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"
                yield invalid(f"{path}.name", name, words)
        yield from expression(attribute.get("expression") or "", f"{path}.expression", self.gates, self.costs)


def device_selector(selector: Object, path: str, gates: Gates) -> Errors:
    cel = selector.get("cel")
    if cel is None:
        yield required(f"{path}.cel")
    else:
        yield from expression(cel.get("expression") or "", f"{path}.cel.expression", gates)


def _mode(request: Object, path: str) -> Errors:
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All":
        if count != 0:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield not_supported(f"{path}.allocationMode", mode, _MODES)


def _constraint(constraint: Object, path: str, requests: Requests, gates: Gates) -> Errors:
    yield from requests.references(constraint.get("requests"), f"{path}.requests")
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is not None:
        yield from full_attribute_name(match, f"{path}.matchAttribute")
    if distinct is not None:
        yield from full_attribute_name(distinct, f"{path}.distinctAttribute")
    if match is not None or distinct is not None:
        return
    if gates("DRAConsumableCapacity"):
        yield required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required')
    else:
        yield required(f"{path}.matchAttribute")


def _claim_config(config: Object, path: str, requests: Requests) -> Errors:
    yield from requests.references(config.get("requests"), f"{path}.requests")
    yield from device_config(config, path)


def device_config(config: Object, path: str, *, stored: bool = False) -> Errors:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name(opaque.get("driver"), f"{path}.opaque.driver")
    yield from json_object(opaque.get("parameters"), f"{path}.opaque.parameters", stored=stored)


def json_object(value: Any, path: str, *, stored: bool = False) -> Errors:
    """A JSON object of at most 10 KiB; what was stored before the limit may stay."""
    if value is None:
        yield required(path)
    elif not stored and len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > MAX_PARAMETERS:
        yield too_long(path, MAX_PARAMETERS)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


# classes


def device_class(obj: Object, old: Object | None, gates: Gates) -> Errors:
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    selectors, config = spec.get("selectors"), spec.get("config")
    if old is None or selectors != before.get("selectors"):
        yield from each(selectors, MAX_SELECTORS, "spec.selectors", lambda item, at: device_selector(item, at, gates))
    stored = old is not None and config == before.get("config")
    yield from each(config, MAX_CONFIGS, "spec.config", lambda item, at: device_config(item, at, stored=stored))
    name = spec.get("extendedResourceName")
    if name is not None:
        yield from named(names.extended_resource, name, "spec.extendedResourceName")
