"""ImageLocality depends on how many nodes have an image, so an answer does not outlive a change of that."""

from __future__ import annotations

from typing import Any

from scheduling_cluster import Sim

from dray.api.kinds import NODES
from dray.scheduling.plugins.images import ImageNodes

MIB = 1024 * 1024


def pull(sim: Sim, name: str, *images: str) -> None:
    node = sim.api.objects[NODES][name]
    known: list[dict[str, Any]] = [{"names": [image], "sizeBytes": 900 * MIB} for image in images]
    sim.api.put(NODES, {**node, "status": {**node["status"], "images": known}})


def test_plans_notice_that_an_image_came_to_other_nodes(sim: Sim) -> None:
    for number in range(3):
        sim.add_node(f"n{number}")
    pull(sim, "n0", "big:1")
    for name in ("first", "second"):
        sim.add_pod(name, containers=[{"name": "c", "image": "big:1", "resources": {}}])
    sim.settle(2)
    scheduler = sim.scheduler
    (candidates,) = scheduler.cycle._kept.values()
    info = scheduler.nodes.get("n0")
    assert info is not None
    before = candidates.plan.examine(info)[1]
    for number in (1, 2):
        pull(sim, f"n{number}", "big:1")
    candidates.catch_up()
    assert candidates.plan.examine(info)[1] > before
    assert candidates._entries["n0"].fixed == candidates.plan.examine(info)[1]


def test_images_that_no_node_has_any_more_are_forgotten(sim: Sim) -> None:
    counted = ImageNodes(sim.scheduler.nodes)
    sim.add_node("n0")
    pull(sim, "n0", "big:1", "small:1")
    node = sim.world.get(NODES, "n0")
    counted.changed(None, node)
    counted.changed(node, None)
    assert counted._counts == {}
