"""What happened to a pod, in order, put together from what the API shows: times in its status, its claims, and events."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from dray.api.core import Pod
from dray.api.kinds import DEVICE_TAINT_RULES, RESOURCE_CLAIMS
from dray.api.resource import DeviceKey, DeviceTaintRule, ResourceClaim
from dray.api.times import parse_time
from dray.api.tolerations import selects
from dray.cluster.world import World
from dray.controllers.taints import taint_text
from dray.explain.claimed import claims_in
from dray.runtime.stories import Line


def story(world: World, pod: Pod, events: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Lines by time; what has no time is left out. Most times are whole seconds; within one, a pod's life gives the order."""
    lines = [*_of_pod(pod), *_of_claims(world, pod), *_of_events(pod.key, (pod.uid, None, ""), events)]
    return sorted(lines, key=lambda line: (int(line.at), _stage(line), line.at, line.object))


def after_death(key: str, events: Iterable[Mapping[str, Any]]) -> list[Line]:
    """What events still tell of a pod that is gone, or of several that had its name, by time."""
    return sorted(_of_events(key, None, events), key=lambda line: line.at)


def device_story(world: World, device: DeviceKey, *, ruled: bool) -> list[Line]:
    """What is known of a device, by time: who got it, how it was made ready, what taints it (``ruled``: rules hold here). What
    has ended is not in the API."""
    claims: Iterable[ResourceClaim] = world.all(RESOURCE_CLAIMS).values()
    lines = [line for claim in claims if _holds(claim, device) for line in _of_claim(claim)]
    rules: Iterable[DeviceTaintRule] = world.all(DEVICE_TAINT_RULES).values() if ruled else ()
    for rule in rules:
        added = rule.spec.taint.time_added
        if added and rule.spec.device_selector is not None and selects(rule.spec.device_selector, *device):
            detail = f"{taint_text(rule.spec.taint)} by rule {rule.metadata.name}"
            lines.append(Line(parse_time(added), "tainted", f"device {device}", detail=detail))
    return sorted(lines, key=lambda line: (int(line.at), _stage(line), line.at, line.object))


def _holds(claim: ResourceClaim, device: DeviceKey) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(DeviceKey.of(r) == device for r in allocation.devices.results)


_STAGES: Final = (
    "created",
    "FailedScheduling",
    "allocated",
    "BindingConditionsPending",
    "PodScheduled=True",
    "Scheduled",
    "started",
)


def _stage(line: Line) -> int:
    """Where in a pod's life this happens; devices get ready between allocation and scheduling, a kubelet comes after that."""
    if line.object.startswith("device "):
        return _STAGES.index("BindingConditionsPending")
    if line.by == "kubelet":
        return _STAGES.index("started")
    return _STAGES.index(line.what) if line.what in _STAGES else len(_STAGES) if "=" in line.what else 1


def _of_pod(pod: Pod) -> Iterator[Line]:
    name = f"pod {pod.key}"
    if pod.metadata.creation_timestamp:
        yield Line(parse_time(pod.metadata.creation_timestamp), "created", name, detail=f"for {pod.spec.scheduler_name}")
    for condition in pod.status.conditions:
        if condition.last_transition_time:
            detail = ": ".join(part for part in (condition.reason, condition.message) if part)
            what = f"{condition.type}={condition.status}"
            yield Line(parse_time(condition.last_transition_time), what, name, detail=detail)
    if pod.status.start_time:
        yield Line(parse_time(pod.status.start_time), "started", name, detail=f"on node {pod.spec.node_name}")
    if pod.metadata.deletion_timestamp:
        yield Line(parse_time(pod.metadata.deletion_timestamp), "deleted", name)


def _of_claims(world: World, pod: Pod) -> Iterator[Line]:
    for claim in claims_in(world, pod):
        yield from _of_claim(claim)


def _of_claim(claim: ResourceClaim) -> Iterator[Line]:
    name = f"claim {claim.key}"
    if claim.metadata.creation_timestamp:
        yield Line(parse_time(claim.metadata.creation_timestamp), "created", name)
    allocation = claim.status.allocation
    if allocation is not None and allocation.allocation_timestamp:
        devices = ", ".join(str(DeviceKey.of(result)) for result in allocation.devices.results)
        yield Line(parse_time(allocation.allocation_timestamp), "allocated", name, detail=devices)
    for status in claim.status.devices:
        for condition in status.conditions:
            if condition.last_transition_time:
                what = f"{condition.type}={condition.status}"
                device = f"device {DeviceKey.of(status)}"
                yield Line(parse_time(condition.last_transition_time), what, device, status.driver, condition.message)


def _of_events(key: str, uids: Container[str | None] | None, events: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
    """Events of both APIs, as plain objects; of whichever uid, where none are given."""
    for event in events:
        about = event.get("regarding") or event.get("involvedObject") or {}
        if about.get("kind") != "Pod" or (uids is not None and about.get("uid") not in uids):
            continue
        if f"{about.get('namespace')}/{about.get('name')}" != key:
            continue
        at = event.get("eventTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
        if at:
            by = event.get("reportingController") or event.get("reportingComponent") or ""
            by = by or (event.get("source") or event.get("deprecatedSource") or {}).get("component", "")
            said = str(event.get("note") or event.get("message") or "")
            what, series = str(event.get("reason") or "Event"), event.get("series") or {}
            yield Line(parse_time(str(at)), what, f"pod {key}", str(by), said)
            if last := series.get("lastObservedTime"):
                again = f"the same again, {series.get('count')} times so far: {said}"
                yield Line(parse_time(str(last)), what, f"pod {key}", str(by), again)
