"""A change that was looked at, done: what `kubectl apply`, `cordon`, `taint` and `drain` and `dray taint` do, one step after the
other.

Always true: objects of any kind that the cluster serves are applied by the server, so what others own of them stays theirs;
a drain is begun as the last step and goes on by itself; a node is not ours to lose. Where a step is refused, those before it
stay, those after it are not begun, and the answer names both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from dray.api.core import Taint
from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, DEVICE_TAINT_RULES, NODES, Kind
from dray.api.resource import DeviceTaintRule
from dray.cluster.port import Cluster, ClusterError, Conflict, NotFound, Refused, Write
from dray.cluster.served import Served
from dray.cluster.world import World
from dray.controllers.taints import taint_text
from dray.explain import targets
from dray.explain.snapshot import documents_in
from dray.explain.targets import MANAGER
from dray.runtime.hand import is_named, place_of
from dray.runtime.local import Unappliable
from dray.web.draining import Drains, meant
from dray.web.views import Change

# How long a cluster may take to serve a kind whose definition was just applied.
DEFINED_SECONDS: Final = 10.0

Step = tuple[str, Callable[[Cluster], Awaitable[Any]]]


class NotDone(Exception):
    """A step was refused: says which, why, and what was done before it."""

    def __init__(self, step: str, why: str, done: list[str]) -> None:
        super().__init__(f"{step}: {why}. " + (f"Done before that: {'; '.join(done)}." if done else "Nothing was done."))


def stays_a_thought(change: Change) -> str:
    """Why the change cannot be done from here, or nothing."""
    return "removing a node cannot be done through the API" if change.remove else ""


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


def steps(change: Change, world: World, drains: Drains) -> Iterator[Step]:
    """Each with what it does, in the order of the rehearsal. Raises SnapshotError and TargetError."""
    bodies = sorted(documents_in(change.manifests, "the manifests"), key=lambda body: not _defines(body))
    for body in bodies:
        metadata = body.get("metadata") or {}
        said = f"apply {body.get('kind')} {metadata.get('name') or metadata.get('generateName') or ''}"
        yield said, partial(_applied, body=body, patience=DEFINED_SECONDS if _defines(bodies[0]) else 0.0)
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
    for node in change.drain:
        yield meant(world, node), partial(drains.begin, node=node)


def _defines(body: Mapping[str, Any]) -> bool:
    """Definitions come first, so that their kinds are served when objects of them come."""
    return body.get("kind") == CUSTOM_RESOURCE_DEFINITIONS.kind


async def _applied(cluster: Cluster, body: dict[str, Any], patience: float) -> None:
    kind = await _kind(cluster, body, patience)
    if not is_named(kind, body):
        raise Unappliable(f"{kind.kind} without metadata.name")
    namespace, name = place_of(kind, body)
    if not name:
        await cluster.write(Write("create", kind, namespace, "", body, field_manager=MANAGER))
        return
    await cluster.write(Write("patch", kind, namespace, name, body, patch="apply", field_manager=MANAGER))


async def _kind(cluster: Cluster, body: Mapping[str, Any], patience: float) -> Kind:
    """What the cluster calls a kind, by asking it. ``patience``: its definition may have come a moment ago."""
    group, _, version = str(body.get("apiVersion") or "").rpartition("/")
    # The list of what a group serves in a version is at the root of it.
    root = Kind(group, version, "", "APIResourceList", namespaced=False)
    until = time.monotonic() + patience
    while True:
        try:
            served = (await cluster.get(root, "", "")).get("resources") or []
        except NotFound:
            served = []
        for each in served:
            if each.get("kind") == body.get("kind") and "/" not in each["name"]:
                return Kind(group, version, each["name"], each["kind"], bool(each.get("namespaced")))
        if time.monotonic() >= until:
            raise Unappliable(f"the cluster serves no kind {body.get('kind')!r} in {body.get('apiVersion')!r}")
        await asyncio.sleep(0.2)


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
