"""The tree of queues, and what each of them is entitled to of each resource.

Amounts are plain numbers in whatever unit a resource has: milli-cores, bytes, devices of a class, units of a counter. Nothing
here knows which resources there are: a resource that a queue says nothing about is one that it may not use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

Amounts = Mapping[str, float]

UNLIMITED: Final = -1.0


class Entitlement(msgspec.Struct, frozen=True):
    """``quota`` is guaranteed, ``limit`` is never exceeded, ``weight`` counts when what nobody is guaranteed is divided; -1 is
    unlimited. ``requested`` is what the queue uses and wants; ``usage`` what it used lately, as a part of the cluster. ``binds``:
    whether the queue itself says something of the resource; if only others do, it has a share and is not measured by it."""

    quota: float = 0.0
    limit: float = 0.0
    weight: float = 0.0
    requested: float = 0.0
    usage: float = 0.0
    binds: bool = True

    @property
    def requestable(self) -> float:
        return self.requested if self.limit == UNLIMITED else min(self.limit, self.requested)

    def allocatable(self, fair_share: float) -> float:
        """What the queue may come to use: more than its fair share only as far as its quota goes, never more than its limit."""
        if self.quota == UNLIMITED:
            return self.limit
        share = max(self.quota, fair_share)
        return share if self.limit == UNLIMITED else min(self.limit, share)


NOTHING: Final = Entitlement()


class Queue(msgspec.Struct, frozen=True):
    """``created`` orders queues by age: smaller is older."""

    name: str
    parent: str = ""
    priority: int = 100
    created: float = 0.0
    resources: Mapping[str, Entitlement] = {}

    def of(self, resource: str) -> Entitlement:
        return self.resources.get(resource, NOTHING)


class QueueError(ValueError):
    """Queues cannot be used as they are: ``problem`` says why, ``queue`` of which one, where it is one."""

    def __init__(self, problem: str, queue: str = "") -> None:
        super().__init__(f"queue {queue!r}: {problem}" if queue else problem)
        self.problem, self.queue = problem, queue


class ParentMissing(QueueError):
    """Nothing is wrong with the queue itself, but that it is in no tree."""


class Tree:
    """Queues by name. Always a forest: every queue has a name, every parent exists, nobody is its own ancestor."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues: dict[str, Queue] = {}
        self.children: dict[str, list[Queue]] = {}
        for queue in queues:
            if not queue.name:
                raise QueueError("a queue has no name")
            if queue.name in self.queues:
                raise QueueError("it is given twice", queue.name)
            self.queues[queue.name] = queue
            self.children.setdefault(queue.parent, []).append(queue)
        for queue in self.queues.values():
            if queue.parent and queue.parent not in self.queues:
                raise ParentMissing(f"parent {queue.parent!r} does not exist", queue.name)
        if unreached := self.queues.keys() - {queue.name for queue in self.downwards()}:
            loop = self._loop(min(unreached))
            raise QueueError(f"it is its own ancestor: {' below '.join((*loop, loop[0]))}", loop[0])

    def _loop(self, name: str) -> list[str]:
        """The queues that go round, from one that no top-level queue leads to; each below the next, the first by name first."""
        above: list[str] = []
        while name not in above:
            above.append(name)
            name = self.queues[name].parent
        loop = above[above.index(name) :]
        first = loop.index(min(loop))
        return loop[first:] + loop[:first]

    def __getitem__(self, name: str) -> Queue:
        return self.queues[name]

    def is_leaf(self, name: str) -> bool:
        return name not in self.children

    def downwards(self) -> Iterator[Queue]:
        """Every queue that a top-level queue leads to, parents before their children."""
        waiting = list(self.children.get("", ()))
        for queue in waiting:
            yield queue
            waiting.extend(self.children.get(queue.name, ()))

    def upwards(self, name: str) -> list[Queue]:
        """The queue and its ancestors, the topmost last."""
        found = [self.queues[name]]
        while found[-1].parent:
            found.append(self.queues[found[-1].parent])
        return found

    def apart(self, first: str, second: str) -> tuple[Queue, Queue]:
        """Where the ways down to two queues part: what each goes through just below the last that both have in common. If one
        way ends before they part, both are that last."""
        pair = self.queues[first], self.queues[second]
        for pair in zip(reversed(self.upwards(first)), reversed(self.upwards(second)), strict=False):
            if pair[0].name != pair[1].name:
                break
        return pair

    @cached_property
    def resources(self) -> list[str]:
        """What queues say something about. Asked with every pod."""
        return sorted({resource for queue in self.queues.values() for resource in queue.resources})


def with_requests(tree: Tree, requested: Mapping[str, Amounts]) -> Tree:
    """The same queues with these requests of leaves; parents get the sum of all below them."""
    sums: dict[str, dict[str, float]] = {name: {} for name in tree.queues}
    for name, amounts in requested.items():
        for queue in tree.upwards(name):
            for resource, amount in amounts.items():
                sums[queue.name][resource] = sums[queue.name].get(resource, 0.0) + amount
    return Tree(_requesting(queue, sums[queue.name]) for queue in tree.queues.values())


def _requesting(queue: Queue, requested: Amounts) -> Queue:
    names = dict.fromkeys((*queue.resources, *requested))
    changed: dict[str, Any] = {
        name: msgspec.structs.replace(queue.of(name), requested=requested.get(name, 0.0)) for name in names
    }
    return msgspec.structs.replace(queue, resources=changed)
