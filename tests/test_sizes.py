"""Nothing in the source is so large that it is certainly two things."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "src" / "dray"
MOST_LINES: Final = 600
MOST_METHODS: Final = 44
MOST_ARGUMENTS: Final = 12


def classes() -> Iterator[tuple[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                yield f"{path.relative_to(SOURCE)}: {node.name}", methods


def test_no_module_is_longer_than_can_be_read_at_once() -> None:
    assert [str(path) for path in SOURCE.rglob("*.py") if len(path.read_text().splitlines()) > MOST_LINES] == []


def test_no_class_has_more_methods_than_can_be_kept_in_mind() -> None:
    found = list(classes())
    assert len(found) > 500
    assert [name for name, methods in found if len(methods) > MOST_METHODS] == []


def test_no_constructor_asks_for_everything() -> None:
    made = [(name, each.args) for name, methods in classes() for each in methods if each.name == "__init__"]
    assert [name for name, args in made if len(args.args) + len(args.kwonlyargs) - 1 > MOST_ARGUMENTS] == []
