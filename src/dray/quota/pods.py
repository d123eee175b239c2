"""What a pod asks for: exact totals of requests and limits, and how long it is charged for them.

Totals follow the rule of the kubelet and the scheduler, which is in ``dray.api.requests``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from dray.api.core import Pod, PodSpec, ResourceList, ResourceRequirements
from dray.api.quantity import Quantity, quantities
from dray.api.quota_names import COMPUTE, HUGE_PAGES, LIMITS, MUST_SPECIFY, REQUESTS
from dray.api.requests import add, is_pod_level, together
from dray.api.times import parse_time
from dray.quota.names import ONE, Amounts, is_extended

Which = Literal["requests", "limits"]


def totals(spec: PodSpec, which: Which) -> Amounts:
    """What the pod asks for, with what its runtime costs."""
    total = asked(spec, which)
    for name, overhead in quantities(spec.overhead).items():
        if which == "requests" or total.get(name):
            add(total, {name: overhead})
    return total


def asked(spec: PodSpec, which: Which) -> Amounts:
    """What the pod's containers ask for together, or the pod as a whole."""
    total = together(spec, lambda container: quantities(_listed(container.resources, which)))
    if spec.resources is not None:
        whole = quantities(_listed(spec.resources, which))
        total.update({name: q for name, q in whole.items() if is_pod_level(name)})
    return total


def charged_until(pod: Pod) -> float | None:
    """When a pod that is being deleted no longer counts although it is still there; None: not by itself."""
    metadata = pod.metadata
    if metadata.deletion_timestamp is None or metadata.deletion_grace_period_seconds is None:
        return None
    return parse_time(metadata.deletion_timestamp) + metadata.deletion_grace_period_seconds


def compute(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    """Requests and limits under the names that quotas have for them; extended resources are left to ``devices``."""
    named: Amounts = {"pods": ONE}
    for name, amount in requests.items():
        if name in COMPUTE or name.startswith(HUGE_PAGES):
            named[name] = named[REQUESTS + name] = amount
    named.update({LIMITS + name: amount for name, amount in limits.items() if name in COMPUTE})
    return named


def extended(requests: Mapping[str, Quantity]) -> Amounts:
    return {name: amount for name, amount in requests.items() if is_extended(name)}


def unspecified(pod: Pod, names: Iterable[str]) -> dict[str, list[str]]:
    """Of the names that containers must give amounts for, those that are missing, each with the containers that lack it.
    Where the pod gives amounts as a whole, its containers need not."""
    missing: dict[str, list[str]] = {}
    whole = pod.spec.resources
    if whole is not None and any(map(is_pod_level, (*whole.requests, *whole.limits))):
        return missing
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for name in sorted(MUST_SPECIFY.intersection(names) - _specified(container.resources)):
            missing.setdefault(name, []).append(container.name)
    return missing


def _specified(resources: ResourceRequirements) -> frozenset[str]:
    return frozenset(compute(quantities(resources.requests), quantities(resources.limits)))


def _listed(resources: ResourceRequirements, which: Which) -> ResourceList:
    return resources.requests if which == "requests" else resources.limits
