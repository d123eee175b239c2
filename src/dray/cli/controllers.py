"""`dray controllers`: Dray's controllers on any cluster."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.running import Connection, cluster_options, run_on_cluster


@click.command()
@click.option(
    "--only",
    default="",
    metavar="A,B",
    help="Run only these: claims, workloads, namespaces, garbage, quota, nodes. Default: claims.",
)
@cluster_options
def controllers(only: str, **options: Any) -> None:
    """Run Dray's controllers on any Kubernetes cluster.

    A real cluster has kube-controller-manager for most of this; run what it lacks. Without --only, that is nothing but the
    controller that makes claims from templates.

    \b
    Examples:
      dray controllers --kubeconfig ~/.kube/config --only claims
      dray controllers --kubeconfig ~/.kube/config --only quota     device quotas: all names of a class kept equal
      dray controllers --kubeconfig admin.conf --only claims,workloads,garbage,namespaces --leader-elect
    """
    from dray.apiserver.catalog import CATALOG
    from dray.controllers.claims import METRICS
    from dray.controllers.sets import SETS, Setting, deciders, kinds
    from dray.runtime.meter import Meter
    from dray.runtime.process import Part

    chosen = tuple(filter(None, (name.strip() for name in only.split(",")))) or ("claims",)
    for name in chosen:
        if name not in SETS:
            raise click.BadParameter(f"{name!r} is not a controller; known: {', '.join(SETS)}", param_hint="--only")
    connection = Connection("dray-controllers", options)
    part = Part(
        kinds(chosen, CATALOG.owned),
        lambda world, metrics: deciders(
            chosen, Setting(world, connection.gates, CATALOG.owned, meter=Meter(metrics.registry, METRICS), embedded=False)
        ),
        connection.serve,
        connection.election,
    )
    run_on_cluster(connection, part)
