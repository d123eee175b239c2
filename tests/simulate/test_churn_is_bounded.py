"""Whatever came and went, nothing of it is remembered but what has a bound, and one step takes a bounded amount of work."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from dray.cluster.port import Write
from dray.cluster.world import World
from dray.scheduling.kinds import KINDS
from dray.testing import FAULTS, Lockstep, node, pod
from dray.testing.cluster import scheduler
from tests.simulate.churning import Churn, beyond, grown
from tests.simulate.held import held


def check(churn: Churn, first: int, more: int) -> None:
    churn.pods(first)
    before = churn.at_rest()
    churn.pods(more)
    after = churn.at_rest()
    assert grown(before, after) == {}, f"grew while {more} pods came and went"
    assert beyond(after) == {}


def test_nothing_grows_while_pods_come_and_go() -> None:
    check(Churn(), 200, 400)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_grows_while_five_thousand_pods_come_and_go() -> None:
    check(Churn(), 1_000, 5_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["conflicts", "lost answers", "lost watches"])
def test_nothing_grows_while_writes_fail(kind: str) -> None:
    check(Churn(FAULTS[kind]), 400, 1_000)


def test_what_is_not_let_go_would_be_found() -> None:
    class Forgetful:
        def __init__(self) -> None:
            self.names: list[str] = []

    leaking = Forgetful()
    before = held(leaking)
    leaking.names += [str(number) for number in range(20)]
    assert grown(before, held(leaking)) == {"Forgetful.names": 20}


# ------------------------------------------------------------------------------------------------------- the work of a step


class Counted:
    """A scheduler whose calls of functions are counted in each ``act``: the same on every machine."""

    def __init__(self, world: World) -> None:
        self._scheduler = scheduler(world)
        self.name, self.kinds = self._scheduler.name, self._scheduler.kinds
        self.observe, self.wake = self._scheduler.observe, self._scheduler.wake
        self.most = 0
        self._calls = 0

    def act(self, now: float) -> list[Write]:
        self._calls = 0
        sys.setprofile(self._count)
        try:
            return self._scheduler.act(now)
        finally:
            sys.setprofile(None)
            self.most = max(self.most, self._calls)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self._calls += event == "call"


def most_in_one_act(pods: int, shapes: int) -> tuple[int, int]:
    """When so many pods wait at once for more than there is, and when a node comes that might do for all of them."""
    counted: list[Counted] = []

    def made(world: World) -> Counted:
        counted.append(Counted(world))
        return counted[-1]

    alone = Lockstep(KINDS, made)
    for number in range(5):
        alone.server.plant(node(f"n{number}", cpu="1"))
    for number in range(pods):
        alone.server.plant(pod(f"p{number}", requests={"cpu": f"{2000 + number % shapes}m"}))
    alone.settle(30, most=20_000)
    waiting, counted[0].most = counted[0].most, 0
    alone.server.plant(node("late", cpu="2"))
    alone.settle(30, most=20_000)
    return waiting, counted[0].most


@pytest.mark.parametrize("shapes", [1, 300])
def test_one_step_takes_no_more_work_for_more_waiting_pods(shapes: int) -> None:
    few, many = most_in_one_act(300, shapes), most_in_one_act(900, shapes)
    assert many[0] <= 1.05 * few[0]
    assert many[1] <= 1.05 * few[1]
