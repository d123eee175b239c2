"""Every function that an expression may call, with its overloads."""

from __future__ import annotations

from typing import Final

from dray.cel.library import authorization, conversions, kubernetes, network, operators, sequences, text, times
from dray.cel.types import Overload, signature


def _collect() -> dict[str, tuple[Overload, ...]]:
    functions: dict[str, list[Overload]] = {}
    for module in (operators, conversions, times, text, sequences, kubernetes, network, authorization):
        for function, id, written, implementation in module.DECLARATIONS:
            functions.setdefault(function, []).append(signature(id, written, implementation))
    return {function: tuple(overloads) for function, overloads in functions.items()}


FUNCTIONS: Final = _collect()
INCLUDES: Final = (signature(*sequences.INCLUDES[1:]),)
ESCAPES: Final = (signature(*text.ESCAPE_KEY),)
