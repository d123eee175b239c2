"""Kinds in more than one version: one storage, a view for each older version.

A view is a pair of conversions between the version that a client speaks and the one that is stored. They work on parts of
objects too, so that an apply configuration can be converted. Nothing is lost on the way there and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dray.api import kinds as k
from dray.api.kinds import Kind
from dray.apiserver import autoscalers
from dray.apiserver.registry import Resource, View

Object = dict[str, Any]

# The fields that v1beta1 has in the request itself and v1 in ``exactly``.
_EXACTLY: Final = (
    "adminAccess",
    "allocationMode",
    "capacity",
    "count",
    "derivedAttributes",
    "deviceClassName",
    "selectors",
    "tolerations",
)
# What older versions of DeviceTaintRules have always allowed, and v1 does not: an update without the version that it changes, and
# the answer to a delete that shows what was deleted.
_AS_BEFORE: Final = {"unconditional_update": True, "returns_deleted": True}


def versioned(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    """The older versions of the kinds that have them, each a view of the stored one."""
    stored = {resource.kind.resource: resource for resource in resources}
    return tuple(
        _view(stored[kind.resource], version, *(_SHAPES.get((version, kind.plural)) or (_same, _same)))
        for version, kinds in _VERSIONS
        for kind in kinds
    )


def _view(resource: Resource, version: str, up: View, down: View) -> Resource:
    kind = Kind(resource.kind.group, version, resource.kind.plural, resource.kind.kind, resource.kind.namespaced)
    stored = resource.kind.api_version

    def to_stored(obj: Object) -> Object:
        return up(obj) | {"apiVersion": stored}

    def from_stored(obj: Object) -> Object:
        return down(obj) | {"apiVersion": kind.api_version}

    older = _AS_BEFORE if resource.kind == k.DEVICE_TAINT_RULES else {}
    views: dict[str, Any] = {"to_stored": to_stored, "from_stored": from_stored}
    return msgspec.structs.replace(resource, kind=kind, table=resource.storage, **views, **older)


def _same(obj: Object) -> Object:
    return obj


# ------------------------------------------------------------------------------------------------ resource.k8s.io/v1beta1


def _claim_up(claim: Object) -> Object:
    return _changed(claim, ("spec", "devices", "requests"), _request_up)


def _claim_down(claim: Object) -> Object:
    return _changed(claim, ("spec", "devices", "requests"), _request_down)


def _template_up(template: Object) -> Object:
    return _changed(template, ("spec", "spec", "devices", "requests"), _request_up)


def _template_down(template: Object) -> Object:
    return _changed(template, ("spec", "spec", "devices", "requests"), _request_down)


def _slice_up(slice: Object) -> Object:
    return _changed(slice, ("spec", "devices"), _device_up)


def _slice_down(slice: Object) -> Object:
    return _changed(slice, ("spec", "devices"), _device_down)


def _request_up(request: Object) -> Object:
    exactly = {field: request[field] for field in _EXACTLY if request.get(field) or request.get(field) is False}
    rest = {field: value for field, value in request.items() if field not in _EXACTLY}
    return rest | {"exactly": exactly} if exactly else rest


def _request_down(request: Object) -> Object:
    rest = {field: value for field, value in request.items() if field != "exactly"}
    return {"deviceClassName": ""} | rest | (request.get("exactly") or {})


def _device_up(device: Object) -> Object:
    rest = {field: value for field, value in device.items() if field != "basic"}
    return rest | (device.get("basic") or {})


def _device_down(device: Object) -> Object:
    return {"name": device.get("name", ""), "basic": {field: value for field, value in device.items() if field != "name"}}


def _changed(obj: Object, path: tuple[str, ...], change: View) -> Object:
    """A copy with each element of the list at ``path`` changed; the same object where there is no such list."""
    head, rest = path[0], path[1:]
    found = obj.get(head)
    if not rest and isinstance(found, list):
        return obj | {head: [change(item) if isinstance(item, dict) else item for item in found]}
    if rest and isinstance(found, dict):
        return obj | {head: _changed(found, rest, change)}
    return obj


_VERSIONS: Final[tuple[tuple[str, tuple[Kind, ...]], ...]] = (
    ("v1", (Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True),)),
    (
        "v1beta2",
        (k.RESOURCE_CLAIMS, k.RESOURCE_CLAIM_TEMPLATES, k.DEVICE_CLASSES, k.RESOURCE_SLICES, k.DEVICE_TAINT_RULES),
    ),
    ("v1beta1", (k.RESOURCE_CLAIMS, k.RESOURCE_CLAIM_TEMPLATES, k.DEVICE_CLASSES, k.RESOURCE_SLICES)),
    (
        "v1alpha3",
        (
            k.DEVICE_TAINT_RULES,
            Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True),
            Kind("scheduling.k8s.io", "v1beta1", "workloads", "Workload", True),
        ),
    ),
)
_SHAPES: Final[dict[tuple[str, str], tuple[View, View]]] = {
    ("v1", "horizontalpodautoscalers"): (autoscalers.to_v2, autoscalers.to_v1),
    ("v1beta1", "resourceclaims"): (_claim_up, _claim_down),
    ("v1beta1", "resourceclaimtemplates"): (_template_up, _template_down),
    ("v1beta1", "resourceslices"): (_slice_up, _slice_down),
}
