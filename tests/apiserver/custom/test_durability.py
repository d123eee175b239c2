"""Definitions and objects of their kinds survive a restart and a kill, and are served before anybody asks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.port import Write
from tests.apiserver.custom.conftest import definition, fields, text

WIDGETS = Kind("example.com", "v1", "widgets", "Widget", True)
PROCESS = """
import asyncio, sys
from pathlib import Path
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS
from dray.cluster.port import Write
from tests.apiserver.custom.conftest import definition, fields, text
from tests.apiserver.custom.test_durability import WIDGETS

async def main():
    server = ApiServer(Path(sys.argv[1]))
    await server.start()
    cluster = Embedded(server)
    made = definition(spec=fields(a=text(default="x")))
    await cluster.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=made))
    for number in range(1000000):
        await cluster.write(Write("create", WIDGETS, "default", body={"metadata": {"name": f"w{number}"}, "spec": {}}))
        print(number, flush=True)

asyncio.run(main())
"""


async def names(server: ApiServer) -> list[str]:
    found, _ = await Embedded(server).list(WIDGETS)
    return [raw.decode() for raw in found]


async def test_a_restart_serves_what_was_defined(tmp_path: Path) -> None:
    first = ApiServer(tmp_path / "data")
    await first.start()
    cluster = Embedded(first)
    await cluster.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=definition(spec=fields(a=text(default="x")))))
    await cluster.write(Write("create", WIDGETS, "default", body={"metadata": {"name": "w"}, "spec": {}}))
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}, "spec": {}}
    await cluster.write(Write("create", WIDGETS, "default", body=held))
    await cluster.write(Write("delete", CUSTOM_RESOURCE_DEFINITIONS, name="widgets.example.com"))
    await first.stop()

    second = ApiServer(tmp_path / "data")
    await second.start()
    cluster = Embedded(second)
    assert len(await names(second)) == 1, "the definition waits for what has a finalizer"
    assert (await cluster.get(WIDGETS, "default", "held"))["spec"] == {"a": "x"}
    await cluster.write(Write("patch", WIDGETS, "default", "held", {"metadata": {"finalizers": None}}))
    left, _ = await cluster.list(CUSTOM_RESOURCE_DEFINITIONS)
    assert not any(b'"name":"widgets.example.com"' in raw for raw in left)
    await second.stop()


def write_and_be_killed(directory: Path) -> int:
    """How many writes were answered."""
    with subprocess.Popen([sys.executable, "-c", PROCESS, directory], stdout=subprocess.PIPE, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
    return len(answered)


async def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    answered = await asyncio.to_thread(write_and_be_killed, directory)
    server = ApiServer(directory)
    await server.start()
    assert len(await names(server)) >= answered == 20
    await server.stop()


async def test_what_a_newer_dray_ships_replaces_what_an_older_one_shipped(tmp_path: Path) -> None:
    name = "queues.scheduling.run.ai"
    first = ApiServer(tmp_path / "data")
    await first.start()
    cluster = Embedded(first)
    older = {"metadata": {"annotations": {"dray.dev/definition": "older"}}, "spec": {"names": {"shortNames": ["old"]}}}
    await cluster.write(Write("patch", CUSTOM_RESOURCE_DEFINITIONS, name=name, body=older))
    await first.stop()
    second = ApiServer(tmp_path / "data")
    await second.start()
    found = await Embedded(second).get(CUSTOM_RESOURCE_DEFINITIONS, "", name)
    assert "shortNames" not in found["spec"]["names"]
    assert found["metadata"]["annotations"]["dray.dev/definition"] != "older"
    await second.stop()


async def test_who_watches_sees_the_last_object_go_and_then_the_end(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "data")
    await server.start()
    cluster = Embedded(server)
    await cluster.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=definition()))
    await cluster.write(Write("create", WIDGETS, "default", body={"metadata": {"name": "w"}}))
    _, version = await cluster.list(WIDGETS)

    async def seen() -> list[str]:
        return [event.type async for event in cluster.watch(WIDGETS, version)]

    watching = asyncio.create_task(seen())
    await asyncio.sleep(0)
    await cluster.write(Write("delete", CUSTOM_RESOURCE_DEFINITIONS, name="widgets.example.com"))
    async with asyncio.timeout(10):
        assert await watching == ["DELETED"]
    await server.stop()
