"""Sums before searches: what cannot fit whoever leaves is not searched for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dray.books.nodes import Nodes, Placed
from dray.scheduling.waiting.queue import QueuedPod


def hopeless(nodes: Nodes, members: Sequence[QueuedPod], gone: Iterable[Placed], from_devices: Callable[[str], bool]) -> bool:
    """Whether the members would not fit if all these pods were gone, as far as plain sums tell. Only for members that ask for the
    same of nodes and for no claims; of others nothing is known. ``from_devices``: whether devices serve a resource."""
    first = members[0].demand
    if any(pending.demand is not first or pending.pod.spec.resource_claims for pending in members):
        return False
    wanted = [(name, value) for name, value in first.requests if value]
    if any(from_devices(name) for name, _ in wanted):
        return False
    freed: dict[str, dict[str, int]] = {}
    for placed in gone:
        sums = freed.setdefault(placed.node, {})
        for name, value in placed.demand.requests:
            sums[name] = sums.get(name, 0) + value
    slots = 0
    for info in nodes:
        more = freed.get(info.name, {})
        slots += max(0, min(((info.free(name) + more.get(name, 0)) // value for name, value in wanted), default=len(members)))
        if slots >= len(members):
            return False
    return True
