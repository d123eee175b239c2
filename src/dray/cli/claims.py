"""``dray claims``: every claim, what it holds and for whom; and those that nobody needs."""

from __future__ import annotations

import time
from collections import Counter

import click
from rich.console import Console
from rich.text import Text

from dray.api.amounts import counted
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, namespace_option, source_options
from dray.explain.orphans import ClaimRow, claim_rows

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


@click.command()
@namespace_option("Only claims in this namespace.")
@click.option("--orphans", is_flag=True, help="Only claims that nothing needs.")
@source_options
@output_option
def claims(namespace: str | None, orphans: bool, source: Source, output: str) -> None:
    """List claims: their devices, the pods that use them, and their owners.

    An orphan is a claim that nothing needs: reserved for pods that are gone or finished, allocated but not in use, created for a
    pod that is gone, or kept by a finalizer while it is being deleted. Claims younger than a minute are never called orphans.

    \b
    Examples:
      dray claims -n research
      dray claims --orphans
      dray claims --orphans -o json
    """
    # Where no pods were read, every claim would look as if its pods were gone.
    world = source.read(needs=(RESOURCE_CLAIMS, PODS), decisive=(RESOURCE_CLAIMS, PODS)).world
    rows = [row for row in claim_rows(world, time.time()) if namespace in (None, row.namespace)]
    if orphans:
        rows = [row for row in rows if row.orphan]
    emit({"claims": rows}, output, lambda console: _show(rows, orphans, namespace, console, wide=output == "wide"))


def _show(rows: list[ClaimRow], orphans: bool, namespace: str | None, console: Console, *, wide: bool) -> None:
    if not rows:
        where = f" in namespace {namespace}" if namespace else ""
        console.print(f"No orphaned claims{where}." if orphans else f"No claims{where}.")
        return
    columns = ("namespace", "claim", "state", "devices", "used by", "owner", "age", *(("reason",) if orphans or wide else ()))
    console.print(table(columns, [_cells(row, orphans or wide, wide) for row in rows]))
    states = Counter(row.state for row in rows)
    console.print()
    console.print(
        f"{counted(len(rows), 'claim')}: " + ", ".join(f"{count} {state}" for state, count in states.most_common()) + "."
    )
    if orphans:
        console.print("`dray release CLAIM -n NAMESPACE` releases one after checking that no pod uses it.")


def _cells(row: ClaimRow, why: bool, wide: bool) -> tuple[str | Text, ...]:
    devices = row.devices if wide else row.devices[:4]
    more = [f"and {len(row.devices) - len(devices)} more"] if len(row.devices) > len(devices) else []
    users = row.users if wide else row.users[:4]
    others = [f"and {len(row.users) - len(users)} more"] if len(row.users) > len(users) else []
    cells: tuple[str | Text, ...] = (
        row.namespace,
        row.name,
        Text(row.state, "yellow") if row.orphan else row.state,
        "\n".join([*devices, *more]),
        "\n".join([*users, *others]),
        row.owner,
        age_text(row.age_seconds),
    )
    return (*cells, row.orphan) if why else cells


def age_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
