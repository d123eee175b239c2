"""A plan in words: what comes of it in one sentence, and what is in use before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.explain.plan import Plan, PlannedEviction
    from dray.explain.standing import QueueShare, Standing


def verdict(found: Plan) -> str:
    placed = sum(pod.verdict == "placed" for pod in found.pods)
    told = [f"{placed} of {len(found.pods)} pods get a node"] if found.pods else []
    if found.evictions:
        told.append(_leaving(found.evictions))
    if found.others:
        get = "gets" if len(found.others) == 1 else "get"
        told.append(f"{len(found.others)} that waited {get} {'one too' if found.pods else 'a node'}")
    impossible = sum(pod.verdict == "impossible" for pod in found.pods)
    if impossible:
        told.append(f"{impossible} could not get one even if all nodes were empty")
    if kept := len(found.protected):
        told.append(f"{kept} {'stays' if kept == 1 else 'stay'} on a drained node, protected by a disruption budget")
    if not told:
        told.append("No pod is affected")
    if waits := found.waiting - impossible:
        told.append(f"{waits} then {'waits' if waits == 1 else 'wait'}")
    return f"{'; '.join(told)}."


def _leaving(evictions: Sequence[PlannedEviction]) -> str:
    count, gone = len(evictions), sum(not each.again for each in evictions)
    lost = sum(not each.finds_place for each in evictions) - gone
    if count == 1:
        return f"1 is evicted and {'not recreated' if gone else 'does not fit elsewhere' if lost else 'fits elsewhere'}"
    if gone == count:
        return f"{count} are evicted, none is recreated"
    if gone:
        places = f", {lost} {'does' if lost == 1 else 'do'} not fit elsewhere" if lost else ""
        return f"{count} are evicted, {gone} {'is' if gone == 1 else 'are'} not recreated{places}"
    told = {0: "all fit elsewhere", count: "none fits elsewhere"}.get(
        lost, f"{lost} of them {'does' if lost == 1 else 'do'} not fit elsewhere"
    )
    return f"{count} are evicted, {told}"


def compared(before: Standing, after: Standing) -> list[tuple[str, str, str]]:
    """What is in use and what still fits, then and now; of resources and of queues, what changes."""
    rows: list[tuple[str, str, str]] = []
    if before.nodes != after.nodes:
        rows.append(("nodes", str(before.nodes), str(after.nodes)))
    for name in sorted(before.resources.keys() | after.resources.keys()):
        was, will = (
            f"{one.used} of {one.total}" if one else "" for one in (before.resources.get(name), after.resources.get(name))
        )
        if was != will:
            rows.append((f"{name} in use", was, will))
    for driver in sorted(before.devices.keys() | after.devices.keys()):
        uses = before.devices.get(driver), after.devices.get(driver)
        was, will = (f"{one.used} of {one.total}" if one else "" for one in uses)
        rows.append((f"{driver} in use", was, will))
        was, will = (f"{one.scattered} of {one.free}" if one else "" for one in uses)
        rows.append((f"{driver} free, scattered", was, will))
    for name in sorted(before.fits.keys() | after.fits.keys()):
        was, will = (f"{one.largest}" if one else "0" for one in (before.fits.get(name), after.fits.get(name)))
        rows.append((f"largest claim of {name}", was, will))
    for name in sorted(before.queues.keys() | after.queues.keys()):
        rows += _shares(name, before.queues.get(name), after.queues.get(name))
    return rows


def _shares(queue: str, before: QueueShare | None, after: QueueShare | None) -> Iterator[tuple[str, str, str]]:
    """What a queue holds of what it deserves, of each resource of which that changes, and how many of its pods wait."""
    both = (before, after)
    for resource in sorted({name for each in both if each is not None for name in each.allocated}):
        was, will = (
            f"{each.allocated.get(resource, '0')} of {each.fair_share.get(resource, '0')}" if each else "" for each in both
        )
        if was != will:
            yield f"queue {queue} holds {resource}", was, will
    was, will = (str(each.waiting_pods) if each else "" for each in both)
    if was != will:
        yield f"queue {queue}, pods that wait", was, will
