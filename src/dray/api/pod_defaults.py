"""Defaults of pods and of the pod templates in workloads, and a pod's quality of service class.

Templates get less than pods: what depends on how a pod is admitted (requests from limits, service links, the tolerations for
nodes that are not ready) is filled in when the pod itself is created.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.quantity import Quantity, quantities
from dray.api.requests import is_huge_pages, is_pod_level, pod_level_requests, together_in

Object = dict[str, Any]

_FILE_MODE: Final = 0o644
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_NOT_READY_SECONDS: Final = 300


def default_pod(pod: Object) -> None:
    """All defaults of a pod, those of admission included but for ``default_pod_level``."""
    spec = pod.setdefault("spec", {})
    for container in _containers(spec):
        _requests_from_limits(container)
    spec.setdefault("enableServiceLinks", True)
    _default_pod_spec(spec)
    _not_ready_tolerations(spec)
    pod.setdefault("status", {}).setdefault("phase", "Pending")


def default_pod_level(spec: Object) -> None:
    """What a pod as a whole leaves open of what it asks for follows from its containers, once those are known for good:
    after a LimitRange gave them what they lacked."""
    resources = spec.get("resources") or {}
    if not names_pod_level(resources):
        return
    limits, requests = quantities(resources.get("limits") or {}), quantities(resources.get("requests") or {})
    limited = together_in(spec, "limits")
    _complete(limits, {name: most for name, most in limited.items() if is_huge_pages(name) and name not in requests})
    _complete(requests, pod_level_requests(requests, limits, together_in(spec, "requests")))
    for name in _limited_everywhere(spec):
        if is_pod_level(name) and name in requests:
            _complete(limits, {name: max(requests[name], limited[name])})
    for field, amounts in (("limits", limits), ("requests", requests)):
        if amounts:
            given = resources.get(field) or {}
            resources[field] = {name: given.get(name, str(amount)) for name, amount in amounts.items()}


def names_pod_level(resources: Object) -> bool:
    return any(is_pod_level(name) for field in ("limits", "requests") for name in resources.get(field) or ())


def _complete(amounts: dict[str, Quantity], defaults: dict[str, Quantity]) -> None:
    for name, amount in defaults.items():
        amounts.setdefault(name, amount)


def _limited_everywhere(spec: Object) -> set[str]:
    listed = [set((container.get("resources") or {}).get("limits") or ()) for container in _containers(spec)]
    return set.intersection(*listed) if listed else set()


def default_pod_template(template: Object | None) -> None:
    """The defaults of a template in a workload."""
    if template is not None:
        _default_pod_spec(template.setdefault("spec", {}))


def default_claim_template(claim: Object) -> None:
    """A volume claim, or the template of one."""
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def default_host_path(owner: Object) -> None:
    if owner.get("hostPath") is not None:
        owner["hostPath"].setdefault("type", "")


def qos_class(pod: Object) -> str:
    """Guaranteed: every container limits cpu and memory and requests just that. BestEffort: none asks for either.
    What the pod asks for as a whole is judged instead, where it does."""
    spec = pod.get("spec") or {}
    owners = [spec] if names_pod_level(spec.get("resources") or {}) else _containers(spec)
    requests = [_positive(owner, "requests") for owner in owners]
    limits = [_positive(owner, "limits") for owner in owners]
    if not any(requests) and not any(limits):
        return "BestEffort"
    same = all(len(limit) == 2 and limit == request for limit, request in zip(limits, requests, strict=True))
    return "Guaranteed" if same else "Burstable"


def _positive(owner: Object, what: str) -> dict[str, Quantity]:
    listed = (owner.get("resources") or {}).get(what) or {}
    amounts = {name: Quantity.parse(listed[name]) for name in ("cpu", "memory") if name in listed}
    return {name: amount for name, amount in amounts.items() if amount}


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _requests_from_limits(container: Object) -> None:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**(resources.get("requests") or {}), **_missing(limits, resources.get("requests") or {})}


def _missing(limits: Object, requests: Object) -> Object:
    return {name: amount for name, amount in limits.items() if name not in requests}


def _not_ready_tolerations(spec: Object) -> None:
    have = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _NOT_READY_SECONDS}
        for key in _NOT_READY
        if not any(_covers(toleration, key) for toleration in have)
    ]
    if added:
        spec["tolerations"] = [*have, *added]


def _covers(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _default_pod_spec(spec: Object) -> None:
    for name, value in (("dnsPolicy", "ClusterFirst"), ("restartPolicy", "Always"), ("schedulerName", "default-scheduler")):
        if not spec.get(name):
            spec[name] = value
    spec.setdefault("securityContext", {})
    if spec.setdefault("terminationGracePeriodSeconds", 30) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        name = spec.get("serviceAccountName") or spec["serviceAccount"]
        spec["serviceAccountName"] = spec["serviceAccount"] = name
    for container in [*_containers(spec), *(spec.get("ephemeralContainers") or ())]:
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: Object, *, host_network: bool) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    for name, value in (("terminationMessagePath", "/dev/termination-log"), ("terminationMessagePolicy", "File")):
        if not container.get(name):
            container[name] = value
    container.setdefault("resources", {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort", 0)
    for variable in container.get("env") or ():
        _default_field_ref((variable.get("valueFrom") or {}).get("fieldRef"))
    for name in _PROBES:
        _default_probe(container.get(name))
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _default_http_get(hook.get("httpGet"))


def _pull_policy(image: str) -> str:
    """Always for what may change under its name: no tag, or ``latest``. A digest never changes."""
    if "@" in image:
        return "IfNotPresent"
    _, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Object | None) -> None:
    if probe is None:
        return
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(name):
            probe[name] = value
    _default_http_get(probe.get("httpGet"))
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")


def _default_http_get(action: Object | None) -> None:
    if action is not None:
        action["path"] = action.get("path") or "/"
        action["scheme"] = action.get("scheme") or "HTTP"


def _default_field_ref(reference: Object | None) -> None:
    if reference is not None and not reference.get("apiVersion"):
        reference["apiVersion"] = "v1"


def _default_volume(volume: Object) -> None:
    if not any(value is not None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    default_host_path(volume)
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if volume.get(name) is not None:
            volume[name].setdefault("defaultMode", _FILE_MODE)
    _default_items(volume.get("downwardAPI"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _default_items(source.get("downwardAPI"))
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    _default_image(volume.get("image"))
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        default_claim_template(template)


def _default_items(source: Object | None) -> None:
    for item in (source or {}).get("items") or ():
        _default_field_ref(item.get("fieldRef"))


def _default_image(image: Object | None) -> None:
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference") or "")
