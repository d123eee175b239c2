"""CEL for device selectors: parse, check, compile, cost.

``compile(text)`` gives a ``Program``; ``program.matches(DeviceView.of(driver, device))`` its verdict on a device. A program knows
what it reads of a device (``reads``) and a view what it looks like to such a program (``projection``), so devices that look the
same need one evaluation. Nothing here knows what a claim is.
"""

from dray.cel.device import DeviceView
from dray.cel.errors import CelError, CompileError, CostLimitExceeded, EvaluationError
from dray.cel.program import COST_LIMIT, STORED, Program, Value, compile
from dray.cel.values import Semver

__all__ = [
    "COST_LIMIT",
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
