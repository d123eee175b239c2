"""Whether a claim tolerates a taint of a device."""

from __future__ import annotations

from typing import Any

from dray.api.resource import DeviceTaint


def tolerates(toleration: Any, taint: DeviceTaint) -> bool:
    """KEP-5055: an empty effect matches every effect, an empty key with Exists every key."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and bool(toleration.value == taint.value)
