"""A cluster in this process: what its parts have read is shown as it is, and not read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dray.api.kinds import PODS, Kind
from dray.cluster.port import Write
from dray.cluster.world import World
from dray.nodes.hardware import hardware
from dray.runtime.local import Local, Settings
from dray.runtime.onlooker import Onlooker
from dray.web.live import Live
from dray.web.picture import Painter, Picture
from tests.web.clusters import pod


class Counted:
    """A port that remembers which kinds were listed through it."""

    def __init__(self, port: Any) -> None:
        self.watch, self.get, self.write, self.close = port.watch, port.get, port.write, port.close
        self._list = port.list
        self.listed: set[str] = set()

    async def list(self, kind: Kind, **options: Any) -> tuple[list[bytes], str]:
        self.listed.add(kind.plural)
        found: tuple[list[bytes], str] = await self._list(kind, **options)
        return found


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Local, Onlooker]]:
    made, onlookers = hardware(["gpu8:2"]), list[Onlooker]()

    def watching(world: World) -> Onlooker:
        onlookers.append(Onlooker(world))
        return onlookers[0]

    local = Local(Settings(nodes=tuple(made.nodes)), watching)
    await local.start()
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(local.run(stop, ready))
    await local.apply(made.objects)
    await ready.wait()
    yield local, onlookers[0]
    stop.set()
    await task


async def same(one: Live, other: Live) -> Picture:
    """What both show, once they agree."""
    while True:
        pictures = [Painter().paint(live.moment()) for live in (one, other)]
        shown = [(picture.pools, picture.nodes, picture.waiting, picture.pods) for picture in pictures]
        if shown[0] == shown[1] and len(pictures[0].nodes) == 2:
            return pictures[0]
        await asyncio.sleep(0.02)


async def test_the_same_is_shown_and_only_events_are_read_for_it() -> None:
    async with asyncio.timeout(30), running() as (local, onlooker):
        port, stirred = Counted(local.port), asyncio.Event()
        shared, own = Live(port, "shared", onlooker=onlooker), Live(local.port, "own")
        shared.listen(stirred.set)
        await shared.begin()
        await own.begin()
        assert port.listed == {"events"}
        assert len((await same(shared, own)).pools) == 2
        waits = {
            **pod("p", namespace="default"),
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
        }
        await local.port.write(Write("create", PODS, "default", "p", waits))
        while not shared.moment().world.get(PODS, "default/p"):
            stirred.clear()
            await stirred.wait()  # whoever shows it is told that there is something new
        assert (await same(shared, own)).waiting == 1
        kept = shared.moment()
        await local.port.write(Write("delete", PODS, "default", "p"))
        while shared.moment().world.get(PODS, "default/p"):
            stirred.clear()
            await stirred.wait()
        assert kept.world.get(PODS, "default/p")  # a moment stays what it was
        await shared.close()
        await own.close()
