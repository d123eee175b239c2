"""What single kinds do beyond the common life of an object. Referred to by the catalog, called by operations.

A hook changes the new object, which belongs to the request; ``old`` is None on create and is never changed.
"""

from __future__ import annotations

import copy
from typing import Any

from dray.api.kinds import PODS
from dray.api.pod_defaults import default_pod_level, qos_class
from dray.api.times import format_time
from dray.apiserver.errors import forbidden
from dray.apiserver.registry import Context

Object = dict[str, Any]


# ------------------------------------------------------------------------------------------------------------------ pods


def pod_level_resources(pod: Object, old: Object | None, context: Context) -> None:
    """What the pod asks for as a whole is completed; a client that does not know the field does not clear it."""
    if old is None:
        default_pod_level(pod["spec"])
    elif pod["spec"].get("resources") is None and old["spec"].get("resources") is not None:
        pod["spec"]["resources"] = copy.deepcopy(old["spec"]["resources"])


def new_pod(pod: Object, old: Object | None, context: Context) -> None:
    if old is not None:
        return
    status = pod.setdefault("status", {})
    status["qosClass"] = qos_class(pod)
    if pod["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": None,
                "lastTransitionTime": format_time(context.now),
            }
        ]


def runtime_class(pod: Object, old: Object | None, context: Context) -> None:
    """What the pod's runtime class costs, and where it is to be had."""
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if old is not None or not name:
        return
    found = context.find("runtimeclasses.node.k8s.io", "", name)
    if found is None:
        raise forbidden(PODS, pod["metadata"].get("name", ""), f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (found.get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and spec["overhead"] != overhead:
        why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise forbidden(PODS, pod["metadata"].get("name", ""), why)
    if overhead:
        spec["overhead"] = dict(overhead)
    _runtime_scheduling(pod, found.get("scheduling") or {})


def _runtime_scheduling(pod: Object, scheduling: Object) -> None:
    spec = pod["spec"]
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        had = (spec.get("nodeSelector") or {}).get(key, value)
        if had != value:
            why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {had}"
            raise forbidden(PODS, pod["metadata"].get("name", ""), f"pod rejected: {why}")
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), key: value}
    added = [each for each in scheduling.get("tolerations") or () if each not in (spec.get("tolerations") or ())]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def pod_priority(pod: Object, old: Object | None, context: Context) -> None:
    """Priority and preemption policy come from the pod's class, from the default class, or are 0."""
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    if name:
        found = context.find("priorityclasses.scheduling.k8s.io", "", name)
        if found is None:
            raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
    else:
        defaults = [c for c in context.every("priorityclasses.scheduling.k8s.io", "") if c.get("globalDefault")]
        found = min(defaults, key=lambda c: c.get("value", 0), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    priority = found.get("value", 0) if found else 0
    if spec.get("priority", priority) != priority:
        message = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden(PODS, pod["metadata"]["name"], message)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", (found or {}).get("preemptionPolicy", "PreemptLowerPriority"))


def kept_pod_status(pod: Object, old: Object | None, context: Context) -> None:
    """A kubelet that does not know these fields does not clear them."""
    assert old is not None
    status, before = pod.setdefault("status", {}), old.get("status") or {}
    for field in ("resourceClaimStatuses", "extendedResourceClaimStatus"):
        if field not in status and field in before:
            status[field] = before[field]
    if before.get("qosClass"):
        status["qosClass"] = before["qosClass"]


# --------------------------------------------------------------------------------------------------------------- storage


def protected_volume(volume: Object, old: Object | None, context: Context) -> None:
    """A volume does not go while it is bound: its finalizer is taken by the controller of volumes."""
    if old is None:
        _protect(volume, "kubernetes.io/pv-protection")


def protected_claim(claim: Object, old: Object | None, context: Context) -> None:
    """A claim does not go while a pod uses it, and has the default class where it names none."""
    if old is not None:
        return
    _protect(claim, "kubernetes.io/pvc-protection")
    if claim["spec"].get("storageClassName") is None:
        default = "storageclass.kubernetes.io/is-default-class"
        classes = [c for c in context.every("storageclasses.storage.k8s.io", "") if _annotation(c, default) == "true"]
        newest = max(classes, key=lambda c: (c["metadata"]["creationTimestamp"], c["metadata"]["name"]), default=None)
        if newest is not None:
            claim["spec"]["storageClassName"] = newest["metadata"]["name"]


def _annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def _protect(obj: Object, finalizer: str) -> None:
    metadata = obj["metadata"]
    metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or ()), finalizer]))


# ------------------------------------------------------------------------------------------------------------ namespaces


def kept_finalizers(namespace: Object, old: Object | None, context: Context) -> None:
    """``spec.finalizers`` changes only through the finalize subresource."""
    if old is None:
        namespace["spec"]["finalizers"] = list(dict.fromkeys([*namespace["spec"].get("finalizers", ()), "kubernetes"]))
    elif context.subresource != "finalize":
        namespace["spec"] = old.get("spec", {})
    else:
        namespace["metadata"] = old["metadata"] | {"managedFields": namespace["metadata"].get("managedFields", [])}
        namespace["status"] = old.get("status", {})


# -------------------------------------------------------------------------------------------------------------- workloads


def new_job(job: Object, old: Object | None, context: Context) -> None:
    """A job's pods carry its uid, so that it finds them."""
    spec = job["spec"]
    if old is not None or spec.get("manualSelector"):
        return
    uid, name = job["metadata"]["uid"], job["metadata"].get("name", "")
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    labels |= {
        "batch.kubernetes.io/controller-uid": uid,
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
    }
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


# -------------------------------------------------------------------------------------------------------- resource.k8s.io


def new_time_of_changed_taint(rule: Object, old: Object | None, context: Context) -> None:
    """A taint whose effect changes counts as added now, unless the client gives another time."""
    if old is None:
        return
    taint, before = rule["spec"].get("taint") or {}, (old.get("spec") or {}).get("taint") or {}
    if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get("timeAdded"):
        taint["timeAdded"] = format_time(context.now)


def lower_case_driver(slice: Object, old: Object | None, context: Context) -> None:
    driver = slice["spec"].get("driver") or ""
    if driver != driver.lower():
        context.warnings.append(f'spec.driver: driver names should be lower case, "{driver}" is not')


def groups_of_allocation(claim: Object, old: Object | None, context: Context) -> None:
    """What was recorded of compatibility groups stays with the allocation where a client that does not know the field leaves it
    out: nobody could write such a claim back otherwise, because an allocation never changes."""
    assert old is not None
    results, before = _results(claim), _results(old)
    if len(results) == len(before):
        for result, known in zip(results, before, strict=True):
            if _device(result) == _device(known) and "compatibilityGroups" in known:
                result.setdefault("compatibilityGroups", known["compatibilityGroups"])


def devices_of_allocation(claim: Object, old: Object | None, context: Context) -> None:
    """Device status of devices that are no longer allocated goes with the allocation."""
    assert old is not None
    status = claim.get("status") or {}
    before = (old.get("status") or {}).get("allocation")
    if not status.get("devices") or before is None or status.get("allocation") == before:
        return
    allocated = {_device(result) for result in _results(claim)}
    kept = [device for device in status["devices"] if _device(device) in allocated]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


def _results(claim: Object) -> list[Object]:
    return (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or []


def _device(entry: Object) -> tuple[Any, ...]:
    return tuple(entry.get(field) for field in ("driver", "pool", "device", "shareID"))
