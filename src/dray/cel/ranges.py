"""Ranges of sizes and costs; arithmetic saturates at 2^64-1."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MAX: Final = 2**64 - 1


class Range(NamedTuple):
    """From the least to the most that a size or cost can be."""

    least: int
    most: int

    def plus(self, other: Range) -> Range:
        return Range(min(self.least + other.least, MAX), min(self.most + other.most, MAX))

    def times(self, other: Range) -> Range:
        return Range(min(self.least * other.least, MAX), min(self.most * other.most, MAX))

    def scaled(self, factor: float) -> Range:
        return Range(scaled(self.least, factor), scaled(self.most, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.least, other.least), max(self.most, other.most))


def scaled(amount: int, factor: float) -> int:
    """Rounded up, in floating point as upstream does it."""
    product = float(amount) * factor
    return MAX if product >= 2.0**64 else math.ceil(product)


def fixed(amount: int) -> Range:
    return Range(amount, amount)


UNKNOWN: Final = Range(0, MAX)
ZERO: Final = Range(0, 0)
ONE: Final = Range(1, 1)


class Entries(NamedTuple):
    """What is known about the elements of a list or map."""

    container: str
    key: Range
    value: Range


class Charge(NamedTuple):
    """What a call costs beside its arguments, and how large its result is, if that is known."""

    cost: Range
    size: Range | None = None
