"""Tables that fit the terminal, in kubectl's manner: capitals on top, no lines, two spaces between columns.

Always true: nothing is cut off, and no line ends in spaces. Columns get their full width if they all can. If not, empty columns
go first; then cells are folded, as long as each column keeps a readable width; else each row takes several lines, the later
columns below the first ones. Equal cells are prepared once, so that a table of very many devices is printed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

GAP: Final = 2
INDENT: Final = 4
# No cell is folded to less than this.
READABLE: Final = 24


class Cell:
    """Its lines, as wide as they are."""

    def __init__(self, text: Text) -> None:
        self.lines = list(text.split("\n")) or [Text()]
        for line in self.lines:
            line.rstrip()
        self.width = max(line.cell_len for line in self.lines)
        self._drawn: list[list[Segment]] | None = None

    def __bool__(self) -> bool:
        return any(line.plain for line in self.lines)

    def folded(self, width: int, console: Console) -> Cell:
        if self.width <= width:
            return self
        parts = [part for line in self.lines for part in line.wrap(console, max(width, 1), overflow="fold")]
        return Cell(Text("\n").join(parts))

    def drawn(self, console: Console) -> list[list[Segment]]:
        if self._drawn is None:
            self._drawn = [list(line.render(console)) for line in self.lines]
        return self._drawn


Row = list[Cell]


class Fitted:
    """Columns and rows; the layout is chosen when the width is known."""

    def __init__(self, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
        known: dict[str, Cell] = {}
        head = [Cell(Text(column.upper(), "bold")) for column in columns]
        self._rows: list[Row] = [head, *([_known(cell, known) for cell in row] for row in rows)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows, room = self._rows, options.max_width
        if _total(_natural(rows)) > room:
            rows = _without_empty_columns(rows)
        natural = _natural(rows)
        widths = _folded(natural, room)
        leading = [min(width, room) for width in natural[: _beside(natural, room)]]
        for row in rows:
            yield from _across(row, widths, console) if widths is not None else _stacked(row, leading, room, console)


def _known(content: str | Text, known: dict[str, Cell]) -> Cell:
    if isinstance(content, Text):
        return Cell(content)
    if content not in known:
        known[content] = Cell(Text(content))
    return known[content]


def _natural(rows: Sequence[Row]) -> list[int]:
    return [max(cell.width for cell in column) for column in zip(*rows)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _without_empty_columns(rows: Sequence[Row]) -> list[Row]:
    told = [any(column[1:]) for column in zip(*rows)]
    return [[cell for cell, kept in zip(row, told) if kept] for row in rows] if any(told) else list(rows)


def _folded(natural: Sequence[int], room: int) -> list[int] | None:
    """Widths that fit; the widest columns give way first. None where a column would become unreadable."""
    widths = list(natural)
    while _total(widths) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= READABLE:
            return None
        widths[widest] -= 1
    return widths


def _beside(natural: Sequence[int], room: int) -> int:
    """How many columns stand on one line; one at least."""
    return max([1, *(count for count in range(1, len(natural) + 1) if _total(natural[:count]) <= room)])


def _across(row: Sequence[Cell], widths: Sequence[int], console: Console, indent: int = 0) -> Iterator[Segment]:
    cells = [cell.folded(width, console) for cell, width in zip(row, widths)]
    for number in range(max(len(cell.lines) for cell in cells)):
        owed = indent  # spaces are written only before something
        for cell, width in zip(cells, widths):
            if number < len(cell.lines) and cell.lines[number].plain:
                yield Segment(" " * owed)
                yield from cell.drawn(console)[number]
                owed = -cell.lines[number].cell_len
            owed += width + GAP
        yield Segment.line()


def _stacked(row: Row, leading: Sequence[int], room: int, console: Console) -> Iterator[Segment]:
    yield from _across(row[: len(leading)], leading, console)
    indent = INDENT if room > READABLE else 0
    for below in _flowing([line for cell in row[len(leading) :] for line in cell.lines if line.plain], room - indent):
        yield from _across([below], [room - indent], console, indent)


def _flowing(parts: Sequence[Text], room: int) -> Iterator[Cell]:
    """As many beside each other as fit."""
    line = Text()
    for part in parts:
        if line.plain and line.cell_len + GAP + part.cell_len > room:
            yield Cell(line)
            line = Text()
        line = line + " " * GAP + part if line.plain else part
    if line.plain:
        yield Cell(line)
