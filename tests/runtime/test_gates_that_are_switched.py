"""A cluster whose gates are switched off and on again over restarts: KEP-5055 and KEP-5007, enablement and rollback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dray.api import features
from dray.api.gates import GATES, Gates
from dray.api.kinds import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.nodes.hardware import hardware
from dray.runtime.local import Local, Settings

Plain = dict[str, Any]
PATIENCE = 60


@asynccontextmanager
async def cluster(folder: Path, made: Any, **gates: bool) -> AsyncIterator[Local]:
    """What `dray up` runs, on the data of whoever ran before."""
    local = Local(Settings(folder, gates=Gates.dray().updated(gates), nodes=tuple(made.nodes)))
    await local.start()
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(local.run(stop, ready))
    await local.apply(made.objects)
    await ready.wait()
    try:
        yield local
    finally:
        stop.set()
        await running


async def until(local: Local, name: str, true: Callable[[Plain], bool], kind: Any = PODS) -> Plain:
    async with asyncio.timeout(PATIENCE):
        while True:
            found: Plain = await local.port.get(kind, "" if kind is RESOURCE_SLICES else "default", name)
            if true(found):
                return found
            await asyncio.sleep(0.02)


def runs(pod: Plain) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def refused(pod: Plain) -> bool:
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"].get("conditions", ()))


def wants(name: str, class_name: str, *tolerations: Plain) -> list[Plain]:
    """A claim, and a pod that uses it."""
    request = {"name": "r", "exactly": {"deviceClassName": class_name, "tolerations": list(tolerations)}}
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "d"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "d", "resourceClaimName": name}]}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec},
    ]


async def test_rules_hold_again_after_they_were_switched_off(tmp_path: Path) -> None:
    made = hardware(["gpu8:1"])
    taint = {"key": "example.com/maintenance", "effect": "NoExecute"}
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": {}, "taint": taint},
    }
    tolerating = wants("tolerating", "gpu.dray.dev", {"operator": "Exists"})
    async with cluster(tmp_path, made) as local:
        await local.apply([rule, *tolerating, *wants("plain", "gpu.dray.dev")])
        await until(local, "plain", refused)
        kept = (await until(local, "tolerating", runs))["metadata"]["uid"]
    async with cluster(tmp_path, made, DRADeviceTaintRules=False) as local:
        await until(local, "plain", runs)
    async with cluster(tmp_path, made) as local:
        claim = await until(local, "plain", lambda claim: "allocation" not in claim.get("status", {}), RESOURCE_CLAIMS)
        assert not claim["status"].get("reservedFor"), "its pod was evicted"
        assert (await local.port.get(PODS, "default", "tolerating"))["metadata"]["uid"] == kept
        assert runs(await local.port.get(PODS, "default", "tolerating"))


async def test_a_pod_that_waits_is_bound_at_once_without_binding_conditions_and_the_next_waits_again(tmp_path: Path) -> None:
    made = hardware(["fabric:1"])
    (published,) = [found for found in made.objects if found["kind"] == "ResourceSlice"]
    published["metadata"].setdefault("annotations", {})["fabric.dray.dev/attach"] = "silence"

    def waits(pod: Plain) -> bool:
        return bool(pod["status"].get("nominatedNodeName")) and not pod["spec"].get("nodeName")

    async with cluster(tmp_path, made) as local:
        await local.apply(wants("first", "fabric-gpu.dray.dev"))
        await until(local, "first", waits)
    async with cluster(tmp_path, made, DRADeviceBindingConditions=False) as local:
        await until(local, "first", runs)
        stored = await local.port.get(RESOURCE_SLICES, "", published["metadata"]["name"])
        assert all(device["bindingConditions"] for device in stored["spec"]["devices"]), "what is stored is kept"
        await local.apply(wants("second", "fabric-gpu.dray.dev"))
        await until(local, "second", refused)
    async with cluster(tmp_path, made) as local:
        await until(local, "second", waits)
        assert runs(await local.port.get(PODS, "default", "first"))


async def test_which_features_the_parts_have_is_among_their_numbers(tmp_path: Path) -> None:
    async with cluster(tmp_path, hardware(["gpu8:1"]), DRADeviceCompatibilityGroups=False) as local:
        assert local.metrics is not None
        told = features.read(local.metrics.text())
    assert told == {name: name in Gates.dray().on - {"DRADeviceCompatibilityGroups"} for name in GATES}
