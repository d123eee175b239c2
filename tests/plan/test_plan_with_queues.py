"""``dray plan`` where queues divide a cluster: who is evicted for a queue below its share and why, and who moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.api.kinds import PODS
from dray.cli import root
from dray.testing import node_with_devices, pod
from tests.plan.clusters import cluster, deployment, read
from tests.plan.test_plan import Asked, working

Plain = dict[str, Any]
COUNTED = '{"deviceclass/gpu": {"quota": %d, "limit": -1, "overQuotaWeight": 1}}'
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def queue(name: str, quota: int) -> Plain:
    annotations = {"dray.dev/resources": COUNTED % quota}
    spec = {"resources": {"cpu": UNLIMITED, "memory": UNLIMITED}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}


def group(name: str, queue: str, members: int) -> Plain:
    spec = {"queue": queue, "minMember": members}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def of(queue: str, name: str, size: int = 2) -> Plain:
    return working(name, size, labels={"kai.scheduler/queue": queue})


def member(name: str, group: str, size: int = 2) -> Plain:
    made = working(name, size)
    made["metadata"]["annotations"] = {"pod-group-name": group}
    return made


@pytest.fixture
def borrowed(tmp_path: Path) -> Asked:
    """Eight devices on two nodes, all in use by queue a, which deserves half of them if b wants the other."""
    nodes = [*node_with_devices("n1", 4), *node_with_devices("n2", 4)]
    queues = [queue("a", 4), queue("b", 4)]
    return Asked(tmp_path, cluster(*nodes, *queues, *(of("a", f"a{index}") for index in range(4))))


def test_a_gang_that_could_never_start_is_told_from_one_that_waits(borrowed: Asked) -> None:
    large = [group("large", "b", 5), *(member(f"l{index}", "large") for index in range(5))]
    waits = [group("waits", "b", 3), *(member(f"w{index}", "waits") for index in range(3))]
    code, found = borrowed.json(files=[*large, *waits])
    assert code == 1
    verdicts = {each["pod"]: each["verdict"] for each in found["pods"]}
    assert {verdicts[f"default/l{index}"] for index in range(5)} == {"impossible"}
    assert {verdicts[f"default/w{index}"] for index in range(3)} == {"unschedulable"}
    told = next(each["summary"] for each in found["pods"] if each["pod"] == "default/l0")
    assert "4 of 5 pods fit together, and then there is no place for default/l4" in told


def test_a_queue_below_its_share_takes_it_back(borrowed: Asked) -> None:
    code, found = borrowed.json(files=[of("b", "b0"), of("b", "b1")])
    assert code == 0
    assert [each["verdict"] for each in found["pods"]] == ["placed", "placed"]
    assert len(found["evictions"]) == 2
    for each in found["evictions"]:
        assert each["pod"].startswith("default/a")
        assert each["for"] in ("default/b0", "default/b1")
        assert each["why"] == f"{each['for']} needs the room on node {each['node']}: queue b takes back its share from queue a"
        assert each["findsPlace"] is False
    assert found["before"]["queues"]["b"]["allocated"].get("deviceclass/gpu", "0") == "0"
    held = {name: found["after"]["queues"][name]["allocated"]["deviceclass/gpu"] for name in ("a", "b")}
    assert held == {"a": "4", "b": "4"}


def test_what_is_beyond_its_share_waits_and_says_so(borrowed: Asked) -> None:
    code, found = borrowed.json(files=[of("b", f"b{index}") for index in range(3)])
    assert code == 1
    verdicts = sorted(each["verdict"] for each in found["pods"])
    assert verdicts == ["placed", "placed", "unschedulable"]
    (left,) = [each for each in found["pods"] if each["verdict"] != "placed"]
    assert "queue b would exceed its fair share of deviceclass/gpu" in left["summary"]
    assert len(found["evictions"]) == 2


def test_a_gang_takes_back_all_that_it_needs_or_nothing(borrowed: Asked) -> None:
    files = [group("train", "b", 2), member("b0", "train"), member("b1", "train")]
    code, found = borrowed.json(files=files)
    assert (code, len(found["evictions"])) == (0, 2)
    files = [group("train", "b", 3), *(member(f"b{index}", "train") for index in range(3))]
    code, found = borrowed.json(files=files)
    assert (code, found["evictions"]) == (1, [])
    assert {each["verdict"] for each in found["pods"]} == {"unschedulable"}


def test_of_a_gang_that_goes_as_a_whole_it_is_told_where_the_room_is_that_is_needed(tmp_path: Path) -> None:
    queues = [queue("a", 0), queue("b", 4)]
    made = cluster(*node_with_devices("n1", 4), *node_with_devices("n2", 4), *queues, group("pair", "a", 2))
    made.create(*(member(f"a{index}", "pair", 4) for index in range(2)))
    made.run(30)
    code, found = Asked(tmp_path, made).json(files=[of("b", "b0", 4)])
    node = found["pods"][0]["node"]
    said = {each["node"]: each["why"].partition(":")[0] for each in found["evictions"]}
    other = {"n1": "n2", "n2": "n1"}[node]
    assert (code, said) == (
        0,
        {node: f"default/b0 needs the room on node {node}", other: f"default/b0 needs room on node {node}"},
    )


TOLD = "pods name one, and what comes of them is told as if there were none"


@pytest.mark.parametrize(
    "command", [["plan", "--drain", "n1", "--snapshot"], ["simulate", "--until", "20s", "--from-cluster", "--snapshot"]]
)
def test_queues_that_the_files_lack_are_not_taken_for_none_without_a_word(
    command: list[str], borrowed: Asked, tmp_path: Path
) -> None:
    borrowed.cluster.create(of("b", "b0"), of("b", "b1"))
    items = [body for body in read(borrowed.cluster.server).objects.values() if body["kind"] != "Queue"]
    for body in items:
        if body["metadata"]["name"] in ("b0", "b1"):
            body["spec"].pop("nodeName", None)
    file = tmp_path / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    answer = CliRunner().invoke(root, [*command, str(file)])
    assert f"warning: the files have no queues.scheduling.run.ai; 6 {TOLD}" in answer.stderr


@pytest.mark.parametrize("core", [True, False])
def test_pod_groups_that_the_files_lack_are_not_taken_for_none_either_where_their_pods_run(core: bool, tmp_path: Path) -> None:
    """Who leaves may be told without the others of its gang."""
    made = cluster(*node_with_devices("n1", 4), queue("a", 4), group("pair", "a", 2))
    made.create(*(member(f"a{index}", "pair", 1) for index in range(2)))
    made.run(30)
    items = [body for body in read(made.server).objects.values() if body["kind"] != "PodGroup"]
    for body in items if core else ():
        if body["kind"] == "Pod":
            del body["metadata"]["annotations"]
            body["spec"]["schedulingGroup"] = {"podGroupName": "pair"}
    file = tmp_path / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    answer = CliRunner().invoke(root, ["plan", "--drain", "n1", "--snapshot", str(file)])
    kind = "podgroups.scheduling.k8s.io" if core else "podgroups.scheduling.run.ai"
    assert f"warning: the files have no {kind}; 2 {TOLD}" in answer.stderr


def test_a_quota_that_grows_lets_who_waits_take_it_back(borrowed: Asked, tmp_path: Path) -> None:
    borrowed.cluster.create(*(of("b", f"b{index}") for index in range(3)))
    borrowed.cluster.run(60)
    again = Asked(tmp_path, borrowed.cluster)
    code, found = again.json(files=[queue("b", 6), queue("a", 2)])
    assert (code, [each["verdict"] for each in found["pods"]]) == (0, ["placed"])
    (gone,) = found["evictions"]
    assert gone["why"].endswith("queue b takes back its share from queue a")


def one(name: str) -> Plain:
    """A pod with one device, which is made again when it is gone."""
    made = deployment(name, 1, of("a", "x", 1))
    made["spec"]["template"]["metadata"]["labels"]["kai.scheduler/queue"] = "a"
    return made


def test_who_is_moved_is_told_where_to(tmp_path: Path) -> None:
    """Six devices are free, three on each node; four are wanted on one."""
    made = cluster(*node_with_devices("n1", 4), queue("a", 8), one("p1"), of("a", "fill", 3))
    made.create(*node_with_devices("n2", 4), one("p2"))
    made.run(30)
    made.delete(PODS, "fill")
    made.run(60)
    code, found = Asked(tmp_path, made).json(files=[of("a", "whole", 4)])
    (moved,) = found["evictions"]
    assert (code, found["pods"][0]["node"]) == (0, moved["node"])
    other = {"n1": "n2", "n2": "n1"}[moved["node"]]
    assert moved["why"].startswith(f"default/whole needs the room on node {moved['node']}: moving to node {other}, to make room")


def test_a_pod_that_would_fit_nowhere_is_not_said_to_wait(borrowed: Asked) -> None:
    answer = borrowed(files=[pod("huge", requests={"cpu": "100"}), of("b", "b0")])
    assert answer.exit_code == 1
    assert "1 could not get one even if all nodes were empty" in answer.stdout
    assert "waits" not in answer.stdout.splitlines()[-1]


def test_the_table_shows_who_leaves_and_why(borrowed: Asked) -> None:
    answer = borrowed(files=[of("b", "b0")])
    assert answer.exit_code == 0
    assert "queue b takes back its share from queue a" in " ".join(answer.stdout.split())
    rows = {" ".join(line.split()) for line in answer.stdout.splitlines()}
    assert {"queue a holds deviceclass/gpu 8 of 8 6 of 6", "queue b holds deviceclass/gpu 0 of 0 2 of 2"} <= rows, rows
    assert not any("pods that wait" in row for row in rows)  # what stays as it is is not told


def test_who_goes_with_the_rest_of_a_gang_is_told_that(tmp_path: Path) -> None:
    """The device of one of two is tainted; the other has no taint to do with, and does not run alone."""
    files = [group("train", "a", 2), member("a0", "train", 4), member("a1", "train", 4)]
    asked = Asked(tmp_path, cluster(*node_with_devices("n1", 4), *node_with_devices("n2", 4), queue("a", 8), *files))
    _, found = asked.json("--taint-device", "*/n1/*", "example.com/broken:NoExecute")
    why = {each["node"]: each["why"] for each in found["evictions"]}
    assert why == {
        "n1": "it uses a device with a taint that it does not tolerate",
        "n2": "pod group default/train has fewer pods than it needs to run, for longer than its grace period",
    }
