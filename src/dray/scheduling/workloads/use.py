"""The account of queues: what the pods of each queue hold, and what of that cannot be preempted.

Always true: it follows the account of nodes, in trials too, so it needs no undo of its own; a queue has what the queues below it
have. A pod that is leaving holds its node, but its queue nothing any more; in a trial, one that leaves for another place holds
that. What is held beside queues is kept too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.books.changes import EVERYTHING, ChangeLog
from dray.books.nodes import Placed
from dray.queues.order import Standing, at_most
from dray.queues.shares import fair_shares
from dray.queues.tree import Tree, with_requests
from dray.scheduling.workloads.asked import Amounts, Asked, add, together
from dray.scheduling.workloads.jobs import Job, Jobs, created

# Before that of pods that are younger.
Age = tuple[float, str, str]


class Charge(NamedTuple):
    """What a pod holds and on which node, the queues from its own to the top, whether it cannot be preempted, and its age."""

    path: list[str]
    asked: Asked
    fixed: bool
    node: str
    age: Age


class QueueUse:
    """``allocated`` and ``fixed`` by queue; ``beside`` is what pods of no queue hold, by node, and ``beside_all`` in all."""

    def __init__(self, jobs: Jobs, evicted: Callable[[str], object]) -> None:
        """``evicted``: whether a pod is being evicted, by uid."""
        self._jobs, self._evicted = jobs, evicted
        self.allocated: dict[str, Amounts] = {}
        self.fixed: dict[str, Amounts] = {}
        self.beside: dict[str, Amounts] = {}
        self.beside_all: Amounts = {}
        self._paths: dict[str, list[str]] = {}
        self._charged: dict[str, Charge] = {}
        # By claim: the pods that use it; the oldest of them pays, so that it does not matter who was seen first.
        self.claims: dict[str, set[str]] = {}
        # By key of a claim that does not count yet: the pods that name it.
        self._missing: dict[str, set[str]] = {}
        # Names of queues that hold something else than before, also in a trial, for whoever keeps what follows from it.
        self.log = ChangeLog()

    def rebuild(self, placed: Iterable[Placed]) -> None:
        """Queues, or whose pods are whose, changed."""
        tree = self._jobs.tree
        self._paths = {name: [queue.name for queue in tree.upwards(name)] for name in tree.queues}
        self.allocated = {name: dict.fromkeys(queue.resources, 0.0) for name, queue in tree.queues.items()}
        self.fixed = {name: dict.fromkeys(queue.resources, 0.0) for name, queue in tree.queues.items()}
        self.beside, self.beside_all, self._charged, self.claims, self._missing = {}, {}, {}, {}, {}
        self.log.note(EVERYTHING)
        for each in placed:
            self.came(each)

    def came(self, placed: Placed) -> None:
        job = self._jobs.of(placed.pod.uid)
        if job is not None and (placed.leaving or (placed.standing != "promised" and self._evicted(placed.pod.uid))):
            return
        path = self._path_of(placed.pod.uid)
        asked = self._jobs.holds(placed)
        fixed = job is not None and not job.preemptible
        charge = self._charged[placed.pod.uid] = Charge(path, asked, fixed, placed.node, _age(placed.pod))
        self._add(charge, asked.own, 1.0)
        for claim in asked.claims:
            self._use(claim, lambda users: users.add(placed.pod.uid))
        for key in asked.missing:
            self._missing.setdefault(key, set()).add(placed.pod.uid)

    def left(self, placed: Placed) -> None:
        charge = self._charged.get(placed.pod.uid)
        if charge is not None:
            self._add(charge, charge.asked.own, -1.0)
            for claim in charge.asked.claims:
                self._use(claim, lambda users: users.discard(placed.pod.uid))
            for key in charge.asked.missing:
                self._missing[key].discard(placed.pod.uid)
                if not self._missing[key]:
                    del self._missing[key]
            del self._charged[placed.pod.uid]

    def users(self, claim: ResourceClaim) -> set[str]:
        """The pods (uid) that count with the claim, or will as soon as it counts."""
        return {*self.claims.get(claim.uid, ()), *self._missing.get(claim.key, ())}

    def _use(self, claim: str, change: Callable[[set[str]], None]) -> None:
        """Others use the claim than before: whoever pays for it then."""
        users = self.claims.setdefault(claim, set())
        self._pay(claim, users, -1.0)
        change(users)
        self._pay(claim, users, 1.0)
        if not users:
            del self.claims[claim]

    def _pay(self, claim: str, users: set[str], sign: float) -> None:
        if users:
            charge = self._payer(users)
            self._add(charge, charge.asked.claims[claim], sign)

    def _payer(self, users: AbstractSet[str]) -> Charge:
        return min((self._charged[uid] for uid in users), key=lambda charge: charge.age)

    def paid(self, asking: Iterable[tuple[Pod, Asked]], own: AbstractSet[str] = frozenset()) -> Container[str]:
        """Claims that cost the queues of these pods nothing more, because others use them, and go on paying for them when these
        pods use them, too. ``own``: pods that are not among the others."""
        over = set[str]()
        for pod, asked in asking:
            for claim in asked.claims:
                if (others := self.claims.get(claim, own) - own) and _age(pod) < (payer := self._payer(others)).age:
                    over.update({claim} if payer.path != self._path_of(pod.uid) else ())
        if not own and not over:
            return self.claims
        return {claim for claim, users in self.claims.items() if claim not in over and users - own}

    def _path_of(self, uid: str) -> list[str]:
        job = self._jobs.of(uid)
        return self._paths.get(job.queue, []) if job is not None else []

    def with_claims(self) -> list[tuple[str, list[str]]]:
        """Who counts with claims, and with which."""
        return [(uid, list(charge.asked.claims)) for uid, charge in self._charged.items() if charge.asked.claims]

    def freed(self, pods: Iterable[Placed], gone: AbstractSet[str] = frozenset()) -> Amounts:
        """What queues have no more when these pods leave: claims that others use too stay, but for those that are ``gone`` then,
        by uid."""
        pods = list(pods)
        own = {placed.pod.uid for placed in pods}
        asked = list(map(self._jobs.holds, pods))
        stay = {claim for each in asked for claim in each.claims if self.claims.get(claim, own) - own - gone}
        return together(asked, stay)

    def freed_in_turn(self, steps: Sequence[Sequence[Placed]]) -> list[Amounts]:
        """The same for all of these, who leave one after the other, or have left in a trial: a claim goes with the last that
        uses it."""
        going = {placed.pod.uid for pods in steps for placed in pods}
        asked = [list(map(self._jobs.holds, pods)) for pods in steps]
        last = {claim: turn for turn, each in enumerate(asked) for pod in each for claim in pod.claims}
        stay = {claim for claim in last if self.claims.get(claim, going) - going}
        return [
            together(each, stay | {claim for pod in each for claim in pod.claims if last[claim] > turn})
            for turn, each in enumerate(asked)
        ]

    def sharers(self, pods: Iterable[Placed]) -> set[str]:
        """Who uses claims of these pods, by uid: as long as one of them stays, so do the claims."""
        claims = {claim for placed in pods for claim in self._jobs.holds(placed).claims}
        return {uid for claim in claims for uid in self.claims.get(claim, ())}

    def within_limits(self, job: Job) -> bool:
        """Whether the queues of a job that runs keep to their limits."""
        queues = ((queue, self.allocated[queue.name]) for queue in self._jobs.tree.upwards(job.queue))
        return all(at_most(amount, queue.of(name).limit) for queue, held in queues for name, amount in held.items())

    def look_again(self, placed: Placed) -> None:
        """Whether the pod is being evicted is not what it was."""
        self.left(placed)
        self.came(placed)

    def snapshot(self) -> dict[str, object]:
        """Everything counted, comparable."""
        queues = {f"{name} ({what})": _rounded(held) for what, each in self._sums() for name, held in each.items()}
        return {**queues, "claims": {claim: frozenset(users) for claim, users in self.claims.items()}}

    def _sums(self) -> tuple[tuple[str, dict[str, Amounts]], ...]:
        return ("all", self.allocated), ("fixed", self.fixed), ("beside queues", {**self.beside, "": self.beside_all})

    def _add(self, charge: Charge, amounts: Amounts, sign: float) -> None:
        if not charge.path:
            self._beside(charge.node, amounts, sign)
            return
        for name in charge.path:
            self.log.note(name)
            add(self.allocated[name], amounts, sign)
            if charge.fixed:
                add(self.fixed[name], amounts, sign)

    def _beside(self, node: str, amounts: Amounts, sign: float) -> None:
        held = self.beside.setdefault(node, {})
        for each in (held, self.beside_all):
            add(each, amounts, sign)
        if not any(held.values()):
            del self.beside[node]
            if not self.beside:
                self.beside_all.clear()


class Standings(Mapping[str, Standing]):
    """Every queue as it is now; fair shares as they were when the session began."""

    def __init__(self, tree: Tree, use: QueueUse, shares: Mapping[str, Amounts]) -> None:
        self._tree, self._use, self._shares = tree, use, shares
        # Of which queues it is something else than before.
        self.log = use.log

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
    """What each queue deserves now: of what it holds and waits for. Pods that started before it had queues below it still count
    for it."""
    requested: dict[str, Amounts] = {}
    for name in tree.queues:
        amounts = requested[name] = dict(use.allocated[name])
        add(amounts, pending.get(name, {}))
        for child in tree.children.get(name, ()):
            add(amounts, use.allocated[child.name], -1.0)
        if not tree.is_leaf(name):
            requested[name] = _rounded(amounts)
    return fair_shares(total, with_requests(tree, requested))


def _age(pod: Pod) -> Age:
    return created(pod), pod.key, pod.uid


def _rounded(amounts: Amounts) -> Amounts:
    return {name: round(value, 6) for name, value in amounts.items() if round(value, 6)}
