"""What people do to a cluster in process: apply, change, delete, cordon and drain, as kubectl does them.

Always true: what the API refuses is raised as it is. A drain evicts through the API, so that disruption budgets have their say,
and leaves pods of DaemonSets and of the node itself where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dray.api.kinds import NODES, PODS, Kind
from dray.api.times import format_time
from dray.cluster.port import Conflict, NotFound, Refused, Write
from dray.nodes.faults import SIMULATED
from dray.runtime.inprocess import InProcess

Plain = dict[str, Any]

USER: Final = "user"
# How an eviction is answered that a disruption budget stands against.
_PROTECTED: Final = 429
# Kinds whose pods a drain leaves where they are.
STAY: Final = ("DaemonSet", "Node")


class Hand:
    def __init__(self, core: InProcess) -> None:
        self._core = core

    def apply(self, kind: Kind, body: Plain) -> str:
        """Create the object, or change it to this if it is there; status and all. Its name, which the server completes where only
        the beginning is given (``generateName``)."""
        namespace, name = place_of(kind, body)
        try:
            made = self._core.write(Write("create", kind, namespace, name, body, field_manager=USER, strict=True))
        except Conflict:
            applied = {key: value for key, value in body.items() if key != "status"}
            self._core.write(Write("patch", kind, namespace, name, applied, patch="apply", field_manager=USER))
            if body.get("status"):
                self._status(kind, namespace, name, body["status"])
            return name
        if body.get("status") and kind != NODES:
            self._status(kind, namespace, made["metadata"]["name"], body["status"])
        return str(made["metadata"]["name"])

    def change(self, kind: Kind, body: Plain) -> None:
        """Merge this into the object."""
        namespace, name = place_of(kind, body)
        changes = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "status")}
        changes["metadata"] = {key: value for key, value in body["metadata"].items() if key not in ("name", "namespace")}
        self._core.write(Write("patch", kind, namespace, name, changes, field_manager=USER, strict=True))
        if body.get("status"):
            self._status(kind, namespace, name, body["status"])

    def _status(self, kind: Kind, namespace: str, name: str, status: Plain) -> None:
        body = {"status": status}
        write = Write("patch", kind, namespace, name, body, subresource="status", field_manager=USER, strict=True)
        try:
            self._core.write(write)
        except NotFound:
            return  # the kind has no status of its own

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        self._core.write(Write("delete", kind, namespace, name, field_manager=USER))

    def cordon(self, node: str) -> None:
        self._core.write(Write("patch", NODES, name=node, body={"spec": {"unschedulable": True}}, field_manager=USER))

    def uncordon(self, node: str) -> None:
        self._core.write(Write("patch", NODES, name=node, body={"spec": {"unschedulable": None}}, field_manager=USER))

    def on_node(self, node: str) -> list[str]:
        """The pods that a drain would evict, by name."""
        return [key for key, pod in sorted(self._core.all(PODS).items()) if _drained(pod, node)]

    def drain(self, node: str) -> Iterator[tuple[str, bool]]:
        """Cordon the node, and ask its pods to leave, once: each pod, and whether it does."""
        self.cordon(node)
        for key in self.on_node(node):
            yield key, self.evict(*key.split("/"))

    def evict(self, namespace: str, name: str) -> bool:
        """Whether the pod leaves: a disruption budget may stand against it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            self._core.write(Write("create", PODS, namespace, name, body, subresource="eviction", field_manager=USER))
        except Refused as error:
            if error.code != _PROTECTED:
                raise
            return False
        return True


def place_of(kind: Kind, body: Plain) -> tuple[str, str]:
    """Namespace and name; no name where the server is to complete one."""
    metadata = body["metadata"]
    return str(metadata.get("namespace") or "default") if kind.namespaced else "", str(metadata.get("name") or "")


def is_named(kind: Kind, body: Plain) -> bool:
    """Whether an object can be created: by its name, or by the beginning of one that the server completes. A node is known by
    its name to whoever is on it."""
    metadata = body.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    return bool(given.get("name") or (given.get("generateName") and kind != NODES))


def _drained(pod: Plain, node: str) -> bool:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    owners = pod["metadata"].get("ownerReferences") or ()
    stays = any(owner.get("controller") and owner.get("kind") in STAY for owner in owners)
    return spec.get("nodeName") == node and not stays and status.get("phase") not in ("Succeeded", "Failed")


def ready_node(body: Plain, now: float) -> Plain:
    """A Node that simulated kubelets look after, and that is ready."""
    metadata, status = body["metadata"], body.get("status") or {}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": format_time(now)}
    labels = {"kubernetes.io/hostname": metadata["name"], SIMULATED: "true", **metadata.get("labels", {})}
    amounts = {"pods": "110", **(status.get("allocatable") or status.get("capacity") or {})}
    full = {"capacity": amounts, "conditions": [ready], **status, "allocatable": amounts}
    return {**body, "metadata": {**metadata, "labels": labels}, "status": full}
