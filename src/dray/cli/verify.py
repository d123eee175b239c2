"""``dray verify``: prove on any cluster that nothing is owned twice."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from dray.api.amounts import counted
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, source_options
from dray.explain.verify import Finding, Report
from dray.explain.verify import verify as check


@click.command()
@source_options
@click.option("--strict", is_flag=True, help="Count leftovers, which are normal for a short time, as violations.")
@output_option
def verify(source: Source, strict: bool, output: str) -> None:
    """Prove that nothing is allocated twice.

    Checks every claim, pod, slice and node: each device, share, counter unit and amount of capacity has one owner; devices in use
    are compatible; reservations, finalizers and placements are consistent. Exit code 1 when a rule is violated, 2 when the
    cluster cannot be read. Prints a warning when there is nothing to check, or when files lack a kind that a rule needs.

    \b
    Examples:
      dray verify
      dray verify --context production -o json
      dray snapshot -o now.json && dray verify -f now.json
    """
    snapshot = source.read(needs=(RESOURCE_CLAIMS, RESOURCE_SLICES, PODS, NODES))
    report = check(snapshot.world, snapshot.unknown)
    if not report.found:
        click.echo(f"warning: nothing to check: {source.holds} no claims, slices or pods", err=True)
    for rule, why in report.unchecked.items():
        click.echo(f"warning: {rule} was not checked: {why}", err=True)
    if strict:
        report = Report(report.checked, report.violations + report.leftovers, [], report.unchecked)
    emit(report, output, lambda console: _show(report, console))
    sys.exit(1 if report.violations else 0)


def _show(report: Report, console: Console) -> None:
    counts = report.checked
    claims, devices, pools, pods, nodes = (
        counted(counts[f"{noun}s"], noun) for noun in ("claim", "device", "pool", "pod", "node")
    )
    allocations = counted(counts["allocated"], "allocation")
    console.print(f"Checked {claims}, {devices} in {pools}, {allocations}, {pods} on {nodes}.")
    if not report.found:
        console.print("[yellow]Nothing was checked.[/yellow]")
    elif not report.violations:
        console.print("[green]Nothing is allocated twice; all rules hold.[/green]")
    else:
        console.print(f"[red]{counted(len(report.violations), 'violation')}:[/red]")
        console.print(_table(report.violations))
    if report.leftovers:
        console.print(f"[yellow]{counted(len(report.leftovers), 'leftover')}, normal for a short time:[/yellow]")
        console.print(_table(report.leftovers))


def _table(findings: list[Finding]) -> object:
    return table(("rule", "objects", "detail"), [(f.rule, "\n".join(f.objects), f.detail) for f in findings])
