"""CronJobs: a Job at each time, as the policies allow."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.cron import BadSchedule, Schedule
from dray.api.kinds import CRON_JOBS, JOBS
from dray.controllers.cronjobs import CronJobs
from dray.controllers.jobs import Jobs
from tests.simulated import Place
from tests.workloads import template


def begin() -> Place:
    place = Place()
    place.start("cronjobs", (*CronJobs.kinds, *Jobs.kinds), lambda world: [CronJobs(world), Jobs(world)])
    place.start_nodes()
    return place


def cron(**spec: Any) -> dict[str, Any]:
    pod = template("c", **spec.pop("annotations", {}))
    pod["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pod}}, **spec}}


def jobs(place: Place) -> list[str]:
    return sorted(job["metadata"]["name"] for job in place.all(JOBS))


def test_a_job_starts_every_minute_and_is_named_by_its_time() -> None:
    place = begin()
    place.create(CRON_JOBS, cron())
    place.pass_time(185)
    numbers = [int(name.removeprefix("c-")) for name in jobs(place)]
    assert len(numbers) == 3
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    status = place.get(CRON_JOBS, "c")["status"]  # type: ignore[index]
    assert len(status["active"]) == 3
    assert status["lastScheduleTime"] == datetime.fromtimestamp(numbers[-1] * 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotations = place.all(JOBS)[0]["metadata"]["annotations"]
    assert annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"].endswith(":00Z")


@pytest.mark.parametrize(("policy", "left"), [("Forbid", 1), ("Replace", 1), ("Allow", 3)])
def test_the_concurrency_policy_holds(policy: str, left: int) -> None:
    place = begin()
    place.create(CRON_JOBS, cron(concurrencyPolicy=policy))
    place.pass_time(70)
    first = jobs(place)
    place.pass_time(115)
    assert len(jobs(place)) == left
    assert (first[0] in jobs(place)) == (policy != "Replace")


def test_a_suspended_one_starts_nothing() -> None:
    place = begin()
    place.create(CRON_JOBS, cron(suspend=True))
    place.pass_time(200)
    assert jobs(place) == []


def test_only_as_many_finished_jobs_as_asked_for_are_kept() -> None:
    place = begin()
    place.create(CRON_JOBS, cron(annotations={"finishes_after": "1s"}, successfulJobsHistoryLimit=2))
    place.pass_time(500)
    assert len(jobs(place)) == 2
    assert place.get(CRON_JOBS, "c")["status"].get("lastSuccessfulTime")  # type: ignore[index]


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("*/15 * * * *", "", "2026-01-01T00:07:00+00:00", "2026-01-01T00:15:00+00:00"),
        ("0 0 29 2 *", "", "2026-01-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
        ("30 9 * * mon-fri", "", "2026-01-03T00:00:00+00:00", "2026-01-05T09:30:00+00:00"),
        ("0 12 1 * sun", "", "2026-01-02T00:00:00+00:00", "2026-01-04T12:00:00+00:00"),
        ("0 9 * * *", "America/New_York", "2026-07-01T00:00:00+00:00", "2026-07-01T13:00:00+00:00"),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00+00:00",
            "2026-03-30T00:30:00+00:00",
        ),  # 02:30 on the 29th is left out
    ],
)
def test_the_next_time(schedule: str, zone: str, after: str, expected: str) -> None:
    assert Schedule(schedule).after(stamp(after), zone) == stamp(expected)


def test_a_time_that_never_comes_is_none() -> None:
    assert Schedule("0 0 30 2 *").after(0.0) is None


@given(st.integers(0, 59), st.integers(0, 23), st.integers(0, 4_000_000_000))
def test_the_last_time_before_the_next_is_not_later_than_now(minute: int, hour: int, now: int) -> None:
    schedule = Schedule(f"{minute} {hour} * * *")
    following, before = schedule.after(now), schedule.latest(now, -1e12)
    assert following is not None
    assert before is not None
    assert before <= now < following
    assert following - before == 86400


@given(st.text(max_size=30))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    with suppress(BadSchedule):
        Schedule(text).after(0.0)
