"""Kinds that are stored, discovered, watched and validated, and that nothing in Dray acts on.

Clients that install them (a helm chart with an Ingress, a policy engine, a storage driver) find them; what they would do on a
real cluster does not happen. ``docs/api-server.md`` says so for each group. Admission policies stand here with their kin:
``admission`` evaluates them.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.kinds import Kind
from dray.apiserver import columns_stored
from dray.apiserver.registry import ALL_METADATA, STATUS, Context, Resource


def _kind(group: str, plural: str, kind: str, namespaced: bool = False, version: str = "v1") -> Kind:
    return Kind(group, version, plural, kind, namespaced)


NETWORKING: Final = "networking.k8s.io"
ADMISSION: Final = "admissionregistration.k8s.io"
FLOW: Final = "flowcontrol.apiserver.k8s.io"
REGISTRATION: Final = "apiregistration.k8s.io"


def _not_asked(obj: dict[str, Any], old: dict[str, Any] | None, context: Context) -> None:
    """Whoever writes a policy relies on it: silence would be taken for protection."""
    context.warnings.append("stored without effect: this server calls no webhooks")


STORED: Final = (
    Resource(
        kind=_kind(NETWORKING, "ingresses", "Ingress", True),
        short=("ing",),
        subresources=(STATUS,),
        columns=columns_stored.INGRESSES,
        generation=True,
    ),
    Resource(kind=_kind(NETWORKING, "ingressclasses", "IngressClass"), columns=columns_stored.INGRESS_CLASSES, generation=True),
    Resource(
        kind=_kind(NETWORKING, "networkpolicies", "NetworkPolicy", True),
        short=("netpol",),
        columns=columns_stored.NETWORK_POLICIES,
        generation=True,
    ),
    Resource(
        kind=_kind(NETWORKING, "ipaddresses", "IPAddress"),
        short=("ip",),
        fields={"spec.parentRef.resource": ""},
        columns=columns_stored.IP_ADDRESSES,
        generation=True,
        names="address",
    ),
    Resource(
        kind=_kind(NETWORKING, "servicecidrs", "ServiceCIDR"),
        subresources=(STATUS,),
        status_metadata=ALL_METADATA,
        columns=columns_stored.SERVICE_CIDRS,
        generation=True,
        names="label",
    ),
    Resource(kind=_kind("node.k8s.io", "runtimeclasses", "RuntimeClass"), columns=columns_stored.RUNTIME_CLASSES),
    Resource(
        kind=_kind(FLOW, "flowschemas", "FlowSchema"),
        subresources=(STATUS,),
        columns=columns_stored.FLOW_SCHEMAS,
        generation=True,
    ),
    Resource(
        kind=_kind(FLOW, "prioritylevelconfigurations", "PriorityLevelConfiguration"),
        subresources=(STATUS,),
        columns=columns_stored.PRIORITY_LEVELS,
        generation=True,
    ),
    Resource(
        kind=_kind(ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        subresources=(STATUS,),
        status_metadata=ALL_METADATA,
        generation=True,
    ),
    Resource(
        kind=_kind(ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        generation=True,
    ),
    Resource(kind=_kind(ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy"), generation=True),
    Resource(
        kind=_kind(ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        generation=True,
    ),
    Resource(
        kind=_kind(ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        prepare=(_not_asked,),
        categories=("api-extensions",),
        columns=columns_stored.WEBHOOKS,
        generation=True,
    ),
    Resource(
        kind=_kind(ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        prepare=(_not_asked,),
        categories=("api-extensions",),
        columns=columns_stored.WEBHOOKS,
        generation=True,
    ),
    Resource(
        kind=_kind(REGISTRATION, "apiservices", "APIService"),
        categories=("api-extensions",),
        subresources=(STATUS,),
        columns=columns_stored.API_SERVICES,
        names="segment",
    ),
    Resource(
        kind=_kind("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True, "v2"),
        short=("hpa",),
        categories=("all",),
        subresources=(STATUS,),
        columns=columns_stored.AUTOSCALERS,
    ),
)
