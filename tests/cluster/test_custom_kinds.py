"""A kind that is not there yet: deciders name it, and see it when it comes, without a restart."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODE_RESOURCE_TOPOLOGIES, Kind
from dray.api.meta import Object, Struct
from dray.apiserver.server import ApiServer
from dray.cluster.kubeconfig import load
from dray.cluster.port import Cluster, Conflict, NotFound, Refused, WatchEvent, Write
from dray.cluster.reflector import Backoff, Listed, Reflector
from dray.cluster.remote import Remote
from dray.cluster.served import Served
from dray.cluster.world import World
from tests.apiserver.custom.conftest import definition, fields, number

_serial = itertools.count(1)


class WidgetSpec(Struct):
    size: int = 0


class Widget(Object):
    spec: WidgetSpec = msgspec.field(default_factory=WidgetSpec)


def new_kind() -> tuple[Kind, dict[str, Any]]:
    made = definition(spec=fields(size=number()))
    group = f"late{next(_serial)}.example.com"
    made["spec"]["group"], made["metadata"]["name"] = group, f"widgets.{group}"
    return Kind(group, "v1", "widgets", "Widget", True, Widget), made


@asynccontextmanager
async def mirrored(cluster: Cluster, kind: Kind) -> AsyncIterator[World]:
    """A World that a reflector keeps."""
    world = World([kind])

    def receive(kind: Kind, item: Listed | WatchEvent) -> None:
        if isinstance(item, Listed):
            world.replace(kind, item.raws, item.resource_version)
        elif item.type == "DELETED":
            world.remove(kind, item.raw)
        else:
            world.put(kind, item.raw)

    reflector = Reflector(cluster, kind, receive, backoff=Backoff(0.01, 0.1), appears=0.05)
    task = asyncio.create_task(reflector.run())
    try:
        yield world
    finally:
        task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def written(cluster: Cluster, write: Write) -> None:
    """As soon as the server serves the kind: a real one takes a moment after the definition, and after one that went."""
    async with asyncio.timeout(30):
        while True:
            try:
                await cluster.write(write)
                return
            except (NotFound, Conflict, Refused):
                await asyncio.sleep(0.05)


def widget(kind: Kind, name: str) -> Write:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": {"size": 1}}
    return Write("create", kind, "default", name, body)


async def test_a_kind_is_empty_until_it_is_defined_and_again_when_it_is_gone(port: Cluster) -> None:
    kind, defined = new_kind()
    async with mirrored(port, kind) as world:
        await until(lambda: world.is_listed(kind))
        assert world.all(kind) == {}
        await port.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=defined))
        await written(port, widget(kind, "w"))
        await until(lambda: "default/w" in world.all(kind))
        assert world.get(kind, "default/w").spec.size == 1
        await port.write(Write("delete", CUSTOM_RESOURCE_DEFINITIONS, name=defined["metadata"]["name"]))
        await until(lambda: not world.all(kind))
        await written(port, Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=copy.deepcopy(defined)))
        await written(port, widget(kind, "again"))
        await until(lambda: "default/again" in world.all(kind))


async def test_the_version_that_a_cluster_has_is_found_when_it_comes(tmp_path: Path) -> None:
    """NodeResourceTopology, in a cluster that gets it later and in its first version only."""
    server = ApiServer(None)
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    remote = Remote(load(tmp_path / "kubeconfig"))
    name = NODE_RESOURCE_TOPOLOGIES.resource
    shipped = await remote.get(CUSTOM_RESOURCE_DEFINITIONS, "", name)
    await remote.write(Write("delete", CUSTOM_RESOURCE_DEFINITIONS, name=name))
    served = await Served.of(remote, [NODE_RESOURCE_TOPOLOGIES])
    async with mirrored(served, NODE_RESOURCE_TOPOLOGIES) as world:
        await until(lambda: world.is_listed(NODE_RESOURCE_TOPOLOGIES))
        versions = [each | {"storage": True} for each in shipped["spec"]["versions"] if each["name"] == "v1alpha1"]
        older = {"metadata": {"name": name, "annotations": shipped["metadata"]["annotations"]}}
        await remote.write(
            Write("create", CUSTOM_RESOURCE_DEFINITIONS, body={**older, "spec": shipped["spec"] | {"versions": versions}})
        )
        zones = [{"name": "node-0", "type": "Node"}]
        body = {"metadata": {"name": "n"}, "zones": zones}
        await written(served, Write("create", NODE_RESOURCE_TOPOLOGIES, name="n", body=body))
        await until(lambda: "n" in world.all(NODE_RESOURCE_TOPOLOGIES))
    await remote.close()
    await server.stop()
