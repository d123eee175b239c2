"""The operator of the placement exporter: its DaemonSet is there while somebody can use what it tells, and gone else.

``auto``: while the scheduler looks at zones and a node publishes some, with a NodeResourceTopology; NUMA is a default plugin, so
that its being on says nothing of a cluster. While that is not known everything stays as it is. ``on`` and ``off`` do not ask.
Always true: there is the one DaemonSet that is wanted, or none; a changed one is set right; what is not labelled as ours is never
touched. Rights are not made here: the exporter's account, its role and their binding are installed with Dray, so that whoever
runs this needs no right to give rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from dray.api.kinds import DAEMON_SETS, NODE_RESOURCE_TOPOLOGIES
from dray.api.meta import Object
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

NAME: Final = "dray-exporter"
NAMESPACE: Final = "dray-exporter"
LABELS: Final = {"app.kubernetes.io/name": "dray", "app.kubernetes.io/component": "exporter"}
# Set by node-feature-discovery on machines with more than one zone.
NUMA_NODES: Final = {"feature.node.kubernetes.io/memory-numa": "true"}
# A hash of what was written last, so that what API servers add is not taken for a change.
APPLIED: Final = "dray.dev/applied"

LOOK_SECONDS: Final = 60.0

Mode = Literal["auto", "on", "off"]


class Settings(msgspec.Struct, frozen=True):
    mode: Mode = "auto"
    image: str = "dray"
    node_selector: dict[str, str] = msgspec.field(default_factory=lambda: dict(NUMA_NODES))
    podresources: str = "/var/lib/kubelet/pod-resources"
    kubelet_state: str = "/var/lib/kubelet"
    sysfs: str = "/sys/devices/system/node"


class ExporterOperator(Keyed):
    """The decider. It has one key: the exporter. ``enabled`` is asked each time whether the scheduler looks at zones, and says
    None where nobody knows."""

    name = "exporter-operator"
    kinds = (DAEMON_SETS, NODE_RESOURCE_TOPOLOGIES)

    def __init__(self, world: World, settings: Settings, enabled: Callable[[], bool | None]) -> None:
        super().__init__(world)
        self._settings, self._enabled = settings, enabled
        self._work.add([NAME])

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind is NODE_RESOURCE_TOPOLOGIES:
            # They change all the time, with every pod of their nodes.
            return (NAME,) if change.old is None or change.new is None else ()
        metadata = change.object.metadata
        return (NAME,) if (metadata.name, metadata.namespace) == (NAME, NAMESPACE) else ()

    @property
    def wanted(self) -> bool | None:
        if self._settings.mode == "auto":
            return self._enabled() if self.world.all(NODE_RESOURCE_TOPOLOGIES) else False
        return self._settings.mode == "on"

    def decide(self, key: str, now: float) -> list[Write]:
        found: Object | None = self.world.get(DAEMON_SETS, f"{NAMESPACE}/{NAME}")
        # Nothing tells when the scheduler's configuration changes.
        self.look_at(key, now + LOOK_SECONDS)
        there, wanted = self.wanted, daemon_set(self._settings)
        if there is None:
            return []
        if found is None:
            return [Write("create", DAEMON_SETS, NAMESPACE, NAME, wanted)] if there else []
        if not LABELS.items() <= found.metadata.labels.items():
            return []
        if not there:
            return [Write("delete", DAEMON_SETS, NAMESPACE, NAME, uid=found.uid)]
        if found.metadata.annotations.get(APPLIED) == wanted["metadata"]["annotations"][APPLIED]:
            return []
        body = {"metadata": wanted["metadata"], "spec": wanted["spec"]}
        return [Write("patch", DAEMON_SETS, NAMESPACE, NAME, body, uid=found.uid)]


def daemon_set(settings: Settings) -> dict[str, Any]:
    """The DaemonSet: root on the node's side because the kubelet's socket is root's, and nothing else."""
    spec = {"selector": {"matchLabels": dict(LABELS)}, "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(settings)}}
    digest = msgspec.json.encode(spec, order="deterministic")
    metadata = {
        "name": NAME,
        "namespace": NAMESPACE,
        "labels": dict(LABELS),
        "annotations": {APPLIED: _hash(digest)},
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _pod(settings: Settings) -> dict[str, Any]:
    mounts = {"podresources": settings.podresources, "kubelet": settings.kubelet_state, "sysfs": settings.sysfs}
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(settings)],
        "volumes": [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in mounts.items()],
    }


def _container(settings: Settings) -> dict[str, Any]:
    places = {"podresources": "/host/pod-resources", "kubelet": "/host/kubelet", "sysfs": "/host/node"}
    return {
        "name": "exporter",
        "image": settings.image,
        "args": [
            "exporter",
            "--podresources=/host/pod-resources/kubelet.sock",
            "--kubelet-state=/host/kubelet",
            "--sysfs=/host/node",
            "--serve=0.0.0.0:8080",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "http"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path in places.items()],
    }
