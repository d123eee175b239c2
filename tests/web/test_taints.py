"""Taints on the page: what `dray taint --preview` says, and nothing is done that was not looked at and allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES
from dray.apiserver.server import ApiServer
from dray.cli import root
from dray.cli.source import Source
from dray.cli.ui import _scene
from dray.web.live import Live
from tests.web.clusters import rule, small
from tests.web.conftest import serving, still
from tests.web.test_server import Watched

TOKEN = {"Authorization": "Bearer a-token"}
WANTED = {"target": "gpu.dray.dev/gpu8-0/*", "taint": "example.com/upgrade:NoExecute"}


async def test_a_preview_is_that_of_the_command_line(tmp_path: Any) -> None:
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": small()}))
    command = ["taint", WANTED["target"], WANTED["taint"], "--preview", "--snapshot", str(file)]
    async with serving(still(small())) as client:
        status, told = await client.post("/api/taints/preview", WANTED)
    assert status == 200
    said = msgspec.json.decode(CliRunner().invoke(root, [*command, "-o", "json"]).stdout)
    for preview in (said, told["blast"]):
        for owner in preview["owners"]:
            for leaves in owner["pods"]:
                leaves.pop("at")  # when it would leave is counted from now
    assert told["blast"] == said
    lines = CliRunner().invoke(root, command).stdout.splitlines()
    assert lines[:2] == told["told"][:2]
    assert told["blast"]["pods"] == 2


@pytest.mark.parametrize("off", ["", "DRADeviceTaints", "DRADeviceTaintRules"])
async def test_where_taints_are_switched_off_the_page_shows_none(off: str, tmp_path: Any) -> None:
    objects = [*small(), rule("evicting", "NoExecute", pool="gpu8-0")]
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))
    gates = Gates.dray().updated({off: False} if off else {})
    async with serving(still(objects, gates)) as client:
        picture = await client.ok("/api/map")
        marked = [c for pool in picture["pools"].values() for c in pool["devices"] if picture["states"][c[1]] == "tainted"]
        shown = await client.ok("/api/node?name=gpu8-1")
        device = await client.ok("/api/device?name=gpu.dray.dev/gpu8-1/gpu-7")
        rules = {each["rule"]: each for each in await client.ok("/api/taints")}
        _, told = await client.post("/api/taints/preview", WANTED)
    tainted = [row["device"] for row in shown["devices"] if row["taints"]]
    held = not off
    assert bool(marked) == held
    assert bool(tainted) == held
    assert (bool(device["taints"]), bool(device["rules"])) == (held, held)
    assert ("tainted" in [line["what"] for line in device["story"]]) == held
    assert rules["evicting"]["pods"] == (2 if held else 0)
    why = f"the feature gate {off} is off"
    assert rules["evicting"]["progress"] == ([] if held else [f"without effect: {why}"])
    assert told["blast"]["pods"] == (2 if held else 0)
    assert held or told["told"][1] == f"It does nothing: {why}."


async def test_what_makes_no_sense_is_told_as_on_the_command_line() -> None:
    async with serving(still(small())) as client:
        for wanted, said in (
            ({**WANTED, "taint": "nothing"}, "is not a taint"),
            ({**WANTED, "target": "a/b"}, "give driver, pool and device"),
            ({"target": "x"}, "missing required field"),
            ([], "Expected"),
        ):
            status, told = await client.post("/api/taints/preview", wanted)
            assert status == 400
            assert said in told["error"]
        async with client.session.post(
            client.base + "/api/taints/preview", data=b"{}", headers={"Authorization": "Bearer a-token"}
        ) as answer:
            assert answer.status == 415


async def test_a_page_that_only_reads_changes_nothing() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live")) as client:
        assert not (await client.ok("/api/about"))["changes"]
        _, told = await client.post("/api/taints/preview", WANTED)
        status, body = await client.post("/api/apply", {"ticket": told["ticket"]})
        assert status == 403
        assert "--allow-changes" in body["error"]
        async with client.session.delete(
            client.base + "/api/taints?rule=x", headers={"Authorization": "Bearer a-token"}
        ) as answer:
            assert answer.status == 403
        assert (await watched.port.list(DEVICE_TAINT_RULES))[0] == []


async def test_only_what_was_looked_at_is_done_once() -> None:
    async with Watched() as watched, serving(Live(watched.port, "live"), allow_changes=True) as client:
        assert (await client.post("/api/apply", {"ticket": "guessed"}))[0] == 409
        _, told = await client.post("/api/taints/preview", WANTED)
        assert (await client.post("/api/apply", {"ticket": told["ticket"]}))[0] == 200
        assert (await client.post("/api/apply", {"ticket": told["ticket"]}))[0] == 409
        raws = (await watched.port.list(DEVICE_TAINT_RULES))[0]
        spec = msgspec.json.decode(raws[0])["spec"]
        assert spec["deviceSelector"] == {"driver": "gpu.dray.dev", "pool": "gpu8-0"}
        for _ in range(100):
            rules = await client.ok("/api/taints")
            if rules:
                break
            await asyncio.sleep(0.05)
        assert rules[0]["about"] == "gpu.dray.dev/gpu8-0/*"
        async with client.session.delete(client.base + f"/api/taints?rule={rules[0]['rule']}", headers=TOKEN) as answer:
            assert answer.status == 200
        assert (await watched.port.list(DEVICE_TAINT_RULES))[0] == []


async def test_how_features_are_switched_is_asked_of_the_server(tmp_path: Any) -> None:
    server = ApiServer(None, gates=Gates.dray().updated({"DRADeviceTaintRules": False}))
    await server.start(port=0)
    file = tmp_path / "kubeconfig"
    server.write_kubeconfig(file)
    scene = await _scene(Source((), file, ""), None)
    try:
        assert scene.gates is not None
        assert not scene.gates("DRADeviceTaintRules")
        assert scene.gates("DRADeviceTaints")
    finally:
        assert scene.cluster is not None
        await scene.cluster.close()
        await server.stop()
