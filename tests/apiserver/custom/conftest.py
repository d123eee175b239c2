"""Definitions of small kinds, and a cluster that has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Cluster, Json

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "example.com"


def definition(
    kind: str = "Widget", schema: Json | None = None, *, spec: Json | None = None, scope: str = "Namespaced", **version: Any
) -> Json:
    """A definition with one version. ``spec`` is the schema of the spec, ``schema`` that of the whole."""
    plural = f"{kind.lower()}s"
    whole = schema or {"type": "object", "properties": {"spec": spec or {"type": "object"}, "status": OPEN}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}, **version}],
        },
    }


OPEN: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def fields(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def text(**more: Any) -> Json:
    return {"type": "string", **more}


def number(**more: Any) -> Json:
    return {"type": "integer", **more}


def listed(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


class Kind:
    """Speaks about the objects of one defined kind."""

    def __init__(self, cluster: Cluster, defined: Json, version: str = "v1") -> None:
        names, group = defined["spec"]["names"], defined["spec"]["group"]
        self.cluster, self.kind, self.api_version = cluster, names["kind"], f"{group}/{version}"
        inside = "/namespaces/default" if defined["spec"]["scope"] == "Namespaced" else ""
        self.path = f"/apis/{self.api_version}{inside}/{names['plural']}"

    def object(self, name: str = "w", **fields: Any) -> Json:
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}, **fields}

    def make(self, name: str = "w", *, code: int = 0, query: str = "", **fields: Any) -> Json:
        return self.cluster.post(self.path + query, self.object(name, **fields), code=code)

    def get(self, name: str = "w") -> Json:
        return self.cluster.get(f"{self.path}/{name}")

    def patch(self, change: Json, name: str = "w", *, code: int = 0, sub: str = "") -> Json:
        return self.cluster.patch(f"{self.path}/{name}{sub}", change, code=code)

    def refusal(self, name: str = "bad", **fields: Any) -> str:
        """Why an object is not taken."""
        return str(self.make(name, code=422, **fields)["message"])

    def apply(self, obj: Json, manager: str = "me", *, force: bool = True, code: int = 0) -> Json:
        path = f"{self.path}/{obj['metadata']['name']}?fieldManager={manager}" + ("&force=true" if force else "")
        return self.cluster.call("PATCH", path, obj, code=code, content_type="application/apply-patch+yaml")


def define(cluster: Cluster, defined: Json, version: str = "v1") -> Kind:
    cluster.post(DEFINITIONS, defined)
    return Kind(cluster, defined, version)


def conditions(defined: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in defined["status"]["conditions"]}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
