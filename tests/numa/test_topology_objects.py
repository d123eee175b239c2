"""NodeResourceTopology as exporters publish it: versions, attributes, old words, and what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES
from dray.api.meta import DecodeError, decode
from dray.api.quantity import QuantityError
from dray.api.topology import NodeResourceTopology
from dray.cluster.served import OLDER
from dray.numa.demand import demand
from dray.numa.evaluate import evaluate, plan
from dray.numa.layout import Settings, layout_of, published_state
from tests.numa.building import GPU, layout, pod, state, topology


def managed(*legacy: str, **attributes: str) -> tuple[str, str]:
    listed = [{"name": f"topologyManager{name.capitalize()}", "value": value} for name, value in attributes.items()]
    return decode(NodeResourceTopology, {"topologyPolicies": list(legacy), "attributes": listed, "zones": []}).management


class TestPolicyAndScope:
    def test_p01_from_attributes(self) -> None:
        assert managed(policy="single-numa-node", scope="pod") == ("single-numa-node", "pod")

    @pytest.mark.parametrize(
        ("word", "expected"),
        [
            ("SingleNUMANodePodLevel", ("single-numa-node", "pod")),
            ("SingleNUMANodeContainerLevel", ("single-numa-node", "container")),
            ("RestrictedPodLevel", ("restricted", "pod")),
            ("RestrictedContainerLevel", ("restricted", "container")),
            ("Restricted", ("restricted", "container")),
            ("BestEffortPodLevel", ("best-effort", "pod")),
            ("BestEffort", ("best-effort", "container")),
            ("None", ("none", "container")),
            ("Whatever", ("none", "container")),
        ],
    )
    def test_p02_and_p03_from_the_deprecated_word(self, word: str, expected: tuple[str, str]) -> None:
        assert managed(word) == expected
        assert managed(word, "RestrictedPodLevel") == expected  # only the first counts

    def test_p04_and_p05_attributes_override_each_on_its_own(self) -> None:
        assert managed("SingleNUMANodePodLevel", policy="restricted") == ("restricted", "pod")
        assert managed("SingleNUMANodeContainerLevel", scope="pod") == ("single-numa-node", "pod")

    def test_p06_a_value_that_is_none_counts_as_absent(self) -> None:
        assert managed(policy="Single-NUMA-Node", scope="Pod") == ("none", "container")
        assert managed("RestrictedPodLevel", policy="strict") == ("restricted", "pod")


class TestZones:
    def order(self, *names: str, types: tuple[str, ...] = ()) -> tuple[str, ...]:
        zones = [{"name": name, "type": kind} for name, kind in zip(names, types or ("Node",) * len(names))]
        return tuple(zone.name for zone in decode(NodeResourceTopology, {"zones": zones}).numa_zones)

    def test_p07_and_p08_are_ordered_by_their_number(self) -> None:
        assert self.order("node-1", "node-0") == ("node-0", "node-1")
        assert self.order("node-10", "node-2") == ("node-2", "node-10")
        assert self.order("b", "node-3", "a") == ("node-3", "a", "b")

    def test_p09_and_p10_others_than_numa_nodes_are_not_looked_at(self) -> None:
        assert self.order("node-0", "socket-0", "node-1", types=("Node", "Socket", "Node")) == ("node-0", "node-1")
        found = decode(NodeResourceTopology, {"zones": [{"name": "socket-0", "type": "Socket"}]})
        assert layout_of(found) is None

    def test_labels_are_numbers_where_these_tell_zones_apart(self) -> None:
        def labels(*names: str) -> tuple[str, ...]:
            found = layout_of(decode(NodeResourceTopology, {"zones": [{"name": name, "type": "Node"} for name in names]}))
            assert found is not None
            return found.labels

        assert labels("node-4", "node-0") == ("0", "4")
        assert labels("a-0", "b-0", "c") == ("a-0", "b-0", "c")


class TestAmounts:
    def test_p11_resources_that_the_nodes_status_does_not_have_are_ignored(self) -> None:
        found = layout_of(topology({"cpu": 4, "example.com/x": 2}), known=("cpu", "memory"))
        assert found is not None
        assert found.resources == ("cpu",)

    def test_p12_ignored_resources_are_not_aligned(self) -> None:
        found = layout({"cpu": 4, "memory": 8, "gpu": 1}, ignored=("memory", "cpu", "absent"))
        assert [name for name in found.resources if found.row(name) is not None] == [GPU]

    def test_p14_a_part_of_a_cpu_is_not_a_cpu(self) -> None:
        node = state({"cpu": "3500m"}, policy="single-numa-node", scope="pod")
        assert not evaluate(node, plan(node.layout, demand(pod({"cpu": 4})))).admit
        assert evaluate(node, plan(node.layout, demand(pod({"cpu": 3})))).admit

    def test_missing_amounts_are_taken_from_the_others(self) -> None:
        raw: dict[str, Any] = {"zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "capacity": 8}]}]}
        found = decode(NodeResourceTopology, raw)
        node = layout_of(found)
        assert node is not None
        assert (node.allocatable, published_state(node, found).free) == (((8000,),), ((8000,),))

    def test_more_in_use_than_there_is_counts_as_nothing_free(self) -> None:
        assert state({"cpu": ("-2", 4)}).free == ((0,),)

    def test_no_more_is_free_than_can_be_allocated_whatever_is_published(self) -> None:
        assert state({"cpu": (99, 4)}, {"cpu": (3, 4)}).free == ((4000, 3000),)

    def test_a_resource_that_no_zone_reports_is_not_known_and_not_zero(self) -> None:
        node = state({"cpu": 4}, policy="single-numa-node", scope="pod")
        verdict = evaluate(node, plan(node.layout, demand(pod({"cpu": 2, "gpu": 8}))))
        assert verdict.admit
        assert verdict.unknown == (GPU,)

    def test_an_amount_that_is_none_is_an_error_that_says_so(self) -> None:
        with pytest.raises(QuantityError, match="quantities must match"):
            layout({"cpu": "four"})
        with pytest.raises(DecodeError, match="NodeResourceTopology n1"):
            decode(NodeResourceTopology, {"metadata": {"name": "n1"}, "zones": {"a": 1}})


class TestManagers:
    def aligned(self, settings: Settings | None = None, **attributes: str) -> list[str]:
        listed = [{"name": name, "value": value} for name, value in attributes.items()]
        found = layout_of(topology({"cpu": 4, "memory": 8, "hugepages-2Mi": 1, "gpu": 1}, attributes=listed), settings)
        assert found is not None
        return [name for name in found.resources if found.row(name) is not None]

    def test_without_a_word_everything_is_taken_to_be_aligned(self) -> None:
        assert len(self.aligned()) == 4

    def test_managers_that_are_off_align_nothing(self) -> None:
        assert self.aligned(cpuManagerPolicy="none", memoryManagerPolicy="None") == [GPU]
        assert self.aligned(Settings(memory_manager_policy="None"), memoryManagerPolicy="Static") == ["cpu", GPU]

    def test_near_zones_are_preferred_where_the_node_says_so_and_gives_distances(self) -> None:
        option = [{"name": "topologyManagerOptionPreferClosestNumaNodes", "value": "true"}]
        near = [[10, 20], [20, 10]]
        zones = ({"cpu": 1}, {"cpu": 1})
        assert layout(*zones, attributes=option, costs=near).prefer_closest
        assert not layout(*zones, attributes=option).prefer_closest
        assert not layout(*zones, costs=near).prefer_closest
        single = [*option, {"name": "topologyManagerPolicy", "value": "single-numa-node"}]
        assert not layout(*zones, attributes=single, costs=near).prefer_closest


def test_an_older_version_is_looked_for_where_the_new_one_is_not_served() -> None:
    assert OLDER[NODE_RESOURCE_TOPOLOGIES] == ("v1alpha1",)
    assert NODE_RESOURCE_TOPOLOGIES.type is NodeResourceTopology
