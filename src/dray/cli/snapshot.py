"""``dray snapshot``: a cluster at one moment, in one file that why, plan and simulate read."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dray.cli.source import KUBECONFIG_HELP, Source, as_configuration, features_of
from dray.cli.trouble import Trouble
from dray.cluster.port import Forbidden
from dray.explain.snapshot import KINDS, Header, Snapshot, from_cluster, undecodable


@click.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write.  [default: standard output]"
)
@click.option("--config", type=click.Path(path_type=Path), help="The scheduler's KubeSchedulerConfiguration, to include.")
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="The cluster's feature gates, to include.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help=KUBECONFIG_HELP)
@click.option("--context", default="", help="Kubeconfig context to use.")
def snapshot(output: Path | None, config: Path | None, feature_gates: str, kubeconfig: Path | None, context: str) -> None:
    """Save everything that decides where pods run to one file, for why, plan, simulate, devices and verify.

    Only reads, in pages. Kinds that you may not list are noted in the file, and commands that need them say so. Secrets are left
    out, and so is everything else that may contain secrets and decides nothing: values of environment variables, commands,
    arguments, probes, managedFields and kubectl's last-applied configuration. The file is written atomically and is readable only
    by you.

    \b
    Examples:
      dray snapshot -o now.json
      dray why train-0 -n research -f now.json
      dray plan -f pods.yaml --snapshot now.json
    """
    if str(output) == "-":
        output = None
    if output is None and sys.stdout.isatty():
        raise click.UsageError("write to a file with -o FILE, or redirect the output")
    found, header = _taken(Source((), kubeconfig, context), config, feature_gates)
    for problem in undecodable(found):
        click.echo(f"warning: saved unchanged, because Dray cannot read it: {problem}", err=True)
    _write(found, header, output)
    hidden = [kind.resource for kind, error in found.unread.items() if isinstance(error, Forbidden)]
    if hidden:
        told = f"warning: you may not list {', '.join(sorted(hidden))}; commands that need them will say so"
        click.echo(told, err=True)
    if output is not None:
        click.echo(f"Saved {len(found.objects)} objects of {len(header.kinds)} kinds to {output}.", err=True)


def _taken(source: Source, config: Path | None, feature_gates: str) -> tuple[Snapshot, Header]:
    from dray.api.gates import Gates
    from dray.cli.running import gates
    from dray.explain.taking import header

    configuration = as_configuration(config) if config is not None else None
    chosen = gates(feature_gates)
    switched = {name.partition("=")[0].strip() for name in feature_gates.split(",") if name.strip()}

    async def read(remote: Any) -> tuple[Snapshot, str, Mapping[str, bool]]:
        return await from_cluster(remote, KINDS), await remote.version(), await features_of(remote)

    found, version, told = source.run(read)
    differing = {name: on for name, on in told.items() if on != Gates.dray()(name)}
    named = {**differing, **{name: chosen(name) for name in switched}}
    return found, header(found, time.time(), version, dict(sorted(named.items())), configuration)


def _write(found: Snapshot, header: Header, output: Path | None) -> None:
    from dray.apiserver.identity import write_private
    from dray.explain.taking import written

    if output is None:
        for piece in written(found, header):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if not output.parent.is_dir():
        raise Trouble(f"{output.parent} is not a directory")
    write_private(output, b"".join(written(found, header)))
