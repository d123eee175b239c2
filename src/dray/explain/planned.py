"""A plan in words: what comes of it in one sentence, and what is in use before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.explain.plan import Plan
    from dray.explain.standing import QueueShare, Standing


def verdict(found: Plan) -> str:
    placed = sum(pod.verdict == "placed" for pod in found.pods)
    told = [f"{placed} of {len(found.pods)} pods get a node"] if found.pods else []
    if found.evictions:
        told.append(_leaving(len(found.evictions), sum(not each.finds_place for each in found.evictions)))
    if found.others:
        told.append(
            f"{len(found.others)} that waited get one too" if found.pods else f"{len(found.others)} that waited get a node"
        )
    impossible = sum(pod.verdict == "impossible" for pod in found.pods)
    if impossible:
        told.append(f"{impossible} could not get one even if all nodes were empty")
    if not told and not found.protected:
        told.append("No pod is concerned")
    if waits := found.waiting - impossible:
        told.append(f"{waits} then {'waits' if waits == 1 else 'wait'}")
    return f"{'; '.join(told)}." if told else "No pod leaves."


def _leaving(count: int, lost: int) -> str:
    if count == 1:
        return "1 leaves and finds no place" if lost else "1 leaves and finds another place"
    told = {0: "all find another place", count: "none finds a place"}.get(lost, f"{lost} of them without finding a place")
    return f"{count} leave, {told}"


def compared(before: Standing, after: Standing) -> list[tuple[str, str, str]]:
    """What is in use and what still fits, then and now; of resources, those that change."""
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
        was, will = (_share(one) for one in (before.queues.get(name), after.queues.get(name)))
        rows.append((f"queue {name} holds", was, will))
    return rows


def _share(share: QueueShare | None) -> str:
    """What a queue holds of what it deserves, where that is anything."""
    if share is None:
        return ""
    fair = share.fair_share
    told = (f"{held} of {fair.get(name, '0')} {name}" for name, held in share.allocated.items() if fair.get(name, "0") != "0")
    return ", ".join(told) or "nothing"
