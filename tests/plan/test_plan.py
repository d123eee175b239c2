"""``dray plan``: placements, evictions, what is left, and an exit code that says whether all get a node."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.api.kinds import DEVICE_CLASSES, PODS, REPLICA_SETS
from dray.cli import root
from dray.explain.plan import Plan, PlannedEviction
from dray.explain.planned import verdict
from dray.explain.snapshot import KINDS, Snapshot
from dray.explain.standing import Standing
from dray.explain.taking import header, written
from dray.testing import VirtualCluster, device, node, node_with_devices, pod, resource_slice
from tests.plan.clusters import cluster, deployment, read

Plain = dict[str, Any]


def saved(found: Snapshot, file: Path) -> Path:
    """As one file, in the worst order: what is owned before its owners."""
    bodies = sorted(found.objects.values(), key=lambda body: body["kind"] != "Pod")
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))
    return file


class Asked:
    def __init__(self, folder: Path, made: VirtualCluster) -> None:
        self._folder, self.cluster = folder, made
        self._snapshot = saved(read(made.server), folder / "now.json")

    def __call__(self, *arguments: str, files: list[Plain] | None = None) -> Result:
        given = list(arguments)
        if files is not None:
            change = self._folder / "change.yaml"
            change.write_text(yaml.safe_dump_all(files))
            given += ["-f", str(change)]
        return CliRunner().invoke(root, ["plan", *given, "--snapshot", str(self._snapshot)], catch_exceptions=False)

    def json(self, *arguments: str, files: list[Plain] | None = None) -> tuple[int, Plain]:
        answer = self(*arguments, "-o", "json", files=files)
        assert answer.exit_code in (0, 1), answer.output
        return answer.exit_code, json.loads(answer.stdout)


def working(name: str, size: int = 2, **more: Any) -> Plain:
    return pod(name, template=f"gpu-{size}", requests={"cpu": "1"}, **more)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Two nodes with four devices each; three pods of a deployment have two devices each, one alone has cpu only."""
    nodes = [*node_with_devices("n1", 4), *node_with_devices("n2", 4)]
    low = {"priorityClassName": "low"}
    return Asked(tmp_path, cluster(*nodes, deployment("web", 3, working("x", **low)), pod("alone", requests={"cpu": "1"}, **low)))


def test_what_a_file_does_not_say_of_a_pod_that_is_there_stays_as_it_is(asked: Asked) -> None:
    """So a file that made a pod can be given again, although a server has added to its containers since."""
    code, found = asked.json(files=[pod("alone", priorityClassName="low"), working("new")])
    assert (code, [each["verdict"] for each in found["pods"]]) == (0, ["placed"] * len(found["pods"]))
    assert found["after"]["resources"]["cpu"] == {"used": "5", "total": "8"}


def urgent_pod() -> Plain:
    """It must have two devices of the node that is full."""
    return working("urgent", priorityClassName="high", nodeSelector={"kubernetes.io/hostname": "n2"})


def test_a_pod_that_fits_is_placed_with_its_devices(asked: Asked) -> None:
    code, found = asked.json(files=[working("new")])
    (new,) = found["pods"]
    assert code == 0
    assert (new["pod"], new["verdict"], new["after"], new["reasons"]) == ("default/new", "placed", [], [])
    assert [device["pool"] for device in new["devices"]] == [new["node"]] * 2
    assert found["evictions"] == []
    driver = "gpu.example.com"
    assert (found["before"]["devices"][driver]["used"], found["after"]["devices"][driver]["used"]) == (6, 8)
    assert (found["before"]["fits"]["gpu"]["largest"], "gpu" in found["after"]["fits"]) == (2, False)
    assert found["before"]["resources"]["cpu"] == {"used": "4", "total": "8"}


def test_who_leaves_for_it_is_told_and_whether_they_find_a_place(asked: Asked) -> None:
    code, found = asked.json(files=[urgent_pod()])
    (urgent,) = found["pods"]
    assert (code, urgent["verdict"], urgent["node"]) == (0, "placed", "n2")
    assert len(urgent["after"]) == 1
    (left,) = found["evictions"]
    assert (left["pod"], left["for"], left["node"]) == (urgent["after"][0], "default/urgent", urgent["node"])
    assert (left["findsPlace"], left["placeThen"]) == (True, "n1")
    assert "its priority 0 is below 1000" in left["why"]


def test_what_does_not_fit_has_its_reasons_and_exit_code_1(asked: Asked) -> None:
    code, found = asked.json(files=[working("many", 4), pod("huge", requests={"cpu": "100"})])
    many, huge = found["pods"]
    assert code == 1
    assert (many["verdict"], [reason["code"] for reason in many["reasons"]]) == ("unschedulable", ["NotEnoughDevices"] * 2)
    assert huge["verdict"] == "impossible"
    assert "0/2 nodes are available" in huge["summary"]


def test_workloads_become_pods(asked: Asked) -> None:
    code, found = asked.json(files=[deployment("more", 2, working("x"))])
    assert code == 1
    assert [each["verdict"] for each in found["pods"]] in (["placed", "unschedulable"], ["unschedulable", "placed"])
    assert all(each["pod"].startswith("default/more-") for each in found["pods"])


def test_a_workload_that_grows_is_asked_about_with_its_new_pods(asked: Asked) -> None:
    code, found = asked.json(files=[deployment("web", 5, working("x", priorityClassName="low"))])
    assert code == 1
    assert sorted(each["verdict"] for each in found["pods"]) == ["placed", "unschedulable"]
    assert found["evictions"] == []


def test_a_workload_that_shrinks_leaves_room(asked: Asked) -> None:
    _, found = asked.json(files=[deployment("web", 1, working("x", priorityClassName="low"))])
    assert found["after"]["devices"]["gpu.example.com"]["used"] == 2


def test_a_job_becomes_as_many_pods_as_run_at_once(asked: Asked) -> None:
    template = {"spec": {**pod("x", requests={"cpu": "1"})["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": 2, "completions": 5, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum", "namespace": "default"}, "spec": spec}
    code, found = asked.json(files=[job])
    assert (code, len(found["pods"])) == (0, 2)


def test_objects_of_which_only_the_beginning_of_the_name_is_given_are_each_made(asked: Asked) -> None:
    template = {"spec": {**pod("x", requests={"cpu": "1"})["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "sum-"}, "spec": {"template": template}}
    code, found = asked.json(files=[job, job])
    assert (code, len(found["pods"])) == (0, 2)
    assert all(each["pod"].startswith("default/sum-") for each in found["pods"])
    bare = pod("x", requests={"cpu": "1"})
    bare["metadata"] = {"generateName": "bare-", "namespace": "default"}
    code, found = asked.json(files=[bare])
    assert (code, found["pods"][0]["pod"][:13]) == (0, "default/bare-")


def test_a_drain_shows_where_pods_go_and_who_stays_without(asked: Asked) -> None:
    code, found = asked.json("--drain", "n1")
    assert code == 1
    assert {each["pod"] for each in found["evictions"]} == on(asked, "n1")
    assert all(each["why"] == "node n1 is drained" for each in found["evictions"])
    moved = [each for each in found["evictions"] if each["findsPlace"]]
    assert all(each["placeThen"] == "n2" for each in moved)


def on(asked: Asked, node: str) -> set[str]:
    pods = asked.cluster.all(PODS)
    return {f"default/{body['metadata']['name']}" for body in pods if body["spec"].get("nodeName") == node}


def test_a_pod_that_nobody_makes_again_finds_no_place(asked: Asked) -> None:
    (node,) = [node for node in ("n1", "n2") if "default/alone" in on(asked, node)]
    code, found = asked.json("--remove-node", node)
    (alone,) = [each for each in found["evictions"] if each["pod"] == "default/alone"]
    assert (code, alone["findsPlace"], alone["again"], alone["why"]) == (1, False, "", f"node {node} is removed")
    assert found["after"]["nodes"] == 1


@pytest.mark.parametrize("change", ["--drain", "--remove-node", "--cordon"])
def test_what_takes_something_away_is_not_about_pods_that_wait_anyhow(asked: Asked, tmp_path: Path, change: str) -> None:
    """Nobody makes the pod of the third node again, so that none of the change's own gets a node; the others wait as before."""
    for body in node_with_devices("n3", 1):
        asked.cluster.create(body)
    asked.cluster.create(pod("bare", template="gpu-1", nodeSelector={"kubernetes.io/hostname": "n3"}))
    asked.cluster.create(working("too-large", 4))
    asked.cluster.run(30)
    again = Asked(tmp_path, asked.cluster)
    code, found = again.json(change, "n3")
    assert (found["pods"], found["others"], found["waiting"]) == ([], [], 1)
    assert [each["pod"] for each in found["evictions"]] == ([] if change == "--cordon" else ["default/bare"])
    assert code == (0 if change == "--cordon" else 1)
    said = again(change, "n3").output
    assert "too-large" not in said
    last = "No pod is affected; 1 then waits." if change == "--cordon" else "1 is evicted and not recreated; 1 then waits."
    assert said.splitlines()[-1] == last
    assert ("not recreated" in said) == (change != "--cordon")


def test_a_budget_keeps_pods_on_a_node_that_is_drained(asked: Asked, tmp_path: Path) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}},
    }
    asked.cluster.create(budget)
    asked.cluster.run(10)
    code, found = Asked(tmp_path, asked.cluster).json("--drain", "n1")
    assert code == 1
    assert set(found["protected"]) == {key for key in on(asked, "n1") if "web" in key}
    told = Asked(tmp_path, asked.cluster)("--drain", "n1").stdout.splitlines()[-1]
    assert told.endswith("; 1 stays on a drained node, protected by a disruption budget."), told


def test_nodes_that_are_added_take_pods_that_wait(asked: Asked, tmp_path: Path) -> None:
    asked.cluster.create(working("waits", 4))
    asked.cluster.run(30)
    again = Asked(tmp_path, asked.cluster)
    assert again.json("--uncordon", "n1")[1]["pods"][0]["verdict"] == "unschedulable"
    code, found = again.json(files=[*node_with_devices("n3", 4)])
    assert (code, [(each["pod"], each["node"]) for each in found["pods"]]) == (0, [("default/waits", "n3")])


def test_daemons_come_onto_new_nodes_and_old_ones_are_left_alone(asked: Asked, tmp_path: Path) -> None:
    daemons = deployment("agent", 0, pod("x", requests={"cpu": "100m"}))
    del daemons["spec"]["replicas"]
    asked.cluster.create({**daemons, "kind": "DaemonSet"})
    asked.cluster.run(30)
    again = Asked(tmp_path, asked.cluster)
    _, found = again.json(files=[*node_with_devices("n3", 4)])
    assert found["evictions"] == []
    assert found["after"]["resources"]["pods"]["used"] == str(int(found["before"]["resources"]["pods"]["used"]) + 1)


def test_devices_that_are_tainted_lose_their_pods(asked: Asked) -> None:
    code, found = asked.json("--taint-device", "gpu.example.com/n1/*", "example.com/broken:NoExecute")
    assert code == 1
    assert {each["pod"] for each in found["evictions"]} == {key for key in on(asked, "n1") if "web" in key}
    assert {each["by"] for each in found["evictions"]} == {"eviction"}


def test_a_node_that_is_tainted_loses_who_does_not_tolerate_it(asked: Asked) -> None:
    _, found = asked.json("--taint", "n1", "spot=ends:NoExecute")
    assert {each["pod"] for each in found["evictions"]} == on(asked, "n1")
    assert {each["why"] for each in found["evictions"]} == {"it does not tolerate the taint spot=ends:NoExecute"}


@pytest.mark.parametrize(
    ("arguments", "files", "says"),
    [
        ((), None, "specify a change"),
        (("--drain", "nowhere"), None, '--drain: node "nowhere" does not exist'),
        (("--uncordon", "n11"), None, '--uncordon: node "n11" does not exist; did you mean n1?'),
        (("--taint", "n1", "wrong"), None, "is not a taint"),
        (
            ("--taint-device", "gpu.example.com/n11/*", "a:NoExecute"),
            None,
            "--taint-device: no pool n11 of driver",
        ),
        ((), [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}], "spec.containers"),
        ((), [{"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "p"}}], "kind 'Deployment'"),
    ],
)
def test_a_change_that_is_wrong_is_no_plan(
    asked: Asked, arguments: tuple[str, ...], files: list[Plain] | None, says: str
) -> None:
    answer = asked(*arguments, files=files)
    assert answer.exit_code == 2
    assert says in answer.stderr


def test_what_a_namespace_and_a_runtime_class_add_to_pods_counts(tmp_path: Path) -> None:
    """A snapshot has them, because a pod that comes asks for more than its manifest says, and goes elsewhere."""
    made = cluster(*node_with_devices("n1", 1), *node_with_devices("n2", 1, labels={"kata": "yes"}))
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1000"}}]}
    made.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limited"}},
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "limited"}, "spec": limits},
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "handler": "kata",
            "scheduling": {"nodeSelector": {"kata": "yes"}},
        },
    )
    asked = Asked(tmp_path, made)
    code, found = asked.json(files=[pod("p", namespace="limited", requests={})])
    assert code == 1
    assert "not enough cpu" in json.dumps(found)
    code, found = asked.json(files=[pod("k", requests={"cpu": "1"}, runtimeClassName="kata")])
    assert (code, [each["node"] for each in found["pods"]]) == (0, ["n2"])


def test_kinds_that_no_placement_depends_on_are_left_out_and_named(asked: Asked) -> None:
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    answer = asked("-o", "json", files=[thing, working("new")])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["leftOut"] == ["Thing of example.com/v1: t"]
    assert "ignored, because Dray does not know this kind: Thing of example.com/v1: t" in answer.stderr


def test_a_kind_that_is_mistyped_is_a_mistake_and_not_left_out(asked: Asked) -> None:
    answer = asked(files=[{**deployment("web", 9, working("x")), "kind": "Deploymnt"}])
    assert answer.exit_code == 2
    assert "kind 'Deploymnt' in 'apps/v1' is not served" in answer.stderr
    assert "did you mean Deployment?" in answer.stderr


def test_a_workload_whose_parts_were_not_read_is_not_made_a_second_time(asked: Asked, tmp_path: Path) -> None:
    found = read(asked.cluster.server)
    found.objects = {at: body for at, body in found.objects.items() if at[0] != REPLICA_SETS}
    file, change = saved(found, tmp_path / "some.json"), tmp_path / "scale.yaml"
    change.write_text(yaml.safe_dump(deployment("web", 5, working("x"))))
    answer = CliRunner().invoke(root, ["plan", "-f", str(change), "--snapshot", str(file)])
    assert answer.exit_code == 2
    assert "Deployment web is there, and its pods are not known: the files have no replicasets.apps" in answer.stderr


def test_queues_are_changed_and_their_shares_told(asked: Asked) -> None:
    def queue(name: str, cpu: int) -> Plain:
        resources = {"cpu": {"quota": cpu, "limit": -1, "overQuotaWeight": 1}}
        return {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": resources},
        }

    mine = working("new", labels={"kai.scheduler/queue": "research"})
    _, found = asked.json(files=[queue("research", 2000), mine])
    assert found["before"]["queues"] == {}
    assert found["after"]["queues"]["research"]["allocated"]["cpu"] == "1"
    assert found["after"]["queues"]["research"]["quota"]["cpu"] == "2"


def test_the_table_tells_all_of_it(asked: Asked) -> None:
    answer = asked(files=[urgent_pod()])
    assert answer.stdout.splitlines()[0].split() == ["POD", "VERDICT", "NODE", "DEVICES", "EVICTS", "REASON"]
    assert "EVICTED" in answer.stdout
    assert "gpu.example.com in use" in answer.stdout
    assert "1 of 1 pods get a node; 1 is evicted and fits elsewhere." in answer.stdout


def plain_rows(told: str) -> list[tuple[str, tuple[str, str]]]:
    """What the table of before and after has."""
    lines = told.splitlines()
    first = next(number for number, line in enumerate(lines) if line.split() == ["BEFORE", "AFTER"])
    found = [
        re.split(r"\s{2,}", line.strip()) for line in itertools.takewhile(bool, lines[first + 1 :]) if "see -o wide" not in line
    ]
    return [(name, (before, after)) for name, before, after in found]


def test_the_table_leaves_out_what_stays_as_it_is(asked: Asked) -> None:
    rows = dict(plain_rows(asked(files=[pod("p", requests={"cpu": "1"})]).stdout))
    assert "cpu in use" in rows
    assert not any(before == after for before, after in rows.values())
    answer = asked("-o", "wide", files=[pod("p", requests={"cpu": "1"})]).stdout
    more = [name for name, (before, after) in plain_rows(answer) if before == after]
    assert "gpu.example.com in use" in more
    assert f"{len(more)} values unchanged, see -o wide" in asked(files=[pod("p", requests={"cpu": "1"})]).stdout


def test_the_same_plan_twice_is_the_same(asked: Asked) -> None:
    files = [urgent_pod(), deployment("more", 2, working("x"))]
    assert asked.json(files=files) == asked.json(files=files)


@pytest.mark.parametrize("header", [False, True], ids=["files", "a snapshot from before there was the kind"])
def test_what_is_of_a_kind_that_was_not_read_is_not_called_missing(header: bool, asked: Asked, tmp_path: Path) -> None:
    items = [body for body in read(asked.cluster.server).objects.values() if body["kind"] != "DeviceClass"]
    kinds = {each.resource: {"version": each.version, "objects": 0} for each in KINDS if each != DEVICE_CLASSES}
    about = {"takenAt": "2027-01-15T08:00:00Z", "takenBy": "dray", "kinds": kinds}
    snapshot = {"apiVersion": "dray.dev/v1alpha1", "kind": "Snapshot", "header": about, "items": items}
    file = tmp_path / "now.json"
    file.write_text(json.dumps(snapshot if header else {"apiVersion": "v1", "kind": "List", "items": items}))
    exit_code, answer = asked.json(files=[working("new")])
    (told,) = answer["pods"]
    assert (exit_code, told["verdict"], [reason["code"] for reason in told["reasons"]]) == (1, "unschedulable", ["NotRead"])
    who = "the snapshot has" if header else "the files have"
    assert f"nothing is known: {DEVICE_CLASSES.resource} gpu ({who} no {DEVICE_CLASSES.resource})" in told["summary"]


@pytest.mark.parametrize(("pods", "free"), [(1, 1), (2, 0)])
def test_what_nobody_can_have_beside_what_is_in_use_is_not_free(pods: int, free: int, tmp_path: Path) -> None:
    """One card, whole or cut into halves: beside the first half that is in use there is the other one, and no whole."""

    def part(name: str, units: str) -> Plain:
        return device(name, consumesCounters=[{"counterSet": "card", "counters": {"units": {"value": units}}}])

    parts = resource_slice("n1", [part("half-0", "1"), part("half-1", "1"), part("whole", "2")])
    sets = resource_slice("n1", [])
    sets["metadata"]["name"] += "-sets"
    sets["spec"]["sharedCounters"] = [{"name": "card", "counters": {"units": {"value": "2"}}}]
    del sets["spec"]["devices"]
    for each in (parts, sets):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    exit_code, answer = Asked(tmp_path, cluster(node("n1"), sets, parts)).json(files=[working(f"p{n}", 1) for n in range(pods)])
    assert exit_code == 0
    before, after = (answer[when]["devices"]["gpu.example.com"] for when in ("before", "after"))
    assert (before["total"], before["used"], before["free"]) == (3, 0, 3)
    assert (after["total"], after["used"], after["free"], after["scattered"]) == (3, pods, free, free)


def one_shot(name: str, size: int) -> Plain:
    """A Job with what a snapshot leaves out: commands, and values of environment variables."""
    spec = working("x", size)["spec"]
    spec["containers"][0] |= {"command": ["train"], "env": [{"name": "TOKEN", "value": "secret"}]}
    template = {"metadata": {}, "spec": {**spec, "restartPolicy": "Never"}}
    body = {"template": template, "parallelism": 1, "completions": 1}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": body}


@pytest.fixture
def at_work(tmp_path: Path) -> Asked:
    """A node with four devices, of which one Job has two; two others wait for more than there is."""
    jobs = [one_shot("runs", 2), one_shot("waits", 4), one_shot("waits-too", 4)]
    return Asked(tmp_path, cluster(*node_with_devices("n1", 4), *jobs))


def test_a_file_that_is_applied_already_and_whose_pods_run_concerns_nobody(at_work: Asked) -> None:
    code, found = at_work.json(files=[one_shot("runs", 2)])
    assert (code, found["pods"], found["waiting"]) == (0, [], 2)


def test_of_a_file_that_is_applied_already_those_that_wait_are_asked_about_and_no_others(at_work: Asked) -> None:
    code, found = at_work.json(files=[one_shot("waits", 4)])
    assert code == 1
    assert [each["pod"].rpartition("-")[0] for each in found["pods"]] == ["default/waits"]


def test_a_pod_that_is_there_and_waits_is_asked_about_when_its_file_is_given_again(tmp_path: Path) -> None:
    asked = Asked(tmp_path, cluster(*node_with_devices("n1", 4), working("big", 8), working("bigger", 8)))
    code, found = asked.json(files=[working("big", 8)])
    assert (code, [each["pod"] for each in found["pods"]]) == (1, ["default/big"])


def test_what_a_snapshot_leaves_out_is_no_change(at_work: Asked, tmp_path: Path) -> None:
    """The Job runs with this command and these values; that the snapshot does not have them changes nothing."""
    taken = read(at_work.cluster.server)
    for kind in KINDS:
        taken.versions.setdefault(kind, "1")
    file = tmp_path / "taken.json"
    file.write_bytes(b"".join(written(taken, header(taken, 1_800_000_000.0, "v1.37.0", {}, None))))
    (tmp_path / "runs.yaml").write_text(yaml.safe_dump(one_shot("runs", 2)))
    for command in (["plan", "-f"], ["simulate", "--from-cluster", "--until", "60s", "--add"]):
        answer = CliRunner().invoke(root, [*command, str(tmp_path / "runs.yaml"), "--snapshot", str(file), "-o", "json"])
        assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n---\n"])
def test_a_file_without_any_object_is_a_mistake_and_not_a_change_of_nothing(asked: Asked, tmp_path: Path, text: str) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text(text)
    answer = asked("-f", str(empty))
    assert (answer.exit_code, answer.stderr) == (2, f"Error: {empty}: there is no object in it\n")
    answer = CliRunner().invoke(root, ["queues", "--snapshot", str(empty)])
    assert (answer.exit_code, answer.stderr) == (2, f"Error: {empty}: there is no object in it\n")


def test_in_a_cluster_without_nodes_a_pod_is_not_impossible(tmp_path: Path) -> None:
    answer = Asked(tmp_path, cluster())(files=[pod("p")])
    assert answer.exit_code == 1
    assert [line.split()[:2] for line in answer.stdout.splitlines()[1:2]] == [["default/p", "unschedulable"]]
    assert answer.stdout.endswith("\n\n0 of 1 pods get a node; 1 then waits.\n")
    assert "\n\n\n" not in answer.stdout


def test_a_dash_is_standard_input_as_with_kubectl(asked: Asked, tmp_path: Path) -> None:
    given = ["plan", "-f", "-", "--snapshot", str(tmp_path / "now.json"), "-o", "json"]
    answer = CliRunner().invoke(root, given, input=yaml.safe_dump(pod("p", requests={"cpu": "1"})))
    assert answer.exit_code == 0, answer.output
    assert [each["pod"] for each in json.loads(answer.stdout)["pods"]] == ["default/p"]
    empty = CliRunner().invoke(root, given)
    assert (empty.exit_code, empty.stderr) == (2, "Error: -: there is no object in it\n")


@pytest.mark.parametrize(
    ("evicted", "told"),
    [
        ([""], "1 is evicted and not recreated."),
        (["web lost"], "1 is evicted and does not fit elsewhere."),
        (["", ""], "2 are evicted, none is recreated."),
        (["", "web n2", "web lost"], "3 are evicted, 1 is not recreated, 1 does not fit elsewhere."),
        (["web n2", "web lost"], "2 are evicted, 1 of them does not fit elsewhere."),
        (["web n2", "web n2"], "2 are evicted, all fit elsewhere."),
    ],
)
def test_who_is_not_made_again_is_told_from_who_finds_no_place(evicted: list[str], told: str) -> None:
    made = [each.partition(" ") for each in evicted]
    leaving = [
        PlannedEviction("ns/p", "n1", "", finds_place=node == "n2", place_then=node if node == "n2" else "", again=again)
        for again, _, node in made
    ]
    nothing = Standing(0, {}, {}, {}, {})
    assert verdict(Plan([], leaving, [], 0, [], nothing, nothing)) == told
