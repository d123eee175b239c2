"""Commands that answer questions line by line: JSON in, one line of JSON out for each, in the same order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import click
import msgspec

LINE_MAX: Final = 512 * 1024 * 1024


def answer_lines(file: BinaryIO, answer: Callable[[bytes], tuple[dict[str, Any], bool]]) -> bool:
    """Print what ``answer`` says to each line, and whether it could be answered at all; True when all could."""
    if file.isatty():
        click.echo("Reading questions, one JSON object a line; Ctrl-D ends.", err=True)
    out = sys.stdout.buffer
    complete = True
    for text in _lines(file):
        told, answered = answer(text)
        complete = complete and answered
        out.write(msgspec.json.encode(told) + b"\n")
        out.flush()
    return complete


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while text := file.readline(LINE_MAX + 1):
        if text.strip():
            yield text
