"""The checkpoint is the kubelet's own file: what is kept comes back, and a damaged file is not believed."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from dray.nodes.checkpoint import NAME, CheckpointError, Files
from dray.nodes.drivers import ClaimName, PreparedDevice
from dray.nodes.preparing import DriverState, Entry

ENTRY = Entry(
    ClaimName("ns", "claim", "uid"),
    {"p1", "p2"},
    {
        "a.example.com": DriverState((PreparedDevice("pool", "dev", ("r",), ("x/y=z",), "share"), PreparedDevice("pool", "e"))),
        "b.example.com": DriverState((), ("NodePrepareResources",)),
    },
)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    files = Files({"n": tmp_path / "root"})
    assert files.load("n") == []
    files.save("n", [ENTRY])
    assert Files({"n": tmp_path / "root"}).load("n") == [ENTRY]
    files.save("other", [ENTRY])
    assert files.load("other") == []


def test_the_file_is_as_a_kubelet_writes_it(tmp_path: Path) -> None:
    Files({"n": tmp_path}).save("n", [ENTRY])
    kept = json.loads((tmp_path / NAME).read_text())
    data = json.loads(kept["Data"])
    assert kept["Checksum"] == zlib.crc32(kept["Data"].encode())
    assert (data["kind"], data["apiVersion"]) == ("DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1")
    (state,) = data["ClaimInfoStateList"]
    assert state["PodUIDs"] == {"p1": {}, "p2": {}}
    assert state["DriverState"]["a.example.com"]["Devices"][0]["CDIDeviceIDs"] == ["x/y=z"]


@pytest.mark.parametrize("text", ["", "{}", '{"Data": "{}", "Checksum": 1}', '{"Data": "[]", "Checksum": 223132457}', "[]"])
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(CheckpointError, match=r"is damaged .* remove it and start again"):
        Files({"n": tmp_path}).load("n")
