"""``dray zones`` and what ``dray why`` says of zones: what is free, who has the rest, how it is known, what blocks a pod."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.api.reason import Reason
from dray.api.words import message
from dray.cli import root
from dray.explain.why import why
from dray.explain.zones import zone_report
from dray.numa.placement import OBSERVED
from dray.testing import builders
from tests.numa.clusters import GPU, ZonedCluster, aligned_pod, zoned_node

CPU4 = {"cpus": 4, "memory": "8Gi"}


def cluster() -> ZonedCluster:
    made = ZonedCluster(zoned_node("n1", CPU4, CPU4))
    made.create(aligned_pod("a", 3), aligned_pod("b", 3))
    made.run(20)
    made.create(aligned_pod("c", 2))
    made.run(20)
    return made


def test_every_zone_says_what_is_free_and_who_has_the_rest() -> None:
    made = cluster()
    found = zone_report(made.world(), made.clock.now)
    assert [(zone.zone, zone.free["cpu"], zone.total["cpu"]) for zone in found.zones] == [("0", "1", "4"), ("1", "1", "4")]
    assert sorted((h.pod, h.amount["cpu"], h.known) for zone in found.zones for h in zone.holders) == [
        ("default/a", "3", "observed"),
        ("default/b", "3", "observed"),
    ]
    assert (found.unknown, found.missing, found.unreported) == ([], {}, [])


def test_a_node_that_would_refuse_and_publishes_no_zone_is_named() -> None:
    made = cluster()
    attributes = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    made.create(zoned_node("n2"), {**kind, "metadata": {"name": "n2"}, "attributes": attributes, "zones": []})
    found = zone_report(made.world(), made.clock.now, nodes=["n2"])
    assert (found.zones, found.missing) == ([], {"n2": ["cpu", "memory"]})


def test_a_policy_that_no_kubelet_has_is_told_of() -> None:
    made = cluster()
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    attributes = [{"name": "topologyManagerPolicy", "value": "Restricted"}, {"name": "topologyManagerScope", "value": "pod"}]
    amounts = {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}
    zones = [{"name": "node-0", "type": "Node", "resources": [amounts]}]
    topology = {**kind, "metadata": {"name": "n2"}, "attributes": attributes, "zones": zones}
    made.create(builders.node("n2"), topology)
    said = "topologyManagerPolicy 'Restricted' is none of none, best-effort, restricted, single-numa-node: counts as none"
    assert zone_report(made.world(), made.clock.now).not_understood == {"n2": [said]}
    asked = json.dumps({"topology": topology, "pod": aligned_pod("a", 3)})
    answer = CliRunner().invoke(root, ["numa", "check", "-"], input=asked)
    assert json.loads(answer.stdout)["warnings"][0] == said


def test_zones_that_were_published_before_a_pod_came_are_told_of() -> None:
    made = cluster()
    assert zone_report(made.world(), made.clock.now).stale == ["n1"]
    made.run(90)
    assert zone_report(made.world(), made.clock.now).stale == []


def test_why_says_that_zones_were_left_out_where_they_may_not_be_read() -> None:
    made = cluster()
    told = f"you may not list {NODE_RESOURCE_TOPOLOGIES.resource}"
    pod = made.world().all(PODS)["default/c"]
    (note,) = why(made.world(), pod, now=made.clock.now, unknown={NODE_RESOURCE_TOPOLOGIES: told}).notes
    assert told in note


def test_pods_that_nobody_reports_are_named() -> None:
    made = ZonedCluster(zoned_node("n1", CPU4, CPU4, exporter=None))
    made.create(aligned_pod("foreign", 3, nodeName="n1", schedulerName="another"), aligned_pod("ours", 2))
    made.run(100)
    found = zone_report(made.world(), made.clock.now)
    assert [each.pod for each in found.unknown] == ["default/foreign"]
    assert sorted(found.unreported) == ["default/foreign", "default/ours"]


def test_a_record_that_cannot_be_used_is_told_of_and_the_one_before_it_counts(caplog: pytest.LogCaptureFixture) -> None:
    made = ZonedCluster(zoned_node("n1", CPU4, CPU4, exporter=None))
    made.create(aligned_pod("a", 3))
    made.run(20)
    made.patch(PODS, "a", {"metadata": {"annotations": {OBSERVED: '[{"zone":"node-7","amount":{"cpu":"3"}}]'}}})
    made.run(1)
    found = zone_report(made.world(), made.clock.now)
    assert [(holder.pod, holder.known) for zone in found.zones for holder in zone.holders] == [("default/a", "predicted")]
    (unread,) = found.unread
    assert (unread.pod, found.unknown) == ("default/a", [])
    assert "node-7" in unread.warnings[0]
    assert "a record of where a pod has its resources cannot be used" in caplog.text


def test_why_names_the_zones_that_come_nearest_and_who_is_there() -> None:
    made = cluster()
    answer = made.why("c")
    assert answer.verdict == "unschedulable"
    (reason,) = answer.reasons
    assert reason.code == "ZonesFull"
    assert (reason.data["nearest"], reason.data["lacks"]) == (["0"], {"cpu": "1"})
    assert reason.data["holders"] in ("default/a", "default/b")
    assert "; zone 0 comes nearest and lacks cpu=1, in use by default/" in message([(reason, 1)], 1)
    wider = Reason(reason.code, reason.object, {**reason.data, "nearest": ["0", "1"]})
    assert "; zones 0, 1 come nearest and lack cpu=1, in use by default/" in message([(wider, 1)], 1)


def test_why_names_only_those_who_have_what_is_lacking() -> None:
    made = ZonedCluster(zoned_node("n1", {**CPU4, "devices": {GPU: 1}}, {**CPU4, "devices": {GPU: 1}}))
    made.create(aligned_pod("device", 1, gpu=1), aligned_pod("more", 4, gpu=0))
    made.run(20)
    made.create(aligned_pod("cores", 1))
    made.run(20)
    made.create(aligned_pod("new", 1, gpu=1))
    made.run(20)
    (reason,) = made.why("new").reasons
    assert (reason.data["nearest"], reason.data["lacks"], reason.data["holders"]) == (["0"], {GPU: "1"}, "default/device")


def test_why_names_those_whose_memory_keeps_zones_from_being_joined() -> None:
    """Six gigabytes are free in each of two zones, which nobody gets together while one of them serves a pod alone."""
    made = ZonedCluster(zoned_node("n1", CPU4, CPU4, policy="restricted"))
    made.create(aligned_pod("small", 1, memory="2Gi"))
    made.run(20)
    made.create(aligned_pod("large", 5, memory="12Gi"))
    made.run(20)
    (reason,) = made.why("large").reasons
    assert (reason.code, reason.data["nearest"], reason.data["holders"]) == ("ZoneMemoryGroups", ["0", "1"], "default/small")
    assert "zones with room (0, 1) that memory given out before" in message([(reason, 1)], 1)
    assert message([(reason, 1)], 1).endswith(": that of default/small.")


def test_why_says_in_which_zone_a_pod_is() -> None:
    assert "in zone" in cluster().why("a").summary
    assert "(observed)" in cluster().why("a").summary


def test_why_names_all_zones_that_a_pods_memory_came_from_together() -> None:
    made = ZonedCluster(zoned_node("n1", CPU4, CPU4, policy="best-effort"))
    made.create(aligned_pod("a", 1, memory="12Gi"))
    made.run(20)
    assert set(made.zones_of("a", OBSERVED)) == {"node-0"}
    assert "in zones 0 and 1 (observed)" in made.why("a").summary


def saved(made: ZonedCluster, file: Path) -> Path:
    items = [*made.all(NODES), *made.all(PODS), *made.all(NODE_RESOURCE_TOPOLOGIES)]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


def test_the_command_counts_as_the_scheduler_is_configured(tmp_path: Path) -> None:
    """What was published before the pods came is believed by a scheduler that is told to."""
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    args = [{"name": "NUMA", "args": {"reconstructAvailable": False}}]
    believing = tmp_path / "config.json"
    believing.write_text(json.dumps({**config, "profiles": [{"pluginConfig": args}]}))
    asked = ["zones", "--snapshot", str(saved(cluster(), tmp_path / "cluster.json")), "-o", "json"]
    for more, free in ([], "1"), (["--config", str(believing)], "4"):
        found = json.loads(CliRunner().invoke(root, [*asked, *more]).output)
        assert [zone["free"]["cpu"] for zone in found["zones"]] == [free, free]


def test_the_command_shows_a_snapshot_as_a_table_and_as_json(tmp_path: Path) -> None:
    file = saved(cluster(), tmp_path / "cluster.json")
    shown = CliRunner().invoke(root, ["zones", "--snapshot", str(file)], env={"COLUMNS": "140"})
    assert shown.exit_code == 0, shown.output
    assert "cpu 1/4" in shown.output
    assert "(observed)" in shown.output
    found = json.loads(CliRunner().invoke(root, ["zones", "--snapshot", str(file), "-o", "json"]).output)
    assert [zone["free"]["cpu"] for zone in found["zones"]] == ["1", "1"]


def test_a_node_that_does_not_exist_is_a_mistake_and_one_without_zones_is_told_so(tmp_path: Path) -> None:
    made = cluster()
    made.create(builders.node("plain"))
    asked = ["zones", "--snapshot", str(saved(made, tmp_path / "cluster.json")), "--node"]
    wrong = CliRunner().invoke(root, [*asked, "plaim"])
    assert (wrong.exit_code, "did you mean plain?" in wrong.output) == (2, True)
    assert (
        CliRunner().invoke(root, [*asked, "plain"]).output
        == "No zones found on plain: nodes publish them as NodeResourceTopology.\n"
    )


def test_why_says_where_nothing_is_guaranteed() -> None:
    """A pod with exclusive cores and devices of a claim, which no kubelet aligns with them."""
    made = ZonedCluster(zoned_node("n1", CPU4, CPU4))
    made.create(
        builders.device_class(),
        builders.resource_slice("n1", [builders.device("gpu-1", attributes={"numaNode": 1})]),
        builders.claim("c"),
        aligned_pod("mixed", 2, claims=["c"]),
        aligned_pod("cores", 2),
    )
    made.run(20)
    (note,) = made.why("mixed").notes
    assert "nothing guarantees it" in note
    assert made.why("cores").notes == []


def test_why_says_what_a_kubelet_refused_and_what_its_zones_lack_now() -> None:
    made = cluster()
    made.create(aligned_pod("refused", 2, nodeName="n1"))
    made.run(20)
    pod = made.world().all(PODS)["default/refused"]
    answer = why(made.world(), pod, now=made.clock.now)
    assert answer.summary.startswith("pod default/refused was on node n1 and failed: TopologyAffinityError: ")
    assert any("n1 has not enough cpu free in the same zones (needs 2 within 1 of them, 1 free)" in note for note in answer.notes)
    made.delete(PODS, "a")
    made.run(20)
    assert "Such a pod would find room in the zones of node n1 now." in why(made.world(), pod, now=made.clock.now).notes


def test_why_says_of_a_refused_pod_that_nobody_publishes_the_zones_of_its_node() -> None:
    made = cluster()
    made.create(aligned_pod("refused", 2, nodeName="n1"))
    made.run(20)
    world = made.world()
    world.replace(NODE_RESOURCE_TOPOLOGIES, [])
    pod = world.all(PODS)["default/refused"]
    assert any("Nobody publishes the zones of node n1" in note for note in why(world, pod, now=made.clock.now).notes)
