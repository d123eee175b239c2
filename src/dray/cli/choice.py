"""Why this node and these devices, for people: a table of points that shows only where the nodes differ, and the devices."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.markup import escape

from dray.cli.output import table
from dray.explain.choice import Choice, NodePoints

# What points are for, by the plugin that gives them; plugins of others are called by their names.
HEADINGS: Final = {
    "DynamicResources": "rank",
    "DevicesReady": "ready",
    "DeviceWaste": "little waste",
    "DeviceCloseness": "close",
    "DevicesInUse": "in use",
    "NUMA": "zones",
    "NodeResourcesFit": "cpu and memory",
    "NodeResourcesBalancedAllocation": "balance",
    "ImageLocality": "image",
    "NodeAffinity": "affinity",
    "TaintToleration": "taints",
    "InterPodAffinity": "pod affinity",
    "PodTopologySpread": "spread",
}


def show_choice(choice: Choice, console: Console, *, placed: bool, wide: bool) -> None:
    """``placed``: the pod has its node already; ``wide``: the devices of every runner-up, not only of the next best."""
    asked = " (if it were scheduled now)" if placed else ""
    console.print(f"\nWhy {escape(choice.summary())}{asked}.")
    if len(choice.nodes) > 1:
        console.print(table(*_columns(choice)))
        same = _same(choice.nodes)
        more = choice.compared - len(choice.nodes)
        left_out = f"{more} more {'node scores' if more == 1 else 'nodes score'} no better. " if more else ""
        equal = ", ".join(f"{_heading(name)} {_number(value)}" for name, value in same.items() if value)
        console.print(f"[dim]{left_out}{f'The same for all: {equal}.' if equal else ''}[/dim]", soft_wrap=True)
    told = [node for node in choice.nodes if node.devices]
    own = next((node for node in told if node.node == choice.node), None)
    others = [node for node in told if node is not own]
    for node in [own] if own is not None else []:
        console.print(f"\nDevices\n{_devices(node)}", soft_wrap=True)
    for node in others if wide else others[:1]:
        console.print(f"Alternative on {node.node}\n{_devices(node)}", soft_wrap=True)


def _columns(choice: Choice) -> tuple[list[str], list[list[str]]]:
    same = _same(choice.nodes)
    names = [name for name in _named(choice.nodes) if name not in same]
    rows = [
        [f"{node.node} *" if node.node == choice.node else node.node, _number(node.total)]
        + [_number(node.points.get(name, 0)) for name in names]
        for node in choice.nodes
    ]
    return ["node", "points", *(_heading(name) for name in names)], rows


def _same(nodes: list[NodePoints]) -> dict[str, float]:
    """What all get equally many points for, if any."""
    named = [name for name in _named(nodes) if all(name in node.points for node in nodes)]
    return {name: nodes[0].points[name] for name in named if len({node.points[name] for node in nodes}) == 1}


def _named(nodes: list[NodePoints]) -> list[str]:
    """Whoever gives points: the known first, in one order."""
    given = sorted({name for node in nodes for name in node.points})
    return [name for name in HEADINGS if name in given] + [name for name in given if name not in HEADINGS]


def _devices(node: NodePoints) -> str:
    return "\n".join(f"  {escape(device.text())}" for device in node.devices)


def _heading(name: str) -> str:
    return HEADINGS.get(name, name)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
