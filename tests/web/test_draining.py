"""A node is drained from the page as kubectl drains it, and whoever looks sees how far it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dray.api.core import Pod
from dray.api.kinds import NODES, POD_DISRUPTION_BUDGETS, PODS
from dray.api.meta import decode
from dray.cluster.port import Write
from dray.web.draining import AGAIN_SECONDS, LEAVING, Drain
from dray.web.live import Live
from tests.web.clusters import pod
from tests.web.conftest import Client, serving
from tests.web.test_live import running
from tests.web.test_server import Watched

NODE = "gpu8-0"
POD = "{nodeSelector: {kubernetes.io/hostname: gpu8-0}, containers: [{name: c, image: i}]}"
OBJECTS = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: default}}
spec: {{replicas: 2, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {POD}}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, namespace: default}}
spec: {{selector: {{matchLabels: {{app: agent}}}}, template: {{metadata: {{labels: {{app: agent}}}}, spec: {POD}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: alone, namespace: default}}
spec: {POD}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web, namespace: default}}
spec: {{minAvailable: 1, selector: {{matchLabels: {{app: web}}}}}}
"""


async def drained(client: Client, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The last drain, once it is so."""
    while True:
        drains = (await client.ok("/api/drains"))["drains"]
        if drains and enough(drains[0]):
            found: dict[str, Any] = drains[0]
            return found
        await asyncio.sleep(0.05)


async def test_budgets_are_honoured_daemons_stay_and_progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.web.draining.AGAIN_SECONDS", 0.2)
    async with asyncio.timeout(60), running() as (local, onlooker):
        scene = Live(local.port, "live", onlooker=onlooker)
        async with serving(scene, allow_changes=True) as client:
            _, made = await client.post("/api/plan", {"manifests": OBJECTS})
            assert (await client.post("/api/apply", {"ticket": made["ticket"]}))[0] == 200

            def ready() -> bool:
                pods = scene.moment().world.all(PODS).values()
                budget = scene.moment().world.get(POD_DISRUPTION_BUDGETS, "default/web")
                return sum(pod.status.phase == "Running" for pod in pods) == 4 and budget.status.disruptions_allowed == 1

            while True:
                if ready():
                    break
                await asyncio.sleep(0.05)
            _, plan = await client.post("/api/plan", {"drain": [NODE]})
            asks = f"drain {NODE}: cordon it and evict 3 pods, as disruption budgets allow"
            assert plan["does"] == [f"{asks}; 1 of them has no controller and would not be recreated; 1 DaemonSet pod stays"]
            assert not scene.moment().world.get(NODES, NODE).spec.unschedulable  # looking changes nothing
            status, told = await client.post("/api/apply", {"ticket": plan["ticket"]})
            assert (status, told) == (200, {"done": plan["does"]})
            stuck = await drained(client, lambda drain: drain["evicted"] == 2 and drain["leftCount"] == 1)
            assert stuck["state"] == "under way"
            assert [pod.partition("-")[0] for pod in stuck["stays"]] == ["default/agent"]
            kept = await drained(client, lambda drain: drain["left"][0]["why"] != LEAVING)
            assert "disruption budget web needs 1 healthy pods" in kept["left"][0]["why"]
            assert scene.moment().world.get(NODES, NODE).spec.unschedulable
            await local.port.write(Write("delete", POD_DISRUPTION_BUDGETS, "default", "web"))
            done = await drained(client, lambda drain: drain["state"] == "done")
            assert (done["evicted"], done["left"], done["trouble"]) == (3, [], "")
            assert done["stays"] == stuck["stays"]


async def test_a_drain_is_stopped_by_those_who_may_change_something() -> None:
    async with Watched() as watched, asyncio.timeout(20):
        # Nobody looks after the pod here, so it never leaves.
        await watched.port.write(Write("create", PODS, "default", "p", pod("p", node=NODE, namespace="default")))
        async with serving(Live(watched.port, "live"), allow_changes=True) as client:
            _, plan = await client.post("/api/plan", {"drain": [NODE]})
            await client.post("/api/apply", {"ticket": plan["ticket"]})
            asked = await drained(client, lambda drain: drain["evicted"] == 1)
            assert asked["left"] == [{"pod": "default/p", "why": LEAVING}]
            assert await client.delete(f"/api/drains?node={NODE}") == 200
            assert (await drained(client, lambda drain: drain["state"] != "under way"))["state"] == "stopped"
            assert await client.delete(f"/api/drains?node={NODE}") == 404
        async with serving(Live(watched.port, "live")) as client:
            assert await client.delete(f"/api/drains?node={NODE}") == 403


def _pod(name: str, **metadata: Any) -> Pod:
    return decode(Pod, msgspec.json.encode(pod(name, node=NODE, **metadata)))


def test_a_pod_that_is_kept_is_asked_again_after_a_while_and_one_in_its_place_at_once() -> None:
    drain = Drain(NODE, 0.0)
    first = _pod("a")
    assert drain.asks([first], 0.0) == [first]
    drain.answered(first, "a budget says no", 0.0)
    assert drain.asks([first], AGAIN_SECONDS - 0.1) == []
    assert drain.told([first])["left"][0].why == "a budget says no"
    assert drain.asks([first], AGAIN_SECONDS) == [first]
    drain.answered(first, "", AGAIN_SECONDS)
    assert drain.asks([first], 100.0) == []
    second = _pod("a", uid="another")
    assert drain.asks([second], 100.0) == [second]
    assert drain.state == "under way"
    assert drain.asks([_pod("elsewhere", ownerReferences=[{"kind": "DaemonSet", "name": "d", "controller": True}])], 101.0) == []
    assert (drain.state, drain.ended) == ("done", 101.0)
