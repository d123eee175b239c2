"""``dray zones``: what is free in the NUMA zones of nodes, and who has the rest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.cli.named import refuse_unknown_nodes
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, placing_of, source_options
from dray.explain.zones import ZoneReport, ZoneRow, zone_report


@click.command()
@source_options
@click.option("--node", "nodes", multiple=True, help="Only zones on this node. Repeatable.")
@click.option("--config", type=click.Path(path_type=Path), help="The scheduler's KubeSchedulerConfiguration, if it uses one.")
@output_option
def zones(source: Source, nodes: Sequence[str], config: Path | None, output: str) -> None:
    """List the NUMA zones of nodes: what is free, which pods use the rest, and whether that was observed or predicted.

    Free is what can be allocated minus what the pods on the node use: as the scheduler counts it, not as the node publishes it
    (unless the scheduler is configured to use that; see --config). Pods whose zones are unknown are listed below the table.

    \b
    Examples:
      dray zones
      dray zones --node gpu-7
      dray zones -o json
      dray zones --snapshot cluster.yaml
    """
    snapshot = source.read(needs=(NODES, PODS), decisive=(NODES, NODE_RESOURCE_TOPOLOGIES))
    refuse_unknown_nodes(nodes, snapshot)
    settings, gates = placing_of(config, snapshot)
    found = zone_report(snapshot.world, time.time(), config=settings, gates=gates, nodes=nodes)
    emit(found, output, lambda console: _show(found, console, nodes))


def _show(found: ZoneReport, console: Console, nodes: Sequence[str]) -> None:
    if not found.zones:
        console.print(
            f"No zones found{f' on {chr(32).join(nodes)}' if nodes else ''}: nodes publish them as NodeResourceTopology."
        )
    else:
        console.print(table(("node", "zone", "policy", "free", "used by"), [_row(zone) for zone in found.zones]))
    lines = [f"{each.pod} on {each.node} uses zone resources, but its zones are unknown." for each in found.unknown]
    lines += [f"  {warning}" for each in found.unknown for warning in each.warnings]
    for each in found.unread:
        lines.append(f"{each.pod} on {each.node} has an invalid record of its zones, so an older one is used:")
        lines += [f"  {warning}" for warning in each.warnings]
    for node, names in found.missing.items():
        lines.append(f"{node} does not publish {', '.join(names)} by zone: how its kubelet aligns that is unknown.")
    lines += [f"{node}: {told}." for node, said in found.not_understood.items() for told in said]
    if found.stale:
        lines.append(
            f"Published data is older than the pods on {', '.join(found.stale)}. The table shows the scheduler's own count."
        )
    if found.unreported:
        number = len(found.unreported)
        pods = "1 pod has" if number == 1 else f"{number} pods have"
        lines.append(f"{pods} run for a minute without a report: is the placement exporter running there?")
    if lines:
        console.print("\n" + "\n".join(lines))


def _row(zone: ZoneRow) -> tuple[str, ...]:
    free = ", ".join(f"{name} {amount}/{zone.total[name]}" for name, amount in zone.free.items())
    who = "\n".join(f"{holder.pod}: {_told(holder.amount)} ({holder.known})" for holder in zone.holders)
    return zone.node, zone.zone, f"{zone.policy}, {zone.scope}", free, who


def _told(amount: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in amount.items())
