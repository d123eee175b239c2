"""`dray taint`, `untaint`, `claims` and `release` on a live cluster: a real kube-apiserver, and ours."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import FINALIZER
from dray.api.times import parse_time
from dray.cli import root
from tests.real.tainting import Place
from tests.real.upstream import manifests
from tests.real.upstream.client import PATHS, Client, Refused
from tests.real.upstream.control_plane import Server

AT_ONCE = {"terminationGracePeriodSeconds": 0}  # without a kubelet nobody else removes them


@pytest.fixture
def place(cluster: Server, client: Client, namespace: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(cluster, client, namespace, tmp_path)
    yield made
    for name in rules(made):
        made.client.call("DELETE", f"{PATHS['DeviceTaintRule']}/{name}", {})
    made.tidy()


def dray(place: Place, *arguments: str) -> Result:
    return CliRunner().invoke(root, [*arguments, "--kubeconfig", str(place.server.kubeconfig)], catch_exceptions=False)


def rules(place: Place) -> dict[str, Any]:
    found = place.client.call("GET", PATHS["DeviceTaintRule"])["items"]
    return {rule["metadata"]["name"]: rule for rule in found if rule["spec"].get("deviceSelector", {}).get("pool") == place.pool}


def target(place: Place, device: str = "*") -> str:
    return f"{manifests.DRIVER}/{place.pool}/{device}"


class TestTaint:
    def test_first_looks_and_then_evicts_and_untaint_takes_it_back(self, place: Place) -> None:
        place.slice()
        place.using("train", "g0", spec=AT_ONCE)
        place.using("other", "g1", spec=AT_ONCE)
        looked = dray(place, "taint", target(place, "g0"), "example.com/broken=ecc:None")
        assert looked.exit_code == 0
        assert "It evicts nobody; with NoExecute it would evict 1 pod in 1 namespace:" in looked.stdout
        with place.controllers():
            done = dray(place, "taint", target(place, "g0"), "example.com/broken=ecc:NoExecute")
        assert done.exit_code == 0, done.output
        assert "1 pod needs to be evicted in 1 namespace." in done.stderr
        assert "All pods that do not tolerate the taint are gone from these devices." in done.stdout
        assert (place.evicted("train"), place.evicted("other")) == (True, False)
        (name,) = rules(place)
        assert name == f"{manifests.DRIVER}-{place.pool}-g0-example.com-broken"
        again = dray(place, "untaint", target(place, "g1"))
        assert (again.exit_code, rules(place).keys()) == (1, {name})
        assert dray(place, "untaint", target(place, "g0"), "example.com/other").exit_code == 1
        wider = dray(place, "untaint", target(place, "*"))
        assert f"rule {name} taints part of it with example.com/broken=ecc:NoExecute" in " ".join(wider.stdout.split())
        gone = dray(place, "untaint", target(place, "g0"), "example.com/broken")
        assert gone.exit_code == 0
        assert rules(place) == {}
        expired = dray(place, "untaint", "--expired")
        assert (expired.exit_code, expired.stdout) == (1, "No rules have expired.\n")

    def test_asks_before_many_are_evicted_and_before_everything_is_tainted(self, place: Place) -> None:
        place.slice()
        for number in range(3):
            place.using(f"p{number}", "g0")
        refused = dray(place, "taint", target(place), "a/b:NoExecute", "--confirm-above", "2")
        assert refused.exit_code == 2
        assert "this evicts 3 pods in 1 namespace" in refused.stderr
        everything = dray(place, "taint", "*", "a/b:NoSchedule")
        assert everything.exit_code == 2
        assert "this keeps new pods from every device of every driver; confirm with --yes" in everything.stderr
        assert rules(place) == {}

    def test_evicts_in_waves_that_respect_budgets_and_gives_up_in_time(self, place: Place) -> None:
        place.slice()
        for number in range(3):
            place.using(f"p{number}", "g0", spec=AT_ONCE, labels={"app": "p"})
        budget(place, allowed=1)
        answer = dray(
            place, "taint", target(place), "a/b:NoExecute", "--wave", "2", "--respect-budgets", "--timeout", "4s", "-o", "json"
        )
        assert answer.exit_code == 1
        told = json.loads(answer.stdout)
        assert (told["evicted"], told["done"]) == (1, False)
        assert len(told["kept"]) == 2
        assert all("disruption budget p " in why for why in told["kept"].values()), told["kept"]
        (rule,) = rules(place).values()
        assert rule["spec"]["taint"]["effect"] == "NoSchedule"

    def test_waves_without_budgets_end_with_no_execute(self, place: Place) -> None:
        place.slice()
        for number in range(5):
            place.using(f"p{number}", "g0", spec=AT_ONCE)
        answer = dray(place, "taint", target(place), "a/b:NoExecute", "--wave", "2", "--no-wait", "--expires", "2h")
        assert answer.exit_code == 0, answer.output
        assert [line for line in answer.stderr.splitlines() if "to go" in line] == [
            "2 pods evicted, 3 to go",
            "4 pods evicted, 1 to go",
            "5 pods evicted, 0 to go",
        ]
        (rule,) = rules(place).values()
        assert rule["spec"]["taint"]["effect"] == "NoExecute"
        expires = parse_time(rule["metadata"]["annotations"]["dray.dev/expires-at"])
        assert 7100 < expires - parse_time(rule["metadata"]["creationTimestamp"]) < 7300

    def test_says_so_when_no_controller_answers(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dray.cli.evicting.SILENCE_SECONDS", 1.0)
        place.slice()
        place.using("train", "g0")
        answer = dray(place, "taint", target(place), "a/b:NoExecute")
        assert answer.exit_code == 1
        assert "check that a device taint eviction controller is running" in answer.stdout

    def test_where_nobody_has_to_leave_nobody_is_waited_for(self, place: Place) -> None:
        answer = dray(place, "taint", target(place), "a/b:NoExecute")
        assert answer.exit_code == 0, answer.output
        assert "All pods that do not tolerate the taint are gone from these devices." in answer.stdout

    def test_a_name_that_is_taken_by_another_selector_is_refused(self, place: Place) -> None:
        dray(place, "taint", target(place, "g0"), "a/b:None", "--rule", f"mine-{place.namespace}")
        answer = dray(place, "taint", target(place, "g1"), "a/b:None", "--rule", f"mine-{place.namespace}")
        assert answer.exit_code == 2
        assert f"already exists for {target(place, 'g0')}; choose another name" in answer.stderr


def budget(place: Place, allowed: int) -> None:
    """A disruption budget as its controller would keep it, for pods that are ready."""
    path = f"apis/policy/v1/namespaces/{place.namespace}/poddisruptionbudgets"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "p"}}}
    place.client.call(
        "POST", path, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"}, "spec": spec}
    )
    status = {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3, "observedGeneration": 1}
    place.client.call("PATCH", f"{path}/p/status", {"status": status}, "application/merge-patch+json")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for pod in place.client.list("Pod", place.namespace):
        place.client.patch_status({"apiVersion": "v1", "kind": "Pod", **pod}, ready)


class TestRelease:
    def orphan(self, place: Place, name: str, body: dict[str, Any] | None = None) -> None:
        """A claim that is allocated, protected, and reserved for a pod that does not exist."""
        claim = body or manifests.claim(name, namespace=place.namespace)
        claim["metadata"]["finalizers"] = [FINALIZER]
        request = urllib.request.Request(
            f"{place.client.url}{RESOURCE_CLAIMS.path(place.namespace)}",
            method="POST",
            data=json.dumps(claim, indent=1).encode(),
            headers={**place.client.headers, "Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=30, context=place.client.trusted).close()
        result = {"request": "device", "driver": manifests.DRIVER, "pool": place.pool, "device": "g0"}
        user = {"resource": "pods", "name": "gone", "uid": "00000000-0000-4000-8000-000000000001"}
        place.client.patch_status(claim, {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]})

    def get(self, place: Place, name: str) -> dict[str, Any]:
        return place.client.get("ResourceClaim", name, place.namespace)

    def test_shows_the_proof_and_frees_the_devices(self, place: Place) -> None:
        self.orphan(place, "left")
        looked = dray(place, "release", "left", "-n", place.namespace, "--dry-run")
        assert looked.exit_code == 0
        assert "would be released" in looked.stdout
        assert "pod gone (00000000-0000-4000-8000-000000000001) does not exist" in looked.stdout
        assert "allocation" in self.get(place, "left")["status"]
        done = dray(place, "release", f"{place.namespace}/left")
        assert done.exit_code == 0
        claim = self.get(place, "left")
        assert "allocation" not in claim.get("status", {})
        assert "finalizers" not in claim["metadata"]
        assert "left: nothing to release." in dray(place, "release", f"{place.namespace}/left").stdout

    def test_refuses_what_a_pod_uses_and_names_it(self, place: Place) -> None:
        place.using("train", "g0")
        answer = dray(place, "release", "train", "-n", place.namespace)
        assert answer.exit_code == 1
        assert "is in use:" in answer.stdout
        assert "pod train on node n1 (Pending)" in answer.stdout
        assert "allocation" in self.get(place, "train")["status"]

    def test_deletes_what_was_made_for_a_pod_that_is_gone(self, place: Place) -> None:
        claim = manifests.claim("made", namespace=place.namespace)
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "gone",
            "uid": "00000000-0000-4000-8000-000000000001",
            "controller": True,
        }
        claim["metadata"]["ownerReferences"] = [owner]
        self.orphan(place, "made", claim)
        answer = dray(place, "release", "made", "-n", place.namespace)
        assert "released and deleted" in answer.stdout
        with pytest.raises(Refused, match="404"):
            self.get(place, "made")

    def test_lets_go_of_claims_that_json_cannot_write(self, place: Place) -> None:
        config = [{"opaque": {"driver": manifests.DRIVER, "parameters": {"a": 1}}}]
        self.orphan(place, "spaced", manifests.claim("spaced", namespace=place.namespace, config=config))
        assert dray(place, "release", "spaced", "-n", place.namespace).exit_code == 0
        assert "finalizers" not in self.get(place, "spaced")["metadata"]

    def test_orphans_are_found_and_all_let_go_of(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dray.explain.orphans.YOUNG_SECONDS", -60.0)
        self.orphan(place, "one")
        self.orphan(place, "two")
        found = json.loads(dray(place, "claims", "--orphans", "-n", place.namespace, "-o", "json").stdout)["claims"]
        assert [row["name"] for row in found] == ["one", "two"]
        asked = dray(place, "release", "--orphans", "-n", place.namespace)
        assert asked.exit_code == 2
        assert "this releases 2 claims" in asked.stderr
        assert dray(place, "release", "--orphans", "-n", place.namespace, "--yes").exit_code == 0
        assert all("allocation" not in self.get(place, name).get("status", {}) for name in ("one", "two"))

    def test_a_claim_that_is_not_there_is_said_so(self, place: Place) -> None:
        answer = dray(place, "release", "none", "-n", place.namespace)
        assert answer.exit_code == 2
        assert 'claim "none" not found in namespace' in answer.stderr
