"""Pods without spread constraints of their own spread with the pods of the same service or workload."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.core import TopologySpreadConstraint
from dray.api.gates import Gates
from dray.scheduling.config import Config, Profile
from dray.scheduling.configuration import ConfigError, parse

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
OWNERS = {
    "ReplicaSet": (kinds.REPLICA_SETS, {"matchLabels": {"app": "web"}}),
    "StatefulSet": (kinds.STATEFUL_SETS, {"matchLabels": {"app": "web"}}),
    "ReplicationController": (kinds.REPLICATION_CONTROLLERS, {"app": "web"}),
}


def only_spread(**values: Any) -> Config:
    """Nothing but spreading ranks nodes."""
    return Config((Profile(scores=(("PodTopologySpread", 2),), **values),))


def two_zones(config: Config) -> Sim:
    """Zone a has two nodes and comes first, zone b has one; one pod of the workload is in zone a."""
    sim = Sim(config)
    for name, zone in (("a0", "a"), ("a1", "a"), ("b0", "b")):
        sim.add_node(name, labels={ZONE: zone})
    for index in range(3):
        sim.add_pod(f"ballast{index}", node_name="b0")
    sim.add_pod("first", labels={"app": "web"}, node_name="a0")
    return sim


def owned(sim: Sim, name: str, kind: str, uid: str = "owner", **extra: Any) -> None:
    where, selector = OWNERS[kind]
    sim.api.put(where, {"metadata": {"name": "web", "namespace": "default", "uid": "owner"}, "spec": {"selector": selector}})
    reference = {"apiVersion": where.api_version, "kind": kind, "name": "web", "uid": uid, "controller": True}
    add(sim, name, reference, **extra)


def add(sim: Sim, name: str, owner: dict[str, Any] | None = None, **extra: Any) -> None:
    from scheduling_cluster import pod

    made = pod(name, labels={"app": "web"}, **extra)
    if owner is not None:
        made["metadata"]["ownerReferences"] = [owner]
    sim.api.put(kinds.PODS, made)
    sim.settle()


@pytest.mark.parametrize("kind", OWNERS)
def test_pods_of_a_workload_prefer_the_zone_with_fewer_of_them(kind: str) -> None:
    sim = two_zones(only_spread())
    owned(sim, "second", kind)
    assert sim.node_of("second") == "b0"


def test_pods_of_a_service_prefer_the_zone_with_fewer_of_them() -> None:
    sim = two_zones(only_spread())
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    sim.api.put(kinds.SERVICES, service)
    add(sim, "second")
    assert sim.node_of("second") == "b0"


def test_a_pod_that_nothing_selects_or_owns_is_not_spread() -> None:
    sim = two_zones(only_spread())
    service = {"metadata": {"name": "other", "namespace": "default"}, "spec": {"selector": {"app": "other"}}}
    sim.api.put(kinds.SERVICES, service)
    add(sim, "second")
    assert sim.node_of("second") == "a1"


def test_an_owner_of_the_same_name_that_came_later_does_not_count() -> None:
    sim = two_zones(only_spread())
    owned(sim, "second", "ReplicaSet", uid="another")
    assert sim.node_of("second") == "a1"


def test_constraints_of_its_own_replace_the_defaults() -> None:
    sim = two_zones(only_spread())
    other = {"matchLabels": {"app": "none"}}
    own = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": other}
    owned(sim, "second", "ReplicaSet", topologySpreadConstraints=[own])
    assert sim.node_of("second") == "a1"


def test_defaults_refuse_no_node_also_one_without_a_zone() -> None:
    sim = Sim(only_spread())
    sim.add_node("plain")
    for index in range(8):
        owned(sim, f"p{index}", "ReplicaSet")
    assert {sim.node_of(f"p{index}") for index in range(8)} == {"plain"}


def test_the_best_of_each_zone_are_compared_however_many_nodes_come_first() -> None:
    sim = Sim(only_spread())
    for zone, count in (("a", 150), ("b", 30), ("c", 30)):
        for index in range(count):
            sim.add_node(f"{zone}{index}", labels={ZONE: zone})
    for index in range(30):
        owned(sim, f"p{index}", "ReplicaSet")
    nodes = [sim.node_of(f"p{index}") for index in range(30)]
    assert Counter(node[0] for node in nodes) == {"a": 10, "b": 10, "c": 10}
    assert len(set(nodes)) == 30


def test_devices_decide_where_spreading_only_prefers() -> None:
    sim = two_zones(only_spread())
    sim.add_class()
    sim.add_slice("a1", 2)
    sim.add_claim("c")
    owned(sim, "second", "ReplicaSet", claims=["c"])
    assert sim.node_of("second") == "a1"


def test_constraints_from_the_configuration_take_the_place_of_the_systems() -> None:
    by_host = TopologySpreadConstraint(max_skew=1, topology_key=HOST, when_unsatisfiable="ScheduleAnyway")
    sim = two_zones(only_spread(default_spread=(by_host,)))
    owned(sim, "second", "ReplicaSet")
    assert sim.node_of("second") == "a1"
    none = two_zones(only_spread(default_spread=()))
    none.add_pod("on-a1", node_name="a1")
    none.add_pod("also-on-a1", node_name="a1")
    owned(none, "second", "ReplicaSet")
    assert none.node_of("second") == "a0"


def configured(**args: Any) -> Config:
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return parse({**head, "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": args}]}]}, Gates.dray())


def test_a_list_of_default_constraints_is_read() -> None:
    constraint = {"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    (profile,) = configured(defaultingType="List", defaultConstraints=[constraint]).profiles
    assert profile.default_spread is not None
    assert [(c.topology_key, c.max_skew) for c in profile.default_spread] == [("rack", 2)]
    assert configured().profiles[0].default_spread is None


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"defaultConstraints": [{"topologyKey": "k", "maxSkew": 1}]}, "defaultingType List"),
        ({"defaultingType": "Both"}, "System or List"),
        ({"defaultingType": "List", "defaultConstraints": [{"topologyKey": "k", "maxSkew": 0}]}, "maxSkew"),
        ({"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1}]}, "topologyKey"),
        (
            {"defaultingType": "List", "defaultConstraints": [{"topologyKey": "k", "maxSkew": 1, "whenUnsatisfiable": "x"}]},
            "whenUnsatisfiable",
        ),
        (
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"topologyKey": "k", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
                ],
            },
            "labelSelector",
        ),
    ],
)
def test_default_constraints_that_make_no_sense_are_refused_by_name(args: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        configured(**args)
