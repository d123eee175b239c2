"""Binding conditions that a pod waits for (KEP-5007): which, since when and until when."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dray.api.resource import ResourceClaim
from dray.api.times import format_time, parse_time
from dray.scheduling.binding import conditions


class Awaited(msgspec.Struct, rename="camel"):
    """A binding condition that is not true yet."""

    claim: str
    device: str
    condition: str
    status: str
    since: str
    deadline: str
    message: str = ""


def awaited(claim: ResourceClaim, timeout: float, now: float) -> Iterator[Awaited]:
    """The binding conditions of an allocated claim that are not true, each with since when and until when."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    since = allocation.allocation_timestamp or ""
    deadline = format_time(parse_time(since) + timeout) if since else format_time(now + timeout)
    for result in allocation.devices.results:
        device = (result.driver, result.pool, result.device)
        known = conditions.reported(claim, result)
        for type in result.binding_conditions:
            found = known.get(type)
            if found is None or found.status != "True":
                status = found.status if found is not None else "not reported"
                said = f"{found.reason}: {found.message}".strip(": ") if found is not None else ""
                yield Awaited(claim.key, "/".join(device), type, status, since, deadline, said)
