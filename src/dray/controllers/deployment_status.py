"""What a Deployment says of itself: counts, and the conditions that ``kubectl rollout status`` and ``wait`` read."""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import ReplicaSet
from dray.api.times import format_time, parse_time
from dray.api.workloads import Deployment, DeploymentCondition
from dray.controllers.rollout import limits

DEADLINE_SECONDS: Final = 600
DONE: Final = "NewReplicaSetAvailable"
LATE: Final = "ProgressDeadlineExceeded"


def status_of(
    found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet], desired: int, now: float
) -> tuple[dict[str, Any] | None, float | None]:
    """The status to write, None where it is as it should be; and when the progress deadline has to be looked at."""
    counts = _counts(found, new, old)
    available = _available(found, counts, desired, now)
    progressing, due = _progressing(found, new, counts, desired, now)
    known = found.status
    shown = {
        "replicas": known.replicas,
        "updatedReplicas": known.updated_replicas,
        "readyReplicas": known.ready_replicas,
        "availableReplicas": known.available_replicas,
        "unavailableReplicas": known.unavailable_replicas,
        "observedGeneration": known.observed_generation,
    }
    others = [_plain(c) for c in known.conditions if c.type not in ("Available", "Progressing")]
    conditions = [*others, available, progressing]
    if counts == shown and conditions == [
        *others,
        *(_plain(c) for t in ("Available", "Progressing") for c in _of(known.conditions, t)),
    ]:
        return None, due
    return {**counts, "conditions": conditions}, due


def _counts(found: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> dict[str, int]:
    every = [*old, *([new] if new is not None else [])]
    replicas = sum(each.status.replicas for each in every)
    available = sum(each.status.available_replicas for each in every)
    total = sum(each.spec.replicas if each.spec.replicas is not None else 1 for each in every)
    return {
        "replicas": replicas,
        "updatedReplicas": new.status.replicas if new is not None else 0,
        "readyReplicas": sum(each.status.ready_replicas for each in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total - available),
        "observedGeneration": found.metadata.generation,
    }


def _available(found: Deployment, counts: dict[str, int], desired: int, now: float) -> dict[str, Any]:
    rolling = found.spec.strategy.rolling_update
    missing = 0
    if found.spec.strategy.type != "Recreate":
        _, missing = limits(desired, rolling.max_surge if rolling else None, rolling.max_unavailable if rolling else None)
    if counts["availableReplicas"] >= desired - missing:
        wanted = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        wanted = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    return _condition(found, "Available", *wanted, now=now)


def _progressing(
    found: Deployment, new: ReplicaSet | None, counts: dict[str, int], desired: int, now: float
) -> tuple[dict[str, Any], float | None]:
    complete = (
        new is not None
        and counts["updatedReplicas"] == desired
        and counts["replicas"] == desired
        and counts["availableReplicas"] == desired
    )
    named = f'ReplicaSet "{new.metadata.name}"' if new is not None else "ReplicaSet"
    known = next(iter(_of(found.status.conditions, "Progressing")), None)
    if complete:
        return _condition(found, "Progressing", "True", DONE, f"{named} has successfully progressed.", now=now), None
    if new is None or known is None:
        message = f'Created new replica set "{new.metadata.name}"' if new is not None else "Waiting for the new replica set."
        return _condition(found, "Progressing", "True", "NewReplicaSetCreated", message, now=now), None
    moved = known.reason == DONE or _moved(found, counts)
    seconds = found.spec.progress_deadline_seconds or DEADLINE_SECONDS
    since = parse_time(known.last_update_time or known.last_transition_time or format_time(now))
    if not moved and known.reason == LATE:
        return _plain(known), None
    if not moved and now >= since + seconds and not found.spec.paused:
        return _condition(found, "Progressing", "False", LATE, f"{named} has timed out progressing.", now=now), None
    if not moved:
        return _plain(known), since + seconds
    condition = _condition(found, "Progressing", "True", "ReplicaSetUpdated", f"{named} is progressing.", now=now)
    condition["lastUpdateTime"] = format_time(now)
    return condition, now + seconds


def _moved(found: Deployment, counts: dict[str, int]) -> bool:
    """More updated, ready or available, or fewer old ones, than the status says."""
    known = found.status
    return (
        counts["updatedReplicas"] > known.updated_replicas
        or counts["replicas"] - counts["updatedReplicas"] < known.replicas - known.updated_replicas
        or counts["readyReplicas"] > known.ready_replicas
        or counts["availableReplicas"] > known.available_replicas
    )


def _condition(found: Deployment, type: str, status: str, reason: str, message: str, *, now: float) -> dict[str, Any]:
    """The condition as it should be; the times stay while it says the same."""
    known = next(iter(_of(found.status.conditions, type)), None)
    if known is not None and (known.status, known.reason, known.message) == (status, reason, message):
        return _plain(known)
    stamp = format_time(now)
    kept = known is not None and known.status == status and known.last_transition_time
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": kept or stamp,
    }


def _of(conditions: tuple[DeploymentCondition, ...], type: str) -> list[DeploymentCondition]:
    return [condition for condition in conditions if condition.type == type]


def _plain(condition: DeploymentCondition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastUpdateTime": condition.last_update_time,
        "lastTransitionTime": condition.last_transition_time,
    }
