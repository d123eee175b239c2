"""Driver programs register with a simulated node over the kubelet's sockets, are called, and say how their devices are."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from dray.nodes import messages as m
from dray.nodes.drivers import ClaimName, Done, Failed, Health, NotYet, PreparedDevice
from dray.nodes.sockets import Sockets
from tests.nodes.laboratory import Driver
from tests.nodes.plugin import NAME, Plugin

CLAIM = ClaimName("default", "mine", "uid-1")


@pytest.fixture
def root() -> Iterator[Path]:
    """Short: the path of a socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dray", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
async def sockets(root: Path) -> AsyncIterator[Sockets]:
    made = Sockets({"n": root}, Driver(), lambda driver: driver == "simulated.example.com")
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled(), running.exception()


async def until(true: Callable[[], object]) -> None:
    """Returns when it holds; the test's timeout is the only limit."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def answer(sockets: Sockets, operation: str = "prepare") -> object:
    while isinstance(found := sockets.call(operation, "n", NAME, [CLAIM], 0.0), NotYet):  # type: ignore[arg-type]  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found


async def test_a_driver_registers_is_called_and_goes(sockets: Sockets, root: Path) -> None:
    async with Plugin(root) as plugin:
        await until(lambda: sockets.connected("n", NAME))
        assert plugin.status == m.RegistrationStatus(True)
        device = PreparedDevice("pool", "gpu-0", ("gpu",), ("example.com/gpu=0",))
        assert await answer(sockets) == {"uid-1": Done((device,))}
        assert await answer(sockets, "unprepare") == {"uid-1": Done()}
        assert plugin.calls == [("prepare", ["mine"]), ("unprepare", ["mine"])]
    await until(lambda: not sockets.serves("n", NAME))


async def test_a_call_is_made_once_however_often_its_answer_is_asked_for(sockets: Sockets, root: Path) -> None:
    told: list[str] = []
    sockets.changed = told.append
    async with Plugin(root) as plugin:
        await until(lambda: sockets.connected("n", NAME))
        plugin.hold.clear()
        for _ in range(5):
            assert sockets.call("prepare", "n", NAME, [CLAIM], 0.0) == NotYet()
            await asyncio.sleep(0.01)
        told.clear()
        plugin.hold.set()
        await until(lambda: told)
        assert isinstance(sockets.call("prepare", "n", NAME, [CLAIM], 0.0), dict)
        assert plugin.calls == [("prepare", ["mine"])]


async def test_the_error_of_a_claim_and_of_a_call_are_told(sockets: Sockets, root: Path) -> None:
    async with Plugin(root) as plugin:
        await until(lambda: sockets.connected("n", NAME))
        plugin.error = "no such device"
        assert await answer(sockets) == {"uid-1": Done(error="no such device")}
        await plugin.hang_up()
        await until(lambda: not sockets.connected("n", NAME))
        found = await answer(sockets)
        assert isinstance(found, Failed)
        assert found.error.startswith("rpc error: code = Unavailable desc = ")


@pytest.mark.parametrize(
    ("versions", "service"),
    [
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1"),
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1"),
        (("v9.DRAPlugin", "v1beta1.DRAPlugin"), "v1beta1"),
    ],
)
async def test_the_first_version_of_the_plugin_that_is_known_is_used(
    sockets: Sockets, root: Path, versions: tuple[str, ...], service: str
) -> None:
    known = tuple(version for version in versions if version.startswith(service + "."))
    async with Plugin(root, versions=known) as plugin:
        plugin.info = m.PluginInfo("DRAPlugin", NAME, str(plugin.endpoint), versions)
        await until(lambda: sockets.connected("n", NAME))
        assert isinstance(await answer(sockets), dict)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (m.PluginInfo("CSIPlugin", NAME, "/x", ("v1.DRAPlugin",)), "plugins of type 'CSIPlugin' are not simulated"),
        (m.PluginInfo("DRAPlugin", NAME, "/x", ("v9.DRAPlugin",)), "none of the versions v9.DRAPlugin is supported"),
        (m.PluginInfo("DRAPlugin", "", "/x", ("v1.DRAPlugin",)), "must report its name and endpoint"),
    ],
)
async def test_a_plugin_that_cannot_be_used_is_told_why(sockets: Sockets, root: Path, info: m.PluginInfo, words: str) -> None:
    plugin = Plugin(root)
    plugin.info = info
    async with plugin:
        await until(lambda: plugin.status is not None)
        assert plugin.status is not None
        assert not plugin.status.plugin_registered
        assert words in plugin.status.error
        assert not sockets.serves("n", NAME)


async def test_the_same_endpoint_is_not_registered_twice(sockets: Sockets, root: Path) -> None:
    async with Plugin(root) as first:
        await until(lambda: sockets.connected("n", NAME))
        second = Plugin(root, suffix="-b")
        second.info = first.info
        async with second:
            await until(lambda: second.status is not None)
            assert second.status is not None
            assert "already registered" in second.status.error


async def test_during_a_rolling_update_the_newest_endpoint_that_is_connected_is_called(sockets: Sockets, root: Path) -> None:
    async with Plugin(root) as old:
        await until(lambda: sockets.connected("n", NAME))
        async with Plugin(root, suffix="-b") as new:
            await until(lambda: new.status is not None)
            while not new.calls:
                await answer(sockets)
            assert [call for call in old.calls if call[0] == "unprepare"] == []
            await new.hang_up()
            before = len(old.calls)
            while len(old.calls) == before:
                await answer(sockets)
        assert sockets.serves("n", NAME)


async def test_a_driver_that_starts_again_at_once_registers_again(sockets: Sockets, root: Path) -> None:
    async with Plugin(root):
        await until(lambda: sockets.connected("n", NAME))
    async with Plugin(root) as again:
        await until(lambda: again.status is not None)
        assert again.status == m.RegistrationStatus(True)
        assert isinstance(await answer(sockets), dict)


async def test_only_simulated_drivers_are_stood_in_for_on_a_node_with_sockets(sockets: Sockets) -> None:
    assert sockets.serves("n", "simulated.example.com")
    assert not sockets.serves("n", NAME)
    assert sockets.serves("other", "gpu.dray.dev")


def report(health: int, *, seconds: int = 3600, message: str = "", device: str = "gpu-0") -> m.NodeWatchResourcesResponse:
    return m.NodeWatchResourcesResponse((m.DeviceHealth(m.DeviceIdentifier("pool", device), health, 0, seconds, message),))


@pytest.mark.parametrize("version", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_health_is_heard_until_the_stream_ends(sockets: Sockets, root: Path, version: str) -> None:
    def health() -> Health | None:
        return sockets.health("n", NAME, "pool", "gpu-0")

    async with Plugin(root, versions=("v1.DRAPlugin", version)) as plugin:
        plugin.reports.put_nowait(report(m.UNHEALTHY, message="XID 79"))
        await until(lambda: health() == Health("Unhealthy", "XID 79"))
        plugin.reports.put_nowait(report(m.HEALTHY))
        await until(lambda: health() == Health("Healthy"))
        plugin.reports.put_nowait(None)
        await until(lambda: health() is None)
