"""`dray capture`: a cluster's hardware as a file that can be simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
import msgspec
import yaml

from dray.api.amounts import counted
from dray.api.kinds import DEVICE_CLASSES, NODES, RESOURCE_SLICES
from dray.cli.source import Source, source_options
from dray.cli.trouble import Trouble
from dray.nodes.hardware.capture import Captured, captured

_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@click.command()
@source_options
@click.option("--node", "only", multiple=True, help="Capture only this node. Repeatable.")
@click.option("--all-nodes", is_flag=True, help="Include nodes without devices.")
@click.option("--name", default="captured", show_default=True, help="Name prefix of the descriptions; a number is appended.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format.")
def capture(source: Source, only: Sequence[str], all_nodes: bool, name: str, output: str) -> None:
    """Describe a cluster's nodes and devices in a file, to simulate them anywhere.

    Identical nodes share one description. Node names and device identities (UUIDs, serial numbers, MAC addresses) are left out.
    Writes the description to stdout and usage hints to stderr.

    \b
    Examples:
      dray capture > site.yaml
      dray up --hardware site.yaml                    the same number of nodes
      dray up --hardware site.yaml#captured-1:12      twelve nodes of the first kind
      dray capture --node gpu-7 --name dgx > dgx.yaml
    """
    found = source.read(needs=(NODES, RESOURCE_SLICES))
    slices = list(found.plain(RESOURCE_SLICES))
    with_devices = {each["spec"].get("nodeName") for each in slices}
    nodes = [each for each in found.plain(NODES) if not only or each["metadata"]["name"] in only]
    if unknown := set(only) - {each["metadata"]["name"] for each in nodes}:
        raise Trouble(f"{source.holds} no node {sorted(unknown)[0]!r}")
    nodes = [each for each in nodes if all_nodes or each["metadata"]["name"] in with_devices]
    if only:
        slices = [each for each in slices if each["spec"].get("nodeName") in only]
    made = captured(nodes, slices, found.plain(DEVICE_CLASSES), name)
    if not made:
        raise Trouble(f"{source.holds} no nodes with devices; --all-nodes includes nodes without devices")
    documents = [each.document for each in made]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(documents), indent=2).decode())
    else:
        click.echo(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120), nl=False)
    _tell(made)


def _tell(made: Sequence[Captured]) -> None:
    for each in made:
        nodes = counted(len(each.nodes), "node") if each.nodes else "not on a single node"
        click.echo(f"{each.document['metadata']['name']}: {nodes}, {counted(each.devices, 'device')} each", err=True)
    click.echo(
        "To simulate it:  dray up --hardware FILE.yaml, or one description only: --hardware FILE.yaml#NAME:COUNT", err=True
    )
