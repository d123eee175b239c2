"""Whoever edits objects by hand while everything runs: every promise holds, but for what nobody can help."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.cluster.port import Write
from dray.runtime.virtual import Written
from dray.simulate.run import simulate
from dray.simulate.scenario import made_of
from tests.simulate.judging import judge
from tests.simulate.judging_hands import Hands
from tests.simulate.random_hands import EDITS, Handled, with_hands
from tests.simulate.random_scenarios import Document, generate
from tests.simulate.soak import Flavour

SEEDS = (7, 9, 10, 11)
MORE_SEEDS = range(640_000_000, 640_000_012)
IN_COMPANY = range(641_000_000, 641_000_006)
OF_TEAMS = range(642_000_000, 642_000_004)
OF_CROWDS = range(643_000_000, 643_000_004)


@pytest.mark.parametrize("seed", SEEDS)
def test_hands_break_no_promise(seed: int) -> None:
    assert judge(Flavour(hands=True).drawn(seed)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_hands_break_none_either(seed: int) -> None:
    assert judge(Flavour(hands=True).drawn(seed)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", IN_COMPANY)
def test_nor_do_hands_in_company(seed: int) -> None:
    assert judge(Flavour(company=True, hands=True).drawn(seed)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", OF_TEAMS)
def test_nor_do_hands_among_teams(seed: int) -> None:
    assert judge(Flavour(company=True, teams=True, hands=True).drawn(seed)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", OF_CROWDS)
def test_nor_do_hands_in_a_crowd(seed: int) -> None:
    assert judge(Flavour(crowds=True, hands=True).drawn(seed)).failures == []


def test_what_hands_did_is_steps_that_run_the_same() -> None:
    """So a seed that goes wrong is a file, and is made small as any other."""
    documents = generate(11)
    run = Handled(made_of((each["kind"], each) for each in documents), 11)
    run.play()
    again = with_hands(documents, 11)
    assert again == with_hands(documents, 11)
    assert documents == generate(11)
    (steps,) = (each["spec"]["steps"] for each in again if each["kind"] == "Scenario")
    assert len(run.hands.steps) >= 10
    assert all(step in steps for step in run.hands.steps)
    assert simulate(made_of((each["kind"], each) for each in again)).digest == run.digest


def test_every_edit_is_made_of_something() -> None:
    """Else a kind of edit would be drawn, and never happen."""
    pods = [pod(f"waits-{name}", resourceClaims=[{"name": "d", "resourceClaimName": name}]) for name in ("a", "b")]
    requests = {"limits": {"dray.dev/gpu": "1"}, "requests": {"cpu": "1"}}
    pods += [{**pod("extended"), "spec": {"containers": [{"name": "c", "image": "x", "resources": requests}]}}]
    claims = [claim("a", 2), claim("b", 99), {**claim("free", 1), "status": allocated()}]
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"resources": {}}}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}}
    documents = [*claims, *pods, queue, {**group, "spec": {"minMember": 1}}, scenario(hardware=["gpu8:1"], until="0.5s")]
    run = Handled(made_of((each["kind"], each) for each in documents), 0)
    made = {name: edit(run.hands) for name, edit in EDITS.items()}
    run.run(0.5)
    made |= {name: edit(run.hands) for name, edit in EDITS.items() if not made[name]}
    assert {name for name, edits in made.items() if not edits} == {
        "unreserve"
    }  # every claim that is reserved is of a pod that runs
    assert "resourceVersion" not in json.dumps([body for edits in made.values() for _, _, body in edits])


# ----------------------------------------------------------------------------------------------- what is excused, and what is not


def pod(name: str, **spec: Any) -> Document:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def claim(name: str, count: int) -> Document:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.dray.dev", "count": count}}]
    metadata = {"name": name, "namespace": "default"}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    return {**kind, "spec": {"devices": {"requests": requests}}}


def allocated() -> Document:
    result = {"request": "r", "driver": "gpu.dray.dev", "pool": "gpu8-0", "device": "gpu-7"}
    return {"allocation": {"devices": {"results": [result]}}}


def scenario(*steps: Document, **spec: Any) -> Document:
    given = {"until": "30s", "hardware": ["plain:1"], "steps": list(steps), **spec}
    return {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "s"}, "spec": given}


def cleared_at(at: str) -> list[Document]:
    """A pod whose claim is cleared by hand, where what happens is told a second late, and writes take one."""
    reference = {key: value for key, value in claim("a", 1).items() if key != "spec"}
    clear = {"at": at, "patch": {**reference, "status": {"allocation": None, "reservedFor": None}}}
    late = {"eventDelay": ["1s", "1s"], "writeDelay": ["1s", "1s"]}
    run = scenario(clear, hardware=["gpu8:1"], faults=late)
    return [claim("a", 1), pod("p", resourceClaims=[{"name": "d", "resourceClaimName": "a"}]), run]


def ended(at: str) -> tuple[str, str | None]:
    (found,) = simulate(made_of((each["kind"], each) for each in cleared_at(at))).pods
    return found["phase"], found["node"]


def test_a_pod_whose_claim_is_taken_while_it_is_bound_need_not_start() -> None:
    """It is decided to bind it at 5 s, and it is bound at 6 s; that the claim is no longer its own is told at 5.9 s."""
    assert ended("4.9s") == ("Pending", "gpu8-0")
    assert judge(cleared_at("4.9s")).failures == []


def test_a_pod_whose_claim_is_taken_before_starts_with_another() -> None:
    assert ended("2.9s") == ("Running", "gpu8-0")
    assert judge(cleared_at("2.9s")).failures == []


class Told:
    """A run in which a claim is taken from a pod by hand, or by somebody else."""

    by_hand, elapsed = False, 0.0

    def __init__(self) -> None:
        self._versions: dict[str, float] = {}
        self.hands = Hands(self)
        self.claim("uid", 1)
        self.pod("uid")

    def follow(self, listener: Callable[[str, str, bytes | None], None]) -> None:
        self._follower = listener

    def listen(self, listener: Callable[[Written], None]) -> None:
        self._listener = listener

    def told(self, binding: Write) -> dict[str, float]:
        return self._versions

    def claim(self, user: str, version: int, *, by_hand: bool = False) -> None:
        status = {**allocated(), "reservedFor": [{"resource": "pods", "name": "p", "uid": user}]} if user else {}
        self.by_hand = by_hand
        made = {"metadata": {"resourceVersion": str(version)}, "status": status}
        self._follower(RESOURCE_CLAIMS.resource, "default/a", msgspec.json.encode(made))
        self.by_hand = False

    def pod(self, uid: str, node: str = "") -> None:
        made = {"metadata": {"uid": uid}, "spec": {"nodeName": node} if node else {}}
        self._follower(PODS.resource, "default/p", msgspec.json.encode(made))

    def bind(self, **versions: float) -> None:
        self._versions = {f"default/{name}": version for name, version in versions.items()}
        self.pod("uid", "node")
        write = Write("create", PODS, "default", "p", subresource="binding")
        self._listener(Written(self.elapsed, "scheduler", write, None))

    def excused(self, kind: str, *objects: str) -> bool:
        return self.hands.excuses(kind, objects, self.elapsed)


def test_whom_a_scheduler_binds_that_knew_is_not_excused() -> None:
    for version, excused in ((1, True), (2, False)):
        run = Told()
        run.claim("", 2, by_hand=True)
        run.bind(a=version)
        assert run.excused("never starts", "pod/default/p") is excused


def test_what_is_not_taken_by_hand_is_not_excused() -> None:
    run = Told()
    run.claim("", 2)
    run.bind(a=1)
    assert not run.excused("never starts", "pod/default/p")


def test_only_that_pod_and_that_claim_are_excused_and_only_for_what_comes_of_it() -> None:
    run = Told()
    run.bind(a=1)
    run.claim("", 2, by_hand=True)
    assert run.excused("pod-claim", "pod/default/p", "claim/default/a")
    assert run.excused("never starts", "pod/default/p")
    assert not run.excused("pod-claim", "pod/default/p", "claim/default/b")
    assert not run.excused("never starts", "pod/default/q")
    for kind in ("device-owner", "would fit", "no reason", "left over: claim", "scheduler", "never goes"):
        assert not run.excused(kind, "pod/default/p", "claim/default/a"), kind


def test_the_next_pod_of_the_name_is_not_excused() -> None:
    run = Told()
    run.bind(a=1)
    run.claim("", 2, by_hand=True)
    run.pod("another", "node")
    run.elapsed = 1.0
    assert not run.excused("never starts", "pod/default/p")
