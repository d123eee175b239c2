"""An acknowledged write survives whatever happens to the process; nothing is ever half there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from dray.api.kinds import Kind
from dray.apiserver.embedded import Embedded
from dray.apiserver.journal import Journal, JournalError
from dray.apiserver.server import ApiServer
from dray.cluster.port import ClusterError, Expired, Write

WRITER = Path(__file__).with_name("writing_process.py")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)


def run_and_kill(directory: Path, seconds: float) -> dict[str, tuple[str, int]]:
    """What the process acknowledged last for each name before it was killed."""
    with subprocess.Popen([sys.executable, WRITER, directory], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"started")
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().splitlines(keepends=True)
    told = [line.split() for line in lines if line.endswith(b"\n")]
    return {name.decode(): (count.decode(), int(revision)) for name, count, revision in told}


def check(directory: Path, acknowledged: dict[str, tuple[str, int]]) -> None:
    journal = Journal(directory, lambda revision: None, lambda error: None)
    revision, rows = journal.load()
    journal.close()
    found = {key.removeprefix("default/"): msgspec.json.decode(value) for table, key, _, value in rows if table == "configmaps"}
    for table, key, at, value in rows:
        assert msgspec.json.decode(value)["metadata"]["resourceVersion"] == str(at), (table, key)
        assert at <= revision
    for name, (count, at) in acknowledged.items():
        assert revision >= at
        if count == "gone":  # a later create may have been durable without being acknowledged
            continue
        if name in found:  # what is there is what was acknowledged, or a write after it
            assert int(found[name]["metadata"]["resourceVersion"]) >= at
            assert int(found[name]["data"]["n"]) >= int(count)
        else:  # only the delete that follows the sixth write may have come after
            assert int(count) % 6 == 0


def rounds(directory: Path, count: int) -> int:
    luck, writes = random.Random(count), 0
    for _ in range(count):
        acknowledged = run_and_kill(directory, luck.uniform(0.0, 0.25))
        check(directory, acknowledged)
        writes += len(acknowledged)
    return writes


def test_no_acknowledged_write_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    assert rounds(tmp_path / "data", 20) > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_acknowledged_write_is_lost_in_two_hundred_kills(tmp_path: Path) -> None:
    assert rounds(tmp_path / "data", 200) > 0


async def test_a_restart_finds_everything_and_goes_on(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "data")
    await server.start()
    port = Embedded(server)
    made = await port.write(Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": "a"}}))
    await port.write(Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": "b"}}))
    await port.write(Write("delete", CONFIG_MAPS, "default", "b"))
    token, ca = server.identity.admin_token, server.identity.ca
    await server.stop()

    again = ApiServer(tmp_path / "data")
    await again.start()
    port = Embedded(again)
    assert (again.identity.admin_token, again.identity.ca) == (token, ca)
    assert await port.get(CONFIG_MAPS, "default", "a") == made
    listed, version = await port.list(CONFIG_MAPS)
    assert len(listed) == 1
    later = await port.write(Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": "c"}}))
    assert int(later["metadata"]["resourceVersion"]) > int(version) > int(made["metadata"]["resourceVersion"])
    await again.stop()


async def test_a_watch_from_before_the_restart_must_list_again(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "data")
    await server.start()
    port = Embedded(server)
    made = await port.write(Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": "a"}}))
    await port.write(Write("delete", CONFIG_MAPS, "default", "a"))
    await server.stop()
    again = ApiServer(tmp_path / "data")
    await again.start()
    with pytest.raises(Expired):
        async for _ in Embedded(again).watch(CONFIG_MAPS, made["metadata"]["resourceVersion"]):
            pass
    await again.stop()


def test_one_process_per_directory(tmp_path: Path) -> None:
    first = Journal(tmp_path, lambda revision: None, lambda error: None)
    with pytest.raises(JournalError, match="in use by another Dray"):
        Journal(tmp_path, lambda revision: None, lambda error: None)
    first.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "dray.db").write_bytes(b"not a database at all, but long enough to be looked at" * 10)
    journal = Journal(tmp_path, lambda revision: None, lambda error: None)
    with pytest.raises(JournalError, match=r"dray\.db"):
        journal.load()


async def test_a_journal_that_fails_acknowledges_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer(tmp_path / "data")
    await server.start()

    def broken(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("dray.apiserver.journal._write", broken)
    port = Embedded(server)
    with pytest.raises(ClusterError):
        await port.write(Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": "a"}}))
    assert "No space left" in server.core.api.healthy()
    await server.stop()
