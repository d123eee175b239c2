"""The stages of a binding, as one table: what can happen to a pod between decision and bind, and where that leads.

Always true: a binding changes its stage only by a row of this table; what is not in it cannot happen.
"""

from __future__ import annotations

from typing import Final, Literal

Stage = Literal["creating", "claims", "conditions", "binding", "bound", "given up", "withdrawn", "left alone"]
Stimulus = Literal[
    "claim made",  # the claim for extended resources exists
    "devices awaited",  # everything is written, and devices are still to be made ready
    "ready",  # everything is written and every device is ready
    "failed",  # a write was refused, a claim or a device was lost, or time ran out
    "bound",  # the API shows the pod on its node
    "pod gone",  # the pod was deleted, has ended, or is called off for a more important one
    "placed by others",  # the API shows the pod on a node that another scheduler chose
]

TRANSITIONS: Final[dict[tuple[Stage, Stimulus], Stage]] = {
    ("creating", "claim made"): "claims",
    ("creating", "failed"): "given up",
    ("claims", "devices awaited"): "conditions",
    ("claims", "ready"): "binding",
    ("claims", "failed"): "given up",
    ("conditions", "ready"): "binding",
    ("conditions", "failed"): "given up",
    ("binding", "ready"): "binding",  # sent again: there was no answer
    ("binding", "failed"): "given up",
    ("binding", "bound"): "bound",
    ("creating", "pod gone"): "withdrawn",
    ("claims", "pod gone"): "withdrawn",
    ("conditions", "pod gone"): "withdrawn",
    ("binding", "pod gone"): "withdrawn",
    ("creating", "placed by others"): "left alone",
    ("claims", "placed by others"): "left alone",
    ("conditions", "placed by others"): "left alone",
    ("binding", "placed by others"): "left alone",
}
UNDER_WAY: Final[frozenset[Stage]] = frozenset(stage for stage, _ in TRANSITIONS)
