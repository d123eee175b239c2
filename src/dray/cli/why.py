"""``dray why``: why a pod is where it is, or why it is nowhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from dray.api.core import Pod
from dray.api.kinds import DEVICE_CLASSES, EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cli.choice import show_choice
from dray.cli.named import meant
from dray.cli.output import emit, output_option, table
from dray.cli.overview import COLOURS
from dray.cli.overview import show as show_causes
from dray.cli.pods import find
from dray.cli.source import Source, namespace_option, placing_of, source_options
from dray.cli.trouble import Trouble
from dray.cluster.world import World
from dray.explain.answer import Why
from dray.explain.evicting import WouldEvict
from dray.explain.failures import failed_bindings, not_started
from dray.explain.overview import ASKED, causes, names_of, pods_of, waiting
from dray.explain.owners import owner_of
from dray.explain.plain import plain_causes, plain_why
from dray.explain.queued import Queued, Seated
from dray.explain.tree import Branch, nearest, some, tree
from dray.explain.why import why as ask

_NEEDED: Final = (PODS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES)
# Nodes of a gang that are shown.
_MOST_NODES: Final = 8


@click.command()
@click.argument("target", metavar="[POD | KIND/NAME | KIND NAME]", nargs=-1)
@namespace_option("Namespace of the pod; without a pod: only pods in this namespace.")
@click.option("--config", type=click.Path(path_type=Path), help="The scheduler's KubeSchedulerConfiguration, if it uses one.")
@source_options
@output_option
def why(target: tuple[str, ...], namespace: str | None, config: Path | None, source: Source, output: str) -> None:
    """Explain why a pod is pending, or why it runs where it does.

    Shows the verdict in one sentence; a tree from claim and request to node and device, with the first check that fails and
    its numbers; and the smallest changes that would help. The verdict is bound, waiting, unschedulable (not now) or impossible
    (not even on an empty cluster). Each suggestion has been tried on a copy of the cluster, and comes with what to paste.

    Without a pod: all pending pods, by cause, worst first. For deploy/NAME, job/NAME and other workloads: their pods; for
    claim/NAME: the pods that use it; for podgroup/NAME: the pods of that gang.

    \b
    Examples:
      dray why                                        why are pods pending?
      dray why train-0                                same as pod/train-0 or pod train-0
      dray why deploy/inference -n research
      dray why claim/weights -n research              the pods that use this claim
      dray why train-0 -n research -o json
      dray why train-0 -o wide                        every node and device
      dray snapshot -o now.json                       to ask later, or without access to the cluster
      dray why train-0 -n research -f now.json
    """
    snapshot = source.read(needs=_NEEDED, decisive=())
    world, failures = snapshot.world, failed_bindings(snapshot.plain(EVENTS))
    settings, gates = placing_of(config, snapshot)
    now = snapshot.taken_at or time.time()
    found = _asked_for(world, target, namespace, source, snapshot.plain(EVENTS))
    if isinstance(found, Pod):
        answer = ask(world, found, now=now, config=settings, gates=gates, failures=failures, unknown=snapshot.unknown)
        answer.notes += not_started(found, snapshot.plain(EVENTS))
        emit(plain_why(answer), output, lambda console: show(answer, console, wide=output == "wide"))
        return
    told = causes(world, waiting(found), now=now, config=settings, gates=gates, failures=failures, unknown=snapshot.unknown)
    emit(
        plain_causes(told, len(found)),
        output,
        lambda console: show_causes(told, found, console, wide=output == "wide", named=bool(target)),
    )


def _asked_for(
    world: World, target: tuple[str, ...], namespace: str | None, source: Source, events: Iterable[Mapping[str, Any]]
) -> Pod | list[Pod]:
    """The pod that is named, or all that are meant; ``events``: for one that is gone."""
    if not target:
        return [each for each in world.all(PODS).values() if namespace in (None, each.metadata.namespace)]
    kind, name, prefix = _named(target, namespace)
    where = namespace or prefix or source.namespace(None)
    if prefix and not any(each.metadata.namespace == prefix for each in world.all(PODS).values()):
        raise Trouble(f'"{prefix}" is not a namespace with pods, and {_no_kind(prefix)}')
    if kind == "Pod":
        if world.get(PODS, f"{where}/{name}") is None and (workload := _workload(world, where, name)):
            raise Trouble(f'pod "{name}" not found in namespace "{where}"; did you mean {workload}?')
        return find(world, name, where, events)
    pods = pods_of(world, kind, where, name)
    if not pods:
        there = kind == "ResourceClaim" and world.get(RESOURCE_CLAIMS, f"{where}/{name}") is not None
        more = (
            f"; see `dray claims -n {where}`"
            if there
            else f" or does not exist{meant(name, sorted(names_of(world, kind, where)))}"
        )
        raise Trouble(f'{kind} "{name}" has no pods in namespace "{where}"{more}')
    return pods[0] if len(pods) == 1 else pods


def _workload(world: World, namespace: str, name: str) -> str:
    """What has pods by this name, as it is asked about: ``deployment/web``."""
    pods = (pod for pod in world.all(PODS).values() if pod.metadata.namespace == namespace)
    kinds = sorted({kind for pod in pods for kind, _, of in [owner_of(world, pod).partition("/")] if of == name})
    return next((f"{kind.lower()}/{name}" for kind in kinds if kind.lower() in ASKED), "")


def _no_kind(said: str) -> str:
    known = ", ".join(dict.fromkeys(each.lower() for each in ASKED.values()))
    told = f"not a kind that has pods: use POD, NAMESPACE/POD or KIND/NAME, where KIND is one of {known}"
    about = {"node": "`dray devices --node NAME` lists the devices of a node", "queue": "`dray queues` shows queues"}
    more = next((text for kind, text in about.items() if said.lower() in (kind, f"{kind}s")), "")
    return f"{told}; {more}" if more else told


def _named(target: tuple[str, ...], namespace: str | None) -> tuple[str, str, str]:
    """Kind, name, and the namespace that stands before the name of a pod: as kubectl has it, and ``NAMESPACE/POD``."""
    first, slash, rest = target[0].partition("/")
    if len(target) == 1 and not slash:
        return "Pod", first, ""
    if len(target) > 2 or (len(target) == 2 and slash):
        raise Trouble(f"expected one name, got {len(target)}: {' '.join(target)}; without a name, all pending pods are shown")
    kind = ASKED.get(first.partition(".")[0].lower())
    name = rest if slash else target[1]
    if kind is None and (namespace or not slash or not rest):
        raise Trouble(f'"{first}" is {_no_kind(first)}')
    if not name or "/" in name:
        raise Trouble(f'expected KIND/NAME, got "{" ".join(target)}"; set the namespace with -n')
    return (kind, name, "") if kind is not None else ("Pod", name, first)


# --------------------------------------------------------------------------------------------------------- for people


def show(answer: Why, console: Console, *, wide: bool) -> None:
    """For people: the sentence, the tree, and what would help."""
    colour = COLOURS[answer.verdict]
    console.print(f"[bold {colour}]{answer.verdict}[/bold {colour}]  {escape(answer.summary)}")
    if answer.awaited:
        console.print()
        rows = [(a.condition, a.device, a.status, a.since, a.deadline, a.message) for a in answer.awaited]
        console.print(table(("condition", "device", "status", "since", "deadline", "message"), rows))
    if answer.choice is not None:
        show_choice(answer.choice, console, placed=answer.verdict == "bound", wide=wide)
    if answer.nodes and not answer.fits:
        console.print()
        console.print(_drawn(tree(answer, wide=wide)))
    if answer.nearest is not None:
        console.print(f"\n{escape(nearest(answer.nearest))}")
    if answer.queued is not None:
        _show_queued(answer.queued, console)
    if answer.evicts is not None:
        _show_evicted(answer.evicts, console)
    _show_fixes(answer, console)
    for note in answer.notes:
        console.print(f"\n{escape(note)}")


def _show_evicted(evicts: WouldEvict, console: Console) -> None:
    console.print(f"\nThe scheduler would make room on node {escape(evicts.node)}: {escape(evicts.why)}.")
    if not evicts.victims:
        return
    columns = {"evicts": "pod", "from": "node", "priority": "priority", "queue": "queue", "moves to": "to"}
    shown = {told: name for told, name in columns.items() if any(getattr(each, name) != "" for each in evicts.victims)}
    rows = [(*(str(getattr(each, name)) for name in shown.values()), ", ".join(each.devices)) for each in evicts.victims]
    console.print(table((*shown, "frees"), rows))


def _show_queued(queued: Queued, console: Console) -> None:
    if told := queued.told():
        console.print(f"\n{escape(told)}")
    if queued.of:
        rows = [(each.resource, each.held, each.fair_share, each.quota, each.limit) for each in queued.of]
        console.print(table(("resource", "used", "share", "quota", "limit"), rows))
    if queued.closest:
        _show_closest(queued.closest, console)


def _show_closest(seated: list[Seated], console: Console) -> None:
    on: dict[str, list[str]] = {}
    for each in seated:
        on.setdefault(each.node, []).append(each.pod)
    console.print("\nThe most pods that fit at the same time:")
    rows = [(node, str(len(pods)), some(pods)) for node, pods in sorted(on.items())]
    console.print(table(("node", "count", "pods"), rows[:_MOST_NODES]))
    if len(rows) > _MOST_NODES:
        console.print(f"… and {len(rows) - _MOST_NODES} more nodes, see -o json")


def _show_fixes(answer: Why, console: Console) -> None:
    """What would help, each with what to paste below it."""
    if not answer.fixes:
        if answer.verdict in ("unschedulable", "impossible") and answer.nodes:
            console.print("\nNone of the changes that Dray tried would help.")
        return
    console.print("\nWhat would help:")
    commands = {fix.told: fix.command for fix in answer.advice}
    for fix in answer.fixes:
        console.print(f"  - {escape(fix)}")
        for line in commands.get(fix, "").splitlines():
            console.print(f"      {escape(line)}", style="dim")


def _drawn(branch: Branch, into: Tree | None = None) -> Tree:
    drawn = into.add(escape(branch.text)) if into is not None else Tree(escape(branch.text))
    for each in branch.branches:
        _drawn(each, drawn)
    return drawn
