"""Health endpoints, metrics, stories, log lines and events: what people and machines see of a running part."""

from __future__ import annotations

import json
import logging
from io import StringIO

import aiohttp
import pytest

from dray.api.kinds import EVENTS, PODS
from dray.api.meta import Object, ObjectMeta
from dray.cluster.port import Change, Conflict, Outcome, Write
from dray.cluster.recorder import Recorder
from dray.runtime.health import Health, report
from dray.runtime.logs import configure
from dray.runtime.metrics import Metrics
from dray.runtime.stories import Line, Stories

POD = Object(metadata=ObjectMeta(name="p", namespace="n", uid="u", resource_version="4"))


def ok() -> str | None:
    return None


def broken() -> str | None:
    return "not listed yet: pods"


def test_a_healthy_endpoint_says_ok_and_on_request_why() -> None:
    assert report("readyz", {"ping": ok}, [], verbose=False) == (200, "ok")
    assert report("readyz", {"ping": ok}, [], verbose=True) == (200, "[+]ping ok\nreadyz check passed\n")


def test_a_failing_check_is_named_and_can_be_excluded() -> None:
    checks = {"ping": ok, "informer-sync": broken}
    code, text = report("readyz", checks, [], verbose=False)
    assert (code, text.splitlines()[1]) == (500, "[-]informer-sync failed: not listed yet: pods")
    assert report("readyz", checks, ["informer-sync"], verbose=True)[0] == 200
    assert 'no matches for "other"' in report("readyz", {"ping": ok}, ["other"], verbose=True)[1]


async def test_the_endpoints_are_served() -> None:
    metrics, stories = Metrics(), Stories()
    stories.tell("n/p", Line(1.5, "write", "create pods/binding n/p", "scheduler"))
    metrics.wrote("scheduler", Outcome(Write("create", PODS, "n", "p")), 0.01)
    health = Health(ready={"sync": broken}, metrics=metrics, stories=stories)
    url = await health.serve("127.0.0.1:0")
    async with aiohttp.ClientSession() as session:
        for path, code in (("/healthz", 200), ("/livez", 200), ("/readyz", 500), ("/readyz/sync", 500), ("/readyz/other", 404)):
            assert (await session.get(url + path)).status == code, path
        text = await (await session.get(f"{url}/metrics")).text()
        assert 'dray_writes_total{decider="scheduler",resource="pods",result="ok",verb="create"} 1.0' in text
        told = await (await session.get(f"{url}/story?key=n/p")).json()
        assert told["story"] == [{"at": 1.5, "what": "write", "object": "create pods/binding n/p", "by": "scheduler"}]
        assert (await session.get(f"{url}/story?key=n/other")).status == 404
    await health.close()


def test_stories_keep_the_newest_keys_and_lines() -> None:
    stories = Stories(keys=2, lines=3)
    for number in range(5):
        stories.tell("n/a", Line(float(number), "write", "x"))
    assert [line.at for line in stories.story("n/a")] == [2.0, 3.0, 4.0]
    stories.seen(Change(PODS, None, POD), 9.0)
    stories.tell("n/c", Line(10.0, "write", "x"))
    assert [bool(stories.story(key)) for key in ("n/a", "n/p", "n/c")] == [False, True, True]


def test_a_failed_write_is_told_with_its_error() -> None:
    stories = Stories()
    stories.ended(Outcome(Write("patch", PODS, "n", "p"), error=Conflict(409, "Conflict", "changed")), "scheduler", 3.0)
    (line,) = stories.story("n/p")
    assert (line.what, line.detail) == ("failed", "Conflict: 409 Conflict: changed")


@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_a_log_line_carries_its_fields(form: str) -> None:
    stream = StringIO()
    configure(form, "INFO", stream)  # type: ignore[arg-type]
    logging.getLogger("dray.test").info("bound %s", "it", extra={"pod": "n/p", "why": 'best "fit"'})
    line = stream.getvalue()
    if form == "json":
        found = json.loads(line)
        assert (found["msg"], found["pod"], found["why"], found["level"]) == ("bound it", "n/p", 'best "fit"', "info")
    else:
        assert line.endswith('level=info from=dray.test msg="bound it" pod=n/p why="best \\"fit\\""\n')


def test_a_repeated_event_is_a_series_and_written_ever_more_rarely() -> None:
    recorder = Recorder("scheduler")
    writes = [
        write
        for second in range(100)
        for write in recorder.warning(PODS, POD, "FailedScheduling", "no room", action="Scheduling", now=1000.0 + second)
    ]
    assert [(write.verb, write.kind) for write in writes[:2]] == [("create", EVENTS), ("patch", EVENTS)]
    assert [write.body["series"]["count"] for write in writes[1:]] == [2, 4, 8, 16, 32, 64]
    assert len({write.name for write in writes}) == 1


def test_an_event_after_a_long_silence_is_a_new_one() -> None:
    recorder = Recorder("scheduler")
    first = recorder.normal(PODS, POD, "Scheduled", "assigned", action="Binding", now=1000.0)
    again = recorder.normal(PODS, POD, "Scheduled", "assigned", action="Binding", now=1400.0)
    assert [write.verb for write in first + again] == ["create", "create"]
    assert first[0].name != again[0].name


def test_a_note_is_cut_to_what_the_api_takes() -> None:
    (write,) = Recorder("scheduler").normal(PODS, POD, "R", "é" * 2000, action="A", now=1.0)
    assert len(write.body["note"].encode()) <= 1024
