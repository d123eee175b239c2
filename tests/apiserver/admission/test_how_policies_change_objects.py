"""Policies that change objects: in which order, together with whom, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import CONFIG_MAPS as CONFIG_MAP_KIND
from dray.apiserver.admission.policies import Stored
from dray.apiserver.operations import WriteOptions
from tests.apiserver.admission.cases import CLAIM_SPEC, POD, Json, check, only, rule
from tests.apiserver.admission.changes import apply, changes, of, patch
from tests.apiserver.conftest import CONFIG_MAPS, Cluster, config_map

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SAW = "Object{data: {'NAME': string(object.data.map(k, string(k)).filter(k, k != 'NAME').size())}}"


def hold(cluster: Cluster, spec: Json, name: str = "p", sort: str = "mutating", **more: Any) -> None:
    if sort == "validating":
        more = {"validationActions": ["Deny"], **more}
    cluster.post(f"{ADMISSION}/{sort}admissionpolicies", {"metadata": {"name": name}, "spec": spec})
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, **more}}
    cluster.post(f"{ADMISSION}/{sort}admissionpolicybindings", bound)


def test_policies_come_in_the_order_of_their_names_and_once_more_if_they_ask_for_it(cluster: Cluster) -> None:
    for name, again in (("c", "Never"), ("a", "Never"), ("b", "IfNeeded")):
        hold(cluster, changes(apply(SAW.replace("NAME", name)), reinvocationPolicy=again), name)
    made = cluster.post(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"x": "1"}})
    assert made["data"] == {"x": "1", "a": "1", "b": "3", "c": "3"}


def test_what_is_stored_is_what_policies_made_and_others_judge_that(cluster: Cluster) -> None:
    hold(cluster, changes(apply("Object{data: {'n': 'made'}}")))
    hold(cluster, only(check("object.data.n == 'made'")), sort="validating")
    cluster.post(f"{CONFIG_MAPS}?dryRun=All", config_map())
    name = cluster.post(CONFIG_MAPS, config_map())["metadata"]["name"]
    cluster.patch(f"{CONFIG_MAPS}/{name}", {"data": {"n": "other", "m": "1"}})
    found = cluster.get(f"{CONFIG_MAPS}/{name}")["data"]
    assert (found["n"], found["m"]) == ("made", "1")


def test_policies_are_never_changed_by_policies(cluster: Cluster) -> None:
    hold(cluster, changes(patch("[JSONPatch{op: 'remove', path: '/spec'}]"), rules=[rule("*", "*", "*", operations=["*"])]))
    cluster.delete(f"{ADMISSION}/mutatingadmissionpolicybindings/p")
    cluster.post(CONFIG_MAPS, config_map())


def test_the_cluster_itself_is_not_changed(cluster: Cluster) -> None:
    hold(cluster, changes(apply("Object{data: {'n': 'made'}}")))
    operations = cluster.core.operations
    made = operations.create(operations.registry.of(CONFIG_MAP_KIND), "default", config_map(), WriteOptions())
    assert "n" not in made.object["data"]


def test_nobody_is_asked_about_what_no_policy_is_about(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matched = Stored.matched
    monkeypatch.setattr(Stored, "matched", lambda self, request: asked.append(self.name) or matched(self, request))
    hold(cluster, changes(apply("Object{}"), rules=of("secrets")))
    cluster.post(CONFIG_MAPS, config_map())
    assert asked == []


def test_a_policy_sees_what_the_server_fills_in_and_that_is_done_again(cluster: Cluster) -> None:
    cluster.post("/api/v1/namespaces/default/limitranges", limits())
    spec = changes(
        apply(
            "Object{metadata: Object.metadata{annotations: {'priority': string(object.spec.priority), "
            "'cpu': string(object.spec.containers[0].resources.requests.cpu), 'uid': string(has(object.metadata.uid))}}, "
            "spec: Object.spec{containers: [Object.spec.containers{name: 'side', image: 's'}]}}"
        ),
        rules=of("pods"),
    )
    hold(cluster, spec)
    made = cluster.post("/api/v1/namespaces/default/pods", POD)
    seen = {name: made["metadata"]["annotations"][name] for name in ("priority", "cpu", "uid")}
    assert seen == {"priority": "0", "cpu": "100m", "uid": "false"}
    assert [each["resources"]["requests"] for each in made["spec"]["containers"]] == [{"cpu": "100m"}] * 2


def test_a_class_given_after_the_priority_is_refused(cluster: Cluster) -> None:
    """As by upstream: a policy takes the priority away with it."""
    one = "JSONPatch{op: 'add', path: '/spec/priorityClassName', value: 'system-cluster-critical'}"
    two = "JSONPatch{op: 'remove', path: '/spec/priority'}"
    hold(cluster, changes(patch(f"[{one}]"), rules=of("pods")), "alone")
    refused = cluster.post("/api/v1/namespaces/default/pods", POD, code=403)
    assert "priority admission controller computed 2000000000" in refused["message"]
    hold(cluster, changes(patch(f"[{two}]"), rules=of("pods")), "besides")
    assert cluster.post("/api/v1/namespaces/default/pods", POD)["spec"]["priority"] == 2000000000


def limits() -> Json:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}}


def test_a_policy_may_be_about_another_version_of_the_same(cluster: Cluster) -> None:
    patched = "[JSONPatch{op: 'replace', path: '/spec/devices/requests/0/deviceClassName', value: 'made'}]"
    hold(cluster, changes(patch(patched), rules=[rule("resourceclaims", "resource.k8s.io", "v1beta1")]))
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": CLAIM_SPEC}
    made = cluster.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    assert made["apiVersion"] == "resource.k8s.io/v1"
    assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "made"


def test_policies_for_two_versions_both_count(cluster: Cluster) -> None:
    for name, version in (("a", "v1beta1"), ("b", "v1")):
        expression = f"Object{{metadata: Object.metadata{{labels: {{'{name}': string(object.apiVersion.split('/')[1])}}}}}}"
        exact = changes(apply(expression), rules=[rule("resourceclaims", "resource.k8s.io", version)])
        hold(cluster, exact, name)
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": CLAIM_SPEC}
    made = cluster.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    assert made["metadata"]["labels"] == {"a": "v1beta1", "b": "v1"}


def test_custom_resources_are_changed_by_the_rules_of_their_schema(cluster: Cluster) -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer", "default": 7}}}
    listed = {"type": "array", "items": item | {"required": ["name"]}}
    keyed = listed | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = {"type": "object", "properties": {"keyed": keyed, "plain": listed}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.post(definitions, {"metadata": {"name": "things.example.com"}, "spec": spec})
    hold(cluster, changes(apply("Object{keyed: [Object.keyed{name: 'b'}]}"), rules=of("things", "example.com")))
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "keyed": [{"name": "a", "n": 1}]}
    made = cluster.post("/apis/example.com/v1/things", thing)
    assert made["keyed"] == [{"name": "a", "n": 1}, {"name": "b", "n": 7}]
    hold(cluster, changes(apply("Object{plain: [Object.plain{name: 'b'}]}"), rules=of("things", "example.com")), "q")
    refused = cluster.post("/apis/example.com/v1/things", thing | {"metadata": {"name": "u"}}, code=403)
    assert refused["message"].endswith("may not mutate atomic arrays, maps or structs: .plain")


def test_a_patch_that_takes_the_metadata_away_is_no_trouble(cluster: Cluster) -> None:
    hold(cluster, changes(patch("[JSONPatch{op: 'remove', path: '/metadata'}]")))
    refused = cluster.post(CONFIG_MAPS, config_map(), code=422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["metadata.name"]


def test_an_update_is_seen_with_what_the_server_knows(cluster: Cluster) -> None:
    cluster.post(CONFIG_MAPS, config_map("c"))
    hold(cluster, changes(apply("Object{data: {'uid': string(object.metadata.uid == oldObject.metadata.uid)}}")))
    assert cluster.put(f"{CONFIG_MAPS}/c", config_map("c"))["data"]["uid"] == "true"
