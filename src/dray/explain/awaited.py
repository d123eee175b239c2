"""Binding conditions that a pod waits for (KEP-5007): which, since when and until when, what failed before, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dray.api.core import Pod
from dray.api.kinds import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.reason import Reason
from dray.api.resource import DeviceKey, ResourceClaim
from dray.api.times import format_time, parse_time
from dray.cluster.world import World
from dray.explain.failures import FailedBinding
from dray.explain.published import Published
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
    deadline = format_time(conditions.deadline(claim, timeout, now))
    for result in allocation.devices.results:
        device = str(DeviceKey.of(result))
        known = conditions.reported(claim, result)
        for type in result.binding_conditions:
            found = known.get(type)
            if found is None or found.status != "True":
                status = found.status if found is not None else "not reported"
                said = f"{found.reason}: {found.message}".strip(": ") if found is not None else ""
                yield Awaited(claim.key, device, type, status, since, deadline, said)


def timeout_of(world: World, scheduler: str, failures: Sequence[FailedBinding]) -> float | None:
    """How long this scheduler waits, as it said when it last gave up."""
    for failure in reversed(failures):
        pod: Pod | None = world.get(PODS, failure.pod)
        if failure.waited is not None and pod is not None and pod.spec.scheduler_name == scheduler:
            return failure.waited
    return None


def reasons(found: Sequence[Awaited]) -> list[Reason]:
    return [Reason("BindingPending", f"claim/{each.claim}", _data(each)) for each in found]


def _data(found: Awaited) -> dict[str, Any]:
    about = {"conditions": [found.condition], "device": found.device, "driver": DeviceKey.parse(found.device).driver}
    return about | {"since": found.since, "deadline": found.deadline}


def summary(pod: Pod, found: Sequence[Awaited], failures: Sequence[FailedBinding], now: float, others: Sequence[str]) -> str:
    """``others``: whose devices they are, where the pod waits for those with which it starts."""
    names = ", ".join(sorted({f"{each.condition} of {each.device}" for each in found}))
    node = pod.status.nominated_node_name
    place = f" on node {node}" if node else ""
    whose = f" for {', '.join(others)} with which it starts" if others else place
    due = min(each.deadline for each in found)
    end = f", at the latest until {due}" if parse_time(due) > now else f"; that was to end at {due}"
    return f"pod {pod.key} waits for {names}{whose}{end}.{_before(pod, failures)}"


def _before(pod: Pod, failures: Sequence[FailedBinding]) -> str:
    own = [failure for failure in failures if failure.of(pod)]
    if not own:
        return ""
    number = "1 device" if len(own) == 1 else f"{len(own)} devices"
    when = f" at {format_time(own[-1].at)}" if own[-1].at is not None else ""
    return f" {number} failed it before, the last{when}: {own[-1].message}."


def more_help(world: World, found: Sequence[Awaited], failures: Sequence[FailedBinding], now: float) -> Iterator[str]:
    """What there is to do but to wait: look whether anybody is there who could end the wait."""
    heard = {status.driver for claim in world.all(RESOURCE_CLAIMS).values() for status in claim.status.devices}
    # What was said of a device that failed went with its allocation.
    heard |= {failure.driver for failure in failures if not failure.timeout}
    for driver in sorted({DeviceKey.parse(each.device).driver for each in found} - heard):
        yield f"see whether the controller runs that prepares devices of {driver}: nobody has reported on any of them"
    if any(parse_time(each.deadline) <= now for each in found):
        yield "see whether the pod's scheduler runs, and give its configuration with --config if it waits longer (bindingTimeout)"


def withdrawn(world: World, found: Sequence[Awaited]) -> list[str]:
    """What is waited for although no slice has it any more."""
    wanted = {each.device: DeviceKey.parse(each.device) for each in found}
    pools = {identity[:2] for identity in wanted.values()}
    slices = world.all(RESOURCE_SLICES).values() if RESOURCE_SLICES in world.kinds else ()
    there = Published(world, [each for each in slices if (each.spec.driver, each.spec.pool.name) in pools], ()).devices
    gone = ", ".join(sorted(name for name, identity in wanted.items() if identity not in there))
    return [f"No longer published: {gone}. It is still waited for, and not chosen again."] if gone else []
