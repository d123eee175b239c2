"""Who may do what: the real API server and Dray's give the same answers, in the same words."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from dray.apiserver.authorization.bootstrap import defaults
from tests.real.upstream.binaries import binary
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import Server

# Roles of kinds that upstream serves with alpha features only and Dray always, and Dray's own.
MORE_IN_DRAY = {"system:aggregate-to-edit", "system:aggregate-to-view", "system:kube-scheduler"}


def kubectl(server: Server, *arguments: str, given: Any = None) -> subprocess.CompletedProcess[str]:
    command = [str(binary("kubectl")), "--kubeconfig", str(server.kubeconfig), *arguments]
    return subprocess.run(
        command, input=json.dumps(given) if given else None, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def granted(cluster: Server, namespace: str) -> str:
    """Bob reads pods and writes roles in the namespace."""
    bob = f"bob-{namespace}"
    kubectl(cluster, "create", "role", "pods", "-n", namespace, "--verb=get,list", "--resource=pods")
    kubectl(
        cluster,
        "create",
        "role",
        "roles",
        "-n",
        namespace,
        "--verb=create,get,list,update,patch",
        "--resource=roles,rolebindings",
    )
    for role in ("pods", "roles"):
        done = kubectl(cluster, "create", "rolebinding", role, "-n", namespace, f"--role={role}", f"--user={bob}")
        assert done.returncode == 0, done.stderr
    return bob


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("get", "secrets", "-n", "{ns}"),
            'secrets is forbidden: User "{bob}" cannot list resource "secrets" in API group "" in the namespace "{ns}"',
        ),
        (("get", "nodes"), 'nodes is forbidden: User "{bob}" cannot list resource "nodes" in API group "" at the cluster scope'),
        (
            ("delete", "pod", "x", "-n", "{ns}"),
            'pods "x" is forbidden: User "{bob}" cannot delete resource "pods" in API group "" in the namespace "{ns}"',
        ),
        (
            ("get", "namespace", "{ns}"),
            'namespaces "{ns}" is forbidden: User "{bob}" cannot get resource "namespaces" in API group "" in the namespace ',
        ),
        (("get", "--raw", "/metrics"), 'forbidden: User "{bob}" cannot get path "/metrics"'),
        (
            ("create", "role", "r", "-n", "{ns}", "--verb=delete", "--resource=pods"),
            (
                'roles.rbac.authorization.k8s.io "r" is forbidden: user "{bob}" (groups=["system:authenticated"]) is attempting '
                'to grant RBAC permissions not currently held:\n{{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}}'
            ),
        ),
        (
            ("create", "rolebinding", "b", "-n", "{ns}", "--clusterrole=cluster-admin", "--user=eve"),
            (
                'rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "{bob}" (groups=["system:authenticated"]) is '
                'attempting to grant RBAC permissions not currently held:\n{{APIGroups:["*"], Resources:["*"], Verbs:["*"]}}\n'
                '{{NonResourceURLs:["*"], Verbs:["*"]}}'
            ),
        ),
    ],
)
def test_a_refusal(arguments: tuple[str, ...], said: str, cluster: Server, namespace: str, granted: str) -> None:
    done = kubectl(cluster, *(a.format(ns=namespace) for a in arguments), "--as", granted)
    assert done.returncode == 1
    assert said.format(bob=granted, ns=namespace) in done.stderr


def test_what_is_granted(cluster: Server, namespace: str, granted: str) -> None:
    assert kubectl(cluster, "get", "pods", "-n", namespace, "--as", granted).returncode == 0
    assert kubectl(cluster, "auth", "can-i", "list", "pods", "-n", namespace, "--as", granted).stdout.strip() == "yes"
    assert kubectl(cluster, "auth", "can-i", "list", "pods", "-n", "default", "--as", granted).stdout.strip() == "no"
    listed = kubectl(cluster, "auth", "can-i", "--list", "-n", namespace, "--as", granted).stdout
    assert "rolebindings.rbac.authorization.k8s.io" in listed


def test_whoever_asks_is_told_who_they_are(cluster: Server) -> None:
    done = kubectl(cluster, "auth", "whoami", "-o", "json", "--as", "alice", "--as-group", "a", "--as-uid", "7")
    assert json.loads(done.stdout)["status"]["userInfo"] == {
        "username": "alice",
        "uid": "7",
        "groups": ["a", "system:authenticated"],
    }


def test_roles_are_reconciled_from_a_file(cluster: Server, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": namespace}}
    for _ in range(2):
        done = kubectl(cluster, "auth", "reconcile", "-f", "-", given=role | {"rules": rules})
        assert done.returncode == 0, done.stderr
        rules = [*rules, {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]
    found = json.loads(kubectl(cluster, "get", "role", "r", "-n", namespace, "-o", "json").stdout)
    assert found["rules"] == rules[:2]


def test_a_token_of_a_service_account(cluster: Server, namespace: str) -> None:
    assert kubectl(cluster, "create", "serviceaccount", "robot", "-n", namespace).returncode == 0
    token = kubectl(cluster, "create", "token", "robot", "-n", namespace, "--duration", "10m").stdout.strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = json.loads(kubectl(cluster, "create", "-f", "-", "-o", "json", given=review).stdout)["status"]
    assert status["authenticated"]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:robot"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    assert status["user"]["groups"] == groups
    short = kubectl(cluster, "create", "token", "robot", "-n", namespace, "--duration", "1m")
    assert "may not specify a duration less than 10 minutes" in short.stderr


def test_the_default_roles_are_those_of_the_real_server(real_server: Server) -> None:
    client = Client(real_server.kubeconfig)
    ours: dict[tuple[str, str, str], Any] = {
        (kind.plural, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for kind, obj in defaults()
    }
    group = "apis/rbac.authorization.k8s.io/v1"
    theirs = {
        (plural, item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
        for item in client.call("GET", f"{group}/{plural}")["items"]
        if item["metadata"].get("labels", {}).get("kubernetes.io/bootstrapping") == "rbac-defaults"
    }
    assert {key for key in ours if not key[2].startswith("dray:")} == set(theirs)
    for key, item in theirs.items():
        if "roleRef" in item:
            assert _sorted(ours[key]["subjects"]) == _sorted(item.get("subjects") or []), key
        elif not item.get("aggregationRule"):
            lacking = [rule for rule in _plain(item) if rule not in _plain(ours[key])]
            more = [rule for rule in _plain(ours[key]) if rule not in _plain(item)]
            assert lacking == [], key
            assert more == [] or key[2] in MORE_IN_DRAY, (key, more)


def _plain(role: Any) -> list[Any]:
    """Rules with everything in them sorted."""
    return [{field: sorted(values) for field, values in rule.items()} for rule in role.get("rules") or ()]


def _sorted(subjects: list[Any]) -> list[Any]:
    return sorted(subjects, key=lambda subject: json.dumps(subject, sort_keys=True))
