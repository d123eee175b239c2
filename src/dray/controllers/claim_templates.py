"""Claims from templates: what is made for an entry of a pod, under which name, and which claim that is.

Always true: a template is not changed; what it asks for that is switched off is refused before anything is made.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dray.api.core import Pod, PodResourceClaim
from dray.api.gates import Gates
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import FINALIZER, POD_CLAIM_NAME, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate

NAME_BASE_MAX: Final = 57  # 63 less a hyphen and the five characters that the server appends


class TemplateError(Exception):
    """A claim cannot be generated. The message is for the pod's owner."""


def generated_claim(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> dict[str, Any]:
    """The claim that a template says for an entry of a pod. It has its finalizer from birth, which saves the scheduler a write.
    The template is not changed."""
    metadata: dict[str, Any] = {
        "generateName": claim_name_base(pod.metadata.name, entry.name),
        "namespace": pod.metadata.namespace,
        "finalizers": [FINALIZER],
        "annotations": {**template.spec.metadata.annotations, POD_CLAIM_NAME: entry.name},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.uid, "controller": True}],
    }
    if template.spec.metadata.labels:
        metadata["labels"] = dict(template.spec.metadata.labels)
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": metadata,
        "spec": template.spec.spec,
    }


def claim_name_base(pod: str, entry: str) -> str:
    """``<pod>-<entry>-``; too long, both are cut in proportion, so that some of each is left."""
    base = f"{pod}-{entry}-"
    if len(base) <= NAME_BASE_MAX:
        return base
    # A label may not end in a dot or hyphen, wherever the cut falls.
    head = pod[: len(pod) * NAME_BASE_MAX // len(base)].rstrip(".-")
    return f"{head}-{entry[: len(entry) * NAME_BASE_MAX // len(base)]}"


def check_gates(template: ResourceClaimTemplate, gates: Gates) -> None:
    """Raises TemplateError for what is switched off."""
    try:
        requests = msgspec.convert(template.spec.spec, ResourceClaimSpec).devices.requests
    except msgspec.ValidationError as error:
        raise TemplateError(f"template {template.metadata.name} cannot be read: {error}") from error
    for request in requests:
        if request.exactly is not None and request.exactly.admin_access and not gates("DRAAdminAccess"):
            raise TemplateError("admin access is requested, but the feature is disabled (DRAAdminAccess)")
        if request.first_available and not gates("DRAPrioritizedList"):
            raise TemplateError("firstAvailable is used, but the feature is disabled (DRAPrioritizedList)")


def made_for(claim: ResourceClaim, entry: PodResourceClaim) -> bool:
    return claim.metadata.annotations.get(POD_CLAIM_NAME) == entry.name and not claim.metadata.deletion_timestamp


def recorded(pod: Pod, entry: PodResourceClaim) -> str:
    names = (status.resource_claim_name for status in pod.status.resource_claim_statuses if status.name == entry.name)
    return next(names, None) or ""


def needs_none(pod: Pod, entry: PodResourceClaim) -> bool:
    return any(s.name == entry.name and s.resource_claim_name is None for s in pod.status.resource_claim_statuses)
