"""``dray taint --preview``: who would leave, whose they are, and where they would go; and what people write wrongly."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from rich.console import Console

from dray.api.gates import Gates
from dray.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from dray.cli import targets
from dray.cli.taint import _still, show
from dray.explain.blast import blast, previewed
from dray.explain.snapshot import from_files
from dray.explain.targets import rule_name, rule_of
from tests.inspect.conftest import Plain, Run, claim, device_class, healthy, node, pod, result, slice_

TAINT = "example.com/broken:NoExecute"


def owned(found: Plain, kind: str, name: str) -> Plain:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return found | {"metadata": found["metadata"] | {"ownerReferences": [owner], "labels": {"app": name}}}


def cluster(free: int) -> list[Plain]:
    """Two pods of a ReplicaSet and a bare one on n1; n2 has so many free devices."""
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-1",
            "namespace": "ns",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}],
        },
        "spec": {"selector": {"matchLabels": {"app": "web-1"}}},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "web-1"}}},
        "status": {"disruptionsAllowed": 1},
    }
    pods = [owned(pod(name, name, node="n1"), "ReplicaSet", "web-1") for name in ("a", "b")] + [pod("bare", "bare", node="n1")]
    claims = [claim(name, result(f"g{n}"), pods=(name,)) for n, name in enumerate(("a", "b", "bare"))]
    return [
        node("n1"),
        node("n2"),
        device_class(),
        slice_("s1", [{"name": f"g{n}"} for n in range(3)], node="n1"),
        *([slice_("s2", [{"name": f"g{n}"} for n in range(free)], node="n2")] if free else []),
        replicas,
        budget,
        *claims,
        *pods,
    ]


def many(count: int, free: int) -> list[Plain]:
    """So many pods of one ReplicaSet on n1, and so many free devices on n2."""
    names = [f"p{n}" for n in range(count)]
    pods = [owned(pod(name, name, node="n1"), "ReplicaSet", "web-1") for name in names]
    claims = [claim(name, result(f"g{n}"), pods=(name,)) for n, name in enumerate(names)]
    slices = [slice_("s1", [{"name": f"g{n}"} for n in range(count)], node="n1")]
    if free:
        slices.append(slice_("s2", [{"name": f"g{n}"} for n in range(free)], node="n2"))
    return [node("n1", cpu="200"), node("n2", cpu="200"), device_class(), *slices, *claims, *pods]


def preview(dray: Run, objects: list[Plain], target: str, taint: str = TAINT) -> dict[str, Any]:
    answer = dray("taint", objects, target, taint, "--preview", "-o", "json")
    assert answer.exit_code == 0
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


class TestThePreview:
    def test_counts_devices_pods_and_namespaces(self, dray: Run) -> None:
        found = preview(dray, cluster(3), "gpu.example.com/n1/*")
        assert {key: found[key] for key in ("published", "allocated", "pods", "namespaces")} == {
            "published": 3,
            "allocated": 3,
            "pods": 3,
            "namespaces": 1,
        }

    def test_groups_by_owner_up_to_the_deployment_and_knows_who_is_not_made_again(self, dray: Run) -> None:
        owners = preview(dray, cluster(3), "gpu.example.com/n1/*")["owners"]
        assert [(owner["owner"], [leaves["pod"] for leaves in owner["pods"]]) for owner in owners] == [
            ("", ["ns/bare"]),
            ("Deployment/web", ["ns/a", "ns/b"]),
        ]
        assert "none: not recreated" in dray("taint", cluster(3), "gpu.example.com", TAINT, "--preview").stdout

    @pytest.mark.parametrize(("free", "places"), [(3, ["n2", "n2"]), (1, ["n2", ""]), (0, ["", ""])])
    def test_asks_the_scheduler_where_they_would_go_and_promises_no_place_twice(
        self, dray: Run, free: int, places: list[str]
    ) -> None:
        found = preview(dray, cluster(free), "gpu.example.com/n1/*")
        assert [leaves["placeThen"] for leaves in found["owners"][1]["pods"]] == places
        assert [leaves["findsPlace"] for leaves in found["owners"][1]["pods"]] == [bool(place) for place in places]
        assert found["owners"][0]["pods"][0]["findsPlace"] is None

    def test_a_device_beside_it_on_the_same_node_is_a_place(self, dray: Run) -> None:
        objects = [found for found in cluster(0) if found["metadata"]["name"] != "bare"]
        (leaves,) = preview(dray, objects, "gpu.example.com/n1/g0")["owners"][0]["pods"]
        assert (leaves["devices"], leaves["placeThen"]) == (["gpu.example.com/n1/g0"], "n1")

    def test_every_pod_is_asked_about(self, dray: Run) -> None:
        found = preview(dray, many(50, free=40), "gpu.example.com/n1/*")
        (owner,) = found["owners"]
        assert found["asked"] == 50
        assert [leaves["findsPlace"] for leaves in owner["pods"]].count(True) == 40
        assert "40 of 50: n2" in dray("taint", many(50, free=40), "gpu.example.com/n1/*", TAINT, "--preview").stdout

    def test_the_more_important_find_a_place_first(self, dray: Run) -> None:
        objects = many(3, free=1)
        objects[-1]["spec"]["priority"] = 1000
        (owner,) = preview(dray, objects, "gpu.example.com/n1/*")["owners"]
        assert [leaves["pod"] for leaves in owner["pods"] if leaves["findsPlace"]] == [f"ns/{objects[-1]['metadata']['name']}"]

    def test_pods_that_share_a_claim_go_to_one_place(self, dray: Run) -> None:
        pods = [owned(pod(name, "shared", node="n1"), "ReplicaSet", "web-1") for name in ("a", "b")]
        objects = [node("n1"), node("n2"), device_class(), slice_("s1", [{"name": "g0"}], node="n1")]
        objects += [slice_("s2", [{"name": "g0"}], node="n2"), claim("shared", result("g0"), pods=("a", "b")), *pods]
        (owner,) = preview(dray, objects, "gpu.example.com/n1/*")["owners"]
        assert [leaves["placeThen"] for leaves in owner["pods"]] == ["n2", "n2"]

    def test_who_tolerates_it_for_a_while_does_not_come_back_to_it(self, dray: Run) -> None:
        objects = many(1, free=0)
        patient = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
        (held,) = [each for each in objects if each["kind"] == "ResourceClaim"]
        held["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [patient]
        held["status"]["allocation"]["devices"]["results"][0]["tolerations"] = [patient]
        (owner,) = preview(dray, objects, "gpu.example.com/n1/*")["owners"]
        assert [leaves["findsPlace"] for leaves in owner["pods"]] == [False]

    def test_who_tolerates_it_longer_than_there_are_times_leaves_at_the_last_one(self, dray: Run) -> None:
        objects = many(1, free=0)
        (held,) = [each for each in objects if each["kind"] == "ResourceClaim"]
        patient = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2**63 - 1}
        held["status"]["allocation"]["devices"]["results"][0]["tolerations"] = [patient]
        (owner,) = preview(dray, objects, "gpu.example.com/n1/*")["owners"]
        assert [leaves["at"] for leaves in owner["pods"]] == ["9999-12-31T23:59:59Z"]

    def test_the_scheduler_that_is_asked_has_the_gates_of_the_cluster(self, tmp_path: Path) -> None:
        objects = many(1, free=1)
        (moved,) = [each for each in objects if each["kind"] == "ResourceSlice" and each["metadata"]["name"] == "s2"]
        moved["spec"]["devices"][0]["consumesCounters"] = [{"counterSet": "set", "counters": {"memory": {"value": "1"}}}]
        counters = slice_("s3", [], node="n2")
        counters["spec"] |= {"sharedCounters": [{"name": "set", "counters": {"memory": {"value": "1"}}}]}
        for each in (moved, counters):
            each["spec"]["pool"]["resourceSliceCount"] = 2
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump_all([*objects, counters]))
        world = from_files([file]).world
        for on in (True, False):
            gates = Gates.dray().updated({"DRAPartitionableDevices": on})
            rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(DeviceTaintSelector(pool="n1"), DeviceTaint("k", "", "NoExecute")))
            (owner,) = previewed(world, rule, 1e9, ask=True, gates=gates).owners
            assert [leaves.finds_place for leaves in owner.pods] == [on]

    def test_when_the_time_is_up_it_says_how_many_were_asked_about(self, tmp_path: Path) -> None:
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump_all(many(10, free=10)))
        world = from_files([file]).world
        times = iter(range(0, 1000, 6))
        rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(DeviceTaintSelector(pool="n1"), DeviceTaint("k", "", "NoExecute")))
        found = blast(world, rule, lambda pod: "n2", clock=lambda: next(times))
        assert found.asked == 3
        shown = io.StringIO()
        show(found, rule.spec.taint, Console(file=shown, width=120), wide=False)
        assert "asked about 3 of the 10 pods that are made again" in shown.getvalue()

    def test_says_which_budget_would_be_broken(self, dray: Run) -> None:
        found = preview(dray, cluster(3), "gpu.example.com/n1/*")
        assert found["budgets"] == [{"budget": "ns/web", "allowed": 1, "evicted": 2}]
        told = dray("taint", cluster(3), "gpu.example.com", TAINT, "--preview").stdout
        assert "Budget ns/web allows 1 of the 2 at once; --respect-budgets waits for it." in told

    def test_tolerations_are_honoured(self, dray: Run) -> None:
        tolerated = result("g0", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
        objects = [found for found in healthy() if found["metadata"]["name"] != "used"] + [
            claim("used", tolerated, pods=("train",))
        ]
        assert preview(dray, objects, "gpu.example.com")["pods"] == 0
        assert "No pod would be evicted." in dray("taint", objects, "gpu.example.com", TAINT, "--preview").stdout

    def test_of_another_effect_says_that_it_evicts_nobody_and_whom_it_would(self, dray: Run) -> None:
        told = dray("taint", cluster(1), "gpu.example.com", "a/b:NoSchedule", "--preview").stdout
        assert "It evicts nobody; with NoExecute it would evict 3 pods in 1 namespace:" in told

    def test_everything_is_named_as_such(self, dray: Run) -> None:
        assert preview(dray, cluster(1), "*")["selector"] == "every device of every driver"


class TestWhatIsWrittenWrongly:
    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("gpu.example.com/n1", "give driver, pool and device"),
            ("gpu*", "a rule selects by whole names"),
            ("gpu.example.com/n1/gpu-?", "a rule selects by whole names"),
            ("gpu.example.com//g0", "neither a whole name nor"),
        ],
    )
    def test_a_target_is_told_how_to_be_written(self, dray: Run, target: str, says: str) -> None:
        answer = dray("taint", healthy(), target, TAINT, "--preview")
        assert answer.exit_code == 2
        assert says in answer.stderr
        assert "for example gpu.example.com/node-7/gpu-3" in answer.stderr

    @pytest.mark.parametrize(
        ("taint", "says"),
        [("broken", "write key=value:Effect"), ("a/b:noexecute", "did you mean NoExecute?"), (":NoExecute", "is not a taint")],
    )
    def test_a_taint_too(self, dray: Run, taint: str, says: str) -> None:
        answer = dray("taint", healthy(), "gpu.example.com", taint, "--preview")
        assert answer.exit_code == 2
        assert says in answer.stderr

    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("gpu.exampel.com", "0 allocations (no driver gpu.exampel.com is published; did you mean gpu.example.com?)."),
            ("gpu.example.com/nl/*", "(no pool nl of driver gpu.example.com is published)."),
            ("*/*/gpu-17", "(no device gpu-17 is published)."),
        ],
    )
    def test_a_target_that_nobody_publishes_is_doubted(self, dray: Run, target: str, says: str) -> None:
        answer = dray("taint", cluster(2), target, TAINT, "--preview")
        assert answer.exit_code == 0
        assert says in " ".join(answer.stdout.split())

    def test_files_cannot_be_tainted(self, dray: Run) -> None:
        answer = dray("taint", healthy(), "gpu.example.com", TAINT)
        assert answer.exit_code == 2
        assert "add --preview" in answer.stderr

    def test_waves_need_an_eviction(self, dray: Run) -> None:
        answer = dray("taint", healthy(), "gpu.example.com", "a:NoSchedule", "--wave", "2", "--preview")
        assert "require the effect NoExecute" in answer.stderr


class TestWords:
    def test_targets(self) -> None:
        assert targets.selector("*") == DeviceTaintSelector()
        assert targets.selector("d") == DeviceTaintSelector("d")
        assert targets.selector("*/n1/*") == DeviceTaintSelector(None, "n1", None)
        assert targets.selector("d/a/b/g0") == DeviceTaintSelector("d", "a/b", "g0")

    def test_taints(self) -> None:
        assert targets.taint("a.example/b=c:NoSchedule") == DeviceTaint("a.example/b", "c", "NoSchedule")
        assert targets.taint("k:None") == DeviceTaint("k", "", "None")
        with pytest.raises(click.BadParameter):
            targets.taint("k:PreferNoSchedule")

    def test_a_rule_that_expires_at_once_is_not_one_that_never_does(self) -> None:
        wanted = DeviceTaint("k", "", "NoExecute")
        assert rule_of(DeviceTaintSelector(), wanted, expires_at=0.0).metadata.annotations == {
            "dray.dev/expires-at": "1970-01-01T00:00:00Z"
        }
        assert rule_of(DeviceTaintSelector(), wanted).metadata.annotations == {}

    def test_names_of_rules_follow_from_what_is_tainted_and_are_names(self) -> None:
        assert rule_name(DeviceTaintSelector("gpu.example.com", "n1", "g0"), "example.com/Broken_1") == (
            "gpu.example.com-n1-g0-example.com-broken-1"
        )
        assert rule_name(DeviceTaintSelector(), "k") == "all-devices-k"
        assert len(rule_name(DeviceTaintSelector("d" * 63, "p" * 253, "g"), "k")) <= 253


def test_each_pod_is_beside_its_own_node(dray: Run) -> None:
    places = {"a": "n2", "b": "n1", "c": "n2"}
    pods = [pod(name, name, node=where) for name, where in places.items()]
    claims = [claim(name, result(f"g{n}", pool=places[name]), pods=(name,), node=places[name]) for n, name in enumerate(places)]
    slices = [slice_(f"s-{name}", [{"name": f"g{n}"} for n in range(3)], node=name) for name in ("n1", "n2")]
    told = dray("taint", [node("n1"), node("n2"), device_class(), *slices, *claims, *pods], "*", TAINT, "--preview").stdout
    lines = [line.split() for line in told.splitlines()]
    assert [line[-2:] for line in lines if line and line[-1] in ("n1", "n2")] == [["a", "n2"], ["b", "n1"], ["c", "n2"]]


def test_what_nobody_publishes_is_told_where_no_rule_is_about_it(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(healthy()))
    world = from_files([file]).world
    assert list(_still(world, targets.selector("gpu.exmaple.com"))) == [
        "no driver gpu.exmaple.com is published; did you mean gpu.example.com?"
    ]
    assert list(_still(world, targets.selector("gpu.example.com"))) == []
