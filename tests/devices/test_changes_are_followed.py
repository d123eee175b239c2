"""An engine that was told about changes one by one answers like one that was told only how things are now."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.meta import decode
from dray.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.times import format_time
from dray.devices import Devices, inventory
from tests.devices.building import claim, counters, device, engine, exactly, node, slice_, takes

NODES = ("n1", "n2", "n3")
ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def some_slice(pick: random.Random) -> ResourceSlice:
    number = pick.randint(0, 5)
    pool = pick.choice(["p1", "p2"])
    where: dict[str, Any] = pick.choice([{"nodeName": pick.choice(NODES)}, {"allNodes": True}, {"nodeSelector": ZONE}])
    options = {"name": f"s{number}", "pool": pool, "count": pick.randint(1, 3), "generation": pick.randint(1, 2), **where}
    if pick.random() < 0.2:
        options.pop("name")
        return counters(
            ("g", {"slots": str(pick.randint(1, 4))}),
            name=f"s{number}",
            **{k: v for k, v in options.items() if k != "generation"},
        )
    consumes = [{}, {}, {"consumesCounters": takes("g", slots=pick.randint(1, 3))}]
    devices = [device(f"d{number}-{i}", attributes={"root": f"r{pick.randint(0, 1)}"}, **pick.choice(consumes)) for i in range(2)]
    return slice_(devices, **options)


def some_rule(pick: random.Random, now: float) -> DeviceTaintRule:
    selector = pick.choice([{}, {"pool": "p1"}, {"device": f"d{pick.randint(0, 5)}-0"}])
    evicting = {"key": "k", "effect": "NoExecute", "timeAdded": format_time(now - pick.randint(0, 60))}
    spec = {"deviceSelector": selector, "taint": pick.choice([{"key": "k", "effect": "NoSchedule"}, evicting])}
    return decode(DeviceTaintRule, {"metadata": {"name": f"rule{pick.randint(0, 1)}"}, "spec": spec})


class Told:
    """What is true now, beside the engine that was told step by step."""

    def __init__(self) -> None:
        self.engine = engine(*(node(name) for name in NODES))
        self.slices: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.labels: dict[str, dict[str, str]] = {name: {} for name in NODES}
        self.claims: dict[str, ResourceClaim] = {}
        self.now = 1000.0
        self.engine.advance(self.now)

    def fresh(self) -> Devices:
        made = engine(*(node(name, **labels) for name, labels in self.labels.items()))
        for each in (*self.slices.values(), *self.rules.values()):
            (made.put_slice if isinstance(each, ResourceSlice) else made.put_rule)(each)  # type: ignore[operator]
        for held in self.claims.values():
            made.put_claim(held)
        made.advance(self.now)
        return made

    def change(self, pick: random.Random) -> None:
        match pick.randint(0, 7):
            case 0 | 1 | 2:
                made = some_slice(pick)
                self.slices[made.metadata.name] = made
                self.engine.put_slice(made)
            case 3 if self.slices:
                name = pick.choice(sorted(self.slices))
                del self.slices[name]
                self.engine.remove_slice(name)
            case 4:
                rule = some_rule(pick, self.now)
                # A rule that changes is a new one at the end of the list.
                self.rules.pop(rule.metadata.name, None)
                self.rules[rule.metadata.name] = rule
                self.engine.put_rule(rule)
            case 5:
                name = pick.choice(NODES)
                self.labels[name] = pick.choice([{}, {"zone": "a"}])
                self.engine.put_node(node(name, **self.labels[name]))
            case 6:
                self.now += pick.randint(1, 60)
                self.engine.advance(self.now)
            case _:
                self.allocate(pick)

    def allocate(self, pick: random.Random) -> None:
        wanted = claim(exactly(tolerations=[{"operator": "Exists"}]))
        verdict = self.engine.allocate(pick.choice(NODES), [wanted])
        if verdict.ok:
            wanted.status.allocation = verdict.results[0]
            self.engine.put_claim(wanted)
            self.claims[wanted.uid] = wanted


class Card(Told):
    """One pool on two nodes whose devices draw from two counter sets, in schemes that change while they are in use."""

    def __init__(self) -> None:
        super().__init__()
        self.shown(counters(("g", {"slots": "4"}), ("h", {"slots": "2"}), name="sets", count=3, nodeName="n1"))
        for name in ("n1", "n2"):
            self.publish(name, random.Random(0))

    def shown(self, made: ResourceSlice) -> None:
        self.slices[made.metadata.name] = made
        self.engine.put_slice(made)

    def publish(self, name: str, pick: random.Random) -> None:
        devices = [self.device(f"{name}-{number}", pick) for number in range(pick.randint(1, 4))]
        self.shown(slice_(devices, name=name, count=3, nodeName=name))

    def device(self, name: str, pick: random.Random) -> dict[str, Any]:
        fields: dict[str, Any] = {"attributes": {"root": f"r{pick.randint(0, 1)}"}}
        schemes = [(), (), ("a",), ("b",), ("a", "b")]
        drawn = [takes(each, pick.choice(schemes), slots=1) for each in pick.choice(["", "g", "g", "h", "gh"])]
        fields["consumesCounters"] = [entry for each in drawn for entry in each]
        if pick.random() < 0.4:
            policy = {"default": "1", "validValues": ["1", "2"]}
            fields |= {"allowMultipleAllocations": True, "capacity": {"part": {"value": "3", "requestPolicy": policy}}}
        if pick.random() < 0.2:
            fields |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"], "bindsToNode": True}
        return device(name, **fields)

    def change(self, pick: random.Random) -> None:
        match pick.randint(0, 5):
            case 0 | 1:
                self.publish(pick.choice(["n1", "n2"]), pick)
            case 2 if self.claims:
                uid = pick.choice(sorted(self.claims))
                del self.claims[uid]
                self.engine.remove_claim(uid)
            case 3:
                super().change(pick)
            case _:
                self.allocate(pick)


def answers(made: Devices) -> list[tuple[Any, ...]]:
    match = [{"matchAttribute": "gpu.example.com/root"}]
    patient = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    questions = [claim(exactly()), claim(exactly(count=2), constraints=match), claim(exactly(allocationMode="All"))]
    questions.append(claim(exactly(tolerations=patient)))
    found = []
    for name in NODES:
        for question in questions:
            verdict = made.allocate(name, [question])
            for result in (result for allocation in verdict.results for result in allocation.devices.results):
                result.share_id = None
            found.append((verdict.ok, verdict.error, verdict.results))
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 15))
def test_step_by_step_is_as_good_as_all_at_once(seed: int, steps: int) -> None:
    pick = random.Random(seed)
    told = Told()
    for _ in range(steps):
        told.change(pick)
        assert answers(told.engine) == answers(told.fresh())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_so_it_is_where_schemes_change_while_devices_are_in_use(seed: int, steps: int) -> None:
    pick = random.Random(seed)
    told = Card()
    for _ in range(steps):
        told.change(pick)
        assert answers(told.engine) == answers(told.fresh())


def test_forgetting_old_shapes_changes_no_answer(monkeypatch: Any) -> None:
    monkeypatch.setattr(inventory, "SHAPES_KEPT", 3)
    pick = random.Random(7)
    told = Told()
    for _ in range(40):
        told.change(pick)
        assert answers(told.engine) == answers(told.fresh())


def test_a_rule_about_others_leaves_what_is_known_of_a_node() -> None:
    made = engine(node("n1"), slice_([device("d0")], name="s1", pool="p1", nodeName="n1"))
    before = made.inventory.view("n1")
    other = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"pool": "p2"}, "taint": {"key": "k", "effect": "NoSchedule"}}}
    made.put_rule(decode(DeviceTaintRule, other))
    assert made.inventory.view("n1") is before
    made.remove_rule("r")
    assert made.inventory.view("n1") is before
