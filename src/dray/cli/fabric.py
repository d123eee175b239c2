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
@click.option("--driver", default="fabric.dray.dev", show_default=True, help="Attach devices of this driver.")
@click.option(
    "--attach-seconds", default=3.0, show_default=True, type=click.FloatRange(0), help="How long it takes to attach a device."
)
@click.option("--autoscale", is_flag=True, help="Attach spare devices for pending pods, and detach idle ones.")
@click.option(
    "--idle-seconds",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Detach a device after it was idle this long.",
)
@cluster_options
def fabric(driver: str, attach_seconds: float, autoscale: bool, idle_seconds: float, **options: Any) -> None:
    """Attach fabric devices (demonstration): sets the binding conditions of allocated devices after a delay.

    Annotations on the claim set the outcome: fabric.dray.dev/attach is succeed, fail or silence; fabric.dray.dev/attach-seconds
    is the delay.

    With --autoscale, it works like a cluster autoscaler for devices: if a pending pod would fit on a node with spare devices of
    the fabric, they are attached; a gang gets all devices that it needs, or none. Idle devices are detached. Spare devices are in
    slices with the label fabric.dray.dev/spare=true, with a taint on each device.

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
