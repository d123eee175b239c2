"""The pause of a pod whose devices failed it after others had left for it: for a while nobody else has to.

Always true: the pod's condition tells until when, and how often it was in vain, so a scheduler that starts goes on where the one
before it ended; only the sentence that ``words`` makes of ``EvictionsPaused`` is recognised.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dray.api.core import Pod
from dray.api.reason import Reason
from dray.api.times import format_time, parse_time

CODE: Final = "EvictionsPaused"
_SAID: Final = re.compile(
    r"evicts nobody before (?P<until>\d{4}-\S+Z): devices failed it after others had left for it(?:, (?P<times>\d{1,6}) times)?"
)


class Pause(NamedTuple):
    until: float
    times: int = 1

    def reason(self, pod: Pod) -> Reason:
        data: dict[str, str | int] = {"until": format_time(self.until)}
        if self.times > 1:
            data["times"] = self.times
        return Reason(CODE, f"pod/{pod.key}", data)


def told(pod: Pod) -> Pause | None:
    """The pause that the pod's condition tells of; it may be over."""
    if not pod.status.conditions:
        return None
    said = next((c.message for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"), "")
    found = _SAID.search(said or "")
    if found is None:
        return None
    try:
        return Pause(parse_time(found["until"]), int(found["times"] or 1))
    except ValueError:
        return None
