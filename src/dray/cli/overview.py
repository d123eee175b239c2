"""``dray why`` for many pods: all that wait, or those of a workload, by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape

from dray.api.amounts import counted
from dray.api.core import Pod
from dray.explain.overview import Cause
from dray.explain.tree import some

COLOURS: Final = {"bound": "green", "waiting": "cyan", "unschedulable": "yellow", "impossible": "red"}
_NAMED: Final = 4


def show(causes: Sequence[Cause], pods: Sequence[Pod], console: Console, *, wide: bool, named: bool) -> None:
    """For people: one paragraph for each cause, with the pods and what would help most. ``named``: these pods were asked for,
    not all that there are."""
    if not causes:
        console.print("No pods are pending." if pods else "No pods found.")
        if named:
            console.print(_whereabouts(pods))
        return
    for number, cause in enumerate(causes):
        colour = COLOURS[cause.verdict]
        count = f"{len(cause.pods)} pod{'s' if len(cause.pods) > 1 else ''}"
        text = escape(cause.summary)
        console.print(f"{chr(10) if number else ''}[bold {colour}]{cause.verdict}[/bold {colour}]  {count}: {text}")
        shown = cause.pods if wide else cause.pods[:_NAMED]
        more = f" and {len(cause.pods) - len(shown)} more" if len(cause.pods) > len(shown) else ""
        console.print(f"  {', '.join(shown)}{more}")
        commands = {fix.told: fix.command for fix in cause.advice}
        for fix in cause.fixes[: None if wide else 1]:
            console.print(f"  - {escape(fix)}")
            for line in commands.get(fix, "").splitlines():
                console.print(f"      {escape(line)}", style="dim")


def _whereabouts(pods: Sequence[Pod]) -> str:
    on = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name and not pod.terminal)
    ended = sum(pod.terminal for pod in pods)
    where = [f"{count} on {node}" for node, count in sorted(on.items())]
    told = [some(where)] if where else []
    told += [f"{ended} finished"] if ended else []
    told += [f"{gone} being deleted without a node"] if (gone := len(pods) - on.total() - ended) else []
    return f"{counted(len(pods), 'pod')}: {', '.join(told)}. `dray why POD` explains the placement of one."
