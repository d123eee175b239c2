"""Bugs that the upstream allocator had or has, by their number in kubernetes/kubernetes: Dray must not have them."""

from __future__ import annotations

from dray.api.gates import Gates
from dray.api.meta import decode
from dray.api.resource import DeviceTaintRule
from tests.devices.building import claim, class_, counters, device, engine, exactly, names, slice_, take, takes

POLICY = {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}}


def shared(name: str, value: str = "8", **fields: object) -> dict[str, object]:
    capacity = {"memory": {"value": value, "requestPolicy": POLICY}}
    return device(name, allowMultipleAllocations=True, capacity=capacity, **fields)


def test_136269_a_device_is_never_given_to_two_claims() -> None:
    made = engine(slice_([device("a"), device("b")]))
    first, second = claim(exactly()), claim(exactly())
    held = take(made, first)
    assert names(held) == [["a"]]
    assert names(take(made, second)) == [["b"]]
    assert not made.allocate("n1", [claim(exactly())]).ok
    # The API shows the first claim, not yet allocated, then allocated: the hold stays, and is replaced, not doubled.
    shown = claim(exactly())
    shown.metadata.uid = first.uid
    made.put_claim(shown)
    assert not made.allocate("n1", [claim(exactly())]).ok
    shown.status.allocation = held.results[0]
    made.put_claim(shown)
    shown.status.allocation = None
    made.put_claim(shown)
    assert names(made.allocate("n1", [claim(exactly())])) == [["a"]]


def test_139034_counters_are_charged_for_devices_with_consumable_capacity() -> None:
    """Shared partitions draw from counters as any other device."""
    parts = [shared("p1", consumesCounters=takes("gpu", slices=4)), shared("p2", consumesCounters=takes("gpu", slices=4))]
    made = engine(slice_(parts, name="s", count=2), counters(("gpu", {"slices": "7"})))
    take(made, claim(exactly(select=["device.allowMultipleAllocations"])))
    wanted = claim(exactly("a", capacity={"requests": {"memory": "8"}}))
    assert not made.allocate("n1", [wanted]).ok


def test_140433_a_second_share_does_not_charge_the_counters_again() -> None:
    made = engine(
        slice_([shared("p1", consumesCounters=takes("gpu", slices=7))], name="s", count=2), counters(("gpu", {"slices": "7"}))
    )
    take(made, claim(exactly()))
    assert names(take(made, claim(exactly()))) == [["p1"]]
    both = made.allocate("n1", [claim(exactly("a"), exactly("b"))])
    assert names(both) == [["p1", "p1"]]


def test_140431_counters_are_given_back_when_a_device_is_refused_later() -> None:
    """The tainted and the mismatching partition leave nothing behind for the next candidate."""
    parts = [
        device("tainted", consumesCounters=takes("gpu", slices=7), taints=[{"key": "k", "effect": "NoSchedule"}]),
        device("a", consumesCounters=takes("gpu", slices=7)),
    ]
    made = engine(slice_(parts, name="s", count=2), counters(("gpu", {"slices": "7"})))
    assert names(made.allocate("n1", [claim(exactly())])) == [["a"]]


def test_140325_constraints_are_restored_when_a_list_attribute_is_taken_back() -> None:
    lists = {"d1": ["v1", "v2"], "d2": ["v1"], "d3": ["v2"], "d4": ["v2"]}
    devices = [device(name, attributes={"zones": {"strings": values}}) for name, values in lists.items()]
    made = engine(slice_(devices))
    wanted = claim(exactly(count=3), constraints=[{"matchAttribute": "gpu.example.com/zones"}])
    assert names(made.allocate("n1", [wanted])) == [["d1", "d3", "d4"]]


def test_140435_pools_of_one_name_of_two_drivers_are_two_pools() -> None:
    one = [
        slice_([device("p", consumesCounters=takes("gpu", slices=7))], name="a1", driver="a.example.com", count=2),
        counters(("gpu", {"slices": "7"}), name="a2", driver="a.example.com"),
    ]
    other = [
        slice_([device("p", consumesCounters=takes("gpu", slices=7))], name="b1", driver="b.example.com", count=2),
        counters(("gpu", {"slices": "7"}), name="b2", driver="b.example.com"),
    ]
    made = engine(*one, *other)
    verdict = take(made, claim(exactly(count=2)))
    assert [result.driver for result in verdict.results[0].devices.results] == ["a.example.com", "b.example.com"]
    assert not made.allocate("n1", [claim(exactly())]).ok


def test_140769_all_is_all_or_nothing() -> None:
    made = engine(slice_([device("a"), device("b")]))
    take(made, claim(exactly()))
    assert not made.allocate("n1", [claim(exactly(allocationMode="All"))]).ok


def test_138885_a_claim_without_requests_is_allocated_nothing() -> None:
    verdict = engine().allocate("n1", [claim()])
    assert verdict.ok
    assert verdict.results[0].devices.results == ()
    assert verdict.results[0].node_selector is None


def test_133705_capacity_of_shares_in_use_is_counted_in_the_next_allocation() -> None:
    made = engine(slice_([shared("a", "4")]))
    take(made, claim(exactly()))
    take(made, claim(exactly()))
    assert not made.allocate("n1", [claim(exactly())]).ok


def test_134103_a_share_that_is_released_gives_its_capacity_back_once() -> None:
    made = engine(slice_([shared("a", "4")]))
    first, second = claim(exactly()), claim(exactly())
    take(made, first)
    take(made, second)
    made.release(first.uid)
    made.release(first.uid)
    assert made.allocate("n1", [claim(exactly())]).ok
    assert not made.allocate("n1", [claim(exactly(capacity={"requests": {"memory": "4"}}))]).ok


def test_140518_a_device_that_leaves_and_comes_back_is_still_in_use() -> None:
    published = slice_([device("a")])
    made = engine(published)
    take(made, claim(exactly()))
    made.remove_slice("s1")
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.put_slice(published)
    assert not made.allocate("n1", [claim(exactly())]).ok


def test_140702_a_rejected_capacity_takes_its_constraint_back() -> None:
    devices = [shared("small", "2", attributes={"root": "x"}), shared("large", "8", attributes={"root": "y"})]
    made = engine(slice_(devices))
    wanted = claim(
        exactly("a", capacity={"requests": {"memory": "4"}}),
        exactly("b", capacity={"requests": {"memory": "4"}}),
        constraints=[{"matchAttribute": "gpu.example.com/root"}],
    )
    assert names(made.allocate("n1", [wanted])) == [["large", "large"]]


def test_130593_and_131730_one_more_than_there_are_is_refused_at_once() -> None:
    made = engine(slice_([device(f"d{i}") for i in range(24)]))
    verdict = made.allocate("n1", [claim(exactly(count=25))])
    assert not verdict.ok
    assert verdict.steps == 0


def test_133678_combinations_not_permutations_are_tried() -> None:
    devices = [device(f"d{i}", consumesCounters=takes("g", units=3)) for i in range(8)]
    made = engine(slice_(devices, name="s", count=2), counters(("g", {"units": "11"})))
    verdict = made.allocate("n1", [claim(exactly(count=4))])
    assert not verdict.ok
    assert verdict.steps < 100


def test_139651_a_taint_rule_for_a_device_that_does_not_exist_is_harmless() -> None:
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "gone"}, "taint": {"key": "k", "effect": "NoExecute"}},
    }
    made = engine(decode(DeviceTaintRule, rule), slice_([device("a")]))
    assert made.allocate("n1", [claim(exactly())]).ok
    made.remove_rule("r")
    made.remove_rule("r")
    assert made.allocate("n1", [claim(exactly())]).ok


def test_140029_a_derived_attribute_shadows_the_published_one_for_its_request_only() -> None:
    devices = [device("a", attributes={"root": "x"}), device("b", attributes={"root": "y"})]
    made = engine(slice_(devices), class_("plain"))
    derived = [{"name": "gpu.example.com/root", "expression": '"same"'}]
    match = [{"matchAttribute": "gpu.example.com/root"}]
    assert names(made.allocate("n1", [claim(exactly(count=2, derivedAttributes=derived), constraints=match)])) == [["a", "b"]]
    assert not made.allocate("n1", [claim(exactly(count=2), constraints=match)]).ok


def test_139016_claims_of_one_pod_are_all_allocated_or_none() -> None:
    made = engine(slice_([device("a")]), gates=Gates.upstream())
    verdict = made.allocate("n1", [claim(exactly()), claim(exactly())])
    assert not verdict.ok
    assert verdict.results == ()
