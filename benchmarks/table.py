"""What a benchmark returns: a table whose rows put Dray beside something measured in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table as RichTable


@dataclass
class Table:
    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        assert len(cells) == len(self.columns), (cells, self.columns)
        self.rows.append(cells)

    def show(self, console: Console) -> None:
        """As Markdown, so that it can be pasted into a page."""
        console.print(f"\n## {self.title}\n", markup=False, highlight=False)
        shown = RichTable(box=MARKDOWN, pad_edge=True)
        for number, column in enumerate(self.columns):
            shown.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown, markup=False, highlight=False)
        for note in self.notes:
            console.print(note, markup=False, highlight=False)


def micros(value: float) -> str:
    """A time in the unit that reads best."""
    if value < 1_000:
        return f"{value:.0f} µs"
    return f"{value / 1_000:.1f} ms" if value < 1_000_000 else f"{value / 1_000_000:.2f} s"


def ratio(ours: float, theirs: float) -> str:
    """Our number as a part of theirs."""
    if not theirs:
        return "-"
    part = ours / theirs
    return f"{part:.2f}x" if part >= 0.095 else f"{part:.3f}x"


def mebibytes(value: float) -> str:
    return f"{value / 2**20:.0f} MiB"
