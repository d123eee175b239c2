"""Creates that store nothing (reviews, tokens, bindings, evictions, scales): a field of the wrong type is told, by its name.

Each field of a good body, and each whole part of it, is replaced by every other type of JSON value. The answer is a Status that
names the field, or the answer to the question where the API takes that type too; it is never an error of the server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dray.apiserver.api import Answer
from tests.apiserver.conftest import PODS, Cluster, pod

Json = dict[str, Any]
Path = tuple[str | int, ...]

OTHER: list[Any] = [True, 7, 1.5, "text", [], ["text"], [{}], [None], {}, {"text": "text"}, {"text": 7}]
NAMESPACE = "/namespaces/default"
USER = {"user": "u", "uid": "1", "groups": ["g"], "extra": {"scopes": ["a"]}}
ABOUT = {
    "verb": "get",
    "group": "apps",
    "version": "v1",
    "resource": "deployments",
    "subresource": "scale",
    "name": "n",
    "namespace": "default",
    "fieldSelector": {"requirements": [{"key": "k", "operator": "In", "values": ["v"]}]},
    "labelSelector": {"requirements": [{"key": "k", "operator": "In", "values": ["v"]}]},
}
PLACE = {"verb": "get", "path": "/healthz"}

BODIES: dict[str, tuple[str, str, Json]] = {
    "SelfSubjectAccessReview": (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"metadata": {}, "spec": {"resourceAttributes": ABOUT}},
    ),
    "SelfSubjectAccessReview of a path": (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"nonResourceAttributes": PLACE}},
    ),
    "SubjectAccessReview": (
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"metadata": {}, "spec": {**USER, "resourceAttributes": ABOUT}},
    ),
    "LocalSubjectAccessReview": (
        "POST",
        f"/apis/authorization.k8s.io/v1{NAMESPACE}/localsubjectaccessreviews",
        {"metadata": {"namespace": "default"}, "spec": {**USER, "resourceAttributes": ABOUT}},
    ),
    "SelfSubjectRulesReview": (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"spec": {"namespace": "default"}},
    ),
    "SelfSubjectReview": ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"metadata": {}}),
    "TokenReview": (
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"metadata": {}, "spec": {"token": "t", "audiences": ["a"]}},
    ),
    "TokenRequest": (
        "POST",
        f"/api/v1{NAMESPACE}/serviceaccounts/default/token",
        {
            "metadata": {"name": "default"},
            "spec": {
                "audiences": ["a"],
                "expirationSeconds": 3600,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
            },
        },
    ),
    "Binding": (
        "POST",
        f"{PODS}/p/binding",
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "annotations": {"a": "b"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1", "namespace": "", "uid": "u"},
        },
    ),
    "Eviction": (
        "POST",
        f"{PODS}/p/eviction",
        {
            "metadata": {"name": "p", "namespace": "default"},
            "deleteOptions": {
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u", "resourceVersion": "1"},
                "propagationPolicy": "Background",
                "orphanDependents": False,
                "dryRun": ["All"],
            },
        },
    ),
    "Scale": (
        "PUT",
        "/apis/apps/v1/namespaces/default/deployments/d/scale",
        {"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2}},
    ),
}
DEPLOYMENT: Json = {
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster()
    made.post(PODS, pod("p"))
    made.post("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
    made.post(f"/api/v1{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    return made


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every part of a JSON value, the leaves included, the whole not."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def replaced(body: Json, place: Path, value: Any) -> Json:
    made = copy.deepcopy(body)
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


def at(body: Json, place: Path) -> Any:
    inner: Any = body
    for key in place:
        inner = inner[key]
    return inner


CASES = [(name, place) for name, (_, _, body) in BODIES.items() for place in places(body)]


@pytest.mark.parametrize(("name", "place"), CASES, ids=[f"{name}: {'.'.join(map(str, place))}" for name, place in CASES])
def test_a_field_of_the_wrong_type_is_named(cluster: Cluster, name: str, place: Path) -> None:
    method, path, body = BODIES[name]
    was = at(body, place)
    for value in [other for other in OTHER if type(other) is not type(was)]:
        answer = cluster.ask(method, path, replaced(body, place, value))
        assert isinstance(answer, Answer)
        told = msgspec.json.decode(answer.body)
        assert answer.code in (400, 422), (value, answer.code, told)
        field = str(next(part for part in reversed(place) if isinstance(part, str)))
        assert field in told["message"], (value, told["message"])


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("value", OTHER, ids=repr)
def test_a_body_of_the_wrong_type_is_told(cluster: Cluster, name: str, value: Any) -> None:
    if isinstance(value, dict):
        value = {"spec": value, "target": value, "deleteOptions": value, "metadata": {"name": 7}}
    method, path, _ = BODIES[name]
    answer = cluster.ask(method, path, value)
    assert isinstance(answer, Answer)
    assert answer.code in (400, 422), msgspec.json.decode(answer.body)


def test_a_good_body_is_answered(cluster: Cluster) -> None:
    codes = {}
    for name, (method, path, body) in BODIES.items():
        answer = cluster.ask(method, path, body)
        assert isinstance(answer, Answer)
        codes[name] = answer.code
    # The pod is not the one that the binding and the eviction mean, by its uid; nor is the one that a token is bound to.
    refused = {"Binding": 409, "Eviction": 409, "TokenRequest": 409}
    assert codes == {name: refused.get(name, 200 if name == "Scale" else 201) for name in BODIES}
