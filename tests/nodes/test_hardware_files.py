"""Hardware that people describe in files, and hardware that is captured from a cluster."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dray.cli import root
from dray.nodes.hardware import CATALOGUE, Hardware, UnknownHardware, hardware
from dray.nodes.hardware.description import Description
from dray.nodes.hardware.template import TemplateError, compiled

HEAD = {"apiVersion": "dray.dev/v1alpha1", "kind": "Hardware", "metadata": {"name": "mine"}}


# ------------------------------------------------------------------------------------------------------------- holes


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("gpu-{n}", "gpu-5"),
        ("{n}", 5),
        ("{n:d}", "5"),
        ("{n * 16 + 8:02x}", "58"),
        ("{(n - 1) // 2}/{n % 2}", "2/1"),
        ("{{n}}", "{n}"),
        ("{node}", "x"),
        ({"{node}-{n}": True}, {"x-5": True}),
        ([{"repeat": {"a": 2, "b": ["p", "q"]}, "v": "{a}{b}"}], [{"v": "0p"}, {"v": "0q"}, {"v": "1p"}, {"v": "1q"}]),
        ([{"repeat": {"a": 3, "b": "{a}"}, "v": "{a}{b}"}], [{"v": "10"}, {"v": "20"}, {"v": "21"}]),
        ([{"repeat": {"a": 2}, "items": [{"x": "{a}"}, {"y": "{a}"}]}], [{"x": 0}, {"y": 0}, {"x": 1}, {"y": 1}]),
        ({"repeat": {"s": "{n - 3}"}, "all": 1, "part-{s}": "{s}"}, {"all": 1, "part-0": 0, "part-1": 1}),
        ([[1], 2.5, None, True], [[1], 2.5, None, True]),
    ],
)
def test_holes_are_filled_and_repeats_are_made(description: Any, expected: Any) -> None:
    assert compiled(description)({"n": 5, "node": "x"}) == expected


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("{m}", "unknown name 'm'; known: n, node"),
        ("{", "has an unmatched brace"),
        ("{n.real}", "only numbers, names"),
        ("{__import__('os')}", "only numbers, names"),
        ("{n ** 9}", "only numbers, names"),
        ("{n +}", "is not an expression"),
        ("{n // (n - 5)}", "divides by zero"),
        ("{node * 2}", "'x' is not a number"),
        ("{9999999999 * 9999999999}", "is too large"),
        ([{"repeat": {"a": -1}}], "is not a count"),
        ([{"repeat": 3}], "must be names with a count"),
        ([{"repeat": {"a": 10**12}}], "is not a count"),
    ],
)
def test_what_cannot_be_filled_says_where_and_why(description: Any, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        compiled(description, "here")({"n": 5, "node": "x"})


@given(st.text(max_size=30))
def test_any_text_is_filled_or_refused(text: str) -> None:
    try:
        made = compiled(text, "here")({"n": 5, "node": "x"})
    except TemplateError:
        return
    assert isinstance(made, str | int)


@pytest.mark.parametrize("name", CATALOGUE)
def test_machines_that_are_copied_are_those_that_are_made_one_by_one(name: str) -> None:
    (document,) = yaml.safe_load_all(CATALOGUE[name].read_text())
    copied, single = Description(document, name), Description(document, name)
    single._alike = False
    assert copied.make(9) == single.make(9)


# ------------------------------------------------------------------------------------------------------------- files


def write(tmp_path: Path, *documents: dict[str, Any]) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump_all([{**HEAD, **document} for document in documents]))
    return path


def slices(made: Hardware) -> list[dict[str, Any]]:
    return [each for each in made.objects if each["kind"] == "ResourceSlice"]


def names(made: Hardware) -> list[str]:
    return [each["metadata"]["name"] for each in made.nodes]


def test_a_file_is_hardware_like_the_catalogue(tmp_path: Path) -> None:
    devices = [{"repeat": {"gpu": 2}, "name": "gpu-{gpu}"}]
    each = [
        {"kind": "Node", "status": {"capacity": {"cpu": 4, "memory": "8Gi"}}},
        {"kind": "ResourceSlice", "spec": {"driver": "gpu.example.com", "devices": devices}},
    ]
    made = hardware([f"{write(tmp_path, {'each': each})}:2"])
    assert [node["metadata"]["name"] for node in made.nodes] == ["mine-0", "mine-1"]
    assert made.nodes[0]["status"]["allocatable"] == {
        "ephemeral-storage": "500Gi", "pods": "110", "cpu": "3500m", "memory": "8Gi",
    }  # fmt: skip
    (first, _) = slices(made)
    assert first["metadata"]["name"] == "mine-0-gpu.example.com"
    assert first["spec"] == {
        "driver": "gpu.example.com", "nodeName": "mine-0", "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        "pool": {"name": "mine-0", "generation": 1, "resourceSliceCount": 1},
    }  # fmt: skip


@pytest.mark.parametrize(("more", "parts"), [({}, [128, 72]), ({"taints": [{"key": "a", "effect": "None"}]}, [64, 64, 64, 8])])
def test_a_slice_with_too_many_devices_is_split(tmp_path: Path, more: dict[str, Any], parts: list[int]) -> None:
    devices = [{"repeat": {"d": 200}, "name": "d-{d}", **more}]
    once = [{"kind": "ResourceSlice", "spec": {"driver": "d.example.com", "pool": {"name": "p"}, "devices": devices}}]
    made = slices(hardware([str(write(tmp_path, {"once": once}))]))
    assert [len(each["spec"]["devices"]) for each in made] == parts
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in made} == {len(parts)}
    assert len({each["metadata"]["name"] for each in made}) == len(parts)
    assert all(each["spec"]["allNodes"] for each in made)


def test_one_of_several_descriptions_can_be_chosen_and_each_has_its_own_count(tmp_path: Path) -> None:
    node = {"each": [{"kind": "Node"}]}
    path = write(tmp_path, {**node, "count": 3}, {**node, "metadata": {"name": "other"}, "count": 2})
    assert [each["metadata"]["name"] for each in hardware([str(path)]).nodes] == [
        "mine-0",
        "mine-1",
        "mine-2",
        "other-0",
        "other-1",
    ]
    assert [each["metadata"]["name"] for each in hardware([f"{path}#other:1"]).nodes] == ["other-0"]
    with pytest.raises(UnknownHardware, match="has no hardware 'third'"):
        hardware([f"{path}#third"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "describes no hardware"),
        ("a: [", "cannot be read at line 2, column 1: "),
        ("kind: Pod", "missing required field `apiVersion`"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: a}}", "must be kind Hardware"),
        ("nodes: 3", "unknown field `nodes`"),
        ("each: [{kind: Pod}]", "Pod is not allowed"),
        ("once: [{kind: Node}]", "Node is not allowed"),
        ("once: [{kind: ResourceSlice}]", "needs spec.driver"),
        ("each: [{kind: Node, status: {capacity: {cpu: x}}}]", "capacity of cpu"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "wrong.yaml"
    whole = not text or text.startswith(("a", "kind", "{"))
    path.write_text(text if whole else f"{yaml.safe_dump(HEAD)}{text}")
    with pytest.raises(UnknownHardware, match=words):
        hardware([str(path)])


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UnknownHardware, match=r"nowhere\.yaml: No such file"):
        hardware(["nowhere.yaml:2"])


# ----------------------------------------------------------------------------------------------------------- captured


def capture(tmp_path: Path, objects: list[dict[str, Any]], *arguments: str) -> Path:
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = CliRunner().invoke(root, ["capture", "--snapshot", str(tmp_path / "cluster.json"), *arguments])
    assert done.exit_code == 0, done.output
    path = tmp_path / "captured.yaml"
    path.write_text(done.stdout)
    return path


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {"a100-8", "tpu-v5p", "gb200-tray"}))
def test_what_is_captured_from_a_cluster_makes_that_cluster_again(tmp_path: Path, name: str) -> None:
    """But for names and identities."""
    before = hardware([f"{name}:2"])
    path = capture(tmp_path, [*before.nodes, *before.objects], "--all-nodes", "--name", name)
    after = hardware([str(path)])

    def shapes(made: Hardware) -> list[Any]:
        text = json.dumps([plain(each) for each in (*made.nodes, *made.objects)], sort_keys=True)
        return sorted(json.loads(text.replace(f"{name}-1-", f"{name}-")), key=str)

    def plain(manifest: dict[str, Any]) -> dict[str, Any]:
        body = copy.deepcopy(manifest)
        body["metadata"].pop("annotations", None)
        labels = body["metadata"].get("labels", {})
        labels.pop("dray.dev/hardware", None)
        if body["kind"] == "ResourceSlice":
            body["metadata"] = {}
            for device in body["spec"].get("devices", []):
                device.get("attributes", {}).pop("uuid", None)
                device.get("attributes", {}).pop("parentUUID", None)
        return body

    assert shapes(after) == shapes(before)


def test_identities_and_names_are_left_out(tmp_path: Path) -> None:
    def node(name: str, rack: str) -> dict[str, Any]:
        labels = {"kubernetes.io/hostname": name, "zone": "a", "rack": rack}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": {"cpu": "4"}},
        }

    def published(name: str, uuid: str) -> dict[str, Any]:
        attributes = {"uuid": {"string": uuid}, "host": {"string": f"{name}.example.com"}, "odd": {"string": "a{b}"}}
        taint = {"key": "a", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}
        spec = {
            "driver": "d.example.com", "nodeName": name, "pool": {"name": "local", "generation": 4, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": attributes, "taints": [taint]}],
        }  # fmt: skip
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-x7k"}, "spec": spec}

    old = published("orion", "GPU-0")
    old["metadata"]["name"], old["spec"]["pool"]["generation"] = "outdated", 3
    objects = [node("orion", "rack-one"), node("lyra", "rack-two"), published("orion", "GPU-1"), published("lyra", "GPU-2"), old]
    path = capture(tmp_path, objects)
    text = path.read_text()
    assert not any(secret in text for secret in ("orion", "lyra", "GPU-1", "GPU-2", "rack-one", "timeAdded"))
    made = hardware([str(path)])
    assert [each["metadata"]["labels"].get("zone") for each in made.nodes] == ["a", "a"]
    (first, second) = slices(made)
    assert first["spec"]["pool"]["name"] == "captured-1-0-local"
    attributes = first["spec"]["devices"][0]["attributes"]
    assert attributes == {
        "uuid": {"string": "captured-1-0-d"}, "host": {"string": "captured-1-0.example.com"}, "odd": {"string": "a{b}"},
    }  # fmt: skip
    assert second["spec"]["nodeName"] == "captured-1-1"


def test_a_node_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(hardware(["gpu8"]).nodes))
    done = CliRunner().invoke(root, ["capture", "--snapshot", str(tmp_path / "cluster.yaml"), "--node", "none"])
    assert done.exit_code == 2
    assert "no node 'none'" in done.output
