"""The account of queues: what the pods of each queue hold, and what of that cannot be preempted.

Always true: it follows the account of nodes, in trials too, so it needs no undo of its own; a queue has what the queues below it
have. A pod that is leaving holds its node, but its queue nothing any more. What is held beside queues is kept too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from dray.books.nodes import Placed
from dray.queues.order import Standing
from dray.queues.shares import fair_shares
from dray.queues.tree import Tree, with_requests
from dray.scheduling.workloads.jobs import Amounts, Jobs


class QueueUse:
    """``allocated`` and ``fixed`` by queue; ``beside`` is what pods of no queue hold."""

    def __init__(self, jobs: Jobs, evicted: Callable[[str], object]) -> None:
        """``evicted``: whether a pod is being evicted, by uid."""
        self._jobs, self._evicted = jobs, evicted
        self.allocated: dict[str, Amounts] = {}
        self.fixed: dict[str, Amounts] = {}
        self.beside: Amounts = {}
        self._paths: dict[str, list[str]] = {}
        self._charged: dict[str, tuple[list[str], Amounts, bool]] = {}
        self.changed: set[str] = set()

    def rebuild(self, placed: Iterable[Placed]) -> None:
        """Queues, or whose pods are whose, changed."""
        tree = self._jobs.tree
        self._paths = {name: [queue.name for queue in tree.upwards(name)] for name in tree.queues}
        self.allocated = {name: dict.fromkeys(queue.resources, 0.0) for name, queue in tree.queues.items()}
        self.fixed = {name: dict.fromkeys(queue.resources, 0.0) for name, queue in tree.queues.items()}
        self.beside, self._charged = {}, {}
        self.changed.update(self._paths)
        for each in placed:
            self.came(each)

    def came(self, placed: Placed) -> None:
        job = self._jobs.of(placed.pod.uid)
        if job is not None and (placed.leaving or self._evicted(placed.pod.uid)):
            return
        path = self._paths.get(job.queue, []) if job is not None else []
        amounts = self._jobs.asks(placed.pod, placed.demand)
        charge = self._charged[placed.pod.uid] = (path, amounts, job is not None and not job.preemptible)
        self._add(charge, 1.0)

    def left(self, placed: Placed) -> None:
        charge = self._charged.pop(placed.pod.uid, None)
        if charge is not None:
            self._add(charge, -1.0)

    def look_again(self, placed: Placed) -> None:
        """Whether the pod is being evicted is not what it was."""
        self.left(placed)
        self.came(placed)

    def _add(self, charge: tuple[list[str], Amounts, bool], sign: float) -> None:
        path, amounts, fixed = charge
        if not path:
            _sum(self.beside, amounts, sign)
            return
        self.changed.update(path)
        for name in path:
            _sum(self.allocated[name], amounts, sign)
            if fixed:
                _sum(self.fixed[name], amounts, sign)

    def amounts_of(self, uid: str) -> Amounts:
        charge = self._charged.get(uid)
        return charge[1] if charge is not None else {}


def _sum(into: Amounts, amounts: Amounts, sign: float) -> None:
    for name, value in amounts.items():
        if value:
            into[name] = into.get(name, 0.0) + sign * value


class Standings(Mapping[str, Standing]):
    """Every queue as it is now; fair shares as they were when the session began."""

    def __init__(self, tree: Tree, use: QueueUse, shares: Mapping[str, Amounts]) -> None:
        self._tree, self._use, self._shares = tree, use, shares

    def __getitem__(self, name: str) -> Standing:
        return Standing(self._tree[name], self._use.allocated[name], self._shares[name], self._use.fixed[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree.queues)

    def __len__(self) -> int:
        return len(self._tree.queues)

    def frozen(self) -> dict[str, Standing]:
        """As they are at this moment, whatever is tried later."""
        found = {}
        for name in self._tree.queues:
            held, fixed = dict(self._use.allocated[name]), dict(self._use.fixed[name])
            found[name] = Standing(self._tree[name], held, self._shares[name], fixed)
        return found


def shares_of(total: Amounts, tree: Tree, use: QueueUse, pending: Mapping[str, Amounts]) -> dict[str, Amounts]:
    """What each queue deserves now: of what it holds and waits for."""
    requested: dict[str, Amounts] = {}
    for name in tree.queues:
        if tree.is_leaf(name):
            amounts = requested[name] = dict(use.allocated[name])
            _sum(amounts, pending.get(name, {}), 1.0)
    return fair_shares(total, with_requests(tree, requested))
