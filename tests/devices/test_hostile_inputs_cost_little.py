"""Inputs on which a search without bounds explodes. Work is counted in steps, so these tests do not depend on the machine."""

from __future__ import annotations

import pytest

from tests.devices.building import claim, class_, counters, device, engine, exactly, first_of, names, slice_, take, takes

FEW = 2_000


def gpus(count: int, first: int = 0, **fields: object) -> list[dict[str, object]]:
    return [device(f"d{i:03}", **fields) for i in range(first, first + count)]


def test_twelve_requests_on_eleven_devices_in_one_claim() -> None:
    made = engine(slice_(gpus(11)))
    verdict = made.allocate("n1", [claim(*(exactly(f"r{i}") for i in range(12)))])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW


def test_twelve_claims_on_eleven_devices() -> None:
    made = engine(slice_(gpus(11)))
    verdict = made.allocate("n1", [claim(exactly(), name=f"c{i}") for i in range(12)])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW


def test_twenty_nine_of_twenty_eight_devices() -> None:
    verdict = engine(slice_(gpus(28))).allocate("n1", [claim(exactly(count=29))])
    assert not verdict.ok
    assert verdict.steps < 10


def test_two_groups_of_twenty_two_under_match_attribute_with_count_twenty_three() -> None:
    devices = [device(f"d{i:03}", attributes={"root": f"r{i % 2}"}) for i in range(44)]
    made = engine(slice_(devices))
    match = [{"matchAttribute": "gpu.example.com/root"}]
    verdict = made.allocate("n1", [claim(exactly(count=23), constraints=match)])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW
    assert names(made.allocate("n1", [claim(exactly(count=22), constraints=match)])) == [[f"d{i:03}" for i in range(0, 44, 2)]]


PROFILES = [("1g", 7, 1), ("2g", 3, 2), ("3g", 2, 3), ("4g", 1, 4), ("7g", 1, 7)]


def two_partitioned_gpus() -> object:
    parts = [
        device(f"g{g}-{name}-{i}", consumesCounters=takes(f"g{g}", slices=size))
        for g in range(2)
        for name, many, size in PROFILES
        for i in range(many * 2)
    ]
    return engine(slice_(parts, name="s", count=2), counters(("g0", {"slices": "7"}), ("g1", {"slices": "7"})))


def test_sixteen_partitions_where_the_counters_of_two_gpus_allow_fourteen() -> None:
    made = two_partitioned_gpus()
    verdict = made.allocate("n1", [claim(exactly(count=16))])  # type: ignore[attr-defined]
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW
    assert made.allocate("n1", [claim(exactly(count=14))]).ok  # type: ignore[attr-defined]


def test_sixteen_claims_of_one_partition_where_the_counters_allow_fourteen() -> None:
    made = two_partitioned_gpus()
    verdict = made.allocate("n1", [claim(exactly(), name=f"c{i}") for i in range(16)])  # type: ignore[attr-defined]
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW


@pytest.mark.parametrize("values", [4, 10, 16])
def test_one_more_device_than_there_are_distinct_values(values: int) -> None:
    devices = [device(f"d{i:03}", attributes={"slot": i % values}) for i in range(values * 3)]
    distinct = [{"distinctAttribute": "gpu.example.com/slot"}]
    made = engine(slice_(devices))
    verdict = made.allocate("n1", [claim(exactly(count=values + 1), constraints=distinct)])
    assert not verdict.ok
    assert verdict.steps < FEW
    apart = made.allocate("n1", [claim(*(exactly(f"r{i}") for i in range(values + 1)), constraints=distinct)])
    assert not apart.ok
    assert not apart.error
    assert apart.steps < FEW
    assert made.allocate("n1", [claim(exactly(count=values), constraints=distinct)]).ok


def test_thirty_two_requests_with_eight_alternatives_each() -> None:
    made = engine(slice_(gpus(31)))
    wanted = [first_of(f"r{i}", *({"count": 8 - j} for j in range(8))) for i in range(32)]
    verdict = made.allocate("n1", [claim(*wanted)])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW
    assert made.allocate("n1", [claim(*wanted[:31])]).ok


def test_gpus_and_nics_that_never_share_a_root() -> None:
    devices = [device(f"d{i:03}", attributes={"kind": "gpu" if i % 2 else "nic", "root": f"r{i}"}) for i in range(24)]
    kind = 'device.attributes["gpu.example.com"].kind == "%s"'
    made = engine(slice_(devices), class_("g", kind % "gpu"), class_("n", kind % "nic"))
    wanted = claim(exactly("g", cls="g"), exactly("n", cls="n"), constraints=[{"matchAttribute": "gpu.example.com/root"}])
    verdict = made.allocate("n1", [wanted])
    assert not verdict.ok
    assert verdict.steps < FEW


def test_a_claim_that_cannot_be_satisfied_is_found_before_all_solutions_of_another() -> None:
    devices = [device(f"d{i:03}", attributes={"kind": "many"}) for i in range(20)] + [device("only", attributes={"kind": "one"})]
    kind = 'device.attributes["gpu.example.com"].kind == "%s"'
    made = engine(slice_(devices), class_("many", kind % "many"), class_("one", kind % "one"))
    claims = [claim(exactly(cls="many", count=5)), claim(exactly("a", cls="one"), exactly("b", cls="one"))]
    verdict = made.allocate("n1", claims)
    assert not verdict.ok
    assert verdict.steps < FEW


def test_a_full_slice_of_large_devices_is_answered() -> None:
    devices = [device(f"d{i:03}", attributes={f"a{j}": f"{i}-{j}" for j in range(32)}) for i in range(128)]
    made = engine(slice_(devices))
    assert names(made.allocate("n1", [claim(exactly(select=['device.attributes["gpu.example.com"].a7 == "99-7"']))])) == [
        ["d099"]
    ]


def test_a_search_that_is_given_up_refuses_this_node_only_and_says_so() -> None:
    # Different counters on every device leave nothing to count, compare or remember.
    sizes = [2**i + 1 for i in range(24)]
    parts = [device(f"d{i:03}", consumesCounters=takes("g", units=size)) for i, size in enumerate(sizes)]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"units": str(sum(sizes[:9]) - 1)})), budget=50)
    verdict = made.allocate("n1", [claim(exactly(count=9))])
    assert not verdict.ok
    if verdict.error:
        assert verdict.node_error
        assert verdict.reasons[0].code == "SearchBudget"


BROKEN = ["device.attributes['gpu.example.com'].missing == 1"]


def test_requests_without_a_solution_before_one_that_would_end_in_an_error() -> None:
    """Upstream refuses this after trying every combination and never looks at the device that the selector breaks on."""
    made = engine(slice_(gpus(24)))
    many = [exactly(f"r{i}", count=3) for i in range(7)]
    verdict = made.allocate("n1", [claim(*many, exactly("none", count=4)), claim(exactly("late", select=BROKEN), name="d")])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW


def test_a_request_that_breaks_only_on_devices_in_use() -> None:
    odd = [device("odd"), *gpus(12, attributes={"numa": 0}), *gpus(12, 12, attributes={"numa": 1})]
    made = engine(slice_(odd))
    take(made, claim(exactly()))
    derived = [{"name": "example.com/numa", "expression": "device.attributes['gpu.example.com'].numa"}]
    match = [{"matchAttribute": "example.com/numa"}]
    verdict = made.allocate("n1", [claim(exactly(count=13, derivedAttributes=derived), constraints=match)])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW


def test_all_devices_under_a_constraint_when_one_is_in_use_and_many_ways_lead_there() -> None:
    made = engine(slice_(gpus(20, attributes={"numa": 0})))
    take(made, claim(exactly()))
    few = [exactly(f"r{i}", count=2) for i in range(6)]
    match = [{"matchAttribute": "gpu.example.com/numa"}]
    verdict = made.allocate("n1", [claim(*few, exactly("all", allocationMode="All"), constraints=match)])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW


def test_an_error_behind_many_dead_ends_is_found() -> None:
    """All fails while its first device is taken by an earlier request, and is an error once that one makes way for it."""
    made = engine(slice_([device("first"), device("second"), *gpus(12, attributes={"numa": 0})]))
    has_numa = "'numa' in device.attributes['gpu.example.com']"
    one, numa = exactly("one", select=["!(" + has_numa + ")"]), exactly("numa", count=2, select=[has_numa])
    everything = exactly("all", allocationMode="All")
    match = [{"matchAttribute": "gpu.example.com/numa", "requests": ["all"]}]
    verdict = made.allocate("n1", [claim(one, numa, everything, constraints=match)])
    assert "cannot add device gpu.example.com/p1/first because a claim constraint" in verdict.error
    assert verdict.steps < FEW


@pytest.mark.parametrize("count", [17, 20])
def test_devices_that_draw_from_two_of_many_counter_sets(count: int) -> None:
    """Each takes one of the two slots of two sets, so sixteen sets give sixteen devices."""
    sets = [(f"g{i:02}", {"slots": "2"}) for i in range(16)]
    pairs = [(i, j) for i in range(16) for j in range(i + 1, 16)]
    parts = [
        device(f"d{i:02}{j:02}", consumesCounters=[*takes(f"g{i:02}", slots=1), *takes(f"g{j:02}", slots=1)]) for i, j in pairs
    ]
    made = engine(slice_(parts, name="s", count=2), counters(*sets))
    verdict = made.allocate("n1", [claim(exactly(count=count))])
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW
    assert made.allocate("n1", [claim(exactly(count=16))]).ok


def test_shares_that_are_more_than_all_devices_have() -> None:
    """Seventy-seven asked of six devices that have ten to fifteen each: seventy-five."""
    devices = [device(f"d{i}", allowMultipleAllocations=True, capacity={"memory": {"value": str(10 + i)}}) for i in range(6)]
    sizes = [7, 7, 7, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4, 7]
    wanted = [claim(exactly(capacity={"requests": {"memory": str(n)}}), name=f"c{i}") for i, n in enumerate(sizes)]
    made = engine(slice_(devices))
    verdict = made.allocate("n1", wanted)
    assert not verdict.ok
    assert not verdict.error
    assert verdict.steps < FEW
    assert made.allocate("n1", wanted[:-3]).ok
