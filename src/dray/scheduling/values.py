"""Values of a scheduler's configuration, read strictly: an error names where the value stands and what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final


class ConfigError(ValueError):
    """The configuration cannot be used. Whoever wrote it must correct it; says where and how."""


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str, where: str) -> float:
    """Seconds of a Go duration: ``600s``, ``1h30m``."""
    parts = _DURATION.findall(text)
    if text == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"{where}: {text!r} is not a duration such as 600s or 10m")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def _sort(value: Any) -> str:
    """As people who write YAML call it."""
    named = {type(None): "nothing", dict: "a mapping", list: "a list", str: "a text", bool: "true or false"}
    return named.get(type(value), "a number")


def mapping(value: Any, where: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a mapping, got {_sort(value)}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return value


def listed(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where}: expected a list, got {_sort(value)}")
    return value


def seconds_of(top: Mapping[str, Any], name: str, default: int) -> int:
    value = top.get(name, default)
    if not isinstance(value, int):
        raise ConfigError(f"{name}: expected a number of seconds, got {value!r}")
    return value


def percentage_of_nodes(raw: Mapping[str, Any], where: str) -> int:
    value = raw.get("percentageOfNodesToScore") or 0
    if not isinstance(value, int) or not 0 <= value <= 100:
        raise ConfigError(f"{where}percentageOfNodesToScore: must be between 0 and 100, got {value!r}")
    return value
