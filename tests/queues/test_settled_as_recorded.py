"""The scheduler settles KAI-Scheduler's own test cases as KAI's tests say, and random clusters at least as well as KAI did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from dray.numa.placement import PREDICTED
from dray.simulate.settle import Settling, WorldLine
from tests.queues.vectors import lines

Json = dict[str, Any]
State = tuple[str, str]
SAME: Final = {"Gated": "Pending", "Bound": "Running", "Allocated": "Running", "StuckInReleasing": "Releasing"}

# Features beyond queues, gangs, whole GPUs, cpu, memory and zones.
BOTH_HAVE: Final = {"dra", "pod_affinity", "min_runtime", "volumes", "topology_constraint"}
# The labels of its pods, or what one of them requires of nodes, are not in the record, and cannot be guessed.
UNSAID: Final = {"TestInterpodAffinityPredicate/1", "TestHandleTopologyAllocation/1"}
# KAI starts nobody who uses a claim by name that has no label of the pod's queue. Why not here: docs/fidelity.md.
CLAIMS_WITHOUT_A_LABEL: Final = {"TestDRAAllocation/8", "TestDRAAllocation/9"}

# Clusters in which KAI ended with more of something: GPUs in use, GPUs of a queue, or pods that nobody evicted. Why:
# docs/fidelity.md.
MORE_RUN_AFTER_MOVES: Final = {"sc-0090", "sc-0093", "sc-0144"}
KAI_S_RUNS_DIFFER: Final = {"sc-0015", "sc-0098"}
ROOM_THAT_WAS_MADE_FOR_OTHERS: Final = {"sc-0004", "sc-0045", "sc-0118"}
SHARES_THAT_KAI_ROUNDS_OTHERWISE_LATER: Final = {"sc-0063"}
A_HIGHER_PRIORITY_THAT_KAI_SKIPS: Final = {"sc-0100"}
GAPS_THAT_NOBODY_FITS: Final = {"sc-0020", "sc-0122"}


class Case:
    """A recorded world in the scheduler's hands."""

    def __init__(self, line: Json) -> None:
        self.line, self.world = line, line["world"]
        self.settling = Settling(msgspec.convert(self.world, WorldLine), tuple(line["actions"]))
        self.groups = [(group["name"], pod["name"]) for group in self.world["podgroups"] for pod in group["pods"]]

    def placed(self) -> set[str]:
        return {name for _, name in self.groups if self.settling.pod(name)["spec"].get("nodeName")}

    def states(self, before: set[str]) -> dict[str, State]:
        moved = {
            placed.pod.metadata.name: nodes[placed.pod.uid]
            for plan in self.settling.plans()
            for step, nodes in plan.moved
            for placed in step.pods
        }
        return {name: self._state(name, before, moved) for _, name in self.groups}

    def _state(self, name: str, before: set[str], moved: dict[str, str]) -> State:
        pod = self.settling.pod(name)
        node, status = pod["spec"].get("nodeName", ""), pod["status"]
        if status["phase"] in ("Succeeded", "Failed"):
            return status["phase"], ""
        if pod["metadata"].get("deletionTimestamp"):
            return ("Pipelined", moved[name]) if name in moved else ("Releasing", node)
        if node:
            return ("Running" if name in before else "Binding"), node
        nominated = status.get("nominatedNodeName", "")
        return ("Pipelined", nominated) if nominated else ("Pending", "")

    def wrong(self, states: dict[str, State], *, running: bool) -> list[str]:
        """Pods that are not as they are expected to be; ``running``: between rounds, what was placed runs."""
        expected = self.line["expected"]
        wanted = [(name, expected["podgroups"][group]) for group, name in self.groups if group in expected["podgroups"]]
        wanted += [(name, want) for name, want in expected["pods"].items() if name in states]
        found = [told for name, want in wanted if (told := _differs(name, states[name], want, running=running))]
        return found + [told for name, want in wanted if (told := self._elsewhere(name, states[name][0], want))]

    def _elsewhere(self, name: str, state: str, want: Json) -> str:
        """A pod that is bound, and not into the zones that are expected."""
        if state != "Binding" or "numa_zone_indices" not in want:
            return ""
        shares = msgspec.json.decode(self.settling.pod(name)["metadata"]["annotations"].get(PREDICTED, "[]"))
        zones = [int(share["zone"].rpartition("-")[2]) for share in shares]
        return "" if zones == want["numa_zone_indices"] else f"{name}: in zones {zones}, not {want['numa_zone_indices']}"


def _differs(name: str, found: State, want: Json, *, running: bool) -> str:
    state, node = found
    wanted = SAME.get(want.get("state", ""), want.get("state", ""))
    if running:
        state, wanted = (each.replace("Binding", "Running") for each in (state, wanted))
    if wanted and state != wanted:
        return f"{name}: {state}, not {wanted}"
    if node and want.get("node") and node != want["node"]:
        return f"{name}: on {node}, not {want['node']}"
    return ""


def differences(line: Json) -> list[str]:
    case = Case(line)
    if line["kind"] == "single-session":
        before = case.placed()
        case.settling.round()
        return case.wrong(case.states(before), running=False)
    until = line["rounds_until_match"]
    for number in range(until + line["rounds_after_match"]):
        before = case.placed()
        case.settling.round()
        in_round = case.wrong(case.states(before), running=True)
        case.settling.between()
        after = case.wrong(case.states(case.placed()), running=True)
        if number + 1 >= until and in_round and after:
            return after
    return []


def cases() -> Iterator[Json]:
    """Those that use nothing but what both have."""
    for line in lines("tables"):
        if line["kind"] != "numa-admission" and BOTH_HAVE.issuperset(line["outside"]) and _function(line) not in UNSAID:
            yield with_labels(line) if "pod_affinity" in line["outside"] else line


def _function(line: Json) -> str:
    return str(line["id"].partition("#")[2])


def with_labels(line: Json) -> Json:
    """What the record leaves out: what pods are called, and that each node is of its own type."""
    for node in line["world"]["nodes"]:
        node["labels"]["kai.scheduler/type"] = node["name"]
    for group in line["world"]["podgroups"]:
        for pod in group["pods"]:
            pod["labels"] = {"app": group["name"].removeprefix("existing-")}
    return line


def test_kai_s_own_cases_are_settled_as_its_tests_expect() -> None:
    found = {line["id"]: told for line in cases() if (told := differences(line))}
    assert {key.partition("#")[2] for key in found} == CLAIMS_WITHOUT_A_LABEL, found


def gpus(world: Json, pods: dict[str, Json]) -> Counter[str]:
    found: Counter[str] = Counter()
    for group in world["podgroups"]:
        for pod in group["pods"]:
            if pods[pod["name"]]["state"] in ("Running", "Binding", "Bound"):
                found[group["queue"]] += pod["requests"].get("gpu", 0)
    return found


@pytest.mark.slow
def test_random_clusters_run_more_with_fewer_evictions_than_with_kai() -> None:
    mine: Counter[str] = Counter()
    kai: Counter[str] = Counter()
    worse = []
    for line in lines("scenarios"):
        settled = Settling(msgspec.convert(line["world"], WorldLine)).settle()
        assert settled.settled, line["id"]
        ours, theirs = gpus(line["world"], settled.pods), gpus(line["world"], line["final"])
        mine.update(gpus=ours.total(), evictions=settled.evictions)
        kai.update(gpus=theirs.total(), evictions=line["evictions"])
        fewer = ours.total() < theirs.total() or any(ours[queue] < theirs[queue] for queue in theirs)
        if fewer or settled.evictions > line["evictions"]:
            worse.append(line["id"])
    assert mine["gpus"] >= kai["gpus"]
    assert mine["evictions"] <= 0.72 * kai["evictions"]
    assert set(worse) <= {
        *MORE_RUN_AFTER_MOVES,
        *KAI_S_RUNS_DIFFER,
        *ROOM_THAT_WAS_MADE_FOR_OTHERS,
        *SHARES_THAT_KAI_ROUNDS_OTHERWISE_LATER,
        *A_HIGHER_PRIORITY_THAT_KAI_SKIPS,
        *GAPS_THAT_NOBODY_FITS,
    }
