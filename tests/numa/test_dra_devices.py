"""DRA devices and zones: from what drivers publish to masks that limit an allocation."""

from __future__ import annotations

from dray.api.resource import DeviceAttribute
from dray.numa.demand import demand
from dray.numa.devices import candidate_masks, root_zones, zone_numbers
from dray.numa.evaluate import plan
from tests.numa.building import pod, state

ROOT = "resource.kubernetes.io/pcieRoot"


def numbers(**attributes: DeviceAttribute) -> frozenset[int] | None:
    return zone_numbers({key.replace("__", "/").replace("_", "."): value for key, value in attributes.items()})


def number(value: int) -> DeviceAttribute:
    return DeviceAttribute(int_=value)


class TestWhichZone:
    def test_a_number_under_any_drivers_domain(self) -> None:
        assert numbers(numaNode=number(1)) == {1}
        assert numbers(dra_net__numaNode=number(0)) == {0}
        assert numbers(dra_cpu__numaNodeID=number(3)) == {3}

    def test_a_list_of_numbers(self) -> None:
        assert numbers(numaNode=DeviceAttribute(ints=(0, 1))) == {0, 1}

    def test_firmware_that_does_not_know_says_minus_one(self) -> None:
        assert numbers(numaNode=number(-1)) is None

    def test_other_attributes_say_nothing(self) -> None:
        assert numbers(model=DeviceAttribute(string="a"), numaNode=DeviceAttribute(string="0")) is None

    def test_a_root_says_it_through_others_on_it(self) -> None:
        def device(root: str, zone: int | None) -> dict[str, DeviceAttribute]:
            found = {ROOT: DeviceAttribute(string=root)}
            return found if zone is None else {**found, "numaNode": number(zone)}

        roots = root_zones([device("pci0000:00", 0), device("pci0000:80", 1), device("pci0000:c0", 0), device("pci0000:c0", 1)])
        assert roots == {"pci0000:00": frozenset({0}), "pci0000:80": frozenset({1})}
        assert zone_numbers(device("pci0000:80", None), roots) == {1}
        assert zone_numbers(device("pci0000:c0", None), roots) is None
        assert zone_numbers({ROOT: DeviceAttribute(strings=("pci0000:00", "pci0000:80"))}, roots) == {0, 1}


class TestMasks:
    def test_zones_are_tried_few_before_many_and_only_with_room_for_the_rest(self) -> None:
        node = state({"cpu": 2}, {"cpu": 8}, {"cpu": 8}, policy="best-effort", scope="pod")
        (needs,) = plan(node.layout, demand(pod({"cpu": 4}))).needs
        assert list(candidate_masks(node, needs)) == [0b010, 0b100, 0b011, 0b101, 0b110, 0b111]

    def test_near_zones_are_tried_before_far_ones(self) -> None:
        far = [[10, 20, 12], [20, 10, 20], [12, 20, 10]]
        node = state({"cpu": 4}, {"cpu": 4}, {"cpu": 4}, policy="best-effort", scope="pod", costs=far)
        (needs,) = plan(node.layout, demand(pod({"cpu": 6}))).needs
        assert list(candidate_masks(node, needs)) == [0b101, 0b011, 0b110, 0b111]

    def test_a_pod_with_nothing_else_may_use_any_zone(self) -> None:
        node = state({"cpu": 1}, {"cpu": 1}, policy="none")
        assert list(candidate_masks(node, None)) == [0b01, 0b10, 0b11]

    def test_many_zones_cost_a_bounded_number_of_sets(self) -> None:
        node = state(*[{"cpu": 4}] * 40, policy="best-effort", scope="pod")
        (needs,) = plan(node.layout, demand(pod({"cpu": 160}))).needs
        assert list(candidate_masks(node, needs)) == [2**40 - 1]
