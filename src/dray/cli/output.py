"""What every command prints with: ``-o`` for machines, tables for people, colours only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import msgspec
import yaml
from rich.console import Console
from rich.table import Table

FORMATS = ("table", "wide", "json", "yaml")
# Wider than any line: what goes into a pipe or a file is neither folded nor cut.
UNFOLDED = 100_000
# Times, phases, counts and most node names: columns of cells no longer than this are not folded on a narrow terminal.
SHORT = 12


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The ``-o`` option that every command has."""
    return click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print the answer."
    )(function)


def console(*, stderr: bool = False) -> Console:
    """A console that fits the terminal; without one, lines are as long as they are and carry no colour."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else UNFOLDED)


def emit(data: Any, output: str, people: Callable[[Console], None]) -> None:
    """Print ``data`` for a machine, or let ``people`` print it for a person."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    elif output == "yaml":
        click.echo(yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, default_flow_style=False), nl=False)
    else:
        people(console())


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table in kubectl's manner: capitals on top, no lines; long cells fold instead of being lost, short ones stay whole."""
    made, rows = Table(box=None, pad_edge=False, header_style="bold", show_edge=False), list(rows)
    for number, column in enumerate(columns):
        short = all(len(row[number]) <= SHORT for row in rows)
        made.add_column(column.upper(), overflow="fold", no_wrap=short)
    for row in rows:
        made.add_row(*row)
    return made
