"""What the API fills in where a user wrote nothing.

``apply_defaults`` changes the object given, which must be the caller's own copy with fields of the right types. It looks at
nothing but the object and the time, and applying it twice is the same as applying it once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from dray.api.pod_defaults import default_claim_template, default_host_path, default_pod, default_pod_template
from dray.api.times import format_time

Object = dict[str, Any]
_Default = Callable[[Object, float], None]

_RBAC: Final = "rbac.authorization.k8s.io"


def apply_defaults(plural: str, obj: Object, now: float) -> Object:
    """The object with defaults filled in (the same one, changed)."""
    fill = _BY_PLURAL.get(plural)
    if fill is not None:
        fill(obj, now)
    return obj


def apply_status_defaults(plural: str, obj: Object, now: float) -> None:
    """As ``apply_defaults``, for a write of the status alone: the rest had its defaults when it was stored."""
    fill = _OF_STATUS.get(plural)
    if fill is not None:
        fill(obj, now)


def _spec(obj: Object) -> Object:
    found: Object = obj.setdefault("spec", {})
    return found


def _fill(target: Object, **values: Any) -> None:
    for name, value in values.items():
        target.setdefault(name, value)


# resource.k8s.io


def _claim(obj: Object, now: float) -> None:
    _claim_spec(_spec(obj))
    _claim_status(obj, now)


def _claim_status(obj: Object, now: float) -> None:
    results = ((obj.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    for result in results:
        _tolerations(result)


def _claim_template(obj: Object, now: float) -> None:
    _claim_spec(_spec(obj).setdefault("spec", {}))


def _claim_spec(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            _device_request(request["exactly"])
        for alternative in request.get("firstAvailable") or ():
            _device_request(alternative)


def _device_request(request: Object) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    _tolerations(request)


def _tolerations(owner: Object) -> None:
    for toleration in owner.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _slice(obj: Object, now: float) -> None:
    for device in _spec(obj).get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", format_time(now))


def _taint_rule(obj: Object, now: float) -> None:
    _spec(obj).setdefault("taint", {}).setdefault("timeAdded", format_time(now))


# workloads


def _replicated(obj: Object, now: float) -> None:
    _fill(_spec(obj), replicas=1)
    default_pod_template(_spec(obj).get("template"))


def _deployment(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")
    default_pod_template(spec.get("template"))


def _replication_controller(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1)
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if labels:
        metadata = obj.setdefault("metadata", {})
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    default_pod_template(spec.get("template"))


def _stateful_set(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), partition=0, maxUnavailable=1)
    _fill(spec.setdefault("persistentVolumeClaimRetentionPolicy", {}), whenDeleted="Retain", whenScaled="Retain")
    for template in spec.get("volumeClaimTemplates") or ():
        _fill(template, apiVersion="v1", kind="PersistentVolumeClaim")
        default_claim_template(template)
        _fill(template.setdefault("status", {}), phase="Pending")
    default_pod_template(spec.get("template"))


def _daemon_set(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, revisionHistoryLimit=10)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable=1, maxSurge=0)
    default_pod_template(spec.get("template"))


def _job(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _job_spec(spec)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    metadata = obj.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _job_spec(spec: Object) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    per_index = "backoffLimitPerIndex" in spec
    _fill(
        spec,
        parallelism=1,
        backoffLimit=2**31 - 1 if per_index else 6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
        podReplacementPolicy="Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed",
    )
    _pod_failure_policy(spec.get("podFailurePolicy") or {})
    default_pod_template(spec.get("template"))


def _pod_failure_policy(policy: Object) -> None:
    for rule in policy.get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def _cron_job(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    template = (spec.get("jobTemplate") or {}).get("spec")
    if template is not None:
        default_pod_template(template.get("template"))


# the rest


def _service(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "ClientIP":
        _fill(spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}), timeoutSeconds=10800)
    for port in spec.get("ports") or ():
        _fill(port, protocol="TCP")
        if port.get("targetPort") in (None, 0, "") and "port" in port:
            port["targetPort"] = port["port"]
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        _fill(spec, internalTrafficPolicy="Cluster")
        _addresses(spec)
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _fill(spec, allocateLoadBalancerNodePorts=True)


def _addresses(spec: Object) -> None:
    if spec.get("clusterIP"):
        _fill(spec, clusterIPs=[spec["clusterIP"]])
    _fill(spec, ipFamilyPolicy="SingleStack")
    if spec.get("selector") or spec.get("clusterIP") != "None":
        _fill(spec, ipFamilies=["IPv4"])


def _endpoints(obj: Object, now: float) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            _fill(port, protocol="TCP")


def _endpoint_slice(obj: Object, now: float) -> None:
    for port in obj.get("ports") or ():
        _fill(port, name="", protocol="TCP")


def _namespace(obj: Object, now: float) -> None:
    metadata = obj.setdefault("metadata", {})
    if metadata.get("name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    _spec(obj)  # its finalizers are the server's to set, once: a namespace that was finalized must stay so
    _active(obj, now)


def _active(obj: Object, now: float) -> None:
    _fill(obj.setdefault("status", {}), phase="Active")


def _pending(obj: Object, now: float) -> None:
    _fill(obj.setdefault("status", {}), phase="Pending")


def _node(obj: Object, now: float) -> None:
    status = obj.get("status") or {}
    if status.get("capacity"):
        have = status.get("allocatable") or {}
        status["allocatable"] = {**status["capacity"], **have} if have else dict(status["capacity"])


def _secret(obj: Object, now: float) -> None:
    if not obj.get("type"):
        obj["type"] = "Opaque"
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _volume(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    default_host_path(spec)
    _pending(obj, now)


def _volume_claim(obj: Object, now: float) -> None:
    default_claim_template(obj)
    _pending(obj, now)


def _storage_class(obj: Object, now: float) -> None:
    _fill(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _priority_class(obj: Object, now: float) -> None:
    _fill(obj, preemptionPolicy="PreemptLowerPriority")


def _csi_driver(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, attachRequired=True, podInfoOnMount=False, storageCapacity=False, requiresRepublish=False, seLinuxMount=False)
    _fill(spec, preventPodSchedulingIfMissing=False)
    _fill(spec, fsGroupPolicy="ReadWriteOnceWithFSType", volumeLifecycleModes=["Persistent"])


def _autoscaler(obj: Object, now: float) -> None:
    spec = _spec(obj)
    _fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _limit_range(obj: Object, now: float) -> None:
    for item in _spec(obj).get("limits") or ():
        if item.get("type") != "Container":
            continue
        default = {**(item.get("max") or {}), **(item.get("default") or {})}
        if default:
            item["default"] = default
        request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
        if request:
            item["defaultRequest"] = request


def _pod_group(obj: Object, now: float) -> None:
    _fill(_spec(obj), disruptionMode={"single": {}})


def _pod(obj: Object, now: float) -> None:
    default_pod(obj)


def _pod_template(obj: Object, now: float) -> None:
    default_pod_template(obj.get("template"))


# what extends the API


def _api_service(obj: Object, now: float) -> None:
    service = _spec(obj).get("service")
    if service is not None:
        _fill(service, port=443)


def _webhooks(obj: Object, now: float) -> None:
    for hook in obj.get("webhooks") or ():
        _fill(hook, failurePolicy="Fail", matchPolicy="Equivalent", namespaceSelector={}, objectSelector={}, timeoutSeconds=10)
        for rule in hook.get("rules") or ():
            _fill(rule, scope="*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            _fill(service, port=443)


def _mutating_webhooks(obj: Object, now: float) -> None:
    _webhooks(obj, now)
    for hook in obj.get("webhooks") or ():
        _fill(hook, reinvocationPolicy="Never")


def _policy(obj: Object, now: float) -> None:
    _fill(_spec(obj), failurePolicy="Fail")
    _matched(_spec(obj).get("matchConstraints"))


def _policy_binding(obj: Object, now: float) -> None:
    _matched(_spec(obj).get("matchResources"))


def _matched(resources: Object | None) -> None:
    if resources is None:
        return
    _fill(resources, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in resources.get(field) or ():
            _fill(rule, scope="*")


# rbac.authorization.k8s.io


def _role_binding(obj: Object, now: float) -> None:
    reference = obj.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


_BY_PLURAL: Final[dict[str, _Default]] = {
    "apiservices": _api_service,
    "clusterrolebindings": _role_binding,
    "cronjobs": _cron_job,
    "csidrivers": _csi_driver,
    "daemonsets": _daemon_set,
    "deployments": _deployment,
    "devicetaintrules": _taint_rule,
    "endpoints": _endpoints,
    "endpointslices": _endpoint_slice,
    "horizontalpodautoscalers": _autoscaler,
    "jobs": _job,
    "limitranges": _limit_range,
    "mutatingadmissionpolicies": _policy,
    "mutatingadmissionpolicybindings": _policy_binding,
    "mutatingwebhookconfigurations": _mutating_webhooks,
    "namespaces": _namespace,
    "nodes": _node,
    "persistentvolumeclaims": _volume_claim,
    "persistentvolumes": _volume,
    "podgroups": _pod_group,
    "pods": _pod,
    "podtemplates": _pod_template,
    "priorityclasses": _priority_class,
    "replicasets": _replicated,
    "replicationcontrollers": _replication_controller,
    "resourceclaims": _claim,
    "resourceclaimtemplates": _claim_template,
    "resourceslices": _slice,
    "rolebindings": _role_binding,
    "secrets": _secret,
    "services": _service,
    "statefulsets": _stateful_set,
    "storageclasses": _storage_class,
    "validatingadmissionpolicies": _policy,
    "validatingadmissionpolicybindings": _policy_binding,
    "validatingwebhookconfigurations": _webhooks,
}

_OF_STATUS: Final[dict[str, _Default]] = {
    "namespaces": _active,
    "nodes": _node,
    "persistentvolumeclaims": _pending,
    "persistentvolumes": _pending,
    "pods": _pending,
    "resourceclaims": _claim_status,
}
