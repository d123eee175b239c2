"""Kinds in several versions: one object, seen and written in each."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.conftest import Cluster
from dray.apiserver.catalog import CATALOG
from dray.apiserver.schema import text

ROOT = "/apis/resource.k8s.io"
CLAIMS = "namespaces/default/resourceclaims"
EXACTLY = {"deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"}
NOW = {"devices": {"requests": [{"name": "r", "exactly": EXACTLY}]}}
DEVICE = {"driver": "d.example.com", "pool": "p", "device": "d"}
COPIED = {"bindingConditions": ["up"], "bindingFailureConditions": ["bad"], "compatibilityGroups": {"set": ["mig"], "other": []}}
RESULT = {"request": "r", **DEVICE, **COPIED}


def old_claim(name: str = "c") -> dict:
    request = {"name": "r", **EXACTLY}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def test_a_claim_written_in_v1beta1_is_one_in_v1(cluster: Cluster) -> None:
    made = cluster.post(f"{ROOT}/v1beta1/{CLAIMS}", old_claim())
    assert (made["apiVersion"], made["spec"]["devices"]["requests"]) == ("resource.k8s.io/v1beta1", [{"name": "r", **EXACTLY}])
    now = cluster.get(f"{ROOT}/v1/{CLAIMS}/c")
    assert now["spec"]["devices"]["requests"] == [{"name": "r", "exactly": EXACTLY}]
    assert now["metadata"]["uid"] == made["metadata"]["uid"]
    assert cluster.get(f"{ROOT}/v1beta2/{CLAIMS}/c")["spec"] == now["spec"]


def test_alternatives_stay_where_they_are(cluster: Cluster) -> None:
    first = {"name": "r", "firstAvailable": [{"name": "a", **EXACTLY}]}
    cluster.post(f"{ROOT}/v1/{CLAIMS}", {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [first]}}})
    assert cluster.get(f"{ROOT}/v1beta1/{CLAIMS}/c")["spec"]["devices"]["requests"] == [first | {"deviceClassName": ""}]


def test_a_device_is_basic_in_v1beta1_only(cluster: Cluster) -> None:
    spec = {"nodeName": "n", "driver": "d.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    device = {"name": "gpu-0", "basic": {"attributes": {"model": {"string": "x"}}}}
    cluster.post(f"{ROOT}/v1beta1/resourceslices", {"metadata": {"name": "s"}, "spec": {**spec, "devices": [device]}})
    assert cluster.get(f"{ROOT}/v1/resourceslices/s")["spec"]["devices"] == [{"name": "gpu-0", **device["basic"]}]
    assert cluster.get(f"{ROOT}/v1beta1/resourceslices/s")["spec"]["devices"] == [device]


def test_lists_watches_and_deletes_speak_the_version_that_was_asked_for(cluster: Cluster) -> None:
    news = cluster.watch(f"{ROOT}/v1beta1/{CLAIMS}")
    cluster.post(
        f"{ROOT}/v1/{CLAIMS}", {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": EXACTLY}]}}}
    )
    [(type_, seen)] = news()
    assert (type_, seen["apiVersion"]) == ("ADDED", "resource.k8s.io/v1beta1")
    assert seen["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"
    listed = cluster.get(f"{ROOT}/v1beta1/{CLAIMS}")
    assert listed["apiVersion"] == "resource.k8s.io/v1beta1"
    removed = cluster.delete(f"{ROOT}/v1beta1/{CLAIMS}")["items"]
    assert [each["spec"]["devices"]["requests"][0]["deviceClassName"] for each in removed] == ["gpu"]


def test_a_rule_of_v1alpha3_is_one_of_v1(cluster: Cluster) -> None:
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    body = {"metadata": {"name": "t"}, "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": taint}}
    cluster.post(f"{ROOT}/v1alpha3/devicetaintrules", body)
    assert cluster.get(f"{ROOT}/v1/devicetaintrules/t")["spec"] == body["spec"]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
@pytest.mark.parametrize("more", [{"deviceClassName": "gpu"}, {"selectors": [{"cel": {"expression": "true"}}]}, {"drivers": "d"}])
def test_a_rule_that_would_lose_what_it_selects_by_is_refused(
    cluster: Cluster, version: str, validation: str, more: dict
) -> None:
    """Without a field that nobody knows the selector would be about more devices, without its only one about all."""
    path = f"{ROOT}/{version}/devicetaintrules"
    spec = {"deviceSelector": more, "taint": {"key": "k", "effect": "NoExecute"}}
    body = {"metadata": {"name": "t"}, "spec": spec}
    answer = cluster.call("POST", f"{path}?fieldValidation={validation}", body, code=400)
    assert f'unknown field "spec.deviceSelector.{next(iter(more))}"' in answer["message"]
    cluster.post(path, {**body, "spec": {**spec, "deviceSelector": {"device": "gpu-0"}}})
    answer = cluster.call(
        "PATCH",
        f"{path}/t?fieldValidation={validation}",
        {"spec": {"deviceSelector": {"device": None, **more}}},
        code=400,
        content_type="application/merge-patch+json",
    )
    assert f'unknown field "spec.deviceSelector.{next(iter(more))}"' in answer["message"]


def test_an_applier_is_the_same_in_each_version(cluster: Cluster) -> None:
    def apply(version: str, requests: list[dict]) -> dict:
        body = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        body["spec"] = {"devices": {"requests": requests}}
        path = f"{ROOT}/{version}/{CLAIMS}/c?fieldManager=me"
        return cluster.call("PATCH", path, msgspec.json.encode(body), content_type="application/apply-patch+yaml")

    apply("v1beta1", [{"name": "r", **EXACTLY}])
    made = apply("v1", [{"name": "r", "exactly": EXACTLY}])
    assert [(entry["manager"], entry["apiVersion"]) for entry in made["metadata"]["managedFields"]] == [
        ("me", "resource.k8s.io/v1")
    ]


REQUESTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("ab")},
        optional={
            "exactly": st.fixed_dictionaries(
                {"deviceClassName": st.sampled_from(["x", "y"])},
                optional={
                    "count": st.integers(1, 9),
                    "adminAccess": st.booleans(),
                    "selectors": st.just([{"cel": {"expression": "true"}}]),
                },
            )
        },
    ),
    max_size=3,
)


@given(REQUESTS)
def test_there_and_back_nothing_is_lost(requests: list[dict]) -> None:
    resource = CATALOG.find("resource.k8s.io", "v1beta1", "resourceclaims")
    assert resource is not None
    assert resource.to_stored is not None
    assert resource.from_stored is not None
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": {"requests": requests}}}
    assert resource.to_stored(resource.from_stored(claim)) == claim


def declared(file: str) -> dict[str, set[str]]:
    return {name: set(struct.fields) for name, struct in text.read(file).items()}


def test_older_versions_of_devices_have_every_field() -> None:
    """A client of theirs writes objects back as it read them: a field less, and it is lost, or nothing can be written back."""
    now, beta2, beta1 = declared("resource"), declared("resource.v1beta2"), declared("resource.v1beta1")
    assert {name: beta2.get(name) for name in now} == now
    assert beta1.pop("BasicDevice") | {"name"} == now.pop("Device")
    assert beta1.pop("Device") == {"name", "basic"}
    assert beta1.pop("DeviceRequest") | {"exactly"} == now.pop("DeviceRequest") | now.pop("ExactDeviceRequest")
    assert {name: fields for name, fields in now.items() if not name.startswith("DeviceTaintRule")}.items() >= beta1.items()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_claim_that_was_allocated_can_be_written_back_in_each_version(cluster: Cluster, version: str) -> None:
    cluster.post(f"{ROOT}/v1/{CLAIMS}", {"metadata": {"name": "c"}, "spec": NOW})
    allocation = {"devices": {"results": [RESULT]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
    cluster.patch(f"{ROOT}/v1/{CLAIMS}/c/status", {"status": {"allocation": allocation}})
    seen = cluster.get(f"{ROOT}/{version}/{CLAIMS}/c")
    assert seen["status"]["allocation"] == allocation
    conditions = [{"type": "up", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    seen["status"]["devices"] = [{**DEVICE, "conditions": conditions}]
    cluster.put(f"{ROOT}/{version}/{CLAIMS}/c/status", seen)
    status = cluster.get(f"{ROOT}/v1/{CLAIMS}/c")["status"]
    assert status == {"allocation": allocation, "devices": seen["status"]["devices"]}


def test_a_client_that_does_not_know_compatibility_groups_can_write_a_claim_back(cluster: Cluster) -> None:
    """As those of Kubernetes 1.37 do: a driver that reports, and whoever takes the pods that ended from it."""
    cluster.post(f"{ROOT}/v1/{CLAIMS}", {"metadata": {"name": "c"}, "spec": NOW})
    cluster.patch(f"{ROOT}/v1/{CLAIMS}/c/status", {"status": {"allocation": {"devices": {"results": [RESULT]}}}})
    seen = cluster.get(f"{ROOT}/v1/{CLAIMS}/c")
    del seen["status"]["allocation"]["devices"]["results"][0]["compatibilityGroups"]
    seen["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    written = cluster.put(f"{ROOT}/v1/{CLAIMS}/c/status", seen)
    assert written["status"]["allocation"]["devices"]["results"] == [RESULT]
    seen = cluster.get(f"{ROOT}/v1/{CLAIMS}/c")
    seen["status"]["allocation"]["devices"]["results"][0]["compatibilityGroups"] = {"set": ["vgpu"]}
    cluster.put(f"{ROOT}/v1/{CLAIMS}/c/status", seen, code=422)
    del seen["status"]["allocation"]["devices"]["results"][0]["compatibilityGroups"]
    seen["status"]["allocation"]["devices"]["results"][0]["device"] = "other"
    cluster.put(f"{ROOT}/v1/{CLAIMS}/c/status", seen, code=422)


@pytest.mark.parametrize("plural", ["workloads", "podgroups"])
def test_groups_are_served_in_both_versions(cluster: Cluster, plural: str) -> None:
    for version in ("v1beta1", "v1alpha3"):
        assert cluster.get(f"/apis/scheduling.k8s.io/{version}/namespaces/default/{plural}")["items"] == []


class TestAutoscalers:
    """autoscaling/v1 is a view of v2, which can say more."""

    PATH = "namespaces/default/horizontalpodautoscalers"
    TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}

    def test_the_use_of_processors_is_one_number_in_v1(self, cluster: Cluster) -> None:
        spec = {"scaleTargetRef": self.TARGET, "maxReplicas": 3, "targetCPUUtilizationPercentage": 70}
        made = cluster.post(f"/apis/autoscaling/v1/{self.PATH}", {"metadata": {"name": "h"}, "spec": spec})
        assert made["spec"] == {**spec, "minReplicas": 1}
        stored = cluster.get(f"/apis/autoscaling/v2/{self.PATH}/h")
        target = {"type": "Utilization", "averageUtilization": 70}
        assert stored["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]

    def test_a_client_of_v1_loses_nothing_that_v2_said(self, cluster: Cluster) -> None:
        pods = {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}}
        usage = {"type": "Utilization", "averageUtilization": 50}
        metrics = [pods, {"type": "Resource", "resource": {"name": "cpu", "target": usage}}]
        spec = {"scaleTargetRef": self.TARGET, "maxReplicas": 3, "metrics": metrics, "behavior": {"scaleUp": {"policies": []}}}
        before = cluster.post(f"/apis/autoscaling/v2/{self.PATH}", {"metadata": {"name": "h"}, "spec": spec})
        seen = cluster.get(f"/apis/autoscaling/v1/{self.PATH}/h")
        assert seen["spec"]["targetCPUUtilizationPercentage"] == 50
        cluster.put(f"/apis/autoscaling/v1/{self.PATH}/h", seen | {"spec": seen["spec"] | {"maxReplicas": 9}})
        after = cluster.get(f"/apis/autoscaling/v2/{self.PATH}/h")
        assert after["spec"] == before["spec"] | {"maxReplicas": 9}
        assert "annotations" not in after["metadata"]

    def test_the_newer_version_is_preferred(self, cluster: Cluster) -> None:
        assert cluster.get("/apis/autoscaling")["preferredVersion"]["version"] == "v2"

    @pytest.mark.parametrize("text", ["[7", "7", '{"spec": 7}', '{"spec": {"metrics": 7}}', '{"spec": {"behavior": 7}}'])
    def test_an_annotation_that_somebody_wrote_is_no_trouble(self, cluster: Cluster, text: str) -> None:
        odd = {"name": "h", "annotations": {"autoscaling.dray.dev/v2": text}}
        spec = {"scaleTargetRef": self.TARGET, "maxReplicas": 3}
        cluster.post(f"/apis/autoscaling/v1/{self.PATH}", {"metadata": odd, "spec": spec})
        found = cluster.get(f"/apis/autoscaling/v2/{self.PATH}/h")["spec"]
        assert (found["maxReplicas"], "behavior" in found) == (3, False)
