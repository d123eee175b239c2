"""Every reason code: who gives it, what it says, what cures it, what can change it, and whether eviction can.

The list is closed but for plugins from other packages, which add theirs with ``register``. docs/reasons.md is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dray.api.codes import claims, devices, pods, queues, zones
from dray.api.codes.code import Code

__all__ = ["CODES", "CURABLE", "SECTIONS", "Code", "register"]

SECTIONS: Final[dict[str, dict[str, Code]]] = {
    "Devices": devices.TABLE,
    "Claims": claims.TABLE,
    "Pods, nodes and volumes": pods.TABLE,
    "Queues and gangs": queues.TABLE,
    "NUMA zones": zones.TABLE,
}
"""Dray's own codes, as the page has them."""
CODES: Final[dict[str, Code]] = {code: found for table in SECTIONS.values() for code, found in table.items()}
CURABLE: Final = {code for code, found in CODES.items() if found.curable}
"""Reasons that the eviction of pods can cure. All others stay whatever is evicted."""


def register(codes: Mapping[str, Code]) -> None:
    """Codes of a plugin from another package; those that are known already must be the same."""
    for code, found in codes.items():
        if CODES.setdefault(code, found) != found:
            raise ValueError(f"reason code {code!r} is known already, and means something else")
        if found.curable:
            CURABLE.add(code)
