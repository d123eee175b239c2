"""What the judge of decisions sees, and what it does not hold against anybody: of objects as an API server has them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec

from dray.api.gates import GATES, Gates
from dray.api.kinds import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from dray.cluster.port import Write
from dray.runtime.faults import NONE
from dray.runtime.virtual import Written
from tests.simulate.judging_placements import Placements
from tests.simulate.judging_queues import Queues
from tests.simulate.judging_starts import Starts
from tests.simulate.judging_takings import Takings
from tests.simulate.settled import Settled

Plain = dict[str, Any]


class Looked:
    """A run in which these objects are there, and the scheduler makes these writes."""

    def __init__(self, **bodies: dict[str, Plain]) -> None:
        self.elapsed, self.gates = 0.0, Gates(GATES)
        kinds = (NODES, PODS, POD_GROUPS, QUEUES, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES, DEVICE_TAINT_RULES)
        self._all = {kind: bodies.get(kind.plural, {}) for kind in kinds}
        self._followers: list[Callable[[str, str, bytes | None], None]] = []
        self._listeners: list[Callable[[Written], None]] = []
        settled = Settled(self, NONE)
        self.queues = Queues(self, settled)
        self._judges = (Placements(self, settled), Takings(self, settled, self.queues), Starts(self, settled, [100.0]))

    def follow(self, listener: Callable[[str, str, bytes | None], None]) -> None:
        self._followers.append(listener)
        for kind, found in self._all.items():
            for key, body in found.items():
                listener(kind.resource, key, msgspec.json.encode(body))

    def listen(self, listener: Callable[[Written], None]) -> None:
        self._listeners.append(listener)

    def objects(self, kind: Kind) -> dict[str, Plain]:
        return self._all.get(kind, {})

    def put(self, kind: Kind, key: str, body: Plain) -> None:
        self._all[kind][key] = body
        for listener in self._followers:
            listener(kind.resource, key, msgspec.json.encode(body))

    def writes(self, *writes: Write) -> list[str]:
        for write in writes:
            for listener in self._listeners:
                listener(Written(self.elapsed, "scheduler", write, None))
        return [kind for judge in self._judges for kind, _, _ in judge.wrong]


def named(name: str, **metadata: Any) -> Plain:
    return {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}


def node(name: str, **spec: Any) -> Plain:
    return {"metadata": {"name": name, "uid": name, "labels": {"rack": name}}, "spec": spec}


def pod(name: str, on: str, labels: Plain | None = None, annotations: Plain | None = None, **spec: Any) -> Plain:
    metadata = named(name, labels=labels or {}, annotations=annotations or {})
    return {"metadata": metadata, "spec": {"nodeName": on, **spec}, "status": {"phase": "Pending"}}


def binds(*names: str) -> list[Write]:
    return [Write("create", PODS, "default", name, {}, "binding") for name in names]


# ---------------------------------------------------------------------------------------------------------------- nodes


def test_a_node_that_takes_no_pods_is_wrong() -> None:
    pods = {"default/p": pod("p", "n")}
    assert Looked(nodes={"n": node("n")}, pods=pods).writes(*binds("p")) == []
    assert Looked(nodes={"n": node("n", unschedulable=True)}, pods=pods).writes(*binds("p")) == ["wrong node"]
    tainted = node("n", taints=[{"key": "broken", "effect": "NoSchedule"}])
    assert Looked(nodes={"n": tainted}, pods=pods).writes(*binds("p")) == ["wrong node"]
    tolerates = {"default/p": pod("p", "n", tolerations=[{"operator": "Exists"}])}
    assert Looked(nodes={"n": tainted}, pods=tolerates).writes(*binds("p")) == []


def test_what_changed_a_moment_ago_nobody_need_know() -> None:
    run = Looked(nodes={"n": node("n")}, pods={"default/p": pod("p", "n")})
    run.elapsed = 10.0
    run.put(NODES, "n", node("n", unschedulable=True))
    run.elapsed = 12.0
    assert run.writes(*binds("p")) == []
    run.elapsed = 20.0
    assert run.writes(*binds("p")) == ["wrong node"]


def test_a_node_that_the_pod_does_not_select_is_wrong() -> None:
    pods = {"default/p": pod("p", "n", nodeSelector={"rack": "other"})}
    assert Looked(nodes={"n": node("n")}, pods=pods).writes(*binds("p")) == ["wrong node"]


def test_a_pod_beside_one_that_stands_no_such_pods_is_wrong() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = {"default/p": pod("p", "n", affinity=affinity), "default/q": pod("q", "n", {"app": "a"})}
    assert Looked(nodes={"n": node("n")}, pods=pods).writes(*binds("p", "q")) == ["wrong node"]
    assert Looked(nodes={"n": node("n")}, pods=pods).writes(*binds("q", "p")) == ["wrong node"]
    pods["default/q"]["metadata"]["labels"] = {"app": "b"}
    assert Looked(nodes={"n": node("n")}, pods=pods).writes(*binds("p", "q")) == []


def test_a_gang_that_is_not_in_one_domain_is_wrong() -> None:
    group = {"metadata": named("g"), "spec": {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}}
    tie = {"pod-group-name": "g"}
    pods = {"default/p": pod("p", "n", annotations=tie), "default/q": pod("q", "m", annotations=tie)}
    nodes = {"n": node("n"), "m": node("m")}
    assert Looked(nodes=nodes, pods=pods, podgroups={"default/g": group}).writes(*binds("p", "q")) == ["apart"]
    nodes["m"]["metadata"]["labels"] = {"rack": "n"}
    assert Looked(nodes=nodes, pods=pods, podgroups={"default/g": group}).writes(*binds("p", "q")) == []


def test_a_gang_that_starts_in_part_is_wrong() -> None:
    group, tie = {"default/g": {"metadata": named("g"), "spec": {"minMember": 2}}}, {"pod-group-name": "g"}
    for node_of_q, at, wrong in (("", 50.0, ["starts in part"]), ("n", 50.0, []), ("", 98.0, [])):
        pods = {"default/p": pod("p", "n", annotations=tie), "default/q": pod("q", node_of_q, annotations=tie)}
        run = Looked(nodes={"n": node("n")}, pods=pods, podgroups=group)
        run.elapsed = at
        assert run.writes(*binds("p")) == []
        run.elapsed += 6.0
        assert run.writes(Write("patch", NODES, "", "n")) == wrong


# -------------------------------------------------------------------------------------------------------------- devices

RESULT = {"request": "r", "driver": "d", "pool": "n", "device": "gpu-0"}
CLASS = {"metadata": {"name": "gpu", "uid": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]}}


def devices(**device: Any) -> Plain:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    made = [{"name": "gpu-0", **device}, {"name": "gpu-1"}]
    return {"metadata": {"name": "s", "uid": "s"}, "spec": {"driver": "d", "nodeName": "n", "pool": pool, "devices": made}}


def claim(count: int = 1, **status: Any) -> Plain:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}
    allocation = {"devices": {"results": [RESULT]}}
    return {
        "metadata": named("c"),
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": allocation, **status},
    }


def allocates(**objects: dict[str, Plain]) -> list[str]:
    given: dict[str, dict[str, Plain]] = {
        "nodes": {"n": node("n")}, "resourceslices": {"s": devices()}, "deviceclasses": {"gpu": CLASS},
        "resourceclaims": {"default/c": claim()}, **objects,
    }  # fmt: skip
    return Looked(**given).writes(Write("patch", RESOURCE_CLAIMS, "default", "c", {"status": {"allocation": {"devices": {}}}}))


def test_devices_that_the_claim_did_not_ask_for_are_wrong() -> None:
    assert allocates() == []
    assert allocates(resourceclaims={"default/c": claim(count=2)}) == ["wrong devices"]
    other = copy.deepcopy(CLASS)
    other["spec"]["selectors"][0]["cel"]["expression"] = "device.driver == 'e'"
    assert allocates(deviceclasses={"gpu": other}) == ["wrong devices"]
    assert allocates(deviceclasses={}) == ["wrong devices"]


def test_devices_that_are_tainted_are_wrong() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    assert allocates(resourceslices={"s": devices(taints=[taint])}) == ["wrong devices"]
    rule = {"metadata": {"name": "r", "uid": "r"}, "spec": {"deviceSelector": {"pool": "n", "device": "gpu-0"}, "taint": taint}}
    assert allocates(devicetaintrules={"r": rule}) == ["wrong devices"]
    rule["spec"]["deviceSelector"]["device"] = "gpu-1"
    assert allocates(devicetaintrules={"r": rule}) == []


def test_a_pod_whose_devices_are_not_ready_is_wrong() -> None:
    pods = {"default/p": pod("p", "n", resourceClaims=[{"name": "x", "resourceClaimName": "c"}])}
    found = claim()
    found["status"]["allocation"]["devices"]["results"] = [{**RESULT, "bindingConditions": ["Attached"]}]
    claims = {"default/c": found}
    assert Looked(nodes={"n": node("n")}, pods=pods, resourceclaims=claims).writes(*binds("p")) == ["not ready"]
    ready = {"driver": "d", "pool": "n", "device": "gpu-0", "conditions": [{"type": "Attached", "status": "True"}]}
    found["status"]["devices"] = [ready]
    assert Looked(nodes={"n": node("n")}, pods=pods, resourceclaims=claims).writes(*binds("p")) == []


# -------------------------------------------------------------------------------------------------------- who has to go


def taken(victim: Plain, taker: Plain, told: str, **objects: dict[str, Plain]) -> list[str]:
    condition = {"type": "DisruptionTarget", "message": told, "lastTransitionTime": "2026-01-01T00:00:30Z"}
    victim["status"] |= {"conditions": [condition], "startTime": "2026-01-01T00:00:01Z"}
    run = Looked(pods={"default/victim": victim, "default/taker": taker}, **objects)
    patch = Write("patch", PODS, "default", "victim", {"status": {"conditions": [condition]}}, "status")
    return run.writes(patch, Write("delete", PODS, "default", "victim", about="default/taker"))


def test_who_is_no_less_important_need_not_go() -> None:
    assert taken(pod("victim", "n", priority=5), pod("taker", "", priority=6), "for priority") == []
    assert taken(pod("victim", "n", priority=5), pod("taker", "", priority=5), "for priority") == ["taken without right"]


def queue(name: str, **spec: Any) -> Plain:
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def of(queue: str) -> Plain:
    return {"kai.scheduler/queue": queue}


def test_who_may_not_be_preempted_need_not_go() -> None:
    queues = {"a": queue("a"), "b": queue("b")}
    told, taker = "queue b takes back its share from queue a", pod("taker", "", of("b"))
    assert taken(pod("victim", "n", of("a"), priority=99), taker, told, queues=queues) == []
    assert taken(pod("victim", "n", of("a"), priority=100), taker, told, queues=queues) == ["taken without right"]
    group = {"default/g": {"metadata": named("g"), "spec": {"queue": "a", "preemptibility": "non-preemptible"}}}
    member = pod("victim", "n", annotations={"pod-group-name": "g"})
    assert taken(member, taker, told, queues=queues, podgroups=group) == ["taken without right"]


def test_who_has_not_run_for_long_enough_need_not_go() -> None:
    told, taker = "queue b takes back its share from queue a", pod("taker", "", of("b"))
    for least, wrong in (("29s", []), ("31s", ["taken without right"])):
        queues = {
            "top": queue("top"),
            "a": queue("a", parentQueue="top", reclaimMinRuntime=least),
            "b": queue("b", parentQueue="top"),
        }
        assert taken(pod("victim", "n", of("a")), taker, told, queues=queues) == wrong
        assert taken(pod("victim", "n", of("a")), taker, f"{told}; there is another place on node m", queues=queues) == []
    queues = {"a": queue("a", preemptMinRuntime="31s")}
    own, told = pod("taker", "", of("a"), priority=9), "preempting to accommodate a higher priority pod"
    assert taken(pod("victim", "n", of("a")), own, told, queues=queues) == ["taken without right"]


def test_what_is_more_than_a_gang_needs_goes_at_any_time() -> None:
    queues = {"a": queue("a", reclaimMinRuntime="31s"), "b": queue("b")}
    told, taker = "queue b takes back its share from queue a", pod("taker", "", of("b"))
    member = pod("victim", "n", annotations={"pod-group-name": "g"})
    for least, wrong in ((0, []), (1, ["taken without right"])):
        group = {"default/g": {"metadata": named("g"), "spec": {"queue": "a", "minMember": least}}}
        assert taken(member, taker, told, queues=queues, podgroups=group) == wrong


def test_a_queue_that_has_more_than_it_may_have_is_wrong() -> None:
    spec = {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}
    found = claim(reservedFor=[{"name": "p"}])
    for limit, wrong in ((1, []), (0, ["queue/top"]), (-1, [])):
        top = queue("top")
        top["metadata"]["annotations"] = {"dray.dev/resources": json.dumps({"deviceclass/gpu": {"limit": limit}})}
        queues = {"top": top, "a": queue("a", parentQueue="top")}
        pods = {"default/p": pod("p", "n", of("a"), **spec)}
        run = Looked(nodes={"n": node("n")}, queues=queues, pods=pods, resourceclaims={"default/c": found})
        assert [about for about, _ in run.queues.beyond()] == wrong
