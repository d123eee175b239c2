"""How to reach a cluster: kubeconfigs stay good, can be had for reading only, and go into an existing one on request."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dray.api.kinds import CONFIG_MAPS, NODES
from dray.apiserver.server import ApiServer, kept_port
from dray.cli import root
from dray.cluster.kubeconfig import load
from dray.cluster.port import Refused, Write
from dray.cluster.remote import Remote


async def serve_once(data: Path, port: int = 0) -> str:
    server = ApiServer(data)
    await server.start(port=port)
    url = server.url
    await server.stop()
    return url


async def test_a_cluster_keeps_its_port(tmp_path: Path) -> None:
    first = await serve_once(tmp_path)
    assert await serve_once(tmp_path) == first
    assert first.endswith(f":{kept_port(tmp_path)}")


async def test_a_port_that_is_taken_meanwhile_is_left_to_its_owner(tmp_path: Path) -> None:
    other = ApiServer()
    await other.start()
    taken = other.url.rpartition(":")[2]
    (tmp_path / "port").write_text(taken)
    assert await serve_once(tmp_path) != other.url
    with pytest.raises(OSError, match="address already in use"):
        await serve_once(tmp_path, int(taken))
    await other.stop()


@pytest.mark.parametrize("text", ["", "no port", "99999999", "-1"])
async def test_a_port_file_that_is_none_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "port").write_text(text)
    await serve_once(tmp_path)


class TestTheCommand:
    def test_without_a_cluster_says_what_to_do(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(root, ["kubeconfig", "--data", str(tmp_path)])
        assert done.exit_code == 1
        assert "dray up --data" in done.output

    async def test_gives_reading_rights_only(self, tmp_path: Path) -> None:
        server = ApiServer(tmp_path / "data")
        await server.start()
        done = CliRunner().invoke(root, ["kubeconfig", "--data", str(tmp_path / "data"), "--view"])
        (tmp_path / "view").write_text(done.output)
        remote = Remote(load(tmp_path / "view"))
        assert (await remote.list(NODES))[0] == []
        with pytest.raises(Refused, match="cannot create resource"):
            await remote.write(Write("create", CONFIG_MAPS, "default", body={"metadata": {"name": "a"}}))
        await remote.close()
        await server.stop()

    async def test_merges_into_what_is_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        await serve_once(tmp_path / "data")
        mine = {"name": "mine", "cluster": {"server": "https://mine"}, "extra": 1}
        stale = {"name": "dray", "cluster": {"server": "https://stale"}}
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump({"clusters": [mine, stale], "current-context": "mine", "preferences": {"colors": True}}))
        monkeypatch.setenv("KUBECONFIG", f"{path}:other")
        for _ in range(2):
            done = CliRunner().invoke(root, ["kubeconfig", "--data", str(tmp_path / "data"), "--merge"])
            assert done.exit_code == 0, done.output
        found = yaml.safe_load(path.read_text())
        assert [each["name"] for each in found["clusters"]] == ["mine", "dray"]
        assert found["clusters"][0] == mine
        assert (found["current-context"], found["preferences"]) == ("dray", {"colors": True})
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_a_time_of_somebody_else_stays_as_it_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        await serve_once(tmp_path / "data")
        path = tmp_path / "config"
        path.write_text("users: [{name: me, user: {auth-provider: {config: {expiry: 2026-01-02T03:04:05Z}}}}]")
        monkeypatch.setenv("KUBECONFIG", str(path))
        assert CliRunner().invoke(root, ["kubeconfig", "--data", str(tmp_path / "data"), "--merge"]).exit_code == 0
        mine = yaml.safe_load(path.read_text())["users"][0]
        assert mine["user"]["auth-provider"]["config"]["expiry"] == "2026-01-02T03:04:05Z"

    async def test_leaves_a_file_that_it_does_not_understand(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        await serve_once(tmp_path / "data")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        for content in ("[1, 2]", "{", "a: !!int x", "[" * 9000, json.dumps({"clusters": 7})):
            (tmp_path / "config").write_text(content)
            done = CliRunner().invoke(root, ["kubeconfig", "--data", str(tmp_path / "data"), "--merge"])
            assert (done.exit_code, (tmp_path / "config").read_text()) == (1, content)
