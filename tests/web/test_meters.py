"""Numbers of /metrics as the page plots them."""

from __future__ import annotations

import pytest
from aiohttp import web

from dray.cluster.numbers import Counter, Family, Gauge, Registry
from dray.web.meters import LINES_MAX, SAMPLES_MAX, Meters, Unreadable, families, of_pages, of_registry
from tests.web.clusters import small
from tests.web.conftest import serving, still


def counted() -> tuple[Registry, Family[Counter], Family[Gauge]]:
    registry = Registry()
    attempts = registry.counter("scheduler_schedule_attempts_total", "…", ("result", "profile"))
    pending = registry.gauge("scheduler_pending_pods", "…", ("queue",))
    registry.counter("something_else_total", "…").labels().inc()
    return registry, attempts, pending


def test_counters_are_told_by_the_minute_and_gauges_as_they_are() -> None:
    registry, attempts, pending = counted()
    meters = Meters()
    for at, more in ((0.0, 0), (5.0, 10), (10.0, 0)):
        attempts.labels("scheduled", "a").inc(more)
        attempts.labels("scheduled", "b").inc(more)  # profiles are told together
        pending.labels("backoff").set(more)
        meters.add(at, families(registry.text()))
    told = {plot.title.partition(",")[0]: {line.label: line.points for line in plot.lines} for plot in meters.plots()}
    assert told == {
        "scheduling attempts per minute": {"scheduled": [(5.0, 240.0), (10.0, 0.0)]},
        "unscheduled pods": {"backoff": [(0.0, 0), (5.0, 10), (10.0, 0)]},
    }


def test_a_counter_that_began_anew_grew_from_nothing() -> None:
    meters = Meters()
    for at, value in ((0.0, 100), (60.0, 4)):
        registry, attempts, _ = counted()
        attempts.labels("error", "a").inc(value)
        meters.add(at, families(registry.text()))
    assert meters.plots()[0].lines[0].points == [(60.0, 4.0)]


def test_what_is_kept_is_bounded_whatever_metrics_say() -> None:
    registry, _, pending = counted()
    for number in range(100):
        pending.labels(f"q{number}").set(1)
    meters = Meters()
    for at in range(SAMPLES_MAX + 10):
        meters.add(float(at), families(registry.text()))
    (plot,) = meters.plots()
    assert len(plot.lines) == LINES_MAX
    assert {len(line.points) for line in plot.lines} == {SAMPLES_MAX}


async def test_pages_of_metrics_are_read_together_and_trouble_names_the_page() -> None:
    registry, attempts, _ = counted()
    attempts.labels("scheduled", "a").inc(3)

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=registry.text()) if request.path == "/metrics" else web.Response(status=500)

    app = web.Application()
    app.router.add_get("/{name}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    families = await of_pages([f"{base}/metrics", f"{base}/metrics"])()
    assert sum(s.value for family in families for s in family.samples if s.name == "scheduler_schedule_attempts_total") == 6
    with pytest.raises(Unreadable, match=f"{base}/broken cannot be read: 500"):
        await of_pages([f"{base}/broken"])()
    await runner.cleanup()


async def test_the_page_tells_them_and_says_when_nobody_said_where_they_are() -> None:
    registry, _, pending = counted()
    pending.labels("active").set(2)
    async with serving(still(small()), metrics=of_registry(registry)) as client:
        told = await client.ok("/api/metrics")
        while not told["plots"]:
            told = await client.ok("/api/metrics")
        assert told["plots"][0]["lines"][0]["label"] == "active"
    async with serving(still(small())) as client:
        assert await client.ok("/api/metrics") == {"read": False, "trouble": "", "plots": []}
