"""A change that was looked at, done: what `kubectl apply`, `cordon` and `taint` and `dray taint` do, one step after the other.

Always true: only what is done by writing objects is done here; a drain asks again and again until budgets allow it, and a node is
not ours to lose. Where a step is refused, those before it stay, those after it are not begun, and the answer names both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

from dray.api.core import Taint
from dray.api.kinds import DEVICE_TAINT_RULES, NODES
from dray.api.resource import DeviceTaintRule
from dray.cluster.port import Cluster, ClusterError, Conflict, Refused, Write
from dray.cluster.served import Served
from dray.controllers.taints import taint_text
from dray.explain import targets
from dray.explain.snapshot import documents_in
from dray.runtime.local import Unappliable, bring_in
from dray.web.views import Change

Step = tuple[str, Callable[[Cluster], Awaitable[Any]]]


class NotDone(Exception):
    """A step was refused: says which, why, and what was done before it."""

    def __init__(self, step: str, why: str, done: list[str]) -> None:
        super().__init__(f"{step}: {why}. " + (f"Done before it: {'; '.join(done)}." if done else "Nothing was done."))


def stays_a_thought(change: Change, left_out: list[str]) -> str:
    """Why the change cannot be done from here, or nothing."""
    if change.drain:
        return f"a drain goes on until budgets allow it: kubectl drain {' '.join(change.drain)}"
    if change.remove:
        return "a node is not lost by writing to the API"
    if left_out:
        return f"nothing was rehearsed of {left_out[0]}: use kubectl apply"
    return ""


async def apply(cluster: Cluster, change: Iterable[Step]) -> list[str]:
    """What was done, in words. Raises NotDone."""
    done: list[str] = []
    for told, step in change:
        try:
            await step(cluster)
        except (ClusterError, Unappliable) as error:
            raise NotDone(told, error.message if isinstance(error, Refused) else str(error), done) from error
        done.append(told)
    return done


def steps(change: Change) -> Iterator[Step]:
    """Each with what it does, in the order of the rehearsal. Raises SnapshotError and TargetError."""
    for body in documents_in(change.manifests, "the manifests"):
        metadata = body.get("metadata") or {}
        yield f"apply {body.get('kind')} {metadata.get('name') or ''}", partial(bring_in, objects=[body])
    for node in change.cordon:
        yield f"cordon {node}", partial(_unschedulable, node=node, value=True)
    for node in change.uncordon:
        yield f"uncordon {node}", partial(_unschedulable, node=node, value=None)
    for node, text in change.taint:
        taint = targets.node_taint(text)
        yield f"taint node {node} with {text}", partial(_taint, node=node, taint=taint)
    for target, text in change.taint_devices:
        rule = targets.rule_of(targets.selector(target), targets.taint(text))
        said = f"taint {target} with {taint_text(rule.spec.taint)} by rule {rule.metadata.name}"
        yield said, partial(_rule, rule=rule)


async def _unschedulable(cluster: Cluster, node: str, value: bool | None) -> None:
    await cluster.write(Write("patch", NODES, name=node, body={"spec": {"unschedulable": value}}))


async def _taint(cluster: Cluster, node: str, taint: Taint) -> None:
    found = await cluster.get(NODES, "", node)
    there = (found.get("spec") or {}).get("taints") or ()
    kept = [each for each in there if (each.get("key"), each.get("effect")) != (taint.key, taint.effect)]
    made = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    version = found["metadata"]["resourceVersion"]  # a taint that came since must not be lost
    await cluster.write(Write("patch", NODES, name=node, body={"spec": {"taints": [*kept, made]}}, resource_version=version))


async def _rule(cluster: Cluster, rule: DeviceTaintRule) -> None:
    version = cluster.version_of(DEVICE_TAINT_RULES) if isinstance(cluster, Served) else DEVICE_TAINT_RULES.api_version
    create, change = targets.writes(rule, version)
    try:
        await cluster.write(create)
    except Conflict:
        await cluster.write(change)
