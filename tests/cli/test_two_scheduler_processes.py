"""Two `dray scheduler` processes with names of their own on one cluster, and devices that pods of both are after."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIM_TEMPLATES
from dray.cluster.kubeconfig import load
from dray.cluster.port import Write
from dray.cluster.remote import Remote
from dray.cluster.world import World
from dray.explain.snapshot import KINDS
from dray.explain.verify import verify
from dray.nodes.kubelet import DEVICES
from tests.cli.test_up import running

NAMES = ("one", "two")
COUNT = 300  # pods; not as many as a fast machine can make, since devices take the time that they take
REQUESTS: dict[str, dict[str, Any]] = {
    "gpu": {"deviceClassName": "gpu.dray.dev"},
    "gpus": {"deviceClassName": "gpu.dray.dev", "count": 3},
    "part": {"deviceClassName": "mig-3g.dray.dev"},
    "timeslice": {"deviceClassName": "mig-timeslice.dray.dev"},
    "bandwidth": {"deviceClassName": "nic.dray.dev", "capacity": {"requests": {"bandwidth": "40G"}}},
    "attached": {"deviceClassName": "fabric-gpu.dray.dev"},
}
HARDWARE = [word for name in ("gpu8:1", "mig:1", "nic:1", "fabric:2") for word in ("--hardware", name)]


@contextmanager
def schedulers(kubeconfig: Path) -> Iterator[None]:
    start = [sys.executable, "-c", "from dray.cli import main; main()", "scheduler", "--kubeconfig", str(kubeconfig)]
    processes = [subprocess.Popen([*start, "--scheduler-name", name, "--log-level", "error"]) for name in NAMES]
    try:
        yield
        assert [process.poll() for process in processes] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def template(name: str) -> Write:
    spec = {"devices": {"requests": [{"name": "r", "exactly": REQUESTS[name]}]}}
    return Write("create", RESOURCE_CLAIM_TEMPLATES, "default", name, {"metadata": {"name": name}, "spec": {"spec": spec}})


def pod(name: str, scheduler: str, pick: random.Random) -> Write:
    asks = pick.choice([*REQUESTS, "extended"])
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "x"}]}
    if asks == "extended":
        spec["containers"][0]["resources"] = {"limits": {"dray.dev/gpu": "1"}}
    else:
        spec["resourceClaims"] = [{"name": "d", "resourceClaimTemplateName": asks}]
        spec["containers"][0]["resources"] = {"claims": [{"name": "d"}]}
    lasts = {"dray.dev/starts-after": "50ms", "dray.dev/finishes-after": f"{pick.choice((200, 600, 1500))}ms"}
    return Write("create", PODS, "default", name, {"metadata": {"name": name, "annotations": lasts}, "spec": spec})


async def look(remote: Remote) -> World:
    world = World(KINDS)
    for kind in KINDS:
        world.replace(kind, (await remote.list(kind))[0])
    return world


def shared(world: World) -> list[str]:
    """Devices with which two pods run, each with the whole of it: as the kubelet told, all in one list of pods."""
    found = (pod.metadata.annotations.get(DEVICES, "") for pod in world.all(PODS).values() if pod.status.phase == "Running")
    owners = Counter(device for told in found for device in told.split(", ") if device and "/nic-" not in device)
    return [device for device, count in owners.items() if count > 1]


async def hammer(remote: Remote, pick: random.Random) -> World:
    for name in REQUESTS:
        await remote.write(template(name))
    number = 0
    while number < COUNT:
        for _ in range(pick.randint(1, 6)):
            for name in NAMES:
                await remote.write(pod(f"p{number}", name, pick))
                number += 1
        assert shared(await look(remote)) == []
    async with asyncio.timeout(240):
        while True:
            world = await look(remote)
            assert shared(world) == []
            if all(each.terminal for each in world.all(PODS).values()):
                return world
            await asyncio.sleep(0.2)


@pytest.mark.slow
def test_no_device_is_used_by_two_and_all_pods_have_their_turn(tmp_path: Path) -> None:
    async def run() -> World:
        remote = Remote(load(tmp_path / "kc"))
        try:
            return await hammer(remote, random.Random(7))
        finally:
            await remote.close()

    with running(tmp_path, "--ephemeral", "--no-ui", "--without", "scheduler", *HARDWARE), schedulers(tmp_path / "kc"):
        world = asyncio.run(run())
    assert {each.status.phase for each in world.all(PODS).values()} == {"Succeeded"}
    assert {each.spec.scheduler_name for each in world.all(PODS).values()} == set(NAMES)
    assert verify(world).violations == []
