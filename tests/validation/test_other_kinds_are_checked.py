"""Workloads, configuration, nodes, storage and the rest: what users meet first."""

from __future__ import annotations

import pytest

CONTAINER = {"name": "c", "image": "i:1"}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
SELECTOR = {"matchLabels": {"app": "a"}}


def workload(**spec):
    return {"metadata": {"name": "w"}, "spec": {"selector": SELECTOR, "template": TEMPLATE, **spec}}


def job(**spec):
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "daemonsets", "statefulsets"])
def test_a_selector_finds_its_own_pods_and_never_changes(api, plural):
    assert api.create(plural, workload()) == []
    assert api.create(plural, workload(selector={"matchLabels": {"app": "b"}})) == ["spec.template.metadata.labels"]
    assert "spec.selector" in api.create(plural, workload(selector=None))
    without = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    assert api.create(plural, workload(selector=without)) == ["spec.template.metadata.labels"]
    other = {"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [CONTAINER]}}
    changed = api.update(plural, workload(selector={"matchLabels": {"app": "b"}}, template=other), workload())
    assert changed == (["spec"] if plural == "statefulsets" else ["spec.selector"])


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"strategy": {"type": "Sudden"}}, "spec.strategy"),
        ({"minReadySeconds": 5, "progressDeadlineSeconds": 5}, "spec.progressDeadlineSeconds"),
        ({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "many"}}}, "spec.strategy.rollingUpdate.maxSurge"),
        (
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        (
            {"template": {**TEMPLATE, "spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
            "spec.template.spec.restartPolicy",
        ),
    ],
)
def test_what_is_wrong_with_a_deployment_is_named(api, spec, path):
    assert api.create("deployments", workload(**spec)) == [path]


def test_jobs_keep_their_template_and_completions(api):
    assert api.create("jobs", job()) == []
    always = {"spec": {"containers": [CONTAINER]}}
    assert api.create("jobs", job(template=always)) == ["spec.template.spec.restartPolicy"]
    again = {"spec": {"restartPolicy": "OnFailure", "containers": [CONTAINER]}}
    assert api.update("jobs", job(template=again), job()) == ["spec.template"]
    assert api.update("jobs", job(completions=5), job(completions=1)) == ["spec.completions"]
    assert api.update("jobs", job(completions=1, parallelism=5), job()) == []


def test_a_suspended_job_may_still_be_placed_elsewhere(api):
    moved = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER], "nodeSelector": {"rack": "1"}}}
    assert api.update("jobs", job(suspend=True, template=moved), job(suspend=True)) == []
    assert api.update("jobs", job(template=moved), job()) == ["spec.template"]


def test_immutable_configuration_is_kept(api):
    old = {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": True}
    assert api.update("configmaps", {**old, "data": {"a": "2"}}, old) == ["data"]
    assert api.update("configmaps", {**old, "immutable": False}, old) == ["immutable"]
    assert api.update("configmaps", {**old, "metadata": {"name": "c", "labels": {"x": "y"}}}, old) == []
    assert api.create("configmaps", {"metadata": {"name": "c"}, "data": {"a b": "1"}}) == ["data[a b]"]


def test_the_type_of_a_secret_never_changes(api):
    assert api.update("secrets", {"type": "b"}, {"type": "a"}) == ["type"]


def test_the_value_of_a_priority_class_never_changes(api):
    assert api.update("priorityclasses", {"value": 2}, {"value": 1}) == ["value"]
    assert api.create("priorityclasses", {"metadata": {"name": "p"}, "value": 1_000_000_001}) == ["value"]
    assert api.create("priorityclasses", {"metadata": {"name": "p"}, "value": 1_000_000_000}) == []


def test_taints_of_nodes(api):
    def node(*taints):
        return {"metadata": {"name": "n"}, "spec": {"taints": list(taints)}}

    assert api.create("nodes", node({"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"})) == []
    assert api.create("nodes", node({"key": "a", "effect": "Maybe"})) == ["metadata.taints[0].effect"]
    twice = {"key": "a", "effect": "NoSchedule"}
    assert api.create("nodes", node(twice, {**twice, "value": "x"})) == ["metadata.taints[1]"]


@pytest.mark.parametrize(
    ("plural", "obj", "paths"),
    [
        ("services", {"spec": {}}, ["spec.ports"]),
        ("services", {"spec": {"ports": [{"port": 0}]}}, ["spec.ports[0].port"]),
        ("services", {"spec": {"ports": [{"port": 1}, {"port": 2}]}}, ["spec.ports[0].name", "spec.ports[1].name"]),
        ("services", {"spec": {"clusterIP": "None"}}, []),
        ("leases", {"spec": {"leaseDurationSeconds": 0}}, ["spec.leaseDurationSeconds"]),
        ("poddisruptionbudgets", {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, ["spec"]),
        ("poddisruptionbudgets", {"spec": {"minAvailable": "half"}}, ["spec.minAvailable"]),
        ("persistentvolumeclaims", {"spec": {}}, ["spec.accessModes", "spec.resources[storage]"]),
        ("storageclasses", {}, ["provisioner"]),
        ("resourcequotas", {"spec": {"hard": {"cpu": "-1"}}}, ["spec.hard.cpu"]),
        ("events", {"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}, ["involvedObject.namespace"]),
    ],
)
def test_what_is_wrong_is_named(api, plural, obj, paths):
    assert api.create(plural, obj) == paths


@pytest.mark.parametrize(
    ("plural", "spec", "path"),
    [
        ("services", {"type": "ClusterIP", "ports": [{"port": 80, "targetPort": -1}]}, "spec.ports[0].targetPort"),
        ("services", {"type": "ClusterIP", "ports": [{"port": 80, "targetPort": "--"}]}, "spec.ports[0].targetPort"),
        ("services", {"type": "ClusterIP", "ports": [{"port": 80}], "sessionAffinity": "Pod"}, "spec.sessionAffinity"),
        ("poddisruptionbudgets", {"unhealthyPodEvictionPolicy": "Never"}, "spec.unhealthyPodEvictionPolicy"),
    ],
)
def test_what_kube_apiserver_refuses_is_refused(api, plural, spec, path):
    assert path in api.create(plural, {"metadata": {"name": "o"}, "spec": spec})
