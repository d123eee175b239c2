"""One kind mirrored: what counts while it cannot be read, and what is noticed when it can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, PODS, QUEUES, RESOURCE_SLICES, Kind
from dray.cluster.port import ClusterError, Expired, Forbidden, NotFound, Refused, WatchEvent
from dray.cluster.reflector import Backoff, Listed, Reflector


class Answers:
    """A cluster that answers lists as told, and whose watches never say anything, or end at once with an error."""

    def __init__(self, *answers: ClusterError | list[bytes], ends: ClusterError | None = None) -> None:
        self._answers, self._ends = list(answers), ends
        self.lists = 0
        self.watched: list[str] = []
        self.many = asyncio.Event()

    async def list(self, kind: Kind, **_: Any) -> tuple[list[bytes], str]:
        self.lists += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ClusterError):
            raise answer
        return answer, "7"

    async def watch(self, kind: Kind, version: str, **_: Any) -> AsyncIterator[WatchEvent]:
        self.watched.append(version)
        if len(self.watched) == 3:
            self.many.set()
        if self._ends is not None:
            await asyncio.sleep(0)
            raise self._ends
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", b"", "")


async def listed(kind: Kind, *answers: ClusterError | list[bytes], count: int, ends: ClusterError | None = None) -> list[Listed]:
    """The first lists that a sink is given."""
    found: list[Listed] = []
    enough = asyncio.Event()

    def sink(_: Kind, item: Listed | WatchEvent) -> None:
        assert isinstance(item, Listed)
        found.append(item)
        if len(found) == count:
            enough.set()

    cluster: Any = Answers(*answers, ends=ends)
    task = asyncio.create_task(Reflector(cluster, kind, sink, backoff=Backoff(0.001, 0.001), appears=0.001).run())
    async with asyncio.timeout(20):
        await enough.wait()
    task.cancel()
    return found


async def test_a_kind_that_is_not_served_counts_as_empty_until_it_is() -> None:
    missing = NotFound(404, "NotFound", "no such kind")
    assert await listed(QUEUES, missing, missing, [b"{}"], count=2) == [Listed([], "0"), Listed([b"{}"], "7")]


@pytest.mark.parametrize(("kind", "level"), [(QUEUES, "INFO"), (NODE_RESOURCE_TOPOLOGIES, "INFO"), (RESOURCE_SLICES, "WARNING")])
async def test_that_a_kind_is_not_served_is_a_warning_where_clusters_have_it(
    kind: Kind, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await listed(kind, NotFound(404, "NotFound", "no such kind"), count=1)
    assert [record.levelname for record in caplog.records] == [level]


async def test_zones_that_may_not_be_read_count_as_none_with_a_warning_until_they_may(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refused = Forbidden(403, "Forbidden", "may not list")
    found = await listed(NODE_RESOURCE_TOPOLOGIES, refused, refused, refused, [b"{}"], count=2)
    assert found == [Listed([], "0", forbidden=True), Listed([b"{}"], "7")]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_right_that_is_taken_away_is_noticed_too() -> None:
    missing, refused = NotFound(404, "NotFound", "no such kind"), Forbidden(403, "Forbidden", "may not list")
    found = await listed(NODE_RESOURCE_TOPOLOGIES, missing, refused, [b"{}"], count=3)
    assert [each.forbidden for each in found] == [False, True, False]


@pytest.mark.parametrize(("kind", "code"), [(PODS, 403), (NODE_RESOURCE_TOPOLOGIES, 401)])
async def test_what_a_decision_needs_is_waited_for(kind: Kind, code: int) -> None:
    assert await listed(kind, Forbidden(code, "Forbidden", "may not list"), [b"{}"], count=1) == [Listed([b"{}"], "7")]


async def test_what_every_server_has_is_not_gone_because_a_gateway_does_not_find_it() -> None:
    """It would be to take all pods for deleted, and to release their claims."""
    missing = NotFound(404, "Unknown", "default backend - 404")
    assert await listed(PODS, missing, [b"{}"], count=1) == [Listed([b"{}"], "7")]
    found = await listed(RESOURCE_SLICES, [b"{}"], missing, [b"{}", b"{}"], count=2, ends=Expired(410, "Expired", "too old"))
    assert found[:2] == [Listed([b"{}"], "7"), Listed([b"{}", b"{}"], "7")]


@pytest.mark.parametrize("code", [429, 503])
async def test_a_watch_that_is_refused_by_a_busy_server_goes_on_where_it_was(code: int) -> None:
    """Many lists are what such a server can do least."""
    cluster: Any = Answers([b"{}"], ends=Refused(code, "Busy", "later"))
    task = asyncio.create_task(Reflector(cluster, PODS, lambda *_: None, backoff=Backoff(0.001, 0.001)).run())
    async with asyncio.timeout(20):
        await cluster.many.wait()
    task.cancel()
    assert set(cluster.watched) == {"7"}
    assert cluster.lists == 1


async def test_a_server_for_which_every_position_is_too_old_is_given_pauses() -> None:
    """Between two lists at least one pause: no tight loop of lists."""
    cluster: Any = Answers([b"{}"], ends=Expired(410, "Expired", "too old"))
    asked: list[float] = []

    class Counted(Backoff):
        def next(self) -> float:
            asked.append(super().next())
            return asked[-1]

    backoff = Counted(0.001, 0.001)
    task = asyncio.create_task(Reflector(cluster, PODS, lambda *_: None, backoff=backoff).run())
    async with asyncio.timeout(20):
        await cluster.many.wait()
    task.cancel()
    assert len(asked) >= cluster.lists - 1 > 0


async def test_the_same_trouble_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refused, away = Forbidden(403, "Forbidden", "may not list"), ClusterError(500, "InternalError", "is away")
    await listed(PODS, refused, refused, refused, away, [b"{}"], count=1)
    assert [record.message for record in caplog.records] == [
        *["cannot list or watch, trying again"] * 2,
        "this kind can be read now",
    ]
