"""``dray simulate``: a scenario on virtual time."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from dray.api.durations import seconds
from dray.cli.output import emit, output_option, table
from dray.cli.trouble import Trouble, patience


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--seed", type=int, help="Decides everything that is random. Default: the scenario's, else 0.")
@click.option("--until", metavar="DURATION", help="How long to run, in simulated time. Default: the scenario's, else 10m.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write down everything that changes, to look at with `dray ui --run FILE`.",
)
@output_option
def simulate(files: tuple[Path, ...], seed: int | None, until: str | None, record: Path | None, output: str) -> None:
    """Run a scenario on virtual time: API server, scheduler, controllers and nodes in one process, hours in seconds.

    FILES are Kubernetes manifests, created at the start, and at most one Scenario (dray.dev/v1alpha1) with hardware, steps and
    faults. The same files and seed give the same bytes. Exit code 1 when an invariant was violated, 2 when the scenario is
    wrong or the API refused an object at the start.

    \b
    Examples:
      dray simulate cluster.yaml pods.yaml
      dray simulate scenario.yaml --seed 7 --until 1h -o json
      dray simulate scenario.yaml --record run.gz && dray ui --run run.gz
      kubectl get nodes,resourceslices,deviceclasses -o yaml > now.yaml && dray simulate now.yaml new-pods.yaml
    """
    from dray.explain.snapshot import SnapshotError
    from dray.simulate.recording import Recorder
    from dray.simulate.run import simulate as run
    from dray.simulate.scenario import ScenarioError, read

    try:
        scenario = read(files, seed=seed, until=seconds(until) if until else None)
        said = f"simulating {scenario.until:g} s; long and busy scenarios take a while …"
        with patience(said), Recorder(record) if record is not None else nullcontext() as recorder:
            report = run(scenario, recorder)
    except (ScenarioError, SnapshotError, ValueError) as error:
        raise Trouble(str(error)) from error
    emit(report, output, lambda console: _show(report, console))
    lost = [refused for refused in report.refused_objects if refused.at == 0]
    for refused in lost:
        click.echo(f"error: not simulated: {refused.text}", err=True)
    sys.exit(1 if report.invariants.violated else 2 if lost else 0)


def _why_not(pod: dict[str, Any]) -> str:
    if pod["phase"] == "Pending" and not pod["node"] and not pod["reasons"]:
        return "it fits, and is not placed yet"
    return "\n".join(reason["message"] for reason in pod["reasons"][:2])


def _show(report: Any, console: Console) -> None:
    rows = [
        (
            f"{pod['namespace']}/{pod['name']}",
            pod["phase"],
            pod["node"] or "",
            "" if pod["boundAt"] is None else f"{pod['boundAt']:.3f}s",
            "\n".join(f"{d['pool']}/{d['device']}" for claim in pod["claims"] for d in claim["devices"]),
            _why_not(pod),
        )
        for pod in report.pods
    ]
    console.print(table(("pod", "phase", "node", "bound at", "devices", "why not"), rows))
    phases = Counter(pod["phase"] for pod in report.pods)
    told = ", ".join(f"{count} {phase or 'unknown'}" for phase, count in sorted(phases.items()))
    pods = f"{len(report.pods)} pod{'' if len(report.pods) == 1 else 's'}" + (f" ({told})" if told else "")
    console.print(f"\n{report.until:g} s simulated with seed {report.seed}: {pods}, ", end="")
    console.print(f"{len(report.evictions)} deleted or evicted, {len(report.events)} events.")
    for refused in report.refused_objects:
        if refused.at:
            console.print(f"[yellow]refused:[/yellow] {escape(refused.text)}")
    if report.invariants.violated:
        console.print(f"[red]{len(report.invariants.violated)} invariants violated:[/red]")
        found = [(f"{v['at']:.3f}s", v["rule"], "\n".join(v["objects"]), v["detail"]) for v in report.invariants.violated]
        console.print(table(("at", "rule", "objects", "detail"), found))
    else:
        console.print(f"[green]Invariants held in {report.invariants.checked} checks.[/green]")
