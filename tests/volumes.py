"""Volumes that tests create: each on the disk of one node, with claims for them."""

from __future__ import annotations

from typing import Any


def local_class(mode: str = "WaitForFirstConsumer") -> dict[str, Any]:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    return {**kind, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode}


def local_volume(name: str, node: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": "local",
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def local_claim(name: str) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": resources}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
