"""`dray controllers`: Dray's controllers on any cluster."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.configured import read_config
from dray.cli.running import Connection, cluster_options, run_on_cluster

if TYPE_CHECKING:
    from dray.controllers.exporter import Mode

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--only",
    default="",
    metavar="A,B",
    help="Run only these: claims, eviction, workloads, services, volumes, namespaces, garbage, access, quota, nodes, zones, "
    "exporter. Default: claims.",
)
@click.option(
    "--evictions-per-second",
    type=click.FloatRange(min=0.001),
    default=20.0,
    show_default=True,
    help="Maximum rate of evictions from tainted devices.",
)
@click.option(
    "--exporter",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Whether to deploy the placement exporter; auto: while nodes publish zones and the scheduler's NUMA plugin is on.",
)
@click.option("--exporter-image", default="dray", show_default=True, help="Image of the placement exporter.")
@click.option(
    "--scheduler-config",
    type=click.Path(path_type=Path),
    help="The scheduler's configuration, for --exporter auto. Default: Dray's defaults, with the NUMA plugin on.",
)
@click.option(
    "--root-ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA certificate that the namespaces controller publishes in each namespace as kube-root-ca.crt.",
)
@cluster_options
def controllers(
    only: str,
    evictions_per_second: float,
    exporter: Mode,
    exporter_image: str,
    scheduler_config: Path | None,
    root_ca_file: Path | None,
    **options: Any,
) -> None:
    """Run Dray's controllers on any Kubernetes cluster.

    On a real cluster, kube-controller-manager does most of this: run only what it lacks, and disable there what runs here.
    Without --only, only the controller that creates claims from templates runs.

    \b
    Examples:
      dray controllers --kubeconfig ~/.kube/config --only claims
      dray controllers --kubeconfig ~/.kube/config --only quota     device quotas, equal for all names of a class
      dray controllers --only eviction --evictions-per-second 2      device taints evict two pods a second
      dray controllers --kubeconfig admin.conf --only claims,workloads,garbage,namespaces --leader-elect
      dray controllers --only exporter --scheduler-config /etc/dray/config.yaml --leader-elect
    """
    from dray.apiserver.catalog import CATALOG
    from dray.controllers.exporter import Settings
    from dray.controllers.sets import METRICS, OPTIONAL, SETS, Exporting, Setting, deciders, kinds
    from dray.runtime.meter import Meter
    from dray.runtime.process import Part

    chosen = tuple(filter(None, (name.strip() for name in only.split(",")))) or ("claims",)
    for name in chosen:
        if name not in SETS | OPTIONAL:
            raise click.BadParameter(f"unknown controller {name!r}; known: {', '.join(SETS | OPTIONAL)}", param_hint="--only")
    if "exporter" in chosen and exporter == "auto":
        _readable(scheduler_config)
    exporting = Exporting(Settings(exporter, exporter_image), lambda: _numa_enabled(scheduler_config))
    connection = Connection("dray-controllers", options)
    certificate = _certificate(root_ca_file) if root_ca_file is not None else ""
    part = Part(
        kinds(chosen, CATALOG.owned),
        lambda world, metrics: deciders(
            chosen,
            Setting(
                world,
                connection.gates,
                CATALOG.owned,
                certificate,
                meter=Meter(metrics.registry, METRICS),
                exporter=exporting,
                evictions_per_second=evictions_per_second,
                embedded=False,
            ),
        ),
        connection.serve,
        connection.election,
        gates=connection.gates,
    )
    run_on_cluster(connection, part)


def _certificate(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"cannot read {path}: {error}", param_hint="--root-ca-file") from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise click.BadParameter(f"{path} contains no PEM certificate", param_hint="--root-ca-file")
    return text


def _numa_enabled(path: Path | None) -> bool | None:
    """Whether the scheduler looks at zones. What the file says now: it may change while the controllers run. None where it cannot
    be read, which is told: nothing is deployed or taken away because of a file that is broken for a moment."""
    from dray.scheduling.configuration import ConfigError

    try:
        return _looks_at_zones(path)
    except ConfigError as error:
        log.error(
            "cannot read the scheduler's configuration, so the placement exporter stays as it is; fix the file, or use "
            "--exporter on or off",
            extra={"file": str(path), "error": str(error)},
        )
        return None


def _readable(path: Path | None) -> None:
    """A file that cannot be read when the controllers start is a mistake of whoever starts them."""
    from dray.scheduling.configuration import ConfigError

    try:
        _looks_at_zones(path)
    except ConfigError as error:
        hint = "--exporter auto needs the scheduler's configuration; fix it, or use --exporter on or off"
        raise click.BadParameter(f"{error}. {hint}", param_hint="--scheduler-config") from None


def _looks_at_zones(path: Path | None) -> bool:
    from dray.scheduling.config import Config

    return (read_config(path) if path is not None else Config()).zones is not None
