"""`dray fabric`: the demonstration fabric controller on any cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dray.cli.running import Connection, cluster_options, run_on_cluster

if TYPE_CHECKING:
    from dray.cluster.port import Decider
    from dray.cluster.world import World
    from dray.runtime.metrics import Metrics


@click.command()
@click.option("--driver", default="fabric.dray.dev", show_default=True, help="Attach the devices of this driver.")
@click.option("--attach-seconds", default=3.0, show_default=True, type=click.FloatRange(0), help="How long an attach takes.")
@click.option("--autoscale", is_flag=True, help="Attach spare devices for pods that wait, and take back those that are idle.")
@click.option(
    "--idle-seconds",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How long a device is kept that nobody uses.",
)
@cluster_options
def fabric(driver: str, attach_seconds: float, autoscale: bool, idle_seconds: float, **options: Any) -> None:
    """Attach fabric devices for demonstration: sets the binding conditions of allocated devices after a while.

    How an attach ends is set with annotations on the claim: fabric.dray.dev/attach is succeed, fail or silence,
    fabric.dray.dev/attach-seconds how long it takes.

    With --autoscale it is to devices what a cluster autoscaler is to nodes: a pod that waits, and would fit on a node with some
    of the spare devices of a fabric, gets them attached; pods that start together get all that they need, or nothing. What nobody
    uses for a while is taken back. What is spare is in slices with the label fabric.dray.dev/spare=true, with a taint on each
    device.

    \b
    Examples:
      dray fabric --kubeconfig ~/.kube/config
      dray fabric --autoscale --idle-seconds 120
      dray fabric --driver fabric.example.com --attach-seconds 20
    """
    from dray.nodes.autoscaling import DeviceAutoscaler
    from dray.nodes.fabric import Fabric
    from dray.runtime.process import Part

    connection = Connection("dray-fabric", options)
    kinds = tuple(dict.fromkeys((*Fabric.kinds, *(DeviceAutoscaler.kinds if autoscale else ()))))

    def deciders(world: World, metrics: Metrics) -> list[Decider]:
        made: list[Decider] = [Fabric(world, driver=driver, attach_seconds=attach_seconds)]
        if autoscale:
            gates = connection.gates
            made.append(DeviceAutoscaler(world, attach_seconds=attach_seconds, idle_seconds=idle_seconds, gates=gates))
        return made

    run_on_cluster(connection, Part(kinds, deciders, connection.serve, connection.election))
