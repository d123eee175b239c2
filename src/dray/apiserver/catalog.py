"""The kinds that are served: one table, a few lines each.

Adding a kind means a declaration here, a schema beside the others, and, where it has rules of its own, hooks and validation.
"""

from __future__ import annotations

from typing import Final

from dray.api import kinds as k
from dray.api.kinds import Kind
from dray.apiserver import access_columns, columns, columns_stored, events, hooks, limits
from dray.apiserver.authentication import certificates
from dray.apiserver.authentication.pods import with_account
from dray.apiserver.authorization import escalation
from dray.apiserver.authorization.claims import parts_of_the_status
from dray.apiserver.registry import (
    ALL_METADATA,
    APPROVAL,
    BINDING,
    EVICTION,
    FINALIZE,
    SCALE,
    STATUS,
    TOKEN,
    Registry,
    Resource,
)
from dray.apiserver.services import give_addresses
from dray.apiserver.stored_kinds import STORED
from dray.apiserver.versions import versioned

REVIEW: Final = ("create",)

_POD_FIELDS: Final = {
    "spec.nodeName": "",
    "spec.restartPolicy": "",
    "spec.schedulerName": "",
    "spec.serviceAccountName": "",
    "spec.hostNetwork": "false",
    "status.phase": "",
    "status.podIP": "",
    "status.podIPs": "",
    "status.nominatedNodeName": "",
}
_EVENT_FIELDS: Final = {
    **{
        f"involvedObject.{field}": ""
        for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    **dict.fromkeys(("reason", "reportingComponent", "source", "type"), ""),
}
_EVENT_PATHS: Final = {"source": ("source.component", "reportingComponent")}
_NEW_EVENT_PATHS: Final = {
    **{f"regarding.{field.partition('.')[2]}": (field,) for field in _EVENT_FIELDS if field.startswith("involvedObject.")},
    "reportingController": ("reportingComponent", "source.component"),
    "reason": ("reason",),
    "type": ("type",),
}


def _core(plural: str, kind: str) -> Kind:
    return Kind("", "v1", plural, kind, True)


def _storage(plural: str, kind: str, namespaced: bool = False) -> Kind:
    return Kind("storage.k8s.io", "v1", plural, kind, namespaced)


CORE: Final = (
    Resource(
        kind=k.PODS,
        short=("po",),
        categories=("all",),
        subresources=(STATUS, BINDING, EVICTION),
        fields=_POD_FIELDS,
        columns=columns.PODS,
        generation=True,
        returns_deleted=True,
        prepare=(hooks.runtime_class, limits.default_amounts, hooks.pod_level_resources, hooks.new_pod, with_account),
        filled=(hooks.runtime_class, limits.default_amounts, with_account, hooks.pod_priority),
        prepare_status=(hooks.kept_pod_status,),
        status_metadata=("finalizers", "labels", "ownerReferences"),
        admit=(hooks.pod_priority,),
    ),
    Resource(
        kind=k.NODES,
        short=("no",),
        subresources=(STATUS,),
        fields={"spec.unschedulable": "false"},
        columns=columns.NODES,
        keeps_status=True,
    ),
    Resource(
        kind=k.NAMESPACES,
        short=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(STATUS, FINALIZE),
        fields={"status.phase": ""},
        columns=columns.NAMESPACES,
        names="label",
        returns_deleted=True,
        prepare=(hooks.kept_finalizers,),
    ),
    Resource(
        kind=_core("events", "Event"),
        short=("ev",),
        fields=_EVENT_FIELDS,
        field_paths=_EVENT_PATHS,
        columns=columns.EVENTS,
        table="events",
        create_on_update=True,
    ),
    Resource(kind=_core("configmaps", "ConfigMap"), short=("cm",), columns=columns.CONFIG_MAPS),
    Resource(kind=_core("secrets", "Secret"), fields={"type": ""}, columns=columns.SECRETS),
    Resource(
        kind=_core("serviceaccounts", "ServiceAccount"),
        short=("sa",),
        subresources=(TOKEN,),
        columns=columns.SERVICE_ACCOUNTS,
        returns_deleted=True,
    ),
    Resource(
        kind=k.SERVICES,
        short=("svc",),
        categories=("all",),
        subresources=(STATUS,),
        fields={"spec.clusterIP": "", "spec.type": ""},
        columns=columns.SERVICES,
        names="label1035",
        returns_deleted=True,
        prepare=(give_addresses,),
    ),
    Resource(kind=k.ENDPOINTS, singular="endpoints", short=("ep",), columns=columns_stored.ENDPOINTS, create_on_update=True),
    Resource(
        kind=k.REPLICATION_CONTROLLERS,
        short=("rc",),
        categories=("all",),
        subresources=(STATUS, SCALE),
        columns=columns.REPLICA_SETS,
        generation=True,
    ),
    Resource(
        kind=k.PERSISTENT_VOLUMES,
        short=("pv",),
        subresources=(STATUS,),
        columns=columns.PERSISTENT_VOLUMES,
        prepare=(hooks.protected_volume,),
        filled=(hooks.protected_volume,),
        returns_deleted=True,
    ),
    Resource(
        kind=k.PERSISTENT_VOLUME_CLAIMS,
        short=("pvc",),
        subresources=(STATUS,),
        columns=columns.PERSISTENT_VOLUME_CLAIMS,
        prepare=(hooks.protected_claim,),
        filled=(hooks.protected_claim,),
        returns_deleted=True,
    ),
    Resource(
        kind=k.RESOURCE_QUOTAS,
        short=("quota",),
        subresources=(STATUS,),
        columns=columns.RESOURCE_QUOTAS,
        returns_deleted=True,
    ),
    Resource(kind=_core("limitranges", "LimitRange"), short=("limits",), create_on_update=True),
    Resource(kind=_core("podtemplates", "PodTemplate"), generation=True, returns_deleted=True),
)

WORKLOADS: Final = (
    Resource(
        kind=k.DEPLOYMENTS,
        short=("deploy",),
        categories=("all",),
        subresources=(STATUS, SCALE),
        columns=columns.DEPLOYMENTS,
        status_metadata=("labels",),
        generation=True,
    ),
    Resource(
        kind=k.REPLICA_SETS,
        short=("rs",),
        categories=("all",),
        subresources=(STATUS, SCALE),
        fields={"status.replicas": "0"},
        columns=columns.REPLICA_SETS,
        generation=True,
    ),
    Resource(
        kind=k.STATEFUL_SETS,
        short=("sts",),
        categories=("all",),
        subresources=(STATUS, SCALE),
        columns=columns.STATEFUL_SETS,
        generation=True,
    ),
    Resource(
        kind=k.DAEMON_SETS,
        short=("ds",),
        categories=("all",),
        subresources=(STATUS,),
        columns=columns.DAEMON_SETS,
        generation=True,
    ),
    Resource(kind=k.CONTROLLER_REVISIONS, columns=columns_stored.CONTROLLER_REVISIONS),
    Resource(
        kind=k.JOBS,
        categories=("all",),
        subresources=(STATUS,),
        fields={"status.successful": "0"},
        columns=columns.JOBS,
        generation=True,
        prepare=(hooks.new_job,),
    ),
    Resource(
        kind=k.CRON_JOBS,
        short=("cj",),
        categories=("all",),
        subresources=(STATUS,),
        columns=columns_stored.CRON_JOBS,
        generation=True,
    ),
    Resource(
        kind=k.POD_DISRUPTION_BUDGETS,
        short=("pdb",),
        subresources=(STATUS,),
        columns=columns.POD_DISRUPTION_BUDGETS,
        generation=True,
    ),
)

SCHEDULING: Final = (
    Resource(kind=k.PRIORITY_CLASSES, short=("pc",), columns=columns.PRIORITY_CLASSES, generation=True),
    Resource(
        kind=Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True),
        subresources=(STATUS,),
        status_metadata=ALL_METADATA,
        generation=True,
    ),
    Resource(kind=Kind("scheduling.k8s.io", "v1beta1", "workloads", "Workload", True), generation=True),
    Resource(kind=k.LEASES, columns=columns.LEASES, create_on_update=True, unconditional_update=False),
)

STORAGE: Final = (
    Resource(kind=k.STORAGE_CLASSES, short=("sc",), columns=columns.STORAGE_CLASSES, returns_deleted=True),
    Resource(kind=k.CSI_NODES, columns=columns.CSI_NODES, unconditional_update=False, returns_deleted=True),
    Resource(
        kind=_storage("csidrivers", "CSIDriver"),
        columns=columns.CSI_DRIVERS,
        generation=True,
        unconditional_update=False,
        returns_deleted=True,
    ),
    Resource(
        kind=_storage("csistoragecapacities", "CSIStorageCapacity", True),
        columns=columns.CSI_STORAGE_CAPACITIES,
        unconditional_update=False,
        returns_deleted=True,
    ),
    Resource(
        kind=k.VOLUME_ATTACHMENTS,
        subresources=(STATUS,),
        columns=columns.VOLUME_ATTACHMENTS,
        status_metadata=ALL_METADATA,
        unconditional_update=False,
        returns_deleted=True,
    ),
    Resource(kind=_storage("volumeattributesclasses", "VolumeAttributesClass"), short=("vac",), returns_deleted=True),
)

DEVICES: Final = (
    Resource(
        kind=k.RESOURCE_CLAIMS,
        subresources=(STATUS,),
        columns=columns.RESOURCE_CLAIMS,
        status_metadata=ALL_METADATA,
        returns_deleted=True,
        prepare_status=(hooks.groups_of_allocation, hooks.devices_of_allocation),
        check=(parts_of_the_status,),
    ),
    Resource(kind=k.RESOURCE_CLAIM_TEMPLATES, columns=columns.RESOURCE_CLAIM_TEMPLATES, returns_deleted=True),
    Resource(kind=k.DEVICE_CLASSES, columns=columns.DEVICE_CLASSES, generation=True, returns_deleted=True),
    Resource(
        kind=k.RESOURCE_SLICES,
        fields={"spec.nodeName": "", "spec.driver": "", "spec.pool.name": ""},
        columns=columns.RESOURCE_SLICES,
        generation=True,
        prepare=(hooks.lower_case_driver,),
        returns_deleted=True,
    ),
    Resource(
        kind=k.DEVICE_TAINT_RULES,
        subresources=(STATUS,),
        columns=columns.DEVICE_TAINT_RULES,
        status_metadata=ALL_METADATA,
        generation=True,
        unconditional_update=False,
        prepare=(hooks.new_time_of_changed_taint,),
        exact="spec.deviceSelector",
    ),
)

EVENTS: Final = (
    Resource(
        kind=k.EVENTS,
        short=("ev",),
        fields={**_EVENT_FIELDS, **dict.fromkeys(_NEW_EVENT_PATHS, "")},
        field_paths={**_EVENT_PATHS, **_NEW_EVENT_PATHS},
        columns=columns.EVENTS,
        table="events",
        create_on_update=True,
        check=(events.check_new_event,),
        to_stored=events.to_core,
        from_stored=events.from_core,
    ),
)

NETWORK: Final = (Resource(kind=k.ENDPOINT_SLICES, columns=columns_stored.ENDPOINT_SLICES, generation=True),)

EXTENSIONS: Final = (
    Resource(
        kind=k.CUSTOM_RESOURCE_DEFINITIONS,
        short=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(STATUS,),
        columns=columns.CUSTOM_RESOURCE_DEFINITIONS,
        generation=True,
        any_finalizer=True,
        unconditional_update=False,
        returns_deleted=True,
    ),
)

ACCESS: Final = (
    Resource(kind=k.CLUSTER_ROLES, names="segment", columns=access_columns.ROLES, prepare=(escalation.cluster_role,)),
    Resource(
        kind=k.CLUSTER_ROLE_BINDINGS,
        names="segment",
        columns=access_columns.ROLE_BINDINGS,
        prepare=(escalation.cluster_role_binding,),
    ),
    Resource(kind=k.ROLES, names="segment", columns=access_columns.ROLES, prepare=(escalation.role,)),
    Resource(kind=k.ROLE_BINDINGS, names="segment", columns=access_columns.ROLE_BINDINGS, prepare=(escalation.role_binding,)),
    Resource(
        kind=k.CERTIFICATE_SIGNING_REQUESTS,
        short=("csr",),
        subresources=(APPROVAL, STATUS),
        fields={"spec.signerName": ""},
        columns=access_columns.CERTIFICATE_SIGNING_REQUESTS,
        names="any",
        prepare=(certificates.prepare,),
        prepare_status=(certificates.prepare_status,),
        admit=(certificates.admit,),
        check=(certificates.check,),
    ),
    Resource(
        kind=Kind("certificates.k8s.io", "v1", "clustertrustbundles", "ClusterTrustBundle", False),
        fields={"spec.signerName": ""},
        columns=access_columns.CLUSTER_TRUST_BUNDLES,
        names="segment",
        check=(certificates.trust_bundle,),
    ),
    Resource(
        kind=Kind("certificates.k8s.io", "v1", "podcertificaterequests", "PodCertificateRequest", True),
        subresources=(STATUS,),
        fields={"spec.signerName": "", "spec.podName": "", "spec.nodeName": ""},
        columns=access_columns.POD_CERTIFICATE_REQUESTS,
    ),
)

# Answered, never stored.
REVIEWS: Final = (
    Resource(kind=Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False), verbs=REVIEW),
    Resource(kind=Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False), verbs=REVIEW),
    Resource(kind=Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False), verbs=REVIEW),
    Resource(kind=Kind("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False), verbs=REVIEW),
    Resource(kind=Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False), verbs=REVIEW),
    Resource(
        kind=Kind("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True), verbs=REVIEW
    ),
)

SERVED: Final = (
    *CORE,
    *WORKLOADS,
    *EVENTS,
    *NETWORK,
    *SCHEDULING,
    *STORAGE,
    *DEVICES,
    *EXTENSIONS,
    *ACCESS,
    *STORED,
    *REVIEWS,
)
CATALOG: Final = Registry((*SERVED, *versioned(SERVED)))
