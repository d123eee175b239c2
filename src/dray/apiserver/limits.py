"""LimitRanges: what pods and volume claims of a namespace get by default, and how little or much they may ask for.

Defaults are filled in before a pod is checked; the bounds are judged on what would be stored. Words are those of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dray.api.core import PersistentVolumeClaim, Pod
from dray.api.meta import decode
from dray.api.quantity import Quantity, quantities
from dray.apiserver.errors import forbidden
from dray.apiserver.registry import Context, Resource
from dray.quota.pods import asked

Object = dict[str, Any]
Amounts = Mapping[str, Quantity]

ANNOTATION: Final = "kubernetes.io/limit-ranger"
LIMIT_RANGES: Final = "limitranges"


# -------------------------------------------------------------------------------------------------------------- defaults


def default_amounts(pod: Object, old: Object | None, context: Context) -> None:
    """Containers that name no amount get the one of the namespace; an annotation tells which."""
    if old is not None:
        return
    told: list[str] = []
    for limit_range in context.every(LIMIT_RANGES, pod["metadata"]["namespace"]):
        requests, limits = _defaults(limit_range)
        for field, kind in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(field) or ():
                told += _fill(container, requests, limits, kind)
    if told:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(told)


def _defaults(limit_range: Object) -> tuple[Object, Object]:
    requests: Object = {}
    limits: Object = {}
    for item in _items(limit_range, "Container"):
        requests |= item.get("defaultRequest") or {}
        limits |= item.get("default") or {}
    return requests, limits


def _fill(container: Object, requests: Object, limits: Object, kind: str) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for field, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
        given = resources.get(field) or {}
        missing = {name: amount for name, amount in defaults.items() if name not in given}
        if missing:
            resources[field] = {**given, **missing}
            yield f"{', '.join(sorted(missing))} {word} for {kind} {container['name']}"


# ---------------------------------------------------------------------------------------------------------------- bounds


def check(resource: Resource, obj: Object, old: Object | None, context: Context) -> None:
    """Refuse a new pod, or a volume claim that is new or asks for something else, which is out of bounds."""
    judge = _JUDGES.get(resource.kind.resource)
    if judge is None or (old is not None and not _asks_anew(resource, obj, old)):
        return
    problems = [
        problem
        for limit_range in context.every(LIMIT_RANGES, obj["metadata"].get("namespace", ""))
        for problem in judge(obj, limit_range)
    ]
    if problems:
        why = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise forbidden(resource.kind, obj["metadata"]["name"], why)


def _asks_anew(resource: Resource, obj: Object, old: Object) -> bool:
    return resource.kind.plural == "persistentvolumeclaims" and obj["spec"].get("resources") != old["spec"].get("resources")


def _judge_pod(obj: Object, limit_range: Object) -> Iterator[str]:
    pod = decode(Pod, obj)
    for item in _items(limit_range, "Container"):
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            given = container.resources
            yield from _bounds(item, quantities(given.requests), quantities(given.limits))
    for item in _items(limit_range, "Pod"):
        yield from _bounds(item, asked(pod.spec, "requests"), asked(pod.spec, "limits"))


def _judge_volume(obj: Object, limit_range: Object) -> Iterator[str]:
    claim = decode(PersistentVolumeClaim, obj)
    requests = quantities(claim.spec.resources.requests)
    for item in _items(limit_range, "PersistentVolumeClaim"):
        for name, least in _listed(item, "min"):
            yield from _at_least(name, least, item["type"], requests, {})
        for name, most in _listed(item, "max"):
            told = f"maximum {name} usage per {item['type']} is {most}"
            if name not in requests:
                yield f"{told}.  No request is specified"
            elif requests[name] > most:
                yield f"{told}, but request is {requests[name]}"


_JUDGES: Final = {"pods": _judge_pod, "persistentvolumeclaims": _judge_volume}


def _bounds(item: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in _listed(item, "min"):
        yield from _at_least(name, least, item["type"], requests, limits)
    for name, most in _listed(item, "max"):
        yield from _at_most(name, most, item["type"], requests, limits)
    for name, ratio in _listed(item, "maxLimitRequestRatio"):
        yield from _within_ratio(name, ratio, item["type"], requests, limits)


def _at_least(name: str, least: Quantity, what: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    told = f"minimum {name} usage per {what} is {least}"
    if name not in requests:
        yield f"{told}.  No request is specified"
    elif requests[name] < least:
        yield f"{told}, but request is {requests[name]}"
    elif name in limits and limits[name] < least:
        yield f"{told}, but limit is {limits[name]}"


def _at_most(name: str, most: Quantity, what: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    told = f"maximum {name} usage per {what} is {most}"
    if name not in limits:
        yield f"{told}.  No limit is specified"
    elif limits[name] > most:
        yield f"{told}, but limit is {limits[name]}"
    elif name in requests and requests[name] > most:
        yield f"{told}, but request is {requests[name]}"


def _within_ratio(name: str, ratio: Quantity, what: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    told = f"{name} max limit to request ratio per {what} is {ratio}"
    if not requests.get(name):
        yield f"{told}, but no request is specified or request is 0"
    elif not limits.get(name):
        yield f"{told}, but no limit is specified or limit is 0"
    elif limits[name].nanos * 10**9 > ratio.nanos * requests[name].nanos:
        yield f"{told}, but provided ratio is {limits[name].nanos / requests[name].nanos:f}"


def _items(limit_range: Object, kind: str) -> Iterator[Object]:
    return (item for item in (limit_range.get("spec") or {}).get("limits") or () if item.get("type") == kind)


def _listed(item: Object, field: str) -> Iterable[tuple[str, Quantity]]:
    return sorted(quantities(item.get(field) or {}).items())
