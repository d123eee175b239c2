"""What KAI-Scheduler's own tests saw a job reclaim, these rules allow; where it could reclaim nothing they often say why."""

from __future__ import annotations

from typing import Any, Final

from dray.queues.gangs import next_attempt, next_victims
from dray.queues.order import Standing
from dray.queues.reclaim import Reclaimer, is_candidate, may_reclaim, may_take
from dray.queues.tree import Entitlement, Queue, Tree
from tests.queues.test_gangs_as_recorded import STATES, ended, gang, steps
from tests.queues.vectors import lines

Json = dict[str, Any]
Amounts = dict[str, float]
RESOURCES: Final = ("cpu_milli", "memory_bytes", "gpu")


class Case:
    """A cluster in which one job waits and nothing but reclaim is done."""

    def __init__(self, line: Json, waiting: Json) -> None:
        self.line, self.world, self.waiting = line, line["world"], waiting
        self.tree = Tree(
            Queue(q["name"], q.get("parent") or "", q["priority"], q["creation_rank"], entitled(q)) for q in self.world["queues"]
        )
        self.requests: dict[str, Json] = {pod["name"]: pod["requests"] for g in self.world["podgroups"] for pod in g["pods"]}
        fair = {q["name"]: q["kai_fair_share_at_start"] for q in self.world["queues"]}
        held, fixed = self.held(everything=True), self.held(everything=False)
        self.standings = {name: Standing(self.tree[name], held[name], fair[name], fixed[name]) for name in self.tree.queues}
        self.job = Reclaimer(
            waiting["queue"], self.sum({member.name for member in next_attempt(gang(waiting, {}))}), waiting["preemptible"]
        )

    def held(self, *, everything: bool) -> dict[str, Amounts]:
        found: dict[str, Amounts] = {name: dict.fromkeys(RESOURCES, 0.0) for name in self.tree.queues}
        for group in self.world["podgroups"]:
            running = {pod["name"] for pod in group["pods"] if pod["state"] in ("Running", "Bound", "Binding", "Allocated")}
            for queue in self.tree.upwards(group["queue"]) if everything or not group["preemptible"] else ():
                for name, amount in self.sum(running).items():
                    found[queue.name][name] += amount
        return found

    def sum(self, pods: set[str]) -> Amounts:
        return {name: sum(self.requests[pod].get(name, 0) for pod in pods) for name in RESOURCES}

    def taken(self) -> list[tuple[str, Amounts]]:
        """What was evicted for good, in blocks, in the order of the first eviction of each job."""
        order = dict.fromkeys(event["pod"] for event in self.line["observed"]["events"] if event["event"] == "evict")
        owners = {pod["name"]: group["name"] for group in self.world["podgroups"] for pod in group["pods"]}
        groups = {group["name"]: group for group in self.world["podgroups"]}
        blocks: list[tuple[str, Amounts]] = []
        for name in dict.fromkeys(owners[pod] for pod in order):
            gone, before = ended(self.line, groups[name], {"active"}, "Releasing"), set[str]()
            for step in steps(groups[name], next_victims, "leaving"):
                if block := (step - before) & gone:
                    blocks.append((groups[name]["queue"], self.sum(block)))
                before = step
        return blocks

    def candidates(self) -> list[str]:
        victims = (
            group
            for group in self.world["podgroups"]
            if group["preemptible"] and any(STATES[pod["state"]] == "active" for pod in group["pods"])
        )
        return [group["name"] for group in victims if is_candidate(self.job, group["queue"], self.tree, self.standings)]


def entitled(queue: Json) -> dict[str, Entitlement]:
    return {
        name: Entitlement(queue[name]["quota"], queue[name]["limit"], queue[name]["over_quota_weight"])
        for name in RESOURCES
        if name in queue
    }


def cases() -> list[Case]:
    found = []
    for line in lines("tables"):
        if line.get("kind") != "single-session" or line["outside"] or line.get("actions") != ["reclaim"]:
            continue
        waiting = [g for g in line["world"]["podgroups"] if any(pod["state"] == "Pending" for pod in g["pods"])]
        if len(waiting) == 1:
            found.append(Case(line, waiting[0]))
    return found


def test_what_was_reclaimed_is_allowed_and_what_is_not_allowed_was_not_reclaimed() -> None:
    reclaimed = refused = 0
    for case in cases():
        allowed = may_reclaim(case.job, case.standings) is None and bool(case.candidates())
        if ended(case.line, case.waiting, {"pending"}, "Binding", "Pipelined"):
            reclaimed += 1
            assert allowed, case.line["id"]
            queues = {queue for queue, _ in case.taken()}
            assert all(is_candidate(case.job, queue, case.tree, case.standings) for queue in queues), case.line["id"]
            assert may_take(case.job, case.taken(), case.tree, case.standings) is None, case.line["id"]
        else:
            refused += not allowed
    assert reclaimed > 40
    assert refused > 10
