"""``python -m benchmarks [NAME]…``: prints tables. A name selects one table, or all that begin with it."""

from __future__ import annotations

import sys
import time

import click
from rich.console import Console

from benchmarks import (
    access,
    allocator,
    apiserver,
    burst,
    core,
    decisions,
    eviction,
    memory,
    numa,
    page,
    plan,
    preemption,
    queues,
    scale,
    scheduler,
    start,
    why,
)
from tests.real.upstream.binaries import Unavailable

PARTS = (
    *(access, allocator, apiserver, core, scheduler, start, burst, decisions, preemption, numa, eviction),
    *(queues, plan, why, page, scale, memory),
)
TABLES = {name: table for part in PARTS for name, table in part.TABLES.items()}


@click.command(
    help=f"Runs the named tables, or all.\n\nNames: {', '.join(TABLES)}; the beginning of a name selects all that begin so."
)
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="Small inputs: proves that the benchmark runs, says little about speed.")
def main(names: tuple[str, ...], quick: bool) -> None:
    chosen = [t for t in TABLES if not names or any(t.startswith(n) for n in names)]
    if not chosen:
        raise click.UsageError(f"no table begins with {' or '.join(names)}; there are: {', '.join(TABLES)}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    for name in chosen:
        began = time.monotonic()
        try:
            table = TABLES[name](quick)
        except Unavailable as missing:
            raise click.ClickException(str(missing)) from None
        table.show(console)
        console.print(f"({name}: {time.monotonic() - began:.0f} s)", highlight=False)


if __name__ == "__main__":
    main()
