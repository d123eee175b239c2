"""CEL for device selectors: parse, check, compile, cost.

``compile(text)`` gives a ``Program``; ``program.matches(DeviceView.of(driver, device))`` its verdict on a device. A program knows
what it reads of a device (``reads``) and a view what it looks like to such a program (``projection``), so devices that look the
same need one evaluation. Nothing here knows what a claim is.

The compiler is loaded with the first expression: programs that see none start without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dray.cel.device import DeviceView
from dray.cel.errors import CelError, CompileError, CostLimitExceeded, EvaluationError
from dray.cel.values import Semver

if TYPE_CHECKING:
    from dray.cel.program import STORED, Program, Value, compile

__all__ = [
    "STORED",
    "CelError",
    "CompileError",
    "CostLimitExceeded",
    "DeviceView",
    "EvaluationError",
    "Program",
    "Semver",
    "Value",
    "compile",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dray.cel import program

    return getattr(program, name)
