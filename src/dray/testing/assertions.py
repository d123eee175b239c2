"""Assertions that say what is so instead, and why."""

from __future__ import annotations

from typing import Any

from dray.api.kinds import PODS
from dray.testing.cluster import VirtualCluster


def assert_running(cluster: VirtualCluster, *names: str, on: str = "", namespace: str = "default") -> None:
    """Every pod runs, on node ``on`` where it is given; otherwise the message has what `dray why` says."""
    for name in names:
        pod = _pod(cluster, name, namespace)
        phase, node = pod.get("status", {}).get("phase"), pod["spec"].get("nodeName", "")
        if phase != "Running":
            raise AssertionError(f"pod {name} is {phase}, not Running: {cluster.why(name, namespace).summary}")
        if on and node != on:
            raise AssertionError(f"pod {name} runs on node {node}, not on {on}")


def assert_waiting(cluster: VirtualCluster, name: str, *codes: str, namespace: str = "default") -> None:
    """The pod has no node, and these are among the reasons."""
    pod = _pod(cluster, name, namespace)
    if pod["spec"].get("nodeName"):
        raise AssertionError(f"pod {name} does not wait: it is on node {pod['spec']['nodeName']}")
    answer = cluster.why(name, namespace)
    found = {reason.code for reason in answer.reasons}
    if missing := set(codes) - found:
        raise AssertionError(f"pod {name} does not wait for {', '.join(sorted(missing))} but: {answer.summary}")


def assert_sound(cluster: VirtualCluster, *, strict: bool = False) -> None:
    """Every rule of ``dray verify`` holds; with ``strict`` nothing is left over either."""
    report = cluster.verify()
    found = [*report.violations, *(report.leftovers if strict else ())]
    if found:
        told = "\n".join(f"  {each.rule}: {' '.join(each.objects)}: {each.detail}" for each in found)
        raise AssertionError(f"{len(found)} rules do not hold:\n{told}")


def _pod(cluster: VirtualCluster, name: str, namespace: str) -> dict[str, Any]:
    pod = cluster.get(PODS, name, namespace)
    if pod is None:
        raise AssertionError(f"there is no pod {namespace}/{name}")
    return pod
