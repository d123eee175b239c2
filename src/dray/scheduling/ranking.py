"""What nodes are worth for one pod when other pods have a say: all scores of a few nodes, compared with each other."""

from __future__ import annotations

from dray.scheduling.nodes import NodeInfo
from dray.scheduling.plan import Examined, Plan
from dray.scheduling.plugins.base import normalized
from dray.scheduling.plugins.neighbours import View


def totals_of(plan: Plan, view: View, found: list[tuple[NodeInfo, Examined]]) -> list[int]:
    """One total per node: what the nodes are worth by themselves, normalized, and what other pods add."""
    totals = [examined[1] for _, examined in found]
    if not found:
        return totals
    for number, score in enumerate(plan.node_scores):
        raw = [examined[2][number] for _, examined in found]
        highest = max(raw)
        for index, value in enumerate(raw):
            totals[index] += score.weight * normalized(value, highest, score.normalize)
    for weight, values in view.scores([info for info, _ in found]):
        for index, value in enumerate(values):
            totals[index] += weight * value
    return totals
