"""Why this node and these devices: the nodes that would do for a pod, best first, and what their scores are made of.

The numbers are the scheduler's own, asked as things are now. Of a pod that has a node they tell what would be decided if it
were placed again with everything else as it is, so another node can be the best by now; then that is said too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dray.books.nodes import NodeInfo
from dray.devices import DeviceScore, Rating
from dray.scheduling.placing.candidates import turn
from dray.scheduling.placing.plan import Plan
from dray.scheduling.placing.state import CycleState
from dray.scheduling.plugins.device_scoring import said
from dray.scheduling.scheduler import Scheduler

# Nodes that are told; the chosen one is always among them.
TOLD: Final = 4
# Where the devices' own points stand among those of the plugins.
DEVICE_POINTS: Final = ("DevicesReady", "DeviceWaste", "DeviceCloseness", "DevicesInUse")


class NodePoints(msgspec.Struct):
    """One node that would do: points by plugin add up to the total; the devices are those that the pod would get there."""

    node: str
    total: float
    points: dict[str, float]
    rating: Rating | None = None
    devices: tuple[DeviceScore, ...] = ()


class Choice(msgspec.Struct):
    """``node``: where the pod is, or the best node for it; ``best``: no other is better; ``nodes``: the best few of
    ``compared``, best first."""

    node: str
    best: bool
    strategy: str
    compared: int
    nodes: list[NodePoints]

    def of(self, node: str) -> NodePoints | None:
        return next((found for found in self.nodes if found.node == node), None)

    def summary(self) -> str:
        """One sentence about the node."""
        own = self.of(self.node)
        told = f": {said(own.rating)}" if own is not None and own.rating is not None else ""
        if self.compared == 1:
            return f"node {self.node}, the only one that would do{told}"
        if own is None:
            return f"node {self.node} would not do if the pod were placed now"
        equal = sum(1 for found in self.nodes if found.total == self.nodes[0].total)
        if self.best and equal > 1:
            return f"node {self.node}, as good as {'any other' if equal > 2 else 'the next'} of {self.compared} nodes{told}"
        if not self.best:
            return f"node {self.node} (by now {self.nodes[0].node} would be better){told}"
        return f"node {self.node}, best of {self.compared} nodes{told}"


def choice(scheduler: Scheduler, wish: CycleState, fits: Sequence[str], placed: str = "") -> Choice | None:
    """``fits``: the nodes that will do. None where there is none."""
    infos = [info for name in fits if (info := scheduler.nodes.get(name)) is not None]
    if not infos:
        return None
    ranked = _ranked(scheduler, wish, infos)
    totals = {found.node: found.total for found in ranked}
    node = placed or ranked[0].node
    best = node in totals and totals[node] >= ranked[0].total
    told = [found for number, found in enumerate(ranked) if number < TOLD or found.node == node]
    nodes = [_with_devices(scheduler, wish, found) for found in told]
    return Choice(node, best, wish.profile.device_scoring, len(ranked), nodes)


def _ranked(scheduler: Scheduler, wish: CycleState, infos: list[NodeInfo]) -> list[NodePoints]:
    plan = scheduler.cycle.plan(wish)
    parts = plan.parts([(info, plan.examine(info), plan.judged(info)) for info in infos])
    made = [_points(scheduler, wish, plan, info, part) for info, part in zip(infos, parts)]
    order = sorted(range(len(infos)), key=lambda index: (-made[index].total, turn(infos[index])))
    return [made[index] for index in order]


def _points(scheduler: Scheduler, wish: CycleState, plan: Plan, info: NodeInfo, parts: dict[str, int]) -> NodePoints:
    points: dict[str, float] = dict(parts)
    claims = scheduler.cycle.devices.claims_on(wish, info)[0]
    score = scheduler.cycle.devices.scorer.points_on(info.name, claims, wish.profile) if plan.devices is not None else None
    if score is not None:
        points |= {name: value / 100 for name, value in zip(DEVICE_POINTS, score)}
    return NodePoints(info.name, round(sum(points.values()), 2), points)


def _with_devices(scheduler: Scheduler, wish: CycleState, found: NodePoints) -> NodePoints:
    info = scheduler.nodes.get(found.node)
    claims = scheduler.cycle.devices.claims_on(wish, info)[0] if info is not None else []
    score = scheduler.cycle.devices.scorer.breakdown(claims, found.node, wish.profile) if claims else None
    if score is not None:
        found.rating, found.devices = score.rating, score.devices
    return found
