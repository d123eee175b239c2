"""Objects are created, changed and deleted as the API promises."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.apiserver.conftest import CONFIG_MAPS, PODS, START, Cluster, config_map, pod


def test_the_server_sets_what_is_the_servers(cluster: Cluster) -> None:
    made = cluster.post(CONFIG_MAPS, config_map(uid="mine", generation=7), code=201)["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["uid"])
    assert made["namespace"] == "default"
    assert made["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert "generation" not in made


def test_a_resource_version_on_create_is_refused(cluster: Cluster) -> None:
    refused = cluster.post(CONFIG_MAPS, config_map(resourceVersion="1"), code=400)
    assert "resourceVersion should not be set" in refused["message"]


def test_a_name_is_taken_once(cluster: Cluster) -> None:
    cluster.post(CONFIG_MAPS, config_map())
    assert cluster.post(CONFIG_MAPS, config_map(), code=409)["reason"] == "AlreadyExists"


def test_generated_names_have_five_letters_more(cluster: Cluster) -> None:
    body = config_map() | {"metadata": {"generateName": "a" * 70}}
    names = {cluster.post(CONFIG_MAPS, body)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch("a{58}[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_a_generated_name_that_is_taken_is_tried_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["x-1", "x-1", "x-1", "x-2"])
    monkeypatch.setattr("dray.apiserver.metadata.generated_name", lambda base, randomness: next(names))
    body = config_map() | {"metadata": {"generateName": "x-"}}
    assert [cluster.post(CONFIG_MAPS, body)["metadata"]["name"] for _ in range(2)] == ["x-1", "x-2"]


def test_two_writers_of_one_version_conflict(cluster: Cluster) -> None:
    first = cluster.post(CONFIG_MAPS, config_map())
    cluster.put(f"{CONFIG_MAPS}/cm", first | {"data": {"k": "2"}})
    refused = cluster.put(f"{CONFIG_MAPS}/cm", first | {"data": {"k": "3"}}, code=409)
    assert refused["message"].startswith('Operation cannot be fulfilled on configmaps "cm": the object has been modified')
    assert cluster.get(f"{CONFIG_MAPS}/cm")["data"] == {"k": "2"}


def test_another_uid_conflicts(cluster: Cluster) -> None:
    cluster.post(CONFIG_MAPS, config_map())
    assert cluster.put(f"{CONFIG_MAPS}/cm", config_map(uid="other"), code=409)["reason"] == "Conflict"


def test_a_write_that_changes_nothing_keeps_the_version_and_sends_no_event(cluster: Cluster) -> None:
    made = cluster.post(CONFIG_MAPS, config_map())
    events = cluster.watch(f"{CONFIG_MAPS}?resourceVersion={made['metadata']['resourceVersion']}")
    assert cluster.put(f"{CONFIG_MAPS}/cm", config_map())["metadata"] == made["metadata"]
    assert cluster.patch(f"{CONFIG_MAPS}/cm", {"data": {"k": "v"}})["metadata"] == made["metadata"]
    assert events() == []


def test_generation_counts_changes_of_the_spec_only(cluster: Cluster) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert cluster.post(path, body)["metadata"]["generation"] == 1
    assert cluster.patch(f"{path}/d", {"metadata": {"labels": {"x": "y"}}})["metadata"]["generation"] == 1
    assert cluster.patch(f"{path}/d", {"spec": {"replicas": 3}})["metadata"]["generation"] == 2
    assert cluster.patch(f"{path}/d/status", {"status": {"replicas": 3}})["metadata"]["generation"] == 2


def test_a_dry_run_answers_and_stores_nothing(cluster: Cluster) -> None:
    assert cluster.post(f"{CONFIG_MAPS}?dryRun=All", config_map())["metadata"]["uid"]
    assert cluster.get(CONFIG_MAPS)["items"] == []
    before = cluster.post(CONFIG_MAPS, config_map())["metadata"]["resourceVersion"]
    assert cluster.patch(f"{CONFIG_MAPS}/cm?dryRun=All", {"data": {"k": "2"}})["data"] == {"k": "2"}
    cluster.delete(f"{CONFIG_MAPS}/cm?dryRun=All")
    assert cluster.get(f"{CONFIG_MAPS}/cm")["metadata"]["resourceVersion"] == before


def test_an_object_whose_manager_gave_no_time_can_still_be_changed(cluster: Cluster) -> None:
    cluster.post(CONFIG_MAPS, config_map())
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}
    cluster.patch(f"{CONFIG_MAPS}/cm", {"metadata": {"managedFields": [entry]}})
    cluster.put(f"{CONFIG_MAPS}/cm", cluster.get(f"{CONFIG_MAPS}/cm") | {"data": {"k": "new"}})
    assert cluster.get(f"{CONFIG_MAPS}/cm")["data"] == {"k": "new"}


def test_what_the_server_adds_to_a_new_object_belongs_to_nobody(cluster: Cluster) -> None:
    """kubectl makes an Update into an Apply before it applies again: nothing that is not in the manifest may be dropped then."""
    made = cluster.post(f"{PODS}?fieldManager=kubectl", pod())
    (entry,) = made["metadata"]["managedFields"]
    assert {"f:volumes", "f:serviceAccountName", "f:priority", "f:preemptionPolicy"}.isdisjoint(entry["fieldsV1"]["f:spec"])
    cluster.patch(f"{PODS}/p", {"metadata": {"managedFields": [entry | {"operation": "Apply"}]}})
    apply = "application/apply-patch+yaml"
    again = cluster.call("PATCH", f"{PODS}/p?fieldManager=kubectl", pod(), code=200, content_type=apply)
    assert again["spec"] == made["spec"]


def test_who_applies_without_the_last_label_that_it_owned_changes_the_same_object(cluster: Cluster) -> None:
    apply, url = "application/apply-patch+yaml", f"{CONFIG_MAPS}/cm?fieldManager=one"
    config: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "b"}}
    labelled = config | {"metadata": {"name": "cm", "labels": {"a": "b"}, "annotations": {}}}
    made = cluster.call("PATCH", url, labelled, code=201, content_type=apply)
    changed = cluster.call("PATCH", url, config, code=200, content_type=apply)
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert "labels" not in changed["metadata"]


def test_a_refused_change_leaves_nothing_behind(cluster: Cluster) -> None:
    before = cluster.post(PODS, pod())
    cluster.patch(
        f"{PODS}/p", {"spec": {"containers": [{"name": "c", "image": ""}]}, "metadata": {"labels": {"a": "b"}}}, code=422
    )
    assert cluster.get(f"{PODS}/p") == before


class TestDeletion:
    def test_an_object_without_finalizers_is_gone_at_once(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map())
        assert cluster.delete(f"{CONFIG_MAPS}/cm")["status"] == "Success"
        cluster.call("GET", f"{CONFIG_MAPS}/cm", code=404)

    def test_finalizers_hold_an_object_until_the_last_is_removed(self, cluster: Cluster) -> None:
        made = cluster.post(CONFIG_MAPS, config_map(finalizers=["example.com/a", "example.com/b"]))
        events = cluster.watch(f"{CONFIG_MAPS}?resourceVersion={made['metadata']['resourceVersion']}")
        held = cluster.delete(f"{CONFIG_MAPS}/cm")["metadata"]
        assert held["deletionTimestamp"]
        assert held["deletionGracePeriodSeconds"] == 0
        more = {"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}}
        assert "no new finalizers" in cluster.patch(f"{CONFIG_MAPS}/cm", more, code=422)["message"]
        cluster.patch(f"{CONFIG_MAPS}/cm", {"metadata": {"finalizers": ["example.com/b"]}})
        cluster.patch(f"{CONFIG_MAPS}/cm", {"metadata": {"finalizers": None}})
        cluster.call("GET", f"{CONFIG_MAPS}/cm", code=404)
        assert [type for type, _ in events()] == ["MODIFIED", "MODIFIED", "DELETED"]

    def test_preconditions_must_hold(self, cluster: Cluster) -> None:
        made = cluster.post(CONFIG_MAPS, config_map())["metadata"]
        cluster.delete(f"{CONFIG_MAPS}/cm", {"preconditions": {"uid": "other"}}, code=409)
        cluster.delete(f"{CONFIG_MAPS}/cm", {"preconditions": {"resourceVersion": "1"}}, code=409)
        cluster.delete(f"{CONFIG_MAPS}/cm", {"preconditions": {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}})

    @pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
    def test_a_policy_leaves_its_finalizer_for_the_garbage_collector(self, cluster: Cluster, policy: str, finalizer: str) -> None:
        cluster.post(CONFIG_MAPS, config_map())
        held = cluster.delete(f"{CONFIG_MAPS}/cm", {"propagationPolicy": policy})
        assert held["metadata"]["finalizers"] == [finalizer]
        cluster.delete(f"{CONFIG_MAPS}/cm", {"propagationPolicy": "Background"})
        cluster.call("GET", f"{CONFIG_MAPS}/cm", code=404)

    def test_a_collection_goes_by_selector(self, cluster: Cluster) -> None:
        for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
            cluster.post(CONFIG_MAPS, config_map(name, labels={"l": label}))
        assert len(cluster.delete(f"{CONFIG_MAPS}?labelSelector=l=x")["items"]) == 2
        assert [i["metadata"]["name"] for i in cluster.get(CONFIG_MAPS)["items"]] == ["b"]


class TestPodsAreDeletedGracefully:
    def test_an_unscheduled_pod_goes_at_once(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod())
        cluster.delete(f"{PODS}/p")
        cluster.call("GET", f"{PODS}/p", code=404)

    def test_a_pod_on_a_node_has_its_grace_period_which_only_shrinks(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod(nodeName="n", terminationGracePeriodSeconds=17))
        assert cluster.delete(f"{PODS}/p")["metadata"]["deletionGracePeriodSeconds"] == 17
        assert cluster.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})["metadata"]["deletionGracePeriodSeconds"] == 5
        assert cluster.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})["metadata"]["deletionGracePeriodSeconds"] == 5
        cluster.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        cluster.call("GET", f"{PODS}/p", code=404)

    def test_a_negative_grace_period_is_one_second(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod(nodeName="n"))
        metadata = cluster.delete(f"{PODS}/p?gracePeriodSeconds=-3")["metadata"]
        assert (metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"]) == (1, "2027-01-15T08:00:01Z")

    def test_removing_a_finalizer_does_not_cut_the_grace_period(self, cluster: Cluster) -> None:
        body = pod(nodeName="n")
        body["metadata"]["finalizers"] = ["example.com/hold"]
        cluster.post(PODS, body)
        cluster.delete(f"{PODS}/p")
        cluster.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})
        assert cluster.get(f"{PODS}/p")["metadata"]["deletionGracePeriodSeconds"] == 30


class TestNamespaces:
    def test_nothing_is_created_in_a_missing_one(self, cluster: Cluster) -> None:
        refused = cluster.post("/api/v1/namespaces/nowhere/configmaps", config_map(), code=404)
        assert refused["message"] == 'namespaces "nowhere" not found'

    def test_a_terminating_one_takes_nothing_new_and_goes_when_finalized(self, cluster: Cluster) -> None:
        cluster.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        assert cluster.delete("/api/v1/namespaces/n")["status"]["phase"] == "Terminating"
        refused = cluster.post("/api/v1/namespaces/n/configmaps", config_map(), code=403)
        assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        cluster.put("/api/v1/namespaces/n", {"metadata": {"name": "n"}, "spec": {"finalizers": []}})
        assert cluster.get("/api/v1/namespaces/n")["spec"]["finalizers"] == ["kubernetes"]
        cluster.put("/api/v1/namespaces/n/finalize", {"metadata": {"name": "n"}, "spec": {"finalizers": []}})
        cluster.call("GET", "/api/v1/namespaces/n", code=404)

    def test_default_cannot_be_deleted(self, cluster: Cluster) -> None:
        assert cluster.delete("/api/v1/namespaces/default", code=403)["reason"] == "Forbidden"


def test_a_pods_priority_comes_from_its_class(cluster: Cluster) -> None:
    cluster.post(
        "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    )
    spec = cluster.post(PODS, pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    assert cluster.post(PODS, pod("q"))["spec"]["priority"] == 0
    assert "no PriorityClass with name ghost" in cluster.post(PODS, pod("r", priorityClassName="ghost"), code=403)["message"]


def test_the_same_requests_give_the_same_bytes() -> None:
    def run() -> bytes:
        cluster = Cluster(seed=7)
        for number in range(5):
            cluster.now = START + number
            cluster.post(PODS, pod() | {"metadata": {"generateName": "p-"}})
        return b"".join(entry.raw for _, entry in cluster.core.store.table("pods").scan())

    assert run() == run()
