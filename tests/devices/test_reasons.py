"""Why claims do not fit: per node, per request, per device, and what would help."""

from __future__ import annotations

from typing import Any

from dray.api.meta import decode
from dray.api.resource import DeviceTaintRule
from dray.api.words import as_json, words
from tests.devices.building import GATES, claim, class_, counters, device, engine, exactly, node, slice_, take, takes

TAINT = {"key": "maintenance", "effect": "NoSchedule"}
CARD = counters(("g", {"slots": "4"}))
GROUPS_OFF = GATES.updated({"DRADeviceCompatibilityGroups": False})
CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}


def by_device(made: Any, *claims: Any, on: str = "n1") -> dict[str, str]:
    found = made.explain(on, list(claims))
    return {each.device.rsplit("/", 1)[1]: each.reason.code if each.reason else "" for each in found.requests[0].devices}


def test_the_summary_counts_what_matches_what_is_free_and_why_the_rest_is_not() -> None:
    made = engine(slice_([device("a"), device("b", taints=[TAINT]), device("c")]))
    take(made, claim(exactly(), name="train-0"))
    found = made.explain("n1", [claim(exactly(count=2))])
    (reason,) = found.reasons
    assert reason.code == "NotEnoughDevices"
    assert reason.object == "node/n1"
    assert reason.data["needed"] == 2
    assert reason.data["free"] == 1
    assert reason.data["total"] == 3
    assert reason.data["missing"] == 1
    assert reason.data["refused"] == {"DeviceTaken": 1, "DeviceTainted": 1}
    assert reason.data["holders"] == ["default/train-0"]
    assert "needs 2" in as_json(reason)["message"]


def test_each_device_has_its_first_failing_check() -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8", "requestPolicy": {"default": "8"}}}}
    parts = [
        device("taken"),
        device("tainted", taints=[TAINT]),
        device("full", **shared),
        device("counters", consumesCounters=takes("g", slots=9)),
        device("other", attributes={"model": "old"}),
    ]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "4"})))
    take(made, claim(exactly()))
    take(made, claim(exactly(select=["device.allowMultipleAllocations"])))
    wanted = claim(exactly(count=9, select=['!has(device.attributes["gpu.example.com"].model)']))
    assert by_device(made, wanted) == {
        "taken": "DeviceTaken",
        "tainted": "DeviceTainted",
        "full": "CapacityExhausted",
        "counters": "CountersExhausted",
        "other": "DeviceNotSelected",
    }


def test_numbers_are_told() -> None:
    made = engine(slice_([device("p", consumesCounters=takes("g", slots=9))], name="s", count=2), counters(("g", {"slots": "4"})))
    finding = made.explain("n1", [claim(exactly())]).requests[0].devices[0]
    assert finding.reason is not None
    assert finding.reason.data == {"counterSet": "g", "counter": "slots", "needed": "9", "free": "4", "missing": "5"}


def test_the_rule_that_taints_a_device_is_named_and_a_driver_is_not() -> None:
    spec = {"deviceSelector": {"device": "a"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    rule = decode(DeviceTaintRule, {"metadata": {"name": "maintenance"}, "spec": spec})
    own = device("b", taints=[{"key": "k", "effect": "NoExecute"}])
    devices = engine(slice_([device("a"), own]), rule).explain("n1", [claim(exactly())]).requests[0].devices
    told = [words(finding.reason) for finding in devices if finding.reason is not None]
    assert [text.partition("taint ")[2] for text in told] == ["{k:NoSchedule} by rule maintenance", "{k:NoExecute}"]


def test_incompatible_groups_are_named() -> None:
    parts = [device(way, consumesCounters=takes("g", (way,), slots=1)) for way in ("mig", "vgpu")]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "4"})))
    take(made, claim(exactly()))
    finding = made.explain("n1", [claim(exactly())]).requests[0].devices[1]
    assert finding.reason is not None
    assert finding.reason.code == "GroupIncompatible"
    assert finding.reason.data == {"counterSet": "g", "groups": "vgpu", "used": "mig"}


def test_where_devices_in_use_do_not_go_together_that_is_said() -> None:
    parts = {way: device(way, consumesCounters=takes("g", (way,), slots=1)) for way in ("mig", "vgpu", "mps")}
    made = engine(slice_([*parts.values(), device("plain", consumesCounters=takes("g", slots=1))], name="s", count=2), CARD)
    for way in ("mig", "vgpu"):
        holder = claim(exactly())
        (allocation,) = engine(slice_([parts[way]], name="s", count=2), CARD).allocate("n1", [holder]).results
        made.hold(holder, allocation)
    found = {each.device.rsplit("/", 1)[1]: each.reason for each in made.explain("n1", [claim(exactly())]).requests[0].devices}
    told = {name: reason.data for name, reason in found.items() if reason is not None and reason.code == "GroupIncompatible"}
    shared = {"counterSet": "g", "used": "devices that share no group"}
    assert told == {"mps": {**shared, "groups": "mps"}, "plain": {**shared, "groups": "no group"}}


def test_requests_whose_devices_never_go_together_are_told_the_counter_set() -> None:
    def part(name: str, counter_set: str, *groups: str) -> Any:
        return device(name, attributes={"kind": name[:-1]}, consumesCounters=takes(counter_set, groups, slots=1))

    def of(kind: str, count: int = 1) -> Any:
        return exactly(kind, count=count, select=[f'device.attributes["gpu.example.com"].kind == "{kind}"'])

    def told(parts: list[Any], *claims: Any) -> str:
        cards = counters(("card", {"slots": "4"}), ("next", {"slots": "4"}))
        (reason,) = engine(slice_(parts, name="s", count=2), cards).explain("n1", list(claims)).reasons
        assert reason.code == "NoCombination"
        return words(reason)

    parts = [part("mig0", "card", "mig"), part("mig1", "card", "mig"), part("vgpu0", "card", "vgpu"), part("plain0", "card")]
    apart = "but no 2 of them share a compatibility group on counter set card"
    assert f"{apart} (mig and vgpu)" in told(parts, claim(of("mig"), of("vgpu")))
    assert f"{apart} (vgpu and no group)" in told(parts, claim(of("vgpu")), claim(of("plain")))
    assert f"{apart} (a and b)" in told([part("x0", "card", "a"), part("x1", "card", "b")], claim(of("x", 2)))
    # Where some pair would go together, something else is to blame.
    parts = [part("mig0", "card", "mig"), part("mig1", "next", "mig"), part("vgpu0", "card", "vgpu"), part("plain0", "next")]
    assert "no combination" in told(parts, claim(of("mig"), of("vgpu"), of("plain")))


def test_a_device_with_groups_that_is_another_nodes_is_not_of_a_feature_that_is_off() -> None:
    parts = [device(f"on-{name}", nodeName=name, consumesCounters=takes("g", ("mig",), slots=1)) for name in ("n1", "n2")]
    published = (
        slice_(parts, name="s", count=2, perDeviceNodeSelection=True),
        counters(("g", {"slots": "4"}), allNodes=True),
        node("n2"),
    )
    made = engine(*published)
    take(made, claim(exactly()))
    assert by_device(made, claim(exactly())) == {"on-n1": "DeviceTaken", "on-n2": "DeviceOtherNode"}
    made = engine(*published, gates=GROUPS_OFF)
    assert by_device(made, claim(exactly())) == {"on-n1": "FeatureOff", "on-n2": "DeviceOtherNode"}
    assert by_device(made, claim(exactly()), on="n2") == {"on-n1": "DeviceOtherNode", "on-n2": "FeatureOff"}


def test_only_what_is_asked_for_counts_as_of_a_feature_that_is_off_and_the_feature_is_named() -> None:
    parts = [device(way, attributes={"way": way}, consumesCounters=takes("g", (way,), slots=1)) for way in ("mig", "vgpu")]
    wanted = claim(exactly(select=['device.attributes["gpu.example.com"].way == "mig"']))
    made = engine(slice_(parts, name="s", count=2), CARD, gates=GROUPS_OFF)
    (reason,) = made.explain("n1", [wanted]).reasons
    assert (reason.data["total"], reason.data["refused"]) == (1, {"FeatureOff": 1})
    assert "1 of a feature that is off; off: DRADeviceCompatibilityGroups)" in words(reason)

    fabric = [device(way, attributes={"way": way}, **CONDITIONS) for way in ("mig", "vgpu")]
    made = engine(slice_(fabric), gates=GATES.updated({"DRADeviceBindingConditions": False}))
    (reason,) = made.explain("n1", [wanted]).reasons
    assert (reason.data["total"], reason.data["refused"]) == (1, {"BindingConditionsOff": 1})
    assert "1 with binding conditions, which are off; off: DRADeviceBindingConditions)" in words(reason)
    made = engine(slice_(fabric), gates=GATES.updated({"DRAResourceClaimDeviceStatus": False}))
    (reason,) = made.explain("n1", [wanted]).reasons
    assert reason.data["features"] == ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"]


def test_nothing_that_matches_is_another_reason_than_too_little() -> None:
    made = engine(slice_([device("a")]), class_("none", "false"))
    assert made.explain("n1", [claim(exactly(cls="none"))]).reasons[0].code == "NoDevices"


def test_all_busy() -> None:
    made = engine(slice_([device("a"), device("b")]))
    take(made, claim(exactly()))
    (reason,) = made.explain("n1", [claim(exactly(allocationMode="All"))]).reasons
    assert reason.code == "AllDevicesBusy"
    assert (reason.data["free"], reason.data["total"]) == (1, 2)


def test_enough_of_everything_but_no_combination() -> None:
    devices = [device("a", attributes={"root": "x"}), device("b", attributes={"root": "y"})]
    made = engine(slice_(devices))
    wanted = claim(exactly(count=2), constraints=[{"matchAttribute": "gpu.example.com/root"}])
    (reason,) = made.explain("n1", [wanted]).reasons
    assert reason.code == "NoCombination"


def test_a_missing_attribute_is_named() -> None:
    made = engine(slice_([device("a")]))
    wanted = claim(exactly(), constraints=[{"matchAttribute": "gpu.example.com/root"}])
    assert by_device(made, wanted) == {"a": "AttributeMissing"}


def test_the_summary_says_that_devices_lack_the_attribute_of_a_constraint() -> None:
    made = engine(slice_([device("a"), device("b", attributes={"root": "x"})]))
    wanted = claim(exactly(count=2), constraints=[{"matchAttribute": "gpu.example.com/root"}])
    (reason,) = made.explain("n1", [wanted]).reasons
    assert "needs 2, 1 free of 2; 1 without the attribute of a constraint" in as_json(reason)["message"]


def test_the_smallest_changes_were_tried_and_would_do() -> None:
    made = engine(slice_([device("a"), device("b", taints=[TAINT])]))
    take(made, claim(exactly(), name="train-0"))
    before = made.ledger.snapshot()
    changes = made.explain("n1", [claim(exactly())]).changes
    assert [(change.kind, change.data or change.claim) for change in changes] == [
        ("tolerate", {"key": "maintenance", "value": "", "effect": "NoSchedule"}),
        ("release", "default/train-0"),
    ]
    assert made.ledger.snapshot() == before
    fewer = made.explain("n1", [claim(exactly(count=3))]).changes
    assert fewer == ()
    made = engine(slice_([device("a")]))
    assert [(change.kind, change.data) for change in made.explain("n1", [claim(exactly(count=2))]).changes] == [
        ("fewer", {"count": 1})
    ]


def test_the_most_devices_that_would_fit_are_told() -> None:
    devices = [device(f"d{i}", attributes={"root": f"r{i // 3}"}) for i in range(6)]
    match = [{"matchAttribute": "gpu.example.com/root"}]
    changes = engine(slice_(devices)).explain("n1", [claim(exactly(count=8), constraints=match)]).changes
    assert [(change.kind, change.data) for change in changes] == [("fewer", {"count": 3})]


def test_a_claim_that_holds_the_counters_can_be_let_go_of() -> None:
    parts = [
        device("whole", attributes={"whole": True}, consumesCounters=takes("g", slots=4)),
        device("part", consumesCounters=takes("g", slots=1)),
    ]
    made = engine(slice_(parts, name="s", count=2), counters(("g", {"slots": "4"})))
    take(made, claim(exactly(), name="train-0"))
    small = exactly(select=["!('whole' in device.attributes['gpu.example.com'])"])
    assert [(c.kind, c.claim) for c in made.explain("n1", [claim(small)]).changes] == [("release", "default/train-0")]


def test_the_nearest_miss_is_the_request_that_lacks_least() -> None:
    made = engine(slice_([device("a")]))
    found = made.explain("n1", [claim(exactly("much", count=5), exactly("less", count=2))])
    assert found.nearest is not None
    assert found.requests[found.nearest].request == "less"


def test_an_incomplete_pool_is_mentioned_with_its_numbers() -> None:
    made = engine(slice_([device("a")], count=3))
    reasons = made.explain("n1", [claim(exactly())]).reasons
    assert [reason.code for reason in reasons] == ["NoDevices", "PoolIncomplete"]
    assert reasons[1].data == {"driver": "gpu.example.com", "pool": "p1", "published": 1, "expected": 3}


def test_a_failing_selector_names_device_expression_and_owner() -> None:
    expression = 'device.attributes["gpu.example.com"].missing == "x"'
    made = engine(slice_([device("a")]), class_("broken", expression))
    verdict = made.allocate("n1", [claim(exactly(cls="broken"))])
    assert verdict.error.startswith(
        "class broken: selector #0 on device gpu.example.com/p1/a: CEL runtime error: no such key: missing"
    )
    (reason,) = verdict.reasons
    assert reason.code == "SelectorError"
    assert reason.data["device"] == "gpu.example.com/p1/a"
    assert reason.data["expression"] == expression
    assert reason.data["source"] == "class broken"


def test_a_resting_device_says_so() -> None:
    made = engine(slice_([device("a")]))
    view = made.inventory.view("n1")
    assert view is not None
    made.rest(view.key(0))
    assert by_device(made, claim(exactly())) == {"a": "DeviceCoolingDown"}


def test_every_reason_can_be_put_into_words() -> None:
    made = engine(slice_([device("a", **CONDITIONS)]), node("n2"))
    for claims in ([claim(exactly(count=2))], [claim(exactly(cls="none"))], [claim(exactly(count=40))]):
        for reason in made.explain("n1", claims).reasons:
            assert as_json(reason)["message"]
