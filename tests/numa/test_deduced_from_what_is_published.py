"""Where pods are follows from what a node publishes, where nobody reports it: whatever is said adds up, and is so."""

from __future__ import annotations

import random

import pytest

from dray.api.kinds import PODS
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.numa.deduce import Resident, deduced
from dray.numa.demand import Demand, Unit
from dray.numa.layout import Layout, State, layout_of
from dray.numa.tally import Usage
from tests.numa.churning import SLOW, Churn
from tests.numa.clusters import ZonedCluster, aligned_pod, zoned_node

GPU = "nvidia.com/gpu"
CPU4 = {"cpus": 4, "memory": "8Gi"}


def layout(zones: int) -> Layout:
    amounts = {"cpu": "16", GPU: "4", "memory": "64Gi"}
    resources = [{"name": name, "capacity": value, "allocatable": value, "available": value} for name, value in amounts.items()]
    named = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(zones)]
    attributes = [
        {"name": "topologyManagerPolicy", "value": "restricted"},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    body = {"metadata": {"name": "n"}, "attributes": attributes, "zones": named}
    found = layout_of(decode(NodeResourceTopology, body))
    assert found is not None
    return found


def asks(cpu: int, gpu: int = 0) -> Demand:
    needs = (("cpu", cpu * 1000), ("memory", 1 << 20), *(((GPU, gpu),) if gpu else ()))
    return Demand((Unit("app", needs),), needs)


def published(of: Layout, taken: dict[int, dict[str, int]]) -> State:
    free = [
        [has - taken.get(place, {}).get(name, 0) for place, has in enumerate(row)]
        for name, row in zip(of.resources, of.allocatable)
    ]
    return State(of, tuple(map(tuple, free)))


def test_a_pod_that_is_elsewhere_than_was_thought_is_found() -> None:
    of = layout(2)
    thought = Usage(((0, asks(6).pod),))
    found = deduced(published(of, {1: {"cpu": 6000}}), [], {"a": Resident(asks(6), thought)})
    assert found["a"].usage.mask == 0b10
    assert found["a"].apart


def test_a_pod_without_a_record_is_found_beside_one_that_was_observed() -> None:
    of = layout(2)
    found = deduced(
        published(of, {0: {"cpu": 6000}, 1: {"cpu": 4000, GPU: 1}}),
        [Usage(((0, (("cpu", 6000),)),))],
        {"a": Resident(asks(4, 1), Usage())},
    )
    assert found["a"].usage.placement == ((1, (("cpu", 4000), ("memory", 1 << 20), (GPU, 1))),)


def test_which_of_equal_pods_is_where_is_not_told() -> None:
    of, taken = layout(2), {0: {"cpu": 6000}, 1: {"cpu": 6000}}
    residents = {name: Resident(asks(6), Usage(((place, asks(6).pod),))) for name, place in (("a", 1), ("b", 1))}
    found = deduced(published(of, taken), [], residents)
    assert {each.usage.mask for each in found.values()} == {1, 2}
    assert not any(each.apart for each in found.values())


def test_what_does_not_add_up_says_nothing() -> None:
    of = layout(2)
    assert deduced(published(of, {0: {"cpu": 5000}}), [], {"a": Resident(asks(6), Usage())}) == {}


def test_two_that_are_spread_say_nothing() -> None:
    of = layout(4)
    residents = {name: Resident(asks(24, 6), Usage()) for name in "ab"}
    assert deduced(published(of, {place: {"cpu": 12000, GPU: 3} for place in range(4)}), [], residents) == {}


@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_where_what_is_certain_is_so_and_all_of_it_adds_up(seed: int) -> None:
    rng = random.Random(seed)
    of = layout(rng.choice((2, 2, 3, 4)))
    taken: dict[int, dict[str, int]] = {place: {} for place in of.places}
    really: dict[str, int] = {}
    residents: dict[str, Resident] = {}
    for number in range(rng.randint(1, 6)):
        cpu, gpu = rng.choice(((4, 1), (6, 2), (10, 3), (5, 0), (2, 1)))
        places = [p for p in of.places if taken[p].get("cpu", 0) + cpu * 1000 <= 16000 and taken[p].get(GPU, 0) + gpu <= 4]
        if not places:
            continue
        place = rng.choice(places)
        taken[place] = {"cpu": taken[place].get("cpu", 0) + cpu * 1000, GPU: taken[place].get(GPU, 0) + gpu}
        asked = asks(cpu, gpu)
        thought = rng.choice((Usage(), *(Usage(((p, asked.pod),)) for p in of.places)))
        really[f"p{number}"], residents[f"p{number}"] = place, Resident(asked, thought)
    found = deduced(published(of, taken), [], residents)
    assert found.keys() == residents.keys()
    assert all(each.usage.mask == 1 << really[name] for name, each in found.items() if each.apart)
    sums: dict[int, dict[str, int]] = {place: {} for place in of.places}
    for each in found.values():
        for place, amounts in each.usage.placement:
            for name, value in amounts:
                sums[place][name] = sums[place].get(name, 0) + value
    for place in of.places:
        assert {name: sums[place].get(name, 0) for name in ("cpu", GPU)} == {"cpu": 0, GPU: 0} | taken[place]


# ------------------------------------------------------------------------------------------------------ in a whole cluster


def test_a_pod_of_another_scheduler_is_known_where_it_probably_is_and_then_where_it_is() -> None:
    """It comes while nothing was published of it; a zone is free for one more, and not the one that looks free."""
    cluster = ZonedCluster(zoned_node("n0", CPU4, CPU4, exporter=None))
    cluster.create(aligned_pod("stranger", 3, nodeName="n0", schedulerName="another"))
    cluster.run(20)
    cluster.create(aligned_pod("a", 2), aligned_pod("b", 3))
    cluster.run(60)
    assert cluster.phase("stranger") == "Running"
    assert cluster.refused == 0
    assert sorted(map(cluster.phase, "ab")) == ["Pending", "Running"]


def test_who_went_astray_leads_nobody_astray_once_the_node_has_published() -> None:
    """Two equal pods are admitted in the other order, and one leaves: which zone is empty follows from what is published."""
    cluster = ZonedCluster(zoned_node("n0", CPU4, CPU4, exporter=None, after="10s"))
    cluster.create(aligned_pod("a", 3), aligned_pod("b", 3))
    cluster.run(30)
    (there,) = cluster.zones_of("a")
    # As if it had come second.
    other = {"node-0": "node-1", "node-1": "node-0"}[there]
    cluster.patch(
        PODS,
        "a",
        {
            "metadata": {
                "annotations": {
                    "kai.scheduler/numa-placement-predicted": f'[{{"zone":"{other}","amount":{{"cpu":"3","memory":"1048576"}}}}]'
                }
            }
        },
    )
    cluster.patch(
        PODS,
        "b",
        {
            "metadata": {
                "annotations": {
                    "kai.scheduler/numa-placement-predicted": f'[{{"zone":"{there}","amount":{{"cpu":"3","memory":"1048576"}}}}]'
                }
            }
        },
    )
    cluster.crash("scheduler")
    cluster.run(5)
    cluster.delete(PODS, "a")
    cluster.run(40)
    cluster.create(aligned_pod("c", 1), aligned_pod("d", 4))
    cluster.run(60)
    assert cluster.refused == 0
    assert cluster.phase("c") == "Running"


@pytest.mark.parametrize("of", [("init",), ("wide",), ("strangers",)])
def test_half_an_hour_without_an_exporter_and_nobody_is_refused(of: tuple[str, ...]) -> None:
    churn = Churn(of, exporter=False, nodes=2, pods=100, seconds=1200)
    assert churn.refused == []
    assert churn.bound > 60


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
def test_where_the_api_is_slow_few_are_refused(seed: int) -> None:
    """Who was on the way when a zone became free, and which of equal pods came first, is not known before the node publishes."""
    churn = Churn(("slow", "init", "wide", "strangers"), exporter=False, faults=SLOW, seed=seed)
    assert len(churn.refused) < churn.bound / 50
