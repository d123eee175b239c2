"""Pods run as a service account: admission gives each its account, the account's pull secrets and a volume with a token.

As upstream's ServiceAccount plugin, but for one thing: a namespace's ``default`` account that is not made yet (or never will
be, because no controllers run) does not keep pods out.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.kinds import PODS
from dray.apiserver.errors import forbidden
from dray.apiserver.registry import Context

Object = dict[str, Any]

MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME: Final = "kube-api-access-"
_MIRROR: Final = "kubernetes.io/config.mirror"
_SECONDS: Final = 3607


def with_account(pod: Object, old: Object | None, context: Context) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    if old is not None or _MIRROR in (metadata.get("annotations") or {}):
        return
    name = spec.get("serviceAccountName") or "default"
    account = context.find("serviceaccounts", metadata["namespace"], name)
    if account is None:
        if name == "default":
            return
        where = f"{metadata['namespace']}/{name}"
        why = f'error looking up service account {where}: serviceaccount "{name}" not found'
        raise forbidden(PODS, metadata.get("name", ""), why)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    if _automounts(spec, account):
        _mount(spec, metadata["uid"])


def _automounts(spec: Object, account: Object) -> bool:
    for says in (spec, account):
        if says.get("automountServiceAccountToken") is not None:
            return bool(says["automountServiceAccountToken"])
    return True


def _mount(spec: Object, uid: str) -> None:
    """A token in every container that has nothing in its place."""
    present = next((v["name"] for v in spec.get("volumes") or () if v.get("name", "").startswith(_VOLUME)), "")
    name = present or _VOLUME + uid[:5]
    lacking = [
        container
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
        if all(mount.get("mountPath") != MOUNT for mount in container.get("volumeMounts") or ())
    ]
    for container in lacking:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": MOUNT}]
    if lacking and not present:
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, "projected": _token()}]


def _token() -> Object:
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ],
        "defaultMode": 420,
    }
