"""The condition of a pod that has to go, which says who drives it out and why."""

from __future__ import annotations

from typing import Final

from dray.api.core import Pod
from dray.api.times import format_time

TARGET: Final = "DisruptionTarget"


def is_target(pod: Pod) -> bool:
    return any(condition.type == TARGET and condition.status == "True" for condition in pod.status.conditions)


def target(reason: str, message: str, now: float) -> dict[str, str]:
    return {"type": TARGET, "status": "True", "reason": reason, "message": message, "lastTransitionTime": format_time(now)}
