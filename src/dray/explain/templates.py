"""Which kind of node would take which pods that wait: what an autoscaler is to be told.

A template is a Node and the ResourceSlices of its devices. Nodes of it are added one after the other, to a cluster that has come
to rest, until one more takes no pod, nor as many more as pods that start together might need at once; DaemonSets come onto them
first, so what they use is not counted twice.

Always true: each template is tried alone, on the same cluster; nothing is written anywhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Pod
from dray.api.kinds import PODS
from dray.explain.overview import waiting
from dray.explain.plan import Changes, Making, PlanError
from dray.explain.rehearsal import Rehearsal
from dray.scheduling.ask import Ask
from dray.scheduling.placing.state import NotPlaced

Plain = dict[str, Any]

_HOSTNAME: Final = "kubernetes.io/hostname"


class Template(msgspec.Struct):
    """A node as it would come, with its slices, and what else must be there (classes)."""

    name: str
    node: Plain
    slices: list[Plain] = []
    beside: list[Plain] = []

    def made(self, number: int) -> list[Plain]:
        """The objects of one more such node, with a name of its own."""
        name = f"{self.name}-new-{number}"
        node = copy.deepcopy(self.node)
        node["metadata"]["name"] = name
        node["metadata"]["labels"] = {**(node["metadata"].get("labels") or {}), _HOSTNAME: name}
        return [*self.beside, node, *(self._slice(each, name, number) for each in self.slices)]

    def _slice(self, given: Plain, node: str, number: int) -> Plain:
        made = copy.deepcopy(given)
        spec = made["spec"]
        pool = spec["pool"]["name"]
        made["metadata"] = {"name": f"{given['metadata']['name']}-new-{number}"}
        spec["nodeName"] = node
        spec["pool"] = {**spec["pool"], "name": node if pool == self.name else f"{pool}-new-{number}"}
        return made


class AddedNode(msgspec.Struct):
    node: str
    pods: list[str]


class Answer(msgspec.Struct, rename="camel"):
    """``nodes``: as many nodes of the template as make pods start, and which of the pods that wait each takes; ``admits``: all of
    them; ``left``: how many pods wait then, with those that had to leave for others; ``more``: whether still more nodes might
    take some."""

    template: str
    nodes: list[AddedNode]
    admits: list[str]
    left: int
    more: bool = False


class Answers(msgspec.Struct):
    """``waiting``: the pods that wait without any node added, by name."""

    waiting: list[str]
    templates: list[Answer]

    @property
    def all_placed(self) -> bool:
        return any(not answer.left for answer in self.templates)


def templates_in(objects: Sequence[tuple[str, Plain]]) -> list[Template]:
    """One for each Node, with the slices that name it; raises ``PlanError``."""
    nodes = [(where, body) for where, body in objects if body.get("kind") == "Node"]
    if not nodes:
        where = objects[0][0].partition(":")[0] if objects else "the file"
        raise PlanError([f"{where}: has no Node; a template is a Node and the ResourceSlices that name it"])
    beside = [body for _, body in objects if body.get("kind") not in ("Node", "ResourceSlice")]
    slices = [body for _, body in objects if body.get("kind") == "ResourceSlice"]
    return [_template(body, where, slices, beside) for where, body in nodes]


def _template(node: Plain, where: str, slices: Iterable[Plain], beside: list[Plain]) -> Template:
    name = (node.get("metadata") or {}).get("name")
    if not name:
        raise PlanError([f"{where}: Node without metadata.name"])
    own = [each for each in slices if (each.get("spec") or {}).get("nodeName") == name]
    if any("name" not in (each["spec"].get("pool") or {}) for each in own):
        raise PlanError([f"{where}: a ResourceSlice of node {name} has no spec.pool.name"])
    return Template(str(name), node, own, beside)


def admitted(begin: Callable[[], Rehearsal], changes: Changes, templates: Sequence[Template], most: int) -> Answers:
    """``begin`` makes the cluster anew, with controllers of DaemonSets; ``changes`` are made first."""
    names: list[str] = []
    answers = []
    for template in templates:
        rehearsal = begin()
        rehearsal.settle()
        Making(rehearsal).all(changes)
        rehearsal.settle()
        names = [pod.key for pod in _idle(rehearsal)]
        answers.append(_answer(rehearsal, template, most))
    return Answers(names, answers)


def _answer(rehearsal: Rehearsal, template: Template, most: int) -> Answer:
    nodes: list[AddedNode] = []
    needed = 0  # up to the last one that made pods start
    idle = first = {pod.uid: pod for pod in _idle(rehearsal)}
    more = bool(idle)
    while more and len(nodes) < most:
        made = template.made(len(nodes) + 1)
        Making(rehearsal).all(Changes([(f"template {template.name}", body) for body in made]))
        rehearsal.settle()
        nodes.append(AddedNode(_node_name(made), []))
        left = {pod.uid: pod for pod in _idle(rehearsal)}
        if taken := [pod for uid, pod in idle.items() if uid not in left]:
            # Who had to leave for others meanwhile, and came again, did not wait before.
            _hand_out(rehearsal, [pod for pod in taken if pod.uid in first], nodes)
            needed, idle = len(nodes), left
            more = bool(idle)
        else:
            more = len(nodes) - needed < _largest_gang(rehearsal, list(left.values()), nodes[-1].node)
    for node in nodes:
        node.pods = [key for key in node.pods if (pod := rehearsal.world.get(PODS, key)) is not None and rehearsal.node_of(pod)]
    return Answer(template.name, nodes[:needed], [key for node in nodes for key in node.pods], len(idle), more)


def _hand_out(rehearsal: Rehearsal, taken: Sequence[Pod], nodes: Sequence[AddedNode]) -> None:
    """To the new nodes where the pods are; who found room elsewhere because others went to a new one has the last one's."""
    by_name = {node.node: node for node in nodes}
    for key in sorted(pod.key for pod in taken):
        now: Pod | None = rehearsal.world.get(PODS, key)
        by_name.get(rehearsal.node_of(now) if now is not None else "", nodes[-1]).pods.append(key)


def _largest_gang(rehearsal: Rehearsal, idle: Sequence[Pod], node: str) -> int:
    """How many nodes may stay empty before one more makes pods start together: each of these may need one for itself. Only of
    gangs with a pod that a node of this kind takes."""
    ask = Ask(rehearsal.scheduler, rehearsal.clock.now)
    gangs: dict[str, list[Pod]] = {}
    for pod in idle:
        if (job := rehearsal.scheduler.workloads.jobs.of(pod.uid)) is not None:
            gangs.setdefault(job.key, []).append(pod)
    return max((len(pods) for pods in gangs.values() if len(pods) > 1 and _takes_any(ask, node, pods)), default=0)


def _takes_any(ask: Ask, node: str, pods: Sequence[Pod]) -> bool:
    for pod in pods:
        try:
            if ask.would_do(ask.state(pod), node):
                return True
        except NotPlaced:
            continue
    return False


def _node_name(made: Iterable[Plain]) -> str:
    return next(str(body["metadata"]["name"]) for body in made if body["kind"] == "Node")


def _idle(rehearsal: Rehearsal) -> list[Pod]:
    """Pods that wait for a node and could get one."""
    found = waiting(rehearsal.world.all(PODS).values())
    return [pod for pod in found if not rehearsal.node_of(pod) and not pod.spec.scheduling_gates]
