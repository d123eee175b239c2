"""Nodes that differ in names only share what explaining them costs, and each is told what it would be told by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api.resource import DeviceKey
from dray.devices import Devices
from dray.devices.explain import Explainer, Outlines
from tests.devices.building import DRIVER, claim, counters, device, engine, exactly, first_of, node, slice_, takes

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8", "requestPolicy": {"default": "3"}}}}
TAINTS = ([], [], [{"key": "maintenance", "effect": "NoSchedule"}], [{"key": "sick", "value": "1", "effect": "NoExecute"}])


def hardware(rng: random.Random) -> list[dict[str, Any]]:
    """What every node of a model has, whatever its devices are called there."""
    kinds = [
        lambda: {"attributes": {"numa": rng.randrange(2)}, "taints": rng.choice(TAINTS)},
        lambda: dict(SHARED),
        lambda: {"consumesCounters": takes("set", rng.choice(((), ("a",), ("a", "b"))), slots=rng.choice((1, 2)))},
    ]
    return [rng.choice(kinds)() for _ in range(rng.randrange(2, 6))]


def cluster(rng: random.Random) -> Devices:
    made = engine(*(node(name) for name in NODES))
    models = [hardware(rng), hardware(rng)]
    for name in NODES:
        prefix = rng.choice(("gpu-", f"{name}-"))
        own = [device(f"{prefix}{number}", **fields) for number, fields in enumerate(rng.choice(models))]
        made.put_slice(slice_(own, name=f"s-{name}", pool=name, count=2, nodeName=name))
        made.put_slice(counters(("set", {"slots": "3"}), name=f"c-{name}", pool=name, nodeName=name))
    if rng.random() < 0.4:
        made.put_slice(slice_([device("f0"), device("f1")], name="fabric", pool="fabric", allNodes=True))
    return made


def use(made: Devices, rng: random.Random) -> None:
    """Claims of several sizes, alone or as one pod's, some only promised; devices that rest."""
    for number in range(rng.randrange(3, 16)):
        claims = [asked(rng, f"held-{number}-{part}", 2) for part in range(rng.randrange(1, 3))]
        verdict = made.allocate(rng.choice(NODES), claims)
        for held, result in zip(claims, verdict.results):
            (made.promise if rng.random() < 0.2 else made.hold)(held, result)
    for name in NODES:
        if rng.random() < 0.2:
            made.rest(DeviceKey(DRIVER, name, "gpu-0"))


def asked(rng: random.Random, name: str, most: int) -> Any:
    count = rng.randrange(1, most + 1)
    selects = rng.choice(([], [], ["device.allowMultipleAllocations"], [f'device.attributes["{DRIVER}"].numa == 0']))
    requests = [
        exactly(count=count, select=selects),
        exactly(allocationMode="All"),
        exactly(count=count),
        first_of("r", {"count": count + 1}, {"count": count}),
    ]
    constraints = [{"matchAttribute": f"{DRIVER}/numa"}] if rng.random() < 0.2 else []
    return claim(rng.choice(requests), name=name, **({"constraints": constraints} if constraints else {}))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_shared_is_what_each_node_is_told_by_itself(seed: int) -> None:
    rng = random.Random(seed)
    made = cluster(rng)
    use(made, rng)
    for number in range(4):
        wanted = [asked(rng, f"wanted-{number}", 6)]
        known: Outlines = {}
        for name in NODES:
            assert made.explain(name, wanted, known) == made.explain(name, wanted), name


def test_nodes_in_the_same_state_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(*(node(name) for name in NODES))
    for name in NODES:
        made.put_slice(slice_([device(f"{name}-{number}") for number in range(4)], name=name, pool=name, nodeName=name))
    for name in NODES[:4]:
        held = claim(exactly(count=3), name=f"held-{name}")
        made.hold(held, made.allocate(name, [held]).results[0])
    outlined: list[str] = []
    outline = Explainer._outline

    def counted(self: Explainer) -> Any:
        outlined.append(self._view.name)
        return outline(self)

    monkeypatch.setattr(Explainer, "_outline", counted)
    known: Outlines = {}
    found = {name: made.explain(name, [claim(exactly(count=5))], known) for name in NODES}
    assert outlined == ["n1", "n5"]
    assert found["n3"].reasons[0].data["holders"] == ["default/held-n3"]
    assert [each.device for each in found["n6"].requests[0].devices] == [f"{DRIVER}/n6/n6-{number}" for number in range(4)]


def test_the_same_devices_in_use_by_others_are_not_the_same() -> None:
    """One claim that has both devices, and two that have one each: letting go of one claim helps only on the first node."""
    made = engine(*(node(name) for name in NODES[:2]))
    for name in NODES[:2]:
        made.put_slice(slice_([device("a"), device("b")], name=name, pool=name, nodeName=name))
    for name, counts in (("n1", (2,)), ("n2", (1, 1))):
        for number, count in enumerate(counts):
            held = claim(exactly(count=count), name=f"held-{name}-{number}")
            made.hold(held, made.allocate(name, [held]).results[0])
    known: Outlines = {}
    wanted = [claim(exactly(count=2))]
    assert made.inventory.state(made.inventory.views["n1"]) == made.inventory.state(made.inventory.views["n2"])
    assert [change.claim for change in made.explain("n1", wanted, known).changes] == ["default/held-n1-0"]
    assert made.explain("n2", wanted, known).changes == ()


def test_a_claim_of_a_namespace_called_rest_is_not_at_rest() -> None:
    made = engine(slice_([device("a")]))
    held = claim(exactly(), name="x")
    held.metadata.namespace = "rest"
    made.hold(held, made.allocate("n1", [held]).results[0])
    (found,) = made.explain("n1", [claim(exactly())]).requests[0].devices
    assert found.reason is not None
    assert (found.reason.code, found.reason.data) == ("DeviceTaken", {"claim": "rest/x"})


def test_the_same_capacity_in_use_in_other_shares_is_not_the_same() -> None:
    """Six of eight are in use on both nodes: as one and five, and as five and one."""
    made = engine(*(node(name) for name in NODES[:2]))
    for name, shares in (("n1", "15"), ("n2", "51")):
        made.put_slice(slice_([device("a", **SHARED)], name=name, pool=name, nodeName=name))
        for number, amount in enumerate(shares):
            held = claim(exactly(capacity={"requests": {"memory": amount}}), name=f"held-{name}-{number}")
            made.hold(held, made.allocate(name, [held]).results[0])
    known: Outlines = {}
    wanted = [claim(exactly(capacity={"requests": {"memory": "6"}}))]
    assert made.inventory.state(made.inventory.views["n1"]) == made.inventory.state(made.inventory.views["n2"])

    def to_let_go(name: str) -> list[str]:
        return [change.claim for change in made.explain(name, wanted, known).changes if change.kind == "release"]

    assert to_let_go("n1") == ["default/held-n1-1"]
    assert to_let_go("n2") == ["default/held-n2-0"]
