"""A change that was tried before it is told, with what to paste; and how pods and claims look when they are changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml

from dray.api.core import Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration
from dray.explain.supposed import Changed

Json = dict[str, Any]

# How many nodes a change is tried on.
MOST_TRIED: Final = 200


class Fix(msgspec.Struct):
    """``nodes`` would do then; ``when`` says under which condition. ``command`` is a command, or the lines to change as YAML.
    ``rank``: the less is touched, the earlier it is told. ``tried``: that it helps was found out, not only said by whoever wrote
    the check. ``changed``: the objects as they would be, where that is known."""

    text: str
    command: str = ""
    nodes: list[str] = []
    when: str = ""
    rank: int = 0
    tried: bool = True
    changed: Changed = {}

    def as_json(self) -> Json:
        return {name: getattr(self, name) for name in ("text", "command", "nodes", "when", "rank", "tried")}

    @property
    def told(self) -> str:
        if not self.tried:
            return f"{self.text} (not tried)"
        return f"{self.text} (then {some(self.nodes)} would do{self.when})" if self.nodes else self.text


def some(names: list[str]) -> str:
    if len(names) <= 2:
        return ("node " if len(names) == 1 else "nodes ") + " and ".join(names)
    return f"{'at least ' if len(names) >= MOST_TRIED else ''}{len(names)} nodes"


def tainted(taint: Json) -> str:
    """As people write it; without an effect it is every taint of that key."""
    value = f"={taint['value']}" if taint.get("value") else ""
    effect = f":{taint['effect']}" if taint.get("effect") else ""
    return f"{taint['key']}{value}{effect}"


def patch(pod: Pod, *operations: Json) -> str:
    """The command that patches the pod."""
    body = msgspec.json.encode(list(operations)).decode()
    return f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type=json -p {shlex.quote(body)}"


def annotate(pod: Pod, *changes: str) -> str:
    """The command that changes annotations of the pod."""
    return _changing("annotate", pod, changes)


def label(pod: Pod, *changes: str) -> str:
    """The command that changes labels of the pod."""
    return _changing("label", pod, changes)


def _changing(verb: str, pod: Pod, changes: Sequence[str]) -> str:
    name, namespace = pod.metadata.name, pod.metadata.namespace
    return f"kubectl {verb} pod {name} -n {namespace} --overwrite {' '.join(map(shlex.quote, changes))}"


def as_yaml(where: str, change: Json) -> str:
    """The lines to change in a manifest, and where."""
    return f"# {where}\n{yaml.safe_dump(change, sort_keys=False).rstrip()}"


# ---------------------------------------------------------------------------------------------------------------- pods


def with_spec(pod: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def tied(pod: Pod) -> bool:
    """Whether it must be near other pods."""
    affinity = pod.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None and bool(affinity.pod_affinity.required)


def untied(pod: Pod) -> Pod:
    """The pod as one that need not be near any other."""
    affinity = pod.spec.affinity
    return with_spec(pod, affinity=msgspec.structs.replace(affinity, pod_affinity=None)) if affinity is not None else pod


def with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def tolerating(pod: Pod, taint: Json) -> Pod:
    toleration = Toleration(str(taint["key"]), "Equal", str(taint.get("value") or ""), str(taint["effect"]))
    return with_spec(pod, tolerations=(*pod.spec.tolerations, toleration))


def without_requirement(pod: Pod, dropped: NodeSelectorRequirement) -> Pod:
    """The pod for a node that meets the requirement: the same as one without it."""
    selector = dict(pod.spec.node_selector)
    if dropped.operator == "In" and selector.get(dropped.key) in dropped.values and len(dropped.values) == 1:
        del selector[dropped.key]
    affinity = pod.spec.affinity or Affinity()
    near = affinity.node_affinity
    if near is not None and near.required is not None:
        terms = tuple(_term_without(term, dropped) for term in near.required.node_selector_terms)
        # A term without requirements matches nothing; without the requirement, this one matches every node.
        free = any(not term.match_expressions and not term.match_fields for term in terms)
        near = msgspec.structs.replace(near, required=None if free else NodeSelector(terms))
    return with_spec(pod, node_selector=selector, affinity=msgspec.structs.replace(affinity, node_affinity=near))


def _term_without(term: NodeSelectorTerm, dropped: NodeSelectorRequirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(r for r in term.match_expressions if r != dropped), tuple(r for r in term.match_fields if r != dropped)
    )


def asking(pod: Pod, resource: str, container: int, amount: str) -> Pod:
    """The pod with one request of one container changed; its limit follows where it has one."""
    containers = list(pod.spec.containers)
    changed = containers[container]
    resources = changed.resources
    requests = {**resources.requests, resource: amount}
    limits = {**resources.limits, **({resource: amount} if resource in resources.limits else {})}
    containers[container] = msgspec.structs.replace(
        changed, resources=msgspec.structs.replace(resources, requests=requests, limits=limits)
    )
    return with_spec(pod, containers=tuple(containers))
