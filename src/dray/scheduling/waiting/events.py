"""What a refused pod waits for: every reason code names the events that can change it (``dray.api.codes``)."""

from __future__ import annotations

from dray.api.codes import CODES
from dray.api.codes.code import CLASSES, DEVICES, FREE, ITSELF, NODE, PODS, VOLUMES
from dray.scheduling.placing.refusal import Refusal

__all__ = ["CLASSES", "DEVICES", "FREE", "ITSELF", "NODE", "PODS", "VOLUMES", "events_for"]


def events_for(refusal: Refusal, also: frozenset[str] = frozenset()) -> frozenset[str]:
    """Everything that can change a refusal; where nodes refused, a new node can too."""
    found = {event for code in refusal.codes for event in CODES[code].wakes}
    if refusal.nodes:
        found.add(NODE)
    return frozenset(found) | also
