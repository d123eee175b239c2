"""SubjectAccessReviews and their kin answer what the server would do."""

from __future__ import annotations

import pytest

from tests.apiserver.access.conftest import BOB, Policed, rule, user
from tests.apiserver.conftest import Json

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
ABOUT = {"verb": "list", "resource": "pods", "namespace": "default"}


def review(cluster: Policed, kind: str, spec: Json, **more: object) -> Json:
    return cluster.post(f"{AUTHORIZATION}/{kind}", {"spec": spec}, **more)


@pytest.fixture
def cluster() -> Policed:
    made = Policed()
    made.role("reader", rule("list", "pods"))
    made.bind("reader", user())
    return made


def test_about_oneself(cluster: Policed) -> None:
    status = review(cluster, "selfsubjectaccessreviews", {"resourceAttributes": ABOUT}, user=BOB)["status"]
    reason = 'RBAC: allowed by RoleBinding "reader/default" of Role "reader" to User "bob"'
    assert status == {"allowed": True, "reason": reason}
    elsewhere = {"resourceAttributes": ABOUT | {"namespace": "other"}}
    assert review(cluster, "selfsubjectaccessreviews", elsewhere, user=BOB)["status"] == {"allowed": False}


def test_about_others(cluster: Policed) -> None:
    asked = {"user": "bob", "resourceAttributes": ABOUT}
    assert review(cluster, "subjectaccessreviews", asked)["status"]["allowed"] is True
    assert review(cluster, "subjectaccessreviews", asked | {"user": "eve"})["status"]["allowed"] is False
    group = {"groups": ["system:masters"], "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    assert review(cluster, "subjectaccessreviews", group)["status"]["allowed"] is True
    cluster.refused("POST", f"{AUTHORIZATION}/subjectaccessreviews", BOB, {"spec": asked})


def test_about_others_in_one_namespace(cluster: Policed) -> None:
    path = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    asked = {"user": "bob", "resourceAttributes": ABOUT}
    assert cluster.post(path, {"spec": asked})["status"]["allowed"] is True
    elsewhere = asked | {"resourceAttributes": ABOUT | {"namespace": "other"}}
    assert "must match metadata.namespace" in cluster.post(path, {"spec": elsewhere}, code=422)["message"]


def test_all_rules_in_a_namespace(cluster: Policed) -> None:
    status = review(cluster, "selfsubjectrulesreviews", {"namespace": "default"}, user=BOB)["status"]
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in status["resourceRules"]
    assert any("/healthz" in found["nonResourceURLs"] for found in status["nonResourceRules"])
    assert status["incomplete"] is False
    elsewhere = review(cluster, "selfsubjectrulesreviews", {"namespace": "other"}, user=BOB)["status"]
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} not in elsewhere["resourceRules"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [({}, 422), ({"resourceAttributes": ABOUT, "nonResourceAttributes": {"path": "/"}}, 422), ({"resourceAttributes": 7}, 400)],
)
def test_what_asks_nothing_is_refused(cluster: Policed, spec: Json, code: int) -> None:
    review(cluster, "selfsubjectaccessreviews", spec, code=code)
