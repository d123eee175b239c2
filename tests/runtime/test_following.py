"""Controllers that look after every kind look after kinds that are defined while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.api.kinds import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Kind
from dray.apiserver.catalog import CATALOG
from dray.apiserver.embedded import Embedded
from dray.cluster.port import NotFound, Write
from dray.cluster.world import World
from dray.controllers.garbage import Garbage
from dray.controllers.namespaces import Namespaces
from dray.runtime.faults import EVERY
from dray.runtime.live import Live
from tests.apiserver.custom.conftest import definition
from tests.simulated import Place

WIDGETS = Kind("example.com", "v1", "widgets", "Widget", True)
GADGETS = Kind("example.com", "v1", "gadgets", "Gadget", False)


@asynccontextmanager
async def controllers(cluster: Embedded) -> AsyncIterator[World]:
    world = World(CATALOG.owned)
    live = Live(cluster, world, [Namespaces(world, CATALOG.owned), Garbage(world, CATALOG.owned)])
    task = asyncio.create_task(live.run())
    try:
        await live.listed.wait()
        yield world
    finally:
        live.stop()
        await task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def gone(cluster: Embedded, kind: Kind, namespace: str, name: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await cluster.get(kind, namespace, name)
            except NotFound:
                return
            await asyncio.sleep(0.02)


async def define(cluster: Embedded, kind: str, scope: str = "Namespaced") -> None:
    await cluster.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=definition(kind, scope=scope)))


async def make(cluster: Embedded, kind: Kind, name: str, owner: dict[str, Any] | None = None, namespace: str = "default") -> Any:
    metadata: dict[str, Any] = {"name": name}
    if owner is not None:
        about = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        metadata["ownerReferences"] = [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], **about}]
    return await cluster.write(Write("create", kind, namespace if kind.namespaced else "", body={"metadata": metadata}))


async def test_dependents_go_with_owners_of_defined_kinds_both_ways(cluster: Embedded) -> None:
    async with controllers(cluster) as world:
        await define(cluster, "Widget")
        await define(cluster, "Gadget", "Cluster")
        await until(lambda: {WIDGETS, GADGETS} <= set(world.kinds))
        gadget = await make(cluster, GADGETS, "top")
        widget = await make(cluster, WIDGETS, "middle", gadget)
        await make(cluster, CONFIG_MAPS, "bottom", widget)
        await make(cluster, WIDGETS, "stays")
        await cluster.write(Write("delete", GADGETS, name="top", body={"propagationPolicy": "Background"}))
        await gone(cluster, CONFIG_MAPS, "default", "bottom")
        await gone(cluster, WIDGETS, "default", "middle")
        assert await cluster.get(WIDGETS, "default", "stays")


async def test_orphans_stay_and_forget_their_owner(cluster: Embedded) -> None:
    async with controllers(cluster) as world:
        await define(cluster, "Widget")
        await until(lambda: WIDGETS in world.kinds)
        owner = await make(cluster, WIDGETS, "owner")
        await make(cluster, WIDGETS, "child", owner)
        await cluster.write(Write("delete", WIDGETS, "default", "owner", {"propagationPolicy": "Orphan"}))
        await gone(cluster, WIDGETS, "default", "owner")
        assert "ownerReferences" not in (await cluster.get(WIDGETS, "default", "child"))["metadata"]


async def test_what_a_definition_takes_along_takes_its_dependents_along(cluster: Embedded) -> None:
    async with controllers(cluster) as world:
        await define(cluster, "Widget")
        await until(lambda: WIDGETS in world.kinds)
        widget = await make(cluster, WIDGETS, "w")
        await make(cluster, CONFIG_MAPS, "dependent", widget)
        await until(lambda: "default/w" in world.all(WIDGETS))
        await cluster.write(Write("delete", CUSTOM_RESOURCE_DEFINITIONS, name="widgets.example.com"))
        await gone(cluster, CONFIG_MAPS, "default", "dependent")
        await until(lambda: WIDGETS not in world.kinds)


async def test_a_namespace_goes_with_the_objects_of_defined_kinds(cluster: Embedded) -> None:
    async with controllers(cluster) as world:
        await define(cluster, "Widget")
        await cluster.write(Write("create", NAMESPACES, body={"metadata": {"name": "team"}}))
        await make(cluster, WIDGETS, "w", namespace="team")
        await cluster.write(Write("delete", NAMESPACES, name="team"))
        await gone(cluster, NAMESPACES, "", "team")
        assert (await cluster.list(WIDGETS))[0] == []
        assert world.all(WIDGETS) == {}


async def test_kinds_that_were_there_before_are_looked_after_too(cluster: Embedded) -> None:
    await define(cluster, "Widget")
    owner = await make(cluster, WIDGETS, "owner")
    await make(cluster, WIDGETS, "child", owner)
    async with controllers(cluster) as world:
        await until(lambda: len(world.all(WIDGETS)) == 2 if WIDGETS in world.kinds else False)
        await cluster.write(Write("delete", WIDGETS, "default", "owner"))
        await gone(cluster, WIDGETS, "default", "child")


class TestOnVirtualTime:
    """The simulation's shell tells of defined kinds, too, whatever fails on the way."""

    KINDS = (CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, CONFIG_MAPS)

    def begin(self, **more: Any) -> Place:
        place = Place(**more)
        place.start("controllers", self.KINDS, lambda world: [Namespaces(world, self.KINDS), Garbage(world, self.KINDS)])
        return place

    @pytest.mark.parametrize("faults", EVERY)
    def test_dependents_go_with_owners_of_defined_kinds(self, faults: str) -> None:
        place = self.begin(seed=5, faults=EVERY[faults])
        place.create(CUSTOM_RESOURCE_DEFINITIONS, definition("Widget"))
        place.pass_time(30)
        owner = place.create(WIDGETS, {"metadata": {"name": "owner"}})
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]}
        for kind in (WIDGETS, CONFIG_MAPS):
            place.create(kind, {"metadata": {"name": "dependent", "ownerReferences": [reference]}})
        place.pass_time(30)
        place.delete(WIDGETS, "owner")
        place.pass_time(400)
        assert place.all(WIDGETS) == []
        assert [found["metadata"]["name"] for found in place.all(CONFIG_MAPS) if found["metadata"]["name"] == "dependent"] == []

    def test_a_namespace_takes_objects_of_defined_kinds_with_it_until_the_definition_goes(self) -> None:
        place = self.begin()
        place.create(CUSTOM_RESOURCE_DEFINITIONS, definition("Widget"))
        place.create(NAMESPACES, {"metadata": {"name": "team"}})
        place.pass_time(5)
        place.create(WIDGETS, {"metadata": {"name": "w"}}, namespace="team")
        place.delete(NAMESPACES, "team")
        place.pass_time(60)
        assert place.all(WIDGETS) == []
        assert place.get(NAMESPACES, "team") is None
        place.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
        place.pass_time(5)
        host = place.shell.hosts["controllers"]
        assert WIDGETS not in host.world.kinds
        place.create(CUSTOM_RESOURCE_DEFINITIONS, definition("Widget"))
        place.pass_time(5)
        assert WIDGETS in host.world.kinds
