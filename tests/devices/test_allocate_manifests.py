"""``dray allocate -f``: plain manifests in, a readable answer out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.cli.allocate import allocate

V1 = "resource.k8s.io/v1"
CLASS = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
POOL = {"name": "n1", "generation": 1, "resourceSliceCount": 1}


def slice_(devices: int = 2, **where: Any) -> dict[str, Any]:
    spec = {"driver": "gpu.example.com", "pool": POOL, "devices": [{"name": f"d{i}"} for i in range(devices)]}
    return {"apiVersion": V1, "kind": "ResourceSlice", "metadata": {"name": "s1"}, "spec": spec | (where or {"nodeName": "n1"})}


def claim(name: str, count: int = 1, **exactly: Any) -> dict[str, Any]:
    requests = [{"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": count, **exactly}}]
    return {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def template(name: str, count: int = 1) -> dict[str, Any]:
    spec = {"spec": claim(name, count)["spec"]}
    return {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def pod(name: str, *entries: dict[str, str]) -> dict[str, Any]:
    spec = {"containers": [{"name": "m", "image": "i"}], "resourceClaims": list(entries)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def ask(folder: Path, *objects: Any, options: tuple[str, ...] = ()) -> Result:
    """Each object in a file of its own."""
    given: list[str] = []
    for number, body in enumerate(objects):
        file = folder / f"{number}.yaml"
        file.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
        given += ["-f", str(file)]
    done = CliRunner().invoke(allocate, [*given, *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_a_claim_that_gets_its_devices(tmp_path: Path) -> None:
    done = ask(tmp_path, CLASS, slice_(), claim("train"))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split() == [
        "claim",
        "default/train",
        "n1",
        "default/train",
        "gpus",
        "gpu.example.com/n1/d0",
    ]


def test_claims_get_devices_one_after_another_and_what_is_missing_is_told(tmp_path: Path) -> None:
    done = ask(tmp_path, CLASS, slice_(), claim("one"), claim("two", 2))
    assert done.exit_code == 1
    assert "claim default/two gets no devices: 0/1 nodes are available: 1 node has not enough devices of class gpu" in done.stdout
    assert "would help: ask for 1 instead in request gpus of default/two" in done.stdout


def test_for_scripts(tmp_path: Path) -> None:
    done = ask(tmp_path, CLASS, slice_(), claim("one"), claim("two", 2), options=("-o", "json"))
    told = json.loads(done.stdout)
    assert told["ok"] is False
    first, second = told["answers"]
    assert first["claims"][0]["allocation"]["devices"]["results"][0]["device"] == "d0"
    assert (second["ok"], second["reasons"][0]["code"]) == (False, "NotEnoughDevices")


def test_the_claims_of_a_pod_are_allocated_together_or_not_at_all(tmp_path: Path) -> None:
    entries = [
        {"name": "a", "resourceClaimName": "shared"},
        {"name": "b", "resourceClaimTemplateName": "own"},
    ]
    done = ask(tmp_path, CLASS, slice_(), claim("shared"), template("own", 2), pod("p", *entries), claim("alone"))
    assert "pod default/p gets no devices" in done.stdout
    assert "claim default/alone  n1" in done.stdout
    assert "template" not in done.stdout
    fits = ask(tmp_path, CLASS, slice_(3), claim("shared"), template("own", 2), pod("p", *entries))
    assert fits.exit_code == 0
    assert fits.stdout.count("default/p-b") == 2


def classic(name: str, resource: str, count: int = 1) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: str(count)}}
    return made


NAMED = {**CLASS, "spec": {"extendedResourceName": "example.com/gpu"}}


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_extended_resources_of_a_pod_are_served_by_the_class_that_offers_them(tmp_path: Path, resource: str) -> None:
    done = ask(tmp_path, NAMED, slice_(), classic("p", resource, 2), options=("-o", "json"))
    assert done.exit_code == 0
    (answer,) = json.loads(done.stdout)["answers"]
    ((claim,), devices) = answer["claims"], answer["claims"][0]["allocation"]["devices"]["results"]
    assert (answer["for"], claim["claim"]) == ("pod default/p", "default/p-extended-resources")
    assert [(result["request"], result["device"]) for result in devices] == [("container-0-request-0", d) for d in ("d0", "d1")]


def test_no_toleration_is_advised_where_nobody_can_write_one(tmp_path: Path) -> None:
    rule = {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoSchedule"}}
    tainted = {"apiVersion": V1, "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": rule}
    for asks, advised in ((classic("p", "example.com/gpu"), False), (claim("c"), True)):
        done = ask(tmp_path, NAMED, slice_(), tainted, asks)
        assert done.exit_code == 1
        assert ("add a toleration" in done.stdout) is advised


def test_what_a_node_offers_by_a_device_plugin_needs_no_device(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"example.com/gpu": "1"}}}
    assert ask(tmp_path, NAMED, slice_(), node, classic("p", "example.com/gpu")).exit_code == 2


def offering(name: str, **allocatable: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", **allocatable}},
    }


def test_a_node_whose_device_plugin_is_gone_and_says_0_leaves_it_to_devices(tmp_path: Path) -> None:
    done = ask(tmp_path, NAMED, slice_(), offering("n1", **{"example.com/gpu": "0"}), classic("p", "example.com/gpu"))
    assert done.exit_code == 0
    assert "gpu.example.com/n1/d0" in done.stdout


def test_where_some_nodes_have_a_device_plugin_devices_of_the_others_are_given_and_then_it_is_left_to_plugins(
    tmp_path: Path,
) -> None:
    nodes = offering("n0", **{"example.com/gpu": "1"}), offering("n1")
    pods = [classic(name, "example.com/gpu") for name in ("a", "b", "c")]
    done = ask(tmp_path, NAMED, slice_(), *nodes, *pods, options=("-o", "json"))
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert [(answer["for"], answer["node"]) for answer in told["answers"]] == [("pod default/a", "n1"), ("pod default/b", "n1")]
    assert told["leftToPlugins"] == {"pod default/c": ["n0"]}
    shown = ask(tmp_path, NAMED, slice_(), *nodes, *pods).stdout
    assert "pod default/c gets no device here: the device plugin of n0, which is not simulated, allocates it." in shown


def test_on_a_node_with_a_device_plugin_only_the_claims_of_the_pod_itself_are_asked_for(tmp_path: Path) -> None:
    both = classic("p", "example.com/gpu", 3)
    both["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimName": "own"}]
    nodes = offering("n0"), offering("n1", **{"example.com/gpu": "3"})
    done = ask(tmp_path, NAMED, slice_(), *nodes, claim("own"), both, options=("-o", "json"))
    (answer,) = json.loads(done.stdout)["answers"]
    assert (answer["node"], [each["claim"] for each in answer["claims"]]) == ("n1", ["default/own"])


def test_what_is_in_use_counts(tmp_path: Path) -> None:
    used = claim("used")
    result = {"request": "gpus", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    used["status"] = {"allocation": {"devices": {"results": [result]}}}
    done = ask(tmp_path, CLASS, slice_(), used, claim("next"))
    assert "gpu.example.com/n1/d1" in done.stdout
    assert "default/used" not in done.stdout


def test_slices_for_all_nodes_need_no_node(tmp_path: Path) -> None:
    assert "any-node" in ask(tmp_path, CLASS, slice_(allNodes=True), claim("c")).stdout


def test_nodes_of_the_files_are_asked(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}
    assert ask(tmp_path, CLASS, slice_(), claim("c"), node).exit_code == 1


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (claim("c", coont=1), 'ResourceClaim c: unknown field "spec.devices.requests[0].exactly.coont"'),
        (claim("c", tolerations="x"), "ResourceClaim c:"),
        (claim("c", -1), "spec.devices.requests[0].exactly.count"),
        (template("c", -1), "spec.spec.devices.requests[0].exactly.count"),
        ({"apiVersion": V1, "kind": "ResourceClaim", "metadata": {}}, "needs metadata.name"),
        ({"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": "x"}, "spec": []}, "a spec"),
        (
            pod("p", {"name": "a", "resourceClaimName": "nowhere"}),
            "refers to ResourceClaim default/nowhere, which is not in the files",
        ),
        ("kind: [", "cannot be read"),
        ("just words", "is not a Kubernetes object"),
        ({**claim("c"), "apiVersion": "resource.k8s.io/v1beta1"}, "take it as resource.k8s.io/v1"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, "contain no ResourceClaim"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_answered(tmp_path: Path, broken: Any, told: str) -> None:
    done = ask(tmp_path, CLASS, slice_(), broken)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_other_kinds_are_left_out_and_counted(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    assert "Ignored: 1 ConfigMap." in ask(tmp_path, CLASS, slice_(), claim("c"), other).stdout
