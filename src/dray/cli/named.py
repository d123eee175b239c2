"""Names on the command line that nothing has: a mistake, told with the name that was probably meant."""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.kinds import NODES
from dray.cli.trouble import Trouble
from dray.explain.missing import nearest
from dray.explain.snapshot import Snapshot


def refuse_unknown_nodes(names: Sequence[str], snapshot: Snapshot, besides: Sequence[str] = ()) -> None:
    """``besides``: nodes that are there although no object says so. Where it was not read which there are, any may be."""
    there = [*(snapshot.world.all(NODES) if NODES in snapshot.world.kinds else ()), *besides]
    for name in names if NODES not in snapshot.unknown else ():
        if name not in there:
            raise Trouble(f'node "{name}" does not exist{meant(name, there)}')


def meant(name: str, names: Sequence[str]) -> str:
    near = nearest(name, names)
    return f"; did you mean {near}?" if near is not None else ""
