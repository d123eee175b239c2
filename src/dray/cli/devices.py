"""``dray devices``: what is there, what is free, and who has the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from dray.api.amounts import counted
from dray.api.kinds import RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cli.named import meant, refuse_unknown_nodes
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, placing_of, source_options
from dray.cli.trouble import Trouble
from dray.explain.inventory import STATES, Inventory, NodeRow, Row, inventory, narrowed
from dray.explain.published import Published
from dray.explain.snapshot import Snapshot

_COLOURS: Final = {
    "free": "green",
    "partial": "cyan",
    "allocated": "",
    "tainted": "yellow",
    "incompatible": "magenta",
    "incomplete": "red",
}

_MANY: Final = 300


@click.command()
@source_options
@click.option("--node", "nodes", multiple=True, help="Only devices on this node. Repeatable.")
@click.option("--driver", help="Only devices of this driver.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only devices in this state. Repeatable.")
@output_option
def devices(source: Source, nodes: Sequence[str], driver: str | None, states: Sequence[str], output: str) -> None:
    """List devices: free, in use and by which pods, tainted.

    A device is free, partial (shares are in use, capacity is left), allocated, tainted, incompatible (with devices in use on the
    same hardware) or incomplete (its pool is still being published). -o wide adds counter sets, capacity and the reason. Large
    clusters are summarized by node.

    \b
    Examples:
      dray devices
      dray devices --node gpu-7 -o wide
      dray devices --state free -o json
      dray devices -f now.json                        a file from `dray snapshot`
    """
    snapshot = source.read(needs=(RESOURCE_SLICES, RESOURCE_CLAIMS), decisive=(RESOURCE_SLICES,))
    _, gates = placing_of(None, snapshot)
    found = inventory(Published(snapshot.world, gates=gates))
    _refuse_unknown(found, snapshot, nodes, driver)
    if only := bool(nodes or driver or states):
        found = narrowed(found, lambda row: _wanted(row, nodes, driver, states))
    emit(found, output, lambda console: _show(found, console, wide=output == "wide", only=only))


def _refuse_unknown(found: Inventory, snapshot: Snapshot, nodes: Sequence[str], driver: str | None) -> None:
    """A node that is not there, or a driver that publishes nothing, is a mistake, and no node without devices."""
    refuse_unknown_nodes(nodes, snapshot, [row.node for row in found.devices])
    drivers = [row.driver for row in found.devices]
    if driver and driver not in drivers:
        raise Trouble(f"no driver {driver} publishes devices{meant(driver, drivers)}")


def _wanted(row: Row, nodes: Sequence[str], driver: str | None, states: Sequence[str]) -> bool:
    return (not nodes or row.node in nodes) and (not driver or row.driver == driver) and (not states or row.state in states)


def _show(found: Inventory, console: Console, *, wide: bool, only: bool) -> None:
    if not found.devices:
        none = (
            "No devices match; `dray devices` lists all."
            if only
            else "No devices found. Drivers publish devices as ResourceSlices."
        )
        console.print(none)
        return
    if len(found.devices) > _MANY and not wide and not only:
        console.print(table(("node", "devices", *STATES), [_by_node(node) for node in found.nodes]))
        console.print(f"\n{_totals(found)} To list devices: -o wide or --node NAME.")
        return
    extra = ("capacity", "reason") if wide else ()
    zoned = ("zone",) if any(row.zones for row in found.devices) else ()
    columns = ("node", "driver", "pool", "device", *zoned, "state", "users", "taints", *extra)
    console.print(table(columns, _rows(found.devices, wide)))
    if wide and found.counter_sets:
        console.print()
        sets = [(s.driver, s.pool, s.counter_set, s.counter, s.used, s.total) for s in found.counter_sets]
        console.print(table(("driver", "pool", "counter set", "counter", "used", "total"), sets))
    console.print()
    console.print(_totals(found))


def _by_node(node: NodeRow) -> tuple[str, ...]:
    return (node.node or "(by selector)", str(node.devices), *(str(node.states.get(state, "")) for state in STATES))


def _rows(devices: Sequence[Row], wide: bool) -> list[tuple[str | Text, ...]]:
    rows: list[tuple[str | Text, ...]] = []
    coloured = {state: Text(state, colour) for state, colour in _COLOURS.items()}
    zoned = any(row.zones for row in devices)
    for row in devices:
        users = "\n".join(", ".join(user.pods) or f"claim {user.claim}" for user in row.users)
        where = row.node or "(by selector)"
        cells: tuple[str | Text, ...] = (
            where,
            row.driver,
            row.pool,
            row.device,
            *((",".join(map(str, row.zones)),) if zoned else ()),
            coloured[row.state],
            users,
            "\n".join(row.taints),
        )
        if wide:
            capacity = "\n".join(f"{name} {n['used']}/{n['total']}" for name, n in row.capacity.items())
            cells = (*cells, capacity, row.detail)
        rows.append(cells)
    return rows


def _totals(found: Inventory) -> str:
    """How many of each state, and where the most free devices are together: the largest request that still fits a node."""
    states = Counter(row.state for row in found.devices)
    told = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    free = Counter(row.node for row in found.devices if row.state == "free" and row.node not in ("", "*"))
    line = f"{counted(len(found.devices), 'device')}: {told}."
    if free:
        node, most = min(free.items(), key=lambda item: (-item[1], item[0]))
        line += f" Most free on one node: {most} on {node}."
    return line
