"""What nodes are worth for one pod when all scores of a few nodes are compared with each other, and what that is made of."""

from __future__ import annotations

from dray.books.nodes import NodeInfo
from dray.scheduling.placing.plan import Examined, Judged, Plan
from dray.scheduling.plugins.base import normalized
from dray.scheduling.plugins.neighbours import View

Found = tuple[NodeInfo, Examined, Judged]


def totals_of(plan: Plan, view: View | None, found: list[Found]) -> list[int]:
    """One total per node, in hundredths: what the nodes are worth by themselves, normalized, and what other pods add."""
    totals = [examined[1] for _, examined, _ in found]
    if not found:
        return totals
    for number, score in enumerate(plan.raw_scores):
        raw = _raw(found, number)
        highest = max(raw)
        for index, value in enumerate(raw):
            totals[index] += score.weight * normalized(value, highest, score.normalize)
    for _, weight, values in view.scores([info for info, _, _ in found]) if view is not None else ():
        for index, value in enumerate(values):
            totals[index] += weight * value
    return [100 * total + judged[2] for total, (_, _, judged) in zip(totals, found)]


def _raw(found: list[Found], number: int) -> list[int]:
    """The last of the raw scores is the rank of the devices, where there is one."""
    return [examined[2][number] if number < len(examined[2]) else judged[1] for _, examined, judged in found]


def parts_of(plan: Plan, view: View | None, found: list[Found]) -> list[dict[str, int]]:
    """By node: points by plugin, which add up to the total; but for the devices' own points."""
    parts: list[dict[str, int]] = [
        {score.name: score.weight * score.measure(info) for score in plan.scores if score.normalize == "none"}
        for info, _, _ in found
    ]
    for number, score in enumerate(plan.raw_scores if found else ()):
        raw = _raw(found, number)
        for part, value in zip(parts, raw):
            part[score.name] = score.weight * normalized(value, max(raw), score.normalize)
    for name, weight, values in view.scores([info for info, _, _ in found]) if view is not None and found else ():
        for part, value in zip(parts, values):
            part[name] = weight * value
    return parts
