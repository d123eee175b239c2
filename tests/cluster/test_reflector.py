"""One kind mirrored: what counts while it cannot be read, and what is noticed when it can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, PODS, QUEUES, RESOURCE_SLICES, Kind
from dray.cluster.port import ClusterError, Forbidden, NotFound, WatchEvent
from dray.cluster.reflector import Backoff, Listed, Reflector


class Answers:
    """A cluster that answers lists as told, and whose watches never say anything."""

    def __init__(self, *answers: ClusterError | list[bytes]) -> None:
        self._answers = list(answers)

    async def list(self, kind: Kind, **_: Any) -> tuple[list[bytes], str]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ClusterError):
            raise answer
        return answer, "7"

    async def watch(self, kind: Kind, version: str, **_: Any) -> AsyncIterator[WatchEvent]:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", b"", "")


async def listed(kind: Kind, *answers: ClusterError | list[bytes], count: int) -> list[Listed]:
    """The first lists that a sink is given."""
    found: list[Listed] = []
    enough = asyncio.Event()

    def sink(_: Kind, item: Listed | WatchEvent) -> None:
        assert isinstance(item, Listed)
        found.append(item)
        if len(found) == count:
            enough.set()

    cluster: Any = Answers(*answers)
    task = asyncio.create_task(Reflector(cluster, kind, sink, backoff=Backoff(0.001, 0.001), appears=0.001).run())
    async with asyncio.timeout(20):
        await enough.wait()
    task.cancel()
    return found


async def test_a_kind_that_is_not_served_counts_as_empty_until_it_is() -> None:
    missing = NotFound(404, "NotFound", "no such kind")
    assert await listed(PODS, missing, missing, [b"{}"], count=2) == [Listed([], "0"), Listed([b"{}"], "7")]


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


async def test_the_same_trouble_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refused, away = Forbidden(403, "Forbidden", "may not list"), ClusterError(500, "InternalError", "is away")
    await listed(PODS, refused, refused, refused, away, [b"{}"], count=1)
    assert [record.message for record in caplog.records] == [
        *["cannot list or watch, trying again"] * 2,
        "this kind can be read now",
    ]
