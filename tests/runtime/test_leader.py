"""Leader election: one leads, another takes over, nobody ever leads beside somebody else."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from dray.api.kinds import EVENTS, LEASES
from dray.apiserver.embedded import Embedded
from dray.cluster.port import Cluster, ClusterError, Decider, Forbidden, Unreachable, Write
from dray.cluster.world import World
from dray.runtime.inprocess import InProcess
from dray.runtime.leader import Election, Elector, LeadershipLost, Settings, awake_or_not
from dray.runtime.metrics import Metrics
from dray.runtime.process import Part, run
from dray.runtime.virtual import Clock

SETTINGS = Settings("dray-scheduler")
FAST = Settings("dray-scheduler", lease_duration=1.0, renew_deadline=0.6, retry_period=0.1)


class Candidate:
    """An election on virtual time: looks at the lease and takes or renews it."""

    def __init__(self, core: InProcess, clock: Clock, name: str, skew: float = 0.0) -> None:
        self.election = Election(SETTINGS, name)
        self._core, self._clock, self._skew = core, clock, skew

    def step(self) -> bool:
        now = self._clock.now
        self.election.saw(self._core.get(LEASES, "kube-system/dray-scheduler"), now)
        write = self.election.attempt(now, now + self._skew)
        if write is None:
            return False
        try:
            self.election.won(self._core.write(write), now)
        except ClusterError:
            self.election.doubt()
            return False
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def core(clock: Clock) -> InProcess:
    return InProcess(clock)


def spec(core: InProcess) -> dict[str, Any]:
    lease = core.get(LEASES, "kube-system/dray-scheduler")
    assert lease is not None
    found: dict[str, Any] = lease["spec"]
    return found


def test_the_first_creates_the_lease_and_renews_it(core: InProcess, clock: Clock) -> None:
    first = Candidate(core, clock, "a")
    assert first.step()
    acquired = spec(core)["acquireTime"]
    clock.now += 2
    assert first.step()
    assert (spec(core)["holderIdentity"], spec(core)["leaseTransitions"], spec(core)["acquireTime"]) == ("a", 0, acquired)


def test_takeover_comes_a_lease_duration_after_the_last_seen_change_and_counts_a_transition(
    core: InProcess, clock: Clock
) -> None:
    first, second = Candidate(core, clock, "a"), Candidate(core, clock, "b")
    first.step()
    assert not second.step()
    clock.now += 14.9
    assert not second.step()
    clock.now += 0.2
    assert second.step()
    assert (spec(core)["holderIdentity"], spec(core)["leaseTransitions"]) == ("b", 1)


def test_a_clock_that_is_wrong_by_hours_steals_nothing(core: InProcess, clock: Clock) -> None:
    first, second = Candidate(core, clock, "a", skew=-7200), Candidate(core, clock, "b", skew=7200)
    first.step()
    for _ in range(10):
        clock.now += 2
        assert not second.step()
        assert first.step()


def test_two_that_try_at_once_cannot_both_win(core: InProcess, clock: Clock) -> None:
    first, second = Candidate(core, clock, "a"), Candidate(core, clock, "b")
    for each in (first, second):
        each.election.saw(None, clock.now)
    writes = [each.election.attempt(clock.now, clock.now) for each in (first, second)]
    core.write(writes[0])  # type: ignore[arg-type]
    with pytest.raises(ClusterError):
        core.write(writes[1])  # type: ignore[arg-type]


def test_a_released_lease_is_taken_at_once(core: InProcess, clock: Clock) -> None:
    first, second = Candidate(core, clock, "a"), Candidate(core, clock, "b")
    first.step()
    assert not second.step()
    release = first.election.release(clock.now)
    assert release is not None
    core.write(release)
    assert second.step()
    assert second.election.leading


def test_only_a_leader_that_does_not_renew_is_unhealthy(core: InProcess, clock: Clock) -> None:
    first, second = Candidate(core, clock, "a"), Candidate(core, clock, "b")
    first.step()
    second.step()
    clock.now += 34
    assert not first.election.unhealthy(clock.now)
    clock.now += 2
    assert first.election.unhealthy(clock.now)
    assert not second.election.unhealthy(clock.now)


def test_times_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="leaseDuration"):
        Settings("x", lease_duration=5, renew_deadline=10)


# --------------------------------------------------------------------------------------------------------------- live


async def led(*electors: Elector) -> Elector:
    async with asyncio.timeout(10):
        while True:
            leaders = [each for each in electors if each.leading]
            assert len(leaders) <= 1
            if leaders:
                return leaders[0]
            await asyncio.sleep(0.01)


async def test_of_two_instances_one_leads_and_the_other_takes_over_when_it_stops(cluster: Embedded) -> None:
    electors = [Elector(cluster, FAST, identity=name) for name in ("a", "b")]
    tasks = {each: asyncio.create_task(each.run()) for each in electors}
    leader = await led(*electors)
    other = next(each for each in electors if each is not leader)
    tasks[leader].cancel()
    await asyncio.gather(tasks[leader], return_exceptions=True)
    assert await led(other) is other
    tasks[other].cancel()
    await asyncio.gather(tasks[other], return_exceptions=True)
    raws, _ = await cluster.list(EVENTS, namespace="kube-system")
    assert any(b"became leader" in raw for raw in raws)
    assert any(b"stopped leading" in raw for raw in raws)


async def test_who_waits_says_once_who_leads(cluster: Embedded, caplog: pytest.LogCaptureFixture) -> None:
    first, second = (Elector(cluster, FAST, identity=name) for name in ("a", "b"))
    with caplog.at_level("INFO", "dray.runtime.leader"):
        leading = asyncio.create_task(first.run())
        await led(first)
        waiting = asyncio.create_task(second.run())
        await asyncio.sleep(5 * FAST.retry_period)
    for task in (waiting, leading):
        task.cancel()
    await asyncio.gather(waiting, leading, return_exceptions=True)
    assert [record.holder for record in caplog.records if "another instance is the leader" in record.message] == ["a"]


async def test_who_may_not_have_the_lease_warns_once(cluster: Embedded, caplog: pytest.LogCaptureFixture) -> None:
    class Barred:
        async def get(self, *_: object) -> dict[str, Any]:
            raise Forbidden(403, "Forbidden", "may not get leases")

    waiting = asyncio.create_task(Elector(cast("Cluster", Barred()), FAST).run())
    with caplog.at_level("INFO", "dray.runtime.leader"):
        await asyncio.sleep(5 * FAST.retry_period)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [(record.levelname, record.error) for record in caplog.records] == [("WARNING", "403 Forbidden: may not get leases")]


async def test_a_leader_that_cannot_renew_stops_before_another_can_start(cluster: Embedded) -> None:
    class Cut:
        broken = False

        def __getattr__(self, name: str) -> Any:
            return getattr(cluster, name)

        async def write(self, write: Write) -> dict[str, Any]:
            if self.broken:
                raise Unreachable("cut off")
            return await cluster.write(write)

    cut = Cut()
    first, second = Elector(cut, FAST, identity="a"), Elector(cluster, FAST, identity="b")
    losing = asyncio.create_task(first.run())
    assert await led(first) is first
    waiting = asyncio.create_task(second.run())
    cut.broken = True
    with pytest.raises(LeadershipLost, match=r"it was not renewed for [\d.]+ seconds \(cut off\); another instance may lead now"):
        async with asyncio.timeout(5):
            await losing
    assert await led(first, second) is second
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_leader_whose_machine_slept_does_not_lead_until_it_has_looked(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may have taken over meanwhile; what it knew of the cluster is as old as its sleep was long."""
    slept, clocks = 0.0, time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clocks(clock) + (slept if clock == time.CLOCK_BOOTTIME else 0.0))
    elector = Elector(cluster, SETTINGS)
    running = asyncio.create_task(elector.run())
    assert await led(elector) is elector
    slept = 60.0
    assert not elector.leading
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_where_linux_clock_is_missing_the_clock_that_goes_on_in_sleep_on_macos_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 700.0 if clock == time.CLOCK_MONOTONIC else 0.0)
    assert awake_or_not() == 700.0
    monkeypatch.delattr(time, "CLOCK_MONOTONIC")
    monkeypatch.setattr(time, "monotonic", lambda: 30.0)
    assert awake_or_not() == 30.0


async def test_who_leads_is_a_metric_by_upstreams_name(cluster: Embedded) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    seen: list[Metrics] = []

    def build(world: World, metrics: Metrics) -> list[Decider]:
        seen.append(metrics)
        return []

    part = Part((LEASES,), build, election=FAST)
    running = asyncio.create_task(run(cluster, part, stop, ready))
    async with asyncio.timeout(10):
        while True:
            if seen and b'leader_election_master_status{name="dray-scheduler"} 1.0' in seen[0].text():
                break
            await asyncio.sleep(0.01)
    stop.set()
    await running
    assert b'leader_election_master_status{name="dray-scheduler"} 0.0' in seen[0].text()
