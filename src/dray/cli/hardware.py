"""Simulated hardware on the command line: options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dray.nodes.hardware import Hardware

kubelet_root_option = click.option(
    "--kubelet-root",
    multiple=True,
    metavar="NODE=DIR",
    help="Serve this node's kubelet sockets in DIR (as in /var/lib/kubelet), for real drivers and exporters. Repeatable.",
)


def simulated_machines(requests: Sequence[str], plain: int | None) -> Hardware:
    """The hardware of ``--hardware`` options, and plain nodes."""
    from dray.nodes.hardware import UnknownHardware, hardware

    try:
        return hardware([*requests, *([f"plain:{plain}"] if plain else [])])
    except UnknownHardware as error:
        raise click.BadParameter(str(error), param_hint="--hardware") from error


def kubelet_roots(given: Sequence[str], manifests: Iterable[dict[str, Any]]) -> dict[str, Path]:
    """Directories by node, as ``--kubelet-root`` names them."""
    if not given:
        return {}
    from dray.runtime.machines import NoSockets, check_roots

    roots: dict[str, Path] = {}
    for text in given:
        node, _, directory = text.partition("=")
        if not node or not directory:
            raise click.BadParameter(f"{text!r} is not NODE=DIR, for example gpu8-0=/tmp/gpu8-0", param_hint="--kubelet-root")
        roots[node] = Path(directory).absolute()
    try:
        check_roots(roots, (manifest["metadata"]["name"] for manifest in manifests))
    except NoSockets as error:
        raise click.BadParameter(str(error), param_hint="--kubelet-root") from error
    return roots


def print_catalogue() -> None:
    from dray.cli.output import console, table
    from dray.nodes.hardware import CATALOGUE, describe

    console().print(table(("name", "description"), [(name, describe(name)) for name in CATALOGUE]))
