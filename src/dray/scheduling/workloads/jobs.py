"""Jobs: the pods that belong together, the queue that they wait in, and what they ask of it.

A job is what a PodGroup names (KAI-Scheduler's or Kubernetes' own), what an owner's pods are when they ask to start together, or
one pod by itself. Always true: a pod is in one job at most; where there are no queues and no pod groups there are no jobs, and
pods are scheduled as if nothing of this existed. A gang that no queue has to do with waits in one of its own, without limits.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from dray.api import queues
from dray.api.class_names import ClassNames
from dray.api.core import Pod
from dray.api.kinds import CORE_POD_GROUPS, POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES, RESOURCE_CLAIMS
from dray.api.meta import Object
from dray.api.queues import GPU, GPU_RESOURCE
from dray.api.resource import IMPLICIT_RESOURCE_PREFIX, AllocationResult, ResourceClaim
from dray.api.times import parse_time
from dray.books.changes import ChangeLog
from dray.books.demand import Demand
from dray.books.nodes import Given, Placed
from dray.cluster.world import World
from dray.devices import Devices
from dray.queues.gangs import Gang, Member, Near, Part, State, is_preemptible
from dray.queues.tree import UNLIMITED, Entitlement, ParentMissing, Queue, QueueError, Tree
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.plugins.resources import readable
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.shape.extended import is_special, requests_for, special_claim, wanted_names
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads import grouping
from dray.scheduling.workloads.asked import Amounts, Asked, DevicesAsked, resource_of, stock_of
from dray.scheduling.workloads.grouping import APART, CORE, leaf_of, starts_with_others

CPU: Final = "cpu"
MEMORY: Final = "memory"
NATIVE: Final = (CPU, MEMORY, GPU)
UNRESTRICTED: Final = Entitlement(0.0, UNLIMITED, 1.0, binds=False)
# The queue of gangs that no queue has to do with. No object can have this name.
BESIDE: Final = "-"
_NUMBER: Final = attrgetter("number")
log = logging.getLogger(__name__)


def told(resource: str, value: float) -> str:
    """An amount as people write it."""
    if value == UNLIMITED:
        return "unlimited"
    if value and value % 2**20 == 0 and stock_of(resource) is not None:
        return readable(MEMORY, int(value))  # nobody publishes so many pieces of anything but bytes
    return readable(resource, int(value)) if float(value).is_integer() else f"{value:g}"


class Job:
    """Pods that belong together. ``waiting`` are those that are to be placed; ``number`` orders jobs as they appeared; ``first``
    is the oldest of the pods, whichever was seen first: what no PodGroup says of the job, it says."""

    __slots__ = (
        "_waiting",
        "by_pods",
        "changes",
        "created",
        "delay",
        "evicted_at",
        "first",
        "grace",
        "key",
        "last_start",
        "missing",
        "number",
        "pods",
        "preemptible",
        "priority",
        "queue",
        "root",
        "said",
        "stale",
        "subgroups",
        "uid",
        "waiting",
        "wrong",
    )

    def __init__(self, key: str, queue: str, first: Pod, number: int = 0) -> None:
        self.key, self.queue, self.first, self.number = key, queue, first, number
        # How often something of it changed for good.
        self.changes = 0
        self.uid = key
        self.priority = 0
        self.preemptible = True
        self.created = 0.0
        self.root = Part("", 1)
        self.subgroups = False
        # Whether its PodGroup is not there (yet).
        self.missing = False
        # What is wrong with its PodGroup, if anything is.
        self.wrong = ""
        # Whether no PodGroup says what it is, but its pods do; and how many of them say which number of ``dray.dev/gang``.
        self.by_pods = False
        self.said: Counter[str] = Counter()
        self.grace: float | None = None
        self.delay = 0.0
        # By the names of its parts, since when one is broken, and may still be.
        self.stale: dict[str, float] = {}
        self.last_start: float | None = None
        self.evicted_at: float | None = None
        self.pods: dict[str, Pod] = {}
        self._waiting: dict[str, QueuedPod] = {}
        # To read: who waits is said to ``Jobs``, which notes it.
        self.waiting: Mapping[str, QueuedPod] = self._waiting

    def __repr__(self) -> str:
        return f"Job({self.key})"

    @property
    def started(self) -> float | None:
        """When it last started: as this scheduler knows, or as its pods say."""
        if self.last_start is not None:
            return self.last_start
        stamps = [pod.status.start_time for pod in self.pods.values() if pod.status.start_time]
        return parse_time(max(stamps)) if stamps else None

    @property
    def single(self) -> bool:
        """Whether it is nothing but one pod: then all rules of gangs say the same."""
        return len(self.pods) == 1 and not self.root.parts and (self.root.minimum or 0) <= 1

    @property
    def group(self) -> str:
        return f"podgroup/{self.name}"

    @property
    def name(self) -> str:
        """What people know it as. Kubernetes' own groups have a key apart from KAI-Scheduler's of the same name, and pods of an
        owner one apart from those of another owner that had its name."""
        return self.key.replace(CORE, "/").partition(APART)[0]

    @property
    def shares_claims(self) -> bool:
        """Whether others may have the claims, too, that its pods wait for: so what it asks for does not follow from it alone."""
        return any(claim.resource_claim_name for each in self.waiting.values() for claim in each.pod.spec.resource_claims)

    def in_turn(self) -> list[Pod]:
        """Its pods that wait, in the order in which everybody names them, whenever they were seen."""
        return sorted((self.pods[uid] for uid in self.waiting), key=lambda pod: pod.key)


def not_done(job: Job, starting: Iterable[str]) -> Refusal | None:
    """What the job asks for with the pods that are to start, and that would not be kept to: better not started than started
    otherwise."""
    if job.wrong:
        return Refusal.of("PodGroupInvalid", job.group, error=job.wrong)
    found: dict[str, Refusal] = {}
    for pod in (job.pods[uid] for uid in starting):
        unread = grouping.unreadable(pod, job.queue != BESIDE) if job.by_pods else None
        if (refusal := unread or grouping.shared_gpu(pod)) is not None:
            found[pod.key] = refusal
    return found[min(found)] if found else None


def member(pod: Pod, state: State, subgroups: bool) -> Member:
    return Member(pod.uid, state, leaf_of(pod, subgroups), grouping.task_priority(pod), created(pod), pod.key)


def gang_of(job: Job, states: Mapping[str, State]) -> Gang:
    return Gang(job.root, (member(pod, states[uid], job.subgroups) for uid, pod in job.pods.items()))


def created(found: Object) -> float:
    stamp = found.metadata.creation_timestamp
    return parse_time(stamp) if stamp else 0.0


def _age(pod: Pod) -> tuple[float, str]:
    """Before those of pods that are younger. Many are of the same second."""
    return created(pod), pod.key


class Jobs:
    """All jobs by key, and the tree of queues."""

    def __init__(self, world: World, engine: Devices, classes: ClassNames | None = None) -> None:
        """``classes``: which of them serve extended resources, where any do."""
        self._world = world
        self.devices = DevicesAsked(world, engine, classes if classes is not None else ClassNames())
        self._kinds = [kind for kind in (QUEUES, POD_GROUPS, CORE_POD_GROUPS) if kind in world.kinds]
        self.active = False
        # Pods that ask to start with others, whether or not there is a group of that name yet.
        self._together = {pod.uid for pod in world.all(PODS).values() if starts_with_others(pod, self._kinds)}
        self.look()
        self._by_key: dict[str, Job] = {}
        self._by_pod: dict[str, Job] = {}
        self._last_number = 0
        # All jobs with pods that wait are among these, and all that are broken, or may have become so since that was looked at.
        self._waiting: dict[str, Job] = {}
        self.stirred: dict[str, Job] = {}
        # Keys of jobs of which something changed for good, for whoever keeps what follows from it.
        self.log = ChangeLog()
        # Whether a job is in another queue than its pods were counted for, or may be preempted and might not, or the reverse.
        self.shifted = False
        self._tree: Tree | None = None
        self.wrong: dict[str, str] = {}

    def __iter__(self) -> Iterator[Job]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, uid: str) -> Job | None:
        return self._by_pod.get(uid)

    def by_key(self, key: str) -> Job | None:
        return self._by_key.get(key)

    def wait(self, job: Job, pending: QueuedPod) -> None:
        """The pod, one of the job's, is to be placed."""
        job._waiting[pending.uid] = pending
        self._waiting[job.key] = job
        self._changed(job)

    def waits_no_more(self, job: Job, uid: str) -> None:
        """One of the job's pods has its place, or is none to be placed any more."""
        if job._waiting.pop(uid, None) is not None:
            self._changed(job)

    def with_waiting(self) -> list[Job]:
        """Jobs with pods that are to be placed, in the order in which they appeared."""
        self._waiting = {key: job for key, job in self._waiting.items() if job.waiting}
        return sorted(self._waiting.values(), key=_NUMBER)

    def stir(self, uid: str) -> None:
        """The pod holds something that it did not hold, or no more, for good: its gang may be broken now, or whole."""
        if (job := self._by_pod.get(uid)) is not None:
            self._stir(job)

    def _stir(self, job: Job) -> None:
        self.stirred[job.key] = job
        self._changed(job)

    def _changed(self, job: Job) -> None:
        job.changes += 1
        self.log.note(job.key)

    def take_stirred(self) -> list[Job]:
        """To look at, in the order in which they appeared; those that turn out to be broken are stirred again."""
        found = sorted(self.stirred.values(), key=_NUMBER)
        self.stirred = {}
        return found

    # --------------------------------------------------------------------------------------------------------- queues

    def look(self) -> None:
        """Whether there are queues or gangs at all; asked with every pod, so it is found out only when one comes or goes."""
        self.active = bool(self._together) or any(self._world.all(kind) for kind in self._kinds)

    def notice(self, old: Any, new: Any) -> bool:
        """A pod came, changed or went. Whether that makes there be gangs, or none any more."""
        if not self._together and (new is None or not starts_with_others(new, self._kinds)):
            return False
        had = bool(self._together)
        if old is not None and (new is None or new.uid != old.uid):
            self._together.discard(old.uid)
        if new is not None:
            if starts_with_others(new, self._kinds):
                self._together.add(new.uid)
            elif self._together:
                self._together.discard(new.uid)
        return bool(self._together) != had

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            self._tree = self._grown()
        return self._tree

    def forget_tree(self) -> None:
        self._tree = None

    def _grown(self) -> Tree:
        """Queues that form no tree are left out, and ``wrong`` says why: whichever came first, what is wrong with a queue itself
        before what is wrong with one above it."""
        self.wrong = {}
        listed = self._world.all(QUEUES).values() if QUEUES in self._kinds else ()
        found: dict[str, queues.Queue] = {queue.metadata.name: queue for queue in listed}
        while True:
            try:
                names = dict.fromkeys((*NATIVE, *(name for queue in found.values() for name in _entitled(queue))))
                free = Queue(BESIDE, resources=dict.fromkeys(names, Entitlement(UNLIMITED, UNLIMITED, 1.0)))
                return Tree([*(_queue(queue, names) for queue in found.values()), free])
            except QueueError as error:
                parent = found.pop(error.queue).spec.parent_queue
                left_out = isinstance(error, ParentMissing) and parent in self.wrong
                problem = f"its parent {parent!r} cannot be used" if left_out else error.problem
                self.wrong[error.queue] = problem
                log.error("a queue cannot be used", extra={"queue": error.queue, "error": problem})

    def unusable(self, queue: str) -> Refusal | None:
        """Why no pod of this queue is placed, whatever there is room for."""
        tree = self.tree
        if (problem := self.wrong.get(queue)) is not None:
            return Refusal.of("QueueInvalid", f"queue/{queue}", error=problem)
        if queue not in tree.queues:
            return Refusal.of("QueueMissing", f"queue/{queue}")
        if not tree.is_leaf(queue):
            children = sorted(each.name for each in tree.children[queue])
            return Refusal.of("QueueHasChildren", f"queue/{queue}", children=", ".join(children))
        return None

    def minima(self, field: str) -> dict[str, float]:
        """Min-runtimes by queue, of the queues that set one."""
        usable = [queue for name in self.tree.queues if (queue := self._world.get(QUEUES, name)) is not None]
        found = ((queue.metadata.name, queues.seconds(getattr(queue.spec, field))) for queue in usable)
        return {name: value for name, value in found if value is not None}

    # ----------------------------------------------------------------------------------------------------------- pods

    def put(self, pod: Pod) -> Job | None:
        """The pod is now this; answers its job, or None where no queue has to do with it."""
        place = self._place(pod)
        known = self._by_pod.get(pod.uid)
        if place is None:
            self.remove(pod.uid)
            return None
        key, queue = place
        if known is not None and known.key != key:
            self.remove(pod.uid)
            known = None
        job = known if known is not None else self._by_key.get(key)
        if job is None:
            self._last_number += 1
            job = self._by_key[key] = Job(key, queue, pod, self._last_number)
        before = job.pods.get(pod.uid)
        job.pods[pod.uid] = pod
        self._by_pod[pod.uid] = job
        self._stir(job)
        speaks = job.first.uid == pod.uid or _age(pod) < _age(job.first)
        if before is None or grouping.said(before) != grouping.said(pod):
            job.said += _said(pod)
            job.said -= _said(before)
            shifted = self._spoken_for(job, pod if speaks else job.first, queue if speaks else job.queue)
            self.shifted |= shifted and len(job.pods) > 1
        elif speaks:
            job.first, job.queue = pod, queue
        return job

    def _spoken_for(self, job: Job, first: Pod, queue: str) -> bool:
        """The job is described anew: its pods come and go, and say different things. Whether they count otherwise then."""
        before = job.queue, job.preemptible
        job.first, job.queue = first, queue
        self._describe(job)
        return before != (job.queue, job.preemptible)

    def remove(self, uid: str) -> Job | None:
        job = self._by_pod.pop(uid, None)
        if job is not None:
            job.said -= _said(job.pods.pop(uid, None))
            self.waits_no_more(job, uid)
            if job.pods:
                first = job.first if job.first.uid != uid else min(job.pods.values(), key=_age)
                place = self._place(first)
                self.shifted |= self._spoken_for(job, first, place[1] if place is not None else job.queue)
                self._stir(job)
            else:
                self._by_key.pop(job.key, None)
                self.stirred.pop(job.key, None)
        return job

    def group_changed(self, key: str) -> Job | None:
        job = self._by_key.get(key)
        if job is not None:
            self._describe(job)
            self._stir(job)
        return job

    def _place(self, pod: Pod) -> tuple[str, str] | None:
        """The key of the pod's job, and its queue."""
        annotations, labels, namespace = pod.metadata.annotations, pod.metadata.labels, pod.metadata.namespace
        queue = labels.get(queues.QUEUE_LABEL, "")
        named = annotations.get(queues.POD_GROUP_ANNOTATION, "")
        gang = True
        if named:
            key = f"{namespace}/{named}"
            group: queues.PodGroup | None = self._world.get(POD_GROUPS, key) if POD_GROUPS in self._kinds else None
            queue = (group.spec.queue if group is not None else "") or queue
        elif (core := pod.spec.scheduling_group) is not None and core.pod_group_name and CORE_POD_GROUPS in self._kinds:
            key = f"{namespace}{CORE}{core.pod_group_name}"
            own: queues.CorePodGroup | None = self._world.get(CORE_POD_GROUPS, f"{namespace}/{core.pod_group_name}")
            gang = own is None or grouping.together(own.spec)
        else:
            owner = pod.metadata.controller
            gang = owner is not None and queues.GANG_ANNOTATION in annotations
            key = f"{namespace}/{grouping.belongs_to(pod, owner)}" if gang and owner is not None else f"pod/{pod.uid}"
        if not queue:
            queue = queues.DEFAULT_QUEUE if queues.DEFAULT_QUEUE in self.tree.queues else BESIDE
            if queue == BESIDE and not gang:
                return None
        return key, queue

    def _describe(self, job: Job) -> None:
        """What its PodGroup says of the job; without one, what its pods say."""
        group: queues.PodGroup | None = self._world.get(POD_GROUPS, job.key) if POD_GROUPS in self._kinds else None
        pod = job.first
        priority = pod.spec.priority
        if group is None and pod.spec.scheduling_group is not None and CORE in job.key:
            self._describe_core(job, f"{pod.metadata.namespace}/{pod.spec.scheduling_group.pod_group_name}")
            return
        if group is None:
            job.missing, job.wrong = bool(pod.metadata.annotations.get(queues.POD_GROUP_ANNOTATION)), ""
            job.uid, job.created = pod.uid, created(pod)
            job.by_pods = not job.missing
            asked = queues.GANG_ANNOTATION in pod.metadata.annotations and pod.metadata.controller is not None and job.by_pods
            near = grouping.near(grouping.annotated(pod)) if asked else None
            job.root, job.subgroups = Part("", grouping.size_of(job.said) if asked else 1, near=near), False
            labels = pod.metadata.labels if job.queue != BESIDE else {}
            job.priority = self._priority(labels.get(queues.PRIORITY_LABEL, ""), priority)
            job.preemptible = is_preemptible(grouping.explicit(labels.get(queues.PREEMPTIBILITY_LABEL, "")), job.priority)
            return
        spec = group.spec
        job.missing, job.wrong, job.by_pods = False, queues.group_problem(spec), False
        job.queue = spec.queue or job.queue
        job.uid, job.created = group.metadata.uid, created(group)
        job.root, job.subgroups = grouping.parts(spec), bool(spec.sub_groups)
        job.priority = self._priority(spec.priority_class_name, priority)
        job.preemptible = is_preemptible(grouping.explicit(spec.preemptibility), job.priority)
        if not job.wrong:
            job.grace, job.delay = queues.seconds(spec.staleness_grace_period), queues.seconds(spec.preemption_delay) or 0.0
        said = group.metadata.annotations
        if not job.stale and (since := _time(said.get(queues.STALE_ANNOTATION, ""))) is not None:
            job.stale = {job.root.name: since}
        if job.last_start is None:
            job.last_start = _time(said.get(queues.LAST_START_ANNOTATION, ""))

    def _describe_core(self, job: Job, key: str) -> None:
        """As a PodGroup of Kubernetes says: its gang starts together; without one its pods go by themselves."""
        group: queues.CorePodGroup | None = self._world.get(CORE_POD_GROUPS, key)
        job.missing, job.by_pods = group is None, False
        if group is not None:
            gang = group.spec.scheduling_policy.gang
            keys = group.spec.scheduling_constraints.topology if group.spec.scheduling_constraints is not None else ()
            near = Near(required=keys[0].key) if keys and keys[0].key else None
            job.root = Part("", max(1, gang.min_count) if gang is not None else 1, near=near)
            job.uid, job.created = group.metadata.uid, created(group)
        priority = group.spec.priority if group is not None else None
        job.priority = priority if priority is not None else job.first.spec.priority or 0
        # Kubernetes knows no priority from which on nobody may be preempted.
        job.preemptible = True

    def _priority(self, name: str, of_pods: int | None) -> int:
        known = self._world.get(PRIORITY_CLASSES, name) if name and PRIORITY_CLASSES in self._world.kinds else None
        return known.value if known is not None else of_pods or 0

    # -------------------------------------------------------------------------------------------------------- amounts

    def holds(self, placed: Placed) -> Asked:
        """What a pod with a place takes of its queue."""
        return self.asks(placed.pod, placed.demand, placed.node, placed.given)

    def asks(self, pod: Pod, demand: Demand, node: str = "", given: Mapping[str, Given] = MappingProxyType({})) -> Asked:
        """What the pod takes of its queue: of cpu, memory and GPUs, and of what queues say besides. ``node``: where it is, if
        anywhere; ``given``: what its claims get there and do not show yet."""
        found: Amounts = dict.fromkeys(NATIVE, 0.0)
        others = self.tree.resources
        for name, value in demand.requests:
            if name in (CPU, MEMORY):
                found[name] += value
            elif (counted := _counted_as(name)) == GPU or counted in others:
                found[counted] = found.get(counted, 0.0) + value
        asked = Asked(found, {}, {}, [])
        for key in claim_keys(pod) if pod.spec.resource_claims else ():
            if (claim := self._world.get(RESOURCE_CLAIMS, key)) is None:
                asked.missing.append(key)
                continue
            # In a trial a claim may be given other devices than it shows.
            _, allocation = given.get(claim.uid) or (claim, claim.status.allocation)
            self._add_claim(asked, claim, allocation, node, others)
        self._add_extended(asked, pod, demand, node, given, others)
        return asked

    def _add_claim(
        self, asked: Asked, claim: ResourceClaim, allocation: AllocationResult | None, node: str, counted: Collection[str]
    ) -> None:
        if allocation is not None:
            asked.claims[claim.uid] = self.devices.given(claim, allocation, counted)
            return
        guess = self.devices.guess(claim, node, counted)
        asked.claims[claim.uid] = guess.expected
        if guess.least != guess.most:
            asked.between[claim.uid] = guess.least, guess.most

    def _add_extended(
        self, asked: Asked, pod: Pod, demand: Demand, node: str, given: Mapping[str, Given], counted: Collection[str]
    ) -> None:
        """What the claim for extended resources takes of counters and classes; what is asked for by name counts already. A pod
        without a node is going to have such a claim; of resources that some nodes offer themselves: perhaps."""
        claim, allocation = self._extended(pod, given, asked)
        if allocation is not None:
            asked.claims[claim.uid] = _but_named(self.devices.given(claim, allocation, counted), demand)
        elif not node and len(counted) > len(NATIVE) and (names := wanted_names(pod.spec, self.devices.classes)):
            claim = special_claim(pod, requests_for(pod.spec, names, self.devices.classes))
            expected, least, most = (_but_named(each, demand) for each in self.devices.guess(claim, "", counted))
            if not names.isdisjoint(self.devices.plugged):
                least = {}
            asked.claims[claim.uid] = expected
            if least != most:
                asked.between[claim.uid] = least, most

    def _extended(self, pod: Pod, given: Mapping[str, Given], asked: Asked) -> tuple[ResourceClaim, AllocationResult | None]:
        """The claim for the pod's extended resources, as it is or as it is going to be made."""
        status = pod.status.extended_resource_claim_status
        key = f"{pod.metadata.namespace}/{status.resource_claim_name}" if status is not None else ""
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key) if key else None
        if claim is not None and claim.status.allocation is not None:
            return claim, claim.status.allocation
        if key:
            asked.missing.append(key)
        # A claim that was made anew under its name is not among those that the pod has, and what it was given before is.
        others = (each for uid, each in given.items() if uid not in asked.claims)
        return next((each for each in others if is_special(each[0])), (ResourceClaim(), None))


def _but_named(amounts: Amounts, demand: Demand) -> Amounts:
    """Without what the pod asks for by name."""
    found = {name: value for name, value in amounts.items() if name != GPU}
    for name, value in demand.requests:
        if name.startswith(IMPLICIT_RESOURCE_PREFIX) and (known := _counted_as(name)) in found:
            found[known] = max(found[known] - value, 0.0)
    return found


def _counted_as(resource: str) -> str:
    """What a resource that a pod asks for is in a queue. A class that is asked for by its own name is that class."""
    if resource.startswith(IMPLICIT_RESOURCE_PREFIX):
        return resource_of(resource.removeprefix(IMPLICIT_RESOURCE_PREFIX))
    return GPU if resource == GPU_RESOURCE else resource


def _said(pod: Pod | None) -> Counter[str]:
    """The number of pods that start together, as the pod says it."""
    text = pod.metadata.annotations.get(queues.GANG_ANNOTATION) if pod is not None else None
    return Counter() if text is None else Counter((text,))


def _time(text: str) -> float | None:
    """Written by schedulers: one that cannot be read is none, and is written anew."""
    try:
        return parse_time(text)
    except ValueError:
        return None


def _queue(queue: queues.Queue, names: Iterable[str]) -> Queue:
    if problem := queues.queue_problem(queue):
        raise QueueError(problem, queue.metadata.name)
    priority = 100 if queue.spec.priority is None else queue.spec.priority
    own = _entitled(queue)
    resources = {name: own.get(name, UNRESTRICTED) for name in names}
    return Queue(queue.metadata.name, queue.spec.parent_queue, priority, created(queue), resources)


def _entitled(queue: queues.Queue) -> dict[str, Entitlement]:
    given = queue.spec.resources or queues.QueueResources()
    found = {
        CPU: _entitlement(given.cpu, 1.0),
        MEMORY: _entitlement(given.memory, float(queues.MEMORY_UNIT)),
        GPU: _entitlement(given.gpu, 1.0),
    }
    if text := queue.metadata.annotations.get(queues.RESOURCES_ANNOTATION):
        try:
            more = queues.entitlements(text)
        except ValueError as error:
            raise QueueError(str(error), queue.metadata.name) from None
        found |= {name: _entitlement(each, 1.0) for name, each in more.items()}
    return found


def _entitlement(given: queues.QueueResource, unit: float) -> Entitlement:
    def amount(value: float) -> float:
        return UNLIMITED if value < 0 else value * unit

    return Entitlement(amount(given.quota), amount(given.limit), given.over_quota_weight)
