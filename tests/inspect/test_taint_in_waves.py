"""``dray taint --wave``: told to leave are those that must leave at once; the time of the others begins after the last wave."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from dray.api.kinds import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, Kind
from dray.api.resource import DeviceTaint, DeviceTaintSelector
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cli.evicting import Waves, in_waves
from dray.cluster.port import Write
from dray.explain.targets import rule_of
from tests.inspect.conftest import Plain, claim, device_class, pod, result

RULE = rule_of(DeviceTaintSelector(pool="n1"), DeviceTaint("example.com/broken", "", "NoExecute"))


async def create(cluster: Embedded, kind: Kind, body: Plain) -> Any:
    namespace = "default" if kind.namespaced else ""
    metadata = {key: value for key, value in body["metadata"].items() if key not in ("uid", "namespace")}
    return await cluster.write(Write("create", kind, namespace, metadata["name"], {**body, "metadata": metadata}))


async def using(cluster: Embedded, name: str, device: str, *tolerations: Plain) -> None:
    """A pod that uses a device, which its claim tolerates so much of."""
    body = pod(name, name, node="n1")
    body["spec"]["terminationGracePeriodSeconds"] = 0
    made = await create(cluster, PODS, body)
    held = claim(name, result(device, tolerations=list(tolerations)))
    held["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}]
    await create(cluster, RESOURCE_CLAIMS, held)
    status = {"status": held["status"]}
    await cluster.write(Write("patch", RESOURCE_CLAIMS, "default", name, status, subresource="status"))


@pytest.mark.parametrize("budgets", [False, True])
async def test_who_tolerates_the_taint_for_a_while_is_not_told_to_leave_in_a_wave(budgets: bool) -> None:
    server = ApiServer(None)
    await server.start()
    cluster = Embedded(server)
    try:
        await create(cluster, DEVICE_CLASSES, device_class())
        patience = {"operator": "Exists", "effect": "NoExecute"}
        await using(cluster, "intolerant", "g0")
        await using(cluster, "patient", "g1", patience | {"tolerationSeconds": 3600})
        await using(cluster, "impatient", "g2", patience | {"tolerationSeconds": 0})
        await using(cluster, "tolerant", "g3", patience)
        left = await in_waves(cluster, RULE, Waves(1, 0.0, budgets), time.time() + 60, print)
        assert (left.done, left.evicted) == (True, 2)
        raws, _ = await cluster.list(PODS)
        assert sorted(msgspec.json.decode(raw)["metadata"]["name"] for raw in raws) == ["patient", "tolerant"]
    finally:
        await cluster.close()
        await server.stop()
