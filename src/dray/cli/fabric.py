"""`dray fabric`: the demonstration fabric controller on any cluster."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.running import Connection, cluster_options, run_on_cluster


@click.command()
@click.option("--driver", default="fabric.dray.dev", show_default=True, help="Attach the devices of this driver.")
@click.option("--attach-seconds", default=3.0, show_default=True, help="How long an attach takes.")
@cluster_options
def fabric(driver: str, attach_seconds: float, **options: Any) -> None:
    """Attach fabric devices for demonstration: sets the binding conditions of allocated devices after a while.

    How an attach ends is set with annotations on the claim: fabric.dray.dev/attach is succeed, fail or silence,
    fabric.dray.dev/attach-seconds how long it takes.

    \b
    Examples:
      dray fabric --kubeconfig ~/.kube/config
      dray fabric --driver fabric.example.com --attach-seconds 20
    """
    from dray.nodes.fabric import Fabric
    from dray.runtime.process import Part

    connection = Connection("dray-fabric", options)
    part = Part(
        tuple(Fabric.kinds),
        lambda world, metrics: [Fabric(world, driver=driver, attach_seconds=attach_seconds)],
        connection.serve,
        connection.election,
    )
    run_on_cluster(connection, part)
