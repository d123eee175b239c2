"""A change that was rehearsed is done from the page: as it was shown, once, and only where changes are allowed."""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.kinds import DEVICE_TAINT_RULES, NODES, PODS, Kind
from dray.cluster.port import Write
from dray.web.live import Live
from tests.web.conftest import serving
from tests.web.test_server import Watched
from tests.workloads import TRAIN

MORE = "apiVersion: v1\nkind: Pod\nmetadata: {name: more}\nspec: {containers: [{name: c, image: i}]}"
RULE = "gpu.dray.dev-gpu8-1-gpu-3-example.com-broken"
CHANGE = {
    "manifests": MORE,
    "cordon": ["gpu8-0"],
    "taint": [["gpu8-1", "example.com/upgrade=yes:NoSchedule"]],
    "taintDevices": [["gpu.dray.dev/gpu8-1/gpu-3", "example.com/broken:NoExecute"]],
}


async def _spec(watched: Watched, node: str) -> Any:
    return (await watched.port.get(NODES, "", node))["spec"]


async def test_what_was_rehearsed_is_done_once_and_told_step_by_step() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live"), allow_changes=True) as client:
        status, plan = await client.post("/api/plan", CHANGE)
        assert status == 200, plan
        assert not (await _spec(watched, "gpu8-0")).get("unschedulable")  # looking changes nothing
        assert plan["does"] == [
            "apply Pod more",
            "cordon gpu8-0",
            "taint node gpu8-1 with example.com/upgrade=yes:NoSchedule",
            f"taint gpu.dray.dev/gpu8-1/gpu-3 with example.com/broken:NoExecute by rule {RULE}",
        ]
        status, told = await client.post("/api/apply", {"ticket": plan["ticket"]})
        assert (status, told) == (200, {"done": plan["does"]})
        assert (await client.post("/api/apply", {"ticket": plan["ticket"]}))[0] == 409
        assert (await _spec(watched, "gpu8-0"))["unschedulable"]
        assert [taint["key"] for taint in (await _spec(watched, "gpu8-1"))["taints"]] == ["example.com/upgrade"]
        assert await watched.port.get(PODS, "default", "more")
        rules = [msgspec.json.decode(raw)["spec"]["taint"] for raw in (await watched.port.list(DEVICE_TAINT_RULES))[0]]
        assert [rule["effect"] for rule in rules] == ["NoExecute"]
        _, back = await client.post("/api/plan", {"uncordon": ["gpu8-0"]})
        await client.post("/api/apply", {"ticket": back["ticket"]})
        assert not (await _spec(watched, "gpu8-0")).get("unschedulable")


async def test_what_has_only_the_beginning_of_a_name_is_created() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live"), allow_changes=True) as client:
        _, plan = await client.post("/api/plan", {"manifests": MORE.replace("name: more", "generateName: more-")})
        assert plan["does"] == ["apply Pod more-"]
        status, told = await client.post("/api/apply", {"ticket": plan["ticket"]})
        assert (status, told) == (200, {"done": plan["does"]})
        names = [msgspec.json.decode(raw)["metadata"]["name"] for raw in (await watched.port.list(PODS))[0]]
        assert sum(name.startswith("more-") for name in names) == 1


async def test_a_page_that_only_reads_gives_no_ticket_for_a_plan() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        _, plan = await client.post("/api/plan", {"cordon": ["gpu8-0"]})
        assert plan["ticket"] is None
        assert (await client.post("/api/apply", {"ticket": "x"}))[0] == 403


async def test_what_writing_objects_cannot_do_is_said_with_what_to_do_instead() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live"), allow_changes=True) as client:
        status, plan = await client.post("/api/plan", {"remove": ["gpu8-0"]})
        assert status == 200, plan
        assert plan["ticket"] is None
        assert "cannot be done through the API" in plan["whyNot"]


async def test_objects_of_kinds_that_others_define_are_applied_by_asking_what_is_served() -> None:
    trains = Kind("example.com", "v1", "trains", "Train", namespaced=True)
    async with Watched() as watched, serving(Live(watched.port, "live"), allow_changes=True) as client:
        _, plan = await client.post("/api/plan", {"manifests": TRAIN})
        assert plan["does"] == ["apply CustomResourceDefinition trains.example.com", "apply Train t"]
        status, told = await client.post("/api/apply", {"ticket": plan["ticket"]})
        assert (status, told) == (200, {"done": plan["does"]})
        assert (await watched.port.get(trains, "default", "t"))["spec"] == {"gpus": 8}
        for gpus in (9, 10):  # it is there now, and changed
            more = TRAIN.split("---")[0].replace("gpus: 8", f"gpus: {gpus}")
            _, plan = await client.post("/api/plan", {"manifests": more})
            assert any("Train" in each for each in plan["leftOut"])
            assert (await client.post("/api/apply", {"ticket": plan["ticket"]}))[0] == 200
            assert (await watched.port.get(trains, "default", "t"))["spec"] == {"gpus": gpus}
        _, plan = await client.post("/api/plan", {"manifests": more.replace("kind: Train", "kind: Tram")})
        status, told = await client.post("/api/apply", {"ticket": plan["ticket"]})
        assert status == 409
        assert "the cluster serves no kind 'Tram' in 'example.com/v1'" in told["error"]


async def test_a_step_that_is_refused_is_named_with_what_was_done_before_it() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live"), allow_changes=True) as client:
        _, plan = await client.post("/api/plan", {"manifests": MORE, "cordon": ["gpu8-1"]})
        await watched.port.write(Write("delete", NODES, name="gpu8-1"))
        status, told = await client.post("/api/apply", {"ticket": plan["ticket"]})
        assert status == 409
        assert told["error"].startswith("cordon gpu8-1: ")
        assert told["error"].endswith("Done before that: apply Pod more.")
