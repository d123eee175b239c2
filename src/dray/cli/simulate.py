"""``dray simulate``: a scenario on virtual time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from dray.api.amounts import counted
from dray.api.durations import seconds
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, now_of, objects_of, placing_of, source_options_beside_files, warn_of_unread
from dray.cli.trouble import Trouble, patience

if TYPE_CHECKING:
    from dray.explain.snapshot import Snapshot
    from dray.simulate.scenario import Scenario
    from dray.simulate.whatif import WhatIf

_NEEDED: Final = (PODS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES)
# Reasons of a pod that are told in a table.


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--seed", type=int, help="Seed for everything random. Default: the scenario's, else 0.")
@click.option("--until", metavar="DURATION", help="How long to run, in virtual time. Default: the scenario's, else 10m.")
@click.option("--from-cluster", is_flag=True, help="Start from the current state of a cluster, or from a --snapshot.")
@click.option(
    "--add",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE|DIR",
    help="Run twice, without and with these objects, and show the difference. Repeatable.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Record every change, to watch with `dray ui --run FILE`.",
)
@source_options_beside_files
@output_option
def simulate(
    files: tuple[Path, ...],
    seed: int | None,
    until: str | None,
    from_cluster: bool,
    add: tuple[Path, ...],
    record: Path | None,
    source: Source,
    output: str,
) -> None:
    """Simulate a cluster in virtual time: API server, scheduler, controllers and nodes in one process, hours in seconds.

    FILES are Kubernetes manifests, created at the start, and at most one Scenario (dray.dev/v1alpha1) with hardware, steps and
    faults. With --from-cluster, the run starts with all objects of that cluster, and simulated nodes keep running its pods;
    objects from --add are created after 10 seconds. The same files and seed give identical output. Exit code 1 when an invariant
    is violated, 2 when the scenario is invalid or the API rejects an object at the start.

    \b
    Examples:
      dray simulate cluster.yaml pods.yaml
      dray simulate scenario.yaml --seed 7 --until 1h -o json
      dray simulate scenario.yaml --record run.gz && dray ui --run run.gz
      dray simulate --from-cluster --add pods.yaml                       what if these were created now?
      dray simulate --from-cluster --snapshot now.json --add pods.yaml
    """
    from dray.explain.snapshot import SnapshotError
    from dray.simulate.recording import Recorder
    from dray.simulate.run import simulate as run
    from dray.simulate.scenario import ScenarioError

    if not files and not from_cluster:
        raise click.UsageError("specify scenario files or --from-cluster")
    if record is not None and add:
        raise click.UsageError("--add cannot be combined with --record")
    if source.named and not from_cluster:
        raise click.UsageError("--snapshot, --kubeconfig and --context require --from-cluster")
    try:
        snapshot = source.read(needs=_NEEDED, decisive=()) if from_cluster else None
        scenario = _scenario(files, seed, until, snapshot)
        said = f"simulating {scenario.until:g} s; long scenarios take a while …"
        with patience(said), Recorder(record) if record is not None else nullcontext() as recorder:
            found = _twice(scenario, add, snapshot) if add else None
            report = found.after if found is not None else run(scenario, recorder)
    except (ScenarioError, SnapshotError, ValueError) as error:
        raise Trouble(str(error)) from error
    if found is not None:
        emit(_plain(found), output, lambda console: _show_difference(found, console))
    else:
        emit(report, output, lambda console: _show(report, console))
    lost = [refused for refused in report.refused_objects if refused.at == 0 or refused.where.startswith(_names(add))]
    for refused in lost:
        click.echo(f"error: not simulated: {refused.text}", err=True)
    sys.exit(1 if report.invariants.violated else 2 if lost else 0)


def _names(files: Sequence[Path]) -> tuple[str, ...]:
    return tuple(str(file) for file in files)


def _scenario(files: Sequence[Path], seed: int | None, until: str | None, snapshot: Snapshot | None) -> Scenario:
    from dray.explain.rehearsal import for_everybody
    from dray.simulate.scenario import read
    from dray.simulate.whatif import from_snapshot

    try:
        seconds_long = seconds(until) if until else None
    except ValueError as error:
        raise Trouble(f"--until: {error}") from error
    if snapshot is None:
        with patience("reading the files …"):
            return read(files, seed=seed, until=seconds_long)
    warn_of_unread(snapshot)
    settings, gates = placing_of(None, snapshot)
    made = from_snapshot(snapshot, now_of(snapshot), objects_of(files), seed=seed, until=seconds_long)
    made.gates = gates
    made.config = for_everybody(settings or made.config, snapshot)
    return made


def _twice(scenario: Scenario, add: Sequence[Path], snapshot: Snapshot | None) -> WhatIf:
    from dray.explain.taking import like_those_of
    from dray.simulate.whatif import what_if

    added = objects_of(add)
    return what_if(scenario, added if snapshot is None else like_those_of(snapshot, added))


def _plain(found: WhatIf) -> dict[str, Any]:
    """The report with the addition, in its own shape, and the difference that it makes."""
    plain: dict[str, Any] = msgspec.to_builtins(found.after)
    return {**plain, "difference": found.difference, "before": {"pods": found.before.pods, "evictions": found.before.evictions}}


def _show_difference(found: WhatIf, console: Console) -> None:
    told = found.difference
    if told.added:
        console.print(table(("added", "phase", "node", "bound at", "devices", "reason"), [_row(pod) for pod in told.added]))
        console.print()
    was = {f"{pod['namespace']}/{pod['name']}": pod for pod in found.before.pods}
    rows = [(one.pod, _ended(one.before), _ended(one.after)) for one in told.changed]
    rows += [(key, _ended(was[key]), "gone") for key in told.gone]
    if rows:
        console.print(table(("pod", "without", "with"), rows))
        console.print()
    for each in told.evictions:
        console.print(
            f"[yellow]{escape(f'{each.namespace}/{each.name}')} is evicted or deleted at {each.at:.3f}s by {each.by}[/yellow]"
        )
    running = [sum(pod["phase"] == "Running" for pod in report.pods) for report in (found.before, found.after)]
    without = counted(running[0], "pod")
    console.print(f"After {found.after.until:g} s: {without} running without the added objects, {running[1]} with them; ", end="")
    console.print(f"{len(told.changed)} end differently, {len(told.gone)} gone, {len(told.evictions)} more evicted or deleted.")


def _ended(end: dict[str, Any]) -> str:
    return f"{end['phase']} on {end['node']}" if end["node"] else str(end["phase"])


def _why_not(pod: dict[str, Any]) -> str:
    return str(pod["summary"]).removeprefix(f"pod {pod['namespace']}/{pod['name']} ")


def _row(pod: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{pod['namespace']}/{pod['name']}",
        pod["phase"],
        pod["node"] or "",
        "" if pod["boundAt"] is None else f"{pod['boundAt']:.3f}s",
        "\n".join(f"{d['pool']}/{d['device']}" for claim in pod["claims"] for d in claim["devices"]),
        _why_not(pod),
    )


def _show(report: Any, console: Console) -> None:
    console.print(table(("pod", "phase", "node", "bound at", "devices", "reason"), [_row(pod) for pod in report.pods]))
    phases = Counter(pod["phase"] for pod in report.pods)
    told = ", ".join(f"{count} {phase or 'unknown'}" for phase, count in sorted(phases.items()))
    pods = counted(len(report.pods), "pod") + (f" ({told})" if told else "")
    console.print(f"\nSimulated {report.until:g} s with seed {report.seed}: {pods}, ", end="")
    console.print(f"{len(report.evictions)} deleted or evicted, {counted(len(report.events), 'event')}.")
    for refused in report.refused_objects:
        if refused.at:
            console.print(f"[yellow]rejected:[/yellow] {escape(refused.text)}")
    if report.invariants.violated:
        console.print(f"[red]{counted(len(report.invariants.violated), 'violation')} of invariants:[/red]")
        found = [(f"{v['at']:.3f}s", v["rule"], "\n".join(v["objects"]), v["detail"]) for v in report.invariants.violated]
        console.print(table(("at", "rule", "objects", "detail"), found))
    else:
        console.print(f"[green]Invariants held in {report.invariants.checked} checks.[/green]")
