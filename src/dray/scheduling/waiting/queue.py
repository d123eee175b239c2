"""Pods that are to be placed: active, backing off, or waiting for something to change.

Always true: a waiting pod is in exactly one group, the group of the pods that were refused for the same demand, and the
group stands under every topic that could change its verdict. An event costs work only for the groups under its topic, and
then for one pod of the group, its leader: only when that one is refused again as before do the rest stay. Whatever else
becomes of it (it is placed, waits for something else now, changes, is gone), the next one has its turn, so that no wake-up ends
with the pod that it happened to reach.

Backing off makes way for pods of the same or of higher priority. Those of lower priority do not overtake: a pod that backs off
while something happens that may help it is looked at before them, because it would take back what they got.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Literal

from dray.api.core import Pod
from dray.books.demand import Demand
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.waiting.pauses import Pause

INITIAL_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 10.0
# The longest time for which nobody is evicted for a pod whose devices fail whenever others made room for it.
LONGEST_PAUSE: Final = 3600.0

# Marks of pods that moved on which are kept beside those that count.
_SPARE: Final = 64

# ``gated``: waiting for its scheduling gates to go, which no event but its own change can bring about.
State = Literal["active", "backoff", "waiting", "gated", "taken"]
_NAMES: Final[tuple[tuple[str, State], ...]] = (
    ("active", "active"),
    ("backoff", "backoff"),
    ("unschedulable", "waiting"),
    ("gated", "gated"),
)


class QueuedPod:
    """A pod on its way to a node."""

    # What most pods never have, and few ask for.
    failures = 0
    # From then on one whose devices failed it may look whether there is something else.
    looks_from = 0.0
    # Whether others were evicted for it since its devices last failed it, how often that was in vain, and from when on it
    # may be done again.
    made_room = False
    in_vain = 0
    evicts_from = 0.0
    refusal: Refusal | None = None
    reported: Refusal | None = None
    # The words in which it was told that.
    said = ""
    # How often people were told of it something else each time, without a pause; when last, and when next if that is due.
    tellings = 0
    told_at = told_next = 0.0

    def __init__(self, pod: Pod, demand: Demand, seen: float) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.key = pod.metadata.key
        self.demand = demand
        self.seen = seen
        self.since = seen
        self.attempts = 0
        self.blocked_until = 0.0
        # Until then it backs off because its devices failed it: it does not take what failed before, and others do not leave
        # for it.
        self.failed_until = 0.0
        self.group: Group | None = None
        self.state: State = "active"
        self.swept = False
        # The node on which room is being made for it; it counts there already, so that others do not take it.
        self.nominated = ""
        self.version = 0

    @property
    def turn(self) -> float:
        """Among pods of one priority those go first for which room was made, also before a restart; then by age."""
        return 0.0 if self.nominated or self.pod.status.nominated_node_name else self.seen


class Group:
    """Waiting pods with one verdict. ``key`` is what made them equal."""

    __slots__ = ("key", "leader", "members", "refusal", "since", "stale", "stamp", "told", "topics")

    def __init__(self, key: Hashable, refusal: Refusal, topics: frozenset[str], since: float) -> None:
        self.key = key
        self.refusal = refusal
        self.topics = topics
        self.since = since
        # Nodes or devices changed since, if not so that they would do.
        self.stale = False
        self.members: dict[str, QueuedPod] = {}
        self.leader: QueuedPod | None = None
        # What nodes said when the group was refused.
        self.told: Hashable = None
        # What other pods looked like when the group was refused, where they had a say.
        self.stamp: Callable[[], bool] | None = None


class Queue:
    """``push``, ``pop``, ``refuse``, ``wake`` and ``forget``; the time is always given."""

    def __init__(self, initial_backoff: float = INITIAL_BACKOFF, max_backoff: float = MAX_BACKOFF) -> None:
        self._initial, self._max = initial_backoff, max_backoff
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[tuple[int, float, int, int, str]] = []
        self._backoff: list[tuple[float, int, int, str]] = []
        # Of those that back off: whose devices failed them, and for whom something happened meanwhile.
        self._failed: dict[str, QueuedPod] = {}
        self._stirred: list[tuple[int, float, int, int, str]] = []
        # When pods may evict others again for which that was in vain.
        self._pauses: list[tuple[float, str]] = []
        self._groups: dict[Hashable, Group] = {}
        self._topics: dict[str, dict[Hashable, Group]] = {}
        self._serial = 0
        self._counts: dict[State, int] = {"active": 0, "backoff": 0, "waiting": 0, "gated": 0, "taken": 0}

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def count(self, state: State) -> int:
        return self._counts[state]

    def sizes(self) -> dict[str, int]:
        """How many pods there are in each queue, by upstream's names."""
        return {name: self._counts[state] for name, state in _NAMES}

    def group(self, key: Hashable) -> Group | None:
        return self._groups.get(key)

    def groups(self) -> list[Group]:
        return list(self._groups.values())

    def under(self, topic: str) -> list[Group]:
        """The groups that an event about this topic concerns."""
        return list(self._topics.get(topic, {}).values())

    def next_due(self) -> float | None:
        """When the first pod that is backing off may be tried again, or one that others were evicted for in vain."""
        due = self._backoff_ends()
        if self._pauses:
            return self._pauses[0][0] if due is None else min(due, self._pauses[0][0])
        return due

    def _backoff_ends(self) -> float | None:
        while self._backoff and not self._current(self._backoff[0][3], self._backoff[0][2], "backoff"):
            heappop(self._backoff)
        return self._backoff[0][0] if self._backoff else None

    # ------------------------------------------------------------------------------------------------------ changing

    def push(self, pending: QueuedPod, now: float) -> None:
        """A pod that is new, or that is to be decided on again at once."""
        self._leave(pending, now)
        if pending.uid not in self._pods:
            self._pods[pending.uid] = pending
            self._counts[pending.state] += 1
        if pending.blocked_until > now:
            self._back_off(pending)
            if pending.failed_until > now:
                self._failed[pending.uid] = pending
        else:
            self._activate(pending)

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to decide on: the highest priority, then the longest known. It is ``taken`` until it comes back."""
        if self._backoff:
            self._release_due(now)
        while self._active and not self._current(self._active[0][4], self._active[0][3], "active"):
            heappop(self._active)
        if not self._active:
            return None
        pending = self._ahead_of(-self._active[0][0], now) if self._stirred else None
        if pending is None:
            pending = self._pods[heappop(self._active)[4]]
        self._enter(pending, "taken")
        pending.attempts += 1
        return pending

    def _ahead_of(self, priority: int, now: float) -> QueuedPod | None:
        """Of the pods that back off and for which something happened, the first of a higher priority that may look now."""
        early: list[tuple[int, float, int, int, str]] = []
        found = None
        while self._stirred and found is None and -self._stirred[0][0] > priority:
            entry = heappop(self._stirred)
            if self._current(entry[4], entry[3], "backoff"):
                pending = self._pods[entry[4]]
                if pending.looks_from <= now:
                    found = pending
                else:
                    early.append(entry)
        for entry in early:
            heappush(self._stirred, entry)
        return found

    def stir(self) -> None:
        """Something happened that may help pods whose devices failed them."""
        for pending in self._failed.values():
            self._stir(pending)
        self._failed.clear()

    def fail(self, pending: QueuedPod, now: float) -> None:
        """Something outside the verdict went wrong (a write): try again after a while, longer each time."""
        pending.failures += 1
        pending.blocked_until = now + min(self._initial * 2 ** min(pending.failures - 1, 16), self._max)
        self.push(pending, now)

    def fail_devices(self, pending: QueuedPod, now: float) -> None:
        """The devices that the pod got failed: it tries again as after any failure, but looks for others meanwhile if pods of
        lower priority would take them."""
        pending.looks_from = now + self._initial
        pending.failed_until = now + min(self._initial * 2 ** min(pending.failures, 16), self._max)
        if pending.made_room:
            # Who left for it left in vain: the next ones have to only after a while, longer each time.
            pending.made_room = False
            times = pending.in_vain + 1
            self.pause(pending, Pause(now + min(self._max * 2 ** min(times - 1, 16), LONGEST_PAUSE), times))
        self.fail(pending, now)

    def pause(self, pending: QueuedPod, pause: Pause) -> None:
        """Nobody is evicted for the pod before that."""
        pending.evicts_from, pending.in_vain = pause
        heappush(self._pauses, (pending.evicts_from, pending.uid))

    def end_pauses(self, now: float) -> None:
        """Pods for which others may be evicted again are tried."""
        while self._pauses and self._pauses[0][0] <= now:
            pending = self._pods.get(heappop(self._pauses)[1])
            if pending is not None and pending.state == "waiting":
                self.push(pending, now)

    def look_later(self, pending: QueuedPod, now: float) -> None:
        """The pod looked before its time and found nothing: it backs off as before."""
        pending.blocked_until = pending.failed_until
        self.push(pending, now)

    def refuse(self, pending: QueuedPod, key: Hashable, refusal: Refusal, topics: frozenset[str], now: float) -> Group:
        """The pod waits, with all others of the same key, for an event under one of the topics."""
        if pending.group is None or pending.group.key != key:
            self._leave(pending, now)
        pending.version += 1
        pending.refusal, pending.swept = refusal, False
        pending.blocked_until = now + min(self._initial * 2 ** min(pending.attempts - 1, 16), self._max)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, refusal, topics, now)
            self._subscribe(group)
        else:
            if group.topics != topics:
                self._unsubscribe(group)
                group.topics = topics
                self._subscribe(group)
            group.refusal = refusal
            group.since = now
            group.stale = False
        group.members[pending.uid] = pending
        pending.group = group
        pending.since = now
        if group.leader is pending:
            group.leader = None
        self._enter(pending, "gated" if "SchedulingGated" in refusal.codes else "waiting")
        return group

    def wake(self, group: Group, now: float) -> QueuedPod | None:
        """Something that the group waits for happened: its first pod is tried again, after its backoff if others want
        to be tried now."""
        if group.leader is not None or not group.members:
            return None
        first = next(iter(group.members.values()))
        group.leader = first
        first.version += 1
        self._serial += 1
        if first.blocked_until > now and self._counts["active"]:
            self._back_off(first)
            self._stir(first)
        else:
            self._activate(first)
        return first

    def set_apart(self, uid: str, now: float) -> None:
        """Something of this pod's own changed: what its group is told need not be so for it any more."""
        pending = self._pods.get(uid)
        if pending is not None and pending.state == "waiting" and pending.group is not None and len(pending.group.members) > 1:
            self.push(pending, now)

    def placed(self, pending: QueuedPod, now: float) -> None:
        """The pod has its node: the next of its group may have luck too."""
        if pending.group is not None:
            following = next((each for each in pending.group.members.values() if each is not pending), None)
            if following is not None:
                following.blocked_until = 0.0
        self.forget(pending.uid, now)

    def forget(self, uid: str, now: float) -> QueuedPod | None:
        pending = self._pods.pop(uid, None)
        if pending is not None:
            self._leave(pending, now)
            self._go_from(pending)
        return pending

    # ------------------------------------------------------------------------------------------------------- inside

    def _activate(self, pending: QueuedPod) -> None:
        self._enter(pending, "active")
        heappush(self._active, (-pending.demand.priority, pending.turn, self._serial, pending.version, pending.uid))

    def _back_off(self, pending: QueuedPod) -> None:
        self._enter(pending, "backoff")
        heappush(self._backoff, (pending.blocked_until, self._serial, pending.version, pending.uid))

    def _stir(self, pending: QueuedPod) -> None:
        if len(self._stirred) > 2 * self._counts["backoff"] + _SPARE:
            self._stirred = [entry for entry in self._stirred if self._current(entry[4], entry[3], "backoff")]
            heapify(self._stirred)
        heappush(self._stirred, (-pending.demand.priority, pending.turn, self._serial, pending.version, pending.uid))

    def _enter(self, pending: QueuedPod, state: State) -> None:
        self._go_from(pending)
        self._counts[state] += 1
        pending.state = state

    def _go_from(self, pending: QueuedPod) -> None:
        self._counts[pending.state] -= 1
        if pending.state == "backoff":
            self._failed.pop(pending.uid, None)
            if not self._counts["backoff"]:
                self._stirred.clear()

    def _leave(self, pending: QueuedPod, now: float) -> None:
        """Out of wherever it is; marks left behind in heaps are recognised by their version."""
        pending.version += 1
        self._serial += 1
        group = pending.group
        if group is None:
            return
        pending.group = None
        group.members.pop(pending.uid, None)
        if not group.members:
            self._drop(group)
        elif group.leader is pending:
            group.leader = None
            self.wake(group, now)

    def _current(self, uid: str, version: int, state: State) -> bool:
        pending = self._pods.get(uid)
        return pending is not None and pending.version == version and pending.state == state

    def _release_due(self, now: float) -> None:
        while (due := self._backoff_ends()) is not None and due <= now:
            self._activate(self._pods[heappop(self._backoff)[3]])

    def _subscribe(self, group: Group) -> None:
        for topic in group.topics:
            self._topics.setdefault(topic, {})[group.key] = group

    def _unsubscribe(self, group: Group) -> None:
        for topic in group.topics:
            groups = self._topics.get(topic, {})
            groups.pop(group.key, None)
            if not groups:
                self._topics.pop(topic, None)

    def _drop(self, group: Group) -> None:
        self._unsubscribe(group)
        self._groups.pop(group.key, None)
