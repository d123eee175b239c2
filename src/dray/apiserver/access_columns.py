"""What ``kubectl get`` shows of roles, bindings and certificates."""

from __future__ import annotations

from typing import Any, Final

from dray.apiserver.columns import AGE, NAME, Cell, Column, at, human_duration, plain


def _subjects(kind: str) -> Cell:
    def cell(obj: dict[str, Any], now: float) -> str:
        found = [s for s in at(obj, "subjects", ()) if s.get("kind") == kind]
        return ", ".join(f"{s['namespace']}/{s['name']}" if s.get("namespace") else s.get("name", "") for s in found)

    return cell


CREATED_AT: Final = Column("Created At", lambda obj, now: at(obj, "metadata.creationTimestamp", "<unknown>"), format="date")
ROLES: Final = (NAME, CREATED_AT)
ROLE_BINDINGS: Final = (
    NAME,
    Column("Role", lambda obj, now: f"{at(obj, 'roleRef.kind', '')}/{at(obj, 'roleRef.name', '')}"),
    AGE,
    Column("Users", _subjects("User"), wide=True),
    Column("Groups", _subjects("Group"), wide=True),
    Column("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)


def _request_state(obj: dict[str, Any], now: float) -> str:
    said = {condition.get("type") for condition in at(obj, "status.conditions", ())}
    state = "Denied" if "Denied" in said else "Approved" if "Approved" in said else "Pending"
    return state + (",Failed" if "Failed" in said else "") + (",Issued" if at(obj, "status.certificate") else "")


def _requested_duration(obj: dict[str, Any], now: float) -> str:
    seconds = at(obj, "spec.expirationSeconds")
    return "<none>" if seconds is None else human_duration(seconds)


def _pod_certificate_state(obj: dict[str, Any], now: float) -> str:
    said = [condition.get("type") for condition in at(obj, "status.conditions", ())]
    return next((state for state in reversed(said) if state in ("Issued", "Denied", "Failed")), "Pending")


CERTIFICATE_SIGNING_REQUESTS: Final = (
    NAME,
    AGE,
    plain("SignerName", "spec.signerName"),
    plain("Requestor", "spec.username", ""),
    Column("RequestedDuration", _requested_duration),
    Column("Condition", _request_state),
)
CLUSTER_TRUST_BUNDLES: Final = (NAME, plain("SignerName", "spec.signerName"))
POD_CERTIFICATE_REQUESTS: Final = (
    NAME,
    plain("PodName", "spec.podName", ""),
    plain("ServiceAccountName", "spec.serviceAccountName", ""),
    plain("NodeName", "spec.nodeName", ""),
    plain("SignerName", "spec.signerName", ""),
    Column("State", _pod_certificate_state),
)
