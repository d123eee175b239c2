"""Objects from files: YAML or JSON, many to a file, lists unpacked. Errors name the file and the document."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import yaml

_ENDINGS: Final = (".yaml", ".yml", ".json")


def read_manifests(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Every object in the files; a directory gives the files in it, ``-`` standard input."""
    return [found for path in paths for file in _files(path) for found in _objects(file)]


def _files(path: Path) -> list[Path]:
    if str(path) == "-" or path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _ENDINGS)
    raise click.BadParameter(f"{path}: no such file or directory")


def _objects(file: Path) -> Iterator[dict[str, Any]]:
    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise click.BadParameter(f"{file}: not YAML: {error}") from error
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _unpacked(document, f"{file}, document {number}")


def _unpacked(document: Any, where: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
        raise click.BadParameter(f"{where}: an object needs apiVersion and kind")
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _unpacked(item, where)
    else:
        yield document
