"""What nobody can help when people edit claims by hand: pods that are bound with a claim that was taken from them.

The API has no precondition across objects: a bind says of which pod it is, and not that its claims are still what the scheduler
saw. So a claim that is cleared, unreserved or made anew by hand before its pod is bound, and of which the scheduler has not
been told when it decides to bind, leaves a pod that is bound without what it needs; and so does one that is taken from a pod
that is bound. Such a pod never starts, or runs with a claim that is no longer its own. That alone is excused: ``never starts``
of the pod, and the rule ``pod-claim`` of it and this claim, from then on until the pod is gone.

Always true: only who lost the reservation of a claim by an action of the scenario itself is excused. What a scheduler binds
that had been told of the edit is its fault, and so is what controllers, kubelets and the scheduler take away by themselves: a
claim that somebody deletes stays, by its finalizer, for as long as a pod runs with it. Two owners, leaks, errors of deciders
and silence about pods that wait are never excused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.cluster.metrics import Meter
from dray.cluster.port import Decider, Write
from dray.cluster.world import World
from dray.runtime.virtual import Written
from dray.simulate.run import Simulation
from dray.simulate.scenario import Action, Scenario

Plain = dict[str, Any]

NEVER_STARTS: Final = "never starts"
POD_CLAIM: Final = "pod-claim"


class Loss(msgspec.Struct, frozen=True):
    """Of a claim, by hand; ``version`` is the first in which it is so."""

    claim: str
    version: int


class Excuse(msgspec.Struct):
    pod: str
    claims: set[str]
    since: float
    until: float = math.inf


class Run(Protocol):
    """A simulation, as far as edits and binds are followed."""

    by_hand: bool

    @property
    def elapsed(self) -> float: ...

    def follow(self, listener: Callable[[str, str, bytes | None], None]) -> None: ...

    def listen(self, listener: Callable[[Written], None]) -> None: ...

    def told(self, binding: Write) -> dict[str, float]: ...


class Observed(Simulation):
    """A simulation of which is known what the scheduler had been told when it decided to bind, and what is done by hand."""

    def __init__(self, scenario: Scenario, meter: Meter | None = None, check_every: float | None = None) -> None:
        self.by_hand = False
        self._told: dict[int, tuple[Write, dict[str, float]]] = {}  # by binding: the versions of its claims
        super().__init__(scenario, meter, check_every)

    def told(self, binding: Write) -> dict[str, float]:
        """The versions of the claims that the scheduler knew when it decided on this."""
        return self._told[id(binding)][1]

    def _do(self, action: Action) -> None:
        self.by_hand = True
        try:
            super()._do(action)
        finally:
            self.by_hand = False

    def _scheduler(self, world: World) -> Sequence[Decider]:
        return [_Overheard(decider, lambda write: self._decided(world, write)) for decider in super()._scheduler(world)]

    def _decided(self, world: World, write: Write) -> None:
        if write.subresource == "binding":
            claims = world.all(RESOURCE_CLAIMS)
            self._told[id(write)] = write, {key: float(claim.metadata.resource_version) for key, claim in claims.items()}


class _Overheard:
    def __init__(self, decider: Decider, listener: Callable[[Write], None]) -> None:
        self._decider, self._listener = decider, listener
        self.name, self.kinds = decider.name, decider.kinds
        self.observe, self.wake = decider.observe, decider.wake

    def act(self, now: float) -> Sequence[Write]:
        writes = self._decider.act(now)
        for write in writes:
            self._listener(write)
        return writes


class Hands:
    """Follows what the scenario itself does to claims; ``excuses`` says of a finding whether that had to come of it."""

    def __init__(self, simulation: Run) -> None:
        self._simulation = simulation
        self._users: dict[str, set[str]] = {}  # of claims
        self._version: dict[str, int] = {}  # of claims; of one that is gone, the next
        self._bound: dict[str, str] = {}  # uid of a pod -> its name
        self._pods: dict[str, str] = {}  # by name: its uid
        self._losses: dict[str, list[Loss]] = {}  # by pod, as uid
        self._excuses: dict[str, Excuse] = {}  # by pod, as uid
        simulation.follow(self._followed)
        simulation.listen(self._written)

    def excuses(self, kind: str, objects: Sequence[str], at: float) -> bool:
        pods, claims = _named(objects, "pod/"), _named(objects, "claim/")
        return any(
            excuse.pod in pods and excuse.since <= at <= excuse.until
            for excuse in self._excuses.values()
            if kind == NEVER_STARTS or (kind == POD_CLAIM and excuse.claims & claims)
        )

    # ------------------------------------------------------------------------------------------------------ following

    def _followed(self, table: str, key: str, raw: bytes | None) -> None:
        if table == RESOURCE_CLAIMS.resource:
            self._claim(key, msgspec.json.decode(raw) if raw is not None else {})
        elif table == PODS.resource:
            self._pod(key, msgspec.json.decode(raw) if raw is not None else {})

    def _claim(self, key: str, claim: Plain) -> None:
        status = claim.get("status", {})
        users = {each["uid"] for each in status.get("reservedFor", ())} if status.get("allocation") else set()
        lost = self._users.get(key, set()) - users
        self._users[key] = users
        self._version[key] = int(claim["metadata"]["resourceVersion"]) if claim else self._version[key] + 1
        if self._simulation.by_hand:
            for uid in sorted(lost):
                self._losses.setdefault(uid, []).append(Loss(key, self._version[key]))
                if uid in self._bound:
                    self._excuse(uid, {key})

    def _pod(self, key: str, pod: Plain) -> None:
        before, uid = self._pods.get(key, ""), pod.get("metadata", {}).get("uid", "")
        self._pods[key] = uid
        if before not in ("", uid):
            self._bound.pop(before, None)
            if (excuse := self._excuses.get(before)) is not None:
                excuse.until = self._simulation.elapsed
        if pod and pod["spec"].get("nodeName"):
            self._bound[uid] = key

    def _written(self, written: Written) -> None:
        """A bind was taken by the API: of whom it did not know what had been taken from him, nobody is to blame."""
        write = written.write
        if written.error is None and written.host == "scheduler" and write.subresource == "binding":
            told, uid = self._simulation.told(write), self._pods[write.key]
            unknown = {loss.claim for loss in self._losses.get(uid, ()) if told.get(loss.claim, math.inf) < loss.version}
            if unknown:
                self._excuse(uid, unknown)

    def _excuse(self, uid: str, claims: set[str]) -> None:
        excuse = self._excuses.setdefault(uid, Excuse(self._bound[uid], set(), self._simulation.elapsed))
        excuse.claims |= claims


def _named(objects: Sequence[str], prefix: str) -> set[str]:
    return {each.removeprefix(prefix) for each in objects if each.startswith(prefix)}
