"""Gangs started, shrank and were given up in KAI-Scheduler's own tests just as these rules say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from dray.queues.gangs import Gang, Member, Part, State, is_stale, next_attempt, next_victims, stale_until
from tests.queues.vectors import lines

Json = dict[str, Any]

STATES: Final[dict[str, State]] = {
    "Pending": "pending",
    "Gated": "gated",
    "Running": "active",
    "Bound": "active",
    "Binding": "active",
    "Allocated": "active",
    "Pipelined": "active",
    "Releasing": "leaving",
    "StuckInReleasing": "leaving",
    "Succeeded": "succeeded",
    "Failed": "gone",
}


def groups() -> Iterator[tuple[Json, Json]]:
    """Every pod group of a single session that uses nothing but queues and gangs, with the line that it is in."""
    for line in lines("tables"):
        if line.get("kind") == "single-session" and not line["outside"] and line.get("world"):
            yield from ((line, group) for group in line["world"]["podgroups"])


def tree(group: Json) -> Part:
    parts: list[Json] = group.get("subgroups") or []
    if not parts:
        return Part("", group.get("min_member", 1))

    def below(name: str) -> tuple[Part, ...]:
        return tuple(made(part) for part in parts if (part.get("parent") or "") == name)

    def made(part: Json) -> Part:
        if part["kind"] == "pods":
            return Part(part["name"], part["min_member"])
        return Part(part["name"], part.get("min_sub_group"), below(part["name"]))

    return Part("", group.get("min_sub_group"), below(""))


def gang(group: Json, changed: dict[str, State]) -> Gang:
    return Gang(
        tree(group),
        [
            Member(
                pod["name"],
                changed.get(pod["name"], STATES[pod["state"]]),
                pod.get("subgroup") or "",
                int(pod.get("task_priority_label") or 0),
                age,
                pod["name"],
            )
            for age, pod in enumerate(group["pods"])
        ],
    )


def steps(group: Json, step: Callable[[Gang], list[Member]], becomes: State) -> list[set[str]]:
    """What the first, the first two, … steps take together."""
    changed: dict[str, State] = {}
    found: list[set[str]] = []
    while taken := step(gang(group, changed)):
        changed |= {member.name: becomes for member in taken}
        found.append(set(changed))
    return found


def ended(line: Json, group: Json, began: set[State], *states: str) -> set[str]:
    """The pods that were in one of these states at the beginning and are in one of those at the end."""
    pods = line["observed"]["pods"]
    return {p["name"] for p in group["pods"] if STATES[p["state"]] in began and pods[p["name"]]["state"] in states}


def test_pods_start_in_these_steps() -> None:
    seen = 0
    for line, group in groups():
        started = ended(line, group, {"pending"}, "Binding", "Pipelined")
        if started:
            seen += 1
            assert started in steps(group, next_attempt, "active"), (line["id"], group["name"])
    assert seen > 150


def test_pods_are_victims_in_these_steps() -> None:
    seen = 0
    for line, group in groups():
        left = ended(line, group, {"active"}, "Releasing", "Pipelined")
        if not left or line["actions"] == ["stalegangeviction"]:
            continue
        seen += 1
        taken = steps(group, next_victims, "leaving")
        # Who fits where it was after all is not moved by a consolidation.
        exact = "consolidation" not in line["actions"]
        assert left in taken if exact else any(left <= each for each in taken), (line["id"], group["name"])
    assert seen > 150


def test_broken_gangs_are_given_up_when_their_grace_is_over() -> None:
    seen = 0
    for line, group in groups():
        if line["actions"] != ["stalegangeviction"]:
            continue
        seen += 1
        evicted = ended(line, group, {"active"}, "Releasing")
        until = stale_until(0.0, group.get("staleness_grace_s"))
        over = until is not None and group.get("stale_for_s", 0) >= until
        active = {pod["name"] for pod in group["pods"] if STATES[pod["state"]] == "active"}
        assert evicted == (active if is_stale(gang(group, {})) and over else set()), line["id"]
    assert seen >= 10
