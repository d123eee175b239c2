"""The checkpoint of a node with a root directory: the kubelet's own file ``dra_manager_state``, with its checksum.

A file that cannot be believed stops the kubelet, as upstream: what is prepared would otherwise be forgotten.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dray.nodes.drivers import ClaimName, PreparedDevice
from dray.nodes.preparing import DriverState, Entry

NAME: Final = "dra_manager_state"


class CheckpointError(OSError):
    """The checkpoint cannot be read: names the file and what to do."""


class Files:
    """Checkpoints of the nodes that have a root; the others keep none."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = roots

    def load(self, node: str) -> list[Entry]:
        path = self._path(node)
        if path is None or not path.exists():
            return []
        try:
            kept = json.loads(path.read_text())
            data = str(kept["Data"])
            if zlib.crc32(data.encode()) != kept["Checksum"]:
                raise ValueError("the checksum does not match")
            return [_entry(state) for state in json.loads(data)["ClaimInfoStateList"] or ()]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged ({error}): stop the node's drivers, remove it and start again") from error

    def save(self, node: str, entries: Iterable[Entry]) -> None:
        path = self._path(node)
        if path is None:
            return
        data = json.dumps(
            {
                "kind": "DRACheckpoint",
                "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
                "ClaimInfoStateList": [_state(entry) for entry in entries],
            },
            separators=(",", ":"),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}))
        os.replace(fresh, path)

    def _path(self, node: str) -> Path | None:
        root = self._roots.get(node)
        return root / NAME if root is not None else None


def _state(entry: Entry) -> dict[str, Any]:
    return {
        "ClaimUID": entry.claim.uid,
        "ClaimName": entry.claim.name,
        "Namespace": entry.claim.namespace,
        "PodUIDs": {uid: {} for uid in sorted(entry.pods)},
        "DriverState": {driver: _driver(state) for driver, state in entry.drivers.items()},
    }


def _driver(state: DriverState) -> dict[str, Any]:
    devices = [
        {
            "PoolName": device.pool,
            "DeviceName": device.device,
            "ShareID": device.share,
            "RequestNames": list(device.requests),
            "CDIDeviceIDs": list(device.cdi_ids),
        }
        for device in state.devices
    ]
    return {"Devices": devices, "skipNodeOperations": list(state.skips)}


def _entry(state: dict[str, Any]) -> Entry:
    claim = ClaimName(state["Namespace"], state["ClaimName"], state["ClaimUID"])
    drivers = {
        driver: DriverState(
            tuple(
                PreparedDevice(
                    d["PoolName"], d["DeviceName"], tuple(d["RequestNames"] or ()), tuple(d["CDIDeviceIDs"] or ()), d["ShareID"]
                )
                for d in kept["Devices"] or ()
            ),
            tuple(kept.get("skipNodeOperations") or ()),
        )
        for driver, kept in state["DriverState"].items()
    }
    return Entry(claim, set(state["PodUIDs"] or ()), drivers)
