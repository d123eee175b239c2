"""``dray verify``: a healthy cluster passes, and each rule is found broken when it is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inspect.conftest import Plain, Run, claim, device_class, healthy, node, pod, result, slice_

COUNTERS = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]


def partition(name: str, memory: str, *groups: str) -> Plain:
    entry: Plain = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
    if groups:
        entry["compatibilityGroups"] = list(groups)
    return {"name": name, "consumesCounters": [entry]}


def violations(dray: Run, objects: list[Plain], *arguments: str) -> list[dict[str, Any]]:
    answer = dray("verify", objects, "-o", "json", *arguments)
    found = json.loads(answer.stdout)["violations"]
    assert answer.exit_code == (1 if found else 0)
    return list(found)


class TestWhereThereIsNothingToCheck:
    def test_a_warning_says_so_instead_of_that_every_rule_holds(self, dray: Run) -> None:
        answer = dray("verify", [node("n1"), node("n2")])
        assert answer.exit_code == 0
        assert "all rules hold" not in answer.stdout
        assert "Nothing was checked." in answer.stdout
        assert answer.stderr.startswith("warning: nothing to check: ")
        assert "cluster.yaml contains no claims, slices or pods" in answer.stderr

    def test_scripts_get_the_warning_too_and_clean_output(self, dray: Run) -> None:
        answer = dray("verify", [], "-o", "json")
        assert json.loads(answer.stdout)["violations"] == []
        assert "nothing to check" in answer.stderr

    def test_one_pod_is_something(self, dray: Run) -> None:
        answer = dray("verify", [pod("p")])
        assert "all rules hold" in answer.stdout
        assert answer.stderr == ""


class TestOfFilesThatLackAKind:
    """What is not there cannot be told from what is not in the files: that is no finding, and is said."""

    CLUSTER = (
        node("n1"),
        slice_("s1", [{"name": "g0"}]),
        claim("used", result("g0"), pods=("train",)),
        pod("train", "used", node="n1", phase="Running"),
    )

    @pytest.mark.parametrize(
        ("lacking", "rule"),
        [
            ("ResourceSlice", "device-vanished"),
            ("Pod", "reserved-for-nobody"),
            ("ResourceClaim", "pod-claim"),
        ],
    )
    def test_no_alarm_is_raised_and_the_rule_is_named(self, dray: Run, lacking: str, rule: str) -> None:
        answer = dray("verify", [body for body in self.CLUSTER if body["kind"] != lacking], "--strict", "-o", "json")
        report = json.loads(answer.stdout)
        assert (answer.exit_code, report["violations"], report["leftovers"]) == (0, [], [])
        assert list(report["unchecked"]) == [rule]
        assert f"warning: {rule} was not checked: the files have no {lacking.lower()}s" in answer.stderr

    def test_files_that_have_everything_are_checked_for_everything(self, dray: Run) -> None:
        answer = dray("verify", list(self.CLUSTER), "-o", "json")
        assert json.loads(answer.stdout)["unchecked"] == {}
        assert answer.stderr == ""

    def test_an_alarm_is_raised_where_the_kind_is_there(self, dray: Run) -> None:
        other = slice_("s1", [{"name": "g9"}])
        answer = dray("verify", [other if body["kind"] == "ResourceSlice" else body for body in self.CLUSTER], "-o", "json")
        assert [found["rule"] for found in json.loads(answer.stdout)["leftovers"]] == ["device-vanished"]


def test_one_is_told_as_one(dray: Run) -> None:
    one = [
        node("n1"),
        slice_("s1", [{"name": "g0"}]),
        claim("used", result("g0"), pods=("train",)),
        pod("train", "used", node="n1"),
    ]
    assert dray("verify", one).stdout.startswith("Checked 1 claim, 1 device in 1 pool, 1 allocation, 1 pod on 1 node.")


def test_a_healthy_cluster_passes_with_counts(dray: Run) -> None:
    answer = dray("verify", healthy(), "-o", "json")
    report = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert report["violations"] == []
    assert report["leftovers"] == []
    assert {key: report["checked"][key] for key in ("claims", "devices", "pods", "nodes")} == {
        "claims": 1,
        "devices": 4,
        "pods": 1,
        "nodes": 2,
    }


BROKEN: dict[str, tuple[str, list[Plain]]] = {
    "two claims own a device": ("device-owner", [claim("b", result("g0"))]),
    "one claim owns a device twice": ("device-owner", [claim("b", result("g1"), result("g1"))]),
    "a device is owned and shared": ("device-owner", [claim("b", result("g0", shareID="s"))]),
    "a share is given out twice": ("share-owner", [claim(n, result("g1", shareID="s")) for n in "ab"]),
    "a device is shared that must not be": ("share-allowed", [claim(n, result("g1", shareID=n)) for n in "ab"]),
    "an allocation is not protected": ("finalizer", [claim("b", result("g1"), finalizers=[])]),
    "a claim is reserved but not allocated": ("reserved-unallocated", [claim("b", pods=("train",))]),
    "more than 256 have a claim": ("reserved-limit", [claim("b", result("g1"), pods=tuple(f"p{n}" for n in range(257)))]),
    "a claim is reserved twice for a pod": ("reserved-twice", [claim("b", result("g1"), pods=("train", "train"))]),
    "a claim made for one pod is reserved for another": (
        "claim-owner",
        [
            claim(
                "b",
                result("g1"),
                pods=("train",),
                ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-x", "controller": True}],
            )
        ],
    ),
    "a pod runs without its claim": ("pod-claim", [pod("b", "missing", node="n1")]),
    "a pod runs with a claim that is not allocated": ("pod-claim", [pod("b", "b", node="n1"), claim("b")]),
    "a pod runs with a claim that is reserved for others": ("pod-claim", [pod("b", "used", node="n1")]),
    "a pod runs where its claim is not": (
        "pod-node",
        [pod("b", "b", node="n2"), claim("b", result("g1"), pods=("b",))],
    ),
    "a node is over-committed": ("node-resources", [pod("b", node="n1", cpu="7500m")]),
    "too many devices in a claim": ("results-limit", [claim("b", *(result(f"x{i}") for i in range(33)))]),
    "two pods use a host port": (
        "host-port",
        [
            pod(name, node="n2", containers=[{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}])
            for name in ("web-a", "web-b")
        ],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_it_is_found_when(what: str, dray: Run) -> None:
    rule, broken = BROKEN[what]
    found = violations(dray, healthy() + broken)
    assert rule in {violation["rule"] for violation in found}
    assert all(violation["objects"] and violation["detail"] for violation in found)


class TestCounters:
    def objects(self, *used: str) -> list[Plain]:
        devices = [partition("half-0", "40Gi"), partition("half-1", "40Gi"), partition("whole", "80Gi")]
        return [
            node("n1"),
            slice_("c", [], count=2, sharedCounters=COUNTERS),
            slice_("d", devices, count=2),
            *(claim(name, result(name)) for name in used),
        ]

    def test_add_up(self, dray: Run) -> None:
        assert violations(dray, self.objects("half-0", "half-1")) == []

    def test_are_never_exceeded(self, dray: Run) -> None:
        (found,) = violations(dray, self.objects("half-0", "whole"))
        assert found["rule"] == "counters"
        assert found["detail"] == "counter set card, memory: 120Gi used of 80Gi"
        devices = [f"device/gpu.example.com/n1/{name}" for name in ("half-0", "whole")]
        assert found["objects"] == [*devices, "claim/ns/half-0", "claim/ns/whole"]

    def test_that_a_driver_took_away_are_left_over(self, dray: Run) -> None:
        devices_only = [each for each in self.objects("half-0") if each["metadata"]["name"] != "c"]
        assert violations(dray, devices_only) == []
        (found,) = json.loads(dray("verify", devices_only, "-o", "json").stdout)["leftovers"]
        assert found["rule"] == "counters-vanished"

    def test_administrative_access_takes_nothing(self, dray: Run) -> None:
        watching = claim("watch", result("whole", adminAccess=True))
        assert violations(dray, [*self.objects("half-0", "half-1"), watching]) == []


class TestCompatibility:
    def objects(self, *claims: Plain) -> list[Plain]:
        devices = [partition("mig", "10Gi", "mig"), partition("vgpu", "10Gi", "vgpu"), partition("both", "10Gi", "mig", "vgpu")]
        return [node("n1"), slice_("c", [], count=2, sharedCounters=COUNTERS), slice_("d", devices, count=2), *claims]

    def test_devices_that_share_a_group_are_fine(self, dray: Run) -> None:
        assert violations(dray, self.objects(claim("a", result("mig")), claim("b", result("both")))) == []

    def test_devices_that_share_none_are_found(self, dray: Run) -> None:
        (found,) = violations(dray, self.objects(claim("a", result("mig")), claim("b", result("vgpu"))))
        assert found["rule"] == "compatibility"
        assert "mig: mig; vgpu: vgpu" in found["detail"]
        assert found["objects"][2:] == ["claim/ns/a", "claim/ns/b"]

    def test_what_the_claim_recorded_counts_first(self, dray: Run) -> None:
        recorded = result("vgpu", compatibilityGroups={"card": ["mig"]})
        assert violations(dray, self.objects(claim("a", result("mig")), claim("b", recorded))) == []

    def test_so_does_that_of_a_device_that_is_no_longer_published(self, dray: Run) -> None:
        gone = claim("gone", result("withdrawn", compatibilityGroups={"card": ["vgpu"], "another": ["mig"]}))
        assert violations(dray, self.objects(claim("b", result("vgpu")), gone)) == []
        (found,) = violations(dray, self.objects(claim("a", result("mig")), gone))
        assert "mig: mig; withdrawn: vgpu" in found["detail"]


class TestCapacity:
    def objects(self, *consumed: str) -> list[Plain]:
        nic = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
        shares = [
            claim(f"c{i}", result("nic", shareID=f"s{i}", consumedCapacity={"bandwidth": amount}))
            for i, amount in enumerate(consumed)
        ]
        return [node("n1"), slice_("d", [nic]), *shares]

    def test_shares_add_up(self, dray: Run) -> None:
        assert violations(dray, self.objects("4G", "6G")) == []

    def test_shares_never_exceed_the_device(self, dray: Run) -> None:
        (found,) = violations(dray, self.objects("4G", "6G", "1G"))
        assert (found["rule"], found["detail"]) == ("capacity", "bandwidth: 11G consumed of 10G")


def zone_has(name: str, amount: str) -> Plain:
    return {"name": name, "capacity": amount, "allocatable": amount, "available": amount}


def observed(name: str, zone: int, **amount: str) -> Plain:
    """A pod of which an exporter said what it has in a zone."""
    made = pod(name, node="n1", phase="Running")
    shares = json.dumps([{"zone": f"node-{zone}", "amount": amount}])
    made["metadata"]["annotations"] = {"kai.scheduler/numa-placement-observed": shares}
    return made


class TestLeftovers:
    def objects(self) -> list[Plain]:
        return [
            *healthy(),
            claim("old", result("g1"), pods=("gone",)),
            claim("lost", result("vanished")),
            claim("stuck", result("g0", pool="n2"), node="n2", deletionTimestamp="2026-01-01T00:00:00Z"),
        ]

    def test_are_told_and_do_not_fail(self, dray: Run) -> None:
        answer = dray("verify", self.objects(), "-o", "json")
        assert answer.exit_code == 0
        rules = {found["rule"] for found in json.loads(answer.stdout)["leftovers"]}
        assert rules == {"reserved-for-nobody", "device-vanished", "claim-stuck"}

    def test_more_cores_of_a_zone_than_it_has_were_observed(self, dray: Run) -> None:
        """Nothing else than the kubelets' own word shows who has which."""
        zones = [
            {"name": f"node-{at}", "type": "Node", "resources": [zone_has("cpu", "4"), zone_has("memory", "1Gi")]}
            for at in (0, 1)
        ]
        topology = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n1"}}
        objects: list[Plain] = [*healthy(), {**topology, "zones": zones}]
        for name, zone, cores in (("a", 0, 3), ("b", 0, 1), ("c", 1, 4)):
            objects.append(observed(name, zone, cpu=str(cores), memory="900Mi"))
        assert json.loads(dray("verify", objects, "-o", "json").stdout)["leftovers"] == []
        (found,) = json.loads(dray("verify", [*objects, observed("d", 0, cpu="2")], "-o", "json").stdout)["leftovers"]
        assert (found["rule"], found["objects"]) == ("zone-resources", ["node/n1", "pod/ns/a", "pod/ns/b", "pod/ns/d"])
        assert found["detail"] == "zone node-0, cpu: pods were observed with 6 of 4"

    def test_records_and_zones_that_cannot_be_read_are_none(self, dray: Run) -> None:
        topology = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n1"}}
        zones = [{"name": "node-0", "type": "Node", "resources": [zone_has("cpu", "some"), zone_has("gpu", "1")]}]
        objects: list[Plain] = [*healthy(), {**topology, "zones": zones}]
        for name, amounts in (("a", {"cpu": "3"}), ("b", {"gpu": "lots"}), ("c", {"gpu": "-7"}), ("d", {"gpu": "1"})):
            objects.append(observed(name, 0, **amounts))
        answer = dray("verify", objects, "-o", "json")
        assert (answer.exit_code, json.loads(answer.stdout)["leftovers"]) == (0, [])

    def test_fail_when_strict(self, dray: Run) -> None:
        assert len(violations(dray, self.objects(), "--strict")) == 3


def test_for_people_it_says_that_all_is_well_or_what_is_not(dray: Run) -> None:
    assert "all rules hold" in dray("verify", healthy()).stdout
    broken = dray("verify", [*healthy(), claim("b", result("g0"))])
    assert broken.exit_code == 1
    assert "claim/ns/used" in broken.stdout
    assert "\x1b" not in broken.stdout


def test_what_is_left_out_is_told_once_and_by_name(tmp_path: Path) -> None:
    broken = {**pod("p"), "spec": {"containers": [], "priority": 10**30}}
    file = tmp_path / "objects.json"
    objects = [node("n1"), slice_("s", [{"name": "g0"}]), claim("c"), device_class(), pod("q"), broken]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    argv = [sys.executable, "-m", "dray", "verify", "-f", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr == "warning: skipped: Pod ns/p: Expected `int` <= 9223372036854775807 - at `$.spec.priority`\n"
