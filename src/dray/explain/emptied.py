"""Whether a gang could start if nobody else were there: that it could not is told only where it is proven.

The scheduler's own session is held on the cluster as it is, but with no pods besides those of the gang and with queues that may
have everything. Where it refuses the gang, that alone proves nothing: its search is bounded. So the places are counted: for each
node the most members of each kind that it could take at once, by the sums of what they ask for and by the allocator's own answer
for all of their claims together. Whoever is near whom, which volumes there are and in which zones they sit is left out, which
makes the count larger and never smaller. Always true: where the count is too small, no scheduler could start the gang on these
nodes; where it is not, or took too long, nothing is said.

Limits and quotas of queues are not part of it: whoever looks after the queue may raise them, and no pod and no node has to
change for that. They have reasons of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api import queues
from dray.api.consumers import claims_of
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import PODS, QUEUES, RESOURCE_CLAIMS, Kind
from dray.api.resource import ResourceClaim, ResourceClaimStatus
from dray.books.nodes import NodeInfo
from dray.cluster.world import World
from dray.explain.fix import untied
from dray.queues.gangs import Part
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.kinds import KINDS
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import CycleState, NotPlaced
from dray.scheduling.plugins.numa import NUMA
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.shape.extended import is_special
from dray.scheduling.workloads.grouping import leaf_of
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.session import Session

# More kinds of members than this are not counted, nor are gangs for which the allocator would have to be asked so often, or for
# which so many ways to divide them between nodes would have to be kept.
_MOST_KINDS: Final = 4
_MOST_QUESTIONS: Final = 200
_MOST_WAYS: Final = 200

Counts = tuple[int, ...]
"""Of each kind of members, so many."""


def never(world: World, job: Job, *, now: float, config: Config, gates: Gates | None) -> Refusal | None:
    """Why the gang would not start on the empty cluster either, with the member that is in the way; None where that is not
    proven, or where some of its pods have their places."""
    pods = [pod for pod in job.pods.values() if not pod.terminal]
    if job.single or not pods or any(pod.spec.node_name for pod in pods):
        return None
    wide = msgspec.structs.replace(config, in_flight=2**31)
    scheduler = Scheduler(_emptied(world, pods), wide, gates)
    session = scheduler.workloads.survey(now)
    own = scheduler.workloads.jobs.of(pods[0].uid)
    minimum = [pending.uid for pending in session.members.next(own)] if own is not None else []
    if own is None or not minimum:
        return None
    scheduler.workloads.rehearse(session)
    missing = session.missing.get(own.key)
    if missing is None or missing.refused is None or not any(uid in own.waiting for uid in minimum):
        return None  # what a gang lacks that has its minimum is for those beyond it
    try:
        return missing.refusal if _Count(scheduler, session, own, now).is_too_small() else None
    except (NotPlaced, _TooMuch):
        return None


def _emptied(world: World, pods: Sequence[Pod]) -> World:
    """As if these pods were the first that ever came. Whom they must be near may come, too, and counts as everywhere."""
    named = {key for pod in pods for key in (*claim_keys(pod), *claims_of(pod))}
    claims: Iterable[ResourceClaim] = world.all(RESOURCE_CLAIMS).values()
    own = (claim for claim in claims if claim.key in named and not is_special(claim))
    objects: dict[Kind, Mapping[str, Any]] = {kind: world.all(kind) if kind in world.kinds else {} for kind in KINDS}
    objects[RESOURCE_CLAIMS] = {claim.key: msgspec.structs.replace(claim, status=ResourceClaimStatus()) for claim in own}
    objects[PODS] = {pod.key: _first(pod) for pod in pods}
    objects[QUEUES] = {key: _unlimited(queue) for key, queue in objects[QUEUES].items()}
    return World.of(objects)


def _first(pod: Pod) -> Pod:
    status = msgspec.structs.replace(pod.status, nominated_node_name="", extended_resource_claim_status=None)
    return msgspec.structs.replace(untied(pod), status=status)


def _unlimited(queue: queues.Queue) -> queues.Queue:
    everything = queues.QueueResource(-1.0, -1.0, 1.0)
    resources = queues.QueueResources(everything, everything, everything)
    metadata = msgspec.structs.replace(queue.metadata, annotations={})
    return msgspec.structs.replace(queue, metadata=metadata, spec=msgspec.structs.replace(queue.spec, resources=resources))


# ------------------------------------------------------------------------------------------------------------- counting


class _TooMuch(Exception):
    """Counting would cost more than it is worth: nothing is proven."""


class _Kind(NamedTuple):
    """Members that ask for the same in one part of the gang."""

    leaf: str
    states: list[CycleState]


class _Count:
    def __init__(self, scheduler: Scheduler, session: Session, job: Job, now: float) -> None:
        self._scheduler, self._session, self._job = scheduler, session, job
        self._kinds = self._sorted(Ask(scheduler, now))
        self._all = tuple(len(kind.states) for kind in self._kinds)
        self._questions = _MOST_QUESTIONS
        # By what makes nodes alike: the most that they take.
        self._known: dict[Hashable, list[Counts]] = {}

    def is_too_small(self) -> bool:
        """Whether no domain in which the gang has to be has room for its minimum."""
        near, nodes = self._job.root.near, self._scheduler.nodes
        if near is None or not near.required:
            return not self._suffice(list(nodes))
        domains = self._session.nearness.domains(near)
        return not any(self._suffice([info for name in names if (info := nodes.get(name)) is not None]) for names in domains)

    def _sorted(self, ask: Ask) -> list[_Kind]:
        """A claim that several members name makes them unlike those that do not: they are counted with it."""
        waiting = [pending.pod for pending in self._job.waiting.values()]
        users: dict[str, int] = {}
        for pod in waiting:
            for key in claim_keys(pod):
                users[key] = users.get(key, 0) + 1
        found: dict[Hashable, _Kind] = {}
        for pod in waiting:
            state, leaf = ask.state(pod), leaf_of(pod, self._job.subgroups)
            shared = tuple(key for key in claim_keys(pod) if users[key] > 1)
            specs = tuple(msgspec.json.encode(claim.spec) for claim in state.resolved.open if claim.key not in shared)
            alike = leaf, state.demand.id, specs, shared
            found.setdefault(alike, _Kind(leaf, [])).states.append(state)
            if len(found) > _MOST_KINDS:
                raise _TooMuch
        return list(found.values())

    def _suffice(self, nodes: Sequence[NodeInfo]) -> bool:
        """Whether these nodes together have room for the minimum, as far as that can be counted."""
        ways: set[Counts] = {(0,) * len(self._kinds)}
        for info in nodes:
            ways = _largest(self._joined(way, more) for way in ways for more in self._most(info))
            if any(self._starts(self._job.root, way) for way in ways):
                return True
            if len(ways) > _MOST_WAYS:
                raise _TooMuch
        return False

    def _joined(self, one: Counts, other: Counts) -> Counts:
        return tuple(min(a + b, most) for a, b, most in zip(one, other, self._all))

    def _starts(self, part: Part, counts: Counts) -> bool:
        """Whether the part has its minimum with so many members."""
        if part.is_leaf:
            return sum(count for kind, count in zip(self._kinds, counts) if kind.leaf == part.name) >= part.needed
        return sum(self._starts(child, counts) for child in part.parts) >= part.needed

    # ----------------------------------------------------------------------------------------------------- of one node

    def _most(self, info: NodeInfo) -> list[Counts]:
        """What the node takes at most: of each way, none that takes more."""
        could = tuple(self._could(kind.states[0], info) for kind in self._kinds)
        inventory = self._scheduler.engine.inventory
        view = inventory.view(info.name) if any(kind.states[0].needs_devices for kind in self._kinds) else None
        devices: Hashable = inventory.state(view) if view is not None else None
        names = {name for kind in self._kinds for name, _ in kind.states[0].demand.requests}
        alike = could, info.allowed_pods, tuple((name, info.free(name)) for name in sorted(names)), devices
        known = self._known.get(alike)
        if known is None:
            known = self._known[alike] = sorted(_largest(self._ways(info, could, ())))
        return known

    def _could(self, state: CycleState, info: NodeInfo) -> bool:
        """Whether the node would take one of them, but for what is left out."""
        refused = self._scheduler.cycle.plan(state).refuses(info) if state.view is None else None
        # What is free in zones is what kubelets published with others on the node.
        counts = refused is not None and not all(reason.code in NUMA.codes for reason in refused)
        return not counts and self._scheduler.cycle.devices.could(state, info)

    def _ways(self, info: NodeInfo, could: Sequence[bool], begun: Counts) -> Iterator[Counts]:
        """All numbers of members that fit; where so many do not, more do not either."""
        index = len(begun)
        most = self._all[index] if could[index] else 0
        last = index == len(self._kinds) - 1
        for count in range(most + 1):
            if not self._fit(info, (*begun, count)):
                break
            if last:
                yield (*begun, count)
            else:
                yield from self._ways(info, could, (*begun, count))

    def _fit(self, info: NodeInfo, counts: Counts) -> bool:
        """Whether the node has enough for so many of each of the first kinds."""
        chosen = [(kind.states[0], count) for kind, count in zip(self._kinds, counts) if count]
        if sum(counts) > info.allowed_pods:
            return False
        asked: dict[str, int] = {}
        for state, count in chosen:
            for name, amount in state.demand.requests:
                if name not in state.names:
                    asked[name] = asked.get(name, 0) + amount * count
        if any(amount > info.free(name) for name, amount in asked.items()):
            return False
        states = [state for kind, count in zip(self._kinds, counts) for state in kind.states[:count]]
        return not any(state.needs_devices for state in states) or self._allocated(info, states)

    def _allocated(self, info: NodeInfo, states: Sequence[CycleState]) -> bool:
        """Whether all their claims can be allocated at once; also where the allocator gave up, or says something else."""
        claims_on = self._scheduler.cycle.devices.claims_on
        claims = {claim.uid: claim for state in states for claim in claims_on(state, info)[0]}
        self._questions -= 1
        if self._questions < 0:
            raise _TooMuch
        verdict = self._scheduler.engine.allocate(info.name, list(claims.values()))
        return verdict.ok or bool(verdict.error)


def _largest(ways: Iterable[Counts]) -> set[Counts]:
    """Without those that others are at least as large as in everything."""
    found: set[Counts] = set()
    for way in sorted(set(ways), key=sum, reverse=True):
        if not any(all(a >= b for a, b in zip(other, way)) for other in found):
            found.add(way)
    return found
