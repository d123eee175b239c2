"""Whom the scheduler would evict for a pod, and why these: the scheduler's own choice, asked for and not carried out."""

from __future__ import annotations

import msgspec

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim
from dray.books.nodes import Placed
from dray.cluster.world import World
from dray.scheduling.actions.preemption import Eviction
from dray.scheduling.placing.state import CycleState


class Victim(msgspec.Struct, omit_defaults=True):
    """A pod that would have to leave: where it is, how important, and the devices that it would give back; of queues also the
    queue that it is of, and ``to`` the node on which it has another place."""

    pod: str
    node: str
    priority: int
    devices: list[str]
    queue: str = ""
    to: str = ""


class WouldEvict(msgspec.Struct):
    """What would be done to make room on ``node``; ``why``: why these pods and no others, in a sentence."""

    node: str
    victims: list[Victim]
    why: str


def would_evict(world: World, state: CycleState, eviction: Eviction) -> WouldEvict:
    victims = [Victim(each.pod.key, each.node, each.demand.priority, devices_of(world, each)) for each in eviction.victims]
    return WouldEvict(eviction.node, victims, _why(state, eviction))


def devices_of(world: World, placed: Placed) -> list[str]:
    held = [claim for claim in world.all(RESOURCE_CLAIMS).values() if _used_by(claim, placed.pod.uid)]
    found = [claim.status.allocation for claim in held if claim.status.allocation is not None]
    return [f"{result.pool}/{result.device}" for allocation in found for result in allocation.devices.results]


def _used_by(claim: ResourceClaim, uid: str) -> bool:
    return any(user.uid == uid for user in claim.status.reserved_for)


def _why(state: CycleState, eviction: Eviction) -> str:
    """In the order in which sets are compared: budgets, who is hit hardest, how many, who has run the shortest."""
    broken, highest, count = eviction.rank[0], eviction.rank[1], len(eviction.victims)
    they, them = ("it is", "it") if count == 1 else ("they are", "all of them")
    budgets = "no disruption budget is broken"
    if broken:
        budgets = f"{broken} disruption budget{'s are' if broken > 1 else ' is'} broken, which cannot be avoided"
    below = f"{they} below priority {state.demand.priority} (at most {highest})"
    return f"{below}, {budgets}, the pod would not fit without {them} leaving, and no node that was tried costs less"
