"""``dray queues``: the tree as a table, with a line for each resource where columns would not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from dray.api import kinds
from dray.cli import root
from dray.explain.queues import survey
from dray.explain.snapshot import KINDS
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod
from tests.scheduling.test_counters_in_shares import MEMORY, add_team, add_user, mig
from tests.scheduling.test_gangs_whose_devices_are_prepared import FABRIC


def shown(sim: Sim, folder: Path, *arguments: str) -> str:
    found: list[dict[str, Any]] = []
    for kind in KINDS:
        bodies = sim.api.objects[kind].values() if kind in sim.api.objects else ()
        found += [{"apiVersion": kind.api_version, "kind": kind.kind, **body} for body in bodies]
    file = folder / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    answer = CliRunner().invoke(root, ["queues", "--snapshot", str(file), *arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_gpus_have_columns(tmp_path: Path) -> None:
    sim = cluster(4)
    add_queue(sim, "research", 4)
    add_queue(sim, "vision", 2, limit=3, parent="research")
    add_single(sim, "p", "vision")
    sim.settle(5)
    assert lines(shown(sim, tmp_path)) == [
        ["QUEUE", "PRI", "WAITING", "GPU", "USED", "GPU", "SHARE", "GPU", "QUOTA", "GPU", "LIMIT"],
        ["research", "100", "0", "1", "1", "4", "-"],
        ["vision", "100", "0", "1", "1", "2", "3"],
    ]


def test_pods_count_under_whatever_name_they_ask_for_the_scheduler(tmp_path: Path) -> None:
    sim = cluster(4)
    add_queue(sim, "vision", 2)
    for index, name in enumerate(("dray", "kai-scheduler", "default-scheduler")):
        add_single(sim, f"p{index}", "vision", schedulerName=name, node_name="n0", phase="Running")
    assert lines(shown(sim, tmp_path))[1] == ["vision", "100", "0", "3", "3", "2", "-"]


def test_pods_that_another_scheduler_has_are_in_no_queue(tmp_path: Path) -> None:
    sim = cluster(4)
    add_queue(sim, "default-queue", 2)
    add_single(sim, "ours", "default-queue", schedulerName="dray", node_name="n0", phase="Running")
    add_single(sim, "theirs", node_name="n0", phase="Running")
    assert lines(shown(sim, tmp_path))[1] == ["default-queue", "100", "0", "1", "1", "2", "-"]


def test_the_configuration_says_whose_pods_count(tmp_path: Path) -> None:
    sim = cluster(4)
    add_queue(sim, "vision", 2)
    add_single(sim, "ours", "vision", schedulerName="batch", node_name="n0", phase="Running")
    add_single(sim, "theirs", "vision", schedulerName="kai-scheduler", node_name="n0", phase="Running")
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: batch}]\n"
    )
    assert lines(shown(sim, tmp_path, "--config", str(config)))[1] == ["vision", "100", "0", "1", "1", "2", "-"]


def test_further_resources_have_lines(tmp_path: Path) -> None:
    sim = mig(1)
    add_team(sim, "a", quota="40Gi", limit="60Gi")
    add_user(sim, "p", "a", "half")
    add_user(sim, "q", "a", "half")
    sim.settle(5)
    assert lines(shown(sim, tmp_path)) == [
        ["QUEUE", "PRI", "WAITING", "RESOURCE", "USED", "SHARE", "QUOTA", "LIMIT"],
        ["a", "100", "1", MEMORY, "40Gi", "60Gi", "40Gi", "60Gi"],
    ]


def test_a_queue_that_is_not_used_is_named(tmp_path: Path) -> None:
    sim = mig(1)
    add_queue(sim, "a", 1, **{"dray.dev/resources": '{"counter/memory": {"quota": 1}}'})
    add_queue(sim, "b", 1)
    text = " ".join(shown(sim, tmp_path).split())
    assert "queue a is ignored: annotation dray.dev/resources: 'counter/memory' is none of" in text


def test_a_queue_that_does_not_exist_is_named_where_pods_wait_in_it(tmp_path: Path) -> None:
    sim = cluster(4)
    add_queue(sim, "vision", 4)
    add_single(sim, "p", "vison")
    sim.settle(5)
    assert "queue vison does not exist: 1 pod waiting in it" in shown(sim, tmp_path)
    assert json.loads(shown(sim, tmp_path, "-o", "json"))["missing"] == {"vison": 1}


def test_files_that_have_no_queues_do_not_say_that_there_are_none(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
    answer = CliRunner().invoke(root, ["queues", "-f", str(file)])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "the files have no queues.scheduling.run.ai, which this command needs" in answer.stderr


def test_wide_has_gpus_cpu_and_memory_whoever_uses_them(tmp_path: Path) -> None:
    sim = cluster(4)
    add_queue(sim, "vision", 0)
    found = lines(shown(sim, tmp_path, "-o", "wide"))
    assert found[0][3:] == ["RESOURCE", "USED", "SHARE", "QUOTA", "LIMIT"]
    assert [line[-5] for line in found[1:]] == ["gpu", "cpu", "memory"]


def test_what_runs_of_a_queue_that_was_deleted_is_told(tmp_path: Path) -> None:
    """It holds what others deserve, and is in no row."""
    sim = cluster(2)
    add_queue(sim, "gone", 2)
    add_queue(sim, "vision", 2)
    for index in range(2):
        add_single(sim, f"p{index}", "gone")
    sim.settle(5)
    sim.remove(kinds.QUEUES, "gone")
    add_single(sim, "late", "gone")
    add_single(sim, "other", "vision")
    sim.settle(5)
    assert running(sim) == {"p0", "p1"}
    told = "queue gone does not exist: 1 pod waiting in it; 2 pods running in it, from which no queue can reclaim"
    assert told in shown(sim, tmp_path)


def test_where_no_queue_can_be_used_it_is_said_why_and_who_waits(tmp_path: Path) -> None:
    sim = cluster(2)
    add_queue(sim, "a", 1, parent="gone")
    for name in ("p", "q"):
        add_single(sim, name, "a")
    sim.settle(8)
    assert shown(sim, tmp_path) == "queue a is ignored: parent 'gone' does not exist; 2 pods waiting in it\n"
    assert json.loads(shown(sim, tmp_path, "-o", "json"))["waitInVain"] == {"a": 2}


def test_where_there_is_no_queue_at_all_those_are_named_that_members_of_gangs_wait_for() -> None:
    sim = cluster(2)
    add_group(sim, "train", "nobody", 1)
    add_member(sim, "w0", "train")
    sim.settle(5)
    tree = survey(sim.world, sim.now)
    assert (tree.queues, tree.missing) == ([], {"nobody": 1})


def test_pods_that_wait_in_a_queue_with_queues_below_it_are_counted(tmp_path: Path) -> None:
    sim = cluster(2)
    add_queue(sim, "above", 1)
    add_queue(sim, "below", 1, parent="above")
    add_single(sim, "p", "above")
    add_single(sim, "q", "below")
    sim.settle(5)
    found = shown(sim, tmp_path)
    assert lines(found)[1][:3] == ["above", "100", "1"]
    assert "queue above accepts no pods because it has child queues (below); 1 pod waiting in it" in found


def told_by_the_scheduler(sim: Sim) -> dict[str, tuple[dict[str, str], dict[str, str], int]]:
    """Of each queue what its status says: what it holds, deserves, and how many wait."""
    statuses = {name: queue["status"] for name, queue in sim.api.objects[kinds.QUEUES].items()}
    return {name: (_plain(said["allocated"]), _plain(said["fairShare"]), said["waitingPods"]) for name, said in statuses.items()}


def told_by_the_tree(sim: Sim) -> dict[str, tuple[dict[str, str], dict[str, str], int]]:
    rows = survey(sim.world, sim.now).queues
    return {row.name: (_plain(row.allocated), _plain(row.fair_share), row.waiting_pods) for row in rows}


def _plain(amounts: dict[str, str]) -> dict[str, str]:
    return {name.replace("nvidia.com/", ""): value for name, value in amounts.items() if value != "0"}


def test_pods_whose_devices_are_being_prepared_have_them_and_do_not_wait() -> None:
    sim = cluster(0)
    sim.add_class()
    sim.add_slice("n0", 3, **FABRIC)
    add_queue(sim, "a", **{"dray.dev/resources": '{"deviceclass/gpu": {"quota": 2}}'})
    add_group(sim, "train", "a", 2)
    for index in range(2):
        sim.add_claim(f"c{index}")
        add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
    add_member(sim, "w2", "train", 0)
    sim.settle(15)
    assert len(sim.preparing()) == 2
    assert told_by_the_tree(sim) == told_by_the_scheduler(sim)
    assert told_by_the_tree(sim)["a"] == ({"deviceclass/gpu": "2"}, {"deviceclass/gpu": "2"}, 0)


def test_what_is_promised_to_pods_while_others_leave_is_theirs_and_they_wait() -> None:
    sim = cluster(4)
    add_queue(sim, "lent", 2)
    add_queue(sim, "due", 2)
    for index in range(4):
        made = pod(f"lent-{index}", requests={GPU: "1"}, labels={"kai.scheduler/queue": "lent"})
        sim.api.put(kinds.PODS, made | {"metadata": made["metadata"] | {"finalizers": ["example.com/slow"]}})
    sim.settle(10)
    assert len(running(sim)) == 4
    add_group(sim, "train", "due", 2)
    for index in range(2):
        add_member(sim, f"w{index}", "train")
    sim.settle(20)
    assert sim.pod("w0")["status"]["nominatedNodeName"] == "n0"
    assert told_by_the_tree(sim) == told_by_the_scheduler(sim)
    assert told_by_the_tree(sim)["due"] == ({"gpu": "2"}, {"gpu": "2"}, 2)
