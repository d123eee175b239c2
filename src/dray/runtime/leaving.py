"""Asking a pod to leave, as ``kubectl drain`` asks: through the API's eviction, which disruption budgets can refuse."""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Pod
from dray.api.kinds import PODS
from dray.cluster.port import Cluster, Refused, Write

_PROTECTED: Final = 429


async def ask_to_leave(cluster: Cluster, pod: Pod) -> str:
    """What a disruption budget says against it, or nothing: then the pod leaves. Raises NotFound and Conflict where it is gone,
    or another one by now."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    body["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
    try:
        await cluster.write(Write("create", PODS, namespace, name, body, subresource="eviction"))
    except Refused as error:
        if error.code != _PROTECTED:
            raise
        causes = (error.status.get("details") or {}).get("causes") or ()
        return " ".join(str(cause.get("message") or "") for cause in causes) or error.message
    return ""
