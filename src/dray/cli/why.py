"""``dray why``: why a pod is where it is, or why it is nowhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from dray.api.core import Pod
from dray.api.kinds import DEVICE_CLASSES, EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.reason import Reason
from dray.api.words import as_json, predicate, words
from dray.cli.choice import show_choice
from dray.cli.output import emit, output_option, table
from dray.cli.overview import COLOURS, plain
from dray.cli.overview import show as show_causes
from dray.cli.pods import find, named
from dray.cli.source import Source, placing_of, source_options
from dray.cli.trouble import Trouble
from dray.cluster.world import World
from dray.devices.explain import RequestFinding
from dray.explain.failures import failed_bindings
from dray.explain.overview import WORKLOADS, causes, pods_of, waiting
from dray.explain.why import NodeAnswer, Why
from dray.explain.why import why as ask

_NEEDED: Final = (PODS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES)
_SHOWN_NODES: Final = 5
_NAMED: Final = 4
_TAKEN: Final = "allocated to "


@click.command()
@click.argument("pod", required=False)
@click.option("-n", "--namespace", help="The pod's namespace; without a pod: only pods of this one.")
@click.option("--config", type=click.Path(path_type=Path), help="The scheduler's KubeSchedulerConfiguration, if it has one.")
@source_options
@output_option
def why(pod: str | None, namespace: str | None, config: Path | None, source: Source, output: str) -> None:
    """Say why a pod is where it is, or why it is nowhere.

    One sentence first; then a tree from claim and request to node and device with the first check that fails and its
    numbers; then the smallest changes that would help. The verdict is bound, waiting, unschedulable (not now) or
    impossible (not even on an empty cluster). Each advice was tried before it is told, and comes with what to paste.

    Without a pod: all pods that wait, by cause, worst first. For deploy/NAME, job/NAME and other workloads: their pods.

    \b
    Examples:
      dray why                                        what are pods waiting for?
      dray why train-0
      dray why deploy/inference -n research
      dray why train-0 -n research -o json
      dray why train-0 -o wide                        every node and device
      dray snapshot -o now.json                       for somebody who has no access to the cluster
      dray why train-0 -n research -f now.json
    """
    snapshot = source.read(needs=_NEEDED)
    world, failures = snapshot.world, failed_bindings(snapshot.plain(EVENTS))
    settings, gates = placing_of(config, snapshot)
    now = snapshot.taken_at or time.time()
    found = _asked_for(world, pod, namespace, source)
    if isinstance(found, Pod):
        answer = ask(world, found, now=now, config=settings, gates=gates, failures=failures, unknown=snapshot.unknown)
        emit(_plain(answer), output, lambda console: show(answer, console, wide=output == "wide"))
        return
    told = causes(world, waiting(found), now=now, config=settings, gates=gates, failures=failures, unknown=snapshot.unknown)
    emit(plain(told, len(found)), output, lambda console: show_causes(told, len(found), console, wide=output == "wide"))


def _asked_for(world: World, pod: str | None, namespace: str | None, source: Source) -> Pod | list[Pod]:
    """The pod that is named, or all that are meant."""
    if pod is None:
        return [each for each in world.all(PODS).values() if namespace in (None, each.metadata.namespace)]
    kind, _, workload = pod.partition("/")
    if kind not in WORKLOADS:
        name, where = named(pod, namespace)
        return find(world, name, where or source.namespace(None))
    where = source.namespace(namespace)
    pods = pods_of(world, WORKLOADS[kind], where, workload)
    if not pods:
        raise Trouble(f'{WORKLOADS[kind]} "{workload}" has no pods in namespace "{where}", or does not exist')
    return pods[0] if len(pods) == 1 else pods


# --------------------------------------------------------------------------------------------------------- for scripts


def _plain(answer: Why) -> dict[str, Any]:
    return {
        "pod": answer.pod,
        "verdict": answer.verdict,
        "summary": answer.summary,
        "reasons": [as_json(reason) for reason in answer.reasons],
        "nodes": [_plain_node(node) for node in answer.nodes],
        "fixes": answer.fixes,
        "fits": answer.fits,
        "awaited": msgspec.to_builtins(answer.awaited),
        "nearest": msgspec.to_builtins(answer.nearest),
        "choice": msgspec.to_builtins(answer.choice),
        "advice": msgspec.to_builtins(answer.advice),
    }


def _plain_node(node: NodeAnswer) -> dict[str, Any]:
    plain: dict[str, Any] = {"node": node.node, "reasons": [as_json(reason) for reason in node.reasons]}
    if node.devices is not None:
        plain["requests"] = [_plain_request(request) for request in node.devices.requests]
    return plain


def _plain_request(request: RequestFinding) -> dict[str, Any]:
    return {
        "claim": request.claim,
        "request": request.request,
        "class": request.device_class,
        "needed": request.needed,
        "matching": request.matching,
        "usable": request.usable,
        "devices": [
            {"device": device.device, "reason": as_json(device.reason) if device.reason is not None else None}
            for device in request.devices
        ],
    }


# --------------------------------------------------------------------------------------------------------- for people


def show(answer: Why, console: Console, *, wide: bool) -> None:
    """For people: the sentence, the tree, and what would help."""
    colour = COLOURS[answer.verdict]
    console.print(f"[bold {colour}]{answer.verdict}[/bold {colour}]  {escape(answer.summary)}")
    if answer.awaited:
        console.print()
        rows = [(a.condition, a.device, a.status, a.since, a.deadline, a.message) for a in answer.awaited]
        console.print(table(("waiting for", "device", "is", "since", "until", "says"), rows))
    if answer.choice is not None:
        show_choice(answer.choice, console, placed=answer.verdict == "bound", wide=wide)
    if answer.nodes and not answer.fits:
        console.print()
        console.print(_tree(answer, wide=wide))
    if answer.nearest is not None:
        near = answer.nearest
        devices = "device" if near.missing == 1 else "devices"
        lacks = f"lacks {near.missing} {devices} for request {near.request} of {near.claim}"
        lacks = f"has enough devices for {near.claim}, but they do not {near.constraint}" if near.constraint else lacks
        console.print(f"\nNearest: node {near.node} {escape(lacks)}.")
    _show_fixes(answer, console)


def _show_fixes(answer: Why, console: Console) -> None:
    """What would help, each with what to paste below it."""
    if not answer.fixes:
        if answer.verdict in ("unschedulable", "impossible") and answer.nodes:
            console.print("\nNo single change that was tried would do.")
        return
    console.print("\nWhat would help:")
    commands = {fix.told: fix.command for fix in answer.advice}
    for fix in answer.fixes:
        console.print(f"  - {escape(fix)}")
        for line in commands.get(fix, "").splitlines():
            console.print(f"      {escape(line)}", style="dim")


def _tree(answer: Why, *, wide: bool) -> Tree:
    """Claim and request first, then nodes with equal answers together; nodes that refuse for other reasons at the end."""
    tree = Tree(f"pod {answer.pod}")
    claims: dict[str, Tree] = {}
    for claim, request in _requests(answer.nodes):
        if claim not in claims:
            claims[claim] = tree.add(f"claim {claim}")
        _add_request(claims[claim], _findings(answer.nodes, claim, request), wide=wide)
    others = [node for node in answer.nodes if node.devices is None or not node.devices.requests]
    groups = _alike([(node.node, "; ".join(_about_node(reason) for reason in node.reasons)) for node in others])
    said = {node.node: node.reasons for node in others}
    for _, names in groups[: None if wide else _SHOWN_NODES]:
        text = "; ".join(_about_node(reason, plural=len(names) > 1) for reason in said[names[0]])
        tree.add(f"{_node_names(names)}: {escape(text)}")
    _more(tree, groups, wide)
    return tree


def _add_request(claim: Tree, findings: dict[str, RequestFinding], *, wide: bool) -> None:
    first = next(iter(findings.values()))
    branch = claim.add(f"request {first.request}: {first.needed} of class {first.device_class}")
    groups = _by_relevance(findings)
    for text, names in groups[: None if wide else _SHOWN_NODES]:
        leaf = branch.add(f"{_node_names(names)}: {escape(text)}")
        for line in _device_lines([findings[name] for name in names], wide=wide):
            leaf.add(escape(line))
    _more(branch, groups, wide)


def _by_relevance(findings: dict[str, RequestFinding]) -> list[tuple[str, list[str]]]:
    """Nodes that say the same, those that come nearest first: a node without a device that matches tells little."""
    groups: dict[str, list[str]] = {}
    for name, found in findings.items():
        groups.setdefault(f"{_counts(found)}\n{_kinds(found)}", []).append(name)

    def distance(names: list[str]) -> tuple[bool, int, int]:
        found = findings[names[0]]
        return not found.matching, found.missing, -len(names)

    return [(text.partition("\n")[0], names) for text, names in sorted(groups.items(), key=lambda group: distance(group[1]))]


def _kinds(found: RequestFinding) -> str:
    """How many devices fail how, whoever holds them: nodes that differ only in names are one line."""
    if not found.matching:
        return str(sorted({_about_device(device.reason, plural=True) for device in found.devices}))
    return str(sorted(_about_device(device.reason, plural=True) for device in found.devices))


def _requests(nodes: Sequence[NodeAnswer]) -> list[tuple[str, str]]:
    found = {
        (request.claim, request.request): None for node in nodes if node.devices is not None for request in node.devices.requests
    }
    return list(found)


def _findings(nodes: Sequence[NodeAnswer], claim: str, request: str) -> dict[str, RequestFinding]:
    """By node: what it says about this request."""
    return {
        node.node: found
        for node in nodes
        if node.devices is not None
        for found in node.devices.requests
        if (found.claim, found.request) == (claim, request)
    }


def _counts(found: RequestFinding) -> str:
    if not found.devices:
        return "has no devices"
    if not found.matching:
        return "no device matches"
    enough = "enough" if found.usable >= found.needed else f"needs {found.needed}"
    return f"{enough}: {found.usable} usable of {found.matching} that match"


def _about_node(reason: Reason, *, plural: bool = False) -> str:
    return predicate(reason, plural=plural) if reason.object.startswith("node/") else words(reason)


def _alike(said: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Nodes that say the same, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for name, text in said:
        groups.setdefault(text, []).append(name)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _node_names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"node {names[0]}"
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} nodes ({shown})"


def _device_lines(findings: Sequence[RequestFinding], *, wide: bool) -> list[str]:
    """Each device with its first failing check; without ``wide``, devices that fail alike are one line, of all these nodes."""
    devices = [device for found in findings for device in found.devices]
    if wide:
        return [f"{device.device}: {words(device.reason) if device.reason is not None else 'usable'}" for device in devices]
    groups: dict[str, tuple[Reason | None, list[str]]] = {}
    for device in devices:
        said = _about_device(device.reason, plural=False)
        groups.setdefault(said, (device.reason, []))[1].append(device.device)
    taken = [device.reason for device in devices if device.reason is not None and device.reason.code == "DeviceTaken"]
    holders = list(dict.fromkeys(str(reason.data.get("claim") or "another claim") for reason in taken))
    ordered = sorted(groups.values(), key=lambda group: -len(group[1]))
    told = [(names, _about_device(reason, plural=len(names) > 1)) for reason, names in ordered[:_NAMED]]
    lines = [f"{_devices(names, len(findings))}: {text}{_some(holders) if text == _TAKEN else ''}" for names, text in told]
    return lines + ([f"… {len(ordered) - _NAMED} more kinds of refusal"] if len(ordered) > _NAMED else [])


def _about_device(reason: Reason | None, *, plural: bool) -> str:
    if reason is None:
        return "usable"
    return _TAKEN if reason.code == "DeviceTaken" else predicate(reason, plural=plural)  # by whom is told once for all


def _devices(names: Sequence[str], nodes: int) -> str:
    """By name where they are of one node, or have the same names on all; else how many."""
    short = list(dict.fromkeys(name.rpartition("/")[2] for name in names))
    if len(names) not in (len(short), len(short) * nodes):
        return f"{len(names)} devices"
    if len(names) == 1:
        return f"device {short[0]}"
    return f"devices {_some(short)}" + (" on each" if nodes > 1 and len(names) > len(short) else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _more(branch: Tree, groups: Sequence[object], wide: bool) -> None:
    if not wide and len(groups) > _SHOWN_NODES:
        branch.add(f"… {len(groups) - _SHOWN_NODES} more, see -o wide")
