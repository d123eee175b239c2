"""Whose turn it is, and who may have to go, follows from what jobs and queues are: whenever it is asked, what is kept is what
would be found from nothing.

Nobody who changes something has to say so. That this would be seen is shown by leaving out what they note.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from benchmarks.queues import with_devices
from dray.books.changes import ChangeLog
from dray.books.nodes import Placed
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.workloads.asking import Asking
from dray.scheduling.workloads.freeing import Freeing
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.line import Line
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.ranked import Those
from dray.scheduling.workloads.session import Session
from dray.scheduling.workloads.turns import Turns
from dray.scheduling.workloads.victims import Victims
from dray.simulate.settle import ROUNDS, Settling, WorldLine
from tests.queues.random_clusters import cluster

Json = dict[str, Any]


class Stale(AssertionError):
    """Something is kept that is not so any more."""


class Watch:
    """Compares what is kept with what is found from nothing: lines whenever somebody is taken from them, who waits and who runs
    after everything that a session does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self._then(monkeypatch, Line, "_catch_up", self._line)
        for name in ("plan", "withdraw", "_started", "_ready", "_evict_stale"):
            self._then(monkeypatch, Session, name, self._session)
        self._beside(monkeypatch, Freeing, "nodes", self._nodes)
        self._beside(monkeypatch, Those, "keys", self._those)

    def _beside(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, anew: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def watched(self_: Any, *given: Any) -> Any:
            answer = original(self_, *given)
            self._same(name, answer, anew(self_, original, *given))
            return answer

        monkeypatch.setattr(owner, name, watched)

    def _nodes(self, freeing: Freeing, nodes: Callable[..., Any], *given: Any) -> Any:
        known, freeing._known = freeing._known, {}
        found = nodes(freeing, *given)
        freeing._known = known
        return found

    def _those(self, those: Those, keys: Callable[..., Any]) -> Any:
        return keys(Those(those._log, those._everybody, those._holds))

    def _then(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, look: Callable[[Any], None]) -> None:
        original = getattr(owner, name)

        def watched(self: Any, *given: Any, **named: Any) -> Any:
            answer = original(self, *given, **named)
            look(self)
            return answer

        monkeypatch.setattr(owner, name, watched)

    def _line(self, line: Line) -> None:
        anew = Line(line._tree, line._standings, line._total, line._key, line._asks, last_first=line._last_first)
        anew._jobs, anew._taken = line._jobs, line._taken
        for name, known in line._places.items():
            self._same(f"queue {name}", known, anew._place(name))

    def _session(self, session: Session) -> None:
        kept = self._known(session.turns, session.taking._victims, session)
        known = session.members, session.asking
        session.members = Members(session._parts, session._preemption)
        session.asking = Asking(session._jobs, session._use, session.members)
        victims = Victims(session, session.taking, session._jobs, session._parts.nodes, session._use)
        self._same(
            "who waits, for what, and who runs", kept, self._known(Turns(session, session._jobs, session._use), victims, session)
        )
        session.members, session.asking = known

    def _known(self, turns: Turns, victims: Victims, session: Session) -> list[object]:
        lists = [ranked.of(session.tree.queues) for ranked in (turns._waiting, victims._running)]
        return [*([list(each.items()) for each in lists]), {job.key: turns._ask(job) for job in session.waiting}]

    def _same(self, what: str, kept: Any, found: Any) -> None:
        self.asked += 1
        if kept != found:
            raise Stale(f"{what}: {kept}, and from nothing {found}")


def settle(world: Json) -> None:
    settling = Settling(msgspec.convert(world, WorldLine))
    for _ in range(ROUNDS):
        if not settling.round():
            return
        settling.between()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.parametrize("devices", [False, True], ids=["GPUs of nodes", "claims"])
def test_what_is_kept_is_what_would_be_found_from_nothing(watch: Watch, devices: bool) -> None:
    for seed in range(24):
        settle(with_devices(cluster(seed)) if devices else cluster(seed))
    assert watch.asked > 300


class Hands:
    """Does to a session's jobs and queues, in any order, whatever may happen to them."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        settling = Settling(msgspec.convert(cluster(seed), WorldLine))
        self.scheduler, self.world = settling.scheduler, cluster(seed)
        self.workloads, self.parts = self.scheduler.workloads, self.scheduler.parts
        self.workloads.know()
        self.session = self.workloads.survey(settling.now)
        self.line = self.session._line(self.session.waiting)

    def anything(self) -> None:
        self.chance.choice(
            (self.done, self.not_done, self.starts, self.waits, self.evicted, self.stays, self.leaves, self.tried)
        )()
        self.line._catch_up()
        self.session._ready()
        # Who is next, and who may go, is asked, so that there is something to be kept.
        self.line._best("")
        taking, waiting = self.session.taking, next((job for job in self.session.waiting if job.waiting), None)
        if waiting is not None:
            taking._to_free(taking._movable.keys(), list(waiting.waiting.values()))

    def done(self) -> None:
        self.session.done.add(self._job().key)

    def not_done(self) -> None:
        self.session.done.discard(self._job().key)

    def starts(self) -> None:
        job = self._job()
        for uid in list(job.waiting)[:1]:
            self.workloads.jobs.waits_no_more(job, uid)

    def waits(self) -> None:
        job = self._job()
        for pending in self.parts.queue:
            if pending.uid in job.pods:
                self.workloads.jobs.wait(job, pending)

    def evicted(self) -> None:
        """For whoever; its queue has what it had, as where it only moves."""
        self._preemption().evict(self._placed().pod.uid, "somebody")

    def stays(self) -> None:
        self._preemption().end("somebody")

    def leaves(self) -> None:
        self.parts.nodes.displace(self._placed().pod.uid)

    def tried(self) -> None:
        with self.parts.books.trial():
            self.leaves()
            self.line._catch_up()
            self.line._best("")

    def _preemption(self) -> Preemption:
        return self.session._preemption

    def _job(self) -> Job:
        return self.chance.choice(self.session.waiting)

    def _placed(self) -> Placed:
        return self.chance.choice(list(self.parts.nodes.all_placed()))


def test_whatever_is_done_to_jobs_and_queues_in_any_order(watch: Watch) -> None:
    for seed in range(40):
        hands = Hands(seed)
        for _ in range(min(30, len(list(hands.parts.nodes.all_placed())))):
            hands.anything()
    assert watch.asked > 300


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_the_same_holds_in_many_more_clusters(watch: Watch, first: int) -> None:
    for seed in range(first, first + 100):
        settle(cluster(seed))


# Of whom it is noted that they changed.
LOGS: dict[str, Callable[[Session], ChangeLog]] = {
    "jobs": lambda session: session._jobs.log,
    "queues": lambda session: session._use.log,
}


@pytest.mark.parametrize("what", LOGS)
def test_what_is_not_noted_is_seen(monkeypatch: pytest.MonkeyPatch, watch: Watch, what: str) -> None:
    original = Session.run

    def run(self: Session) -> None:
        monkeypatch.setattr(LOGS[what](self), "note", lambda name: None)
        original(self)

    monkeypatch.setattr(Session, "run", run)
    with pytest.raises(Stale):
        list(map(settle, map(cluster, range(24))))
