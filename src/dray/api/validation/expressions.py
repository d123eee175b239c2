"""CEL expressions in claims and classes: they must compile, and their worst case must be cheap enough.

The compiler is loaded with the first expression.
"""

from __future__ import annotations

from typing import Final

from dray import cel
from dray.api.gates import Gates
from dray.api.validation.errors import Errors, forbidden, invalid, required, too_long

MAX_LENGTH: Final = 10 * 1024
MAX_COST: Final = 1_000_000


class Costs:
    """Adds up the worst cases of the derived attributes of one claim."""

    def __init__(self) -> None:
        self.total = 0


def expression(text: str, path: str, gates: Gates, derived: Costs | None = None) -> Errors:
    """A device selector, or with ``derived`` the value of a derived attribute."""
    if len(text.encode()) > MAX_LENGTH:
        yield too_long(path, MAX_LENGTH)
        return
    if not text:
        yield required(path)
        return
    try:
        program = cel.compile(text, features=gates.on, derived=derived is not None)
    except cel.CompileError as error:
        yield invalid(path, text, f"compilation failed: {error}\n{error.pointer()}")
        return
    if program.estimated_cost > MAX_COST:
        yield forbidden(path, "too complex, exceeds cost limit")
    if derived is not None:
        derived.total += program.estimated_cost
