"""What the API accepts.

``validate_create`` and ``validate_update`` look at defaulted objects whose fields have the right types, and find everything
that is wrong at once. Metadata is not looked at here: it follows the same rules for every kind and is checked where objects
are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from dray.api.gates import Gates
from dray.api.validation import (
    access,
    claim_status,
    claims,
    cluster,
    extending,
    network,
    pod_updates,
    pods,
    quotas,
    slices,
    taints,
    workloads,
)
from dray.api.validation.errors import FieldError

__all__ = ["FieldError", "validate_create", "validate_update"]

Object = dict[str, Any]
Labels = dict[str, str] | None
_Create = Callable[[Object, Gates, Labels], Iterable[FieldError]]
_Update = Callable[[Object, Object, Gates, Labels], Iterable[FieldError]]


def validate_create(plural: str, obj: Object, gates: Gates, *, namespace_labels: Labels = None) -> list[FieldError]:
    """What is wrong with a new object. ``namespace_labels`` are those of its namespace."""
    check = _CREATE.get(plural)
    return list(check(obj, gates, namespace_labels)) if check is not None else []


def validate_update(
    plural: str, new: Object, old: Object, gates: Gates, subresource: str = "", *, namespace_labels: Labels = None
) -> list[FieldError]:
    """What is wrong with a change. Where there is no rule for changes, the new object must be as good as a new one."""
    check = _UPDATE.get((plural, subresource))
    if check is not None:
        return list(check(new, old, gates, namespace_labels))
    if subresource:
        return []
    return validate_create(plural, new, gates, namespace_labels=namespace_labels)


def _plain(check: Callable[[Object], Iterable[FieldError]]) -> _Create:
    return lambda obj, gates, labels: check(obj)


def _change(check: Callable[[Object, Object], Iterable[FieldError]]) -> _Update:
    return lambda new, old, gates, labels: check(new, old)


def _policies(rule: str) -> Callable[[Object], Iterable[FieldError]]:
    """The rules of policies compile expressions, so the compiler is loaded with the first policy."""

    def check(obj: Object) -> Iterable[FieldError]:
        from dray.api.validation import policies

        found: Callable[[Object], Iterable[FieldError]] = getattr(policies, rule)
        return found(obj)

    return check


_CREATE: Final[dict[str, _Create]] = {
    "apiservices": _plain(extending.api_service),
    "clusterrolebindings": _plain(access.cluster_role_binding),
    "clusterroles": _plain(access.cluster_role),
    "configmaps": _plain(cluster.config_map),
    "cronjobs": _plain(workloads.cron_job),
    "daemonsets": _plain(workloads.daemon_set),
    "deployments": _plain(workloads.deployment),
    "deviceclasses": lambda obj, gates, labels: claims.device_class(obj, None, gates),
    "devicetaintrules": lambda obj, gates, labels: taints.rule(obj, None),
    "events": _plain(cluster.event),
    "jobs": _plain(workloads.job),
    "leases": _plain(cluster.lease),
    "mutatingadmissionpolicies": _plain(_policies("mutating_policy")),
    "mutatingadmissionpolicybindings": _plain(_policies("mutating_binding")),
    "mutatingwebhookconfigurations": _plain(extending.webhooks),
    "networkpolicies": _plain(network.network_policy),
    "limitranges": _plain(quotas.limit_range),
    "nodes": _plain(cluster.node),
    "persistentvolumeclaims": _plain(cluster.volume_claim),
    "persistentvolumes": _plain(cluster.volume),
    "poddisruptionbudgets": _plain(workloads.disruption_budget),
    "pods": _plain(pods.pod),
    "priorityclasses": _plain(cluster.priority_class),
    "replicasets": _plain(workloads.replica_set),
    "replicationcontrollers": _plain(workloads.replication_controller),
    "resourceclaims": claims.claim,
    "resourceclaimtemplates": claims.template,
    "resourcequotas": _plain(quotas.resource_quota),
    "resourceslices": lambda obj, gates, labels: slices.resource_slice(obj, None, gates),
    "rolebindings": _plain(access.role_binding),
    "roles": _plain(access.role),
    "secrets": _plain(cluster.secret),
    "services": _plain(cluster.service),
    "statefulsets": _plain(workloads.stateful_set),
    "storageclasses": _plain(cluster.storage_class),
    "validatingadmissionpolicies": _plain(_policies("validating_policy")),
    "validatingadmissionpolicybindings": _plain(_policies("validating_binding")),
    "validatingwebhookconfigurations": _plain(extending.webhooks),
}

_UPDATE: Final[dict[tuple[str, str], _Update]] = {
    ("clusterrolebindings", ""): _change(access.cluster_role_binding_update),
    ("configmaps", ""): _change(cluster.config_map_update),
    ("daemonsets", ""): _change(workloads.daemon_set_update),
    ("deployments", ""): _change(workloads.deployment_update),
    ("deviceclasses", ""): lambda new, old, gates, labels: claims.device_class(new, old, gates),
    ("devicetaintrules", ""): lambda new, old, gates, labels: taints.rule(new, old),
    ("devicetaintrules", "status"): lambda new, old, gates, labels: taints.rule_status(new),
    ("jobs", ""): _change(workloads.job_update),
    ("nodes", "status"): lambda new, old, gates, labels: cluster.node(new),
    ("persistentvolumeclaims", ""): _change(cluster.volume_claim_update),
    ("pods", ""): _change(pod_updates.pod_update),
    ("pods", "status"): _change(pod_updates.pod_status),
    ("priorityclasses", ""): _change(cluster.priority_class_update),
    ("replicasets", ""): _change(workloads.replica_set_update),
    ("resourceclaims", ""): _change(claims.claim_update),
    ("resourceclaims", "status"): lambda new, old, gates, labels: claim_status.claim_status(new, old, labels),
    ("resourceclaimtemplates", ""): _change(claims.claim_update),
    ("resourcequotas", ""): _change(quotas.resource_quota_update),
    ("resourceslices", ""): lambda new, old, gates, labels: slices.resource_slice(new, old, gates),
    ("rolebindings", ""): _change(access.role_binding_update),
    ("secrets", ""): _change(cluster.secret_update),
    ("statefulsets", ""): _change(workloads.stateful_set_update),
    ("storageclasses", ""): _change(cluster.storage_class_update),
    ("validatingadmissionpolicies", "status"): lambda new, old, gates, labels: _policies("status")(new),
}
