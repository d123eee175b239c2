"""HorizontalPodAutoscalers in autoscaling/v1, as a view of those that are stored in v2.

v1 has one number for the use of processors. What else v2 says travels in an annotation, so that a client of v1 that reads,
changes and writes an object loses none of it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

Object = dict[str, Any]

CARRIED: Final = "autoscaling.dray.dev/v2"
# Whoever writes the annotation by hand may write anything.
_PARTS: Final[tuple[tuple[str, dict[str, type]], ...]] = (
    ("spec", {"metrics": list, "behavior": dict}),
    ("status", {"currentMetrics": list, "conditions": list}),
)


def to_v2(scaler: Object) -> Object:
    """Parts of objects are converted too: what is not there is not made up."""
    made = dict(scaler)
    carried = _unpacked(made)
    for part, fields in _PARTS:
        kept = {name: value for name, value in (carried.get(part) or {}).items() if isinstance(value, fields.get(name, ()))}
        if part in made or kept:
            made[part] = {**(made.get(part) or {}), **kept}
    spec, status = made.get("spec"), made.get("status")
    if isinstance(spec, dict):
        percent = spec.pop("targetCPUUtilizationPercentage", None)
        metrics = [metric for metric in spec.get("metrics") or () if percent is None or not _is_usage(metric, "target")]
        if percent is not None:
            target = {"type": "Utilization", "averageUtilization": percent}
            metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        if metrics or "metrics" in spec:
            spec["metrics"] = metrics
    if isinstance(status, dict):
        status.pop("currentCPUUtilizationPercentage", None)
    return made


def to_v1(scaler: Object) -> Object:
    made, carried = dict(scaler), {}
    for part, fields in _PARTS:
        if isinstance(found := made.get(part), dict):
            carried[part] = {name: found[name] for name in fields if found.get(name)}
            made[part] = {name: value for name, value in found.items() if name not in fields}
    _usage(made, carried, "spec", "metrics", "target", "targetCPUUtilizationPercentage")
    _usage(made, carried, "status", "currentMetrics", "current", "currentCPUUtilizationPercentage")
    if len(carried.get("spec", {}).get("metrics", ())) == 1 and "targetCPUUtilizationPercentage" in made["spec"]:
        del carried["spec"]["metrics"]  # v1 says it all
    if carried := {part: kept for part, kept in carried.items() if kept}:
        metadata = dict(made.get("metadata") or {})
        packed = msgspec.json.encode(carried, order="sorted").decode()
        made["metadata"] = metadata | {"annotations": {**(metadata.get("annotations") or {}), CARRIED: packed}}
    return made


def _unpacked(made: Object) -> Object:
    metadata: Any = made.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or CARRIED not in annotations:
        return {}
    rest = {name: value for name, value in annotations.items() if name != CARRIED}
    made["metadata"] = {**metadata, "annotations": rest}
    if not rest:
        del made["metadata"]["annotations"]
    with suppress(msgspec.DecodeError, msgspec.ValidationError, TypeError):  # somebody wrote it by hand: it says nothing
        return msgspec.json.decode(annotations[CARRIED], type=dict[str, dict[str, Any]])
    return {}


def _usage(made: Object, carried: Object, part: str, metrics: str, where: str, shown: str) -> None:
    for metric in carried.get(part, {}).get(metrics, ()):
        if _is_usage(metric, where):
            made[part][shown] = metric["resource"][where]["averageUtilization"]


def _is_usage(metric: Any, where: str) -> bool:
    resource = metric.get("resource") if isinstance(metric, dict) and metric.get("type") == "Resource" else None
    if not isinstance(resource, dict) or resource.get("name") != "cpu":
        return False
    return isinstance(resource.get(where), dict) and resource[where].get("averageUtilization") is not None
