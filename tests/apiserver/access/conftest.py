"""A cluster with its roles, and people in it."""

from __future__ import annotations

from typing import Any

import pytest

from dray.apiserver.authentication.users import AUTHENTICATED, User
from tests.apiserver.conftest import Cluster, Json

RBAC = "/apis/rbac.authorization.k8s.io/v1"
BOB = User("bob", (AUTHENTICATED,))


class Policed(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.core.furnish_access()

    def role(self, name: str, *rules: Json, namespace: str = "default", **more: Any) -> Json:
        """A Role, or with no namespace a ClusterRole."""
        return self.post(f"{_place(namespace)}/{'roles' if namespace else 'clusterroles'}", _named(name, rules=rules), **more)

    def bind(self, role: str, *subjects: Json, namespace: str = "default", kind: str = "", name: str = "", **more: Any) -> Json:
        """Gives a role of the namespace, or with ``kind`` or no namespace a ClusterRole."""
        reference = {"kind": kind or ("Role" if namespace else "ClusterRole"), "name": role}
        made = _named(name or role, roleRef=reference, subjects=list(subjects))
        return self.post(f"{_place(namespace)}/{'rolebindings' if namespace else 'clusterrolebindings'}", made, **more)

    def refused(self, method: str, path: str, user: User, body: Any = None, **headers: Any) -> str:
        message: str = self.call(method, path, body, user=user, code=403, **headers)["message"]
        return message


def _place(namespace: str) -> str:
    return f"{RBAC}/namespaces/{namespace}" if namespace else RBAC


def _named(name: str, **fields: Any) -> Json:
    return {"metadata": {"name": name}, **fields}


def user(name: str = "bob") -> Json:
    return {"kind": "User", "name": name}


def rule(verbs: str, resources: str, groups: str = "", **more: Any) -> Json:
    return {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": groups.split() or [""], **more}


@pytest.fixture
def cluster() -> Policed:
    return Policed()
