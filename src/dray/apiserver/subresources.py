"""Subresources that are more than a part of their object: binding, eviction, scale, finalize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dray.api.core import LabelSelector
from dray.api.kinds import POD_DISRUPTION_BUDGETS, PODS, Kind
from dray.api.selectors import selects
from dray.api.times import format_time
from dray.api.validation.errors import FieldError
from dray.apiserver.admission.request import CREATE, UPDATE
from dray.apiserver.columns import at, selector_text
from dray.apiserver.errors import ApiError, bad_request, conflict, invalid
from dray.apiserver.operations import Operations, Seen, WriteOptions
from dray.apiserver.options import read_delete_options
from dray.apiserver.registry import Resource, ScalePaths
from dray.apiserver.store import Entry

Object = dict[str, Any]

BINDING_KIND: Final = Kind("", "v1", "bindings", "Binding", True)
EVICTION_KIND: Final = Kind("policy", "v1", "", "Eviction", True)
SCALE_KIND: Final = Kind("autoscaling", "v1", "", "Scale", True)


class Subresources:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._pods = operations.registry.of(PODS)
        self._budgets = operations.registry.of(POD_DISRUPTION_BUDGETS)

    def _created(self, kind: Kind, subresource: str, namespace: str, name: str, given: Object, options: WriteOptions) -> Object:
        """What policies make of what is created below a pod, if they allow it."""
        admission, place = self._operations.admission, (self._pods, namespace, name)
        metadata = {"name": name, "namespace": namespace, **(given.get("metadata") or {})}
        obj = {**given, "kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if admission.mutates(self._pods, options):
            given = obj = admission.mutate(CREATE, *place, obj, None, options, subresource=subresource, kind=kind)
        if admission.asks(self._pods, options):
            admission.validate(CREATE, *place, obj, None, options, subresource=subresource, kind=kind)
        return given

    # ---------------------------------------------------------------------------------------------------------- binding

    def bind(self, namespace: str, name: str, binding: Object, options: WriteOptions) -> Entry:
        """Assign a pod to a node. The annotations of the Binding are merged into the pod's."""
        target = at(binding, "target.name", "")
        if not isinstance(target, str) or not target:
            raise invalid(PODS, name, [FieldError("target.name", "Required", "")])
        wanted = binding.get("metadata") or {}
        if wanted.get("name", name) != name:
            raise bad_request(f"the name of the object ({wanted['name']}) does not match the name on the URL ({name})")
        now = self._operations.clock()
        binding = self._created(BINDING_KIND, "binding", namespace, name, binding, options)
        wanted, target = binding.get("metadata") or {}, at(binding, "target.name", "")

        def change(pod: Object) -> Object:
            _can_bind(pod, wanted)
            metadata = pod["metadata"]
            if wanted.get("annotations"):
                metadata = metadata | {"annotations": (metadata.get("annotations") or {}) | wanted["annotations"]}
            changed = {"metadata": metadata, "spec": pod["spec"] | {"nodeName": target}}
            return pod | changed | {"status": _scheduled(pod.get("status") or {}, now)}

        return self._operations.update(self._pods, namespace, name, change, options, subresource="binding")

    # --------------------------------------------------------------------------------------------------------- eviction

    def evict(self, namespace: str, name: str, eviction: Object, options: WriteOptions) -> None:
        """Delete a pod if its disruption budget allows that."""
        pod = self._operations.get(self._pods, namespace, name).object
        delete = read_delete_options(eviction.get("deleteOptions") or {})
        dry_run = options.dry_run = options.dry_run or bool(delete.dry_run)
        eviction = self._created(EVICTION_KIND, "eviction", namespace, name, eviction, options)
        delete = read_delete_options(eviction.get("deleteOptions") or {})
        if not pod["metadata"].get("deletionTimestamp") and at(pod, "status.phase") not in ("Succeeded", "Failed", "Pending"):
            self._spend_budget(namespace, pod, dry_run)
        # Whoever may evict may delete: policies are asked about the eviction.
        self._operations.delete(self._pods, namespace, name, delete, WriteOptions(dry_run=dry_run))

    def _spend_budget(self, namespace: str, pod: Object, dry_run: bool) -> None:
        table = self._operations.table(self._budgets)
        labels = pod["metadata"].get("labels") or {}
        found = [budget for _, e in table.scan(f"{namespace}/") if _selects(budget := e.look(), labels)]
        if not found:
            return
        if len(found) > 1:
            raise ApiError(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        budget = found[0]
        if _ready(pod) or not _ignores_unready(budget):
            self._disrupt(namespace, budget, pod, dry_run)

    def _disrupt(self, namespace: str, budget: Object, pod: Object, dry_run: bool) -> None:
        name = budget["metadata"]["name"]
        if at(budget, "status.observedGeneration", 0) < budget["metadata"].get("generation", 0):
            raise _too_many(f"The disruption budget {name} is still being processed by the server.", 10)
        if at(budget, "status.disruptionsAllowed", 0) <= 0:
            status = budget.get("status", {})
            message = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently"
            )
            raise _too_many(message, 0)
        now = format_time(self._operations.clock())

        def change(current: Object) -> Object:
            status = current["status"]
            disrupted = (status.get("disruptedPods") or {}) | {pod["metadata"]["name"]: now}
            left = status["disruptionsAllowed"] - 1
            return current | {"status": status | {"disruptionsAllowed": left, "disruptedPods": disrupted}}

        options = WriteOptions(dry_run=dry_run, manager="dray")
        self._operations.update(self._budgets, namespace, name, change, options, subresource="status")

    # ------------------------------------------------------------------------------------------------------------ scale

    def scale_of(self, resource: Resource, obj: Object) -> Object:
        fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        metadata = {f: obj["metadata"][f] for f in fields if f in obj["metadata"]}
        if resource.scale is not None:
            wanted, there, selector = _custom_scale(obj, resource.scale)
        else:
            shown = selector_text(at(obj, "spec.selector"))
            selector = "" if shown == "<none>" else shown
            wanted, there = at(obj, "spec.replicas", 0), at(obj, "status.replicas", 0)
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata,
            "spec": {"replicas": wanted},
            "status": {"replicas": there, "selector": selector},
        }

    def rescale(
        self, resource: Resource, namespace: str, name: str, change: Callable[[Object], Object], options: WriteOptions
    ) -> Object:
        """Write the replicas of a Scale that ``change`` makes of the current one."""
        now = self.scale_of(resource, self._operations.get(resource, namespace, name).object)
        scale, admission = change(now), self._operations.admission
        if admission.mutates(resource, options):
            place, of = (resource, namespace, name), {"kind": "Scale", "apiVersion": SCALE_KIND.api_version}
            scale = admission.mutate(UPDATE, *place, {**scale, **of}, now, options, subresource="scale", kind=SCALE_KIND)
        replicas = at(scale, "spec.replicas", 0)
        if type(replicas) is not int:
            raise bad_request("spec.replicas must be a number")
        if replicas < 0:
            problem = FieldError("spec.replicas", "Invalid", replicas, "must be greater than or equal to 0")
            raise invalid(resource.kind, name, [problem])
        wanted = scale.get("metadata") or {}

        def apply(obj: Object) -> Object:
            if resource.from_stored is not None:
                obj = resource.from_stored(obj)
            expected = {field: wanted[field] for field in ("resourceVersion", "uid") if wanted.get(field)}
            path = resource.scale.spec if resource.scale is not None else ("spec", "replicas")
            return _with(obj, path, replicas) | {"metadata": obj["metadata"] | expected}

        seen = Seen(SCALE_KIND, lambda obj: self.scale_of(resource, obj))
        entry = self._operations.update(resource, namespace, name, apply, options, subresource="scale", seen=seen)
        return self.scale_of(resource, entry.object)


def _custom_scale(obj: Object, paths: ScalePaths) -> tuple[int, int, str]:
    found = [_at(obj, path) for path in (paths.spec, paths.status, paths.selector)]
    wanted, there = (value if type(value) is int else 0 for value in found[:2])
    return wanted, there, found[2] if isinstance(found[2], str) else ""


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _with(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    inner = obj.get(path[0])
    return obj | {path[0]: _with(inner if isinstance(inner, dict) else {}, path[1:], value) if len(path) > 1 else value}


def _can_bind(pod: Object, wanted: Object) -> None:
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted['uid']}, UID in object meta: {metadata['uid']}"
        raise conflict(PODS, name, why)
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {wanted['resourceVersion']}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise conflict(PODS, name, why)
    if metadata.get("deletionTimestamp"):
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates")


def _scheduled(status: Object, now: float) -> Object:
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": format_time(now)}
    kept = {field: value for field, value in status.items() if field != "nominatedNodeName"}
    return kept | {"conditions": [*conditions, condition]}


def _selects(budget: Object, labels: dict[str, str]) -> bool:
    selector = at(budget, "spec.selector")
    return selector is not None and selects(msgspec.convert(selector, LabelSelector), labels)


def _ready(pod: Object) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in at(pod, "status.conditions", ()))


def _ignores_unready(budget: Object) -> bool:
    """A pod that is not ready may go while the budget is met, or always, as the budget's policy says."""
    if at(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = at(budget, "status.currentHealthy", 0), at(budget, "status.desiredHealthy", 0)
    return bool(healthy >= desired and desired > 0)


def _too_many(message: str, retry: int) -> ApiError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry:
        details["retryAfterSeconds"] = retry
    return ApiError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", details)
