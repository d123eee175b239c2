"""Expressions of recorded inputs, evaluated by Dray's expression engine (which has its own tests against other engines)."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from dray import cel
from dray.api import resource
from tests.solver.model import Device, Fatal


@functools.cache
def _program(expression: str) -> cel.Program:
    try:
        return cel.compile(expression, derived=True)
    except cel.CompileError as error:
        raise Fatal(str(error)) from None


def evaluate(expression: str, device: Device) -> Any:
    typed = msgspec.convert(device.raw, resource.Device, strict=False)
    try:
        return _program(expression).value(cel.DeviceView.of(device.driver, typed))
    except cel.EvaluationError as error:
        raise Fatal(str(error)) from None
