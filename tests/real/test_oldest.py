"""Dray on the oldest Kubernetes that it serves: as it is installed, and with the features that were in the making then.

What differs: fields that are behind a feature gate are dropped, counters stand in the slice of their devices, a DeviceTaintRule
is of v1alpha3, without a status and without the effect ``None``, and there are no pod groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.apiserver.custom.shipped import definition, source
from dray.cli import root
from tests.real.stage import Json, Stage, report, request
from tests.real.upstream import binaries
from tests.real.upstream import manifests as make
from tests.real.upstream.client import Client, Refused, eventually
from tests.real.upstream.control_plane import OLDEST, PLAIN_TOKEN, PLAIN_USER, Release, Server, control_plane, write_kubeconfig
from tests.real.upstream.dray import CONTROLLERS, dray_part

DEPLOY = Path(__file__).parents[2] / "deploy"
RIGHTS = (DEPLOY / "base/scheduler-rbac.yaml", DEPLOY / "overlays/controllers/controllers-rbac.yaml")
ATTACHED = "example.com/attached"


QUEUES, GROUPS = "apis/scheduling.run.ai/v2/queues", "apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups"


def served(client: Client) -> bool:
    try:
        client.call("GET", QUEUES)
        client.call("GET", GROUPS.format(namespace="default"))
    except Refused:
        return False
    return True


def with_dray(folder: Path, release: Release) -> Iterator[Server]:
    """The old server with Dray's scheduler and controllers, which have exactly the rights in ``deploy/``."""
    with control_plane(folder / "control-plane", release=release) as server:
        client = Client(server.kubeconfig)
        for found in (found for file in RIGHTS for found in yaml.safe_load_all(file.read_text())):
            if found["kind"] == "ClusterRole":
                client.create(found)
            elif found["kind"] == "ClusterRoleBinding":
                who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLAIN_USER}
                client.create({**found, "subjects": [who]})
        for name in ("queues.scheduling.run.ai", "podgroups.scheduling.run.ai"):
            client.create(definition(*source(name)))
        eventually(lambda: served(client), "queues and pod groups are served")
        plain = write_kubeconfig(folder / "plain", server.url, folder / "control-plane/ca.crt", PLAIN_TOKEN)
        with (
            dray_part("scheduler", plain, folder, "--scheduler-name", "default-scheduler") as scheduler,
            dray_part("controllers", server.kubeconfig, folder, "--only", CONTROLLERS),
            dray_part("controllers", plain, folder / "eviction", "--only", "eviction") as eviction,
        ):
            yield server
            for program in (scheduler, eviction):
                assert "level=error" not in program.text(), program.text()[-4000:]
                assert "orbidden" not in program.text(), program.text()[-4000:]


@pytest.fixture(scope="module")
def as_installed(upstream: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from with_dray(tmp_path_factory.mktemp("as-installed"), Release(binaries.OLDEST))


@pytest.fixture(scope="module")
def with_features(upstream: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from with_dray(tmp_path_factory.mktemp("with-features"), OLDEST)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Server:
    """The server that the test's class names."""
    server: Server = request.getfixturevalue(request.cls.server)
    return server


@pytest.fixture
def stage(client: Client, namespace: str) -> Iterator[Stage]:
    made = Stage(client, namespace)
    yield made
    made.clear()


def dray(cluster: Server, *arguments: str) -> Result:
    return CliRunner().invoke(root, [*arguments, "--kubeconfig", str(cluster.kubeconfig)], catch_exceptions=False)


def gpus(count: int, **more: Json) -> list[Json]:
    devices = [make.device(f"gpu-{number}", **more) for number in range(count)]
    return [make.device_class("gpu.example.com"), make.node("node-1"), make.resource_slice("node-1", devices)]


def gang(stage: Stage, name: str) -> None:
    """Two pods of queue ``team`` that start together, with a device each."""
    spec = {"queue": "team", "minMember": 2}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    stage.client.call("POST", GROUPS.format(namespace=stage.namespace), group)
    for member in (f"{name}-{number}" for number in range(2)):
        stage.client.create(make.claim(member, namespace=stage.namespace, requests=[request()]))
        pod = make.pod(member, member, namespace=stage.namespace)
        pod["metadata"] |= {"labels": {"kai.scheduler/queue": "team"}, "annotations": {"pod-group-name": name}}
        stage.client.create(pod)


class TestAsInstalled:
    server = "as_installed"

    def test_claims_are_allocated_and_who_waits_is_told_why(self, stage: Stage, cluster: Server) -> None:
        stage.add(*gpus(4))
        stage.run("train", request(count=3))
        assert stage.bound("train") == "node-1"
        assert len(stage.devices("train")) == 3
        stage.run("waits", request(count=2))
        assert "needs 2, 1 free of 4" in stage.refused("waits")
        why = dray(cluster, "why", "waits", "-n", stage.namespace, "-o", "json")
        assert json.loads(why.stdout)["verdict"] == "unschedulable", why.stdout
        stage.client.delete("Pod", "train", stage.namespace)
        assert stage.bound("waits") == "node-1"

    def test_a_prioritized_list_and_admin_access(self, stage: Stage) -> None:
        stage.add(*gpus(2))
        choices = [{"name": f"of-{count}", "deviceClassName": "gpu.example.com", "count": count} for count in (4, 2)]
        stage.run("flexible", {"name": "device", "firstAvailable": choices})
        stage.bound("flexible")
        assert [result["request"] for result in stage.results("flexible")] == ["device/of-2"] * 2
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        stage.client.patch(stage.client.get("Namespace", stage.namespace), label)
        stage.run("monitor", request(adminAccess=True, allocationMode="All"))
        assert stage.bound("monitor") == "node-1"
        assert len(stage.devices("monitor")) == 2

    def test_a_more_important_pod_gets_the_device(self, stage: Stage) -> None:
        stage.add(*gpus(1))
        stage.run("low", request(), priority=1, terminationGracePeriodSeconds=0)
        stage.bound("low")
        stage.run("high", request(), priority=10)
        assert stage.bound("high") == "node-1"

    def test_a_gang_of_a_queue_starts_whole_or_not(self, stage: Stage) -> None:
        stage.add(*gpus(3))
        unbounded = {resource: {"quota": -1, "limit": -1} for resource in ("cpu", "memory", "gpu")}
        queue = {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": "team"},
            "spec": {"resources": unbounded},
        }
        stage.client.call("POST", QUEUES, queue)
        gang(stage, "fits")
        assert [stage.bound(f"fits-{number}") for number in range(2)] == ["node-1"] * 2
        gang(stage, "waits")
        for number in range(2):
            stage.refused(f"waits-{number}")

    def test_rules_that_are_not_served_are_told_with_what_switches_them_on(self, stage: Stage, cluster: Server) -> None:
        stage.add(*gpus(1))
        for command in (("taint", "gpu.example.com", "a/b:NoSchedule", "--yes"), ("untaint", "gpu.example.com")):
            answer = dray(cluster, *command)
            assert answer.exit_code == 2, answer.output
            assert "DRADeviceTaints=true" in answer.stderr
            assert "--runtime-config resource.k8s.io/v1alpha3=true" in answer.stderr

    def test_a_snapshot_is_complete(self, stage: Stage, cluster: Server, tmp_path: Path) -> None:
        stage.add(*gpus(1))
        taken = dray(cluster, "snapshot", "-o", str(tmp_path / "now.json"))
        assert taken.exit_code == 0, taken.output
        header = json.loads((tmp_path / "now.json").read_text())["header"]
        assert {kind: why["code"] for kind, why in header["unread"].items() if why["code"] != 404} == {}
        simulated = dray(cluster, "simulate", "--from-cluster", "-o", "json")
        assert simulated.exit_code == 0, simulated.output


class TestWithFeatures:
    server = "with_features"

    def test_partitions_share_counters_in_the_slice_of_their_devices(self, stage: Stage) -> None:
        consumes = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]
        slices = gpus(3, consumesCounters=consumes)
        slices[-1]["spec"]["sharedCounters"] = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
        stage.add(*slices)
        for name in ("one", "two"):
            stage.run(name, request())
            stage.bound(name)
        stage.run("three", request())
        assert "counter" in stage.refused("three")

    def test_capacity_is_shared(self, stage: Stage) -> None:
        stage.add(*gpus(1, allowMultipleAllocations=True, capacity={"bandwidth": {"value": "100"}}))
        for name in ("one", "two"):
            stage.run(name, request(capacity={"requests": {"bandwidth": "50"}}))
            stage.bound(name)
        assert stage.results("one")[0]["shareID"] != stage.results("two")[0]["shareID"]
        stage.run("three", request(capacity={"requests": {"bandwidth": "50"}}))
        stage.refused("three")

    def test_a_pod_is_bound_when_its_device_is_attached(self, stage: Stage) -> None:
        conditions: Json = {"bindingConditions": [ATTACHED], "bindingFailureConditions": ["example.com/failed"]}
        stage.add(*gpus(1, **conditions, bindsToNode=True))
        stage.run("attached", request())
        eventually(lambda: stage.pod("attached").get("status", {}).get("nominatedNodeName"), "the node is nominated")
        report(stage, "attached", ATTACHED)
        assert stage.bound("attached") == "node-1"

    def test_an_extended_resource_is_served_by_a_driver(self, stage: Stage) -> None:
        slices = gpus(1)
        slices[0]["spec"]["extendedResourceName"] = "example.com/gpu"
        stage.add(*slices)
        pod = make.pod("classic", namespace=stage.namespace)
        pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
        stage.client.create(pod)
        assert stage.bound("classic") == "node-1"
        named = stage.pod("classic")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert stage.devices(named) == ["gpu-0"]

    def test_taints_in_a_slice_and_in_a_rule_keep_away_and_evict(self, stage: Stage, cluster: Server) -> None:
        stage.add(*gpus(2))
        stage.run("first", request(), terminationGracePeriodSeconds=0)
        stage.bound("first")
        (used,) = stage.devices("first")
        done = dray(cluster, "taint", f"gpu.example.com/node-1/{used}", "example.com/broken:NoExecute", "--timeout", "60s")
        assert done.exit_code == 0, done.output
        assert "All pods that do not tolerate the taint are gone from these devices." in done.stdout
        stage.run("second", request())
        stage.bound("second")
        assert stage.devices("second") != [used]
        stage.run("third", request())
        assert "taint" in stage.refused("third")
        removed = dray(cluster, "untaint", f"gpu.example.com/node-1/{used}")
        assert removed.exit_code == 0, removed.output
        stage.bound("third")
        assert stage.devices("third") == [used]
        taints = [{"key": "example.com/hot", "effect": "NoExecute"}]
        devices = [make.device(f"gpu-{number}", taints=taints) for number in range(2)]
        stage.client.patch(make.resource_slice("node-1", devices), {"spec": {"devices": devices}})
        eventually(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in stage.client.list("Pod", stage.namespace)), "leave"
        )
