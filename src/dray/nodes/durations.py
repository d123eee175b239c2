"""Durations as people write them in annotations: ``30s``, ``1m30s``, ``500ms``, or a bare number of seconds."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(text: str) -> float:
    """Raises ValueError, naming the text, for anything else."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or _PART.sub("", text):
        raise ValueError(f"{text!r} is not a duration; write 30s, 1m30s or 500ms")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
