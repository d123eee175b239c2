"""Who may take from whom: limits and quotas before a job starts, reclaim between queues, and how long a job is left alone.

Answers are None (allowed) or a ``Denial`` that names the rule, the queue and, where one decides, the resource; of several
the first by name, so that the same is told in whatever order they were counted. A queue is judged by what it had when the attempt
began; each block of victims is asked for before it is taken, so the last may go below the share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from dray.queues.order import Standing, above, at_most, plus
from dray.queues.tree import UNLIMITED, Amounts, Tree

Rule = Literal[
    "limit", "quota of what cannot be preempted", "fair share of the reclaimer", "share of the victim", "saturation of siblings"
]


class Denial(NamedTuple):
    rule: Rule
    queue: str
    resource: str = ""


class Reclaimer(msgspec.Struct, frozen=True):
    """The job that wants room: its leaf queue and what its next pods ask for."""

    queue: str
    request: Amounts
    preemptible: bool = True


Standings = Mapping[str, Standing]


# --------------------------------------------------------------------------------------------------------- before placing


def may_start(job: Reclaimer, tree: Tree, standings: Standings) -> Denial | None:
    """Limits of the queue and all above it; for what cannot be preempted also their quotas. Fair share is not asked."""
    for queue in tree.upwards(job.queue):
        standing = standings[queue.name]
        for resource, amount in sorted(job.request.items()):
            if amount > 0 and not at_most(standing.allocated.get(resource, 0.0) + amount, queue.of(resource).limit):
                return Denial("limit", queue.name, resource)
    return None if job.preemptible else _fixed_within_quota(job, tree, standings)


def _fixed_within_quota(job: Reclaimer, tree: Tree, standings: Standings) -> Denial | None:
    for queue in tree.upwards(job.queue):
        fixed = standings[queue.name].fixed
        for resource, amount in sorted(job.request.items()):
            own = queue.of(resource)
            if amount > 0 and own.binds and not at_most(fixed.get(resource, 0.0) + amount, own.quota):
                return Denial("quota of what cannot be preempted", queue.name, resource)
    return None


# ----------------------------------------------------------------------------------------------------------------- reclaim


def may_reclaim(job: Reclaimer, standings: Standings) -> Denial | None:
    """Whether the job may look for victims at all: its own queue stays within its fair share of everything that it says something
    of."""
    standing = standings[job.queue]
    wanted = plus(standing.allocated, job.request)
    # What the job asks for comes first: that is what can be told to whoever asked.
    for resource in sorted(wanted, key=lambda name: (job.request.get(name, 0.0) <= 0, name)):
        if standing.queue.of(resource).binds and wanted[resource] > standing.fair_share.get(resource, 0.0):
            return Denial("fair share of the reclaimer", job.queue, resource)
    if not job.preemptible:
        for resource, amount in sorted(plus(standing.fixed, job.request).items()):
            own = standing.queue.of(resource)
            if own.binds and not at_most(amount, own.quota):
                return Denial("quota of what cannot be preempted", job.queue, resource)
    return None


def is_guaranteed(job: Reclaimer, standings: Standings) -> bool:
    """Whether the quota of the job's own queue covers what it asks for. One that is unlimited guarantees nothing: all may have
    it."""
    standing, asked = standings[job.queue], [name for name, amount in job.request.items() if amount > 0]
    wanted = plus(standing.allocated, job.request)
    quotas = {name: own.quota for name in asked if (own := standing.queue.of(name)).binds and own.quota != UNLIMITED}
    return bool(quotas) and all(wanted[name] <= quota for name, quota in quotas.items())


def is_candidate(job: Reclaimer, victim: str, tree: Tree, standings: Standings) -> bool:
    """Whether jobs of the victim's queue are worth a try, judged where the ways to the two queues part."""
    if victim == job.queue:
        return False
    mine, theirs = (standings[queue.name] for queue in tree.apart(job.queue, victim))
    if not _within_quota(mine, job.request):
        return any(above(amount, theirs.allocatable(name)) for name, amount in theirs.allocated.items())
    asked = [name for name, amount in job.request.items() if amount > 0 and theirs.queue.of(name).quota != UNLIMITED]
    held = [(theirs.allocated.get(name, 0.0), theirs.queue.of(name).quota) for name in asked]
    return any(amount > quota for amount, quota in held) or all(amount >= quota for amount, quota in held)


def may_lose(job: Reclaimer, victim: str, tree: Tree, standings: Standings) -> bool:
    """Whether the job may take anything from the queue at all: what may not be taken first may not be taken later."""
    return Losses(job, tree, standings).take(victim, {}) is None


def may_take(job: Reclaimer, blocks: Iterable[tuple[str, Amounts]], tree: Tree, standings: Standings) -> Denial | None:
    """Whether the job may take these blocks, each from a leaf queue, in this order: a pod of an elastic surplus, or the core
    of a gang as a whole. What finds another place is not to be among them."""
    losses = Losses(job, tree, standings)
    for victim, block in blocks:
        if (denied := losses.take(victim, block)) is not None:
            return denied
    asked, taken = job.request, losses.taken
    involved = [name for name in sorted({**asked, **taken}) if asked.get(name, 0.0) > 0 or taken.get(name, 0.0) > 0]
    if (denied := _siblings_stay_fuller(job, involved, losses.left, tree, standings)) is not None:
        return denied
    return None if job.preemptible else _fixed_within_quota(job, tree, standings)


class Losses:
    """What queues have left while a job takes blocks from them, one after the other. Of blocks that may be taken in an order,
    any may be left out."""

    def __init__(self, job: Reclaimer, tree: Tree, standings: Standings) -> None:
        self._job, self._tree, self._standings = job, tree, standings
        self.left: dict[str, Amounts] = {name: standing.allocated for name, standing in standings.items()}
        self.taken: Amounts = {}

    def take(self, victim: str, block: Amounts) -> Denial | None:
        """Whether the queue may not lose the block any more; else it has."""
        denied = _may_lose(self._job, victim, self.left, self._tree, self._standings)
        if denied is None:
            for queue in self._tree.upwards(victim):
                self.left[queue.name] = plus(self.left[queue.name], block, -1.0)
            self.taken = plus(self.taken, block)
        return denied


def _may_lose(job: Reclaimer, victim: str, left: Mapping[str, Amounts], tree: Tree, standings: Standings) -> Denial | None:
    mine, theirs = (standings[queue.name] for queue in tree.apart(job.queue, victim))
    has = left[theirs.queue.name]
    if any(above(amount, theirs.allocatable(name)) for name, amount in has.items()):
        return None
    if _within_quota(mine, job.request) and any(above(amount, theirs.queue.of(name).quota) for name, amount in has.items()):
        return None
    return Denial("share of the victim", theirs.queue.name)


def _within_quota(standing: Standing, request: Amounts) -> bool:
    wanted = plus(standing.allocated, request)
    return all(at_most(amount, own.quota) for name, amount in wanted.items() if (own := standing.queue.of(name)).binds)


def _siblings_stay_fuller(
    job: Reclaimer,
    involved: Sequence[str],
    left: Mapping[str, Amounts],
    tree: Tree,
    standings: Standings,
) -> Denial | None:
    """Beyond its fair share, no level of the reclaimer may become fuller than a sibling that it takes from."""
    for queue in tree.upwards(job.queue):
        with_job = plus(left[queue.name], job.request)
        for resource in (each for each in involved if queue.of(each).binds):
            ratio = saturation(with_job.get(resource, 0.0), standings[queue.name].fair_share.get(resource, 0.0))
            if ratio <= 1:
                continue
            for sibling in tree.children[queue.parent]:
                theirs = standings[sibling.name]
                lost = sibling.name != queue.name and left[sibling.name] != theirs.allocated
                share = theirs.fair_share.get(resource, 0.0)
                if lost and share > 0 and ratio >= saturation(left[sibling.name].get(resource, 0.0), share):
                    return Denial("saturation of siblings", queue.name, resource)
    return None


def saturation(held: float, share: float) -> float:
    if share:
        return held / share
    return math.inf if held > 0 else 0.0


# ------------------------------------------------------------------------------------------------------------ min-runtime


def preempt_min_runtime(victim: str, tree: Tree, minima: Mapping[str, float]) -> float:
    """How long a job is safe from jobs of its own queue: the first value on the way up from its queue."""
    return next((minima[queue.name] for queue in tree.upwards(victim) if queue.name in minima), 0.0)


def reclaim_min_runtime(reclaimer: str, victim: str, tree: Tree, minima: Mapping[str, float]) -> float:
    """How long a job is safe from jobs of another queue: the first value from where the ways part upwards; between trees,
    only that of the victim's top queue."""
    _, theirs = tree.apart(reclaimer, victim)
    return preempt_min_runtime(theirs.name, tree, minima)


def is_protected(now: float, last_start: float | None, minimum: float) -> bool:
    """A job that is protected gives at most its elastic surplus."""
    return last_start is not None and now < last_start + minimum
