"""One test for each difference on docs/fidelity.md."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.meta import decode
from dray.api.resource import DeviceTaintRule, ResourceClaim
from dray.cel import CostLimitExceeded, DeviceView, Program
from dray.devices.selection import COSTLY_SHAPES
from tests.devices.building import (
    DRIVER,
    GATES,
    claim,
    class_,
    counters,
    device,
    engine,
    exactly,
    names,
    node,
    slice_,
    take,
    takes,
)

CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
GROUPS_OFF = GATES.updated({"DRADeviceCompatibilityGroups": False})


def test_a_slice_of_kubernetes_1_34_has_counters_and_their_devices() -> None:
    sets = [{"name": "g", "counters": {"slots": {"value": "2"}}}]
    parts = [device("whole", consumesCounters=takes("g", slots=2)), device("half", consumesCounters=takes("g", slots=1))]
    made = engine(slice_(parts, sharedCounters=sets))
    assert names(made.allocate("n1", [claim(exactly())])) == [["whole"]]
    assert not made.allocate("n1", [claim(exactly(count=2))]).ok


def rule(name: str, selector: dict[str, Any] | None, **taint: str) -> DeviceTaintRule:
    spec: dict[str, Any] = {"taint": {"key": "k", "effect": "NoSchedule", **taint}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return decode(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def test_within_a_pool_devices_without_binding_conditions_are_taken_first() -> None:
    made = engine(slice_([device("slow", **CONDITIONS), device("ready")]))
    assert names(made.allocate("n1", [claim(exactly())])) == [["ready"]]
    assert names(made.allocate("n1", [claim(exactly(count=2))])) == [["ready", "slow"]]


def test_across_pools_devices_without_binding_conditions_are_taken_first() -> None:
    mixed = slice_([device("slow", **CONDITIONS), device("ready")], name="s1", pool="p1")
    other = slice_([device("also-ready")], name="s2", pool="p2")
    made = engine(mixed, other)
    assert names(made.allocate("n1", [claim(exactly(count=3))])) == [["ready", "also-ready", "slow"]]
    assert names(made.allocate("n1", [claim(exactly(allocationMode="All"))])) == [["also-ready", "slow", "ready"]]


def grouped(*more: Any, **options: Any) -> Any:
    parts = [
        device("mig", consumesCounters=takes("g", ("mig",), slots=1)),
        device("vgpu", consumesCounters=takes("g", ("vgpu",), slots=1)),
        device("plain", consumesCounters=takes("g", slots=1)),
        device("apart"),
    ]
    return engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "4"})), *more, **options)


def test_gate_off_passes_over_devices_that_declare_groups_and_no_others() -> None:
    made = grouped(gates=GROUPS_OFF)
    assert names(made.allocate("n1", [claim(exactly(count=2))])) == [["plain", "apart"]]
    assert not made.allocate("n1", [claim(exactly(count=3))]).ok


def test_gate_off_still_respects_snapshots() -> None:
    with_gate = grouped()
    holder = claim(exactly())
    allocation = with_gate.allocate("n1", [holder]).results[0]
    assert allocation.devices.results[0].compatibility_groups == {"g": ("mig",)}
    made = grouped(gates=GROUPS_OFF)
    made.hold(holder, allocation)
    assert names(made.allocate("n1", [claim(exactly())])) == [["apart"]]


def test_a_snapshot_wins_over_the_slice() -> None:
    made = grouped()
    take(made, claim(exactly()))
    changed = [
        device("mig", consumesCounters=takes("g", ("vgpu",), slots=1)),
        device("mig-2", consumesCounters=takes("g", ("mig",), slots=1)),
        device("vgpu", consumesCounters=takes("g", ("vgpu",), slots=1)),
    ]
    made.put_slice(slice_(changed, name="s", count=2))
    assert names(made.allocate("n1", [claim(exactly())])) == [["mig-2"]]


def test_a_snapshot_wins_over_the_slice_for_further_shares_too() -> None:
    def shared(*groups: str) -> Any:
        capacity = {"slots": {"value": "8", "requestPolicy": {"default": "1"}}}
        part = device("nic", allowMultipleAllocations=True, capacity=capacity, consumesCounters=takes("g", groups, slots=1))
        return slice_([part], name="s", count=2)

    made = engine(shared("a"), counters(("g", {"slots": "4"})))
    take(made, claim(exactly()))
    made.put_slice(shared("b"))
    assert not made.allocate("n1", [claim(exactly())]).ok
    (finding,) = made.explain("n1", [claim(exactly())]).requests[0].devices
    assert finding.reason is not None
    assert (finding.reason.code, finding.reason.data["used"]) == ("GroupIncompatible", "a")
    made.put_slice(shared("a", "b"))
    assert made.allocate("n1", [claim(exactly())]).ok


@pytest.mark.parametrize("first", ["share", "partition"])
def test_a_further_share_narrows_what_may_follow_to_the_groups_that_are_published_now(first: str) -> None:
    def card(*groups: str) -> Any:
        capacity = {"slots": {"value": "8", "requestPolicy": {"default": "1"}}}
        nic = device("nic", allowMultipleAllocations=True, capacity=capacity, consumesCounters=takes("g", groups, slots=1))
        return slice_([nic, device("part", consumesCounters=takes("g", ("a",), slots=1))], name="s", count=2)

    made = engine(card("a", "b"), counters(("g", {"slots": "4"})))
    take(made, claim(exactly()))
    both = [
        exactly("share", select=["device.allowMultipleAllocations"]),
        exactly("part", select=["!device.allowMultipleAllocations"]),
    ]
    wanted = claim(*(both if first == "share" else reversed(both)))
    assert made.allocate("n1", [wanted]).ok
    made.put_slice(card("b"))
    assert not made.allocate("n1", [wanted]).ok
    for one in both:
        assert made.allocate("n1", [claim(one)]).ok


def test_what_a_device_that_draws_from_nothing_any_more_had_is_free_when_its_claim_goes() -> None:
    def card(**first: Any) -> Any:
        return slice_(
            [device("mig", **first), device("vgpu", consumesCounters=takes("g", ("vgpu",), slots=1))], name="s", count=2
        )

    made = engine(card(consumesCounters=takes("g", ("mig",), slots=1)), counters(("g", {"slots": "4"})))
    holder = claim(exactly())
    take(made, holder)
    made.put_slice(card())
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.release(holder.metadata.uid)
    assert made.allocate("n1", [claim(exactly(count=2))]).ok


def test_an_empty_snapshot_is_none() -> None:
    made = grouped()
    holder = claim(exactly(select=['device.driver == "gpu.example.com"']))
    (allocation,) = (
        engine(
            slice_([device("plain", consumesCounters=takes("g", slots=1))], name="s", count=2), counters(("g", {"slots": "4"}))
        )
        .allocate("n1", [holder])
        .results
    )
    allocation.devices.results[0].compatibility_groups = {}
    made.hold(holder, allocation)
    assert names(made.allocate("n1", [claim(exactly())])) == [["apart"]]


def test_a_set_whose_groups_are_recorded_as_null_is_one_on_which_the_device_has_none() -> None:
    """As a scheduler or an API server in Go writes a list without elements."""
    both = device("both", consumesCounters=[*takes("g", ("mig",), slots=1), *takes("h", slots=1)])
    parts = [
        both,
        device("with", consumesCounters=takes("h", ("mig",), slots=1)),
        device("none", consumesCounters=takes("h", slots=1)),
    ]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "4"}), ("h", {"slots": "4"})))
    result = {"request": "r", "driver": DRIVER, "pool": "p1", "device": "both", "compatibilityGroups": {"g": ["mig"], "h": None}}
    status = {"allocation": {"devices": {"results": [result]}}}
    made.put_claim(decode(ResourceClaim, {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "status": status}))
    assert names(made.allocate("n1", [claim(exactly())])) == [["none"]]


def test_a_snapshot_counts_after_the_device_is_gone() -> None:
    made = grouped()
    take(made, claim(exactly()))
    left = [
        device("vgpu", consumesCounters=takes("g", ("vgpu",), slots=1)),
        device("mig-2", consumesCounters=takes("g", ("mig",), slots=1)),
    ]
    made.put_slice(slice_(left, name="s", count=2))
    assert names(made.allocate("n1", [claim(exactly())])) == [["mig-2"]]


def test_a_snapshot_is_written_only_for_devices_that_declare_groups() -> None:
    made = grouped()
    results = [r for claims in (claim(exactly()),) for r in made.allocate("n1", [claims]).results[0].devices.results]
    assert results[0].compatibility_groups == {"g": ("mig",)}
    take(made, claim(exactly()))
    assert made.allocate("n1", [claim(exactly())]).results[0].devices.results[0].compatibility_groups is None


def test_an_over_committed_counter_blocks_its_own_counter_set_only() -> None:
    parts = [device("a", consumesCounters=takes("g", slots=3)), device("b", consumesCounters=takes("g", slots=1))]
    parts.append(device("c", consumesCounters=takes("h", slots=1)))
    sets = [("g", {"slots": "4"}), ("h", {"slots": "4"})]
    made = engine(slice_(parts, name="s", count=2), counters(*sets))
    take(made, claim(exactly()))
    made.put_slice(counters(("g", {"slots": "2"}), ("h", {"slots": "4"})))
    assert names(made.allocate("n1", [claim(exactly())])) == [["c"]]


def test_all_mode_with_an_incomplete_pool_refuses_this_node_only() -> None:
    unfinished = slice_([device("a")], name="s1", count=2)
    finished = slice_([device("b")], name="s2", pool="p2", nodeName="n2")
    made = engine(unfinished, finished, node("n2"))
    wanted = [claim(exactly(allocationMode="All"))]
    verdict = made.allocate("n1", wanted)
    assert verdict.node_error
    assert "currently being updated" in verdict.error
    assert verdict.reasons[0].code == "PoolIncomplete"
    assert made.first_fit(["n1", "n2"], wanted)[0] == "n2"


def test_a_rule_without_selector_taints_nothing_and_an_empty_one_everything() -> None:
    made = engine(slice_([device("a")]), rule("nothing", None))
    assert made.allocate("n1", [claim(exactly())]).ok
    made.put_rule(rule("everything", {}))
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.remove_rule("everything")
    assert made.allocate("n1", [claim(exactly())]).ok


@pytest.mark.parametrize("more", [{"deviceClassName": "gpu"}, {"selectors": [{"cel": {"expression": "true"}}]}])
def test_a_rule_of_kubernetes_1_34_that_selects_by_class_or_expression_taints_nothing(more: dict[str, Any]) -> None:
    made = engine(slice_([device("a")]), rule("old", more), rule("old-too", {"device": "a", **more}))
    assert made.allocate("n1", [claim(exactly())]).ok


def test_a_formerly_shared_device_is_not_handed_out_whole() -> None:
    made = engine(slice_([device("a", allowMultipleAllocations=True)]))
    share = claim(exactly())
    take(made, share)
    made.put_slice(slice_([device("a")]))
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.release(share.uid)
    assert made.allocate("n1", [claim(exactly())]).ok


def test_a_selector_that_costs_too_much_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []

    def dear(program: Program, view: DeviceView) -> bool:
        evaluated.append(view)
        raise CostLimitExceeded("operation cancelled: actual cost limit exceeded", 0, program.expression)

    monkeypatch.setattr(Program, "matches", dear)
    expression = 'device.attributes["gpu.example.com"].n > 7'
    made = engine(slice_([device(f"d{i}", attributes={"n": i}) for i in range(100)]))
    verdict = made.allocate("n1", [claim(exactly(select=[expression]))])
    assert len(evaluated) == COSTLY_SHAPES
    assert not verdict.ok
    assert not verdict.node_error
    assert "cost limit exceeded" in verdict.error
    assert verdict.reasons[0].code == "SelectorError"
    assert verdict.reasons[0].data["expression"] == expression


def test_the_cost_limit_is_upstreams() -> None:
    ten = "[0,1,2,3,4,5,6,7,8,9]"
    expression = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, {ten}.all(e, {ten}.all(f, true))))))"
    verdict = engine(slice_([device("a")])).allocate("n1", [claim(exactly(select=[expression]))])
    assert "cost limit exceeded" in verdict.error


def test_more_configuration_than_an_allocation_can_hold_is_refused() -> None:
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": {"n": i}}} for i in range(32)]
    classes = [class_(name, config=config) for name in ("a", "b", "c")]
    made = engine(slice_([device("d1"), device("d2"), device("d3")]), *classes)
    fine = made.allocate("n1", [claim(exactly("x", cls="a"), exactly("y", cls="b"))])
    assert len(fine.results[0].devices.config) == 64
    verdict = made.allocate("n1", [claim(exactly("x", cls="a"), exactly("y", cls="b"), exactly("z", cls="c"))])
    assert not verdict.ok
    assert not verdict.node_error
    assert verdict.reasons[0].code == "InvalidRequest"
    assert "96 device configurations" in verdict.error


def test_gates_that_are_off_do_not_turn_off_anything_else() -> None:
    newer = ["ConsumableCapacity", "DeviceBindingConditions", "DerivedAttributes", "ListTypeAttributes"]
    newer += ["OptionalNodeOperations", "DeviceCompatibilityGroups"]
    made = engine(
        slice_([device("a", attributes={"numa": 0}), device("b", attributes={"numa": 0})], pool="p2", name="s2"),
        slice_([device("c", attributes={"numa": 1})], pool="p1", name="s1"),
        slice_([device("d", attributes={"numa": 2})], pool="p0", name="s0", skipNodeOperations=["*"]),
        gates=GATES.updated({f"DRA{name}": False for name in newer}),
    )
    distinct = [{"distinctAttribute": "gpu.example.com/numa"}]
    assert names(made.allocate("n1", [claim(exactly(count=2), constraints=distinct)])) == [["c", "a"]]
    assert not made.allocate("n1", [claim(exactly(count=3), constraints=distinct)]).ok
    shared = made.allocate("n1", [claim(exactly(capacity={"requests": {"memory": "1"}}))])
    assert "has capacity requests, but the DRAConsumableCapacity feature is disabled" in shared.error
