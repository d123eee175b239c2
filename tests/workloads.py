"""Workloads that tests create."""

from __future__ import annotations

from typing import Any

# An object of a kind that somebody else defines, before its definition.
TRAIN = """
apiVersion: example.com/v1
kind: Train
metadata: {name: t, namespace: default}
spec: {gpus: 8}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: trains, singular: train, kind: Train}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {gpus: {type: integer}}}}}
"""


def template(app: str, image: str = "registry.example/app:1", **annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": {"app": app}}
    if annotations:
        metadata["annotations"] = {f"dray.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": image}]}}


def replicated(name: str, replicas: int, image: str = "registry.example/app:1", **spec: Any) -> dict[str, Any]:
    """A Deployment or a ReplicaSet."""
    selector = {"matchLabels": {"app": name}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template(name, image), **spec},
    }


def job(name: str, spec: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    pod = template(name, **annotations)
    pod["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"name": name}, "spec": {"template": pod, **(spec or {})}}
