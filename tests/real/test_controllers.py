"""Dray's controllers, live through the client, do on a real kube-apiserver what they do on ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dray.api.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    Kind,
)
from dray.cluster.kubeconfig import load
from dray.cluster.port import NotFound, Write
from dray.cluster.remote import Remote
from dray.cluster.world import World
from dray.controllers.deployments import Deployments
from dray.controllers.garbage import Garbage
from dray.controllers.jobs import Jobs
from dray.controllers.namespaces import Namespaces
from dray.controllers.replicasets import ReplicaSets
from dray.runtime.live import Live
from tests.real.upstream.control_plane import Server
from tests.workloads import job, replicated

KINDS = (PODS, REPLICA_SETS, DEPLOYMENTS, JOBS, NAMESPACES, CONFIG_MAPS, SERVICE_ACCOUNTS, RESOURCE_QUOTAS)


@pytest.fixture
async def remote(cluster: Server) -> AsyncIterator[Remote]:
    """A client of a server on which Dray's controllers run."""
    remote, world = Remote(load(cluster.kubeconfig)), World(KINDS)
    deciders = [ReplicaSets(world), Deployments(world), Jobs(world), Garbage(world, KINDS), Namespaces(world, KINDS)]
    live = Live(remote, world, deciders)
    running = asyncio.create_task(live.run())
    yield remote
    live.stop()
    await running
    await remote.close()


async def create(remote: Remote, kind: Kind, namespace: str, body: dict[str, Any]) -> None:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    await remote.write(Write("create", kind, namespace, body["metadata"]["name"], body))


async def eventually(what: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await what():  # noqa: ASYNC110 (what is waited for is state, not an event)
            await asyncio.sleep(0.05)


async def count(remote: Remote, kind: Kind, namespace: str) -> int:
    return len((await remote.list(kind, namespace=namespace))[0])


async def test_a_deployment_is_made_rolled_and_removed(remote: Remote, namespace: str) -> None:
    await create(remote, DEPLOYMENTS, namespace, replicated("web", 3))

    async def pods() -> bool:
        return await count(remote, PODS, namespace) == 3

    await eventually(pods)
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app:2"}]
    await remote.write(Write("patch", DEPLOYMENTS, namespace, "web", image, patch="json"))

    async def two_sets() -> bool:
        found = await remote.get(DEPLOYMENTS, namespace, "web")
        revision = found["metadata"]["annotations"].get("deployment.kubernetes.io/revision")
        return await count(remote, REPLICA_SETS, namespace) == 2 and revision == "2"

    await eventually(two_sets)
    assert (await remote.get(DEPLOYMENTS, namespace, "web"))["metadata"]["generation"] == 2
    await remote.write(Write("delete", DEPLOYMENTS, namespace, "web", {"propagationPolicy": "Foreground"}))

    async def gone() -> bool:
        return await count(remote, PODS, namespace) + await count(remote, REPLICA_SETS, namespace) == 0

    await eventually(gone)


async def test_a_job_whose_pods_succeed_is_complete(remote: Remote, namespace: str) -> None:
    await create(remote, JOBS, namespace, job("sums", {"completions": 2, "parallelism": 2}))

    async def pods() -> bool:
        return await count(remote, PODS, namespace) == 2

    await eventually(pods)
    raws, _ = await remote.list(PODS, namespace=namespace)
    for raw in raws:
        name = json.loads(raw)["metadata"]["name"]
        await remote.write(Write("patch", PODS, namespace, name, {"status": {"phase": "Succeeded"}}, subresource="status"))

    async def complete() -> bool:
        conditions = (await remote.get(JOBS, namespace, "sums"))["status"].get("conditions", [])
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    await eventually(complete)


async def test_a_namespace_is_emptied_and_goes(remote: Remote, namespace: str) -> None:
    await create(remote, CONFIG_MAPS, namespace, {"metadata": {"name": "one"}})
    await remote.write(Write("delete", NAMESPACES, name=namespace))

    async def gone() -> bool:
        try:
            await remote.get(NAMESPACES, "", namespace)
        except NotFound:
            return True
        return False

    await eventually(gone)
