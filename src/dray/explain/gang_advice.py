"""What would help a gang that does not start: changes of all its pods, of nodes and of others, each tried for the whole gang.

A change is tried on another world that has it: the scheduler's session is held there, and what is told is what made it start the
gang's next step, without anybody being evicted for it. So nothing is told that would help one pod and leave the others waiting.
Always true: the number of such sessions is bounded; what touches least is told first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.core import Node, NodeSelectorRequirement, Pod, ResourceRequirements
from dray.api.gates import Gates
from dray.api.kinds import NODES, POD_GROUPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.queues import POD_GROUP_ANNOTATION, PodGroup
from dray.api.reason import Reason
from dray.api.requests import container_requests
from dray.api.resource import DeviceRequest, ResourceClaim
from dray.books.nodes import Nodes
from dray.cluster.world import World
from dray.devices.explain import Explanation
from dray.explain.failures import FailedBinding
from dray.explain.fix import Fix, asking, some, tainted, tolerating, without_requirement
from dray.explain.owners import made_again, siblings
from dray.explain.supposed import Changed, Supposed, added, uncordoned, untainted, with_nodes, with_pods, without
from dray.nodes.attaching import for_gang, spare_slices
from dray.scheduling.ask import Ask, requirement, unmatched
from dray.scheduling.config import Config
from dray.scheduling.placing.state import CycleState
from dray.scheduling.plugins.resources import readable
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.shape.claims import claim_keys

_MOST_NODES: Final = 8
_MOST_VICTIMS: Final = 8
_MOST_ROOMS: Final = 24
_MOST_OF_A_KIND: Final = 2
_UNITS: Final = {"cpu": 1000, "memory": 1 << 30}


class _Stuck(NamedTuple):
    """The member that has no place when as many others as can have theirs: what it needs, and what each node says."""

    state: CycleState
    nodes: list[tuple[str, list[Reason], Explanation | None]]
    rooms: list[list[Pod]]
    """Who would have to leave a node for it, the fewest first."""
    alike: list[str]
    """Nodes that would do if they were empty, and of which there could be more."""
    infos: Nodes


class GangAdvisor:
    def __init__(
        self, world: World, pod: Pod, config: Config, gates: Gates | None, now: float, failures: Sequence[FailedBinding]
    ) -> None:
        self._world, self._pod, self._config, self._gates, self._now = world, pod, config, gates, now
        self._supposed = Supposed(world, pod, config, gates, now, failures)
        self._members: list[Pod] = []

    def fixes(self) -> list[Fix]:
        """Nothing where its next step is one pod, or where something else than room stands against it."""
        stuck = self._tried({})
        if stuck is None or len(self._members) < 2:
            return []
        found = [*self._of_nodes(stuck), *self._of_pods(stuck), *self._of_fabric()]
        found += [*self._of_others(stuck), *self._of_new_nodes(stuck)]
        found += [*self._of_amounts(stuck), *self._of_claims(stuck), *self._of_minimum()]
        return sorted(found, key=lambda fix: fix.rank)

    @property
    def _then(self) -> str:
        return f"(then all {len(self._members)} pods start together)"

    # ------------------------------------------------------------------------------------------------------- sessions

    def _starts(self, changed: Changed) -> bool:
        return self._supposed.sessions.left > 0 and self._supposed.then(changed).starts(self._members)

    def _tried(self, changed: Changed) -> _Stuck | None:
        """Where the gang is stuck with these changes; None where it starts, or where room is not what it lacks."""
        scheduler, session, job = self._supposed.then(changed)
        missing = session.missing.get(job.key) if job is not None else None
        members = session.members.next(job) if job is not None else []
        if not members or missing is None or missing.refused is None:
            return None
        self._members = [pending.pod for pending in members]
        with scheduler.workloads.stuck(session, members) as state:
            return self._seen(scheduler, state) if state is not None else None

    def _seen(self, scheduler: Scheduler, state: CycleState) -> _Stuck:
        ask = Ask(scheduler, self._now)
        nodes = [(found.node, found.reasons, found.devices) for found in ask.answers(state) if found.reasons]
        own = {pod.uid for pod in self._members} | siblings(self._pod, self._world.all(PODS).values())
        names = [name for name, _, _ in nodes][:_MOST_ROOMS]
        found = [room for name in names if (room := ask.room(state, name, own)) is not None and room.victims]
        rooms = [
            [placed.pod for placed in room.victims] for room in sorted(found, key=lambda room: (len(room.victims), room.rank))
        ]
        checks, devices = scheduler.cycle.plan(state), scheduler.cycle.devices
        alike = [
            info.name
            for info in sorted(scheduler.nodes, key=lambda info: info.name)
            if checks.refuses(info.without(list(info.pods.values()))) is None and devices.could(state, info)
            # What a kubelet would publish of the zones of a new node is not known.
            if scheduler.zones.layout(info.name) is None
        ]
        return _Stuck(state, nodes, rooms, alike, scheduler.nodes)

    # ---------------------------------------------------------------------------------------------------------- nodes

    def _of_nodes(self, stuck: _Stuck) -> Iterator[Fix]:
        cordoned = _giving(stuck, "NodeUnschedulable")
        if names := self._fewest(cordoned, uncordoned):
            commands = "\n".join(f"kubectl uncordon {name}" for name in names)
            yield Fix(f"uncordon {some(names)} {self._then}", commands, rank=0)
        for taint, tainting in _taints(stuck)[:_MOST_OF_A_KIND]:
            told = tainted(taint)
            names = self._fewest(tainting, partial(untainted, taint=taint))
            if names and str(taint["key"]).startswith("node.kubernetes.io/"):
                yield Fix(f"mend what gave {some(names)} the taint {{{told}}} {self._then}", rank=1)
            elif names:
                commands = "\n".join(f"kubectl taint node {name} {told}-" for name in names)
                yield Fix(f"remove the taint {{{told}}} from {some(names)} {self._then}", commands, rank=2)

    def _fewest(self, names: Sequence[str], change: Callable[[Node], Node]) -> list[str]:
        """As many of these nodes as have to be changed, the first of them."""
        nodes: Mapping[str, Node] = self._world.all(NODES)
        names = [name for name in names if name in nodes][:_MOST_NODES]
        count = _least(len(names), lambda count: self._starts(with_nodes(change(nodes[name]) for name in names[:count])))
        return list(names[:count])

    # ----------------------------------------------------------------------------------------------------------- pods

    def _of_pods(self, stuck: _Stuck) -> Iterator[Fix]:
        for taint, _ in _taints(stuck)[:_MOST_OF_A_KIND]:
            passing = str(taint["key"]).startswith("node.kubernetes.io/")
            if not passing and self._starts(self._all_pods(partial(tolerating, taint=taint))):
                yield Fix(f"add a toleration for the taint {{{tainted(taint)}}} to all pods of the gang {self._then}", rank=1)
        for dropped in self._requirements(stuck):
            if self._starts(self._all_pods(partial(without_requirement, dropped=dropped))):
                yield Fix(f"do without {requirement(dropped)} in the node selector of all pods of the gang {self._then}", rank=4)

    def _requirements(self, stuck: _Stuck) -> list[NodeSelectorRequirement]:
        found: dict[str, NodeSelectorRequirement] = {}
        for name in _giving(stuck, "NodeSelectorMismatch"):
            info = stuck.infos.get(name)
            failing = unmatched(stuck.state, info) if info is not None else None
            if failing is not None:
                found.setdefault(requirement(failing), failing)
        return list(found.values())[:_MOST_OF_A_KIND]

    def _all_pods(self, change: Callable[[Pod], Pod]) -> Changed:
        return with_pods(change(pod) for pod in self._members)

    def _of_amounts(self, stuck: _Stuck) -> Iterator[Fix]:
        """The most of a resource that members which are like the one that is stuck may ask for, found by halves."""
        pod = stuck.state.pod
        asked = {**dict(stuck.state.demand.requests), **container_requests(pod.spec.containers[0])}
        reasons = (reason for _, found, _ in stuck.nodes for reason in found if reason.code == "ResourcesInsufficient")
        # What devices serve is lacking as devices.
        lacking = dict.fromkeys([*(str(reason.data["resource"]) for reason in reasons), *sorted(stuck.state.names)])
        alike = [each for each in self._members if _resources(each) == _resources(pod)]
        for resource in islice((name for name in lacking if asked.get(name) and _is_alone(pod)), _MOST_OF_A_KIND):
            unit = _UNITS.get(resource, 1)
            most = _most((asked[resource] - 1) // unit, partial(self._start_with, alike, resource, unit))
            if most:
                less, now = readable(resource, most * unit), readable(resource, asked[resource])
                yield Fix(f"request {less} {resource} instead of {now} in {self._each(alike)} {self._then}", rank=3)

    def _start_with(self, alike: Sequence[Pod], resource: str, unit: int, count: int) -> bool:
        return self._starts(with_pods(asking(pod, resource, 0, readable(resource, count * unit)) for pod in alike))

    def _each(self, pods: Sequence[Pod]) -> str:
        return f"each of the {len(pods)} pods" if len(pods) > 1 else f"pod {pods[0].key}"

    # --------------------------------------------------------------------------------------------------------- claims

    def _of_claims(self, stuck: _Stuck) -> Iterator[Fix]:
        """Fewer devices in a request, in all claims that ask for the same."""
        for key in claim_keys(stuck.state.pod):
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            for index, request in enumerate(claim.spec.devices.requests if claim is not None else ()):
                if claim is None or request.exactly is None or request.exactly.count < 2:
                    continue
                alike = self._claims_like(claim)
                most = _most(request.exactly.count - 1, partial(self._start_with_count, alike, index))
                if most:
                    where = f"request {request.name} of {claim.key}"
                    others = len(alike) - 1
                    where += f" and of {others} other claim{'s' if others > 1 else ''} like it" if others else ""
                    yield Fix(f"ask for {most} instead of {request.exactly.count} in {where} {self._then}", rank=3)

    def _start_with_count(self, alike: Sequence[ResourceClaim], index: int, count: int) -> bool:
        return self._starts({RESOURCE_CLAIMS: {each.key: _with_count(each, index, count) for each in alike}})

    def _claims_like(self, claim: ResourceClaim) -> list[ResourceClaim]:
        keys = dict.fromkeys(key for pod in self._members for key in claim_keys(pod))
        claims = [found for key in keys if (found := self._world.get(RESOURCE_CLAIMS, key)) is not None]
        return [each for each in claims if each.spec == claim.spec]

    def _of_minimum(self) -> Iterator[Fix]:
        """As many as can start together, where a PodGroup says how many have to."""
        name, namespace = self._pod.metadata.annotations.get(POD_GROUP_ANNOTATION, ""), self._pod.metadata.namespace
        key = f"{namespace}/{name}"
        group: PodGroup | None = self._world.get(POD_GROUPS, key) if name and POD_GROUPS in self._world.kinds else None
        if group is None or group.spec.sub_groups:
            return
        most = _most(min(len(self._members), group.spec.min_member) - 1, partial(self._start_if, key, group))
        # One alone starts together with nobody.
        if most > 1:
            now = group.spec.min_member
            command = (
                f"kubectl patch podgroups.scheduling.run.ai {name} -n {namespace} --type merge "
                f"""-p '{{"spec":{{"minMember":{most}}}}}'"""
            )
            yield Fix(f"let {most} start together instead of {now} (then so many start)", command, rank=4)

    def _start_if(self, key: str, group: PodGroup, least: int) -> bool:
        """Whether so many start where no more have to."""
        changed = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, min_member=least))
        if self._supposed.sessions.left <= 0:
            return False
        job = self._supposed.then({POD_GROUPS: {key: changed}}).job
        return job is not None and sum(pod.uid not in job.waiting for pod in self._members) >= least

    def _of_fabric(self) -> Iterator[Fix]:
        """What could be attached to nodes that are there."""
        if RESOURCE_SLICES not in self._world.kinds or not spare_slices(self._world):
            return
        found = for_gang(self._world, self._pod, self._config, self._gates, self._now)
        if found is not None and found.attachments:
            told = (f"{', '.join(each.devices)} of the fabric ({each.driver}) to node {each.node}" for each in found.attachments)
            yield Fix(f"attach {' and '.join(told)} {self._then}", "dray fabric --autoscale", rank=2)

    # --------------------------------------------------------------------------------------------------------- others

    def _of_others(self, stuck: _Stuck) -> Iterator[Fix]:
        """Pods that could be ended: those that are in the way of one member after the other, without those that are not after
        all."""
        victims: dict[str, Pod] = {}
        sessions = self._supposed.sessions
        while stuck.rooms and len(victims) + len(stuck.rooms[0]) <= _MOST_VICTIMS and sessions.left > sessions.most // 2:
            victims |= {pod.key: pod for pod in stuck.rooms[0]}
            after = self._tried(without(self._world, victims.values()))
            if after is None:
                break
            stuck = after
        else:
            return
        if not self._starts(without(self._world, victims.values())):
            return
        for key in list(victims):
            fewer = [pod for other, pod in victims.items() if other != key]
            if fewer and self._starts(without(self._world, fewer)):
                del victims[key]
        names = ", ".join(sorted(victims)) + made_again(self._world, victims.values())
        commands = "\n".join(
            f"kubectl delete pod {pod.metadata.name} -n {pod.metadata.namespace}" for _, pod in sorted(victims.items())
        )
        yield Fix(f"end pod{'s' if len(victims) > 1 else ''} {names} {self._then}", commands, rank=5)

    # ------------------------------------------------------------------------------------------------------ new nodes

    def _of_new_nodes(self, stuck: _Stuck) -> Iterator[Fix]:
        nodes: Mapping[str, Node] = self._world.all(NODES)
        for name in stuck.alike[:1]:
            count = _least(len(self._members), partial(self._start_beside, nodes[name]))
            if count:
                what = f"{count} nodes" if count > 1 else "a node"
                yield Fix(f"add {what} like {name} {self._then}", rank=6)

    def _start_beside(self, node: Node, count: int) -> bool:
        return self._starts(added(self._world, node, count))


def _giving(stuck: _Stuck, code: str) -> list[str]:
    """The nodes that give this reason and no other first."""
    found = [(len(reasons), name) for name, reasons, _ in stuck.nodes if any(reason.code == code for reason in reasons)]
    return [name for _, name in sorted(found)]


def _taints(stuck: _Stuck) -> list[tuple[dict[str, Any], list[str]]]:
    """The taints of nodes that keep the member away, with these nodes; those of most nodes first."""
    found: dict[tuple[str, ...], tuple[dict[str, Any], list[str]]] = {}
    for name, reasons, _ in stuck.nodes:
        for reason in reasons:
            if reason.code == "NodeTainted":
                key = tuple(str(reason.data.get(each)) for each in ("key", "value", "effect"))
                found.setdefault(key, (reason.data, []))[1].append(name)
    return sorted(found.values(), key=lambda group: -len(group[1]))


def _resources(pod: Pod) -> list[ResourceRequirements]:
    """What its containers ask for. Nothing else of them counts: each has a mount of its own for its service account."""
    return [container.resources for container in pod.spec.containers]


def _is_alone(pod: Pod) -> bool:
    """Whether all that the pod asks for is asked for by one container."""
    return len(pod.spec.containers) == 1 and not pod.spec.init_containers


def _with_count(claim: ResourceClaim, index: int, count: int) -> ResourceClaim:
    requests = list(claim.spec.devices.requests)
    changed: DeviceRequest = requests[index]
    assert changed.exactly is not None
    requests[index] = msgspec.structs.replace(changed, exactly=msgspec.structs.replace(changed.exactly, count=count))
    devices = msgspec.structs.replace(claim.spec.devices, requests=tuple(requests))
    return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=devices))


def _least(most: int, does: Callable[[int], bool]) -> int:
    """The smallest number up to ``most`` that does, where larger ones do too; 0 where none does."""
    if most < 1 or not does(most):
        return 0
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if does(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _most(most: int, does: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that does, where smaller ones do too; 0 where none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if does(middle):
            low = middle
        else:
            high = middle - 1
    return low
