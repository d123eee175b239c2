"""``dray why`` for a pod that has a node, or could have one: why this node and these devices."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from dray.api.kinds import EVENTS
from dray.cli.choice import show_choice
from dray.cluster.port import Write
from dray.explain.choice import Choice, NodePoints
from dray.runtime.stories import Stories
from tests.inspect.conftest import Plain, Run, claim, device_class, node, pod, result, slice_


def gpu(name: str, memory: str, **more: Any) -> Plain:
    return {"name": name, "capacity": {"memory": {"value": memory}}, **more}


def wants(name: str, memory: str, *results: Plain, **more: Any) -> Plain:
    made = claim(name, *results, **more)
    made["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": memory}}
    return made


def cluster() -> list[Plain]:
    """One small device and several large ones, on nodes that are equal otherwise."""
    nodes = [f"n{number}" for number in range(1, 7)]
    large = [slice_(f"s-{name}", [gpu("large", "80Gi")], node=name) for name in nodes[1:]]
    return [*(node(name) for name in nodes), device_class(), slice_("s-n1", [gpu("small", "20Gi"), gpu("big", "80Gi")]), *large]


def placed(on: str, device: str) -> list[Plain]:
    return [wants("c", "10Gi", result(device, pool=on), pods=("p",), node=on), pod("p", "c", node=on)]


def choice(dray: Run, objects: list[Plain], *arguments: str) -> dict[str, Any]:
    found = json.loads(dray("why", objects, "p", "-n", "ns", "-o", "json", *arguments).stdout)["choice"]
    assert isinstance(found, dict)
    return found


def test_a_pod_that_is_placed_is_asked_about_as_if_it_were_placed_now(dray: Run) -> None:
    found = choice(dray, [*cluster(), *placed("n1", "small")])
    assert (found["node"], found["best"], found["strategy"], found["compared"]) == ("n1", True, "Packing", 6)
    first = found["nodes"][0]
    assert (first["node"], first["rating"]["taken"], first["rating"]["broken"]) == ("n1", 250, 250)
    assert first["devices"][0]["device"] == "gpu.example.com/n1/small"


def test_the_points_add_up_and_the_best_comes_first(dray: Run) -> None:
    nodes = choice(dray, [*cluster(), *placed("n1", "small")])["nodes"]
    for found in nodes:
        assert round(sum(found["points"].values()), 2) == found["total"]
    totals = [found["total"] for found in nodes]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > totals[1]


def test_few_runners_up_are_told_and_always_the_node_itself(dray: Run) -> None:
    found = choice(dray, [*cluster(), *placed("n6", "large")])
    assert (found["node"], found["best"]) == ("n6", False)
    assert [each["node"] for each in found["nodes"]] == ["n1", "n2", "n3", "n4", "n6"]


def test_people_see_where_nodes_differ_and_why(dray: Run) -> None:
    told = dray("why", [*cluster(), *placed("n6", "large")], "p", "-n", "ns").stdout
    assert "Why node n6 (by now n1 would be better): all devices ready, takes 100% of the largest device" in told
    assert "NODE  POINTS  LITTLE WASTE\n" in told
    assert "n6 *  " in told
    assert "1 more node scores no better. The same for all: ready 220" in told
    assert "gpu.example.com/n1/small for gpu: a whole device" in told


def test_a_pod_that_waits_for_its_scheduler_is_told_where_it_would_go(dray: Run) -> None:
    objects = [*cluster(), wants("c", "10Gi"), pod("p", "c")]
    assert choice(dray, objects)["node"] == "n1"
    assert "Why node n1, best of 6 nodes" in dray("why", objects, "p", "-n", "ns").stdout


def test_the_only_node_that_would_do_is_told_as_such(dray: Run) -> None:
    objects = [node("n1"), node("n2"), device_class(), slice_("s", [gpu("a", "80Gi")]), *placed("n1", "a")]
    assert "Why node n1, the only one that would do: " in dray("why", objects, "p", "-n", "ns").stdout


def test_a_claim_that_others_use_keeps_its_devices(dray: Run) -> None:
    shared = wants("c", "10Gi", result("large", pool="n6"), pods=("p", "q"), node="n6")
    found = choice(dray, [*cluster(), shared, pod("p", "c", node="n6"), pod("q", "c", node="n6")])
    assert (found["node"], found["compared"]) == ("n6", 1)


def test_nodes_are_compared_for_pods_without_devices_too(dray: Run) -> None:
    found = choice(dray, [node("n1"), node("n2", cpu="64", memory="128Gi"), pod("p", node="n1")])
    assert (found["node"], found["best"], found["nodes"][0]["node"]) == ("n1", False, "n2")
    assert "DevicesReady" not in found["nodes"][0]["points"]


def test_nobody_who_gives_points_is_left_out_of_the_table() -> None:
    nodes = [NodePoints(name, 30.0, {"NUMA": 10.0, "Quiet": points}) for name, points in (("a", 20.0), ("b", 5.0))]
    console = Console(file=(written := io.StringIO()), width=100)
    show_choice(Choice("a", True, "Packing", 2, nodes), console, placed=True, wide=False)
    assert "NODE  POINTS  QUIET" in written.getvalue()
    assert "The same for all: zones 10." in written.getvalue()


def test_a_pod_that_has_ended_is_not_asked_about(dray: Run) -> None:
    ended = pod("p", node="n1")
    ended["status"]["phase"] = "Succeeded"
    assert json.loads(dray("why", [node("n1"), ended], "p", "-n", "ns", "-o", "json").stdout)["choice"] is None


def test_the_story_of_a_running_scheduler_tells_in_full_what_people_are_told() -> None:
    note = "Successfully assigned ns/p to n1: " + "all devices ready, " * 20
    stories = Stories()
    body = {"apiVersion": "events.k8s.io/v1", "reason": "Scheduled", "note": note}
    stories.written(Write("create", EVENTS, "ns", "p.1", body, about="ns/p"), "scheduler", 1.0)
    assert [line.detail for line in stories.story("ns/p")] == [f"Scheduled: {note}"]
