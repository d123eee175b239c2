"""Amounts as people say and compare them: all numbers of one line in one unit, bytes in powers of two where they are such."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dray.api.quantity import NANO, Quantity, QuantityError

_BINARY: Final = {"Ei": 2**60, "Pi": 2**50, "Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_DECIMAL: Final = {"E": 10**18, "P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6}
# A thousand has no suffix: nobody says that a node has 0.09k CPUs.
_SUFFIX: Final = re.compile(r"[A-Za-z]*$")
# From here on a plain number that is a multiple of it counts bytes, as far as people are concerned.
_BYTES: Final = 2**20


def amount(value: Any) -> float:
    """A quantity as a number; raises ValueError for what is none."""
    try:
        return Quantity.parse(value).nanos / NANO
    except QuantityError as error:
        raise ValueError(str(error)) from error


def counted(number: int, noun: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def in_one_unit(amounts: Mapping[str, str]) -> dict[str, str]:
    """The same amounts in the unit of the first; whatever is no amount stays as it is, and so do whole numbers."""
    parsed: dict[str, int] = {}
    for name, text in amounts.items():
        try:
            parsed[name] = Quantity.parse(text).nanos
        except (QuantityError, TypeError):
            continue
    if not parsed:
        return dict(amounts)
    suffix, size = _unit(amounts[next(iter(parsed))])
    return {name: _written(parsed[name], size) + suffix if name in parsed else text for name, text in amounts.items()}


def _unit(text: str) -> tuple[str, int]:
    found = _SUFFIX.search(text)
    suffix = found[0] if found is not None else ""
    if suffix in _BINARY:
        suffix, size = suffix, _BINARY[suffix]
    else:
        size = _DECIMAL.get(suffix, 1)
        suffix = suffix if suffix in _DECIMAL else ""
    value = Quantity.parse(text).nanos // NANO
    if (not suffix or suffix in _BINARY) and value >= _BYTES and value % _BYTES == 0:
        return next((name, factor) for name, factor in _BINARY.items() if value % factor == 0)
    return suffix, size


def _written(nanos: int, size: int) -> str:
    """At most two places, rounded down so that what is too little never looks enough; more for what would vanish."""
    whole, rest = divmod(abs(nanos), size * NANO)
    sign = "-" if nanos < 0 else ""
    hundredths = rest * 100 // (size * NANO)
    if not whole and not hundredths and rest:
        return f"{sign}{rest / (size * NANO):.1g}"
    return sign + f"{whole}.{hundredths:02d}".rstrip("0").rstrip(".")
