"""``dray simulate --from-cluster``: a cluster goes on as it was read, and what something added would change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from dray.api.kinds import DAEMON_SETS, PODS
from dray.cli import root
from dray.testing import VirtualCluster, claim_template, device_class, node_with_devices, pod

Plain = dict[str, Any]


def cluster() -> VirtualCluster:
    """Two nodes with two devices each, a daemon on both, and a pod that has the devices of one."""
    made = VirtualCluster()
    made.start_all()
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels}, "spec": pod("x", requests={"cpu": "100m"})["spec"]}
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    two = claim_template("two", count=2)
    made.create(high, device_class("gpu"), two, *node_with_devices("n1", 2), *node_with_devices("n2", 2), agent)
    made.create(pod("first", template="two"), pod("second", template="two"))
    made.run(30)
    return made


def saved(made: VirtualCluster, file: Path, *, pods_first: bool) -> Path:
    """As kubectl writes it."""
    from dray.explain.snapshot import KINDS

    bodies = [body for kind in KINDS for body in made.server.all(kind).values()]
    bodies.sort(key=lambda body: (body["kind"] == "Pod") is not pods_first)
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))
    return file


def run(*arguments: str) -> Plain:
    answer = CliRunner().invoke(root, ["simulate", *arguments, "--until", "60s", "-o", "json"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    found: Plain = json.loads(answer.stdout)
    return found


def test_a_cluster_goes_on_as_it_was_whatever_the_order_in_the_file(tmp_path: Path) -> None:
    made = cluster()
    before = {body["metadata"]["name"]: body["spec"]["nodeName"] for body in made.all(PODS)}
    assert len(before) == 4
    for pods_first in (True, False):
        file = saved(made, tmp_path / "now.json", pods_first=pods_first)
        report = run("--from-cluster", "--snapshot", str(file))
        assert {found["name"]: found["node"] for found in report["pods"]} == before
        assert {found["phase"] for found in report["pods"]} == {"Running"}
        assert report["evictions"] == []


def test_daemons_do_not_double_when_pods_come_first_in_a_file(tmp_path: Path) -> None:
    made = cluster()
    assert len(made.all(DAEMON_SETS)) == 1
    report = run(str(saved(made, tmp_path / "now.json", pods_first=True)))
    assert len(report["pods"]) == 4


def test_what_is_added_is_told_with_the_difference_that_it_makes(tmp_path: Path) -> None:
    made = cluster()
    file, add = saved(made, tmp_path / "now.json", pods_first=True), tmp_path / "add.yaml"
    add.write_text(yaml.safe_dump(pod("urgent", template="two", priorityClassName="high")))
    report = run("--from-cluster", "--snapshot", str(file), "--add", str(add))
    told = report["difference"]
    (urgent,) = told["added"]
    assert (urgent["name"], urgent["phase"], urgent["boundAt"] > 10) == ("urgent", "Running", True)
    assert len(told["gone"]) == 1
    assert [f"{each['namespace']}/{each['name']}" for each in told["evictions"]] == told["gone"]
    assert told["changed"] == []
    assert len(report["before"]["pods"]) == 4


def test_the_difference_is_shown_for_people(tmp_path: Path) -> None:
    file, add = saved(cluster(), tmp_path / "now.json", pods_first=True), tmp_path / "add.yaml"
    add.write_text(yaml.safe_dump(pod("late", template="two")))
    arguments = ["simulate", "--from-cluster", "--snapshot", str(file), "--add", str(add), "--until", "60s"]
    answer = CliRunner().invoke(root, arguments)
    assert "default/late  Pending" in answer.stdout
    assert (
        "After 60 s: 4 pods running without the added objects, 4 with them; 0 end differently, 0 gone, 0 more evicted or deleted."
        in answer.stdout
    )


def test_of_pods_that_are_gone_then_it_is_shown_where_they_would_be(tmp_path: Path) -> None:
    file, add = saved(cluster(), tmp_path / "now.json", pods_first=True), tmp_path / "add.yaml"
    add.write_text(yaml.safe_dump(pod("urgent", template="two", priorityClassName="high")))
    arguments = ["simulate", "--from-cluster", "--snapshot", str(file), "--add", str(add), "--until", "60s"]
    answer = CliRunner().invoke(root, arguments)
    (gone,) = [line.split() for line in answer.stdout.splitlines() if line.endswith("gone")]
    assert gone[1:3] == ["Running", "on"]


def test_a_simulation_that_ends_before_anything_is_added_is_refused(tmp_path: Path) -> None:
    file, add = saved(cluster(), tmp_path / "now.json", pods_first=True), tmp_path / "add.yaml"
    add.write_text(yaml.safe_dump(pod("late", template="two")))
    arguments = ["simulate", "--from-cluster", "--snapshot", str(file), "--add", str(add), "--until", "10s"]
    answer = CliRunner().invoke(root, arguments)
    assert answer.exit_code == 2
    assert "extend --until" in answer.stderr


def test_an_object_that_is_added_and_refused_is_named(tmp_path: Path) -> None:
    file, add = saved(cluster(), tmp_path / "now.json", pods_first=True), tmp_path / "add.yaml"
    add.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}))
    arguments = ["simulate", "--from-cluster", "--snapshot", str(file), "--add", str(add), "--until", "60s"]
    answer = CliRunner().invoke(root, arguments)
    assert answer.exit_code == 2
    assert "add.yaml: object 1: pod/default/p" in answer.stderr


def test_without_anything_to_simulate_it_says_so() -> None:
    answer = CliRunner().invoke(root, ["simulate"])
    assert answer.exit_code == 2
    assert "specify scenario files or --from-cluster" in answer.stderr
