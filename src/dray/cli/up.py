"""`dray up`: a Kubernetes cluster in this process."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dray.cli.found import findable
from dray.cli.hardware import kubelet_root_option, kubelet_roots, print_catalogue, simulated_machines
from dray.cli.manifests import read_manifests
from dray.cli.running import gates, log_options, served_address, since_start, to_the_end
from dray.cli.trouble import patience
from dray.cli.ui import Look, address, bound, token
from dray.web.guard import Guard

if TYPE_CHECKING:
    from dray.cluster.world import World
    from dray.runtime.onlooker import Onlooker

_CONFIG_KIND = "KubeSchedulerConfiguration"


def data_default() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dray"


@click.command()
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="API server port on 127.0.0.1; 0 reuses the last port of this cluster, or takes a free one.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory that keeps the cluster.  [default: ~/.local/share/dray]",
)
@click.option("--ephemeral", is_flag=True, help="Keep nothing: the cluster is deleted on exit.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the kubeconfig here.  [default: in the data directory]",
)
@click.option(
    "--view-kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a read-only kubeconfig here.",
)
@click.option(
    "--merge-kubeconfig", is_flag=True, help="Add the cluster to KUBECONFIG or ~/.kube/config and make it the current context."
)
@click.option(
    "-f",
    "--filename",
    "manifests",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Manifests to apply at startup. Repeatable.",
)
@click.option("--nodes", type=click.IntRange(0, 10_000), help="Number of simulated nodes without devices.")
@click.option(
    "--hardware",
    multiple=True,
    metavar="NAME:COUNT",
    help="Simulated nodes with devices: from the catalogue (--list-hardware), or FILE.yaml:COUNT. Repeatable.",
)
@kubelet_root_option
@click.option("--list-hardware", is_flag=True, help="List the catalogue of simulated hardware and exit.")
@click.option("--without", default="", metavar="PART,…", help="Do not run these: scheduler, controllers, nodes.")
@click.option("--ready-file", type=click.Path(path_type=Path, dir_okay=False), help="File to write when the cluster is ready.")
@click.option("--ui/--no-ui", default=True, show_default=True, help="Serve the web page; see `dray ui`.")
@click.option("--ui-port", type=click.IntRange(0, 65535), help="Port of the web page.  [default: 8750, or any free port]")
@click.option(
    "--allow-changes", is_flag=True, help="Allow changes from the page: taint, cordon, drain and apply, each with a preview."
)
@click.option("--serve", default="", metavar="HOST:PORT", help="Serve /healthz, /readyz, /metrics and /story on this address.")
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Turn features on or off, by their Kubernetes names.")
# People read what it prints; what a server would log of its start is noise to them.
@log_options("warning")
def up(
    port: int,
    data: Path | None,
    ephemeral: bool,
    kubeconfig: Path | None,
    view_kubeconfig: Path | None,
    merge_kubeconfig: bool,
    manifests: tuple[Path, ...],
    nodes: int | None,
    hardware: tuple[str, ...],
    kubelet_root: tuple[str, ...],
    list_hardware: bool,
    without: str,
    ready_file: Path | None,
    ui: bool,
    ui_port: int | None,
    allow_changes: bool,
    serve: str,
    feature_gates: str,
) -> None:
    """Run a local Kubernetes cluster in this process: API server, scheduler, controllers and simulated nodes with devices.

    Runs until Ctrl-C. The cluster is kept: the next `dray up` with the same --data continues where this one stopped.

    \b
    Examples:
      dray up --hardware gpu8:4 --kubeconfig kc        then: kubectl --kubeconfig kc get resourceslices
      dray up --ephemeral --nodes 3 -f app.yaml        three plain nodes and your manifests
      dray up --without scheduler                      to test another scheduler
      dray up --hardware site.yaml                     your own hardware, or from `dray capture`
      dray up --nodes 1 --kubelet-root plain-0=/tmp/k     for a real driver: it registers in /tmp/k/plugins_registry
    """
    if list_hardware:
        print_catalogue()
        return
    from dray.runtime.local import PARTS, Settings

    if ephemeral and data is not None:
        raise click.UsageError("--ephemeral cannot be combined with --data")
    left_out = tuple(filter(None, (part.strip() for part in without.split(","))))
    if unknown := [part for part in left_out if part not in PARTS]:
        raise click.BadParameter(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}", param_hint="--without")
    chosen = gates(feature_gates)
    config, objects = _split(read_manifests(manifests), chosen)
    directory = None if ephemeral else data or data_default()
    target = kubeconfig or (directory / "kubeconfig" if directory is not None else Path("dray.kubeconfig"))
    machines = simulated_machines(hardware, nodes)
    roots = kubelet_roots(kubelet_root, machines.nodes)
    settings = Settings(directory, port, chosen, config, left_out, served_address(serve), tuple(machines.nodes), roots)
    objects = [*machines.objects, *objects]
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)  # one of an earlier run would be believed
    told = Told(target, view_kubeconfig, merge_kubeconfig, ready_file)
    look = Look(bound("127.0.0.1", ui_port), token(), changes=allow_changes) if ui else None
    to_the_end(lambda: _serve(settings, objects, told, look))


class Told(NamedTuple):
    """Where it is written how to reach the cluster."""

    kubeconfig: Path
    view: Path | None
    merge: bool
    ready: Path | None


async def _serve(settings: Any, objects: list[dict[str, Any]], told: Told, look: Look | None) -> None:
    from dray.apiserver.journal import JournalError
    from dray.runtime.local import Local, Unappliable
    from dray.runtime.onlooker import Onlooker
    from dray.runtime.process import stop_on_signals

    stop, ready = stop_on_signals(), asyncio.Event()
    onlookers: list[Onlooker] = []

    def watching(world: World) -> Onlooker:
        onlookers.append(Onlooker(world))
        return onlookers[0]

    try:
        local = Local(settings, watching=watching if look is not None else None)
        await local.start()
    except JournalError as error:
        raise click.ClickException(str(error)) from error
    running = asyncio.create_task(local.run(stop, ready))
    with patience(f"creating {len(objects)} objects …"):
        try:
            await local.apply(objects)
        except Unappliable as error:
            stop.set()
            await running
            raise click.ClickException(str(error)) from error
        first = asyncio.create_task(ready.wait())
        await asyncio.wait({first, running}, return_when=asyncio.FIRST_COMPLETED)
    if ready.is_set():
        _announce(local.server, settings.data, told, look)
    first.cancel()
    showing = asyncio.create_task(_show(local, look, settings, onlookers, stop)) if ready.is_set() and look is not None else None
    with findable(told.kubeconfig) if ready.is_set() else nullcontext():
        await running
    if showing is not None:
        await showing


async def _show(local: Any, look: Look, settings: Any, onlookers: list[Onlooker], stop: asyncio.Event) -> None:
    """Serve the page until ``stop``. Loading what it is served with takes time that a cluster need not wait for; those who come
    early wait."""

    def load() -> Any:
        from dray.scheduling.config import EMBEDDED
        from dray.web import live, meters, server

        return live, meters, server, EMBEDDED

    live, meters, server, embedded = await asyncio.to_thread(load)
    if stop.is_set():
        return
    onlooker = next(iter(onlookers), None)
    scene = live.Live(local.port, f"dray up, {local.server.url}", settings.config or embedded, settings.gates, onlooker)
    numbers = meters.of_registry(local.metrics.registry) if local.metrics is not None else None
    page = server.Page(scene, Guard(look.token), allow_changes=look.changes, metrics=numbers)
    await page.serve(look.socket)
    if onlooker is not None:
        # What the parts have read is painted in advance, and now and then again. Who would have to read it for the page alone
        # waits until somebody looks: a cluster that nobody looks at does not pay for it.
        page.keep_warm()
    await stop.wait()
    await page.close()


def _announce(server: Any, data: Path | None, told: Told, look: Look | None) -> None:
    server.write_kubeconfig(told.kubeconfig)
    if told.view is not None:
        server.write_kubeconfig(told.view, view=True)
    use = f"export KUBECONFIG={told.kubeconfig.absolute()}"
    if told.merge:
        use = f"kubectl --context dray …   (added to {_merged(server)})"
    if told.ready is not None:
        told.ready.write_text(server.url + "\n")
    click.echo(f"Cluster ready at {server.url} ({since_start():.1f} s).", err=True)
    click.echo(f"Use it:  {use}", err=True)
    if told.view is not None:
        click.echo(f"Read-only:  export KUBECONFIG={told.view.absolute()}", err=True)
    if look is not None:
        click.echo(f"Web page:  {address(look.socket, look.token)}", err=True)
    click.echo(f"Press Ctrl-C to stop; {f'the cluster is kept in {data}' if data else 'nothing is kept'}.", err=True)


def _merged(server: Any) -> Path:
    from dray.apiserver import kubeconfigs

    path = kubeconfigs.merged_path(os.environ)
    kubeconfigs.merge(kubeconfigs.kubeconfig(server.identity, server.url), path)
    return path


def _split(objects: list[dict[str, Any]], chosen: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The scheduler's configuration, or None where the manifests carry none, and the objects."""
    configs = [found for found in objects if found["kind"] == _CONFIG_KIND]
    if not configs:
        return None, objects
    from dray.scheduling.configuration import ConfigError, parse

    if len(configs) > 1:
        raise click.BadParameter(f"at most one {_CONFIG_KIND} is allowed, got {len(configs)}", param_hint="-f")
    try:
        config = parse(configs[0], chosen)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="-f") from error
    return config, [found for found in objects if found["kind"] != _CONFIG_KIND]
