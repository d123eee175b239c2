"""An acknowledged write survives whatever happens to the process; nothing is ever half there."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, RESOURCE_QUOTAS, ROLE_BINDINGS, ROLES, Kind
from dray.apiserver import journal
from dray.apiserver.authentication.users import User
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.embedded import Embedded
from dray.apiserver.identity import identity
from dray.apiserver.journal import Journal, JournalError
from dray.apiserver.server import ApiServer
from dray.apiserver.store import Store
from dray.cluster.port import Expired, Refused, Unreachable, Write
from tests.apiserver.test_hostile_clients import Client, bearer

WRITER = Path(__file__).with_name("writing_process.py")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)


def config_map(name: str, text: str = "v") -> Write:
    return Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": name}, "data": {"k": text}})


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
    opened = Journal(directory, lambda revision: None, lambda error: None)
    revision, rows = opened.load()
    opened.close()
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


class TestAFullDisk:
    """SQLite's own limit stands for the disk: its error is the same."""

    @pytest.fixture
    async def full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ApiServer, list[int]]]:
        """A server, and the pages that its database may have."""
        room, write = [1_000_000], journal._write

        def limited(database: sqlite3.Connection, batch: list[Any]) -> None:
            database.execute(f"PRAGMA max_page_count = {room[0]}")
            write(database, batch)

        monkeypatch.setattr(journal, "_write", limited)
        server = ApiServer(tmp_path)
        await server.start()
        yield server, room
        await server.stop()

    async def test_reads_go_on_and_writes_say_why(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        kept = await port.write(config_map("kept"))
        room[0] = 1
        for name in ("a", "b"):
            with pytest.raises(Unreachable, match="disk is full; nothing was changed"):
                await port.write(config_map(name, "x" * 100_000))
        assert await port.get(CONFIG_MAPS, "default", "kept") == kept
        listed, version = await port.list(CONFIG_MAPS)
        assert (len(listed), version) == (1, kept["metadata"]["resourceVersion"])
        assert "full" in server.core.api.healthy()

    async def test_it_goes_on_when_there_is_room(self, full: tuple[ApiServer, list[int]], tmp_path: Path) -> None:
        server, room = full
        port = Embedded(server)
        room[0] = 1
        with pytest.raises(Unreachable):
            await port.write(config_map("a", "x" * 100_000))
        room[0] = 1_000_000
        made = await port.write(config_map("a"))
        assert server.core.api.healthy() == ""
        with closing(sqlite3.connect(tmp_path / "dray.db")) as reader:
            ((raw,),) = reader.execute("SELECT value FROM objects WHERE key = 'default/a'").fetchall()
        assert msgspec.json.decode(raw) == made

    async def test_a_client_gets_an_answer_and_watches_see_nothing(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        _, version = await port.list(CONFIG_MAPS)
        room[0] = 1
        body = msgspec.json.encode({"metadata": {"name": "a"}, "data": {"k": "x" * 100_000}})
        client = await Client.connect(server)
        token = bearer(server.identity.admin_token)
        code, answer = await client.request("POST", "/api/v1/namespaces/default/configmaps", body, Authorization=token)
        assert code == 500
        assert b"disk is full" in answer
        assert (await client.request("GET", "/api/v1/namespaces/default/configmaps", Authorization=token))[0] == 200
        room[0] = 1_000_000
        await port.write(config_map("b"))
        events = port.watch(CONFIG_MAPS, version)
        first = await anext(events)
        assert msgspec.json.decode(first.raw)["metadata"]["name"] == "b"

    async def test_many_writes_at_once_all_fail_and_leave_nothing(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        before = server.core.store.revision
        room[0] = 1
        writes = [port.write(config_map(f"c{n}", "x" * 100_000)) for n in range(50)]
        ended = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(each, Unreachable) for each in ended)
        assert server.core.store.revision == before
        assert (await port.list(CONFIG_MAPS))[0] == []

    async def test_a_kind_whose_definition_was_lost_is_not_served(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        names = {"plural": "widgets", "kind": "Widget"}
        schema = {"openAPIV3Schema": {"type": "object", "description": "x" * 100_000}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        definition = Write(
            "create", CUSTOM_RESOURCE_DEFINITIONS, body={"metadata": {"name": "widgets.example.com"}, "spec": spec}
        )
        widgets = Kind("example.com", "v1", "widgets", "Widget", True)
        room[0] = 1
        with pytest.raises(Unreachable):
            await port.write(definition)
        with pytest.raises(Refused):
            await port.list(widgets)
        room[0] = 1_000_000
        await port.write(definition)
        assert (await port.list(widgets))[0] == []

    async def test_objects_of_a_defined_kind_are_lost_or_kept_as_any(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": "widgets", "kind": "Widget"}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        body = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
        await port.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=body))
        widgets = Kind("example.com", "v1", "widgets", "Widget", True)
        kept = await port.write(Write("create", widgets, "default", body={"metadata": {"name": "kept"}, "size": 1}))
        room[0] = 1
        with pytest.raises(Unreachable):
            await port.write(Write("patch", widgets, "default", "kept", {"text": "x" * 100_000}))
        other = [{**version, "served": False, "schema": {"openAPIV3Schema": {"type": "object", "description": "x" * 100_000}}}]
        with pytest.raises(Unreachable):
            await port.write(
                Write("patch", CUSTOM_RESOURCE_DEFINITIONS, name="widgets.example.com", body={"spec": {"versions": other}})
            )
        assert await port.get(widgets, "default", "kept") == kept
        room[0] = 1_000_000
        changed = await port.write(Write("patch", widgets, "default", "kept", {"size": 2}))
        assert changed["size"] == 2

    async def test_rights_that_were_lost_were_never_given_nor_taken(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        bob, wanted = User("bob"), Attributes("list", "", "pods", namespace="default")
        large = {"annotations": {"text": "x" * 100_000}}
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
        await port.write(Write("create", ROLES, "default", body={"metadata": {"name": "r"}, "rules": rules}))
        binding = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        }

        def may() -> bool:
            return server.core.policy.allowed(bob, wanted)[0]

        room[0] = 1
        with pytest.raises(Unreachable):
            await port.write(Write("create", ROLE_BINDINGS, "default", body={"metadata": {"name": "b", **large}, **binding}))
        assert not may()
        room[0] = 1_000_000
        await port.write(Write("create", ROLE_BINDINGS, "default", body={"metadata": {"name": "b"}, **binding}))
        assert may()
        room[0] = 1
        with pytest.raises(Unreachable):
            await port.write(Write("patch", ROLES, "default", "r", {"rules": [], "metadata": large}))
        with pytest.raises(Unreachable):
            await port.write(Write("patch", ROLE_BINDINGS, "default", "b", {"subjects": [], "metadata": large}))
        assert may()
        room[0] = 1_000_000
        await port.write(Write("delete", ROLE_BINDINGS, "default", "b"))
        assert not may()

    async def test_what_was_lost_is_charged_to_no_quota(self, full: tuple[ApiServer, list[int]]) -> None:
        server, room = full
        port = Embedded(server)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}}
        await port.write(Write("create", RESOURCE_QUOTAS, "default", body=quota))
        room[0] = 1
        with pytest.raises(Unreachable):
            await port.write(config_map("a", "x" * 100_000))
        room[0] = 1_000_000
        await port.write(config_map("b"))
        with pytest.raises(Refused, match="exceeded quota"):
            await port.write(config_map("c"))

    def test_a_start_without_room_is_one_line_and_exit_1(self, tmp_path: Path) -> None:
        def little_room() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

        argv = [Path(sys.executable).with_name("dray"), "up", "--data", tmp_path, "--without", "scheduler,controllers,nodes"]
        done = subprocess.run(argv, preexec_fn=little_room, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert str(tmp_path) in done.stderr.splitlines()[-1]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12), st.integers(0, 12))
def test_what_is_reverted_leaves_no_trace(steps: list[tuple[int, bool]], published: int) -> None:
    """A store with a log of which only a part became durable is the store that was given only that part."""

    def play(count: int, store: Store) -> Store:
        table = store.table("t")
        for number, delete in steps[:count]:
            key = f"k{number}"
            if delete and key in table.entries:
                store.delete(table, key)
            else:
                store.put(table, key, {"metadata": {"name": key}})
        return store

    nowhere = type("Nowhere", (), {"append": lambda *_: None})()
    whole = play(len(steps), Store(nowhere))
    events = list(whole.table("t").history)
    kept = min(published, len(events))
    whole.publish(events[kept - 1].revision if kept else 1)
    whole.revert()
    part = play(len(steps), Store()) if kept == len(events) else play(kept, Store())
    assert [(k, e.raw) for k, e in whole.table("t").scan()] == [(k, e.raw) for k, e in part.table("t").scan()]
    assert (whole.revision, len(whole.table("t").history)) == (part.revision, len(part.table("t").history))


class TestFilesInTheWay:
    def test_files_are_for_their_owner_whatever_the_folder_says(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        for name in ("dray.db", "dray.db-wal"):
            (tmp_path / name).touch(mode=0o644)
        (tmp_path / "dray.db").unlink()
        kept = Journal(tmp_path, lambda revision: None, lambda error: None)
        kept.load()
        kept.start()
        kept.append(2, "t", "k", b"{}")
        with closing(sqlite3.connect(tmp_path / "dray.db")) as reader:  # keeps the -wal and -shm files in being
            reader.execute("SELECT count(*) FROM objects").fetchone()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        kept.close()
        assert set(modes.values()) == {0o600}
        assert {"dray.db", "dray.db-wal", "dray.db-shm"} <= modes.keys()

    def test_an_identity_that_others_could_read_is_for_its_owner_again(self, tmp_path: Path) -> None:
        first = identity(tmp_path)
        (tmp_path / "identity.json").chmod(0o644)
        assert identity(tmp_path) == first
        assert stat.S_IMODE((tmp_path / "identity.json").stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        "content",
        [b"", b"not a database at all" * 100, b"SQLite format 3\0" + b"\0" * 200],
        ids=["empty", "something else", "cut off"],
    )
    def test_a_database_that_is_none_is_named(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "dray.db").write_bytes(content)
        self.refused(tmp_path)

    def test_a_database_that_was_cut_in_the_middle_is_named(self, tmp_path: Path) -> None:
        kept = Journal(tmp_path, lambda revision: None, lambda error: None)
        kept.load()
        kept.start()
        for number in range(200):
            kept.append(number + 2, "t", f"k{number}", b"x" * 1000)
        kept.close()
        whole = (tmp_path / "dray.db").read_bytes()
        (tmp_path / "dray.db").write_bytes(whole[: len(whole) // 2])
        self.refused(tmp_path)

    def test_a_database_of_somebody_else_is_left_as_it_is(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "dray.db")) as other:
            other.execute("CREATE TABLE photos (name TEXT)")
        before = (tmp_path / "dray.db").read_bytes()
        assert "photos" in self.refused(tmp_path)
        with closing(sqlite3.connect(tmp_path / "dray.db")) as other:
            assert [name for (name,) in other.execute("SELECT name FROM sqlite_master")] == ["photos"]
        assert len(before) == (tmp_path / "dray.db").stat().st_size

    def refused(self, directory: Path) -> str:
        opened = Journal(directory, lambda revision: None, lambda error: None)
        try:
            with pytest.raises(JournalError, match=r"dray\.db.*move it away") as refusal:
                opened.load()
        finally:
            opened.close()
        return str(refusal.value)

    @pytest.mark.parametrize("content", [b"", b"{", b'{"ca": 1}', b"\xff\xfe"])
    def test_an_identity_that_is_none_is_named(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "identity.json").write_bytes(content)
        with pytest.raises(JournalError, match=r"identity\.json.*move it away"):
            identity(tmp_path)

    @pytest.mark.parametrize("name", ["dray.db", "identity.json"])
    def test_the_command_says_it_in_one_line(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"rubbish")
        argv = [Path(sys.executable).with_name("dray"), "up", "--data", tmp_path]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert str(tmp_path / name) in done.stderr


def test_an_identity_of_an_earlier_version_is_completed(tmp_path: Path) -> None:
    made = msgspec.structs.asdict(identity(tmp_path))
    old = {field: value for field, value in made.items() if field not in ("client_ca", "client_ca_key", "account_key")}
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(old))
    again = identity(tmp_path)
    assert (again.ca, again.admin_token) == (made["ca"], made["admin_token"])
    assert again.account_key
    assert identity(tmp_path) == again
