"""A process that writes to a durable cluster as fast as it can and says what was acknowledged, until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from dray.api.kinds import Kind
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.port import Write

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)
WRITERS = 8


async def writer(cluster: Embedded, name: str) -> None:
    """Creates an object, changes it some times, deletes it, begins again; one line for each acknowledged write."""
    count = 0
    while True:
        count += 1
        body = {"metadata": {"name": name}, "data": {"n": str(count)}}
        made = await cluster.write(Write("create", CONFIG_MAPS, "default", body=body))
        _say(name, count, made)
        for _ in range(5):
            count += 1
            patch = {"data": {"n": str(count)}}
            _say(name, count, await cluster.write(Write("patch", CONFIG_MAPS, "default", name, patch)))
        await cluster.write(Write("delete", CONFIG_MAPS, "default", name))
        os.write(1, f"{name} gone 0\n".encode())


def _say(name: str, count: int, made: dict[str, dict[str, str]]) -> None:
    os.write(1, f"{name} {count} {made['metadata']['resourceVersion']}\n".encode())


async def main(directory: Path) -> None:
    server = ApiServer(directory)
    await server.start()
    cluster = Embedded(server)
    left = {entry.object["metadata"]["name"] for _, entry in server.core.store.table("configmaps").scan()}
    for name in left:
        await cluster.write(Write("delete", CONFIG_MAPS, "default", name))
    os.write(1, b"started 0 0\n")
    await asyncio.gather(*(writer(cluster, f"w{number}") for number in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
