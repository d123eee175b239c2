"""`dray nodes`: simulated nodes with devices on any cluster."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.hardware import kubelet_root_option, kubelet_roots, simulated_machines
from dray.cli.running import Connection, cluster_options, run_on_cluster
from dray.cluster.remote import Remote


@click.command()
@click.option(
    "--hardware",
    multiple=True,
    metavar="NAME:COUNT",
    help="Nodes with devices; `dray up --list-hardware` lists the names. Repeatable.",
)
@click.option("--nodes", "plain", type=click.IntRange(0, 10_000), help="Number of nodes without devices.")
@click.option(
    "--taint/--no-taint",
    default=True,
    show_default=True,
    help="Taint the nodes, so that only pods that tolerate dray.dev/simulated run there.",
)
@kubelet_root_option
@cluster_options
def nodes(hardware: tuple[str, ...], plain: int | None, taint: bool, kubelet_root: tuple[str, ...], **options: Any) -> None:
    """Run simulated nodes with devices on any Kubernetes cluster: registers the nodes, publishes their devices, runs their pods.

    No containers are started. By default the nodes have the taint dray.dev/simulated=true:NoSchedule, so only pods that tolerate
    it run there. On exit the nodes stay and become NotReady; `kubectl delete nodes,resourceslices -l dray.dev/simulated` removes
    them with their devices.

    \b
    Examples:
      dray nodes --kubeconfig ~/.kube/config --hardware h100-8:4
      dray nodes --nodes 1 --kubelet-root plain-0=/tmp/k      for a real driver: it registers in /tmp/k/plugins_registry
    """
    from dray.nodes.numbers import METRICS
    from dray.runtime.local import Unappliable, bring_in
    from dray.runtime.machines import Machines
    from dray.runtime.meter import Meter
    from dray.runtime.process import Part

    made = simulated_machines(hardware, plain)
    if not made.nodes:
        raise click.UsageError("specify --hardware NAME:COUNT or --nodes COUNT; `dray up --list-hardware` lists the hardware")
    if taint:
        for manifest in made.nodes:
            manifest["spec"] = {"taints": [{"key": "dray.dev/simulated", "value": "true", "effect": "NoSchedule"}]}
    machines = Machines(made.nodes, kubelet_roots(kubelet_root, made.nodes))
    connection = Connection("dray-nodes", options)
    part = Part(
        Machines.kinds,
        lambda world, metrics: machines.deciders(world, Meter(metrics.registry, METRICS)),
        connection.serve,
        connection.election,
        beside=machines.beside if kubelet_root else None,
    )

    async def publish(remote: Remote) -> None:
        try:
            await bring_in(remote, made.objects)
        except Unappliable as error:
            raise click.ClickException(str(error)) from error

    run_on_cluster(connection, part, first=publish)
