"""``dray plan``: what would come of a change, before it is made."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from dray.api.amounts import counted
from dray.api.core import Taint
from dray.api.kinds import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, now_of, objects_of, placing_of, source_options_beside_files, warn_of_unread
from dray.cli.targets import selector as device_selector
from dray.cli.targets import taint as device_taint
from dray.cli.trouble import Trouble, patience
from dray.explain.planned import compared, verdict
from dray.explain.snapshot import SnapshotError, documents, files_of
from dray.explain.targets import TargetError, node_taint
from dray.explain.tree import some

if TYPE_CHECKING:
    from dray.api.gates import Gates
    from dray.explain.plan import Changes, Plan, PlannedPod
    from dray.explain.snapshot import Snapshot
    from dray.explain.templates import Answers, Template
    from dray.scheduling.config import Config

_NEEDED: Final = (PODS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES)
_COLOURS: Final = {"placed": "green", "waits": "yellow", "unschedulable": "red", "impossible": "red"}
_MANY: Final = 40
_NAMED: Final = 4
# Fields of metadata that only a server sets.
_WRITTEN: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences"})


@click.command()
@click.option(
    *("-f", "--filename", "files"),
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE|DIR",
    help="Manifests to apply: pods, workloads, claims, nodes with their slices, taint rules, anything. Repeatable.",
)
@click.option("--drain", multiple=True, metavar="NODE", help="Drain this node, as kubectl does. Repeatable.")
@click.option("--cordon", multiple=True, metavar="NODE", help="Mark this node unschedulable. Repeatable.")
@click.option("--uncordon", multiple=True, metavar="NODE", help="Mark this node schedulable again. Repeatable.")
@click.option(
    "--remove-node", "remove", multiple=True, metavar="NODE", help="Remove this node with its devices and pods. Repeatable."
)
@click.option("--taint", nargs=2, multiple=True, metavar="NODE KEY=VALUE:EFFECT", help="Taint this node. Repeatable.")
@click.option(
    "--taint-device",
    nargs=2,
    multiple=True,
    metavar="DEVICE KEY=VALUE:EFFECT",
    help="Taint these devices: DRIVER/POOL/DEVICE, where each part may be *. Repeatable.",
)
@click.option(
    "--node-template",
    "templates",
    multiple=True,
    metavar="FILE|HARDWARE",
    help="Show which pending pods would fit on new nodes like this: a Node with its slices, or hardware (gpu8). Repeatable.",
)
@click.option(
    "--max-nodes",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of nodes to try for each template.",
)
@click.option("--config", type=click.Path(path_type=Path), help="The scheduler's KubeSchedulerConfiguration, if it uses one.")
@source_options_beside_files
@output_option
def plan(source: Source, output: str, config: Path | None, templates: Sequence[str], max_nodes: int, **change: Any) -> None:
    """Preview a change: where pods would go, which pods would be evicted, and what would be left. Nothing is changed.

    Rehearses a copy of the cluster, or a snapshot, with the real scheduler: first as it is, then with the change. Workloads
    become pods. Evicted pods are recreated by their controllers and scheduled again. The result covers the pods in the files and
    the pods that the change displaces; if the change only adds nodes or devices, the pending pods.

    Exit code 0 when all of these pods get a node; 1 when some do not, or when a displaced pod is not recreated or is protected by
    a disruption budget; 2 when the change or the cluster cannot be read.

    \b
    Examples:
      dray plan -f train.yaml                          does it fit, and what does it displace?
      dray plan -f train.yaml --snapshot now.json -o json
      helm template train | dray plan -f -             preview a chart
      dray plan --drain gpu-7 --drain gpu-8            do their pods fit elsewhere?
      dray plan -f two-more-nodes.yaml                 which pending pods would fit on them?
      dray plan --taint-device gpu.example.com/gpu-7/gpu-3 example.com/broken=yes:NoExecute
      dray plan --node-template gpu8 --node-template big-node.yaml      which kind of node is worth adding?
    """
    from dray.explain.plan import PlanError
    from dray.explain.plan import plan as planned
    from dray.explain.taking import like_those_of

    given = click.get_current_context().get_parameter_source("max_nodes")
    if not templates and given is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--max-nodes requires --node-template")
    changes = _changes(**change, nothing=bool(templates))
    snapshot = source.read(needs=_NEEDED, decisive=())
    changes.objects = like_those_of(snapshot, changes.objects)
    warn_of_unread(snapshot, {str(body.get("kind")) for _, body in changes.objects})
    settings, gates = placing_of(config, snapshot)
    try:
        with patience("rehearsing the change; this can take a while …"):
            if templates:
                answers = _admitted(snapshot, changes, templates, max_nodes, settings, gates)
            else:
                found = planned(snapshot, changes, now=now_of(snapshot), config=settings, gates=gates)
    except PlanError as error:
        raise Trouble("\n".join(error.problems)) from error
    if templates:
        emit(answers, output, lambda console: _show_templates(answers, console))
        sys.exit(0 if answers.all_placed else 1)
    for left_out in found.left_out:
        click.echo(f"warning: ignored, because Dray does not know this kind: {left_out}", err=True)
    emit(found.to_json(), output, lambda console: _show(found, console, wide=output == "wide"))
    sys.exit(0 if found.all_placed else 1)


def _admitted(
    snapshot: Snapshot, changes: Changes, asked: Sequence[str], most: int, config: Config | None, gates: Gates
) -> Answers:
    from dray.explain.plan import begun
    from dray.explain.templates import admitted, templates_in

    named = [(_template_name(each, t.name), t) for each in asked for t in templates_in(_template_objects(each))]
    found = [template for _, template in named]
    _warn_of_bare(found, snapshot)
    answers = admitted(lambda: begun(snapshot, changes, now_of(snapshot), config, gates, "Node"), changes, found, most)
    for (name, _), answer in zip(named, answers.templates, strict=True):
        answer.template = name
    return answers


def _warn_of_bare(templates: Sequence[Template], snapshot: Snapshot) -> None:
    """A node that has devices in the cluster, and none where it is a template, was most likely saved without them."""
    with_devices = {(body.get("spec") or {}).get("nodeName") for body in snapshot.plain(RESOURCE_SLICES)}
    for template in templates:
        if not template.slices and template.name in with_devices:
            told = f"template {template.name} has no devices, but node {template.name} in the cluster has some"
            click.echo(f"warning: {told}; save its slices too: kubectl get node,resourceslice -o yaml", err=True)


def _template_name(asked: str, node: str) -> str:
    """A node of the catalogue is known by the name that was asked for, any other by its own."""
    return asked if node == f"{asked}-0" else node


def _unwritten(body: dict[str, Any]) -> dict[str, Any]:
    """An object without what a server wrote into it, so that another can be made like it."""
    return {**body, "metadata": {name: said for name, said in (body.get("metadata") or {}).items() if name not in _WRITTEN}}


def _template_objects(asked: str) -> list[tuple[str, dict[str, Any]]]:
    """What is in a file of manifests, or one node of some hardware."""
    from dray.nodes.hardware import UnknownHardware, hardware

    file = Path(asked)
    try:
        objects = [(f"{each}: object {n}", body) for each in files_of([file]) for n, body in enumerate(documents(each), 1)]
        if not objects:
            raise Trouble(f"--node-template: {file}: there is no object in it")
        if not any(body["kind"] == "Hardware" for _, body in objects):
            return [(where, _unwritten(body)) for where, body in objects]
    except SnapshotError as error:
        if file.exists():
            raise Trouble(str(error)) from error
    try:
        made = hardware([f"{asked}:1"])
    except UnknownHardware as error:
        raise Trouble(f"--node-template: {error}") from error
    return [(f"--node-template {asked}", body) for body in (*made.objects, *made.nodes)]


def _changes(
    files: Sequence[Path],
    drain: Sequence[str],
    cordon: Sequence[str],
    uncordon: Sequence[str],
    remove: Sequence[str],
    taint: Sequence[tuple[str, str]],
    taint_device: Sequence[tuple[str, str]],
    nothing: bool,
) -> Changes:
    """``nothing``: that no change at all is one too."""
    from dray.explain.plan import Changes

    if not nothing and not any((files, drain, cordon, uncordon, remove, taint, taint_device)):
        raise click.UsageError("specify a change: -f FILE, --drain NODE, --taint NODE TAINT …")
    try:
        objects = objects_of(files)
    except SnapshotError as error:
        raise Trouble(str(error)) from error
    devices = [(device_selector(where), device_taint(said)) for where, said in taint_device]
    nodes = [(node, _taint(said)) for node, said in taint]
    return Changes(objects, list(cordon), list(uncordon), nodes, devices, list(drain), list(remove))


def _taint(text: str) -> Taint:
    try:
        return node_taint(text)
    except TargetError as error:
        raise click.BadParameter(str(error), param_hint="--taint") from error


# --------------------------------------------------------------------------------------------------------- for people


def _show(found: Plan, console: Console, *, wide: bool) -> None:
    if found.pods:
        _show_pods(found.pods, console, wide)
        console.print()
    if found.evictions:
        rows = [
            (e.pod, e.node, e.place_then or Text("does not fit" if e.again else "not recreated", "red"), e.why)
            for e in found.evictions
        ]
        console.print(table(("evicted", "from", "moves to", "reason"), rows))
        console.print()
    kept = found.protected if wide else found.protected[:_MANY]
    for key in kept:
        console.print(f"[yellow]{escape(key)} is protected by a disruption budget and would stay.[/yellow]")
    if len(kept) < len(found.protected):
        console.print(f"… {len(found.protected) - len(kept)} more, see -o wide")
    if kept:
        console.print()
    _show_compared(compared(found.before, found.after), console, wide)
    console.print(verdict(found))


def _show_compared(rows: Sequence[tuple[str, str, str]], console: Console, wide: bool) -> None:
    changed = [row for row in rows if wide or row[1] != row[2]]
    if changed:
        console.print(table(("", "before", "after"), changed))
    if same := len(rows) - len(changed):
        console.print(f"[dim]{counted(same, 'value')} unchanged, see -o wide[/dim]")
    if rows:
        console.print()


def _show_templates(found: Answers, console: Console) -> None:
    if not found.waiting:
        console.print("No pods are pending.")
        return
    rows = []
    for answer in found.templates:
        nodes = f"{len(answer.nodes)}{' or more' if answer.more else ''}"
        first = ", ".join(answer.nodes[0].pods[:_NAMED]) if answer.nodes else ""
        more = f" and {len(answer.nodes[0].pods) - _NAMED} more" if answer.nodes and len(answer.nodes[0].pods) > _NAMED else ""
        rows.append((answer.template, nodes, f"{len(answer.admits)} of {len(found.waiting)}", first + more))
    console.print(table(("template", "nodes", "pods", "first node takes"), rows))
    if nowhere := [pod for pod in found.waiting if not any(pod in answer.admits for answer in found.templates)]:
        left = escape(some(nowhere))
        if any(answer.more for answer in found.templates):
            console.print(f"\nStill pending: {left}; more nodes were not tried (--max-nodes).")
        else:
            templates = "the template" if len(rows) == 1 else "any of the templates"
            console.print(f"\nNodes of {templates} do not help {left}; `dray why POD` explains why.")


def _show_pods(pods: Sequence[PlannedPod], console: Console, wide: bool) -> None:
    shown = pods if wide else pods[:_MANY]
    rows = [
        (
            pod.pod,
            Text(pod.verdict, _COLOURS[pod.verdict]),
            pod.node,
            "\n".join(f"{device.pool}/{device.device}" for device in pod.devices),
            "\n".join(pod.after),
            pod.summary,
        )
        for pod in shown
    ]
    console.print(table(("pod", "verdict", "node", "devices", "evicts", "reason"), rows))
    if len(shown) < len(pods):
        console.print(f"… {len(pods) - len(shown)} more, see -o wide")
