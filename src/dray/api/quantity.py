"""Exact Kubernetes quantities.

A quantity is a whole number of nano units plus the format it was written in; the format matters only for printing.
Parsing follows apimachinery: digits below nano round away from zero, binary amounts above 2^63-1 are capped.
No float is ever involved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, total_ordering
from typing import Any, Final

NANO: Final = 10**9
MAX: Final = 2**63 - 1

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {power: suffix for suffix, power in _BINARY.items()}

_SHORT: Final = 32  # texts that are remembered
# At most 64 digits on each side: longer input is refused instead of costing big-number work.
_PATTERN: Final = re.compile(
    r"([+-]?)(\d{0,64})(?:\.(\d{0,64}))?(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d{1,3})?", re.ASCII
)


class QuantityError(ValueError):
    """The text is not a quantity. Whoever wrote the object must correct it."""


@total_ordering
class Quantity:
    """An exact amount. Equality and order are numeric: ``Quantity.parse("1Ki") == Quantity.parse("1024")``."""

    __slots__ = ("format", "nanos")

    nanos: int
    format: str

    def __init__(self, nanos: int, format: str = DECIMAL_SI) -> None:
        self.nanos = nanos
        self.format = format

    @staticmethod
    def parse(value: str | int | float) -> Quantity:
        """Read a quantity as JSON carries it: a string, or a number (a float is read by its shortest decimal form)."""
        if isinstance(value, bool):
            raise QuantityError(f"{value!r} is not a quantity")
        if isinstance(value, int):
            return Quantity(value * NANO)
        return _parse(value if isinstance(value, str) else repr(value))

    @staticmethod
    def of(amount: int) -> Quantity:
        return Quantity(amount * NANO)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero, as Go's ``Value()``."""
        return _ceil_away(self.nanos, NANO)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero, as Go's ``MilliValue()``."""
        return _ceil_away(self.nanos, NANO // 1000)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nanos * times, self.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        return _canonical(self.nanos, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


def canonical(value: str | int | float) -> str:
    """The form in which an API server stores this quantity."""
    return _remembered(value) if type(value) is str and len(value) <= _SHORT else str(Quantity.parse(value))


@lru_cache(maxsize=4096)
def _remembered(text: str) -> str:
    return str(Quantity.parse(text))


def _ceil_away(amount: int, unit: int) -> int:
    magnitude = -(-abs(amount) // unit)
    return magnitude if amount >= 0 else -magnitude


@lru_cache(maxsize=65536)
def _parse(text: str) -> Quantity:
    found = _PATTERN.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        raise QuantityError(
            f"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', got {text[:80]!r}"
        )
    sign, whole, fraction, suffix = found[1], found[2], found[3] or "", found[4] or ""
    mantissa = int((whole or "0") + fraction)
    scale = -len(fraction)
    if suffix in _BINARY:
        format, numerator = BINARY_SI, mantissa << _BINARY[suffix]
    elif suffix in _DECIMAL:
        format, numerator = DECIMAL_SI, mantissa
        scale += _DECIMAL[suffix]
    else:
        format, numerator = DECIMAL_EXPONENT, mantissa
        scale += int(suffix[1:])
    scale += 9
    nanos = numerator * 10 ** min(scale, 60) if scale >= 0 else _ceil_away(numerator, 10**-scale)
    if format == BINARY_SI:
        nanos = min(nanos, MAX * NANO)
    # As Go does it: less than one unit would be rounded away in binary units.
    if format == BINARY_SI and 0 < nanos < NANO:
        format = DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, format)


def _binary(units: int) -> str:
    """In the largest binary unit of which it is a whole number. Without one it reads back as a decimal amount: 15000 as 15k."""
    power = 0
    while power < 60 and units % 1024 == 0:
        units //= 1024
        power += 10
    return f"{units}{_BINARY_SUFFIX.get(power, '')}"


def _canonical(nanos: int, format: str) -> str:
    if nanos == 0:
        return "0"
    sign, amount = ("-", -nanos) if nanos < 0 else ("", nanos)
    if format == BINARY_SI and amount >= 1024 * NANO and amount % NANO == 0:
        return f"{sign}{_binary(amount // NANO)}"
    power = -9
    while amount % 1000 == 0 and (power < 18 or format == DECIMAL_EXPONENT):
        amount //= 1000
        power += 3
    if format == DECIMAL_EXPONENT:
        return f"{sign}{amount}" + (f"e{power}" if power else "")
    return f"{sign}{amount}{_DECIMAL_SUFFIX[power]}"


def quantities(listed: Mapping[str, Any]) -> dict[str, Quantity]:
    """What a list of resources says, read."""
    return {name: Quantity.parse(value) for name, value in listed.items()}
