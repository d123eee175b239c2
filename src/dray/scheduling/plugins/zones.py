"""What the scheduler knows of the zones of nodes: their layouts, what pods have in them, how sure that is, what was refused.

Everything follows from NodeResourceTopology objects, from the pods on nodes with their records, and from what was decided here
and is being written. Always true: a node without a usable topology object is not known here and costs nothing; what pods have is
in the books, so that a trial that is not kept leaves no trace; what is in doubt is waited for no longer than is configured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.quantity import QuantityError
from dray.api.times import parse_time
from dray.api.topology import NodeResourceTopology
from dray.books.demand import Demand as PodDemand
from dray.books.nodes import NodeInfo
from dray.numa.account import UNSURE, Held, Sure
from dray.numa.available import LATE_SECONDS, Occupant, expected, occupant, sureness, unreported
from dray.numa.demand import Amounts, Demand, demand, is_memory
from dray.numa.evaluate import EVALUATORS, Evaluators, Verdict
from dray.numa.intent import IntentError, intent, missed
from dray.numa.layout import Layout, State, layout_of, published_state
from dray.numa.placement import GROUPS_OBSERVED, INIT_MEMORY_PREDICTED, OBSERVED, PREDICTED, RECORDS, Record
from dray.numa.refused import SPREAD, TOPOLOGY_AFFINITY_ERROR, Refusals
from dray.numa.tally import Tallies, Tally, Usage
from dray.scheduling.arguments import ZoneArgs
from dray.scheduling.parts import Parts
from dray.scheduling.plugins.late import Latecomers
from dray.scheduling.plugins.published import Evidence

# A kubelet that refused is asked again after so long even if nothing has changed there that can be seen.
REST_SECONDS: Final = 60.0

log = logging.getLogger(__name__)


class Zones:
    def __init__(self, parts: Parts) -> None:
        self._books, self._nodes, self._account = parts.books, parts.nodes, parts.zones
        self._wakeups, self._meter = parts.wakeups, parts.meter
        found = parts.config.zones
        self._on, self.args = found is not None, found or ZoneArgs()
        self.evaluators = Evaluators()
        self.late = Latecomers(self, parts)
        self._evidence = Evidence(self, parts)
        # Whether the bind of a pod is sent, and nobody knows yet what became of it.
        self.on_its_way: Callable[[str], bool] = lambda uid: False
        self._tallies = Tallies(self.evaluators.states)
        self.refusals = Refusals()
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._layouts: dict[str, Layout] = {}
        self._asked: dict[int, Demand] = {}
        # Until when pods are waited for, for each of them, and which were waited for long enough.
        self._waits: list[tuple[float, list[str]]] = []
        self._waiting: dict[str, float] = {}
        self._waived: set[str] = set()
        self._rests: list[tuple[float, str]] = []
        self._before: list[tuple[Pod, PodDemand]] = []
        # When it was last looked at what is not known that should be, and whether anything happened since.
        self._checked_at: float | None = None
        self._unchecked = False

    # ---------------------------------------------------------------------------------------------------------- reading

    @property
    def any(self) -> bool:
        """Whether any node's zones are known."""
        return bool(self._layouts)

    def layout(self, node: str) -> Layout | None:
        return self._layouts.get(node)

    def asked(self, pod: Pod, of: PodDemand) -> Demand:
        """What a kubelet aligns of such a pod."""
        found = self._asked.get(of.id)
        if found is None:
            found = self._asked[of.id] = self.evaluators.demands(demand(pod))
        return found

    def state(self, info: NodeInfo) -> State | None:
        """What is free in the node's zones, also for a node that is only thought of, without some of its pods."""
        tally = self._account.tallies.get(info.name)
        if tally is None:
            return None
        return tally.state if self._nodes.get(info.name) is info else self._account.state_without(info.name, info.pods)

    def stamp(self, info: NodeInfo) -> Hashable:
        """All that this module says of a node, which must be as it is."""
        found, on = self._account.tallies.get(info.name), self.refusals.on
        return (found, info.name, self.refusals.serial) if on and info.name in on else found

    def tally(self, info: NodeInfo) -> Tally | None:
        """What is taken from the node's zones, None for a node that is only thought of."""
        return self._account.tallies.get(info.name) if self._nodes.get(info.name) is info else None

    def kept(self, info: NodeInfo) -> Hashable | None:
        """What an answer about the node may be kept by, None for a node that is only thought of."""
        return self.stamp(info) if self._nodes.get(info.name) is info else None

    def held_on(self, node: str) -> Mapping[str, Held]:
        return self._account.on(node)

    def holders(self, info: NodeInfo, mask: int, lacks: Amounts) -> list[str]:
        """The pods that have of what these zones of a node lack; where they lack nothing, those that have memory there."""
        lacking = {name for name, _ in lacks}
        concerned: Callable[[str], bool] = lacking.__contains__ if lacking else is_memory
        held = self._account.on(info.name)
        return sorted(info.pods[uid].pod.key for uid in held if uid in info.pods and held[uid].usage.has(mask, concerned))

    def placement(self, state: State, asked: Demand) -> Verdict:
        """Where the node's kubelet would put a pod: as its policy settles it, or, where it never refuses, probably. With
        nothing placed where it aligns nothing."""
        if state.layout.policy == "best-effort":
            return self.evaluators.predict(state, asked)
        return self.evaluators.admit(state, asked)

    def doubtful(self, info: NodeInfo) -> str:
        """A pod on the node of which it is not known where it is, or ''."""
        return self._first(info, lambda held: held.sure == "doubtful")

    def starting(self, info: NodeInfo, asked: Demand) -> str:
        """A pod that its kubelet has not admitted yet, and that another one could get ahead of, or ''. Equal pods may start
        beside each other: whichever is admitted first, the same zones are taken."""
        return self._first(info, lambda held: held.asked is not asked)

    def overtakes(self, uid: str) -> bool:
        """Whether a pod that is to be on its node would come to the kubelet before another one that was there when it was
        decided what this one gets, and that is not admitted yet. Equal pods may come in any order."""
        held = self._account.entry(uid)
        for other, found in self._account.on(held.node).items() if held is not None else ():
            if other == uid:
                break
            if held is not None and found.sure in UNSURE and found.asked is not held.asked and not self.admitted(other):
                return True
        return False

    def comes(self, uid: str, held: Held) -> None:
        """A pod is on its way to its kubelet at last, and is waited for from now on."""
        self._waived.discard(uid)
        waited = self._waiting.pop(uid, None) is not None
        if held != self._account.entry(uid):
            self._books.post(self._account, uid, held)
        elif waited and held.sure in UNSURE:
            self._account.fresh[held.sure][uid] = None

    def bound(self, uid: str) -> bool:
        """Whether the API shows the pod on its node."""
        placed = self._nodes.placed(uid)
        return placed is not None and placed.standing == "shown"

    def _first(self, info: NodeInfo, concerned: Callable[[Held], bool]) -> str:
        unsure = self._account.unsure(info.name)
        return next((info.pods[uid].pod.key for uid, held in unsure.items() if uid in info.pods and concerned(held)), "")

    # ----------------------------------------------------------------------------------------------------------- posting

    def entry(self, state: State, asked: Demand, verdict: Verdict) -> tuple[Usage, Sure]:
        """What a pod with this verdict is going to have on a node in this state, and how sure that is."""
        found = expected(verdict.placement, verdict.passing, asked, state.layout)
        return found.usage, self._sure(found, state.layout, started=False)

    def _sure(self, found: Occupant, layout: Layout, *, started: bool, uid: str = "", before: Sure | None = None) -> Sure:
        sure = sureness(found, started=started, before=before)
        waits = self.args.wait and layout.policy in EVALUATORS and uid not in self._waived
        return sure if waits or sure == "observed" else "assumed"

    # -------------------------------------------------------------------------------------------------- from the cluster

    def topology(self, old: NodeResourceTopology | None, new: NodeResourceTopology | None) -> None:
        """A topology object came, changed or went."""
        if not self._on:
            return
        for gone in (old,) if old is not None and new is None else ():
            self._topologies.pop(gone.metadata.name, None)
        if new is not None:
            self._topologies[new.metadata.name] = new
        found = new if new is not None else old
        assert found is not None
        self.node(found.metadata.name, published=True)
        if self.args.reconstruct:
            self._evidence.published(found.metadata.name, new)

    def node(self, name: str, *, published: bool = False) -> None:
        """The node may have other zones than before: it came, went or changed, or its topology object did (``published``)."""
        if name not in self._topologies and name not in self._layouts:
            return
        layout = self._read(name)
        if layout is self._layouts.get(name):
            if published and layout is not None and not self.args.reconstruct:
                self._believe(name, layout)
            return
        before = dict(self._account.on(name))
        self.refusals.forget(name)
        if layout is None:
            del self._layouts[name]
            self._account.close(name)
            # Where no node publishes any, what pods say of their zones says nothing.
            for other in () if self._layouts else self._nodes:
                self._wakeups.node(other.name)
        else:
            self._layouts[name] = layout
            self._account.open(name, self._tallies.empty(layout))
            self._count(name, layout, before)
            if not self.args.reconstruct:
                self._believe(name, layout)
        self._wakeups.node(name)

    def _read(self, name: str) -> Layout | None:
        topology, info = self._topologies.get(name), self._nodes.get(name)
        if topology is None or info is None:
            return None
        try:
            found = layout_of(topology, None, self.args.ignored, info.allocatable)
        except QuantityError as error:
            log.warning(
                "a NodeResourceTopology cannot be read, so the node counts as without zones",
                extra={"node": name, "error": str(error)},
            )
            return None
        return self.evaluators.layouts(found) if found is not None else None

    def _believe(self, name: str, layout: Layout) -> None:
        # Nobody can have published what no kubelet has admitted yet.
        coming = {uid: held for uid, held in self._account.on(name).items() if not self.admitted(uid)}
        for uid in coming:
            self._account.post(uid, None)
        tallies = self._account.tallies
        tallies[name] = tallies[name].believing(published_state(layout, self._topologies[name]))
        for uid, held in coming.items():
            self._account.post(uid, held)
        self._wakeups.node(name)

    def admitted(self, uid: str) -> bool:
        placed = self._nodes.placed(uid)
        return placed is not None and placed.pod.status.start_time is not None

    def _count(self, name: str, layout: Layout, before: dict[str, Held]) -> None:
        """What the pods on a node have in its zones, which were others before."""
        info = self._nodes.get(name)
        for uid, placed in info.pods.items() if info is not None else ():
            if placed.standing == "shown":
                self._occupy(placed.pod, placed.demand, name, layout)
            elif (held := before.get(uid)) is not None:
                # Decided under another layout: where it will be is anybody's guess.
                self._books.post(self._account, uid, Held(name, Usage(), held.asked, "doubtful" if self.args.wait else "assumed"))

    def placed(self, old: Pod | None, pod: Pod, of: PodDemand) -> None:
        """The API shows a pod on its node."""
        before, layout = self._account.entry(pod.metadata.uid), self._layouts.get(pod.spec.node_name)
        if layout is None:
            if before is not None:
                self._books.post(self._account, pod.uid, None)
            return
        if before is not None:
            if pod.status.start_time is None and _as_decided(pod, before):
                if before.sure == "awaited":
                    self.comes(pod.uid, msgspec.structs.replace(before, sure="starting"))
                return
            if old is not None and old.spec.node_name and _same_records(old, pod):
                return
        self._evidence.stir(pod.spec.node_name)
        # Where only the phase is new, nothing was observed that could be other than was thought.
        ended = old is not None and _begun(pod) and old.metadata.annotations == pod.metadata.annotations
        self._occupy(pod, of, pod.spec.node_name, layout, ended=ended)

    def _occupy(self, pod: Pod, of: PodDemand, node: str, layout: Layout, *, ended: bool = False) -> None:
        """``ended``: all that is new is that its init containers are done."""
        asked = self.asked(pod, of)
        before = self._account.entry(pod.uid)
        wanted: Held | None = None
        if asked.units:
            aligned = bool(self.evaluators.plan(layout, asked).needs)
            decided = before is not None and _as_decided(pod, before)
            found = _predicted(before) if before is not None and decided else occupant(pod, asked, layout, aligned)
            if ended and before is not None:
                found = _where_it_was(found, before)
            usage = self._unrecorded(pod, asked, node, before) if found.missing else found.usage
            if found.record.warnings:
                told = {"pod": pod.key, "node": node, "error": "; ".join(found.record.warnings)}
                log.warning("a record of where a pod has its resources cannot be used", extra=told)
            if aligned or found.record.source != "none":
                known = before.sure if before is not None and before.node == node else None
                started = pod.status.start_time is not None
                sure = self._sure(found, layout, started=started, uid=pod.uid, before=known)
                record = before.record if before is not None and decided else ""
                wanted = Held(node, usage, asked, sure, record, recorded=not found.missing)
        if wanted != before:
            self._books.post(self._account, pod.uid, wanted)
            if wanted is not None and before is None and found.missing:
                # Whoever bound it did not wait for those who are on their way.
                self._doubt(node, ("starting",))
            elif wanted is not None and before is not None and wanted.usage != before.usage and not ended:
                # The kubelet did otherwise than was thought, so others that are not observed yet may be elsewhere too.
                self._doubt(node, ("starting", "admitted"))
        initialising = INIT_MEMORY_PREDICTED in pod.metadata.annotations and not _begun(pod)
        if wanted is not None and wanted.sure == "observed" and before != wanted and not initialising:
            self._judge(pod, wanted)

    def _unrecorded(self, pod: Pod, asked: Demand, node: str, before: Held | None) -> Usage:
        """What a pod probably has that somebody else bound: as its kubelet finds it when it comes. Of one that had come before it
        was seen, nothing is known."""
        if before is not None and before.node == node:
            return before.usage
        info = self._nodes.get(node)
        coming = pod.status.phase == "Pending" and pod.status.start_time is None
        found = self.late.foreseen(info, asked) if info is not None and coming else None
        return found.usage if found is not None else Usage()

    def _judge(self, pod: Pod, held: Held) -> None:
        """A pod that is to be placed anew because it was spread too far is not to come back to where that would happen again."""
        try:
            own = intent(pod)
        except IntentError:
            return
        if own is not None and own.heal and missed(own, held.usage.placement, held.usage.groups):
            others = self._account.on(held.node).keys() - {pod.uid}
            self.refusals.note(held.node, held.asked, self._account.state_without(held.node, others), SPREAD)

    def _doubt(self, node: str, which: tuple[Sure, ...]) -> None:
        for uid, held in list(self._account.on(node).items()):
            # Who is not bound yet finds what became free, and is foreseen with it.
            if held.sure in which and (held.sure != "starting" or self.bound(uid) or "admitted" in which):
                self._books.post(self._account, uid, msgspec.structs.replace(held, sure="doubtful"))

    def refused(self, pod: Pod, of: PodDemand, now: float) -> None:
        """A kubelet did not take a pod that was bound to its node, which has failed. Such pods are not sent there again while
        nothing changes, so that who makes them anew does not do so in a loop. Of a node whose zones nobody publishes it is only
        told: nothing can be foreseen there."""
        info = self._nodes.get(pod.spec.node_name)
        state = self.state(info) if info is not None else None
        name, reason = pod.spec.node_name, pod.status.reason
        if state is None and (not self._on or reason != TOPOLOGY_AFFINITY_ERROR):
            return
        asked = self.asked(pod, of)
        self._meter.count("dray_numa_admission_refusals_total", (reason,))
        if self.refusals.note(name, asked, state, reason):
            self._meter.count("dray_numa_reselected_nodes_total")
        if state is not None:
            told = {"pod": pod.key, "node": name, "reason": reason, "policy": state.layout.policy}
            log.warning("a kubelet refused a pod that should have fitted into its zones", extra=told)
        else:
            told = {"pod": pod.key, "node": name, "reason": reason}
            log.warning("a kubelet refused a pod for its zones, of which nothing is published", extra=told)
        heappush(self._rests, (now + REST_SECONDS, name))
        self._wakeups.node(name)

    def refused_before(self, pod: Pod, of: PodDemand) -> None:
        """A kubelet refused the pod before this scheduler came: what follows from it is known when the node's zones are."""
        self._before.append((pod, of))

    def _recall(self, now: float) -> None:
        recent = [(pod, of) for pod, of in self._before if _refused_at(pod) + REST_SECONDS > now]
        self._before = []
        for pod, of in recent:
            info = self._nodes.get(pod.spec.node_name)
            state = self.state(info) if info is not None else None
            if state is None:
                self._before.append((pod, of))
                continue
            self.refusals.note(pod.spec.node_name, self.asked(pod, of), state, pod.status.reason)
            heappush(self._rests, (_refused_at(pod) + REST_SECONDS, pod.spec.node_name))
            self._wakeups.node(pod.spec.node_name)

    def forget(self, demands: set[int]) -> None:
        """Only these demands are still in use."""
        self._asked = {number: asked for number, asked in self._asked.items() if number in demands}

    # ---------------------------------------------------------------------------------------------------------- in time

    def due(self, now: float) -> None:
        """What was given back makes others doubtful; who was waited for long enough is waited for no longer."""
        vacated, self._wakeups.zones_vacated = self._wakeups.zones_vacated, {}
        for node, observed in vacated.items():
            # A kubelet may take the zones that became free for a pod that it has not admitted yet; and if it was not known for
            # sure which these are, it is not known of others either.
            if observed:
                self.late.foresee_again(node)
            self._doubt(node, ("starting",) if observed else ("starting", "admitted"))
        self._evidence.weigh()
        self._waive(now)
        if self._before:
            self._recall(now)
        while self._rests and self._rests[0][0] <= now:
            _, node = heappop(self._rests)
            self.refusals.forget(node)
            self._wakeups.node(node)
        self._unchecked = True
        if self._topologies or self._checked_at is not None:
            self._examine(now)

    def _waive(self, now: float) -> None:
        fresh = self._account.fresh
        if fresh["starting"]:
            self.wait_for(now, [uid for uid in fresh["starting"] if uid not in self._waiting])
            fresh["starting"] = {}
        if fresh["doubtful"]:
            for uid in fresh["doubtful"]:
                if uid not in self._waiting:
                    self.wait_for(self._began(uid, now), [uid])
            fresh["doubtful"] = {}
        while self._waits and self._waits[0][0] <= now:
            until, waited = heappop(self._waits)
            for uid in [uid for uid in waited if self._waiting.get(uid) == until]:
                del self._waiting[uid]
                held = self._account.entry(uid)
                if held is not None and held.sure in UNSURE and self.on_its_way(uid):
                    # It may come to its kubelet at any moment: nobody can be let ahead of it.
                    self.wait_for(now, [uid])
                elif held is not None and held.sure in UNSURE:
                    self._waived.add(uid)
                    sure: Sure = "assumed" if self.bound(uid) else "awaited"
                    self._books.post(self._account, uid, msgspec.structs.replace(held, sure=sure))

    def wait_for(self, began: float, uids: list[str]) -> None:
        """These are waited for since then, as long as is configured."""
        until = began + self.args.wait
        self._waiting.update(dict.fromkeys(uids, until))
        heappush(self._waits, (until, uids))

    def _began(self, uid: str, now: float) -> float:
        """A pod that runs for long already will not be reported because somebody waits for it, and one that was bound long ago
        was waited for then."""
        placed = self._nodes.placed(uid)
        since = placed.pod.status.start_time or _bound_at(placed.pod) if placed is not None else None
        return min(parse_time(since), now) if since is not None else now

    def next_due(self) -> float | None:
        times = [queue[0][0] for queue in (self._waits, self._rests) if queue]
        if self._wakeups.zones_vacated or self._evidence.stirred or any(self._account.fresh.values()):
            times.append(0.0)
        if self._unchecked and self._checked_at is not None:
            times.append(self._checked_at + LATE_SECONDS)
        return min(times, default=None)

    # ----------------------------------------------------------------------------------------------------------- health

    def _examine(self, now: float) -> None:
        """Now and then: what is not known that should be. Once more after the last that happened, and while a pod may yet turn
        out to be late; then no more until something happens."""
        if self._checked_at is not None and now - self._checked_at < LATE_SECONDS:
            return
        self._checked_at = now if self._topologies else None
        self._waived = {uid for uid in self._waived if self._account.entry(uid) is not None}
        unobserved = list(self._unobserved())
        late = len(unreported(unobserved, now))
        self._unchecked = late < sum(1 for pod in unobserved if pod.status.phase == "Running")
        self._meter.gauge("dray_numa_pods_not_reported", late)
        self._meter.gauge("dray_numa_nodes_without_zone_data", sum(1 for name in self._topologies if self.missing(name)))

    def _unobserved(self) -> Iterator[Pod]:
        for uid, held in self._account.holders():
            if held.sure != "observed" and (placed := self._nodes.placed(uid)) is not None and placed.standing == "shown":
                yield placed.pod

    def missing(self, node: str) -> tuple[str, ...]:
        """Resources that the node offers, that its kubelet may align, and of which its topology object says nothing."""
        topology, info = self._topologies.get(node), self._nodes.get(node)
        if topology is None or info is None or topology.management[0] not in EVALUATORS:
            return ()
        layout = self._layouts.get(node)
        known = {*layout.resources, *layout.unaligned} if layout is not None else self.args.ignored
        aligned = (name for name in info.allocatable if name in ("cpu", "memory") or _device(name))
        return tuple(sorted(name for name in aligned if name not in known))


def _as_decided(pod: Pod, before: Held) -> bool:
    """Whether a pod's record is what was decided here, as of most that the API shows bound: then nothing need be read."""
    annotations = pod.metadata.annotations
    if _begun(pod):
        return False
    if not before.record or before.node != pod.spec.node_name or annotations.get(PREDICTED) != before.record:
        return False
    return OBSERVED not in annotations and GROUPS_OBSERVED not in annotations


def _bound_at(pod: Pod) -> str | None:
    found = (each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "True")
    return next((each.last_transition_time for each in found), None) or None


def _refused_at(pod: Pod) -> float:
    """A kubelet gives a pod that it refuses the time at which it did as that of its start."""
    return parse_time(pod.status.start_time or pod.metadata.creation_timestamp or "1970-01-01T00:00:00Z")


def _begun(pod: Pod) -> bool:
    """Whether a pod had memory for its init containers alone, and has come to run."""
    return INIT_MEMORY_PREDICTED in pod.metadata.annotations and pod.status.phase == "Running"


def _predicted(held: Held) -> Occupant:
    return Occupant(Record("predicted", held.usage.placement), held.usage, aligned=True)


def _where_it_was(found: Occupant, before: Held) -> Occupant:
    """What a pod has that its init containers gave back, in the zone in which it was found to be."""
    (now, was) = (found.usage.placement, before.usage.placement)
    if found.record.source == "observed" or len(now) != 1 or len(was) != 1 or found.usage.groups:
        return found
    return msgspec.structs.replace(found, usage=Usage(((was[0][0], now[0][1]),)))


def _same_records(old: Pod, new: Pod) -> bool:
    """Whether both say the same of where the pod is, whether it has started, and whether its init containers are done."""
    started = (old.status.start_time is None) == (new.status.start_time is None) and _begun(old) == _begun(new)
    was, now = old.metadata.annotations, new.metadata.annotations
    return started and old.uid == new.uid and (was == now or all(was.get(name) == now.get(name) for name in RECORDS))


def _device(resource: str) -> bool:
    return "/" in resource and not resource.partition("/")[0].endswith("kubernetes.io")
