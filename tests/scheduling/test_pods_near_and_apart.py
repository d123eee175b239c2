"""Pod affinity, anti-affinity and topology spread."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def zones(sim: Sim) -> Sim:
    for zone in ("a", "b"):
        for index in range(2):
            sim.add_node(f"{zone}{index}", labels={ZONE: zone})
    return sim


def term(app: str, key: str, **extra: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **extra}


def near(app: str, key: str = ZONE, **extra: Any) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [term(app, key, **extra)]}}


def apart(app: str, key: str = HOST, **extra: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [term(app, key, **extra)]}}


def test_a_pod_goes_where_the_pod_it_must_be_near_is(zones: Sim) -> None:
    zones.add_pod("db", labels={"app": "db"}, nodeSelector={HOST: "b0"})
    zones.settle()
    zones.add_pod("web", affinity=near("db"))
    zones.settle()
    assert zones.node_of("web") in ("b0", "b1")


def test_a_pod_waits_for_the_pod_it_must_be_near(zones: Sim) -> None:
    zones.add_pod("web", affinity=near("db"))
    zones.settle()
    assert zones.node_of("web") == ""
    zones.add_pod("other", labels={"app": "x"})
    zones.add_pod("db", labels={"app": "db"}, nodeSelector={ZONE: "a"})
    zones.settle()
    assert zones.node_of("web") in ("a0", "a1")


def test_the_first_of_a_group_that_wants_to_be_near_itself_may_start(zones: Sim) -> None:
    for index in range(4):
        zones.add_pod(f"p{index}", labels={"app": "ring"}, affinity=near("ring"))
    zones.settle()
    assert len({zones.node_of(f"p{index}")[0] for index in range(4)}) == 1


def test_pods_stay_apart(zones: Sim) -> None:
    for index in range(5):
        zones.add_pod(f"p{index}", labels={"app": "db"}, affinity=apart("db"))
    zones.settle()
    placed = [zones.node_of(f"p{index}") for index in range(5)]
    assert sorted(placed) == ["", "a0", "a1", "b0", "b1"]
    loser = f"p{placed.index('')}"
    zones.remove(kinds.PODS, "default/p0" if loser != "p0" else "default/p1")
    zones.settle(2)
    assert zones.node_of(loser) != ""


def test_pods_that_are_there_keep_others_away(zones: Sim) -> None:
    zones.add_pod("loner", nodeSelector={ZONE: "a"}, affinity=apart("noisy", ZONE))
    zones.settle()
    zones.add_pod("noisy", labels={"app": "noisy"})
    zones.settle()
    assert zones.node_of("noisy") in ("b0", "b1")


def test_other_namespaces_count_only_when_named(zones: Sim) -> None:
    zones.add_pod("theirs", namespace="other", labels={"app": "db"}, nodeSelector={ZONE: "b"})
    zones.settle()
    zones.add_pod("own", affinity=near("db"))
    zones.add_pod("named", affinity=near("db", namespaces=["other"]))
    zones.add_pod("everywhere", affinity=near("db", namespaceSelector={}))
    zones.settle()
    assert zones.node_of("own") == ""
    assert zones.node_of("named")[0] == zones.node_of("everywhere")[0] == "b"


def test_namespaces_are_selected_by_label(zones: Sim) -> None:
    zones.api.put(kinds.NAMESPACES, {"metadata": {"name": "other", "labels": {"team": "x"}}})
    zones.add_pod("theirs", namespace="other", labels={"app": "db"}, nodeSelector={ZONE: "b"})
    zones.settle()
    zones.add_pod("p", affinity=near("db", namespaceSelector={"matchLabels": {"team": "x"}}))
    zones.settle()
    assert zones.node_of("p")[0] == "b"


def test_preferred_affinity_pulls_and_anti_affinity_pushes(zones: Sim) -> None:
    zones.add_pod("db", labels={"app": "db"}, nodeSelector={HOST: "b1"})
    zones.settle()
    pull = [{"weight": 100, "podAffinityTerm": term("db", HOST)}]
    push = [{"weight": 100, "podAffinityTerm": term("db", ZONE)}]
    zones.add_pod("near", affinity={"podAffinity": {PREFERRED: pull}})
    zones.settle()
    zones.add_pod("far", affinity={"podAntiAffinity": {PREFERRED: push}})
    zones.settle()
    assert zones.node_of("near") == "b1"
    assert zones.node_of("far")[0] == "a"


def spread(key: str = ZONE, skew: int = 1, **extra: Any) -> list[dict[str, Any]]:
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **extra}
    return [{"labelSelector": {"matchLabels": {"app": "web"}}, **constraint}]


def test_pods_spread_over_zones(zones: Sim) -> None:
    for index in range(6):
        zones.add_pod(f"p{index}", labels={"app": "web"}, topologySpreadConstraints=spread())
    zones.settle()
    assert Counter(zones.node_of(f"p{index}")[0] for index in range(6)) == {"a": 3, "b": 3}


def test_a_full_domain_makes_the_next_pod_wait(sim: Sim) -> None:
    sim.add_node("a0", labels={ZONE: "a"})
    sim.add_node("b0", labels={ZONE: "b"}, cpu="1")
    for index in range(4):
        sim.add_pod(f"p{index}", labels={"app": "web"}, requests={"cpu": "1"}, topologySpreadConstraints=spread())
    sim.settle()
    placed = Counter(sim.node_of(f"p{index}") for index in range(4))
    assert placed == {"a0": 2, "b0": 1, "": 1}
    waiting = next(f"p{index}" for index in range(4) if not sim.node_of(f"p{index}"))
    assert "spread" in sim.condition(waiting)["message"]


def test_nodes_without_the_key_and_nodes_the_pod_cannot_use_do_not_count(zones: Sim) -> None:
    zones.add_node("nowhere")
    zones.add_node("c0", labels={ZONE: "c"})
    for index in range(4):
        zones.add_pod(
            f"p{index}",
            labels={"app": "web"},
            topologySpreadConstraints=spread(),
            affinity={
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]
                    }
                }
            },
        )
    zones.settle()
    assert Counter(zones.node_of(f"p{index}")[0] for index in range(4)) == {"a": 2, "b": 2}


def test_min_domains_counts_missing_domains_as_empty(zones: Sim) -> None:
    for index in range(4):
        zones.add_pod(f"p{index}", labels={"app": "web"}, topologySpreadConstraints=spread(minDomains=3))
    zones.settle()
    assert sum(bool(zones.node_of(f"p{index}")) for index in range(4)) == 2


def test_a_soft_constraint_only_prefers(sim: Sim) -> None:
    sim.add_node("a0", labels={ZONE: "a"}, cpu="64", memory="512Gi")
    sim.add_node("b0", labels={ZONE: "b"}, cpu="3", memory="4Gi")
    constraint = spread(whenUnsatisfiable="ScheduleAnyway")
    for index in range(5):
        sim.add_pod(f"p{index}", labels={"app": "web"}, requests={"cpu": "1"}, topologySpreadConstraints=constraint)
    sim.settle()
    assert Counter(sim.node_of(f"p{index}") for index in range(5))[""] == 0
    assert "b0" in {sim.node_of(f"p{index}") for index in range(5)}


def test_only_pods_of_the_same_revision_count_with_match_label_keys(zones: Sim) -> None:
    zones.add_pod("old", labels={"app": "web", "rev": "1"}, nodeSelector={ZONE: "a"})
    zones.settle()
    for index in range(2):
        zones.add_pod(f"p{index}", labels={"app": "web", "rev": "2"}, topologySpreadConstraints=spread(matchLabelKeys=["rev"]))
    zones.settle()
    assert {zones.node_of(f"p{index}")[0] for index in range(2)} == {"a", "b"}


def test_a_pod_that_is_leaving_does_not_count_for_spreading(zones: Sim) -> None:
    zones.add_pod("a", labels={"app": "web"}, node_name="a0")
    zones.add_pod("b", labels={"app": "web"}, node_name="b0")
    zones.add_pod("a-too", labels={"app": "web"}, node_name="a1")
    for name in ("b0", "b1"):
        zones.add_pod(f"fills-{name}", requests={"cpu": "4"}, node_name=name)
    zones.add_pod("next", labels={"app": "web"}, requests={"cpu": "1"}, topologySpreadConstraints=spread())
    zones.settle()
    assert zones.node_of("next") == ""
    leaving = zones.pod("a-too")
    leaving["metadata"] |= {"finalizers": ["slow"], "deletionTimestamp": "2027-01-01T00:00:00Z"}
    zones.api.put(kinds.PODS, leaving)
    zones.settle(30)
    assert zones.node_of("next") in ("a0", "a1")


def test_a_pod_that_is_leaving_still_repels(zones: Sim) -> None:
    zones.add_pod("a", labels={"app": "web"}, node_name="a0")
    leaving = zones.pod("a")
    leaving["metadata"] |= {"finalizers": ["slow"], "deletionTimestamp": "2027-01-01T00:00:00Z"}
    zones.api.put(kinds.PODS, leaving)
    zones.add_pod("next", nodeSelector={HOST: "a0"}, affinity=apart("web"))
    zones.settle()
    assert zones.node_of("next") == ""
