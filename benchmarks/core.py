"""What one request costs inside of the API server: processor time without network and disk, for the same pods as ``api``.

Each number is the best mean of a few requests in a row, so that it says the same on a busy machine.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator, Sequence

from benchmarks.apiserver import WATCHERS, create, update
from benchmarks.table import Table
from dray.apiserver.api import Request
from dray.apiserver.authentication.users import ADMIN
from dray.apiserver.server import Core
from dray.apiserver.watching import Stream

PODS = "/api/v1/namespaces/default/pods"
IN_A_ROW = 25


def core(quick: bool) -> Table:
    count, times = (100, 1) if quick else (500, 10)
    best: dict[str, float] = {}
    for _ in range(times):
        for what, seconds in _measured(count):
            best[what] = min(seconds, best.get(what, seconds))
    table = Table(f"One request in the API server, with {count} pods", ("what", "processor time"))
    for what, seconds in best.items():
        table.add(what, f"{seconds * 1e6:.1f} us")
    return table


def _measured(count: int) -> Iterator[tuple[str, float]]:
    server = Core()
    server.furnish()
    server.furnish_access()
    updates = [_request(*update(number)) for number in range(count)]
    gc.collect()
    gc.disable()
    try:
        yield "create a pod", _best(server, [_request(*create(number)) for number in range(count)])
        yield "patch its status", _best(server, updates)
        yield "replace its status", _best(server, [_replaced(server, number) for number in range(count)])
        yield "get it", _best(server, [_request("GET", _path(number)) for number in range(count)])
        yield f"list all {count}", _best(server, [_request("GET", PODS)] * IN_A_ROW, in_a_row=5)
        selected = Request("GET", PODS, query={"labelSelector": "app=bench"}, user=ADMIN)
        yield f"list all {count} by a label", _best(server, [selected] * IN_A_ROW, in_a_row=5)
        yield f"tell {WATCHERS} watchers of a change", _delivery(server, updates)
    finally:
        gc.enable()


def _best(server: Core, requests: Sequence[Request], in_a_row: int = IN_A_ROW) -> float:
    """Seconds for one, in the fastest few."""
    best = float("inf")
    for start in range(0, len(requests), in_a_row):
        row = requests[start : start + in_a_row]
        began = time.process_time()
        for request in row:
            answer = server.api.handle(request)
        best = min(best, (time.process_time() - began) / len(row))
        assert not isinstance(answer, Stream)
        assert answer.code < 300, answer.body
    return best


def _delivery(server: Core, updates: Sequence[Request]) -> float:
    """From the store to bytes for every watcher; the writes themselves are not counted."""
    query = {"watch": "1", "resourceVersion": str(server.store.revision)}
    streams = [server.api.handle(Request("GET", PODS, query=query, user=ADMIN)) for _ in range(WATCHERS)]
    for request in updates:
        server.api.handle(
            _request(request.method, request.path[1:], request.body.replace(b"Running", b"Pending"), request.content_type)
        )
    began = time.process_time()
    told = sum(len(stream.pending()) for stream in streams if isinstance(stream, Stream))
    seconds = time.process_time() - began
    assert told > len(updates) * WATCHERS
    return seconds / len(updates)


def _replaced(server: Core, number: int) -> Request:
    answer = server.api.handle(_request("GET", _path(number)))
    assert not isinstance(answer, Stream)
    pod = json.loads(answer.body)
    pod["status"]["message"] = "replaced"
    return _request("PUT", f"{_path(number)}/status", json.dumps(pod).encode())


def _path(number: int) -> str:
    return f"{PODS}/pod-{number:05d}"


def _request(method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> Request:
    return Request(method, f"/{path.lstrip('/')}", content_type=content_type, user_agent="bench/1", body=body, user=ADMIN)


TABLES = {"core": core}
