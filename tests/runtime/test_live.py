"""The live shell: what deciders see, in which order writes go out, and what happens when one fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dray.api.kinds import CONFIG_MAPS, NODE_RESOURCE_TOPOLOGIES, PODS, REPLICA_SETS, Kind
from dray.apiserver.embedded import Embedded
from dray.cluster.port import Cluster, Event, Forbidden, Outcome, Unreachable, Write
from dray.cluster.world import World
from dray.controllers.replicasets import ReplicaSets
from dray.runtime.live import DeciderFailed, Live
from dray.runtime.metrics import Metrics
from dray.runtime.steady import Steady
from dray.runtime.stories import Stories
from tests.workloads import replicated


class Scripted:
    """A decider that writes what it is given and remembers what it saw."""

    name = "scripted"
    kinds: tuple[Kind, ...] = (CONFIG_MAPS,)

    def __init__(self, *writes: Write, at: float | None = None) -> None:
        self.writes, self.at = list(writes), at
        self.seen: list[Event] = []
        self.acted: list[float] = []
        self.on_event: Callable[[Event], None] = lambda event: None

    def observe(self, event: Event, now: float) -> None:
        self.seen.append(event)
        self.on_event(event)

    def act(self, now: float) -> list[Write]:
        self.acted.append(now)
        if self.at is not None and now < self.at:
            return []
        self.at = None
        due, self.writes = self.writes, []
        return due

    def wake(self) -> float | None:
        return self.at

    @property
    def outcomes(self) -> list[Outcome]:
        return [event for event in self.seen if isinstance(event, Outcome)]


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def create(name: str) -> Write:
    return Write("create", CONFIG_MAPS, "default", name, config_map(name))


def label(name: str, value: str) -> Write:
    return Write("patch", CONFIG_MAPS, "default", name, {"metadata": {"labels": {"step": value}}})


async def eventually(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():  # noqa: ASYNC110 (what is waited for is state, not an event)
            await asyncio.sleep(0.005)


async def run_until(live: Live, done: Callable[[], bool]) -> None:
    task = asyncio.create_task(live.run())
    await eventually(lambda: done() or task.done())
    live.stop()
    await task


async def test_an_answer_is_in_the_world_before_its_outcome_is_seen(cluster: Embedded) -> None:
    world, decider = World([CONFIG_MAPS]), Scripted(create("one"))
    known: list[bool] = []
    decider.on_event = lambda event: known.append(world.get(CONFIG_MAPS, "default/one") is not None)
    await run_until(Live(cluster, world, [decider]), lambda: bool(decider.outcomes))
    assert all(known)
    assert decider.outcomes[0].ok


async def test_the_writes_of_one_object_are_sent_in_order(cluster: Embedded) -> None:
    decider = Scripted(create("one"), *(label("one", str(n)) for n in range(20)))
    await run_until(Live(cluster, World([CONFIG_MAPS]), [decider]), lambda: len(decider.outcomes) == 21)
    assert all(outcome.ok for outcome in decider.outcomes)
    assert [o.write.body["metadata"]["labels"]["step"] for o in decider.outcomes[1:]] == [str(n) for n in range(20)]


class Slow:
    """A cluster whose writes take a while and that counts how many are under way."""

    def __init__(self, cluster: Cluster, fail: bool = False) -> None:
        self._cluster, self._fail = cluster, fail
        self.under_way = self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def write(self, write: Write) -> dict[str, Any]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        if self._fail:
            raise Unreachable("nobody there")
        return await self._cluster.write(write)


async def test_writes_of_different_objects_overlap_up_to_the_limit(cluster: Embedded) -> None:
    slow, decider = Slow(cluster), Scripted(*(create(f"m-{n}") for n in range(40)))
    await run_until(Live(slow, World([CONFIG_MAPS]), [decider], in_flight=8), lambda: len(decider.outcomes) == 40)
    assert slow.most == 8


async def test_what_is_begun_is_ended_before_more_is_begun(cluster: Embedded) -> None:
    decider = Scripted(*(create(f"m-{n}") for n in range(6)))

    def go_on(event: Event) -> None:
        if isinstance(event, Outcome) and not event.write.goes_on:
            decider.writes.append(msgspec.structs.replace(label(event.write.name, "1"), goes_on=True))

    decider.on_event = go_on
    await run_until(Live(cluster, World([CONFIG_MAPS]), [decider], in_flight=1), lambda: len(decider.outcomes) == 12)
    assert [outcome.write.name for outcome in decider.outcomes] == [f"m-{n}" for n in range(6) for _ in range(2)]


async def test_a_write_is_attempted_once_and_its_failure_is_told(cluster: Embedded) -> None:
    slow, decider = Slow(cluster, fail=True), Scripted(create("one"))
    await run_until(Live(slow, World([CONFIG_MAPS]), [decider]), lambda: bool(decider.outcomes))
    assert [type(outcome.error) for outcome in decider.outcomes] == [Unreachable]


async def test_a_decider_is_woken_at_its_time(cluster: Embedded) -> None:
    due = time.time() + 0.3
    decider = Scripted(create("one"), at=due)
    await run_until(Live(cluster, World([CONFIG_MAPS]), [decider]), lambda: bool(decider.outcomes))
    assert any(due <= at < due + 0.2 for at in decider.acted)


async def test_many_events_are_one_act(cluster: Embedded) -> None:
    for number in range(200):
        await cluster.write(create(f"m-{number}"))
    decider = Scripted()
    await run_until(Live(cluster, World([CONFIG_MAPS]), [decider]), lambda: bool(decider.acted))
    assert len(decider.seen) == 200
    assert len(decider.acted) == 1


async def test_a_decider_that_raises_ends_the_shell_and_is_named(cluster: Embedded) -> None:
    decider = Scripted(create("one"))

    def burst(event: Event) -> None:
        raise KeyError("lost")

    decider.on_event = burst
    with pytest.raises(DeciderFailed, match=r"scripted raised while observing.*lost"):
        async with asyncio.timeout(10):
            await Live(cluster, World([CONFIG_MAPS]), [decider]).run()


async def test_a_standby_watches_and_does_not_act_until_it_leads(cluster: Embedded) -> None:
    leads = [False]
    world, decider = World([CONFIG_MAPS]), Scripted(create("one"))
    live = Live(cluster, world, [decider], leading=lambda: leads[0])
    task = asyncio.create_task(live.run())
    await cluster.write(create("seen"))
    await eventually(lambda: world.get(CONFIG_MAPS, "default/seen") is not None)
    assert decider.acted == []
    leads[0] = True
    live.stir()
    await eventually(lambda: bool(decider.outcomes))
    live.stop()
    await task


async def test_what_was_decided_is_not_sent_after_leadership_is_lost(cluster: Embedded) -> None:
    slow, decider = Slow(cluster), Scripted(*(create(f"m-{n}") for n in range(40)))
    leads = [True]
    decider.on_event = lambda event: leads.__setitem__(0, False)
    live = Live(slow, World([CONFIG_MAPS]), [decider], in_flight=4, leading=lambda: leads[0])
    task = asyncio.create_task(live.run())
    await eventually(lambda: not leads[0] and slow.under_way == 0)
    await asyncio.sleep(0.1)
    assert len((await cluster.list(CONFIG_MAPS))[0]) < 12
    live.stop()
    await task


async def test_what_happened_to_an_object_can_be_told(cluster: Embedded) -> None:
    stories, decider = Stories(), Scripted(create("one"), label("one", "1"))
    await run_until(Live(cluster, World([CONFIG_MAPS]), [decider], stories=stories), lambda: len(decider.outcomes) == 2)
    told = [line.what for line in stories.story("default/one")]
    assert told[:2] == ["write", "write"]
    assert told.count("done") == 2
    assert "appeared" in told


async def test_a_controller_runs_live_as_it_does_on_virtual_time(cluster: Embedded) -> None:
    world = World(ReplicaSets.kinds)
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", **replicated("web", 5)}
    await cluster.write(Write("create", REPLICA_SETS, "default", "web", body))

    def complete() -> bool:
        found = world.get(REPLICA_SETS, "default/web")
        return found is not None and found.status.replicas == 5

    await run_until(Live(cluster, world, [ReplicaSets(world)]), complete)
    assert len(world.all(PODS)) == 5


class WithoutZones:
    """A cluster whose role may list everything but topologies."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def list(self, kind: Kind, **how: Any) -> tuple[list[bytes], str]:
        if kind is NODE_RESOURCE_TOPOLOGIES:
            raise Forbidden(403, "Forbidden", "may not list")
        return await self._cluster.list(kind, **how)


async def test_who_may_not_read_zones_goes_on_without_and_a_metric_says_so(cluster: Embedded) -> None:
    decider, metrics = Scripted(create("one")), Metrics()
    port: Any = WithoutZones(cluster)
    live = Live(port, World([CONFIG_MAPS, NODE_RESOURCE_TOPOLOGIES]), [decider], metrics=metrics)
    await run_until(live, lambda: bool(decider.outcomes))
    assert decider.outcomes[0].ok
    name = NODE_RESOURCE_TOPOLOGIES.resource
    assert f'dray_kinds_forbidden{{kind="{name}"}} 1.0' in metrics.text().decode()


class Clocks:
    """A wall clock that can be put back or forward, beside one that cannot."""

    def __init__(self) -> None:
        self.wall = self.monotonic = 1000.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_time_goes_on_where_the_clock_is_put_back() -> None:
    clocks = Clocks()
    steady = Steady(lambda: clocks.wall, lambda: clocks.monotonic)
    clocks.pass_by(10)
    assert steady() == 1010
    clocks.wall -= 100
    told = [steady()]
    for _ in range(25):
        clocks.pass_by(10)
        told.append(steady())
    assert told == sorted(set(told)), "it never goes back, and never stands still"
    assert told[1] == 1015
    assert told[-1] == clocks.wall, "it has caught up"
    clocks.wall += 3600
    assert steady() == clocks.wall


async def test_what_is_due_happens_although_the_clock_is_put_back(cluster: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """By as much as it would else be late."""
    put_back = 0.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - put_back)
    decider, done = Scripted(create("late"), at=real() + 0.4), asyncio.Event()
    decider.on_event = lambda event: done.set() if isinstance(event, Outcome) else None
    live = Live(cluster, World([CONFIG_MAPS]), [decider])
    running = asyncio.create_task(live.run())
    async with asyncio.timeout(5):
        await live.listed.wait()
        put_back = 3600.0
        await done.wait()
    live.stop()
    await running
