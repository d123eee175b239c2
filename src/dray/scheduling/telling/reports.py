"""What people see of a refusal: the pod's PodScheduled condition and an event, both within the API's limits.

Always true: a pod is told again only when its reasons changed, not when they were merely counted again; where they change to and
fro, more and more seldom, but what lasts is told in the end. What its condition shows counts as told only while nothing else is
on its way to it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dray.api import disruption
from dray.api.core import Pod
from dray.api.events import event_body, shortened
from dray.api.kinds import EVENTS, PODS
from dray.api.times import format_time
from dray.api.words import notice
from dray.cluster.port import ClusterError, Conflict, Outcome, Refused, Write
from dray.cluster.recorder import Series
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.waiting import pauses
from dray.scheduling.waiting.queue import Group, Queue, QueuedPod

# Writes for pods that wait with others of their kind and were not tried themselves: they may come a little later.
_FOR_OTHERS: Final = 4
# A claim that is being generated or given back is there in a moment; only when it takes longer than this are people told.
_SOON: Final = frozenset({"ClaimNotCreated", "ClaimInFlight"})
_PATIENCE: Final = 5.0
# Of reasons that change to and fro so many are told at once; then the time between two grows up to the longest, until there was
# nothing new for a while.
_AT_FIRST: Final = 5
_LONGEST: Final = 30.0
_CALM: Final = 60.0
_AT_ONCE: Final = 16
# Each time is written: from when devices last failed a pod it is known which of them rest.
_REPEATED: Final = frozenset({"FailedScheduling", "BindingConditionsPending"})
FOR_PRIORITY: Final = "preempting to accommodate a higher priority pod"


class Reports:
    """What is to be told, a few writes at a time, so that ten thousand of them do not stand before a binding."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: deque[Write] = deque()
        self._under_way: dict[int, Write] = {}
        # Pods to whose status something is on its way, and how many writes.
        self._telling: dict[str, int] = {}
        self._late: list[tuple[float, str]] = []
        # Pods that wait for the same as one that was told something new.
        self._others: dict[str, None] = {}
        self._series = Series(rarely=False)
        # Pods that are refused one after another mostly share the refusal.
        self._worded: tuple[Refusal | None, str] = (None, "")

    def add(self, writes: list[Write]) -> None:
        for write in writes:
            if write.kind is PODS:
                self._telling[write.uid] = self._telling.get(write.uid, 0) + 1
        self._waiting.extend(filter(None, map(self._once, writes)))

    def _once(self, write: Write) -> Write | None:
        """What is said again and again is one event."""
        repeated = write.kind is EVENTS and write.verb == "create" and write.body["reason"] in _REPEATED
        return self._series.of(write) if repeated else write

    def refused(self, pending: QueuedPod, refusal: Refusal, now: float) -> None:
        """What usually passes by itself in a moment is told only when it lasts, and so is what changes to and fro."""
        due = _due(pending, refusal, now)
        if due <= now:
            self.tell(pending, refusal, now)
        elif not now < pending.told_next <= due:
            pending.told_next = due
            heappush(self._late, (due, pending.uid))

    def failed(self, pending: QueuedPod, refusal: Refusal, now: float) -> None:
        """Devices failed the pod. An event tells of each time, so that it can be known what rests; the condition tells what is
        new in it, as seldom as any reason that changes to and fro."""
        due = _due(pending, refusal, now)
        if due <= now:
            self.tell(pending, refusal, now, clear_nominated=False, eventless=True)
        else:
            heappush(self._late, (due, pending.uid))
        self.add(refused(pending.pod, refusal, self._words(refusal), pending.demand.scheduler_name, now, False)[1:])

    def _words(self, refusal: Refusal) -> str:
        if refusal is not self._worded[0]:
            self._worded = refusal, shortened(notice(refusal.reasons, refusal.nodes, refusal.preemption))
        return self._worded[1]

    def tell(
        self,
        pending: QueuedPod,
        refusal: Refusal,
        now: float,
        *,
        clear_nominated: bool = True,
        only_as_seen: bool = False,
        eventless: bool = False,
    ) -> None:
        """The pod's condition and an event (not if ``eventless``), unless it was told the same before. ``only_as_seen``: not
        where the pod is another by now, as one is that has its node."""
        refusal = _with_pause(pending, refusal.told_to(claim_keys(pending.pod)), now)
        if not refusal.says_the_same(pending.reported):
            pending.reported = refusal
            pending.tellings = pending.tellings + 1 if now < pending.told_at + _CALM else 1
            pending.told_at = now
            words = self._words(refusal)
            writes = refused(pending.pod, refusal, words, pending.demand.scheduler_name, now, clear_nominated)
            condition = writes[0].body["status"]["conditions"][0]
            pending.said = condition["message"]
            if only_as_seen:
                writes[0] = msgspec.structs.replace(writes[0], resource_version=pending.pod.metadata.resource_version)
            if pending.uid in self._telling or not _says(pending.pod, condition):
                self.add(writes[:1] if eventless else writes)

    def seen(self, pending: QueuedPod, now: float) -> None:
        """The pod shows something else than it was told last, because that came late or somebody wrote over it: it is told
        again, after a while."""
        if pending.reported is None or pending.uid in self._telling:
            return
        conditions = pending.pod.status.conditions
        if not any(known.type == "PodScheduled" and known.message == pending.said for known in conditions):
            pending.reported = None
            heappush(self._late, (now + _PATIENCE, pending.uid))

    def tell_others(self, group: Group) -> None:
        """The group is refused for other reasons than before: its other pods are told when there is time for that."""
        self._others.update(dict.fromkeys(group.members))

    def tell_late(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            _, uid = heappop(self._late)
            pending = self._queue.get(uid)
            if pending is not None and pending.state == "waiting" and pending.refusal is not None:
                self.tell(pending, pending.refusal, now)

    def next_due(self) -> float | None:
        return self._late[0][0] if self._late else None

    def writes(self, now: float) -> list[Write]:
        while self._others and not self._waiting and len(self._under_way) < _FOR_OTHERS:
            uid = next(iter(self._others))
            del self._others[uid]
            pending = self._queue.get(uid)
            if pending is not None and pending.group is not None and pending.state == "waiting":
                pending.refusal = pending.group.refusal
                self.refused(pending, pending.refusal, now)
        due: list[Write] = []
        while self._waiting and len(self._under_way) < _AT_ONCE:
            write = self._waiting.popleft()
            self._under_way[id(write)] = write
            due.append(write)
        return due

    def ended(self, outcome: Outcome, now: float) -> bool:
        """Whether the write was one of these. A refusal that could not be told because the server was away is told
        later; how others ended changes nothing."""
        write = outcome.write
        if self._under_way.pop(id(write), None) is None:
            return False
        if write.kind is EVENTS and outcome.error is not None:
            self._series.lost(write.name)
        if write.kind is PODS:
            self._told(write.uid)
            pending = self._queue.get(write.uid)
            if _passes(outcome.error) and pending is not None:
                pending.reported = None
                heappush(self._late, (now + _PATIENCE, pending.uid))
        return True

    def _told(self, uid: str) -> None:
        self._telling[uid] -= 1
        if not self._telling[uid]:
            del self._telling[uid]


def _with_pause(pending: QueuedPod, refusal: Refusal, now: float) -> Refusal:
    """Whoever decides for the pod, a session of queues too: that nobody leaves for it, and until when, is told in any case."""
    if now >= pending.evicts_from or pauses.CODE in refusal.codes:
        return refusal
    pause = pauses.Pause(pending.evicts_from, pending.in_vain)
    return replace(refusal, reasons=(*refusal.reasons, (pause.reason(pending.pod), 0)))


def _due(pending: QueuedPod, refusal: Refusal, now: float) -> float:
    """When the pod is to be told, if that is so then."""
    due = now + _PATIENCE if refusal.codes <= _SOON else now
    if pending.tellings > _AT_FIRST and now < pending.told_at + _CALM:
        return max(due, pending.told_at + min(2.0 ** min(pending.tellings - _AT_FIRST, 8), _LONGEST))
    return due


def _passes(error: ClusterError | None) -> bool:
    """Whether the same write may well succeed later: there was no answer, or the server was not able to."""
    overloaded = isinstance(error, Refused) and error.code == 429
    return error is not None and (error.in_doubt or overloaded or isinstance(error, Conflict))


def refused(pod: Pod, refusal: Refusal, note: str, controller: str, now: float, clear_nominated: bool) -> list[Write]:
    """The writes that tell about a refusal: the pod's condition, and an event."""
    gated = "SchedulingGated" in refusal.codes
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated" if gated else "Unschedulable",
        "message": note,
    }
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    if not any(known.type == "PodScheduled" and known.status == "False" for known in pod.status.conditions):
        condition["lastTransitionTime"] = format_time(now)
    status: dict[str, Any] = {"conditions": [condition]}
    if clear_nominated and pod.status.nominated_node_name:
        status["nominatedNodeName"] = None
    told = [] if gated else [event(pod, "FailedScheduling", note, "Scheduling", controller, now, "Warning")]
    return [status_patch(pod, status), *told]


def preempted(victim: Pod, by: Pod, node: str, controller: str, now: float, why: str = "") -> list[Write]:
    """Why the pod has to go, on its status and as an event; then its deletion. ``why``: where it is not its priority."""
    note = f"{controller}: {why or FOR_PRIORITY}"
    return _evicted(victim, note, preempted_event(victim, by, node, controller, now, why), by.key, now)


def stale(pod: Pod, group: str, part: str, controller: str, now: float) -> list[Write]:
    """A pod of a gang, or of a part of one, that lacks pods which it needs goes with the rest of it."""
    of = f"sub-group {part} of " if part else ""
    note = f"{controller}: {of}pod group {group} has fewer pods than it needs to run, for longer than its grace period"
    return _evicted(pod, note, event(pod, "StaleGang", note, "Evicting", controller, now, "Warning"), pod.key, now)


def _evicted(victim: Pod, note: str, told: Write, about: str, now: float) -> list[Write]:
    condition = disruption.target("PreemptionByScheduler", note, now)
    metadata = victim.metadata
    gone = Write("delete", PODS, metadata.namespace, metadata.name, uid=victim.uid, about=about)
    return [status_patch(victim, {"conditions": [condition]}), told, gone]


def preempted_event(victim: Pod, by: Pod, node: str, controller: str, now: float, why: str, *, kept: bool = False) -> Write:
    """In kube-scheduler's words, and ``why``, where it is not its priority. ``kept``: the victim had not started, so it is not
    deleted."""
    how = " (before it was bound: it looks for another place)" if kept else ""
    because = f": {why}" if why and why != FOR_PRIORITY else ""
    return event(victim, "Preempted", f"Preempted by pod {by.uid} on node {node}{how}{because}", "Preempting", controller, now)


def _says(pod: Pod, wanted: dict[str, Any]) -> bool:
    for condition in pod.status.conditions:
        if condition.type == wanted["type"]:
            return (condition.status, condition.reason, condition.message) == (
                wanted["status"],
                wanted["reason"],
                wanted["message"],
            )
    return False


def status_patch(pod: Pod, status: dict[str, Any]) -> Write:
    """A strategic patch, so that other conditions stay."""
    return Write(
        "patch",
        PODS,
        pod.metadata.namespace,
        pod.metadata.name,
        {"status": status},
        "status",
        "strategic",
        uid=pod.uid,
        about=pod.key,
    )


def event(pod: Pod, reason: str, note: str, action: str, controller: str, now: float, type: str = "Normal") -> Write:
    body = event_body(PODS, pod, now=now, type=type, reason=reason, note=note, action=action, controller=controller)
    return Write("create", EVENTS, body["metadata"]["namespace"], body["metadata"]["name"], body, about=pod.key)
