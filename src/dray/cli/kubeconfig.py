"""`dray kubeconfig`: how to reach a cluster that `dray up` keeps."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dray.cli.up import data_default


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory that keeps the cluster.  [default: ~/.local/share/dray]",
)
@click.option("--view", is_flag=True, help="Read-only access to everything but secrets.")
@click.option("--merge", is_flag=True, help="Add it to KUBECONFIG or ~/.kube/config and make it the current context.")
def kubeconfig(data: Path | None, view: bool, merge: bool) -> None:
    """Print the kubeconfig of a cluster that `dray up` created.

    \b
    Examples:
      dray kubeconfig --view > viewer.kubeconfig      read-only access, for somebody else
      dray kubeconfig --merge                         then: kubectl --context dray get nodes
    """
    from dray.apiserver import kubeconfigs
    from dray.apiserver.identity import identity
    from dray.apiserver.journal import JournalError
    from dray.apiserver.server import kept_port
    from dray.cluster.kubeconfig import KubeconfigError

    directory = data or data_default()
    port = kept_port(directory)
    if not port:
        raise click.ClickException(f"no cluster found in {directory}; create one with `dray up --data {directory}`")
    try:
        config = kubeconfigs.kubeconfig(identity(directory), f"https://127.0.0.1:{port}", view=view)
        if not merge:
            click.echo(kubeconfigs.written(config).decode(), nl=False)
            return
        path = kubeconfigs.merged_path(os.environ)
        kubeconfigs.merge(config, path)
    except (JournalError, KubeconfigError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"Added context {config['current-context']} to {path}.", err=True)
