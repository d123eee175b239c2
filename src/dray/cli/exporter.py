"""`dray exporter`: says in each pod's annotations which zones the kubelet of this node gave it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dray.cli.running import Connection, cluster_options, run_on_cluster


@click.command()
@click.option("--node", required=True, envvar="NODE_NAME", help="Name of this node. Default: the variable NODE_NAME.")
@click.option(
    "--podresources",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    show_default=True,
    help="The kubelet's podresources socket.",
)
@click.option(
    "--sysfs",
    type=click.Path(path_type=Path),
    default=Path("/sys/devices/system/node"),
    show_default=True,
    help="Directory that lists the CPUs of each zone.",
)
@click.option(
    "--kubelet-state",
    type=click.Path(path_type=Path),
    help="The kubelet's directory, to react to changes of its state files at once.",
)
@click.option("--period", default=10.0, show_default=True, help="Query the kubelet at least this often, in seconds.")
@cluster_options
def exporter(node: str, podresources: Path, sysfs: Path, kubelet_state: Path | None, period: float, **options: Any) -> None:
    """Annotate each pod of a node with the NUMA zones that it really uses.

    Queries the kubelet through its podresources socket: when pods of the node or the kubelet's state files change, and every few
    seconds. The annotation kai.scheduler/numa-placement-observed has the resources by zone;
    kai.scheduler/numa-memory-groups-observed has the memory that spans several zones. Pods of all schedulers are reported.
    Needs permission to get, list, watch and patch pods.

    \b
    Examples:
      dray exporter --kubeconfig ~/.kube/config --node worker-1
      dray exporter --node worker-1 --podresources /run/simulated/kubelet.sock --sysfs /run/simulated/node
    """
    from dray.cluster.port import Cluster
    from dray.cluster.world import World
    from dray.nodes.exporter import METRICS, Exporter
    from dray.nodes.exporting import OnNode, PodResourcesClient, cpu_zones, follow
    from dray.runtime.meter import Meter
    from dray.runtime.metrics import Metrics
    from dray.runtime.process import Part

    if period < 1:
        raise click.BadParameter("must be at least 1 second", param_hint="--period")
    try:
        zones = cpu_zones(sysfs)
    except ValueError as error:
        raise click.ClickException(f"{sysfs}: {error}") from error
    if not zones:
        raise click.ClickException(
            f"no NUMA zones found in {sysfs}: expected node0/cpulist there; set the directory with --sysfs"
        )
    made: list[Exporter] = []

    def build(world: World, metrics: Metrics) -> list[Exporter]:
        made.append(Exporter(world, node, zones, period=period, meter=Meter(metrics.registry, METRICS)))
        return made

    async def ask(stir: Callable[[], None]) -> None:
        client = PodResourcesClient(podresources)
        try:
            await follow(made[0], client, kubelet_state, stir)
        finally:
            await client.close()

    def narrowed(cluster: Cluster) -> Cluster:
        return OnNode(cluster, node)

    connection = Connection("dray-exporter", options)
    checks = {"kubelet": lambda: made[0].silence()}
    part = Part(tuple(Exporter.kinds), build, connection.serve, connection.election, beside=ask, checks=checks)
    run_on_cluster(connection, part, through=narrowed)
