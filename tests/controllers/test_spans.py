"""Pods that were spread over more zones than they allow: told, and placed anew where they ask for it."""

from __future__ import annotations

import json
from typing import Any

from dray.api.kinds import EVENTS, PODS
from dray.cluster.numbers import Registry
from dray.controllers.sets import METRICS
from dray.controllers.spans import Spans
from dray.numa.placement import GROUPS_OBSERVED, OBSERVED
from dray.numa.refused import SPREAD
from dray.runtime.meter import Meter
from tests.simulated import Place

BOTH = json.dumps([{"zone": f"node-{n}", "amount": {"cpu": "2"}} for n in (0, 1)])
OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}]


def place(registry: Registry | None = None) -> Place:
    made = Place()
    made.start("controllers", (PODS,), lambda world: [Spans(world, Meter(registry or Registry(), METRICS))])
    return made


def pod(name: str, *, heal: bool = True, span: str = "1", owners: Any = OWNER, **more: str) -> dict[str, Any]:
    said = {"dray.dev/numa-span": span, **({"dray.dev/numa-heal": "true"} if heal else {}), **more}
    metadata = {"name": name, "annotations": {OBSERVED: BOTH, **said}, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}


def evicted(made: Place, *names: str) -> list[bool]:
    found = [made.get(PODS, name) for name in names]
    return [each is None or bool(each["metadata"].get("deletionTimestamp")) for each in found]


def told(made: Place) -> list[str]:
    return [event["message"] for event in made.all(EVENTS) if event["reason"] == SPREAD]


def test_a_pod_that_is_spread_too_far_is_told_about_and_evicted_if_it_asks_for_it() -> None:
    made = place()
    made.create(PODS, pod("heals"))
    made.create(PODS, pod("endures", heal=False))
    made.create(PODS, pod("content", span="2"))
    made.pass_time(10)
    assert evicted(made, "heals", "endures", "content") == [True, False, False]
    assert sorted(told(made)) == ["its resources are in 2 zones of n1, but the pod allows 1"] * 2


def test_what_it_does_is_counted_under_names_that_the_controllers_declare() -> None:
    registry = Registry()
    made = place(registry)
    made.create(PODS, pod("heals"))
    made.create(PODS, pod("endures", heal=False))
    made.pass_time(10)
    told = registry.text().decode()
    assert "dray_numa_spans_missed_total 2.0" in told
    assert "dray_numa_pods_healed_total 1.0" in told


def test_only_the_resources_that_it_names_count() -> None:
    made = place()
    made.create(PODS, pod("gpus", **{"dray.dev/numa-resources": "nvidia.com/gpu"}))
    made.pass_time(10)
    assert evicted(made, "gpus") == [False]


def test_memory_that_was_drawn_from_several_zones_together_is_in_all_of_them() -> None:
    """A kubelet that never refuses goes on to other zones for memory where those of the CPUs have too little."""
    near = json.dumps([{"zone": "node-0", "amount": {"cpu": "2"}}])
    wide = json.dumps([{"memoryNodes": ["node-0", "node-1"], "amount": {"memory": "8"}}])
    made = place()
    made.create(PODS, pod("wide", **{OBSERVED: near, GROUPS_OBSERVED: wide}))
    made.create(PODS, pod("memory", **{OBSERVED: "", GROUPS_OBSERVED: wide}))
    made.create(PODS, pod("cores", **{OBSERVED: near, GROUPS_OBSERVED: wide, "dray.dev/numa-resources": "cpu"}))
    made.pass_time(130)
    assert evicted(made, "wide", "memory", "cores") == [True, True, False]


def test_one_that_nobody_would_make_again_stays() -> None:
    made = place()
    made.create(PODS, pod("alone", owners=[]))
    made.pass_time(10)
    assert evicted(made, "alone") == [False]
    assert "no controller" in told(made)[0]


def test_of_one_controller_one_pod_a_minute() -> None:
    made = place()
    for name in "abc":
        made.create(PODS, pod(name))
    made.pass_time(30)
    assert sum(evicted(made, *"abc")) == 1
    made.pass_time(60)
    assert sum(evicted(made, *"abc")) == 2
