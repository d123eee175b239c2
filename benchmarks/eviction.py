"""How long the controller of device taints takes to work out whom a taint evicts, with many claims and pods to look after.

Processor time of the controller alone: the World is filled directly, nothing is written. Each row compares with the same change
in a cluster of a tenth of the size, measured in the same run: what costs in proportion to its own devices stays the same.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.table import Table, mebibytes, micros, ratio
from dray.api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.cluster.port import Outcome
from dray.cluster.world import World
from dray.controllers.eviction import TaintEviction

DRIVER = "gpu.example.com"
PER_NODE = 8
NOW = 1_800_000_000.0
OLD = "2026-01-01T00:00:00Z"
Plain = dict[str, Any]


class Tracked:
    """A controller that knows so many pods with one device each, eight to a node; a fifth of the devices are another driver's."""

    def __init__(self, pods: int) -> None:
        self.world = World(TaintEviction.kinds)
        self.controller = TaintEviction(self.world)
        self.version = 0
        self.started = self.measure(
            [(RESOURCE_SLICES, _slice(node, pods)) for node in range(pods // PER_NODE)]
            + [(RESOURCE_CLAIMS, _claim(n, pods)) for n in range(pods)]
            + [(PODS, _pod(n)) for n in range(pods)]
        )

    def measure(self, objects: list[tuple[Kind, Plain]]) -> float:
        """Seconds from when the changes are seen until everything is worked out and the first evictions are decided."""
        changes = [change for kind, body in objects for change in self.world.put(kind, self._versioned(body))]
        began = time.process_time()
        for change in changes:
            self.controller.observe(change, NOW)
        self.writes = self.controller.act(NOW)
        return time.process_time() - began

    def evict_all(self) -> float:
        """Seconds of the controller until all who must leave were told to, at the pace; answers come at once."""
        now, spent, left = NOW, 0.0, self.pending
        while left:
            outcomes = [Outcome(write, object={}) for write in self.writes]
            deleted = [write for write in self.writes if write.verb == "delete"]
            left -= len(deleted)
            changes = [
                change for write in deleted for change in self.world.put(PODS, self._versioned(_leaving(write.key, write.uid)))
            ]
            began = time.process_time()
            for event in (*changes, *outcomes):
                self.controller.observe(event, now)
            self.writes = self.controller.act(now)
            if not self.writes:
                now = max(now, self.controller.wake() or now)
            spent += time.process_time() - began
        return spent

    def _versioned(self, body: Plain) -> Plain:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        return body

    @property
    def pending(self) -> int:
        return len(self.controller._pending)


def _driver(number: int, of: int) -> str:
    return DRIVER if number < of // 5 else "other.example.com"


def _slice(node: int, of: int, *taints: Plain) -> Plain:
    devices: list[Plain] = [{"name": f"gpu-{n}"} for n in range(PER_NODE)]
    devices[0]["taints"] = list(taints)
    pool = {"name": f"n{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _driver(node * PER_NODE, of), "nodeName": f"n{node}", "pool": pool, "devices": devices}
    return {"metadata": {"name": f"s{node}", "uid": f"s{node}", "creationTimestamp": OLD}, "spec": spec}


def _claim(number: int, of: int) -> Plain:
    node, device = divmod(number, PER_NODE)
    result = {"request": "gpu", "driver": _driver(node * PER_NODE, of), "pool": f"n{node}", "device": f"gpu-{device}"}
    users = [{"resource": "pods", "name": f"p{number}", "uid": f"p{number}"}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    return {"metadata": {"name": f"c{number}", "namespace": f"ns{number % 50}", "uid": f"c{number}"}, "status": status}


def _pod(number: int) -> Plain:
    spec = {"nodeName": f"n{number // PER_NODE}", "resourceClaims": [{"name": "gpu", "resourceClaimName": f"c{number}"}]}
    metadata = {"name": f"p{number}", "namespace": f"ns{number % 50}", "uid": f"p{number}"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def _leaving(key: str, uid: str) -> Plain:
    found = _pod(int(uid[1:]))
    assert key == f"{found['metadata']['namespace']}/{found['metadata']['name']}"
    found["metadata"]["deletionTimestamp"] = OLD
    return found


def _rule(effect: str) -> Plain:
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "a", "effect": effect, "timeAdded": OLD}}
    return {"metadata": {"name": "rule", "uid": "rule", "generation": 1}, "spec": spec}


def rows(pods: int) -> Iterator[tuple[str, int, float]]:
    """What happens, how many pods must leave then, and seconds."""
    tracked = Tracked(pods)
    yield "start: everything is listed", 0, tracked.started
    taint = {"key": "a", "effect": "NoExecute", "timeAdded": OLD}
    seconds = tracked.measure([(RESOURCE_SLICES, _slice(0, pods, taint))])
    yield "a slice taints one device", tracked.pending, seconds
    yield "the slice takes it back", 0, tracked.measure([(RESOURCE_SLICES, _slice(0, pods))])
    seconds = tracked.measure([(DEVICE_TAINT_RULES, _rule("NoExecute"))])
    yield "a rule for a fifth of the devices", tracked.pending, seconds
    leaving = tracked.pending
    yield "the rule gets the effect None", leaving, tracked.measure([(DEVICE_TAINT_RULES, _rule("None"))])
    tracked = Tracked(pods)
    tracked.measure([(DEVICE_TAINT_RULES, _rule("NoExecute"))])
    yield "they leave, at the pace", leaving, tracked.evict_all()


def evaluation(quick: bool) -> Table:
    pods = 1_000 if quick else 50_000
    columns = ("what happens", "pods that must leave", "takes", "per pod", f"against {pods // 10} pods")
    table = Table(f"Device taint eviction, {pods} claims and pods", columns)
    before = {what: seconds for what, _, seconds in rows(pods // 10)}
    for what, leaving, seconds in rows(pods):
        each = micros(seconds / leaving * 1e6) if leaving > 1 else "-"
        table.add(what, str(leaving), micros(seconds * 1e6), each, ratio(seconds, before[what]))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    table.notes.append(f"At most {mebibytes(memory)} in use by the whole process, both clusters included.")
    return table


TABLES = {"eviction": evaluation}
