"""An answer to ``dray why``, and the sentences that it begins with."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from dray.api.core import Pod
from dray.api.reason import Reason
from dray.explain.awaited import Awaited
from dray.explain.choice import Choice
from dray.explain.evicting import WouldEvict
from dray.explain.fix import Fix
from dray.explain.nearest import Nearest, NodeAnswer
from dray.explain.queued import Queued

VerdictName = Literal["bound", "waiting", "unschedulable", "impossible"]

# Reasons that end by themselves, given that every part of the cluster does its work.
PASSING: Final = frozenset(
    {"ClaimNotCreated", "ClaimInFlight", "ClaimDeleting", "ClaimLost", "BindingPending", "Preempting", "MakingRoom"}
)
# Reasons that only a change of the pod or of its claims can cure.
NEVER: Final = frozenset(
    {
        *("TooManyDevices", "SelectorError", "InvalidRequest", "ClaimForeign", "ClassMissing", "ClaimMissing"),
        *("TemplateMissing", "VolumeClaimMissing", "PodSaysUnreadable", "GpuSharing"),
    }
)


class Why(msgspec.Struct):
    pod: str
    verdict: VerdictName
    summary: str
    reasons: list[Reason]
    nodes: list[NodeAnswer] = []
    fixes: list[str] = []
    fits: list[str] = []
    awaited: list[Awaited] = []
    nearest: Nearest | None = None
    choice: Choice | None = None
    advice: list[Fix] = []
    upstream: str = ""
    evicts: WouldEvict | None = None
    """Whom the scheduler would evict for the pod when it next looks at it."""
    # What nobody promises, although it may look so.
    notes: list[str] = []
    queued: Queued | None = None
    """The queue and the gang that it waits in."""


def sentence(pod: Pod, verdict: VerdictName, told: str) -> str:
    if told.startswith(f"pod {pod.key} waits "):
        return told
    told = of_itself(pod, told)
    match verdict:
        case "impossible":
            return f"pod {pod.key} cannot be scheduled, even on an empty cluster: {told}"
        case "waiting":
            return f"pod {pod.key} waits: {told}"
        case _:
            return f"pod {pod.key} cannot be scheduled now: {told}"


def as_it_stands(pod: Pod, told: str) -> str:
    """No node was asked: nothing is in the way but the pod and what it names."""
    return f"pod {pod.key} cannot be scheduled as it stands: {of_itself(pod, told)}"


def of_itself(pod: Pod, told: str) -> str:
    """A reason that is about the pod does not name it twice."""
    return f"it {told.removeprefix(f'pod {pod.key} ')}" if told.startswith(f"pod {pod.key} ") else told
