"""What the status of a DeviceTaintRule says: the condition ``EvictionInProgress``, in upstream's words.

The condition is true while pods must still leave because of the rule. For the effect ``None`` it says what would happen if the
effect was ``NoExecute``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from dray.api.amounts import counted
from dray.api.kinds import DEVICE_TAINT_RULES
from dray.api.meta import Condition
from dray.api.resource import DeviceTaintRule
from dray.api.times import format_time
from dray.cluster.port import Write
from dray.controllers.taints import Affected

IN_PROGRESS: Final = "EvictionInProgress"
CONDITIONS_MAX: Final = 8


def shown(rule: DeviceTaintRule) -> Condition | None:
    """The condition as the API has it."""
    return next((found for found in rule.status.conditions if found.type == IN_PROGRESS), None)


def has_room(rule: DeviceTaintRule) -> bool:
    """Whether the API takes the condition: others may have filled the list."""
    return shown(rule) is not None or len(rule.status.conditions) < CONDITIONS_MAX


def progress(rule: DeviceTaintRule, pending: Collection[str], evicted: int) -> Condition:
    """For the effect ``NoExecute``: ``pending`` are the keys of the pods that must leave because of the rule."""
    if pending:
        namespaces = {key.partition("/")[0] for key in pending}
        pods = "1 pod needs" if len(pending) == 1 else f"{len(pending)} pods need"
        return _condition(rule, True, "PodsPendingEviction", f"{pods} to be evicted in {_namespaces(namespaces)}.", evicted)
    return _condition(rule, False, "Completed" if evicted else "NotStarted", "", evicted)


def preview(rule: DeviceTaintRule, published: int, affected: Affected, evicted: int) -> Condition:
    """For the effect ``None``: what the rule would do, once for each change of it."""
    text = (
        f"{counted(published, 'published device')} selected. {counted(affected.allocated, 'allocated device')} selected. "
        f"{counted(len(affected.pods), 'pod')} would be evicted in {_namespaces(affected.namespaces)} "
        "if the effect was NoExecute. This information will not be updated again. "
        "Recreate the DeviceTaintRule to trigger an update."
    )
    return _condition(rule, False, "NoEffect", text, evicted)


def other_effect(rule: DeviceTaintRule, evicted: int) -> Condition:
    return _condition(rule, False, "OtherEffect", "Eviction only happens for the NoExecute effect.", evicted)


def write(rule: DeviceTaintRule, wanted: Condition, now: float, field_manager: str) -> Write | None:
    """The write that makes the API show the condition; None when it does. The time changes only with the status."""
    known = shown(rule)
    if known is not None and _said(known) == _said(wanted):
        return None
    same = known is not None and known.status == wanted.status and known.last_transition_time
    body: dict[str, Any] = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "observedGeneration": wanted.observed_generation,
        "lastTransitionTime": same or format_time(now),
    }
    return Write(
        "patch",
        DEVICE_TAINT_RULES,
        name=rule.metadata.name,
        body={"status": {"conditions": [body]}},
        subresource="status",
        patch="strategic",
        uid=rule.uid,
        field_manager=field_manager,
    )


def _condition(rule: DeviceTaintRule, status: bool, reason: str, message: str, evicted: int) -> Condition:
    done = f"{counted(evicted, 'pod')} evicted since starting the controller." if evicted else ""
    told = " ".join(filter(None, (message, done)))
    return Condition(IN_PROGRESS, "True" if status else "False", reason, told, rule.metadata.generation)


def _said(condition: Condition) -> tuple[object, ...]:
    return condition.status, condition.reason, condition.message, condition.observed_generation


def _namespaces(names: set[str]) -> str:
    return "1 namespace" if len(names) == 1 else f"{len(names)} different namespaces"
