"""`dray scheduler`: the scheduler on any cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dray.cli.running import Connection, cluster_options, run_on_cluster


@click.command()
@click.option("--scheduler-name", default="", help="Schedule pods with this schedulerName. Default: dray, or what --config says.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).",
)
@click.option("--writes-in-flight", default=32, show_default=True, type=click.IntRange(1, 1024), help="Writes sent at once.")
@cluster_options
def scheduler(scheduler_name: str, config_file: Path | None, writes_in_flight: int, **options: Any) -> None:
    """Schedule pods on any Kubernetes cluster, 1.34 or newer, beside or instead of kube-scheduler.

    Pods choose it by spec.schedulerName. It reads nodes, pods, volumes and everything of resource.k8s.io, and writes
    claims, pod status, bindings and events; deploy/ has manifests with exactly the permissions that this needs.

    \b
    Examples:
      dray scheduler --kubeconfig ~/.kube/config
      dray scheduler --config scheduler.yaml --leader-elect --serve 127.0.0.1:10259
      dray scheduler --scheduler-name default-scheduler     # in place of kube-scheduler
    """
    from dray.cluster.metrics import METRICS
    from dray.runtime.meter import Meter
    from dray.runtime.process import Part
    from dray.scheduling.config import Config, Profile
    from dray.scheduling.configuration import load
    from dray.scheduling.scheduler import KINDS, Scheduler

    connection = Connection("dray-scheduler", options)
    if config_file is not None and scheduler_name:
        raise click.UsageError("--scheduler-name and --config both name schedulers: give one")
    config = Config((Profile(scheduler_name or "dray"),))
    if config_file is not None:
        try:
            config = load(config_file.read_text(), connection.gates)
            connection.adopt(config)
        except (OSError, ValueError) as error:
            raise click.ClickException(f"{config_file}: {error}") from error
    part = Part(
        KINDS,
        lambda world, metrics: [Scheduler(world, config, connection.gates, meter=Meter(metrics.registry, METRICS))],
        connection.serve,
        connection.election,
        writes_in_flight,
    )
    run_on_cluster(connection, part)
