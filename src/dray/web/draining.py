"""Nodes that are drained from the page, as ``kubectl drain`` does it: cordoned first, then every pod is asked to leave, and asked
again while a disruption budget stands against it.

Always true: pods of DaemonSets and of the node itself stay; a pod is asked by its uid, so nobody is asked who came in its place;
a drain that ends early leaves the node cordoned and nothing else. ``Drain`` decides, ``Drains`` asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from dray.api.amounts import counted
from dray.api.core import Pod
from dray.api.kinds import NODES, PODS
from dray.cluster.port import Cluster, ClusterError, Conflict, NotFound, Refused, Unreachable, Write
from dray.cluster.world import World
from dray.runtime.hand import STAY
from dray.runtime.leaving import ask_to_leave

# As long as kubectl waits before it asks again.
AGAIN_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.25
NAMED_MAX: Final = 200
ENDED_KEPT: Final = 32

State = Literal["under way", "done", "failed", "stopped"]
LEAVING: Final = "terminating"


class Left(msgspec.Struct, frozen=True):
    """A pod that is still there, and why."""

    pod: str
    why: str


class Drain:
    """Who is asked to leave ``node``, and when again."""

    def __init__(self, node: str, began: float) -> None:
        self.node, self.began, self.ended = node, began, 0.0
        self.state: State = "under way"
        self.trouble = ""
        self._told: set[str] = set()
        self._kept: dict[str, tuple[str, float]] = {}

    def asks(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Those who are to be asked now. When nobody is left the drain is done."""
        left = [pod for pod in pods if leaves(pod, self.node)]
        if not left and self.state == "under way":
            self.end("done", now)
        due = (pod for pod in left if pod.uid not in self._told and self._kept.get(pod.uid, ("", 0.0))[1] <= now)
        return sorted((pod for pod in due if pod.metadata.deletion_timestamp is None), key=lambda pod: pod.key)

    def answered(self, pod: Pod, against: str, now: float) -> None:
        """``against``: why it does not leave yet, such as what a budget says, or nothing."""
        if against:
            self._kept[pod.uid] = (against, now + AGAIN_SECONDS)
        else:
            self._kept.pop(pod.uid, None)
            self._told.add(pod.uid)

    def end(self, state: State, now: float, trouble: str = "") -> None:
        self.state, self.ended, self.trouble = state, now, trouble

    def told(self, pods: Iterable[Pod]) -> dict[str, Any]:
        here = sorted((pod for pod in pods if pod.spec.node_name == self.node and not pod.terminal), key=lambda pod: pod.key)
        left = [Left(pod.key, self._why(pod)) for pod in here if leaves(pod, self.node)]
        return {
            "node": self.node,
            "state": self.state,
            "trouble": self.trouble,
            "began": self.began,
            "ended": self.ended or None,
            "evicted": len(self._told),
            "left": left[:NAMED_MAX],
            "leftCount": len(left),
            "stays": [pod.key for pod in here if not leaves(pod, self.node)][:NAMED_MAX],
        }

    def _why(self, pod: Pod) -> str:
        if pod.uid in self._told or pod.metadata.deletion_timestamp is not None:
            return LEAVING
        return self._kept[pod.uid][0] if pod.uid in self._kept else "not evicted yet"


def leaves(pod: Pod, node: str) -> bool:
    """Whether a drain of the node makes this pod leave."""
    owner = pod.metadata.controller
    return pod.spec.node_name == node and not pod.terminal and (owner is None or owner.kind not in STAY)


def meant(world: World, node: str) -> str:
    """What a drain would do, in words, with what is lost for good."""
    pods = [pod for pod in world.all(PODS).values() if pod.spec.node_name == node and not pod.terminal]
    leaving = [pod for pod in pods if leaves(pod, node)]
    alone = sum(pod.metadata.controller is None for pod in leaving)
    said = [f"drain {node}: cordon it and evict {counted(len(leaving), 'pod')}, as disruption budgets allow"]
    if alone:
        said.append(f"{alone} of them {'has' if alone == 1 else 'have'} no controller and would not be recreated")
    if stay := len(pods) - len(leaving):
        said.append(f"{counted(stay, 'DaemonSet pod')} {'stays' if stay == 1 else 'stay'}")
    return "; ".join(said)


class Drains:
    """The drains that were begun here; those that ended are remembered for a while."""

    def __init__(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """``pods``: all there are, as they are now."""
        self._pods = pods
        self._drains: dict[str, Drain] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, cluster: Cluster, node: str) -> None:
        """Cordons the node, and goes on by itself."""
        await cluster.write(Write("patch", NODES, name=node, body={"spec": {"unschedulable": True}}))
        if (under_way := self._tasks.get(node)) is not None and not under_way.done():
            return
        self._drains.pop(node, None)
        drain = self._drains[node] = Drain(node, time.time())
        self._tasks[node] = asyncio.ensure_future(self._carry_out(cluster, drain))
        ended = [name for name, each in self._drains.items() if each.state != "under way"]
        for name in ended[: max(0, len(ended) - ENDED_KEPT)]:
            del self._drains[name], self._tasks[name]

    def stop(self, node: str) -> bool:
        """Whether there was one to stop."""
        task = self._tasks.get(node)
        if task is None or task.done():
            return False
        task.cancel()
        self._drains[node].end("stopped", time.time())
        return True

    def told(self) -> list[dict[str, Any]]:
        """The last first."""
        pods = list(self._pods()) if self._drains else []
        return [drain.told(pods) for drain in reversed(self._drains.values())]

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _carry_out(self, cluster: Cluster, drain: Drain) -> None:
        try:
            while drain.state == "under way":
                for pod in drain.asks(self._pods(), time.time()):
                    await self._ask(cluster, drain, pod)
                await asyncio.sleep(LOOK_SECONDS)
        except ClusterError as error:
            drain.end("failed", time.time(), error.message if isinstance(error, Refused) else str(error))

    async def _ask(self, cluster: Cluster, drain: Drain, pod: Pod) -> None:
        try:
            against = await ask_to_leave(cluster, pod)
        except NotFound:
            against = ""  # it is gone, and the watch will say so
        except (Conflict, Unreachable) as error:
            against = str(error)
        drain.answered(pod, against, time.time())
