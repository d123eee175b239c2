"""Who is served next: queues among siblings, jobs in a queue, pods in a job, parts of a job. Victims go in the reverse order.

Everything is decided by what is compared alone. Queues are compared in pairs, as KAI-Scheduler does; the others have keys.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from dray.queues.tree import UNLIMITED, Amounts, Queue

# What a queue counts as using of its share where it has none but uses some.
WITHOUT_SHARE: Final = 1000.0


Place = tuple[Any, ...]


class Standing(msgspec.Struct, frozen=True):
    """A queue as it is now. ``allocated`` is what its jobs hold, ``fixed`` the part of it that cannot be preempted."""

    queue: Queue
    allocated: Amounts = {}
    fair_share: Amounts = {}
    fixed: Amounts = {}

    def allocatable(self, resource: str) -> float:
        return self.queue.of(resource).allocatable(self.fair_share.get(resource, 0.0))


class Contender(msgspec.Struct, frozen=True):
    """A queue in the line: ``job`` is what its next job asks for, ``taken`` what victims of it would give back already."""

    standing: Standing
    job: Amounts = {}
    taken: Amounts = {}


def plus(amounts: Amounts, more: Amounts, sign: float = 1.0) -> dict[str, float]:
    return {name: amounts.get(name, 0.0) + sign * more.get(name, 0.0) for name in {**amounts, **more}}


def at_most(amount: float, bound: float) -> bool:
    return bound == UNLIMITED or amount <= bound


def above(amount: float, bound: float) -> bool:
    return bound != UNLIMITED and amount > bound


# ---------------------------------------------------------------------------------------------------------------- queues


def compare_places(left: tuple[Place, Standing], right: tuple[Place, Standing], total: Amounts) -> int:
    """Negative if ``left`` is served first. ``total`` is what the cluster has; its names are the resources that count."""
    if left[0] != right[0]:
        return -1 if left[0] < right[0] else 1
    if (weaker := _weaker(left[1], right[1], total)) != 0:
        return weaker
    ages = [(standing.queue.created, standing.queue.name) for _, standing in (left, right)]
    return -1 if ages[0] <= ages[1] else 1


def place_of(side: Contender, total: Amounts) -> Place:
    """What is compared first to last; smaller is served first."""
    standing, with_job = side.standing, plus(side.standing.allocated, side.job)
    queue, held = standing.queue, standing.allocated
    over_all = bool(total) and all(held.get(name, 0.0) > standing.fair_share.get(name, 0.0) for name in total)
    in_quota = all(at_most(with_job.get(name, 0.0), own.quota) for name in total if (own := queue.of(name)).binds)
    shareless = any(standing.allocatable(name) == 0 and with_job.get(name, 0.0) > 0 for name in total)
    expected = plus(with_job, side.taken, -1.0)
    return (
        over_all,
        not in_quota,
        -queue.priority,
        shareless,
        dominant_share(standing, expected, total),
        dominant_share(standing, held, total),
    )


def dominant_share(standing: Standing, held: Amounts, total: Amounts) -> float:
    """The largest part that the queue has of what it may have of a resource."""
    return max((_part(held.get(name, 0.0), standing.allocatable(name), total[name]) for name in total), default=0.0)


def _part(held: float, share: float, total: float) -> float:
    bound = total if share == UNLIMITED else share
    return held / bound if bound else held * WITHOUT_SHARE


def _weaker(left: Standing, right: Standing, total: Amounts) -> int:
    """The queue that may have less of something and more of nothing goes first."""
    pairs = [(left.allocatable(name), right.allocatable(name)) for name in total]
    if all(one == other for one, other in pairs):
        return 0
    if all(at_most(one, other) and not (one == UNLIMITED != other) for one, other in pairs):
        return -1
    if all(at_most(other, one) and not (other == UNLIMITED != one) for one, other in pairs):
        return 1
    return 0


# ------------------------------------------------------------------------------------------------------------------ jobs


class Fill(IntEnum):
    """How far a gang is: those below their minimum are served first, those above it last."""

    BELOW = 0
    AT = 1
    ABOVE = 2


def job_key(priority: int, fill: Fill, created: float, uid: str) -> tuple[Any, ...]:
    """Sorts the jobs of a queue: the smallest is served first, the largest is the first victim."""
    return -priority, fill, created, uid


def pod_key(task_priority: int, created: float, uid: str) -> tuple[Any, ...]:
    """Sorts the pods of a job."""
    return -task_priority, created, uid


def part_key(name: str, active: int, minimum: int, satisfied: bool) -> tuple[Any, ...]:
    """Sorts the parts of a gang: what is still missing first, then what has a minimum at all, then what is filled least."""
    ratio = active / minimum if minimum else float(active)
    return satisfied, not minimum, ratio, name
