"""Objects from files for the commands that apply some; errors name the file and the document."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from dray.explain.snapshot import SnapshotError, documents, files_of


def read_manifests(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Every object in the files; a folder gives the files in it, ``-`` standard input."""
    try:
        return [found for path in paths for found in (_piped() if str(path) == "-" else _in(path))]
    except SnapshotError as error:
        raise click.ClickException(str(error)) from error


def _in(path: Path) -> list[dict[str, Any]]:
    return [found for file in files_of([path]) for found in documents(file)]


def _piped() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard-input"
        file.write_text(sys.stdin.read())
        return list(documents(file))
