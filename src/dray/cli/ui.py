"""``dray ui``: the page, for any cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from dray.cli.running import log_options, to_the_end
from dray.cli.source import Source, features_of, now_of, placing_of, source_options
from dray.cli.trouble import Trouble
from dray.web.guard import Guard, new_token

if TYPE_CHECKING:
    from dray.web.moments import Scene

PORT: Final = 8750
TOKEN_VARIABLE: Final = "DRAY_TOKEN"


def bound(host: str, port: int | None) -> socket.socket:
    """Listens on the port; where none is named, on the usual one, or on any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in (port,) if port is not None else (PORT, 0):
        try:
            return socket.create_server((host, candidate), family=family, backlog=256)
        except OSError as error:
            if port is not None or candidate == 0:
                raise click.ClickException(f"cannot listen on {host}:{candidate}: {error.strerror}") from error
    raise AssertionError


def address(sock: socket.socket, secret: str) -> str:
    """What to open. The token stands behind the #, where browsers keep it to themselves."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/#token={secret}"


class Look(NamedTuple):
    """Where the page is served, to whom, under which names, whether it may change anything, and what numbers it plots."""

    socket: socket.socket
    token: str
    hosts: tuple[str, ...] = ()
    changes: bool = False
    metrics: tuple[str, ...] = ()


def token() -> str:
    """The one that the environment gives, so that an address can be kept, else a new one."""
    return os.environ.get(TOKEN_VARIABLE) or new_token()


@click.command()
@source_options
@click.option(
    "--run",
    "recording",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Show a recording from `dray simulate --record`.",
)
@click.option("--follow", is_flag=True, help="With --run: keep up with a recording that is still being written.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Other machines can connect to anything but loopback.",
)
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port to listen on. Default: {PORT}, or any free port.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Also answer requests for this host name, behind a proxy. Repeatable.",
)
@click.option(
    "--metrics",
    multiple=True,
    metavar="URL",
    help="Plot this /metrics endpoint, for example of `dray scheduler --serve`. A path that begins with / is read through the "
    "API server, with your credentials. Repeatable.",
)
@click.option(
    "--allow-changes", is_flag=True, help="Allow changes from the page: taint, cordon, drain and apply, each with a preview."
)
@log_options("warning")
def ui(
    source: Source,
    recording: Path | None,
    follow: bool,
    host: str,
    port: int | None,
    hosts: tuple[str, ...],
    metrics: tuple[str, ...],
    allow_changes: bool,
) -> None:
    """Serve the web page: every device, why pods wait, what happened.

    Reads with your permissions, installs nothing, and changes nothing without --allow-changes. The printed address contains a
    token: anyone who has it sees what you see. The variable DRAY_TOKEN sets the token.

    \b
    Examples:
      dray ui                                          the cluster that kubectl would use
      dray ui --kubeconfig ~/.kube/config --context production
      dray ui --metrics http://127.0.0.1:8080/metrics    with plots of a scheduler's metrics
      dray ui --metrics /api/v1/namespaces/dray-system/services/dray-scheduler:8080/proxy/metrics
      dray ui --snapshot now.yaml                      files taken from a cluster
      dray simulate scenario.yaml --record run.gz && dray ui --run run.gz
      dray ui --run run.gz --follow                    while the simulation runs
    """
    if recording is not None and source.named:
        raise click.UsageError("--run cannot be combined with --snapshot, --kubeconfig or --context")
    if follow and recording is None:
        raise click.UsageError("--follow requires --run")
    if not (source.live and recording is None) and any(url.startswith("/") for url in metrics):
        raise click.UsageError("--metrics with a path needs an API server; use a full URL with --run or --snapshot")
    look = Look(bound(host, port), token(), hosts, allow_changes, metrics)
    to_the_end(lambda: _serve(source, partial(_recorded, recording, follow) if recording is not None else None, look))


async def _serve(source: Source, recording: Callable[[], Scene] | None, look: Look) -> None:
    from dray.cluster.served import Served
    from dray.runtime.process import stop_on_signals
    from dray.web.meters import of_pages
    from dray.web.server import Page

    stop = stop_on_signals()
    scene = await _scene(source, recording)
    names = frozenset({*look.hosts, look.socket.getsockname()[0]})
    numbers = of_pages(look.metrics, scene.cluster.raw if isinstance(scene.cluster, Served) else None) if look.metrics else None
    page = Page(scene, Guard(look.token, names), allow_changes=look.changes, metrics=numbers)
    await page.serve(look.socket)
    click.echo(f"Web page:  {address(look.socket, look.token)}\nPress Ctrl-C to stop.", err=True)
    page.keep_warm()
    await stop.wait()
    await page.close()
    if scene.cluster is not None:
        await scene.cluster.close()


async def _scene(source: Source, recording: Callable[[], Scene] | None) -> Scene:
    from dray.api.gates import Gates
    from dray.web.live import Live
    from dray.web.moments import Still

    if recording is not None:
        return recording()
    if not source.live:
        snapshot = source.read(needs=())
        return Still(snapshot, source.name, now_of(snapshot), *placing_of(None, snapshot))
    cluster = await source.served()
    return Live(cluster, source.name, gates=Gates.dray().updated(await features_of(cluster)))


def _recorded(recording: Path, follow: bool) -> Scene:
    from dray.simulate.recording import RecordingError
    from dray.web.recorded import Recorded

    try:
        return Recorded(recording, follow=follow)
    except RecordingError as error:
        raise Trouble(str(error)) from error
