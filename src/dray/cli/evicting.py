"""Watching pods leave tainted devices, and telling them to leave in waves.

Waves and disruption budgets are carried out from here, as ``kubectl drain`` does it: the rule keeps new pods away
(``NoSchedule``) until the last wave has left, and only then gets the effect ``NoExecute``. Whatever ends this early leaves
nothing but that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dray.api.amounts import counted
from dray.api.core import Pod
from dray.api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.meta import decode
from dray.api.resource import DeviceTaintRule
from dray.api.times import format_time
from dray.cluster.port import Cluster, Conflict, NotFound, Write
from dray.controllers import eviction_status
from dray.controllers.taints import Users
from dray.explain.snapshot import from_cluster
from dray.runtime.leaving import ask_to_leave

POLL_SECONDS: Final = 0.5
# A controller says something about a new rule within its grace of some seconds.
SILENCE_SECONDS: Final = 30.0
BUDGET_SECONDS: Final = 2.0
# Who still has to leave is looked up in everything, so it is asked for at most in one part of the time in so many.
LOOK_SHARE: Final = 10.0
_KINDS: Final = (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_TAINT_RULES)

_NOBODY_ACTS: Final = "no controller reports on the rule; check that a device taint eviction controller is running"
_NAMED: Final = 3

Tell = Callable[[str], None]


class Waves(msgspec.Struct, frozen=True):
    """How pods are told to leave: so many at once, then a pause; ``budgets``: only as disruption budgets allow it."""

    size: int = 0
    pause: float = 0.0
    budgets: bool = False

    @property
    def wanted(self) -> bool:
        return bool(self.size or self.budgets)


class Left(msgspec.Struct, rename="camel"):
    """How it ended: the pods that were told to leave from here, whether all have left, and who is still there and why."""

    evicted: int = 0
    done: bool = False
    message: str = ""
    kept: dict[str, str] = {}


async def watched(cluster: Cluster, name: str, end: float, tell: Tell) -> Left:
    """Until nobody is left who must leave. The rule's status tells of the progress, but not of the end: it is done with pods as
    soon as they are told to leave, and comes seconds later; before Kubernetes 1.35 a rule has none."""
    silent, last, look_at = time.time() + SILENCE_SECONDS, "", 0.0
    while True:
        rule = decode(DeviceTaintRule, await cluster.get(DEVICE_TAINT_RULES, "", name))
        found = eviction_status.shown(rule)
        said = found is not None and found.observed_generation >= rule.metadata.generation
        if found is not None and said:
            if found.message and found.message != last:
                tell(found.message)
            last = found.message
        at_work = found is not None and said and found.status == "True"
        if (began := time.time()) >= look_at:
            users = await _users(cluster, rule)
            if not users.everybody:
                return Left(done=True, message=last or "no pods to evict")
            look_at = time.time() + LOOK_SHARE * (time.time() - began)
            at_work = at_work or bool(users.going)  # somebody told them to leave
            if not at_work and time.time() > silent:
                return Left(message=users.left_alone if said else _NOBODY_ACTS)
        if at_work:
            silent = time.time() + SILENCE_SECONDS
        if time.time() > end:
            return Left(message=users.still)
        await asyncio.sleep(POLL_SECONDS)


async def in_waves(cluster: Cluster, rule: DeviceTaintRule, waves: Waves, end: float, tell: Tell) -> Left:
    """Until nobody is left who must leave at once; pods that come meanwhile are part of a later wave."""
    left = Left()
    while True:
        # Whoever tolerates it for a while does so from when the taint evicts, and that is after the last wave.
        users = await _users(cluster, _as_of(rule, time.time()))
        due, now = users.due, len(users.due) + len(users.going)
        if not now:
            return Left(left.evicted, done=True)
        if time.time() > end:
            return msgspec.structs.replace(left, message=f"{counted(now, 'pod')} left")
        if users.going:
            await asyncio.sleep(POLL_SECONDS)
            continue
        told, left.kept = await _wave(cluster, due, waves)
        left.evicted += told
        waiting = f"; {counted(len(left.kept), 'pod')} blocked by a disruption budget" if left.kept else ""
        tell(f"{counted(left.evicted, 'pod')} evicted, {len(due) - told} to go{waiting}")
        await asyncio.sleep(max(waves.pause, POLL_SECONDS) if told else BUDGET_SECONDS)


def _as_of(rule: DeviceTaintRule, now: float) -> DeviceTaintRule:
    taint = msgspec.structs.replace(rule.spec.taint, time_added=format_time(now))
    return msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))


async def _wave(cluster: Cluster, due: list[Pod], waves: Waves) -> tuple[int, dict[str, str]]:
    """Tells one wave to leave; those that a budget keeps do not count, and are given with its words."""
    told, kept = 0, dict[str, str]()
    for pod in due:
        if waves.size and told == waves.size:
            break
        told += await _evict(cluster, pod, waves.budgets, kept)
    return told, kept


class _Users(msgspec.Struct, frozen=True):
    """The pods that use the devices and must leave: now, later, and those that are on their way out."""

    due: list[Pod]
    later: list[str]
    going: list[str]

    @property
    def everybody(self) -> bool:
        return bool(self.due or self.later or self.going)

    @property
    def left_alone(self) -> str:
        """That the controller is done although some must leave: kube-controller-manager's has rules of its own."""
        return f"the controller evicts no more pods, but {_names([*(pod.key for pod in self.due), *self.later])} must leave"

    @property
    def still(self) -> str:
        """Who is there when the time is up."""
        told = (
            ([pod.key for pod in self.due], "must leave"),
            (self.later, "may stay for a while yet"),
            (self.going, "on the way out"),
        )
        return "; ".join(f"{_names(pods)} {what}" for pods, what in told if pods)


def _names(pods: list[str]) -> str:
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return f"{', '.join(pods[:_NAMED])}{more}"


async def _users(cluster: Cluster, rule: DeviceTaintRule) -> _Users:
    world = (await from_cluster(cluster, _KINDS)).world
    affected, now = Users(world).affected(rule), time.time()
    return _Users(
        due=[world.get(PODS, key) for key, eviction in sorted(affected.pods.items()) if eviction.when <= now],
        later=[key for key, eviction in sorted(affected.pods.items()) if eviction.when > now],
        going=affected.going,
    )


async def _evict(cluster: Cluster, pod: Pod, budgets: bool, kept: dict[str, str]) -> int:
    try:
        if not budgets:
            await cluster.write(Write("delete", PODS, pod.metadata.namespace, pod.metadata.name, uid=pod.uid))
        elif against := await ask_to_leave(cluster, pod):
            kept[pod.key] = against
            return 0
    except (NotFound, Conflict):
        return 0
    return 1
