"""Fair shares: how much of each resource each queue deserves now, exactly as KAI-Scheduler computes it.

Each resource is divided by itself: among the top-level queues what the cluster has, then among the children of each queue what
that queue got. First everybody gets the quota, as far as it is requested. What is left goes to those who want more, by priority,
then in proportion to their weights; who cannot get all that it wants gets whole units. Of the units that are left over then,
those whose part was cut most get one each.

Always true: a share exceeds what its queue can request by less than one unit, and only where the request itself is not whole; the
order in which queues are given decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dray.queues.tree import UNLIMITED, Amounts, Entitlement, Queue, Tree

Shares = dict[str, dict[str, float]]


def fair_shares(total: Amounts, tree: Tree, k: float = 1.0) -> Shares:
    """The share of each queue in each resource. ``k`` is how much past usage counts."""
    shares: Shares = {name: {} for name in tree.queues}
    for resource in sorted({*total, *tree.resources}):
        _divide_below("", float(total.get(resource, 0.0)), resource, tree, k, shares)
    return shares


def _divide_below(parent: str, amount: float, resource: str, tree: Tree, k: float, shares: Shares) -> None:
    waiting = [(parent, amount)]
    for name, share in waiting:
        for child, part in divide(share, tree.children.get(name, ()), resource, k).items():
            shares[child][resource] = part
            waiting.append((child, part))


def divide(total: float, queues: Sequence[Queue], resource: str, k: float) -> dict[str, float]:
    """One resource among siblings, by name."""
    shares: dict[str, float] = {}
    left = total
    for queue in queues:
        wants = queue.of(resource)
        quota = total if wants.quota == UNLIMITED else wants.quota
        shares[queue.name] = min(quota, wants.requestable)
        left -= shares[queue.name]
    if left > 0:
        _divide_rest(left, queues, resource, k, shares)
    return shares


def _divide_rest(left: float, queues: Sequence[Queue], resource: str, k: float, shares: dict[str, float]) -> None:
    cut: dict[str, float] = {}
    priorities = sorted({queue.priority for queue in queues}, reverse=True)
    groups = [[queue for queue in queues if queue.priority == priority] for priority in priorities]
    for group in groups:
        left = _by_weight(left, {queue.name: queue.of(resource) for queue in group}, k, shares, cut)
    for group in groups:
        for queue in _most_cut(group, cut):
            if left <= 0:
                return
            given = min(1.0, left)
            shares[queue.name] += given
            left -= given


def _most_cut(group: Sequence[Queue], cut: Mapping[str, float]) -> list[Queue]:
    remembered = (queue for queue in group if queue.name in cut)
    return sorted(remembered, key=lambda queue: (-cut[queue.name], queue.created, queue.name))


def _by_weight(
    left: float, queues: Mapping[str, Entitlement], k: float, shares: dict[str, float], cut: dict[str, float]
) -> float:
    """Rounds among queues of one priority, until in one nobody wanted less than its part. Returns what is left."""
    again = True
    while again and left > 0:
        again = False
        weights = _share_weights(queues, shares, k)
        everything = math.fsum(weights.values())
        if everything <= 0:
            break
        in_this_round = left
        for name, weight in weights.items():
            part = in_this_round * (weight / everything)
            wanted = queues[name].requestable - shares[name]
            given = wanted if wanted <= part else float(math.floor(part))
            again = again or wanted < part
            if wanted <= part:
                cut.pop(name, None)
            elif part > given:
                cut[name] = part - given
            shares[name] += given
            left -= given
    return left


def _share_weights(queues: Mapping[str, Entitlement], shares: Mapping[str, float], k: float) -> dict[str, float]:
    """How what is left is divided: by weight, less for who used much lately; those who get nothing are left out."""
    hungry = {name: wants for name, wants in queues.items() if not _satisfied(wants, shares[name])}
    total = math.fsum(wants.weight for wants in hungry.values())
    if total <= 0:
        return {}
    parts = {name: (wants.weight / total, wants.usage) for name, wants in hungry.items() if wants.weight > 0}
    weights = {name: max(0.0, part + k * (part - usage)) for name, (part, usage) in parts.items()}
    return {name: weight for name, weight in weights.items() if weight > 0}


def _satisfied(wants: Entitlement, share: float) -> bool:
    return wants.requested <= share or (wants.limit != UNLIMITED and share >= wants.limit)
