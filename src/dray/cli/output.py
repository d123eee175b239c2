"""What every command prints with: ``-o`` for machines, tables for people, colours only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import msgspec
import yaml
from rich.console import Console
from rich.text import Text

from dray.cli.tables import Fitted

FORMATS = ("table", "wide", "json", "yaml")
# Wider than any line: what goes into a pipe or a file is neither folded nor cut.
UNFOLDED = 100_000


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The ``-o`` option that every command has."""
    return click.option("-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format.")(
        function
    )


class _Piped(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # ends as it does for everything else that prints


def console(*, stderr: bool = False) -> Console:
    """A console that fits the terminal; without one, lines are as long as they are and carry no colour."""
    stream = sys.stderr if stderr else sys.stdout
    return _Piped(file=stream, highlight=False, width=None if stream.isatty() else UNFOLDED)


def emit(data: Any, output: str, people: Callable[[Console], None]) -> None:
    """Print ``data`` for a machine, or let ``people`` print it for a person."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    elif output == "yaml":
        click.echo(yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, default_flow_style=False), nl=False)
    else:
        people(console())


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Fitted:
    """A table. Cells are taken as they are; one with a colour is a ``Text``."""
    return Fitted(columns, rows)
