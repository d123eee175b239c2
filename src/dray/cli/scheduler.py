"""`dray scheduler`: the scheduler on any cluster."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray import __version__
from dray.cli.configured import read_config
from dray.cli.running import Connection, cluster_options, run_on_cluster
from dray.cluster.port import Decider
from dray.cluster.world import World
from dray.runtime.metrics import Metrics
from dray.runtime.process import Part
from dray.scheduling.kinds import KINDS

if TYPE_CHECKING:
    from dray.scheduling.config import Config

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--scheduler-name", default="", help="Schedule pods with this schedulerName. Default: dray, or the names in --config."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).",
)
@click.option(
    "--writes-in-flight", default=32, show_default=True, type=click.IntRange(1, 1024), help="Maximum number of concurrent writes."
)
@cluster_options
def scheduler(scheduler_name: str, config_file: Path | None, writes_in_flight: int, **options: Any) -> None:
    """Run the Dray scheduler on any Kubernetes cluster (1.34 or newer), beside kube-scheduler or in place of it.

    Pods select it with spec.schedulerName. It reads nodes, pods, volumes and everything in resource.k8s.io, and writes
    claims, pod status, bindings and events. The manifests in deploy/ grant exactly these permissions.

    \b
    Examples:
      dray scheduler --kubeconfig ~/.kube/config
      dray scheduler --config scheduler.yaml --leader-elect --serve 127.0.0.1:10259
      dray scheduler --scheduler-name default-scheduler     # in place of kube-scheduler
    """
    connection = Connection("dray-scheduler", options)
    if config_file is not None and scheduler_name:
        raise click.UsageError("--scheduler-name cannot be combined with --config, which names the schedulers")
    config = _read(config_file, connection) if config_file is not None else None

    def build(world: World, metrics: Metrics) -> list[Decider]:
        from dray.cluster.metrics import METRICS
        from dray.runtime.meter import Meter
        from dray.scheduling.config import Config, Profile
        from dray.scheduling.scheduler import Scheduler

        chosen = config or Config((Profile(scheduler_name or "dray"),))
        log.info("scheduling pods", extra={"of": ", ".join(chosen.by_name), "version": __version__})
        return [Scheduler(world, chosen, connection.gates, meter=Meter(metrics.registry, METRICS))]

    part = Part(KINDS, build, connection.serve, connection.election, writes_in_flight, gates=connection.gates)
    run_on_cluster(connection, part, meanwhile=_load)


def _load() -> None:
    """What takes long to load, while the cluster is asked what it serves."""
    import dray.runtime.meter
    import dray.scheduling.scheduler  # noqa: F401


def _read(file: Path, connection: Connection) -> Config:
    from dray.scheduling.configuration import ConfigError

    try:
        config = read_config(file, connection.gates)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    try:
        connection.adopt(config)
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from error
    return config
