"""A module imports only from its own layer and from those above it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dray"
MAP = SOURCE.parents[1] / "docs" / "architecture.md"
LAYERS = (
    "api",
    "cel",
    "validation",
    "books",
    "devices",
    "numa",
    "quota",
    "queues",
    "cluster",
    "scheduling",
    "controllers",
    "nodes",
    "apiserver",
    "runtime",
    "explain",
    "simulate",
    "testing",
    "examples",
    "web",
    "cli",
)


def layer(module: str) -> str:
    parts = module.split(".")
    if parts[:3] == ["dray", "api", "validation"]:
        return "validation"  # judges expressions, so it stands below cel
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "dray":
            found.extend(f"dray.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
    return [module for module in found if module.startswith("dray.")]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_imports_from_those_above_it(name: str) -> None:
    wrong: list[str] = []
    for path in SOURCE.rglob("*.py"):
        module = ".".join(("dray", *path.relative_to(SOURCE).with_suffix("").parts))
        if layer(module) != name:
            continue
        below = (used for used in imports(path) if layer(used) in LAYERS[LAYERS.index(name) + 1 :])
        wrong.extend(f"{module} imports {used}" for used in below)
    assert not wrong


def test_every_package_stands_in_a_layer() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= set(LAYERS)


def test_the_map_shows_the_layers_in_this_order() -> None:
    rows = re.findall(r"^\| `(dray\.[\w.]+)` \|", MAP.read_text(), re.MULTILINE)
    assert tuple(layer(row) for row in rows) == LAYERS


def test_every_module_that_the_map_names_exists() -> None:
    named = [name.removeprefix("dray.") for name in re.findall(r"`([a-z_]+\.[a-z_.]+)`", MAP.read_text())]
    assert len(named) > 20
    # The rooms of the scheduler are named without it.
    assert [name for name in named if not is_module(SOURCE, name) and not is_module(SOURCE / "scheduling", name)] == []


def is_module(root: Path, name: str) -> bool:
    place = root.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()
