"""Tables fit the terminal that shows them: whole where they can be, folded where that reads well, else a row on several lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dray.cli.output import table

COLUMNS = ("pod", "node", "state", "users", "taints")
ROWS: list[tuple[str | Text, ...]] = [
    ("default/train", "gpu8-0", Text("free", "green"), "", ""),
    ("default/inference-qx6k6zf6d5-4lxgh", "gpu8-1", "allocated", "research/a\nresearch/b", ""),
]


def shown(width: int, columns: tuple[str, ...] = COLUMNS, rows: list[tuple[str | Text, ...]] = ROWS) -> list[str]:
    out = io.StringIO()
    Console(file=out, highlight=False, width=width).print(table(columns, rows))
    return out.getvalue().splitlines()


def test_with_room_every_column_has_its_full_width() -> None:
    assert shown(200) == [
        "POD                                 NODE    STATE      USERS       TAINTS",
        "default/train                       gpu8-0  free",
        "default/inference-qx6k6zf6d5-4lxgh  gpu8-1  allocated  research/a",
        "                                                       research/b",
    ]


def test_with_less_room_empty_columns_go_first() -> None:
    assert shown(66)[0] == "POD                                 NODE    STATE      USERS"


def test_with_little_room_the_longest_cells_are_folded() -> None:
    assert shown(60)[2:4] == [
        "default/inference-qx6k6zf6d5-  gpu8-1  allocated  research/a",
        "4lxgh                                             research/b",
    ]


def test_a_short_column_is_never_folded_and_the_rest_stands_below() -> None:
    assert shown(40) == [
        "POD",
        "    NODE  STATE  USERS",
        "default/train",
        "    gpu8-0  free",
        "default/inference-qx6k6zf6d5-4lxgh",
        "    gpu8-1  allocated  research/a",
        "    research/b",
    ]


def test_a_column_of_sentences_is_wrapped_between_words() -> None:
    said = "2 nodes have not enough devices of class gpu.example.com for request gpus"
    lines = shown(50, ("node", "why"), [("n1", said)])
    assert [line[6:] for line in lines[1:]] == ["2 nodes have not enough devices of class", "gpu.example.com for request gpus"]


@pytest.mark.parametrize("width", [1, 5, 20])
def test_even_where_nothing_fits_everything_is_there(width: int) -> None:
    said = "".join("".join(shown(width)).split())
    assert all("".join(part.split()) in said for part in ("default/inference-qx6k6zf6d5-4lxgh", "allocated", "research/b"))


cells = st.text("ab [/]日-\n", max_size=50)


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=5), st.integers(2, 200))
def test_no_line_is_too_long_or_ends_in_spaces_and_nothing_is_lost(rows: list[tuple[str, ...]], width: int) -> None:
    lines = shown(width, ("a", "b", "c"), list(rows))
    assert all(cell_len(line) <= width for line in lines)
    assert not any(line.endswith(" ") for line in lines)
    told, given_ = "".join(lines), "".join(cell for row in rows for cell in row)
    assert all(told.count(letter) >= given_.count(letter) for letter in "ab[/]日-")
