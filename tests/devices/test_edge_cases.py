"""Corners of the allocator that the recorded upstream answers do not reach, or reach only by accident."""

from __future__ import annotations

import pytest

from tests.devices.building import (
    GATES,
    claim,
    class_,
    counters,
    device,
    engine,
    exactly,
    first_of,
    names,
    node,
    slice_,
    take,
    takes,
)

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


def test_a_device_of_another_node_charges_the_counters_here() -> None:
    there = slice_([device("b", consumesCounters=takes("g", slots=3))], name="s2", count=3, nodeName="n2")
    here = slice_([device("a", consumesCounters=takes("g", slots=2))], name="s1", count=3)
    made = engine(here, there, counters(("g", {"slots": "4"}), count=3, allNodes=True), node("n2"))
    assert names(made.allocate("n1", [claim(exactly())])) == [["a"]]
    take(made, claim(exactly()), on="n2")
    assert not made.allocate("n1", [claim(exactly())]).ok


def test_network_attached_devices_are_taken_on_all_nodes_at_once() -> None:
    made = engine(slice_([device("net")], allNodes=True), node("n2"))
    verdict = take(made, claim(exactly()))
    assert verdict.results[0].node_selector is None
    assert made.first_fit(["n2", "n1"], [claim(exactly())])[0] == ""


def test_the_selector_of_network_devices_is_composed() -> None:
    region = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["r"]}]}]}
    made = engine(
        slice_([device("a")], pool="p1", name="s1", nodeSelector=region),
        slice_([device("b")], pool="p2", name="s2", nodeSelector=region),
        node("n3", region="r"),
    )
    verdict = made.allocate("n3", [claim(exactly(count=2))])
    assert verdict.results[0].node_selector is not None
    (term,) = verdict.results[0].node_selector.node_selector_terms
    assert [requirement.key for requirement in term.match_expressions] == ["region"]
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.put_node(node("n1", region="r"))
    assert made.allocate("n1", [claim(exactly())]).ok


def test_binds_to_node_pins_the_node() -> None:
    made = engine(slice_([device("a", bindsToNode=True)], allNodes=True))
    selector = made.allocate("n1", [claim(exactly())]).results[0].node_selector
    assert selector is not None
    assert selector.node_selector_terms[0].match_fields[0].values == ("n1",)


def test_a_pool_becomes_usable_with_its_last_slice_and_unusable_without_it() -> None:
    made = engine(slice_([device("a")], name="s1", count=2))
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.put_slice(slice_([device("b")], name="s2", count=2))
    assert names(made.allocate("n1", [claim(exactly(count=2))])) == [["a", "b"]]
    made.remove_slice("s2")
    assert not made.allocate("n1", [claim(exactly())]).ok


def test_a_newer_generation_replaces_the_pool() -> None:
    made = engine(slice_([device("old")], name="s1"))
    made.put_slice(slice_([device("new")], name="s2", generation=2))
    assert names(made.allocate("n1", [claim(exactly())])) == [["new"]]


def test_a_class_that_changes_is_noticed() -> None:
    made = engine(slice_([device("a")]), class_("gpu", "false"))
    assert not made.allocate("n1", [claim(exactly())]).ok
    made.put_class(class_("gpu", "true"))
    assert made.allocate("n1", [claim(exactly())]).ok
    made.remove_class("gpu")
    verdict = made.allocate("n1", [claim(exactly())])
    assert verdict.error
    assert not verdict.node_error
    assert verdict.reasons[0].code == "ClassMissing"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"operator": "Equal", "value": "v"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Future"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], tolerated: bool) -> None:
    made = engine(slice_([device("a", taints=[TAINT])]))
    verdict = made.allocate("n1", [claim(exactly(tolerations=[toleration]))])
    assert verdict.ok == tolerated


@pytest.mark.parametrize("effect", ["None", "FutureEffect"])
def test_taints_of_no_or_unknown_effect_are_ignored(effect: str) -> None:
    assert engine(slice_([device("a", taints=[{"key": "k", "effect": effect}])])).allocate("n1", [claim(exactly())]).ok


def test_every_taint_must_be_tolerated() -> None:
    made = engine(slice_([device("a", taints=[TAINT, {"key": "other", "effect": "NoExecute"}])]))
    assert not made.allocate("n1", [claim(exactly(tolerations=[{"key": "k", "operator": "Exists"}]))]).ok


def test_admin_access_sees_devices_in_use_and_takes_nothing() -> None:
    made = engine(slice_([device("a"), device("b")]))
    take(made, claim(exactly()))
    take(made, claim(exactly(adminAccess=True, allocationMode="All")))
    assert names(made.allocate("n1", [claim(exactly())])) == [["b"]]
    assert names(made.allocate("n1", [claim(exactly(adminAccess=True)), claim(exactly(adminAccess=True))])) == [["a"], ["a"]]
    assert names(made.allocate("n1", [claim(exactly("x", adminAccess=True), exactly("y", adminAccess=True))])) == [["a", "b"]]


def test_admin_access_first_keeps_a_normal_request_of_the_pod_off_the_device() -> None:
    made = engine(slice_([device("a"), device("b")]))
    claims = [claim(exactly(adminAccess=True)), claim(exactly())]
    assert names(made.allocate("n1", claims)) == [["a"], ["b"]]
    assert names(made.allocate("n1", claims[::-1])) == [["a"], ["a"]]


def test_the_chosen_alternative_is_scored_by_its_place_in_the_list() -> None:
    made = engine(slice_([device("a")]))
    wanted = [claim(first_of("r", {"count": 2}, {"count": 1}))]
    verdict = made.allocate("n1", wanted)
    assert verdict.results[0].devices.results[0].request == "r/sub1"
    assert verdict.score == 7


def test_an_all_request_keeps_its_devices_from_earlier_requests() -> None:
    kind = 'device.attributes["gpu.example.com"].kind == "x"'
    devices = [device("a", attributes={"kind": "x"}), device("b", attributes={"kind": "y"})]
    made = engine(slice_(devices), class_("x", kind))
    verdict = made.allocate("n1", [claim(exactly("any"), exactly("all", cls="x", allocationMode="All"))])
    assert names(verdict) == [["b", "a"]]


def test_a_resting_device_is_not_given_and_its_counters_are_free() -> None:
    parts = [device("a", consumesCounters=takes("g", slots=4)), device("b", consumesCounters=takes("g", slots=4))]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "4"})))
    key = made.inventory.view("n1").key(0)  # type: ignore[union-attr]
    made.rest(key)
    assert names(made.allocate("n1", [claim(exactly())])) == [["b"]]
    made.wake(key)
    assert names(made.allocate("n1", [claim(exactly())])) == [["a"]]


def test_skipped_node_operations_need_a_node_that_declares_them() -> None:
    skipping = slice_([device("a")], allNodes=True, skipNodeOperations=["*"])
    made = engine(skipping, node("n2", features=("DRAOptionalNodeOperations",)))
    assert made.first_fit(["n1", "n2"], [claim(exactly())])[0] == "n2"
    result = made.allocate("n2", [claim(exactly())]).results[0].devices.results[0]
    assert result.skip_node_operations == ("*",)


def test_binding_conditions_with_the_gate_off_make_a_device_unusable() -> None:
    gates = GATES.updated({"DRADeviceBindingConditions": False})
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    assert not engine(slice_([device("a", **conditions)]), gates=gates).allocate("n1", [claim(exactly())]).ok


def test_nodes_with_the_same_hardware_share_everything_but_names() -> None:
    made = engine()
    for number in range(3):
        made.put_node(node(f"m{number}"))
        made.put_slice(slice_([device("a"), device("b")], name=f"s{number}", pool=f"m{number}", nodeName=f"m{number}"))
    views = [made.inventory.view(f"m{number}") for number in range(3)]
    assert len({id(view.layout) for view in views if view is not None}) == 1
    taken = take(made, claim(exactly()), on="m1")
    assert taken.results[0].devices.results[0].pool == "m1"
    assert names(made.allocate("m0", [claim(exactly())])) == [["a"]]
    assert names(made.allocate("m1", [claim(exactly())])) == [["b"]]
    assert made.allocate("m2", [claim(exactly(count=2))]).ok
    assert not made.allocate("m1", [claim(exactly(count=2))]).ok


def test_a_broken_quantity_makes_its_pool_invalid_and_no_other() -> None:
    broken = slice_([device("a", consumesCounters=takes("g", slots="much"))], name="s1", pool="p1", count=2)
    made = engine(broken, counters(("g", {"slots": "4"})), slice_([device("b")], name="s2", pool="p2"))
    assert names(made.allocate("n1", [claim(exactly())])) == [["b"]]
    verdict = made.allocate("n1", [claim(exactly(count=2))])
    assert verdict.node_error
    assert verdict.reasons[0].code == "PoolInvalid"


def test_rotating_first_fit_goes_around_once() -> None:
    made = engine()
    for name in ("m0", "m1", "m2"):
        made.put_node(node(name))
        made.put_slice(slice_([device("a")], name=name, pool=name, nodeName=name))
    order = ["m0", "m1", "m2"]
    assert made.first_fit(order, [claim(exactly())], 2)[0] == "m2"
    take(made, claim(exactly()), on="m2")
    assert made.first_fit(order, [claim(exactly())], 2)[0] == "m0"


def test_a_device_with_a_node_selector_of_several_terms_is_an_error_and_not_a_crash() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
    chosen = device("a", nodeSelector={"nodeSelectorTerms": [term, term]})
    made = engine(slice_([chosen], perDeviceNodeSelection=True))
    verdict = made.allocate("n1", [claim(exactly())])
    assert not verdict.ok
    assert "2 terms" in verdict.error


def test_many_nodes_with_an_invalid_pool_share_one_search() -> None:
    made = engine()
    for number in range(5):
        name = f"m{number}"
        made.put_node(node(name))
        made.put_slice(slice_([device("a"), device("a")], name=f"bad-{name}", pool=f"bad-{name}", nodeName=name))
    verdicts = [made.allocate(f"m{number}", [claim(exactly())]) for number in range(5)]
    assert {verdict.error for verdict in verdicts} == {"invalid resource pools were encountered"}
    assert [verdict.reasons[0].data["pool"] for verdict in verdicts] == [f"bad-m{number}" for number in range(5)]
    assert len({made.inventory.state(view) for view in made.inventory.views.values()}) == 1


DERIVED = [{"name": "example.com/half", "expression": "device.attributes['gpu.example.com'].index / 2"}]


@pytest.mark.parametrize("broken_first", [True, False])
def test_an_error_in_one_constraint_comes_before_an_attribute_that_a_later_one_misses(broken_first: bool) -> None:
    made = engine(slice_([device("without-both"), device("fine", attributes={"index": 1, "slot": 1})]))
    constraints = [{"matchAttribute": "example.com/half"}, {"matchAttribute": "gpu.example.com/slot"}]
    wanted = claim(exactly(derivedAttributes=DERIVED), constraints=constraints if broken_first else constraints[::-1])
    verdict = made.allocate("n1", [wanted])
    assert ("evaluate derived attribute example.com/half" in verdict.error) == broken_first
    assert verdict.ok != broken_first


@pytest.mark.parametrize(("broken_pool", "told"), [("p1", "is currently being updated"), ("p3", "CEL runtime error")])
def test_all_mode_tells_of_pools_and_devices_that_cannot_be_read_in_order_of_pools(broken_pool: str, told: str) -> None:
    made = engine(slice_([device("a")], name="s1", pool="p2"), slice_([device("b")], name="s2", pool=broken_pool, count=2))
    verdict = made.allocate("n1", [claim(exactly(allocationMode="All", select=["device.attributes['x'].y == 1"]))])
    assert told in verdict.error


def test_without_partitionable_devices_all_mode_still_wants_the_partitions_with_groups() -> None:
    parts = [device("part", consumesCounters=takes("g", ("mig",), slots=1)), device("whole")]
    slices = slice_(parts, name="s", count=2), counters(("g", {"slots": "4"}))
    made = engine(*slices, gates=GATES.updated({"DRAPartitionableDevices": False}))
    assert names(made.allocate("n1", [claim(exactly())])) == [["whole"]]
    assert not made.allocate("n1", [claim(exactly(allocationMode="All"))]).ok


def test_admin_access_to_a_device_that_was_shared_and_is_full_waits_for_its_shares() -> None:
    capacity = {"memory": {"value": "8", "requestPolicy": {"default": "8"}}}
    made = engine(slice_([device("a", allowMultipleAllocations=True, capacity=capacity)]))
    holder = claim(exactly())
    take(made, holder)
    made.put_slice(slice_([device("a", capacity=capacity)]))
    assert not made.allocate("n1", [claim(exactly(adminAccess=True))]).ok
    made.release(holder.uid)
    assert made.allocate("n1", [claim(exactly(adminAccess=True))]).ok


def test_a_device_of_two_counter_sets_must_go_with_the_others_on_each() -> None:
    both = [*takes("g", ("mig",), slots=1), *takes("h", ("x",), slots=1)]
    parts = [
        device("both", consumesCounters=both),
        device("g-other", consumesCounters=takes("g", ("vgpu",), slots=1)),
        device("h-none", consumesCounters=takes("h", slots=1)),
        device("half", consumesCounters=[*takes("g", ("mig",), slots=1), *takes("h", ("y",), slots=1)]),
        device("g-same", consumesCounters=takes("g", ("mig",), slots=1)),
        device("h-same", consumesCounters=takes("h", ("x", "y"), slots=1)),
    ]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "9"}), ("h", {"slots": "9"})))
    assert [r.compatibility_groups for r in take(made, claim(exactly())).results[0].devices.results] == [
        {"g": ("mig",), "h": ("x",)}
    ]
    assert names(made.allocate("n1", [claim(exactly(count=2))])) == [["g-same", "h-same"]]
    assert not made.allocate("n1", [claim(exactly(count=3))]).ok


def test_a_device_with_groups_on_one_of_its_counter_sets_has_none_on_the_other() -> None:
    one = device("one", consumesCounters=[*takes("g", ("mig",), slots=1), *takes("h", slots=1)])
    parts = [
        one,
        device("h-x", consumesCounters=takes("h", ("x",), slots=1)),
        device("h-none", consumesCounters=takes("h", slots=1)),
    ]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "9"}), ("h", {"slots": "9"})))
    assert [r.compatibility_groups for r in take(made, claim(exactly())).results[0].devices.results] == [{"g": ("mig",), "h": ()}]
    assert names(made.allocate("n1", [claim(exactly())])) == [["h-none"]]


def test_a_derived_list_of_a_stored_claim_is_read_with_the_gate_of_list_attributes_off() -> None:
    derived = [{"name": "example.com/words", "expression": 'device.driver.split(".")'}]
    match = [{"matchAttribute": "example.com/words"}]
    made = engine(slice_([device("a"), device("b")]), gates=GATES.updated({"DRAListTypeAttributes": False}))
    assert names(made.allocate("n1", [claim(exactly(derivedAttributes=derived), constraints=match)])) == [["a"]]
    two = made.allocate("n1", [claim(exactly(count=2, derivedAttributes=derived), constraints=match)])
    assert not two.ok  # without the gate two lists never match
    assert not two.error


@pytest.mark.parametrize(
    ("amount", "why"),
    [("1e30", "request 1e30 is not a representable milli value"), ("1n", "request 1n is not a representable milli value")],
)
def test_a_capacity_request_that_cannot_be_computed_is_told_in_upstreams_words(amount: str, why: str) -> None:
    policy = {"default": "250m", "validRange": {"min": "0", "step": "250m"}}
    shared = device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "8", "requestPolicy": policy}})
    verdict = engine(slice_([shared])).allocate("n1", [claim(exactly(capacity={"requests": {"memory": amount}}))])
    assert verdict.error == (
        "claim default/c, request r: checking capacity for device gpu.example.com/p1/a: "
        f'capacity "memory": capacity request cannot be represented in the device\'s range arithmetic: {why}'
    )


def test_a_negative_amount_is_told_in_upstreams_words() -> None:
    shared = device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "-8"}})
    verdict = engine(slice_([shared])).allocate("n1", [claim(exactly())])
    assert 'checking capacity for device gpu.example.com/p1/a: capacity "memory": capacity value is negative' in verdict.error
