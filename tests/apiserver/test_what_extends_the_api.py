"""Webhooks and other servers are only written down, but what is wrong with them is told as a real server tells it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from dray.apiserver.api import Answer
from tests.apiserver.conftest import Cluster

Json = dict[str, Any]
REGISTRATION = "/apis/apiregistration.k8s.io/v1/apiservices"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
VALIDATING, MUTATING = f"{ADMISSION}/validatingwebhookconfigurations", f"{ADMISSION}/mutatingwebhookconfigurations"

SERVICE: Json = {
    "metadata": {"name": "v1beta1.metrics.example.com"},
    "spec": {
        "group": "metrics.example.com",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": "metrics", "namespace": "kube-system"},
    },
}
HOOK: Json = {
    "name": "pods.policy.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/check"},
    "failurePolicy": "Ignore",
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def hooks(**changed: Any) -> Json:
    hook = deepcopy(HOOK) | changed
    return {"metadata": {"name": "policy"}, "webhooks": [{k: v for k, v in hook.items() if v is not None}]}


def service(**changed: Any) -> Json:
    made = deepcopy(SERVICE)
    made["spec"] = {k: v for k, v in (made["spec"] | changed).items() if v is not None}
    return made


def rule(**changed: Any) -> list[Json]:
    return [HOOK["rules"][0] | changed]


FINE: dict[str, tuple[str, Json]] = {
    "an API service": (REGISTRATION, service()),
    "validating webhooks": (VALIDATING, hooks()),
    "mutating webhooks": (MUTATING, hooks()),
    "a webhook in the cluster": (MUTATING, hooks(clientConfig={"service": {"name": "w", "namespace": "default"}})),
}
WRONG: dict[str, tuple[str, Json, list[str]]] = {
    "the name of another version": (REGISTRATION, service(version="v2"), ["metadata.name"]),
    "no group": (REGISTRATION, service(group=None), ["metadata.name", "spec.group"]),
    "no priority": (REGISTRATION, service(groupPriorityMinimum=0), ["spec.groupPriorityMinimum"]),
    "too much priority": (REGISTRATION, service(versionPriority=1001), ["spec.versionPriority"]),
    "a service without a name": (REGISTRATION, service(service={"namespace": "x"}), ["spec.service.name"]),
    "a port that is none": (
        REGISTRATION,
        service(service={"namespace": "x", "name": "y", "port": 70000}),
        ["spec.service.port"],
    ),
    "an authority that is not asked": (REGISTRATION, service(caBundle="eA=="), ["spec.insecureSkipTLSVerify"]),
    "no verification of nobody": (REGISTRATION, service(service=None), ["spec.insecureSkipTLSVerify"]),
    "a short name": (VALIDATING, hooks(name="pods"), ["webhooks[0].name"]),
    "no side effects told": (VALIDATING, hooks(sideEffects=None), ["webhooks[0].sideEffects"]),
    "side effects": (MUTATING, hooks(sideEffects="Some"), ["webhooks[0].sideEffects"]),
    "no versions": (VALIDATING, hooks(admissionReviewVersions=[]), ["webhooks[0].admissionReviewVersions"]),
    "unknown versions": (VALIDATING, hooks(admissionReviewVersions=["v9"]), ["webhooks[0].admissionReviewVersions"]),
    "a version twice": (VALIDATING, hooks(admissionReviewVersions=["v1", "v1"]), ["webhooks[0].admissionReviewVersions[1]"]),
    "plain http": (VALIDATING, hooks(clientConfig={"url": "http://x/y"}), ["webhooks[0].clientConfig.url"]),
    "nobody to ask": (VALIDATING, hooks(clientConfig={}), ["webhooks[0].clientConfig"]),
    "a service of no namespace": (
        VALIDATING,
        hooks(clientConfig={"service": {"name": "x"}}),
        ["webhooks[0].clientConfig.service.namespace"],
    ),
    "a long wait": (VALIDATING, hooks(timeoutSeconds=31), ["webhooks[0].timeoutSeconds"]),
    "an unknown policy": (VALIDATING, hooks(failurePolicy="Maybe"), ["webhooks[0].failurePolicy"]),
    "all and some": (VALIDATING, hooks(rules=rule(apiGroups=["*", "apps"])), ["webhooks[0].rules[0].apiGroups"]),
    "no resources": (VALIDATING, hooks(rules=rule(resources=[])), ["webhooks[0].rules[0].resources"]),
    "an unknown operation": (VALIDATING, hooks(rules=rule(operations=["READ"])), ["webhooks[0].rules[0].operations[0]"]),
    "an unknown scope": (VALIDATING, hooks(rules=rule(scope="Some")), ["webhooks[0].rules[0].scope"]),
    "a bad selector": (
        VALIDATING,
        hooks(objectSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        ["webhooks[0].objectSelector.matchExpressions[0].operator"],
    ),
}


@pytest.mark.parametrize("what", FINE)
def test_what_is_right_is_stored_with_its_defaults(cluster: Cluster, what: str) -> None:
    path, body = FINE[what]
    made = cluster.post(path, body)
    for hook in made.get("webhooks", ()):
        assert (hook["timeoutSeconds"], hook["matchPolicy"], hook["rules"][0]["scope"]) == (10, "Equivalent", "*")
        assert hook["clientConfig"].get("service", {"port": 443})["port"] == 443
        assert hook.get("reinvocationPolicy") == ("Never" if path == MUTATING else None)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_by_its_field(cluster: Cluster, what: str) -> None:
    path, body, fields = WRONG[what]
    refused = cluster.post(path, body, code=422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == fields


def test_webhooks_of_one_configuration_have_names_of_their_own(cluster: Cluster) -> None:
    twice = hooks()
    twice["webhooks"] *= 2
    refused = cluster.post(VALIDATING, twice, code=422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["webhooks[1].name"]


@pytest.mark.parametrize("kind", ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"])
def test_whoever_relies_on_what_is_not_asked_is_warned(cluster: Cluster, kind: str) -> None:
    """Silence would be taken for protection."""
    made = cluster.ask("POST", f"{ADMISSION}/{kind.lower()}s", {"metadata": {"name": "p"}})
    assert isinstance(made, Answer)
    assert made.code == 201, made.body
    assert [value for name, value in made.headers if name == "Warning" and "without effect" in value]


def test_another_server_is_listed_and_never_said_to_answer(cluster: Cluster) -> None:
    cluster.post(REGISTRATION, service())
    table = cluster.call("GET", REGISTRATION, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table["rows"][0]["cells"][:3] == ["v1beta1.metrics.example.com", "kube-system/metrics", "Unknown"]
