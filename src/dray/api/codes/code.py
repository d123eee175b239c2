"""What a reason code is. The tables beside this module have one row per code.

A text is a verb phrase about its subject (``node``, ``device``, ``claim`` …). ``{key}`` is a datum of the reason; a part in
``[ ]`` is left out when a datum in it is missing (``||`` gives another wording for then), so a reason may carry few data or
many. Verbs in ``< >`` agree with the number of subjects. ``nodes`` is the phrase when several nodes are counted, where it
differs; ``cure`` is the smallest change that helps, as an order; ``upstream`` is what kube-scheduler says for the same, because
people search for that.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Wake = Literal["node", "free", "devices", "pods", "volumes", "classes", "itself"]
NODE: Final = "node"
"""A node came or changed."""
FREE: Final = "free"
"""A pod left a node."""
DEVICES: Final = "devices"
"""Devices appeared, changed or were given back."""
PODS: Final = "pods"
"""A pod that others look at came, went or changed its labels."""
VOLUMES: Final = "volumes"
"""A volume, its claim or its class changed."""
CLASSES: Final = "classes"
"""A device class changed."""
ITSELF: Final = "itself"
"""Only the pod itself or one of its claims can change this; those wake it in any case."""

UNALLOCATED: Final = "cannot allocate all claims"
"""All that kube-scheduler says of a node whose devices will not do."""
# What a device was asked for by: a request of a claim, or a container that wants an extended resource.
ASKED: Final = " for {resource} of container {container}|| for request {request}"
TAINT: Final = " {{{key}[={value}][:{effect}]}}"


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """``plugins`` give it; ``wakes`` are the events that can change it; ``curable``: evicting pods may."""

    plugins: tuple[str, ...]
    meaning: str
    wakes: tuple[Wake, ...]
    subject: str
    says: str
    cure: str = ""
    nodes: str = ""
    upstream: str = ""
    curable: bool = False
