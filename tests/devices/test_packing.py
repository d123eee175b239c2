"""Which devices of a node are taken with packing, and that it never decides whether something fits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from dray.cli.allocate import Line, Session
from dray.devices import Devices, Order
from dray.devices.packing import LOOKS
from tests.devices.building import claim, class_, counters, device, engine, exactly, first_of, names, slice_, takes
from tests.solver.model import Json, Problem
from tests.solver.strategies import evaluate, lines
from tests.solver.validity import violations

ROOT = "resource.kubernetes.io/pcieRoot"


def packed(made: Devices, *claims: Any) -> list[list[str]]:
    """Allocate with packing and hold."""
    verdict = made.allocate("n1", claims, "packing")
    assert verdict.ok, verdict.error
    for each, result in zip(claims, verdict.results):
        made.hold(each, result)
    return names(verdict)


def memory(amount: str) -> Json:
    return {"capacity": {"memory": {"value": amount}}}


def wants(amount: str, name: str = "c") -> Any:
    return claim(exactly(capacity={"requests": {"memory": amount}}), name=name)


def partition(name: str, card: int, size: int) -> Json:
    return device(name, consumesCounters=takes(f"card-{card}", memory=f"{size}Gi"), **memory(f"{size}Gi"))


def cards(*devices: Json, count: int = 2) -> Devices:
    sets = [(f"card-{number}", {"memory": "80Gi"}) for number in range(count)]
    return engine(counters(*sets), slice_(list(devices), count=2))


# -------------------------------------------------------------------------------------------------------------- least waste


def test_the_smallest_partition_that_is_enough_is_taken() -> None:
    made = cards(partition("large", 0, 40), partition("small", 0, 10))
    assert names(made.allocate("n1", [wants("1Gi")])) == [["large"]]
    assert packed(made, wants("1Gi")) == [["small"]]
    assert packed(made, wants("20Gi")) == [["large"]]


def test_a_partition_is_preferred_to_a_whole_device() -> None:
    made = cards(device("whole", **memory("80Gi")), partition("part", 0, 20))
    assert packed(made, wants("1Gi")) == [["part"]]


def test_a_card_that_is_partly_used_is_filled_before_the_next() -> None:
    made = cards(*(partition(f"c{card}-{part}", card, 20) for part in range(4) for card in (0, 1)))
    taken = [packed(made, wants("1Gi"))[0][0] for _ in range(5)]
    assert taken == ["c0-0", "c0-1", "c0-2", "c0-3", "c1-0"]


def test_the_fuller_of_two_cards_in_use_is_filled_first() -> None:
    made = cards(*(partition(f"c{card}-{size}", card, size) for card, size in ((0, 30), (0, 10), (1, 50), (1, 10))))
    assert packed(made, wants("45Gi")) == [["c1-50"]]
    assert packed(made, wants("30Gi")) == [["c0-30"]]
    assert packed(made, wants("1Gi")) == [["c1-10"]]


def test_a_whole_card_stays_free_for_who_needs_it() -> None:
    parts = [partition(f"c{card}-{part}", card, 40) for part in range(2) for card in (0, 1)]
    wholes = [partition(f"whole-{card}", card, 80) for card in (0, 1)]
    first, second = cards(*parts, *wholes), cards(*parts, *wholes)
    for _ in range(2):
        small = wants("30Gi")
        first.hold(small, first.allocate("n1", [small]).results[0])
        packed(second, wants("30Gi"))
    assert not first.allocate("n1", [wants("80Gi")]).ok
    assert packed(second, wants("80Gi")) == [["whole-1"]]


def test_a_further_share_goes_to_the_device_that_is_shared_already() -> None:
    shared = [device(f"nic-{n}", allowMultipleAllocations=True, **memory("40Gi")) for n in range(2)]
    made = engine(slice_(shared))
    assert packed(made, wants("1Gi")) == [["nic-0"]]
    assert packed(made, wants("1Gi")) == [["nic-0"]]
    assert packed(made, wants("39Gi")) == [["nic-1"]]
    assert packed(made, wants("1Gi")) == [["nic-1"]], "the fuller one"


def test_of_two_unused_shared_devices_the_smaller_is_opened() -> None:
    made = engine(slice_([device(n, allowMultipleAllocations=True, **memory(m)) for n, m in (("big", "40Gi"), ("tiny", "10Gi"))]))
    assert names(made.allocate("n1", [wants("1Gi")])) == [["big"]]
    assert packed(made, wants("1Gi")) == [["tiny"]]


# ----------------------------------------------------------------------------------------------------------------- closeness


def gpus(*roots: str, **more: Any) -> list[Json]:
    return [device(f"gpu-{n}", attributes={ROOT: root}, **more) for n, root in enumerate(roots)]


def test_devices_of_one_request_share_a_pci_root_where_one_has_enough() -> None:
    made = engine(slice_(gpus("a", "b", "c", "b")))
    assert names(made.allocate("n1", [claim(exactly(count=2))])) == [["gpu-0", "gpu-1"]]
    assert packed(made, claim(exactly(count=2))) == [["gpu-1", "gpu-3"]]
    assert packed(made, claim(exactly(count=2))) == [["gpu-0", "gpu-2"]]


def test_devices_of_all_claims_of_a_pod_stand_together() -> None:
    nics = [device(f"nic-{n}", attributes={ROOT: root}) for n, root in enumerate("bc")]
    made = engine(
        slice_(gpus("a", "b", "c")),
        slice_(nics, name="s2", pool="p2", driver="nic.example.com"),
        class_("nic", "device.driver == 'nic.example.com'"),
        class_("gpu", "device.driver == 'gpu.example.com'"),
    )
    assert packed(made, claim(exactly(), name="g"), claim(exactly(cls="nic"), name="n")) == [["gpu-1"], ["nic-0"]]


def test_a_numa_node_is_kept_where_no_pci_root_has_enough() -> None:
    places = [("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", 1)]
    made = engine(slice_([device(f"g{n}", attributes={ROOT: root, "numaNode": numa}) for n, (root, numa) in enumerate(places)]))
    assert packed(made, claim(exactly(count=3))) == [["g1", "g3", "g4"]]


def test_one_device_is_taken_where_it_breaks_up_the_least() -> None:
    made = engine(slice_(gpus("a", "a", "b")))
    assert packed(made, claim(exactly())) == [["gpu-2"]]
    assert packed(made, claim(exactly(count=2))) == [["gpu-0", "gpu-1"]]


# --------------------------------------------------------------------------------------------------- what outweighs packing


def test_a_device_that_must_be_made_ready_comes_last_however_small() -> None:
    small = device("small", bindingConditions=["attached"], bindingFailureConditions=["failed"], **memory("1Gi"))
    made = engine(slice_([small, device("large", **memory("40Gi"))]))
    assert packed(made, wants("1Gi")) == [["large"]]


def test_a_better_alternative_outweighs_waste() -> None:
    """The small one for the first request would leave the second request its second choice."""
    made = engine(slice_([device("large", **memory("40Gi")), device("small", **memory("10Gi"))]), class_("gpu"))
    small = "device.capacity['gpu.example.com'].memory.compareTo(quantity('10Gi')) == 0"
    large = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) == 0"
    listed = first_of("b", {"selectors": [{"cel": {"expression": small}}]}, {"selectors": [{"cel": {"expression": large}}]})
    assert packed(made, claim(exactly("a"), listed)) == [["large", "small"]]


def test_constraints_hold() -> None:
    made = engine(
        slice_(
            [
                device(f"g{n}", attributes={"gpu.example.com/model": m}, **memory(s))
                for n, (m, s) in enumerate([("x", "80Gi"), ("y", "10Gi"), ("x", "80Gi")])
            ]
        )
    )
    together = {"requests": ["r"], "matchAttribute": "gpu.example.com/model"}
    assert packed(made, claim(exactly(count=2), constraints=[together])) == [["g0", "g2"]]


def test_first_fit_goes_over_nodes_and_packs_within() -> None:
    made = cards(partition("large", 0, 40), partition("small", 0, 10))
    assert names(made.first_fit(["n1"], [wants("1Gi")])[1]) == [["large"]]
    assert names(made.first_fit(["n1"], [wants("1Gi")], order="packing")[1]) == [["small"]]


def test_what_is_packed_follows_what_is_in_use() -> None:
    made = cards(partition("large", 0, 40), partition("small", 0, 10))
    wanted = wants("1Gi")
    assert packed(made, wanted) == [["small"]]
    assert packed(made, wants("1Gi")) == [["large"]]
    made.release(wanted.uid)
    assert packed(made, wants("1Gi")) == [["small"]]


def test_a_node_with_very_many_devices_keeps_the_first_fit() -> None:
    """What packing compares is bounded; a request for many of very many devices is beyond it."""
    made = engine(slice_([device(f"g{n}", attributes={ROOT: f"r{n % 7}"}) for n in range(LOOKS // 30)]))
    many, few = claim(exactly(count=32)), claim(exactly(count=3))
    assert names(made.allocate("n1", [many], "packing")) == names(made.allocate("n1", [many]))
    assert packed(made, few) == [["g6", "g13", "g20"]]


# ------------------------------------------------------------------------------------------------------------------ explained


def test_the_score_says_what_spoke_for_each_device() -> None:
    made = cards(*(partition(f"c{card}-{part}", card, 20) for card in (0, 1) for part in range(4)))
    packed(made, wants("1Gi"))
    (score,) = made.scores("n1", [wants("1Gi")], "packing")
    assert (score.device, score.request) == ("gpu.example.com/p1/c0-1", "r")
    assert (score.opened, score.fresh, score.left, score.waits) == (250, False, 500, False)
    assert (
        score.text()
        == "gpu.example.com/p1/c0-1 for r: a partition, 25% of a card that was partly in use, of which 50% stays free"
    )


def test_the_score_counts_neighbours() -> None:
    made = engine(slice_(gpus("a", "b", "b")))
    alone, beside = made.scores("n1", [claim(exactly(count=2))], "packing")
    assert (alone.same_root, beside.same_root) == (0, 1)
    assert beside.text().endswith("same PCI root as 1 other of the pod")


def test_there_are_no_scores_where_nothing_fits() -> None:
    assert engine(slice_(gpus("a"))).scores("n1", [claim(exactly(count=2))], "packing") == ()


# ----------------------------------------------------------------------------------------------------- random clusters

ORDERS: tuple[Order, ...] = ("first", "packing")


@pytest.mark.timeout(300)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(line=lines())
def test_packing_fits_exactly_where_the_first_fit_does_and_keeps_every_rule(line: Json) -> None:
    parsed = msgspec.json.decode(msgspec.json.encode(line), type=Line)
    session = Session(parsed)
    assert parsed.node
    assert parsed.claims
    node, claims = session.node(parsed.node), session.claims(parsed.claims)
    first, second = (session.engine.allocate(node, claims, order) for order in ORDERS)
    assert (first.ok, first.error, first.node_error) == (second.ok, second.error, second.node_error)
    if second.ok:
        assert second.score >= first.score
        assert violations(Problem(line), msgspec.to_builtins(second.results), evaluate) == []
        assert len(session.engine.scores(node, claims, "packing")) == sum(len(r.devices.results) for r in second.results)
