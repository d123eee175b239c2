"""Slices that a driver published for its node go when nobody stands for them, and not before."""

from __future__ import annotations

from dray.api.kinds import RESOURCE_SLICES
from dray.nodes.wiping import SliceWiping
from dray.runtime.faults import Crash, Faults
from tests.simulated import Place


class Site:
    def __init__(self, *crashes: Crash) -> None:
        self.place = Place(faults=Faults(crashes=crashes))
        self.connected: set[str] = set()

    def start(self) -> None:
        self.place.start("wiping", SliceWiping.kinds, lambda world: [SliceWiping(world, ["n"], self._there)])

    def _there(self, node: str, driver: str) -> bool:
        return driver in self.connected

    def publish(self, name: str, driver: str = "a.example.com", node: str = "n", **labels: str) -> None:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "d"}]}
        self.place.create(RESOURCE_SLICES, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def slices(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.place.all(RESOURCE_SLICES))

    def touch(self, name: str) -> None:
        """Something happens to the slice, so that it is looked at."""
        self.place.patch(RESOURCE_SLICES, name, {"metadata": {"annotations": {"seen": str(self.place.shell.elapsed)}}})


def test_at_the_start_all_slices_of_the_node_go_but_simulated_ones() -> None:
    site = Site()
    site.connected.add("a.example.com")
    site.publish("old")
    site.publish("elsewhere", node="other")
    site.publish("simulated", **{"dray.dev/simulated": "true"})
    site.start()
    site.place.shell.run(5)
    assert site.slices() == ["elsewhere", "simulated"]
    site.publish("new")
    site.place.shell.run(120)
    assert "new" in site.slices()


def test_a_driver_that_is_back_within_half_a_minute_keeps_its_slices() -> None:
    site = Site()
    site.start()
    site.connected |= {"a.example.com", "b.example.com"}
    site.place.shell.run(1)
    site.publish("a")
    site.publish("b", "b.example.com")
    site.place.shell.run(10)
    site.connected.clear()
    site.touch("a")
    site.touch("b")
    site.place.shell.run(35)
    assert site.slices() == ["a", "b"]
    site.connected.add("a.example.com")
    site.touch("a")
    site.place.shell.run(90)
    assert site.slices() == ["a"]
