"""A run that was written down shows at each of its times what the API server had then."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.api.gates import Gates
from dray.api.kinds import PODS
from dray.cli import root
from dray.explain.snapshot import KINDS
from dray.simulate.recording import Recorder, RecordingError, read
from dray.simulate.run import Simulation
from dray.simulate.scenario import read as scenario_of
from dray.web.recorded import Recorded
from tests.web.conftest import serving

SCENARIO = Path(__file__).parent / "scenario.yaml"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.gz"
    answer = CliRunner().invoke(root, ["simulate", str(SCENARIO), "--record", str(path), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    return path


def test_every_moment_is_what_the_server_had(tmp_path: Path) -> None:
    path, kept = tmp_path / "run.gz", {}
    with Recorder(path) as recorder:
        simulation = Simulation(scenario_of([SCENARIO]), recorder=recorder)
        for at in (0.5, 11.0, 95.0, 130.0, 202.0, 204.0, 600.0):
            simulation.run(at)
            kept[at] = simulation.world()
    recorded = Recorded(path)
    for at, world in reversed(kept.items()):
        moment = recorded.moment(at)
        assert moment.at == pytest.approx(1_800_000_000.0 + at)
        for kind in KINDS:
            if kind.plural != "events":
                assert dict(moment.world.all(kind)) == dict(world.all(kind)), (at, kind.resource)
    assert kept[11.0].all(PODS)


def test_a_run_is_shown_with_the_features_that_it_had(recording: Path, tmp_path: Path) -> None:
    path, scenario = tmp_path / "run.gz", scenario_of([SCENARIO])
    scenario.gates = scenario.gates.updated({"DRADeviceTaints": False})
    with Recorder(path) as recorder:
        Simulation(scenario, recorder=recorder).run(1.0)
    assert Recorded(path).gates == scenario.gates
    assert Recorded(recording).gates == Gates.dray()
    path.write_bytes(gzip.compress(b'{"recording":1,"seed":1,"until":1,"start":0,"feature_gates":{"Nope":true}}\n'))
    with pytest.raises(RecordingError, match="unknown feature gate 'Nope'"):
        Recorded(path)


def test_equal_runs_are_equal_files(recording: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.gz"
    CliRunner().invoke(root, ["simulate", str(SCENARIO), "--record", str(again)])
    assert again.read_bytes() == recording.read_bytes()


async def test_the_page_goes_to_any_time_and_says_what_is_true_then(recording: Path) -> None:
    async with serving(Recorded(recording)) as client:
        about = await client.ok("/api/about")
        assert about["mode"] == "run"
        assert about["span"]["length"] == 600
        assert {round(mark) for mark in about["span"]["marks"]} >= {10, 120, 200}
        states: dict[float, Any] = {}
        for at in (205, 5, 95):
            picture = await client.ok(f"/api/map?at={at}")
            cells = [cell for pool in picture["pools"].values() for cell in pool["devices"]]
            states[at] = {picture["states"][cell[1]] for cell in cells}, picture["waiting"]
        assert states[5] == ({"free"}, 0)
        assert "tainted" in states[95][0]
        assert states[205][1] > 0
        told = await client.ok("/api/waiting?at=205")
        assert told["waiting"] == states[205][1]
        assert any("uncordon node gpu8-0" in fix for cause in told["causes"] for fix in cause["fixes"])
        assert (await client.ok("/api/waiting?at=5"))["waiting"] == 0
        story = (await client.ok("/api/pod?name=default/train-0&at=30"))["story"]
        assert [line["what"] for line in story][:2] == ["created", "created"]
        points = (await client.ok("/api/series"))["points"]
        assert max(point[1] for point in points) == 12
        assert points[0][0] == 1_800_000_000.0


def test_a_file_that_is_no_recording_is_said_to_be_none(tmp_path: Path, recording: Path) -> None:
    text, lines = tmp_path / "text.gz", gzip.decompress(recording.read_bytes()).splitlines()
    broken: list[tuple[bytes, str]] = [
        (b"hello", "not a recording of `dray simulate --record`"),
        (gzip.compress(b"hello"), "not a recording"),
        (gzip.compress(b'{"recording": 9, "seed": 0, "until": 1, "start": 1}'), "version 9"),
        (recording.read_bytes()[:-500], "cannot be read"),
        (gzip.compress(b"\n".join([lines[0], b'{"at": 5}'])), "line 2: needs either object or gone"),
        (gzip.compress(b"\n".join([lines[0], lines[-1], lines[1]])), "line 3: at 0 s, after one at"),
    ]
    for body, said in broken:
        text.write_bytes(body)
        with pytest.raises(RecordingError, match=said):
            list(read(text)[1])
        answer = CliRunner().invoke(root, ["ui", "--run", str(text), "--port", "0"])
        assert answer.exit_code == 2
        assert said in answer.output


def test_lines_are_objects_as_kubectl_knows_them(recording: Path) -> None:
    head, steps = read(recording)
    assert (head.seed, head.until) == (7, 600)
    kinds = {(step.object or step.gone or {})["kind"] for step in steps}
    assert {"Pod", "Node", "ResourceClaim", "ResourceSlice", "DeviceTaintRule"} <= kinds


async def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    path, writing = tmp_path / "run.gz", ExitStack()
    simulation = Simulation(scenario_of([SCENARIO]), recorder=writing.enter_context(Recorder(path)))
    simulation.run(130.0)
    with pytest.raises(RecordingError):
        Recorded(path)  # it is not whole, and nobody said to follow it
    followed = Recorded(path, follow=True)
    async with serving(followed) as client:
        span = (await client.ok("/api/about"))["span"]
        assert span["growing"]
        assert 90 < span["length"] <= 130
        assert (await client.ok("/api/map"))["pods"] > 0
        simulation.run(600.0)
        writing.close()
        for _ in range(200):
            span = (await client.ok("/api/about"))["span"]
            if not span["growing"]:
                break
            await asyncio.sleep(0.05)
        assert (span["growing"], span["length"]) == (False, 600)
        ended = followed.moment()
    whole = Recorded(path).moment()
    for kind in KINDS:
        assert dict(ended.world.all(kind)) == dict(whole.world.all(kind))
