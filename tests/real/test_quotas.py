"""Quotas and limit ranges answer on ``dray up`` as on a real kube-apiserver; devices are kept equal by all names on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dray.api.gates import Gates
from dray.api.kinds import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    Kind,
)
from dray.cluster.kubeconfig import load
from dray.cluster.port import Refused, Write
from dray.cluster.remote import Remote
from dray.cluster.world import World
from dray.controllers.quotas import Quotas
from dray.runtime.live import Live
from tests.quota.room import claim, exactly, pod, special
from tests.quota.test_pods_that_ask_as_a_whole import COMPLETED, REFUSED
from tests.real.upstream.control_plane import Server

LIMIT_RANGES = Kind("", "v1", "limitranges", "LimitRange", True)
COUNTED = (PODS, CONFIG_MAPS, SERVICES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS, RESOURCE_QUOTAS)


class Room:
    """A namespace of a server on which Dray counts quotas."""

    def __init__(self, remote: Remote, namespace: str) -> None:
        self._remote, self._namespace = remote, namespace

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self._remote.write(
            Write("create", kind, self._namespace if kind.namespaced else "", body["metadata"]["name"], body)
        )

    async def refused(self, kind: Kind, body: dict[str, Any], code: int = 403) -> str:
        with pytest.raises(Refused) as refusal:
            await self.create(kind, body)
        assert refusal.value.code == code
        return refusal.value.message

    async def quota(self, **hard: Any) -> None:
        spec = {"hard": {name: str(amount) for name, amount in hard.items()}}
        await self.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
        await self.used(**dict.fromkeys(hard, "0"))

    async def used(self, **wanted: str) -> None:
        """Until the status says so."""
        used: Any = None
        async with asyncio.timeout(30):
            while used != wanted:
                found = await self._remote.get(RESOURCE_QUOTAS, self._namespace, "q")
                used = found.get("status", {}).get("used")
                await asyncio.sleep(0.05)


@pytest.fixture
async def room(cluster: Server, namespace: str, request: pytest.FixtureRequest) -> AsyncIterator[Room]:
    remote, world = Remote(load(cluster.kubeconfig)), World((*COUNTED, DEVICE_CLASSES))
    embedded = "embedded" in request.node.name
    live = Live(remote, world, [Quotas(world, Gates.dray(), COUNTED, embedded=embedded)])
    running = asyncio.create_task(live.run())
    yield Room(remote, namespace)
    live.stop()
    await running
    await remote.close()


async def test_pods_and_their_requests(room: Room) -> None:
    await room.quota(**{"pods": 2, "requests.cpu": "1500m", "limits.memory": "1Gi"})
    for name in "ab":
        await room.create(PODS, pod(name, {"cpu": "700m"}, {"memory": "256Mi"}))
    await room.used(**{"pods": "2", "requests.cpu": "1400m", "limits.memory": "512Mi"})
    assert await room.refused(PODS, pod("c", {"cpu": "700m"}, {"memory": "1Gi"})) == (
        'pods "c" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,pods=1,requests.cpu=700m, '
        "used: limits.memory=512Mi,pods=2,requests.cpu=1400m, limited: limits.memory=1Gi,pods=2,requests.cpu=1500m"
    )
    assert await room.refused(PODS, pod("c", {"cpu": "1m"})) == (
        'pods "c" is forbidden: failed quota: q: must specify limits.memory for: c'
    )


async def test_objects_services_and_storage(room: Room) -> None:
    fast = "fast.storageclass.storage.k8s.io/requests.storage"
    await room.quota(**{"count/configmaps": 1, "services.nodeports": 1, fast: "2Gi"})
    await room.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    assert await room.refused(CONFIG_MAPS, {"metadata": {"name": "b"}}) == (
        'configmaps "b" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, '
        "limited: count/configmaps=1"
    )
    ports = [{"name": f"p{port}", "port": port} for port in (1, 2)]
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports, "selector": {"a": "b"}}}
    assert await room.refused(SERVICES, service) == (
        'services "s" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, '
        "limited: services.nodeports=1"
    )
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}
    assert await room.refused(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "v"}, "spec": spec}) == (
        f'persistentvolumeclaims "v" is forbidden: exceeded quota: q, requested: {fast}=3Gi, used: {fast}=0, limited: {fast}=2Gi'
    )


async def test_limit_ranges(room: Room) -> None:
    items = [
        {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"memory": "1Gi"}},
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}},
    ]
    await room.create(LIMIT_RANGES, {"metadata": {"name": "l"}, "spec": {"limits": items}})
    made = await room.create(PODS, pod("a"))
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    )
    assert await room.refused(PODS, pod("b", limits={"memory": "2Gi"})) == (
        'pods "b" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi'
    )
    assert await room.refused(PODS, pod("b", {"cpu": "100m"}, {"cpu": "1"})) == (
        'pods "b" is forbidden: cpu max limit to request ratio per Pod is 2, but provided ratio is 10.000000'
    )


async def test_pods_that_ask_as_a_whole(room: Room) -> None:
    await room.quota(**{"requests.cpu": "100", "limits.memory": "100Gi"})
    for index, (given, expected) in enumerate(COMPLETED):
        made = await room.create(PODS, {**given, "metadata": {"name": f"p{index}"}})
        assert {field: amounts for field, amounts in made["spec"]["resources"].items() if amounts} == expected
    await room.used(**{"requests.cpu": "14", "limits.memory": "2560Mi"})
    for given, told in REFUSED:
        assert await room.refused(PODS, given, 422) == f'Pod "p" is invalid: {told}'


async def test_devices_count_the_same_by_every_name(room: Room, namespace: str) -> None:
    made = f"gpu-{namespace}"
    resource = f"{namespace}.example.com/gpu"
    names = [
        f"{made}.deviceclass.resource.k8s.io/devices",
        f"requests.deviceclass.resource.kubernetes.io/{made}",
        f"requests.{resource}",
    ]
    await room.create(DEVICE_CLASSES, {"metadata": {"name": made}, "spec": {"extendedResourceName": resource}})
    await room.quota(**dict.fromkeys(names, 6))
    await room.create(RESOURCE_CLAIMS, claim("two", exactly(2, made)))
    await room.used(**dict.fromkeys(names, "2"))
    message = await room.refused(RESOURCE_CLAIMS, claim("five", exactly(5, made)))
    assert f"exceeded quota: q, requested: {names[0]}=5," in message
    owner = await room.create(PODS, pod("waits", limits={resource: "1"}))
    await room.create(RESOURCE_CLAIMS, special("waits-claim", owner, exactly(1, made)))
    await room.used(**dict.fromkeys(names, "3"))
    await room.create(PODS, pod("with-plugin", limits={resource: "1"}, nodeName="anywhere"))
    await room.used(**dict.fromkeys(names, "4"))


async def test_a_pod_that_takes_the_last_device_of_a_quota_still_gets_its_claim(room: Room, namespace: str) -> None:
    made, resource = f"last-{namespace}", f"{namespace}.example.com/last"
    names = [f"{made}.deviceclass.resource.k8s.io/devices", f"requests.{resource}"]
    await room.create(DEVICE_CLASSES, {"metadata": {"name": made}, "spec": {"extendedResourceName": resource}})
    await room.quota(**dict.fromkeys(names, 1))
    owner = await room.create(PODS, pod("p", limits={resource: "1"}))
    await asyncio.sleep(7)  # longer than the controller waits before it believes a difference
    await room.create(RESOURCE_CLAIMS, special("p-claim", owner, exactly(1, made)))
    await room.used(**dict.fromkeys(names, "1"))
