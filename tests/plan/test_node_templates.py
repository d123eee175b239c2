"""``dray plan --node-template``: which kind of node would take which pods that wait, as data for autoscalers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.api.kinds import NODES, RESOURCE_SLICES
from dray.cli import root
from dray.testing import node_with_devices, pod
from tests.plan.clusters import cluster, deployment, read
from tests.plan.test_plan import saved, working
from tests.plan.test_plan_with_queues import group, member, queue


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A node that is full, five pods that wait for two devices each, one for cpu, and a daemon on every node."""
    daemon = deployment("agent", 0, pod("x", requests={"cpu": "1"}))
    del daemon["spec"]["replicas"]
    waiting = [working(f"gpu-{n}") for n in range(5)]
    made = cluster(*node_with_devices("full", 0, cpu="1"), {**daemon, "kind": "DaemonSet"})
    made.create(*waiting, pod("cpu", requests={"cpu": "6"}))
    made.run(30)
    return saved(read(made.server), tmp_path / "now.json")


def asked(snapshot: Path, *arguments: str) -> Result:
    return CliRunner().invoke(root, ["plan", *arguments, "--snapshot", str(snapshot)], catch_exceptions=False)


def written(file: Path, name: str, devices: int, cpu: str) -> str:
    file.write_text(yaml.safe_dump_all(node_with_devices(name, devices, cpu=cpu)))
    return str(file)


def test_each_template_says_how_many_nodes_would_take_which_pods(snapshot: Path, tmp_path: Path) -> None:
    gpus = written(tmp_path / "gpus.yaml", "gpus", 4, "4")
    large = written(tmp_path / "large.yaml", "large", 16, "32")
    answer = asked(snapshot, "--node-template", gpus, "--node-template", large, "-o", "json")
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert found["waiting"] == ["default/cpu", *(f"default/gpu-{n}" for n in range(5))]
    small, big = found["templates"]
    # Of four processors the daemon has one: two pods with two devices each fit, and the fifth pod has a node for itself.
    assert [len(node["pods"]) for node in small["nodes"]] == [2, 2, 1]
    assert (small["template"], small["left"], small["more"]) == ("gpus", 1, False)
    assert [node["node"] for node in big["nodes"]] == ["large-new-1"]
    assert (big["admits"], big["left"]) == (found["waiting"], 0)


def test_without_a_template_that_takes_all_the_exit_code_is_1(snapshot: Path, tmp_path: Path) -> None:
    answer = asked(snapshot, "--node-template", written(tmp_path / "gpus.yaml", "gpus", 4, "4"))
    assert answer.exit_code == 1
    assert answer.stdout.splitlines()[1].split() == ["gpus", "3", "5", "of", "6", "default/gpu-0,", "default/gpu-1"]
    assert answer.stdout.endswith("\nNodes of the template do not help default/cpu; `dray why POD` explains why.\n")


def test_hardware_of_the_catalogue_is_a_template_too(snapshot: Path) -> None:
    answer = asked(snapshot, "--node-template", "gpu8", "-o", "json")
    (gpu8,) = json.loads(answer.stdout)["templates"]
    assert gpu8["template"] == "gpu8"
    assert gpu8["admits"] == ["default/cpu"]


def test_a_node_that_exists_is_a_template_as_kubectl_prints_it(snapshot: Path, tmp_path: Path) -> None:
    other = cluster(*node_with_devices("gpus", 4, cpu="4"))
    items = [item for kind in (NODES, RESOURCE_SLICES) for item in other.server.all(kind).values()]
    assert all(item["metadata"]["resourceVersion"] and item["metadata"]["uid"] for item in items)
    file = tmp_path / "existing.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    (found,) = json.loads(asked(snapshot, "--node-template", str(file), "-o", "json").stdout)["templates"]
    assert (found["template"], [len(node["pods"]) for node in found["nodes"]]) == ("gpus", [2, 2, 1])


def test_a_node_that_was_saved_without_its_devices_is_warned_of(tmp_path: Path) -> None:
    made = cluster(*node_with_devices("gpus", 2))
    made.create(*(working(f"gpu-{n}") for n in range(2)))
    made.run(30)
    snapshot = saved(read(made.server), tmp_path / "now.json")
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(node_with_devices("gpus", 2)[0]))
    answer = asked(snapshot, "--node-template", str(tmp_path / "node.yaml"))
    assert (answer.exit_code, answer.stdout.splitlines()[1].split()) == (1, ["gpus", "0", "0", "of", "1"])
    assert "warning: template gpus has no devices, but node gpus in the cluster has some" in answer.stderr
    assert "warning" not in asked(snapshot, "--node-template", written(tmp_path / "gpus.yaml", "gpus", 2, "4")).stderr


def test_how_many_nodes_are_tried_is_about_templates(snapshot: Path) -> None:
    answer = asked(snapshot, "--cordon", "full", "--max-nodes", "3")
    assert answer.exit_code == 2
    assert "--max-nodes requires --node-template" in answer.stderr


def test_only_so_many_nodes_are_tried(snapshot: Path, tmp_path: Path) -> None:
    gpus = written(tmp_path / "gpus.yaml", "gpus", 2, "4")
    (found,) = json.loads(asked(snapshot, "--node-template", gpus, "--max-nodes", "2", "-o", "json").stdout)["templates"]
    assert (len(found["nodes"]), found["more"]) == (2, True)


def test_a_template_without_a_node_is_named(snapshot: Path, tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    file.write_text(yaml.safe_dump(pod("p")))
    answer = asked(snapshot, "--node-template", str(file))
    assert answer.exit_code == 2
    assert "has no Node" in answer.stderr
    unknown = asked(snapshot, "--node-template", "nothing-like-it")
    assert (unknown.exit_code, "unknown hardware" in unknown.stderr) == (2, True)


def test_a_gang_gets_as_many_nodes_as_it_needs_to_start(tmp_path: Path) -> None:
    """One more node alone takes none of its pods, nor do two."""
    made = cluster(*node_with_devices("full", 4, cpu="8"))
    policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "train", "namespace": "default"}}
    made.create({**group, "spec": policy})
    made.create(*(pod(f"w{n}", template="gpu-4", schedulingGroup={"podGroupName": "train"}) for n in range(4)))
    made.run(30)
    snapshot = saved(read(made.server), tmp_path / "now.json")
    gpus, plain = written(tmp_path / "g.yaml", "gpus", 4, "4"), written(tmp_path / "p.yaml", "plain", 0, "4")
    answer = asked(snapshot, "--node-template", gpus, "--node-template", plain, "-o", "json")
    assert answer.exit_code == 0
    found, none = json.loads(answer.stdout)["templates"]
    assert [(node["node"], len(node["pods"])) for node in found["nodes"]] == [
        ("gpus-new-1", 1),
        ("gpus-new-2", 1),
        ("gpus-new-3", 2),
    ]
    assert sorted(found["admits"]) == [f"default/w{n}" for n in range(4)]
    assert (found["left"], found["more"]) == (0, False)
    assert (none["nodes"], none["left"], none["more"]) == ([], 4, False)
    (short,) = json.loads(asked(snapshot, "--node-template", gpus, "--max-nodes", "2", "-o", "json").stdout)["templates"]
    assert (short["nodes"], short["left"], short["more"]) == ([], 4, True)
    told = asked(snapshot, "--node-template", gpus, "--max-nodes", "2").stdout
    names = ", ".join(f"default/w{n}" for n in range(4))
    assert told.endswith(f"\nStill pending: {names}; more nodes were not tried (--max-nodes).\n")


def test_who_leaves_for_others_and_comes_again_did_not_wait_before(tmp_path: Path) -> None:
    """With one node more the gang takes back its share; the pod that has to go for it needs a second one."""
    web = deployment("web", 2, working("x"))
    web["spec"]["template"]["metadata"]["labels"]["kai.scheduler/queue"] = "a"
    gang = [group("train", "b", 3), *(member(f"b{n}", "train") for n in range(3))]
    made = cluster(*node_with_devices("n1", 4), queue("a", 2), queue("b", 6), web)
    made.create(*gang)
    made.run(30)
    template = written(tmp_path / "more.yaml", "more", 4, "8")
    answer = asked(saved(read(made.server), tmp_path / "now.json"), "--node-template", template, "-o", "json")
    found = json.loads(answer.stdout)
    [told] = found["templates"]
    assert found["waiting"] == [f"default/b{n}" for n in range(3)]
    assert (sorted(told["admits"]), len(told["nodes"]), told["left"]) == (found["waiting"], 2, 0)
