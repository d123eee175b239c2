"""The stories that the enhancement proposals tell, with `dray scheduler` on a real kube-apiserver and on `dray up`.

Each test is one sentence of a proposal. The manifests are the proposals', in the shape of resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.stage import Stage, report, request
from tests.real.upstream import manifests as make
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.control_plane import Server
from tests.real.upstream.dray import CONTROLLERS, dray_part

Json = dict[str, Any]


@pytest.fixture
def dray(cluster: Server, tmp_path: Path) -> Iterator[None]:
    """Dray's scheduler and controllers on the cluster, for one test."""
    with (
        dray_part("scheduler", cluster.kubeconfig, tmp_path, "--scheduler-name", "default-scheduler"),
        dray_part("controllers", cluster.kubeconfig, tmp_path, "--only", CONTROLLERS),
    ):
        yield


@pytest.fixture
def stage(client: Client, namespace: str) -> Iterator[Stage]:
    made = Stage(client, namespace)
    yield made
    made.clear()


# --------------------------------------------------------------------------------------- KEP-5963: compatibility groups


def partition(name: str, kind: str, units: int, counters: str, *groups: str, unit: str = "multiprocessors") -> Json:
    consumes: Json = {"counterSet": counters, "counters": {unit: {"value": str(units)}}}
    if groups:
        consumes["compatibilityGroups"] = list(groups)
    return {"name": name, "attributes": {"type": {"string": kind}}, "consumesCounters": [consumes]}


def partitioned_node(devices: list[Json], driver: str, counters: str, unit: str = "multiprocessors") -> list[Json]:
    """node-1 with one card in partitions: a slice of counters and a slice of devices."""
    shared = [{"name": counters, "counters": {unit: {"value": "100"}}}]
    pool = {"name": "node-1-pool", "generation": 1, "resourceSliceCount": 2}
    made = make.resource_slice("node-1", devices, driver=driver, pool="devices")
    made["spec"]["pool"] = pool
    counter_slice = make.resource_slice("node-1", [], driver=driver, pool="counters", sharedCounters=shared)
    counter_slice["spec"]["pool"] = pool
    del counter_slice["spec"]["devices"]
    return [make.device_class(driver, driver), make.node("node-1"), counter_slice, made]


def mig_and_vgpu(grouped: bool) -> list[Json]:
    def groups(kind: str) -> tuple[str, ...]:
        return (kind,) if grouped else ()

    devices = [partition(f"gpu-0-mig-1g-{n}", "mig-1g", 20, "gpu-0-counters", *groups("mig")) for n in range(2)]
    devices += [partition(f"gpu-0-vgpu-{n}", "vgpu", 50, "gpu-0-counters", *groups("vgpu")) for n in range(2)]
    return partitioned_node(devices, "gpu.example.com", "gpu-0-counters")


@pytest.mark.usefixtures("dray")
def test_5963_example_1_partitions_of_one_scheme_share_a_gpu(stage: Stage) -> None:
    devices = [partition(f"gpu-0-mig-1g-{n}", "mig-1g", 20, "gpu-0-counters") for n in range(3)]
    stage.add(*partitioned_node(devices, "gpu.example.com", "gpu-0-counters"))
    stage.run("pod-a", request(kind="mig-1g"))
    assert stage.bound("pod-a") == "node-1"
    stage.run("pod-b", request(kind="mig-1g"))
    assert stage.bound("pod-b") == "node-1"
    assert (stage.devices("pod-a"), stage.devices("pod-b")) == (["gpu-0-mig-1g-0"], ["gpu-0-mig-1g-1"])


@pytest.mark.usefixtures("dray")
def test_5963_example_2_without_groups_both_schemes_are_allocated(stage: Stage) -> None:
    stage.add(*mig_and_vgpu(grouped=False))
    stage.run("pod-a", request(kind="mig-1g"))
    stage.run("pod-b", request(kind="vgpu"))
    assert stage.bound("pod-a") == stage.bound("pod-b") == "node-1"


@pytest.mark.usefixtures("dray")
@pytest.mark.parametrize(("first", "second"), [("mig-1g", "vgpu"), ("vgpu", "mig-1g")])
def test_5963_example_3_with_groups_the_second_scheme_waits_and_says_why(stage: Stage, first: str, second: str) -> None:
    stage.add(*mig_and_vgpu(grouped=True))
    stage.run("pod-a", request(kind=first))
    assert stage.bound("pod-a") == "node-1"
    stage.run("pod-b", request(kind=second))
    assert "1 node" in stage.refused("pod-b")
    stage.run("pod-c", request(kind=first))
    assert stage.bound("pod-c") == "node-1"
    for name in ("pod-a", "pod-c"):
        stage.client.delete("Pod", name, stage.namespace)
    assert stage.bound("pod-b") == "node-1"


@pytest.mark.usefixtures("dray")
def test_5963_example_4_a_device_in_several_groups_narrows_what_may_join(stage: Stage) -> None:
    devices = [
        partition("device-0-foo-0", "foo", 25, "device-0-counters", "foo", "foobar", unit="units"),
        partition("device-0-bar-0", "bar", 25, "device-0-counters", "bar", "foobar", unit="units"),
        partition("device-0-baz-0", "baz", 50, "device-0-counters", "baz", unit="units"),
    ]
    stage.add(*partitioned_node(devices, "device.example.com", "device-0-counters", "units"))
    for name, kind in (("pod-a", "foo"), ("pod-b", "bar")):
        stage.run(name, request("device.example.com", kind))
        assert stage.bound(name) == "node-1"
    stage.run("pod-c", request("device.example.com", "baz"))
    stage.refused("pod-c")


@pytest.mark.usefixtures("dray")
def test_5963_the_groups_are_kept_in_the_claim_where_the_server_keeps_the_field(stage: Stage, cluster: Server) -> None:
    stage.add(*mig_and_vgpu(grouped=True))
    stage.run("pod-a", request(kind="mig-1g"))
    stage.bound("pod-a")
    kept = stage.results("pod-a")[0].get("compatibilityGroups")
    assert kept in ({"gpu-0-counters": ["mig"]}, None)
    if "dray" in cluster.programs[0].name:
        assert kept is not None


# ------------------------------------------------------------------------------------------ KEP-5004: extended resources


def gpu_cluster(*, plugin_node: bool = False) -> list[Json]:
    """The proposal's cluster: one node whose GPUs are published by a driver, and one whose GPUs a device plugin offers."""
    of_type = {"cel": {"expression": "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'"}}
    objects: list[Json] = [make.device_class("gpu.example.com", selectors=[of_type], extendedResourceName="example.com/gpu")]
    devices = [{"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}} for n in range(8)]
    objects += [make.node("zrw2", cpu="4"), make.resource_slice("zrw2", devices)]
    if plugin_node:
        node = make.node("xyz8", cpu="4")
        for side in ("capacity", "allocatable"):
            node["status"][side] = {**node["status"][side], "example.com/gpu": "2"}
        objects.append(node)
    return objects


def asking(name: str, namespace: str, amount: str, resource: str = "example.com/gpu", **spec: Any) -> Json:
    pod = make.pod(name, namespace=namespace, **spec)
    pod["spec"]["containers"][0]["resources"] = {"limits": {resource: amount}}
    return pod


@pytest.mark.usefixtures("dray")
def test_5004_the_demo_deployment_runs_on_devices_of_a_driver(stage: Stage) -> None:
    stage.add(*gpu_cluster())
    template = {"metadata": {"labels": {"app": "demo"}}, "spec": asking("demo", stage.namespace, "1")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "demo"}}, "template": template}
    meta = {"name": "demo", "namespace": stage.namespace}
    stage.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    pod = eventually(lambda: stage.client.list("Pod", stage.namespace), "the Deployment has a pod")[0]
    name = pod["metadata"]["name"]
    assert stage.bound(name) == "zrw2"
    status = stage.pod(name)["status"]["extendedResourceClaimStatus"]
    assert status["requestMappings"] == [
        {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    ]
    claim = stage.client.get("ResourceClaim", status["resourceClaimName"], stage.namespace)
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert [consumer["uid"] for consumer in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    stage.client.delete("Deployment", "demo", stage.namespace)


@pytest.mark.usefixtures("dray")
def test_5004_device_plugin_nodes_and_driver_nodes_serve_one_name(stage: Stage) -> None:
    stage.add(*gpu_cluster(plugin_node=True))
    stage.client.create(asking("on-plugin", stage.namespace, "2", nodeSelector={"kubernetes.io/hostname": "xyz8"}))
    stage.client.create(asking("on-driver", stage.namespace, "2", nodeSelector={"kubernetes.io/hostname": "zrw2"}))
    assert (stage.bound("on-plugin"), stage.bound("on-driver")) == ("xyz8", "zrw2")
    assert "extendedResourceClaimStatus" not in stage.pod("on-plugin")["status"]
    assert "extendedResourceClaimStatus" in stage.pod("on-driver")["status"]
    stage.client.create(asking("too-much", stage.namespace, "9"))
    stage.refused("too-much")


@pytest.mark.usefixtures("dray")
def test_5004_every_class_has_an_implicit_name(stage: Stage) -> None:
    stage.add(*gpu_cluster())
    stage.client.create(asking("implicit", stage.namespace, "1", "deviceclass.resource.kubernetes.io/gpu.example.com"))
    assert stage.bound("implicit") == "zrw2"


@pytest.mark.usefixtures("dray")
def test_5004_the_special_claim_goes_with_its_pod(stage: Stage) -> None:
    stage.add(*gpu_cluster())
    stage.client.create(asking("short", stage.namespace, "8"))
    stage.bound("short")
    stage.client.create(asking("next", stage.namespace, "8"))
    stage.refused("next")
    stage.client.delete("Pod", "short", stage.namespace)
    assert stage.bound("next") == "zrw2"


@pytest.mark.usefixtures("dray")
def test_5004_a_pod_whose_status_names_a_claim_does_not_go_to_a_device_plugin(stage: Stage) -> None:
    """The server keeps the name of an earlier attempt's claim, and the kubelet would look for it."""
    stage.add(*gpu_cluster(plugin_node=True))
    gated = {"schedulingGates": [{"name": "example.com/wait"}], "nodeSelector": {"kubernetes.io/hostname": "xyz8"}}
    stage.client.create(asking("moved", stage.namespace, "1", **gated))
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    named = {"resourceClaimName": "moved-extended-resources-gone", "requestMappings": [mapping]}
    stage.client.patch_status(stage.pod("moved"), {"extendedResourceClaimStatus": named})
    stage.client.patch_status(stage.pod("moved"), {"extendedResourceClaimStatus": None})
    assert stage.pod("moved")["status"]["extendedResourceClaimStatus"] == named
    stage.client.patch(stage.pod("moved"), {"spec": {"schedulingGates": None}})
    eventually(lambda: "status names a claim (moved-extended-resources-gone)" in stage.refused("moved"), "it is told why")


def special_claims(stage: Stage, pod: str) -> list[Json]:
    found = stage.client.list("ResourceClaim", stage.namespace)
    return [claim for claim in found if claim["metadata"]["name"].startswith(f"{pod}-extended-resources-")]


@pytest.mark.usefixtures("dray")
def test_5004_a_special_claim_that_fails_to_be_attached_is_replaced(stage: Stage) -> None:
    """With KEP-5007: the claim goes with its finalizer, and the pod's status names only the one whose devices became ready."""
    conditions: Json = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED], "bindsToNode": True}
    stage.add(
        make.device_class("gpu.example.com", extendedResourceName="example.com/gpu"),
        make.node("node-1"),
        make.resource_slice("node-1", [make.device(f"gpu-{n}", **conditions) for n in range(2)]),
    )
    stage.client.create(asking("unlucky", stage.namespace, "1"))
    first = eventually(lambda: special_claims(stage, "unlucky"), "the special claim is made")[0]["metadata"]["name"]
    report(stage, first, FAILED)

    def replaced() -> str:
        names: list[str] = [claim["metadata"]["name"] for claim in special_claims(stage, "unlucky")]
        return names[0] if len(names) == 1 and names != [first] else ""

    second = eventually(replaced, "another claim is made, and the first is gone")
    assert "extendedResourceClaimStatus" not in stage.pod("unlucky")["status"]
    report(stage, second, ATTACHED)
    assert stage.bound("unlucky") == "node-1"
    assert stage.pod("unlucky")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == second


# ------------------------------------------------------------------------------------------------- KEP-5055: device taints


def rule(name: str, effect: str, **selector: str) -> Json:
    spec = {"deviceSelector": selector, "taint": {"key": "example.com/unhealthy", "value": "broken", "effect": effect}}
    return {"apiVersion": make.RESOURCE, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def two_gpus() -> list[Json]:
    return [
        make.device_class("gpu.example.com"),
        make.node("node-1"),
        make.resource_slice("node-1", [make.device("gpu-0"), make.device("gpu-1")]),
    ]


@pytest.mark.usefixtures("dray")
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_5055_a_rule_keeps_new_pods_from_a_device(stage: Stage, effect: str) -> None:
    stage.add(*two_gpus(), rule("maintenance", effect, driver="gpu.example.com", pool="node-1", device="gpu-0"))
    stage.run("pod-a", request())
    stage.bound("pod-a")
    assert stage.devices("pod-a") == ["gpu-1"]
    stage.run("pod-b", request())
    stage.refused("pod-b")
    stage.client.delete("DeviceTaintRule", "maintenance")
    assert stage.bound("pod-b") == "node-1"
    stage.client.create(rule("maintenance", "None"))


@pytest.mark.usefixtures("dray")
def test_5055_a_toleration_admits_and_is_copied_into_the_claim(stage: Stage) -> None:
    stage.add(*two_gpus(), rule("maintenance", "NoSchedule", driver="gpu.example.com"))
    tolerations = [{"key": "example.com/unhealthy", "operator": "Exists", "effect": "NoSchedule"}]
    stage.run("pod-a", request(tolerations=tolerations))
    stage.bound("pod-a")
    assert stage.results("pod-a")[0]["tolerations"] == tolerations


@pytest.mark.usefixtures("dray")
def test_5055_effect_none_changes_nothing_for_scheduling(stage: Stage) -> None:
    stage.add(*two_gpus(), rule("dry-run", "None", driver="gpu.example.com"))
    stage.run("pod-a", request())
    stage.bound("pod-a")


@pytest.mark.usefixtures("dray")
def test_5055_an_empty_selector_is_every_device(stage: Stage) -> None:
    stage.add(*two_gpus(), rule("everything", "NoSchedule"))
    stage.run("pod-a", request())
    stage.refused("pod-a")


# -------------------------------------------------------------------------------------------- KEP-5007: binding conditions

ATTACHED, FAILED = "dra.example.com/attached", "dra.example.com/attach-failed"


def fabric(*, local: int = 0, remote: int = 1, binds: bool = True) -> list[Json]:
    conditions: Json = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED], "bindsToNode": binds}
    objects = [make.device_class("gpu.example.com"), make.node("node-1", fabric="one"), make.node("node-2", fabric="one")]
    on_fabric = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "fabric", "operator": "In", "values": ["one"]}]}]}
    pool = make.resource_slice(
        "", [make.device(f"remote-{n}", **conditions) for n in range(remote)], pool="fabric", nodeSelector=on_fabric
    )
    del pool["spec"]["nodeName"]
    objects.append(pool)
    if local:
        objects.append(make.resource_slice("node-1", [make.device(f"local-{n}") for n in range(local)]))
    return objects


@pytest.mark.usefixtures("dray")
def test_5007_the_pod_is_bound_when_the_device_says_it_is_attached(stage: Stage) -> None:
    stage.add(*fabric())
    stage.run("pod-a", request())
    result = eventually(lambda: stage.results("pod-a"), "the claim is allocated")[0]
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([ATTACHED], [FAILED])
    nominated = eventually(lambda: stage.pod("pod-a").get("status", {}).get("nominatedNodeName"), "the node is nominated")
    allocation = stage.client.get("ResourceClaim", "pod-a", stage.namespace)["status"]["allocation"]
    assert allocation["allocationTimestamp"]
    terms = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nominated]}]}]
    assert "nodeName" not in stage.pod("pod-a")["spec"]
    report(stage, "pod-a", ATTACHED)
    assert stage.bound("pod-a") == nominated


@pytest.mark.usefixtures("dray")
def test_5007_a_failed_attach_gives_the_device_back_and_another_is_tried(stage: Stage) -> None:
    stage.add(*fabric(remote=2))
    stage.run("pod-a", request())
    eventually(lambda: stage.results("pod-a"), "the claim is allocated")
    first = stage.devices("pod-a")
    report(stage, "pod-a", FAILED)
    second = eventually(lambda: stage.devices("pod-a") != first and stage.devices("pod-a"), "another device is chosen")
    assert second != first
    report(stage, "pod-a", ATTACHED)
    stage.bound("pod-a")


@pytest.mark.usefixtures("dray")
def test_5007_devices_that_need_no_preparation_are_preferred(stage: Stage) -> None:
    stage.add(*fabric(local=1, remote=2))
    stage.run("pod-a", request())
    assert stage.bound("pod-a") == "node-1"
    assert stage.devices("pod-a") == ["local-0"]


def test_5007_the_wait_goes_on_over_a_restart_of_the_scheduler(stage: Stage, cluster: Server, tmp_path: Path) -> None:
    stage.add(*fabric())
    name = ("--scheduler-name", "default-scheduler")
    with dray_part("scheduler", cluster.kubeconfig, tmp_path, *name):
        stage.run("pod-a", request())
        eventually(lambda: stage.results("pod-a"), "the claim is allocated")
    before = stage.client.get("ResourceClaim", "pod-a", stage.namespace)["status"]["allocation"]
    with dray_part("scheduler", cluster.kubeconfig, tmp_path, *name):
        report(stage, "pod-a", ATTACHED)
        stage.bound("pod-a")
    assert stage.client.get("ResourceClaim", "pod-a", stage.namespace)["status"]["allocation"] == before


def test_5007_a_silent_device_is_given_back_after_the_timeout(stage: Stage, cluster: Server, tmp_path: Path) -> None:
    stage.add(*fabric())
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "DynamicResourcesArgs", "bindingTimeout": "2s"}
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{pluginConfig: [{{name: DynamicResources, args: {args}}}]}}]\n".replace("'", '"')
    )
    with dray_part("scheduler", cluster.kubeconfig, tmp_path, "--config", config):
        stage.run("pod-a", request())
        eventually(lambda: stage.results("pod-a"), "the claim is allocated")
        eventually(lambda: not stage.results("pod-a"), "the allocation is cleared", 20)
        assert "nodeName" not in stage.pod("pod-a")["spec"]


def test_5007_the_demonstration_fabric_attaches_on_any_cluster(stage: Stage, cluster: Server, tmp_path: Path) -> None:
    conditions = {
        "bindingConditions": ["fabric.dray.dev/attached"],
        "bindingFailureConditions": ["fabric.dray.dev/attach-failed"],
    }
    device = make.device("remote-0", **conditions)
    stage.add(
        make.device_class("fabric.dray.dev", "fabric.dray.dev"),
        make.node("node-1"),
        make.resource_slice("node-1", [device], driver="fabric.dray.dev"),
    )
    with (
        dray_part("scheduler", cluster.kubeconfig, tmp_path, "--scheduler-name", "default-scheduler"),
        dray_part("fabric", cluster.kubeconfig, tmp_path, "--attach-seconds", "0.5"),
    ):
        stage.run("pod-a", request("fabric.dray.dev"))
        assert stage.bound("pod-a") == "node-1"
