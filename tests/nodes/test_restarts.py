"""Containers that end are started again as their pod's restart policy says, later each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.nodes.restarts import CALM_SECONDS, FIRST_SECONDS, LONGEST_SECONDS, Restarts, restarts
from dray.runtime.faults import Crash, Faults
from tests.nodes.laboratory import Laboratory


def step_by_step(runs: float, times: int | None, now: float) -> tuple[int, bool]:
    """How often it was restarted and whether it runs, by walking through every start and end since the beginning."""
    at, count, wait = 0.0, 0, FIRST_SECONDS
    while times is None or count < times:
        if now < at + runs:
            return count, True
        at += runs
        wait = FIRST_SECONDS if runs >= CALM_SECONDS else wait
        if now < at + wait:
            return count, False
        at, count, wait = at + wait, count + 1, min(wait * 2, LONGEST_SECONDS)
    return count, True


@given(st.integers(1, 800).map(float), st.one_of(st.none(), st.integers(0, 40)), st.integers(0, 40_000).map(lambda n: n + 0.5))
def test_where_a_container_is_follows_from_the_time_alone(runs: float, times: int | None, now: float) -> None:
    found = restarts(0.0, runs, 1, times, now)
    assert (found.count, found.since is not None) == step_by_step(runs, times, now)
    assert found.next is None or found.next > now


def test_years_of_restarts_cost_no_more_than_minutes() -> None:
    found = restarts(0.0, 1.0, 1, None, 1e9)
    assert isinstance(found, Restarts)
    assert found.count == pytest.approx(1e9 / 301, rel=0.01)


def container(lab: Laboratory, pod: str = "p") -> tuple[int, str]:
    (status,) = lab.shown(pod)["containerStatuses"]
    (state,) = status["state"]
    return status["restartCount"], status["state"]["waiting"]["reason"] if state == "waiting" else state


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_container_that_crashes_is_started_again_later_each_time(policy: str) -> None:
    lab = Laboratory(faults=Faults(crashes=(Crash(20.0, "nodes"),)))
    lab.pod("p", annotations={"dray.dev/crashes-after": "5s", "dray.dev/crashes": "2"}, restartPolicy=policy)
    lab.run(4)
    assert container(lab) == (0, "running")
    lab.run(12)
    assert container(lab) == (0, "CrashLoopBackOff")
    assert {c["type"]: c["status"] for c in lab.shown("p")["conditions"]}["Ready"] == "False"
    assert any(text.startswith("BackOff: ") for text in lab.events())
    lab.run(18)
    assert container(lab) == (1, "running")
    (status,) = lab.shown("p")["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 1
    lab.run(36)
    assert container(lab) == (1, "CrashLoopBackOff")
    lab.run(100)
    assert container(lab) == (2, "running")
    assert {c["type"]: c["status"] for c in lab.shown("p")["conditions"]}["Ready"] == "True"


def test_a_pod_that_is_never_restarted_fails_with_its_container() -> None:
    lab = Laboratory()
    lab.pod("p", annotations={"dray.dev/crashes-after": "5s", "dray.dev/exit-code": "139"}, restartPolicy="Never")
    lab.run(20)
    assert lab.phase("p") == "Failed"
    assert lab.shown("p")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 139


def test_a_container_keeps_its_devices_through_its_restarts() -> None:
    lab = Laboratory()
    lab.claim("mine", "gpu-3")
    lab.pod("p", "mine", annotations={"dray.dev/crashes-after": "5s", "dray.dev/crashes": "1"})
    lab.run(30)
    assert container(lab) == (1, "running")
    (status,) = lab.shown("p")["containerStatuses"]
    assert status["allocatedResourcesStatus"][0]["name"] == "claim:mine"
