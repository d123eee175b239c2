"""What the page is told, as plain data. Each view is a question that a command answers too, asked of the same function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from dray.api.core import Node, Pod
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.resource import Device, DeviceAttribute, DeviceKey, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.times import parse_time
from dray.api.tolerations import selects
from dray.controllers.eviction import EXPIRES_AT
from dray.controllers.taints import taint_text
from dray.explain import targets
from dray.explain.blast import asked_told, budgets_told, does, previewed, rules_off, told
from dray.explain.choice import Choice
from dray.explain.failures import failed_bindings
from dray.explain.inventory import Inventory, inventory
from dray.explain.overview import Cause, causes, waiting
from dray.explain.owners import owner_of
from dray.explain.plain import plain_causes, plain_why
from dray.explain.plan import Changes, plan
from dray.explain.planned import compared, verdict
from dray.explain.published import Published
from dray.explain.snapshot import Snapshot, documents_in
from dray.explain.story import device_story, story
from dray.explain.targets import rule_of
from dray.explain.tree import nearest, tree
from dray.explain.usage import node_usage
from dray.explain.verify import Report
from dray.explain.verify import verify as check
from dray.explain.why import why as ask
from dray.scheduling.config import Config
from dray.web.moments import Moment

Plain = dict[str, Any]


class Placing(NamedTuple):
    """How the scheduler is set up, as far as it is known."""

    config: Config | None
    gates: Gates | None


class Unknown(Exception):
    """What is asked about is not there."""


# ----------------------------------------------------------------------------------------------------- nodes and devices


def node(moment: Moment, name: str, placing: Placing) -> Plain:
    """A node, what it has and who is on it."""
    world = moment.world
    found: Node | None = world.get(NODES, name)
    if found is None:
        raise Unknown(f"no node named {name}")
    slices = [slice for slice in world.all(RESOURCE_SLICES).values() if _may_be_on(slice, name)]
    rows = [row for row in _inventory(moment, slices, placing).devices if row.node == name]
    usage = node_usage(world).get(name, {})
    on = sorted((pod for pod in world.all(PODS).values() if pod.spec.node_name == name), key=lambda pod: pod.key)
    return {
        "name": name,
        "labels": found.metadata.labels,
        "cordoned": found.spec.unschedulable,
        "taints": [f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}" for taint in found.spec.taints],
        "conditions": msgspec.to_builtins(found.status.conditions),
        "resources": [{"resource": key, "used": str(used), "total": str(total)} for key, (used, total) in usage.items()],
        "devices": msgspec.to_builtins(rows),
        "pods": [_brief(moment, pod) for pod in on],
    }


def device(moment: Moment, name: str, placing: Placing) -> Plain:
    """A device, who has it, what it is like and what happened to it."""
    key = DeviceKey.parse(name)
    slices = [s for s in moment.world.all(RESOURCE_SLICES).values() if (s.spec.driver, s.spec.pool.name) == key[:2]]
    found = _inventory(moment, slices, placing)
    row = next((row for row in found.devices if row.device == key.device), None)
    if row is None:
        raise Unknown(f"no device named {name}")
    published = _device(slices, key.device)
    ruled = not rules_off(placing.gates)
    within = {entry.counter_set for entry in published.consumes_counters}
    return {
        **msgspec.to_builtins(row),
        "name": name,
        "attributes": {key: _value(value) for key, value in sorted(published.attributes.items())},
        "bars": [msgspec.to_builtins(each) for each in found.counter_sets if each.counter_set in within],
        "holders": [_holder(moment, user.claim) for user in row.users],
        "rules": _rules_about(moment, *key) if ruled else [],
        "story": msgspec.to_builtins(device_story(moment.world, key, ruled=ruled)),
    }


def _may_be_on(slice: ResourceSlice, node: str) -> bool:
    return slice.spec.node_name == node or bool(slice.spec.per_device_node_selection)


def _inventory(moment: Moment, slices: Iterable[ResourceSlice], placing: Placing) -> Inventory:
    return inventory(Published(moment.world, slices, gates=placing.gates))


def _device(slices: Iterable[ResourceSlice], name: str) -> Device:
    newest = sorted(slices, key=lambda slice: -slice.spec.pool.generation)
    return next(device for slice in newest for device in slice.spec.devices if device.name == name)


def _value(value: DeviceAttribute) -> Any:
    return next(iter(msgspec.to_builtins(value).values()), None)


def _holder(moment: Moment, key: str) -> Plain:
    claim: ResourceClaim = moment.world.get(RESOURCE_CLAIMS, key)
    namespace = claim.metadata.namespace
    keys = [f"{namespace}/{user.name}" for user in claim.status.reserved_for if user.resource == "pods"]
    pods = [pod for each in keys if (pod := moment.world.get(PODS, each)) is not None]
    allocation = claim.status.allocation
    since = allocation.allocation_timestamp if allocation is not None else None
    return {"claim": key, "since": since, "pods": [_brief(moment, pod) for pod in pods]}


def _rules_about(moment: Moment, driver: str, pool: str, device: str) -> list[Plain]:
    rules = sorted(moment.world.all(DEVICE_TAINT_RULES).items())
    return [
        {"rule": name, "taint": taint_text(rule.spec.taint)}
        for name, rule in rules
        if rule.spec.device_selector is not None and selects(rule.spec.device_selector, driver, pool, device)
    ]


# ------------------------------------------------------------------------------------------------------------------ pods


def _brief(moment: Moment, pod: Pod) -> Plain:
    return {
        "pod": pod.key,
        "phase": pod.status.phase,
        "node": pod.spec.node_name,
        "owner": owner_of(moment.world, pod),
        "priority": pod.spec.priority or 0,
    }


def _asking(moment: Moment, placing: Placing) -> dict[str, Any]:
    failures = failed_bindings(moment.events)
    return {"now": moment.at, **placing._asdict(), "failures": failures, "unknown": moment.unknown}


def waiting_pods(moment: Moment, placing: Placing) -> Plain:
    """What ``dray why`` says without a pod, and since when each of them waits."""
    pods = list(moment.world.all(PODS).values())
    still = waiting(pods)
    found: list[Cause] = causes(moment.world, still, **_asking(moment, placing))
    answer = plain_causes(found, len(pods))
    since = {pod.key: parse_time(pod.metadata.creation_timestamp) for pod in still if pod.metadata.creation_timestamp}
    for cause, told_of in zip(answer["causes"], found):
        cause["commands"] = {fix.told: fix.command for fix in told_of.advice}
        known = {key: since[key] for key in cause["pods"] if key in since}
        cause["since"] = min(known.values(), default=None)
        cause["each"] = [{"pod": key, "since": known.get(key)} for key in cause.pop("pods")]
    return answer


def pod(moment: Moment, key: str, placing: Placing) -> Plain:
    """What ``dray why`` and ``dray story`` say of a pod."""
    found = _pod(moment, key)
    answer = ask(moment.world, found, **_asking(moment, placing))
    created = found.metadata.creation_timestamp
    return {
        **_brief(moment, found),
        "since": parse_time(created) if created else None,
        "why": plain_why(answer),
        "commands": {fix.told: fix.command for fix in answer.advice},
        "tree": msgspec.to_builtins(tree(answer, wide=False)) if answer.nodes and not answer.fits else None,
        "nearest": nearest(answer.nearest) if answer.nearest is not None else "",
        "waits": answer.queued.told() if answer.queued is not None else "",
        "chosen": _chosen(answer.choice) if answer.choice is not None else None,
        "devices": _devices_of(moment, found),
        "story": msgspec.to_builtins(story(moment.world, found, moment.events)),
    }


def _chosen(choice: Choice) -> Plain:
    """Why this node, as ``dray why`` tells it: the nodes that were compared, and the devices there."""
    own = choice.of(choice.node)
    return {
        "told": choice.summary(),
        "node": choice.node,
        "compared": choice.compared,
        "nodes": [{"node": each.node, "points": each.total} for each in choice.nodes],
        "devices": [device.text() for device in own.devices] if own is not None else [],
    }


def _pod(moment: Moment, key: str) -> Pod:
    found: Pod | None = moment.world.get(PODS, key)
    if found is None:
        raise Unknown(f"no pod named {key}")
    return found


def _devices_of(moment: Moment, pod: Pod) -> list[Plain]:
    """The devices that are given to the pod, by claim."""
    found = []
    for claim in moment.world.all(RESOURCE_CLAIMS).values():
        allocation = claim.status.allocation
        mine = any(user.uid == pod.uid for user in claim.status.reserved_for)
        if mine and allocation is not None:
            found += [
                {"claim": claim.key, "request": r.request, "device": str(DeviceKey.of(r))} for r in allocation.devices.results
            ]
    return found


# ---------------------------------------------------------------------------------------------------------------- taints


def taints(moment: Moment, placing: Placing) -> list[Plain]:
    """Every rule: what it is about, what it does, and how far it has come."""
    return [_rule(moment, rule, placing) for _, rule in sorted(moment.world.all(DEVICE_TAINT_RULES).items())]


def _rule(moment: Moment, rule: DeviceTaintRule, placing: Placing) -> Plain:
    found = previewed(moment.world, rule, moment.at, ask=False, gates=placing.gates)
    progress = [f"{c.type}={c.status}: {c.message or c.reason}".rstrip(": ") for c in rule.status.conditions]
    return {
        "rule": rule.metadata.name,
        "taint": taint_text(rule.spec.taint),
        "effect": rule.spec.taint.effect,
        "about": found.selector,
        "since": rule.spec.taint.time_added,
        "expires": rule.metadata.annotations.get(EXPIRES_AT),
        "published": found.published,
        "allocated": found.allocated,
        "pods": found.pods,
        "progress": [f"without effect: {found.without_effect}"] if found.without_effect else progress,
    }


def taint_rule(target: str, taint: str) -> DeviceTaintRule:
    """The rule that `dray taint TARGET TAINT` would make. Raises TargetError."""
    return rule_of(targets.selector(target), targets.taint(taint))


def preview(moment: Moment, rule: DeviceTaintRule, placing: Placing) -> Plain:
    """What `dray taint --preview` says."""
    found = previewed(moment.world, rule, moment.at, ask=True, gates=placing.gates)
    wanted = rule.spec.taint
    return {
        "told": [*told(found, wanted), *asked_told(found), *(f"{line}." for line in budgets_told(found))],
        "does": does(found, wanted),
        "blast": msgspec.to_builtins(found),
    }


# --------------------------------------------------------------------------------------------------------------- what if


class Change(msgspec.Struct, rename="camel"):
    """A change that somebody thinks of: ``manifests`` as YAML or JSON, nodes by name, and what to taint with what."""

    manifests: str = ""
    cordon: list[str] = []
    uncordon: list[str] = []
    drain: list[str] = []
    remove: list[str] = []
    taint: list[tuple[str, str]] = []
    taint_devices: list[tuple[str, str]] = []


def planned(found: Snapshot, change: Change, now: float, placing: Placing) -> Plain:
    """What `dray plan` says. Raises PlanError, SnapshotError and TargetError."""
    written = enumerate(documents_in(change.manifests, "the manifests"), 1)
    changes = Changes(
        [(f"object {number}", body) for number, body in written],
        change.cordon,
        change.uncordon,
        [(node, targets.node_taint(taint)) for node, taint in change.taint],
        [(targets.selector(target), targets.taint(taint)) for target, taint in change.taint_devices],
        change.drain,
        change.remove,
    )
    answer = plan(found, changes, now=now, config=placing.config, gates=placing.gates)
    return {**answer.to_json(), "told": verdict(answer), "compared": compared(answer.before, answer.after)}


# ---------------------------------------------------------------------------------------------------------------- health


def verify(moment: Moment) -> Plain:
    """What ``dray verify`` says."""
    report: Report = check(moment.world, moment.unknown)
    return {**msgspec.to_builtins(report), "ok": not report.violations, "found": report.found}
