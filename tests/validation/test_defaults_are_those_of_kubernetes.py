"""What the API fills in."""

from __future__ import annotations

import copy

import pytest

from dray.api.defaults import apply_defaults
from dray.api.pod_defaults import qos_class

NOW = 1767323045.7
TIME = "2026-01-02T03:04:05Z"


def defaulted(plural, obj):
    made = apply_defaults(plural, copy.deepcopy(obj), NOW)
    assert apply_defaults(plural, copy.deepcopy(made), NOW + 60) == made, "defaults are not stable"
    return made


def test_requests_for_devices_ask_for_one():
    request = {"name": "a", "exactly": {"tolerations": [{"key": "k"}]}}
    alternatives = {"name": "b", "firstAvailable": [{"name": "x"}, {"name": "y", "allocationMode": "All"}]}
    made = defaulted("resourceclaims", {"spec": {"devices": {"requests": [request, alternatives]}}})
    first, second = made["spec"]["devices"]["requests"]
    assert first["exactly"] == {"allocationMode": "ExactCount", "count": 1, "tolerations": [{"key": "k", "operator": "Equal"}]}
    assert second["firstAvailable"] == [
        {"name": "x", "allocationMode": "ExactCount", "count": 1},
        {"name": "y", "allocationMode": "All"},
    ]


def test_templates_are_defaulted_like_claims():
    made = defaulted("resourceclaimtemplates", {"spec": {"spec": {"devices": {"requests": [{"exactly": {}}]}}}})
    assert made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


def test_taints_without_a_time_were_added_now():
    device = {"name": "d", "taints": [{"key": "a"}, {"key": "b", "timeAdded": "2020-01-01T00:00:00Z"}]}
    made = defaulted("resourceslices", {"spec": {"devices": [device]}})
    assert [taint["timeAdded"] for taint in made["spec"]["devices"][0]["taints"]] == [TIME, "2020-01-01T00:00:00Z"]
    assert defaulted("devicetaintrules", {"spec": {"taint": {}}})["spec"]["taint"]["timeAdded"] == TIME


def test_a_pod_with_one_container():
    made = defaulted("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    spec = made["spec"]
    assert spec["containers"] == [
        {
            "name": "c",
            "image": "i:1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"]) == ("Always", "ClusterFirst", "default-scheduler")
    assert (spec["terminationGracePeriodSeconds"], spec["enableServiceLinks"], spec["securityContext"]) == (30, True, {})
    assert [(t["key"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert made["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("registry:5000/app", "Always"),
        ("registry:5000/app:1", "IfNotPresent"),
        ("app@sha256:abc", "IfNotPresent"),
    ],
)
def test_images_that_may_change_are_always_pulled(image, policy):
    made = defaulted("pods", {"spec": {"containers": [{"name": "c", "image": image}]}})
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_requests_follow_limits_in_pods_but_not_in_templates():
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    pod = defaulted("pods", {"spec": spec})
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    deployment = defaulted("deployments", {"spec": {"template": {"spec": spec}}})
    template = deployment["spec"]["template"]["spec"]
    assert template["containers"][0]["resources"]["requests"] == {"cpu": "500m"}
    assert "enableServiceLinks" not in template
    assert "tolerations" not in template


def test_a_toleration_of_everything_is_not_added_to():
    spec = {"containers": [], "tolerations": [{"operator": "Exists"}]}
    assert defaulted("pods", {"spec": spec})["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("plural", "given", "field", "value"),
    [
        ("deployments", {}, "strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}),
        ("deployments", {"strategy": {"type": "Recreate"}}, "strategy", {"type": "Recreate"}),
        ("deployments", {}, "progressDeadlineSeconds", 600),
        ("replicasets", {}, "replicas", 1),
        ("replicasets", {"replicas": 0}, "replicas", 0),
        ("statefulsets", {}, "podManagementPolicy", "OrderedReady"),
        ("daemonsets", {}, "updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
        ("jobs", {}, "completions", 1),
        ("jobs", {"parallelism": 3}, "completions", None),
        ("jobs", {}, "backoffLimit", 6),
        ("cronjobs", {}, "concurrencyPolicy", "Allow"),
        ("persistentvolumes", {}, "persistentVolumeReclaimPolicy", "Retain"),
        ("persistentvolumeclaims", {}, "volumeMode", "Filesystem"),
        ("services", {"ports": [{"port": 80}]}, "ports", [{"port": 80, "protocol": "TCP", "targetPort": 80}]),
        ("services", {"clusterIP": "None"}, "clusterIPs", ["None"]),
        ("csidrivers", {}, "attachRequired", True),
    ],
)
def test_fields_of_other_kinds(plural, given, field, value):
    assert defaulted(plural, {"metadata": {"name": "x"}, "spec": given})["spec"].get(field) == value


def test_fields_without_a_spec():
    assert defaulted("priorityclasses", {"value": 1})["preemptionPolicy"] == "PreemptLowerPriority"
    assert defaulted("storageclasses", {})["volumeBindingMode"] == "Immediate"
    assert defaulted("secrets", {"stringData": {"a": "b"}, "data": {"c": "ZA=="}}) == {
        "type": "Opaque",
        "data": {"a": "Yg==", "c": "ZA=="},
    }
    assert defaulted("namespaces", {"metadata": {"name": "n"}})["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert defaulted("nodes", {"status": {"capacity": {"cpu": "8"}}})["status"]["allocatable"] == {"cpu": "8"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], "Burstable"),
    ],
)
def test_quality_of_service_follows_from_resources(resources, expected):
    pod = {"spec": {"containers": [{"name": f"c{i}", "resources": each} for i, each in enumerate(resources)]}}
    assert qos_class(pod) == expected
