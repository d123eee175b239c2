"""What ``dray taint`` does until all have left: who is told to leave in waves, and who is waited for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dray.api.kinds import DEVICE_CLASSES, DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, Kind
from dray.api.resource import DeviceTaint, DeviceTaintSelector
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cli.evicting import Waves, in_waves, watched
from dray.cluster.port import Write
from dray.explain.targets import rule_of
from tests.inspect.conftest import Plain, claim, device_class, pod, result

NAME = "broken"
RULE = rule_of(DeviceTaintSelector(pool="n1"), DeviceTaint("example.com/broken", "", "NoExecute"), name=NAME)
SPEC = {"deviceSelector": {"pool": "n1"}, "taint": {"key": "example.com/broken", "effect": "NoExecute"}}
PATIENCE = {"operator": "Exists", "effect": "NoExecute"}
LONG_AGO = "2020-01-01T00:00:00Z"


async def create(cluster: Embedded, kind: Kind, body: Plain) -> Any:
    namespace = "default" if kind.namespaced else ""
    metadata = {key: value for key, value in body["metadata"].items() if key not in ("uid", "namespace")}
    return await cluster.write(Write("create", kind, namespace, metadata["name"], {**body, "metadata": metadata}))


async def using(cluster: Embedded, name: str, device: str, *tolerations: Plain, grace: int = 0) -> None:
    """A pod that uses a device, which its claim tolerates so much of. There is no kubelet to end it when it is told to leave."""
    body = pod(name, name, node="n1")
    body["spec"]["terminationGracePeriodSeconds"] = grace
    made = await create(cluster, PODS, body)
    held = claim(name, result(device, tolerations=list(tolerations)))
    held["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}]
    await create(cluster, RESOURCE_CLAIMS, held)
    status = {"status": held["status"]}
    await cluster.write(Write("patch", RESOURCE_CLAIMS, "default", name, status, subresource="status"))


async def names(cluster: Embedded) -> list[str]:
    raws, _ = await cluster.list(PODS)
    return sorted(msgspec.json.decode(raw)["metadata"]["name"] for raw in raws)


async def says(cluster: Embedded, status: str, reason: str) -> None:
    """What a controller says of the rule, once it is there."""
    made = await create(cluster, DEVICE_TAINT_RULES, {"metadata": {"name": NAME}, "spec": SPEC})
    condition = {"type": "EvictionInProgress", "status": status, "reason": reason, "message": "", "lastTransitionTime": LONG_AGO}
    body = {"status": {"conditions": [condition | {"observedGeneration": made["metadata"]["generation"]}]}}
    await cluster.write(Write("patch", DEVICE_TAINT_RULES, "", NAME, body, subresource="status"))


@pytest.fixture
async def cluster() -> AsyncIterator[Embedded]:
    server = ApiServer(None)
    await server.start()
    port = Embedded(server)
    await create(port, DEVICE_CLASSES, device_class())
    yield port
    await port.close()
    await server.stop()


@pytest.mark.parametrize("budgets", [False, True])
async def test_who_tolerates_the_taint_for_a_while_is_not_told_to_leave_in_a_wave(cluster: Embedded, budgets: bool) -> None:
    await using(cluster, "intolerant", "g0")
    await using(cluster, "patient", "g1", PATIENCE | {"tolerationSeconds": 3600})
    await using(cluster, "impatient", "g2", PATIENCE | {"tolerationSeconds": 0})
    await using(cluster, "tolerant", "g3", PATIENCE)
    left = await in_waves(cluster, RULE, Waves(1, 0.0, budgets), time.time() + 60, print)
    assert (left.done, left.evicted) == (True, 2)
    assert await names(cluster) == ["patient", "tolerant"]


async def test_a_pod_that_was_told_to_leave_and_still_runs_is_waited_for(cluster: Embedded) -> None:
    await using(cluster, "slow", "g0", grace=600)
    await says(cluster, "False", "Completed")
    await cluster.write(Write("delete", PODS, "default", "slow"))
    left = await watched(cluster, NAME, time.time() + 1, print)
    assert (left.done, left.message) == (False, "default/slow on the way out")
    await cluster.write(Write("delete", PODS, "default", "slow", {"gracePeriodSeconds": 0}))
    assert (await watched(cluster, NAME, time.time() + 60, print)).done


async def test_a_pod_that_tolerates_the_taint_and_ends_for_another_reason_is_not_waited_for(cluster: Embedded) -> None:
    await using(cluster, "tolerant", "g0", PATIENCE, grace=600)
    await cluster.write(Write("delete", PODS, "default", "tolerant"))
    assert (await in_waves(cluster, RULE, Waves(1), time.time() + 60, print)).done


async def test_whom_a_controller_leaves_alone_is_named(cluster: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.cli.evicting.SILENCE_SECONDS", 1.0)
    await using(cluster, "train", "g0")
    await says(cluster, "False", "NotStarted")
    left = await watched(cluster, NAME, time.time() + 60, print)
    assert (left.done, left.message) == (False, "the controller evicts no more pods, but default/train must leave")
