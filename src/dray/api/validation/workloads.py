"""Workloads: what makes pods, and disruption budgets, which protect them."""

from __future__ import annotations

import re
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from dray.api.core import LabelSelector
from dray.api.cron import BadSchedule, Schedule
from dray.api.selectors import selects
from dray.api.validation.errors import (
    Errors,
    forbidden,
    immutable,
    invalid,
    not_negative,
    not_supported,
    one_of,
    required,
)
from dray.api.validation.pods import pod_template
from dray.api.validation.selectors import label_selector

Object = dict[str, Any]

_ALWAYS: Final = ("Always",)
_JOB_RESTART: Final = ("OnFailure", "Never")
_UNHEALTHY: Final = ("AlwaysAllow", "IfHealthyBudget")
_STRATEGIES: Final = ("Recreate", "RollingUpdate")
_UPDATES: Final = ("OnDelete", "RollingUpdate")
_MANAGEMENT: Final = ("OrderedReady", "Parallel")
_MODES: Final = ("NonIndexed", "Indexed")
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
_PERCENT: Final = re.compile(r"\d{1,9}%", re.ASCII)


def _spec(obj: Object) -> Object:
    found: Object = obj.get("spec") or {}
    return found


def _selected_template(spec: Object) -> Errors:
    """A selector, a template, and the one finds the pods of the other."""
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    else:
        wrong = list(label_selector(selector, "spec.selector"))
        yield from wrong
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
        elif not wrong:
            yield from _finds_template(selector, spec)
    yield from pod_template(spec.get("template"), "spec.template", restart=_ALWAYS)
    if ((spec.get("template") or {}).get("spec") or {}).get("activeDeadlineSeconds") is not None:
        yield forbidden("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in ReplicaSet is not Supported")


def _finds_template(selector: Object, spec: Object) -> Errors:
    found = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not selects(msgspec.convert(selector, LabelSelector), found):
        yield invalid("spec.template.metadata.labels", found, "`selector` does not match template `labels`")


def _counts(spec: Object, path: str, *fields: str) -> Errors:
    for field in fields:
        yield from not_negative(spec.get(field), f"{path}.{field}")


def deployment(obj: Object) -> Errors:
    spec = _spec(obj)
    yield from _counts(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and 0 <= deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    yield from _selected_template(spec)
    strategy = spec.get("strategy") or {}
    yield from one_of(strategy.get("type"), _STRATEGIES, "spec.strategy")
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        yield forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif rolling is not None:
        yield from _rolling_update(rolling, "spec.strategy.rollingUpdate")


def _rolling_update(rolling: Object, path: str) -> Errors:
    for field in ("maxUnavailable", "maxSurge"):
        yield from int_or_percent(rolling.get(field), f"{path}.{field}")
    if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
        yield invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0")


def int_or_percent(value: Any, path: str) -> Errors:
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield invalid(
            path, value, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')"
        )
    elif isinstance(value, int):
        yield from not_negative(value, path)


def deployment_update(new: Object, old: Object) -> Errors:
    yield from immutable(_spec(new).get("selector"), _spec(old).get("selector"), "spec.selector")
    yield from deployment(new)


def replica_set(obj: Object) -> Errors:
    yield from _counts(_spec(obj), "spec", "replicas", "minReadySeconds")
    yield from _selected_template(_spec(obj))


def replica_set_update(new: Object, old: Object) -> Errors:
    yield from immutable(_spec(new).get("selector"), _spec(old).get("selector"), "spec.selector")
    yield from replica_set(new)


def replication_controller(obj: Object) -> Errors:
    spec = _spec(obj)
    yield from _counts(spec, "spec", "replicas", "minReadySeconds")
    selector = spec.get("selector")
    found = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not selector:
        yield required("spec.selector")
    elif any(found.get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", found, "`selector` does not match template `labels`")
    yield from pod_template(spec.get("template"), "spec.template", restart=_ALWAYS)


def stateful_set(obj: Object) -> Errors:
    spec = _spec(obj)
    yield from one_of(spec.get("podManagementPolicy"), _MANAGEMENT, "spec.podManagementPolicy")
    yield from one_of((spec.get("updateStrategy") or {}).get("type"), _UPDATES, "spec.updateStrategy.type")
    yield from _counts(spec, "spec", "replicas", "minReadySeconds")
    yield from _selected_template(spec)


def stateful_set_update(new: Object, old: Object) -> Errors:
    """Only what can be rolled out pod by pod may change."""
    changing = {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
    after, before = _spec(new), _spec(old)
    fixed = (after.keys() | before.keys()) - changing
    if any(after.get(field) != before.get(field) for field in fixed):
        yield forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        )
    yield from stateful_set(new)


def daemon_set(obj: Object) -> Errors:
    spec = _spec(obj)
    yield from one_of((spec.get("updateStrategy") or {}).get("type"), _UPDATES, "spec.updateStrategy.type")
    yield from _counts(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
    yield from _selected_template(spec)


def daemon_set_update(new: Object, old: Object) -> Errors:
    yield from immutable(_spec(new).get("selector"), _spec(old).get("selector"), "spec.selector")
    yield from daemon_set(new)


# jobs


def job(obj: Object) -> Errors:
    yield from job_spec(_spec(obj), "spec")


def job_spec(spec: Object, path: str) -> Errors:
    yield from _counts(
        spec, path, "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"
    )
    yield from one_of(spec.get("completionMode"), _MODES, f"{path}.completionMode", optional=True)
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if spec.get("manualSelector") and spec.get("selector") is None:
        yield required(f"{path}.selector")
    yield from pod_template(spec.get("template"), f"{path}.template", restart=("Always", *_JOB_RESTART))
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        words = 'valid values: "OnFailure", "Never"'
        yield required(f"{path}.template.spec.restartPolicy", words)


def job_update(new: Object, old: Object) -> Errors:
    after, before = _spec(new), _spec(old)
    yield from job(new)
    for field in ("selector", "completionMode", "managedBy", "podFailurePolicy", "backoffLimitPerIndex", "successPolicy"):
        yield from immutable(after.get(field), before.get(field), f"spec.{field}")
    if after.get("completions") != before.get("completions") and not _elastic(after, before):
        yield invalid("spec.completions", after.get("completions"), "field is immutable")
    yield from _job_template(after, before, suspended=_may_reschedule(before, old))


def _elastic(after: Object, before: Object) -> bool:
    """An indexed job may change its completions together with its parallelism."""
    both = after.get("completions") == after.get("parallelism") and before.get("completions") == before.get("parallelism")
    return before.get("completionMode") == "Indexed" and both


def _may_reschedule(before: Object, old: Object) -> bool:
    status = old.get("status") or {}
    stopped = any(c.get("type") == "Suspended" and c.get("status") == "True" for c in status.get("conditions") or ())
    return bool(before.get("suspend")) and (not status.get("startTime") or (stopped and not status.get("active")))


def _job_template(after: Object, before: Object, *, suspended: bool) -> Errors:
    """A suspended job without pods may still change where its pods may run and what they need."""
    new, old = after.get("template") or {}, before.get("template") or {}
    if suspended:
        new, old = _without_scheduling(new), _without_scheduling(old)
    yield from immutable(new, old, "spec.template")


def _without_scheduling(template: Object) -> Object:
    scheduling = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key not in scheduling}
    spec["containers"] = [{k: v for k, v in c.items() if k != "resources"} for c in spec.get("containers") or ()]
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    return {**template, "metadata": metadata, "spec": spec}


def cron_job(obj: Object) -> Errors:
    spec = _spec(obj)
    if not spec.get("schedule"):
        yield required("spec.schedule")
    else:
        yield from _schedule(spec["schedule"])
    if (zone := spec.get("timeZone")) is not None and (problem := _zone_problem(zone)):
        yield invalid("spec.timeZone", zone, problem)
    yield from one_of(spec.get("concurrencyPolicy"), _CONCURRENCY, "spec.concurrencyPolicy")
    yield from job_spec((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")


def _schedule(text: str) -> Errors:
    try:
        Schedule(text)
    except BadSchedule as error:
        yield invalid("spec.schedule", text, str(error))


def _zone_problem(zone: str) -> str:
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", zone) or len(zone) > 255:
        return f"unknown time zone {zone}"
    try:
        ZoneInfo(zone)
    except (LookupError, ValueError, OSError):
        return f"unknown time zone {zone}"
    return ""


def disruption_budget(obj: Object) -> Errors:
    spec = _spec(obj)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    yield from int_or_percent(least, "spec.minAvailable")
    yield from int_or_percent(most, "spec.maxUnavailable")
    yield from label_selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _UNHEALTHY:
        yield not_supported("spec.unhealthyPodEvictionPolicy", policy, _UNHEALTHY)
