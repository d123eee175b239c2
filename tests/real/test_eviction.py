"""Device taints evict on a real kube-apiserver as on ours: `dray controllers --only eviction`, with the rights in `deploy/`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.times import format_time, parse_time
from tests.real.upstream import manifests
from tests.real.upstream.binaries import binary
from tests.real.upstream.client import PATHS, Client, Json, eventually
from tests.real.upstream.control_plane import PLAIN_TOKEN, PLAIN_USER, Server, write_kubeconfig
from tests.real.upstream.process import Program

RBAC = Path(__file__).parents[2] / "deploy/overlays/controllers/controllers-rbac.yaml"
POD_SECONDS = 20.0


@pytest.fixture
def place(cluster: Server, client: Client, namespace: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(cluster, client, namespace, tmp_path)
    try:
        with made.controllers() as program:
            yield made
            assert "forbidden" not in program.text().lower()
    finally:
        made.tidy()


class Place:
    """One pool of devices for one test, in a namespace of its own, on a server that tests share."""

    def __init__(self, server: Server, client: Client, namespace: str, folder: Path) -> None:
        self.server, self.client, self.namespace, self.folder = server, client, namespace, folder
        self.pool = f"pool-{namespace}"
        self.kubeconfig = self._limited()
        self._made: list[Json] = []
        self._starts = 0

    def _limited(self) -> Path:
        """The user without rights, bound to the role of the controllers; our own server allows everybody everything."""
        if len(self.server.programs) < 2:
            return self.server.kubeconfig
        for found in yaml.safe_load_all(RBAC.read_text()):
            if found["kind"] == "ClusterRole":
                self._ensure(found)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLAIN_USER}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dray-controllers"}
        self._ensure(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "dray-controllers-plain"},
                "roleRef": role,
                "subjects": [subject],
            }
        )
        config = json.loads(self.server.kubeconfig.read_text())
        ca = Path(config["clusters"][0]["cluster"]["certificate-authority"])
        return write_kubeconfig(self.folder / "limited", self.server.url, ca, PLAIN_TOKEN)

    def _ensure(self, found: Json) -> None:
        names = [one["metadata"]["name"] for one in self.client.call("GET", PATHS[found["kind"]])["items"]]
        if found["metadata"]["name"] not in names:
            self.client.create(found)

    def controllers(self) -> Program:
        self._starts += 1
        argv = [Path(sys.executable).with_name("dray"), "controllers", "--only", "eviction", "--kubeconfig", self.kubeconfig]
        return Program("dray controllers", argv, self.folder / f"controllers-{self._starts}.log")

    # ------------------------------------------------------------------------------------------------------- objects

    def create(self, found: Json) -> Json:
        self._made.append(found)
        return self.client.create(found)

    def tidy(self) -> None:
        for found in reversed(self._made):
            if "namespace" not in found["metadata"]:
                self.client.call("DELETE", f"{PATHS[found['kind']]}/{found['metadata']['name']}", {})

    def slice(self, taints: dict[str, list[Json]] | None = None) -> None:
        devices = [manifests.device(f"g{n}", **({"taints": t} if (t := (taints or {}).get(f"g{n}")) else {})) for n in range(3)]
        found = manifests.resource_slice("n1", devices, pool=self.pool)
        if taints is None:
            self.create(found)
        else:
            self.client.patch(found, {"spec": {"devices": devices}})

    def using(self, name: str, *devices: str, **fields: Any) -> None:
        """A pod on a node that uses a claim of its own."""
        exactly = {"deviceClassName": "gpu", "count": len(devices), **fields}
        claim = manifests.claim(name, namespace=self.namespace, requests=[{"name": "device", "exactly": exactly}])
        self.client.create(claim)
        pod = self.client.create(manifests.pod(name, name, namespace=self.namespace, nodeName="n1"))
        results = [{"request": "device", "driver": manifests.DRIVER, "pool": self.pool, "device": d, **fields} for d in devices]
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        self.client.patch_status(claim, {"allocation": {"devices": {"results": results}}, "reservedFor": [user]})

    def rule(self, effect: str, device: str = "", **more: Any) -> Json:
        selector = {"pool": self.pool, **({"device": device} if device else {})}
        name = f"rule-{self.namespace}"
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}}
        metadata = {"name": name, **more}
        return self.create({"apiVersion": manifests.RESOURCE, "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec})

    def change(self, **taint: Any) -> Json:
        return self.client.patch(self.stored_rule(), {"spec": {"taint": taint}})

    # ------------------------------------------------------------------------------------------------------ questions

    def stored_rule(self) -> Json:
        return self.client.get("DeviceTaintRule", f"rule-{self.namespace}")

    def condition(self) -> Json | None:
        found = self.stored_rule().get("status", {}).get("conditions", [])
        return next((condition for condition in found if condition["type"] == "EvictionInProgress"), None)

    def told(self, reason: str) -> Json:
        def found() -> Json | None:
            condition = self.condition()
            return condition if condition is not None and condition["reason"] == reason else None

        return dict(eventually(found, f"the rule says {reason}", seconds=POD_SECONDS))

    def evicted(self, name: str) -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in self.client.list("Pod", self.namespace)}
        return name not in pods or "deletionTimestamp" in pods[name]["metadata"]

    def wait_evicted(self, name: str) -> None:
        eventually(lambda: self.evicted(name), f"{name} is told to leave", seconds=POD_SECONDS)


TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
TOLERATION = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute"}


def test_a_taint_in_a_slice_evicts_with_condition_and_event_and_spares_the_others(place: Place) -> None:
    place.slice()
    place.using("train", "g0")
    place.using("patient", "g0", tolerations=[TOLERATION])
    place.using("other", "g1")
    place.slice({"g0": [TAINT]})
    place.wait_evicted("train")
    pod = place.client.get("Pod", "train", place.namespace)
    (condition,) = [c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    eventually(
        lambda: any(e["reason"] == "DeviceTaintManagerEviction" for e in place.client.list("Event", place.namespace)), "event"
    )
    assert not place.evicted("patient")
    assert not place.evicted("other")


def test_from_none_over_no_execute_to_removed_and_kubectl_waits_for_it(place: Place) -> None:
    place.slice()
    place.using("train", "g0")
    place.using("serve", "g1")
    place.rule("None")
    preview = place.told("NoEffect")
    assert preview["message"].startswith(
        "3 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if"
    )
    assert not place.evicted("train")
    before = place.stored_rule()
    place.change(effect="NoExecute")
    kubectl = [str(binary("kubectl")), "--kubeconfig", str(place.server.kubeconfig)]
    rule = f"devicetaintrule/rule-{place.namespace}"
    wait = ["wait", "--for=condition=EvictionInProgress=false", rule, "--timeout=40s"]
    done = subprocess.run([*kubectl, *wait], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert place.evicted("train")
    assert place.evicted("serve")
    condition, after = place.condition(), place.stored_rule()
    assert condition is not None
    assert (condition["reason"], condition["observedGeneration"]) == ("Completed", after["metadata"]["generation"])
    assert condition["message"] == "2 pods evicted since starting the controller."
    assert parse_time(after["spec"]["taint"]["timeAdded"]) >= parse_time(before["spec"]["taint"]["timeAdded"])
    place.client.call("DELETE", f"{PATHS['DeviceTaintRule']}/rule-{place.namespace}", {})
    place._made = [found for found in place._made if found["kind"] != "DeviceTaintRule"]
    place.using("next", "g0")
    place.using("marker", "g2")
    place.slice({"g2": [TAINT]})
    place.wait_evicted("marker")  # what came before it was looked at too
    assert not place.evicted("next")


def test_pods_that_arrive_later_leave_and_a_device_needs_no_slice(place: Place) -> None:
    place.rule("NoExecute", "g7")
    place.using("late", "g7")
    place.wait_evicted("late")


def test_a_rule_that_only_schedules_by_says_so(place: Place) -> None:
    place.rule("NoSchedule")
    assert place.told("OtherEffect")["status"] == "False"


def test_a_rule_that_expires_is_removed(place: Place) -> None:
    made = place.rule("NoSchedule", annotations={"dray.dev/expires-at": format_time(0)})
    place._made.remove(next(found for found in place._made if found["kind"] == "DeviceTaintRule"))
    names = lambda: [one["metadata"]["name"] for one in place.client.call("GET", PATHS["DeviceTaintRule"])["items"]]  # noqa: E731
    eventually(lambda: made["metadata"]["name"] not in names(), "the rule is gone")


def test_a_controller_that_was_killed_keeps_the_deadline(cluster: Server, client: Client, namespace: str, tmp_path: Path) -> None:
    place = Place(cluster, client, namespace, tmp_path)
    try:
        place.slice()
        place.using("patient", "g0", tolerations=[{**TOLERATION, "tolerationSeconds": 6}])
        with place.controllers():
            place.rule("NoExecute", "g0")
            assert place.told("PodsPendingEviction")["message"] == "1 pod needs to be evicted in 1 namespace."
        assert not place.evicted("patient")
        added = parse_time(place.stored_rule()["spec"]["taint"]["timeAdded"])
        with place.controllers():
            place.wait_evicted("patient")
        deleted = parse_time(client.get("Pod", "patient", namespace)["metadata"]["deletionTimestamp"])
        grace = client.get("Pod", "patient", namespace)["metadata"]["deletionGracePeriodSeconds"]
        assert deleted - grace >= added + 6
    finally:
        place.tidy()


def test_a_hundred_pods_leave_at_the_pace(place: Place) -> None:
    place.slice()
    for number in range(100):
        place.using(f"p{number}", "g0")
    place.rule("NoExecute", "g0")
    eventually(
        lambda: all(place.evicted(f"p{n}") for n in (0, 50, 99)) and leaving(place) == 100, "all left", seconds=60, every=0.5
    )
    assert place.told("Completed")["message"] == "100 pods evicted since starting the controller."


def leaving(place: Place) -> int:
    return sum("deletionTimestamp" in pod["metadata"] for pod in place.client.list("Pod", place.namespace))
