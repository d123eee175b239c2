"""How placements on different nodes compare: what they take and break, how close the devices are, how full the node is."""

from __future__ import annotations

from typing import Any

from dray.devices import Devices, Rating
from tests.devices.building import claim, counters, device, engine, exactly, slice_, takes
from tests.solver.model import Json

ROOT = "resource.kubernetes.io/pcieRoot"


def gpu(name: str, memory: int, **more: Any) -> Json:
    return device(name, capacity={"memory": {"value": f"{memory}Gi"}}, **more)


def partition(name: str, size: int) -> Json:
    return gpu(name, size, consumesCounters=takes("card", memory=f"{size}Gi"))


def partitions(*sizes: int) -> Devices:
    """A card of 80Gi, which is also published as a whole, and these partitions of it."""
    return engine(
        counters(("card", {"memory": "80Gi"})),
        slice_([partition("whole", 80), *(partition(f"part-{i}", size) for i, size in enumerate(sizes))], count=2),
    )


def wants(memory: str, name: str = "c", count: int = 1) -> Any:
    return claim(exactly(capacity={"requests": {"memory": memory}}, count=count), name=name)


def rated(made: Devices, *claims: Any) -> Rating:
    found = made.rate("n1", claims, "packing")
    assert found is not None
    return found


def take(made: Devices, wanted: Any) -> None:
    made.hold(wanted, made.allocate("n1", [wanted], "packing").results[0])


def test_a_device_that_is_taken_is_all_that_is_broken() -> None:
    made = engine(slice_([gpu("small", 20), gpu("large", 80)]))
    small, large = rated(made, wants("10Gi")), rated(made, wants("40Gi"))
    assert (small.taken, small.broken, small.waste) == (250, 250, 250)
    assert (large.taken, large.broken, large.waste) == (1000, 1000, 1000)


def test_a_partition_of_an_untouched_card_breaks_the_whole_card() -> None:
    found = rated(partitions(10, 10, 40), wants("10Gi"))
    assert (found.taken, found.broken, found.waste) == (125, 1000, 562)


def test_a_partition_of_a_card_in_use_breaks_the_largest_partition_that_it_makes_impossible() -> None:
    made = partitions(10, 10, 40, 30)
    take(made, wants("40Gi", "first"))
    assert rated(made, wants("10Gi")).broken == 125  # 30Gi can still be had of the 40Gi that are left
    take(made, wants("10Gi", "second"))
    assert rated(made, wants("10Gi")).broken == 375  # of 30Gi, 20Gi are left


def test_a_share_breaks_what_was_free_of_the_device() -> None:
    made = engine(slice_([gpu("shared", 80, allowMultipleAllocations=True)]))
    assert rated(made, wants("20Gi")).broken == 1000
    take(made, wants("60Gi", "first"))
    assert rated(made, wants("20Gi")).broken == 250


def test_sizes_are_compared_with_the_largest_of_the_driver_wherever_it_is() -> None:
    made = engine(slice_([gpu("small", 20)]), slice_([gpu("large", 80)], name="far", pool="far", nodeName="n2"))
    assert rated(made, wants("10Gi")).broken == 250
    made.put_slice(slice_([gpu("huge", 160)], name="huge", pool="huge", nodeName="n3"))
    assert rated(made, wants("10Gi")).broken == 125


def test_devices_without_capacity_are_whole() -> None:
    made = engine(slice_([device("a"), device("b")]))
    assert rated(made, claim(exactly())).broken == 1000


def test_admin_access_breaks_nothing() -> None:
    made = engine(slice_([gpu("a", 80)]))
    assert rated(made, claim(exactly(adminAccess=True))).broken == 0


def test_devices_of_one_root_are_not_apart() -> None:
    roots = [gpu(f"gpu-{i}", 80, attributes={ROOT: {"string": root}}) for i, root in enumerate("aab")]
    made = engine(slice_(roots))
    assert rated(made, wants("1Gi", count=2)).apart == 0
    assert rated(made, wants("1Gi", count=3)).apart == 500


def test_being_on_different_roots_of_one_numa_node_counts_half() -> None:
    placed = [gpu(f"gpu-{i}", 80, attributes={ROOT: {"string": root}, "numaNode": {"int": 0}}) for i, root in enumerate("ab")]
    assert rated(engine(slice_(placed)), wants("1Gi", count=2)).apart == 500


def test_devices_that_do_not_say_where_they_are_are_not_apart() -> None:
    assert rated(engine(slice_([gpu("a", 80), gpu("b", 80)])), wants("1Gi", count=2)).apart == 0


def test_partitions_that_the_counters_refuse_are_in_use() -> None:
    made = partitions(40, 40)
    assert rated(made, wants("1Gi")).used == 0
    take(made, wants("1Gi", "first"))
    assert rated(made, wants("1Gi")).used == 667  # the partition, and with it the whole


def test_what_does_not_fit_has_no_rating() -> None:
    assert engine(slice_([gpu("a", 80)])).rate("n1", [wants("1Gi", count=2)]) is None
