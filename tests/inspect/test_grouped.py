"""What an event says of several nodes is true of each of them."""

from __future__ import annotations

from dray.api import kinds
from tests.scheduling.scheduling_cluster import Sim, slice_of


def message(sim: Sim) -> str:
    (found,) = sim.api.objects[kinds.PODS]["default/p"]["status"]["conditions"]
    return str(found["message"])


def broken(sim: Sim, name: str) -> None:
    """Two slices of one pool that have a device of the same name."""
    for number in range(2):
        made = slice_of(name, 1)
        made["metadata"]["name"] = f"{name}-{number}"
        made["spec"]["pool"]["resourceSliceCount"] = 2
        sim.api.put(kinds.RESOURCE_SLICES, made)


def test_a_pool_of_one_node_is_not_held_against_the_others() -> None:
    sim = Sim()
    sim.add_class("gpu")
    for name in ("worker-0", "worker-1", "worker-2"):
        sim.add_node(name)
        broken(sim, name)
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle(1)
    assert "3 nodes are served by an invalid pool" in message(sim)
    assert "worker-" not in message(sim)


def test_the_only_node_is_told_with_its_pool() -> None:
    sim = Sim()
    sim.add_class("gpu")
    sim.add_node("worker-0")
    broken(sim, "worker-0")
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle(1)
    assert "worker-0" in message(sim)
