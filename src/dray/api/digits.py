"""Whole numbers that others write as text: in annotations, names and addresses."""

from __future__ import annotations

from typing import Final

# More than any number that is kept anywhere; far more digits than these are slow to read, and then an error.
_MOST: Final = 19


def whole(text: str) -> int | None:
    """The number that these digits are; None for anything else. (``isdigit`` alone lets ``²`` pass, which is an error to
    ``int``.)"""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST else None
