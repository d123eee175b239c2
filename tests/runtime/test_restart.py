"""A live controller outlives its API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dray.api.kinds import PODS, REPLICA_SETS
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.kubeconfig import load
from dray.cluster.port import Write
from dray.cluster.remote import Remote
from dray.cluster.world import World
from dray.controllers.replicasets import ReplicaSets
from dray.runtime.live import Live
from tests.workloads import replicated


async def serve(data: Path | None, port: int = 0) -> ApiServer:
    server = ApiServer(data)
    await server.start(port=port)
    return server


async def create(server: ApiServer, name: str, replicas: int) -> None:
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", **replicated(name, replicas)}
    await Embedded(server).write(Write("create", REPLICA_SETS, "default", name, body))


async def pods(world: World, count: int) -> None:
    async with asyncio.timeout(30):
        while len(world.all(PODS)) != count:  # noqa: ASYNC110 (what is waited for is state, not an event)
            await asyncio.sleep(0.02)


async def test_a_controller_goes_on_when_its_server_is_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    server = await serve(data)
    server.write_kubeconfig(tmp_path / "kubeconfig")
    port = int(server.url.rpartition(":")[2])
    remote, world = Remote(load(tmp_path / "kubeconfig")), World(ReplicaSets.kinds)
    live = Live(remote, world, [ReplicaSets(world)])
    running = asyncio.create_task(live.run())
    await create(server, "one", 3)
    await pods(world, 3)
    await server.stop()
    await asyncio.sleep(0.5)
    server = await serve(data, port)
    await create(server, "two", 2)
    await pods(world, 5)
    live.stop()
    await running
    await remote.close()
    await server.stop()
