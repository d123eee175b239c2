"""What would help a pod that no node takes: single changes, each tried with the scheduler's own checks before it is told.

A change of a node is tried as the change of the pod that amounts to the same there: a node without its taint is one whose taint
the pod tolerates. Nothing is told that was not found to make a node do; what touches least is told first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from dray.api.amounts import in_one_unit
from dray.api.codes import CODES, CURABLE
from dray.api.core import Node, NodeSelectorRequirement, Pod
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS
from dray.api.quantity import Quantity
from dray.api.reason import Reason
from dray.api.requests import container_requests
from dray.api.resource import UNMADE, ResourceClaim
from dray.cluster.world import World
from dray.devices.amounts import DETACHED
from dray.devices.changes import Change
from dray.devices.explain import Explanation
from dray.explain.fix import (
    MOST_TRIED,
    Fix,
    annotate,
    as_yaml,
    asking,
    patch,
    tainted,
    tolerating,
    with_annotations,
    with_spec,
    without_requirement,
)
from dray.explain.owners import made_again, siblings
from dray.explain.supposed import Changed, claim_changed, labelled, uncordoned, untainted, with_nodes, with_pods, without
from dray.explain.tainted import Lifted, kept_by, lifted
from dray.nodes.attaching import DETACHING
from dray.numa.intent import SAID, SPANS
from dray.scheduling.ask import Ask, requirement, unmatched
from dray.scheduling.placing.state import CycleState, NotPlaced
from dray.scheduling.plugins.node import UNSCHEDULABLE_TAINT
from dray.scheduling.plugins.resources import readable
from dray.scheduling.shape.extended import DeviceBacked

# How many changes of one kind are tried, and on how many nodes room is looked for.
_MOST_CHANGES: Final = 6
_MOST_ROOMS: Final = 24
_MOST_VICTIMS: Final = 4
_MOST_SKEW: Final = 8
# Of advice that differs only in whom it hits.
_MOST_ALIKE: Final = 2

# Labels that a kubelet gives its node: another value would be a lie, and be taken back.
_OF_KUBELETS: Final = frozenset(
    {
        *("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type"),
        *("beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type"),
    }
)

Refused = Sequence[tuple[str, Sequence[Reason], Explanation | None]]
"""Each node with why it does not take the pod."""


# Reasons for which changes are tried; so are all of devices.
_TRIED: Final = frozenset(
    {
        *("NodeUnschedulable", "NodeTainted", "NodeSelectorMismatch", "ResourcesInsufficient", "ResourceUnknown"),
        *("TopologySpread", "PodAffinity", "PodAntiAffinity", "PortTaken", "ZoneWidthsDiffer"),
    }
)


def is_tried(reason: Reason) -> bool:
    """Whether changes are tried for it. For others, of plugins of third parties too, there is only what their authors advise."""
    return reason.code in _TRIED or "DynamicResources" in CODES[reason.code].plugins


class Advisor:
    """Tries changes for one pod. ``when``: said of every node that would do (the scheduler may be one of an empty cluster)."""

    def __init__(self, world: World, ask: Ask, state: CycleState, refused: Refused, when: str = "") -> None:
        self._world, self._ask, self._state, self._pod, self._when = world, ask, state, state.pod, when
        self._refused, self._siblings = refused, siblings(state.pod, world.all(PODS).values())
        self._by_code: dict[str, list[tuple[str, Reason]]] = {}
        for name, reasons, _ in refused:
            for reason in reasons:
                self._by_code.setdefault(reason.code, []).append((name, reason))

    def fixes(self) -> list[Fix]:
        """What touches least first, then what makes most nodes do."""
        found = [*self._of_nodes(), *self._of_resources(), *self._of_zones(), *self._of_neighbours(), *self._of_devices()]
        found += self._of_too_many()
        if not self._when:
            found += self._of_others(found)
        for fix in found:
            fix.when = self._when
        told = {fix.told: fix for fix in sorted(found, key=lambda fix: (fix.rank, -len(fix.nodes), fix.text))}
        return list(told.values())

    def _do(self, pod: Pod, names: Sequence[str]) -> list[str]:
        """The nodes of these that would take the pod if it were this one."""
        try:
            state = self._ask.changed(pod)
        except NotPlaced:
            return []
        return [name for name in list(dict.fromkeys(names))[:MOST_TRIED] if self._ask.would_do(state, name)]

    def _node(self, name: str, change: Callable[[Node], Node]) -> Changed:
        """The world with this node changed."""
        node: Node | None = self._world.get(NODES, name)
        return with_nodes([change(node)]) if node is not None else {}

    def _groups(self, code: str, *keys: str) -> list[tuple[dict[str, Any], list[str]]]:
        """The nodes that give a reason, by what it says."""
        groups: dict[tuple[str, ...], tuple[dict[str, Any], list[str]]] = {}
        for name, reason in self._by_code.get(code, ()):
            key = tuple(str(reason.data.get(each)) for each in keys)
            groups.setdefault(key, (reason.data, []))[1].append(name)
        return sorted(groups.values(), key=lambda group: -len(group[1]))[:_MOST_CHANGES]

    # --------------------------------------------------------------------------------------------------------- of nodes

    def _of_nodes(self) -> Iterator[Fix]:
        cordoned = [name for name, _ in self._by_code.get("NodeUnschedulable", ())]
        taint = {"key": UNSCHEDULABLE_TAINT.key, "value": "", "effect": UNSCHEDULABLE_TAINT.effect}
        if cordoned and (would := self._do(tolerating(self._pod, taint), cordoned)):
            changed = self._node(would[0], uncordoned)
            yield Fix(f"uncordon node {would[0]}", f"kubectl uncordon {would[0]}", would[:1], rank=0, changed=changed)
        for taint, names in self._groups("NodeTainted", "key", "value", "effect"):
            if would := self._do(tolerating(self._pod, taint), names):
                yield from self._of_taint(taint, would)
        for found, name in self._unmatched():
            if would := self._do(without_requirement(self._pod, found), [name]):
                yield from self._of_requirement(found, would)

    def _of_taint(self, taint: dict[str, Any], would: list[str]) -> Iterator[Fix]:
        told, without = tainted(taint), self._node(would[0], partial(untainted, taint=taint))
        if str(taint["key"]).startswith("node.kubernetes.io/"):
            # Set by the control plane for as long as something is wrong with the node.
            yield Fix(f"mend what gave the taint {{{told}}}", f"kubectl describe node {would[0]}", would, rank=1, changed=without)
            return
        value = {"key": taint["key"], "operator": "Equal", "value": taint.get("value") or "", "effect": taint["effect"]}
        has = bool(self._pod.spec.tolerations)
        operation = {"op": "add", "path": f"/spec/tolerations{'/-' if has else ''}", "value": value if has else [value]}
        changed, command = with_pods([tolerating(self._pod, taint)]), patch(self._pod, operation)
        yield Fix(f"add a toleration for the taint {{{told}}} to the pod", command, would, rank=1, changed=changed)
        command = f"kubectl taint node {would[0]} {told}-"
        yield Fix(f"remove the taint {{{told}}} from node {would[0]}", command, would[:1], rank=2, changed=without)

    def _unmatched(self) -> list[tuple[NodeSelectorRequirement, str]]:
        """One node for each requirement that fails somewhere, the first that meets all the others."""
        found: dict[tuple[str, str], tuple[NodeSelectorRequirement, str]] = {}
        for name, _ in self._by_code.get("NodeSelectorMismatch", ())[:MOST_TRIED]:
            info = self._ask.scheduler.nodes.get(name)
            failing = unmatched(self._state, info) if info is not None else None
            if failing is not None and (requirement(failing), name) not in found:
                found[requirement(failing), name] = (failing, name)
        best: dict[str, tuple[NodeSelectorRequirement, str]] = {}
        for (told, _), (failing, name) in found.items():
            if told not in best and self._do(without_requirement(self._pod, failing), [name]):
                best[told] = (failing, name)
        return list(best.values())[:_MOST_CHANGES]

    def _of_requirement(self, found: NodeSelectorRequirement, would: list[str]) -> Iterator[Fix]:
        node, told = would[0], requirement(found)
        given = found.key == "metadata.name" or found.key in _OF_KUBELETS
        if not given and found.operator in ("In", "Exists"):
            value = found.values[0] if found.values else ""
            yield Fix(
                f"label node {node} {found.key}={value}",
                f"kubectl label node {node} {found.key}={value} --overwrite",
                would,
                rank=1,
                changed=self._node(node, partial(labelled, label=found.key, value=value)),
            )
        elif not given and found.operator in ("NotIn", "DoesNotExist"):
            changed, command = (
                self._node(node, partial(labelled, label=found.key, value=None)),
                f"kubectl label node {node} {found.key}-",
            )
            yield Fix(f"remove label {found.key} from node {node}", command, would, rank=1, changed=changed)
        selected = self._pod.spec.node_selector.get(found.key)
        wanted = {key: value for key, value in msgspec.to_builtins(found).items() if value}
        where = {"nodeSelector": {found.key: selected}} if selected is not None else {"matchExpressions": [wanted]}
        text = f"do without {told} in the pod's node {'selector' if selected is not None else 'affinity'}"
        changed = with_pods([without_requirement(self._pod, found)])
        yield Fix(text, as_yaml("in the pod, remove", where), would, rank=4, changed=changed)

    # ----------------------------------------------------------------------------------------------------- of resources

    def _of_resources(self) -> Iterator[Fix]:
        for data, names in self._groups("ResourcesInsufficient", "resource"):
            resource = str(data["resource"])
            most = self._most_free(resource, names)
            changed = self._with_less(resource, most) if most > 0 else None
            if changed is None:
                continue
            if would := self._do(changed[0], names):
                fix, total = self._less(resource, most, changed, would)
                yield fix
                if self._when:
                    yield Fix(f"add a node like {would[0]} with {total} {resource}", rank=6)
            else:
                # All that is free may be more than one zone has, or than the policy of a node takes from several.
                yield from self._within(resource, names[:_MOST_ROOMS])

    def _less(self, resource: str, most: int, changed: tuple[Pod, str, str], would: list[str]) -> tuple[Fix, str]:
        """The advice to ask for less, and how much is asked for now."""
        pod, container, amount = changed
        total = readable(resource, dict(self._state.demand.requests)[resource])
        told = in_one_unit({"total": total, "most": readable(resource, most)})
        text = f"request {told['most']} {resource} instead of {told['total']}"
        command = _asking(pod, {container: {resource: amount}})
        return Fix(text, command, would, rank=3, changed=with_pods([pod])), told["total"]

    def _of_zones(self) -> Iterator[Fix]:
        """Of what needs more zones than the policy allows, as much as it does; where resources need different numbers of them,
        less of the one that needs more, or more of those that need fewer."""
        for data, names in self._groups("ZoneTooSmall", "resource", "total"):
            if str(data["resource"]) in dict(self._state.demand.requests):
                yield from self._within(str(data["resource"]), names[:_MOST_ROOMS])
        for data, names in self._groups("ZoneWidthsDiffer", "widths"):
            widths = data["widths"]
            wide = [resource for resource, width in widths.items() if width > min(widths.values())]
            if len(wide) == 1 and wide[0] in dict(self._state.demand.requests):
                yield from self._within(wide[0], names[:_MOST_ROOMS])
            yield from self._widened(widths, names[:_MOST_ROOMS])
        yield from self._of_intent()

    def _of_intent(self) -> Iterator[Fix]:
        """Of what a pod says about its zones: to allow more of them, or to do without what cannot be read."""
        annotations = self._pod.metadata.annotations
        for data, names in self._groups("ZoneSpan", "needed"):
            yield from self._allowing(int(data["needed"]), names)
        if names := [name for name, _ in self._by_code.get("ZoneDevicesApart", ())]:
            # How many zones the devices of claims need is not known before it is tried.
            tried = (list(self._allowing(span, names)) for span in range(2, 2 + _MOST_CHANGES))
            yield from next(filter(None, tried), [])
        if names := [name for name, _ in self._by_code.get("ZoneIntentInvalid", ())]:
            said = [name for name in SAID if name in annotations]
            without = {name: value for name, value in annotations.items() if name not in said}
            changed = with_annotations(self._pod, without)
            if would := self._do(changed, names):
                command = annotate(self._pod, *(f"{name}-" for name in said))
                text = f"correct what the pod says of its zones, or take it away: {', '.join(said)}"
                yield Fix(text, command, would, rank=1, changed=with_pods([changed]))

    def _allowing(self, span: int, names: Sequence[str]) -> Iterator[Fix]:
        annotations = self._pod.metadata.annotations
        wider = {name: str(span) for name in SPANS if name in annotations}
        changed = with_annotations(self._pod, {**annotations, **wider})
        if would := self._do(changed, names):
            command = annotate(self._pod, *(f"{name}={value}" for name, value in wider.items()))
            yield Fix(f"allow the pod to span {span} zones", command, would, rank=3, changed=with_pods([changed]))

    def _widened(self, widths: dict[str, int], names: Sequence[str]) -> Iterator[Fix]:
        """Enough of everything that it needs as many zones as what needs most, on the first node where that would do."""
        most = max(widths.values())
        narrow = [name.split("+")[-1] for name, width in widths.items() if width < most]
        asked = dict(self._state.demand.requests)
        layouts = {layout: name for name in reversed(names) if (layout := self._ask.scheduler.zones.layout(name)) is not None}
        for layout, name in reversed(layouts.items()):
            least = {resource: layout.least_for(resource, most) for resource in narrow if resource in asked}
            pod: Pod | None = self._pod
            parts: dict[str, dict[str, str]] = {}
            for resource, amount in least.items():
                changed = self._with_total(pod, resource, amount) if pod is not None else None
                pod = changed[0] if changed is not None else None
                if changed is not None:
                    parts.setdefault(changed[1], {})[resource] = changed[2]
            if pod is not None and len(least) == len(narrow) and (would := self._do(pod, [name, *names])):
                told = [
                    (resource, readable(resource, amount), readable(resource, asked[resource]))
                    for resource, amount in least.items()
                ]
                text = " and ".join(f"{more} {resource} instead of {now}" for resource, more, now in told)
                yield Fix(f"request {text}", _asking(pod, parts), would, rank=3, changed=with_pods([pod]))
                return

    def _within(self, resource: str, names: Sequence[str]) -> Iterator[Fix]:
        """The most of it that a node would take, found by halves."""
        unit = {"cpu": 1000, "memory": 1 << 30}.get(resource, 1)
        low, high, best = 1, dict(self._state.demand.requests)[resource] // unit, None
        while low < high:
            middle = (low + high) // 2
            changed = self._with_less(resource, middle * unit)
            would = self._do(changed[0], names) if changed is not None else []
            if changed is not None and would:
                low, best = middle + 1, (middle * unit, changed, would)
            else:
                high = middle
        if best is not None:
            yield self._less(resource, *best)[0]

    def _most_free(self, resource: str, names: Sequence[str]) -> int:
        """The most that a node has left of it, of those that lack nothing else."""
        only = {name for name, reasons, _ in self._refused if len(reasons) == 1}
        infos = [info for name in names if name in only and (info := self._ask.scheduler.nodes.get(name)) is not None]
        return max((info.free(resource) for info in infos), default=0)

    def _with_less(self, resource: str, most: int) -> tuple[Pod, str, str] | None:
        """The pod with the largest request of a container cut so that all together ask for as much as there is."""
        return self._with_total(self._pod, resource, most)

    def _with_total(self, pod: Pod, resource: str, most: int) -> tuple[Pod, str, str] | None:
        """The pod with the largest request of a container changed so that all together ask for so much; with the name of the
        container, and what it asks for then."""
        asked = dict(self._state.demand.requests).get(resource, 0)
        containers = pod.spec.containers
        scale = 1000 if resource == "cpu" else 1
        sizes = [Quantity.parse(c.resources.requests.get(resource, 0)).nanos * scale // 10**9 for c in containers]
        if not sizes or max(sizes) <= asked - most:
            return None
        largest = sizes.index(max(sizes))
        amount = readable(resource, max(sizes) - (asked - most))
        return asking(pod, resource, largest, amount), containers[largest].name, amount

    # ---------------------------------------------------------------------------------------------------- of neighbours

    def _of_neighbours(self) -> Iterator[Fix]:
        for data, names in self._groups("TopologySpread", "topologyKey"):
            yield from self._of_spread(str(data["topologyKey"]), names)
        affinity = self._pod.spec.affinity
        for code, field in (("PodAffinity", "pod_affinity"), ("PodAntiAffinity", "pod_anti_affinity")):
            names = [name for name, _ in self._by_code.get(code, ())]
            if names and affinity is not None:
                changed = with_spec(self._pod, affinity=msgspec.structs.replace(affinity, **{field: None}))
                if would := self._do(changed, names):
                    text = f"make the pod's required pod {field.split('_', 1)[1].replace('_', '-')} a preference"
                    yield Fix(text, "", would, rank=4, changed=with_pods([changed]))
        for data, names in self._groups("PortTaken", "port"):
            free = tuple(
                msgspec.structs.replace(c, ports=tuple(p for p in c.ports if p.host_port != data["port"]))
                for c in self._pod.spec.containers
            )
            changed = with_spec(self._pod, containers=free)
            if would := self._do(changed, names):
                yield Fix(f"use another host port than {data['port']}", "", would, rank=4, changed=with_pods([changed]))

    def _of_spread(self, key: str, names: list[str]) -> Iterator[Fix]:
        constraints = self._pod.spec.topology_spread_constraints
        for index, constraint in enumerate(constraints):
            if constraint.topology_key != key or constraint.when_unsatisfiable == "ScheduleAnyway":
                continue

            def changed(index: int = index, **fields: Any) -> Pod:
                replaced = msgspec.structs.replace(constraints[index], **fields)
                return with_spec(
                    self._pod, topology_spread_constraints=(*constraints[:index], replaced, *constraints[index + 1 :])
                )

            for skew in range(constraint.max_skew + 1, constraint.max_skew + 1 + _MOST_SKEW):
                if would := self._do(changed(max_skew=skew), names):
                    yaml, then = _spread(key, maxSkew=skew), with_pods([changed(max_skew=skew)])
                    text = f"allow maxSkew {skew} over {key} instead of {constraint.max_skew}"
                    yield Fix(text, yaml, would, rank=4, changed=then)
                    break
            anyway = changed(when_unsatisfiable="ScheduleAnyway")
            if would := self._do(anyway, names):
                yaml = _spread(key, whenUnsatisfiable="ScheduleAnyway")
                yield Fix(f"make the spread over {key} a preference", yaml, would, rank=5, changed=with_pods([anyway]))

    # ------------------------------------------------------------------------------------------------------- of devices

    def _of_devices(self) -> Iterator[Fix]:
        """Changes that the allocator tried, on nodes where nothing else is missing; of fewer devices, the most that would do."""
        found = [(change, name) for name, _, devices in self._refused if devices is not None for change in devices.changes]
        tried = [(change, name) for change, name in found if self._is_for_people(change)]
        most: dict[tuple[str, ...], Quantity] = {}
        for change, _ in tried:
            if change.kind in _LESS:
                most[change.asked] = max(_amount(change), most.get(change.asked, Quantity(0)))
        # Thousands of nodes have few changes between them: each is put into words once.
        alike: dict[bytes, tuple[Change, dict[str, None]]] = {}
        for change, name in tried:
            if change.kind not in _LESS or _amount(change) == most[change.asked]:
                alike.setdefault(msgspec.json.encode(change), (change, {}))[1][name] = None
        helped: dict[str, tuple[Change, Fix, dict[str, None]]] = {}
        for change, names in alike.values():
            fix = self._told(change)
            if fix is not None:
                helped.setdefault(fix.text, (change, fix, {}))[2].update(names)
        told: Counter[str] = Counter()
        for change, fix, names in sorted(helped.values(), key=lambda item: -len(item[2])):
            told[change.kind] += 1
            if told[change.kind] > _MOST_ALIKE:
                continue
            fix.nodes, fix.rank = list(names), _RANKS[change.kind]
            yield fix
            if change.kind == "fewer" and self._when:
                yield from self._larger_node(change)
        yield from self._untainted()

    def _is_for_people(self, change: Change) -> bool:
        """A fabric has a device once: who tolerates that it is not attached gets what is attached elsewhere."""
        if change.kind == "tolerate":
            return change.data["key"] not in (DETACHED, DETACHING)
        return change.kind != "release" or not self._is_of_siblings(change.claim)

    def _is_of_siblings(self, claim: str) -> bool:
        users = _users(self._world, claim)
        return bool(users) and all(user.uid in self._siblings for user in users)

    def _untainted(self) -> Iterator[Fix]:
        """Where a toleration would do, so would the taint's end, which is not the pod's to bring about."""
        inventory = self._ask.scheduler.engine.inventory
        helped: dict[Lifted, dict[str, None]] = {}
        for name, _, devices in self._refused[:MOST_TRIED]:
            if devices is None:
                continue
            for change in (change for change in devices.changes if change.kind == "tolerate" and self._is_for_people(change)):
                kept = kept_by(devices, change.claim, change.request, change.data)
                helped.setdefault(lifted(inventory, kept, change.data), {})[name] = None
        most = sorted(((told, names) for told, names in helped.items() if told.text), key=lambda item: -len(item[1]))
        for told, names in most[:_MOST_ALIKE]:
            yield Fix(told.text, told.command, list(names), rank=_RANKS["untaint"], changed=told.changed)

    def _told(self, change: Change) -> Fix | None:
        """The change as an order, and what to paste. Of devices that a pod has through extended resources only their number is
        its own to change, where it asks for them; of anything else nothing is said."""
        if not change.claim.endswith(f"/{UNMADE}"):
            text, command = change_in_words(self._world, change), _command(self._world, change)
            return Fix(text, command, changed=claim_changed(self._world, change))
        for index, container in enumerate((*self._pod.spec.init_containers, *self._pod.spec.containers)):
            asked = container_requests(container)
            for position, resource in enumerate(sorted(name for name in asked if name in self._state.names and asked[name])):
                if change.kind == "fewer" and change.request == f"container-{index}-request-{position}":
                    count = change.data["count"]
                    limits = {"name": container.name, "resources": {"limits": {resource: str(count)}}}
                    text = f"ask for {count} {resource} instead of {asked[resource]}"
                    own = index - len(self._pod.spec.init_containers)
                    changed = with_pods([asking(self._pod, resource, own, str(count))]) if own >= 0 else {}
                    return Fix(text, as_yaml("in the pod, which must be recreated", {"containers": [limits]}), changed=changed)
        return None

    def _of_too_many(self) -> Iterator[Fix]:
        """An extended resource of more devices than the claim for it can hold: as many as it can and a node has."""
        parts = self._ask.scheduler.parts
        backed = DeviceBacked(True, parts.classes, parts.engine)
        for data, names in self._groups("TooManyDevices", "resource", "container"):
            resource, limit = str(data.get("resource") or ""), int(data["limit"])
            if not resource:
                continue
            free = {total - used for total, used in (backed.on_node(resource, name) for name in names[:MOST_TRIED])}
            for most in sorted({min(limit, count) for count in free if count > 0}, reverse=True)[:_MOST_CHANGES]:
                changed = self._with_less(resource, most)
                if changed is not None and (would := self._do(changed[0], names)):
                    yield self._less(resource, most, changed, would)[0]
                    break
            if self._when:
                yield Fix(f"ask for at most {limit} {resource} in one pod, or add a node whose device plugin has as many", rank=6)

    def _larger_node(self, change: Change) -> Iterator[Fix]:
        bound = next((r.data for _, r in self._by_code.get("NoCombination", ()) if r.data.get("constraint")), {})
        that = f" that {bound['constraint']}" if bound else ""
        for _, _, devices in self._refused:
            for finding in devices.requests if devices is not None else ():
                if (finding.claim, finding.request) == (change.claim, change.request):
                    yield Fix(f"add a node with {finding.needed} devices of class {finding.device_class}{that}", rank=6)
                    return

    # -------------------------------------------------------------------------------------------------------- of others

    def _of_others(self, found: Sequence[Fix]) -> list[Fix]:
        """Pods that could be ended, where that alone would do and no claim is known that it takes."""
        if any(fix.rank == _RANKS["release"] for fix in found):
            return []
        curable = [name for name, reasons, _ in self._refused if any(reason.code in CURABLE for reason in reasons)]
        asked, staying = curable[:_MOST_ROOMS], self._siblings
        rooms = [room for name in asked if (room := self._ask.room(self._state, name, staying)) is not None]
        rooms = [room for room in rooms if 0 < len(room.victims) <= _MOST_VICTIMS]
        told = []
        for room in sorted(rooms, key=lambda room: (len(room.victims), room.rank))[:_MOST_ALIKE]:
            pods = [placed.pod for placed in room.victims]
            names = ", ".join(sorted(pod.key for pod in pods)) + made_again(self._world, pods)
            commands = "\n".join(f"kubectl delete pod {pod.metadata.name} -n {pod.metadata.namespace}" for pod in pods)
            text, changed = f"end pod{'s' if len(pods) > 1 else ''} {names}", without(self._world, pods)
            told.append(Fix(text, commands, [room.node], rank=5, changed=changed))
        return told


# A claim cannot be changed.
_ANEW: Final = "in the claim or its template, which must be recreated"
_RANKS: Final = {"tolerate": 2, "untaint": 3, "fewer": 3, "less": 3, "unbind": 4, "unselect": 4, "release": 5}
# Changes of which the one that asks for most is told, over all nodes.
_LESS: Final = frozenset({"fewer", "less"})


def _asking(pod: Pod, amounts: Mapping[str, Mapping[str, str]]) -> str:
    """What to write into a pod, so that its containers ask for these amounts; their limits follow where they have them."""
    found = []
    for container in pod.spec.containers:
        if of := dict(amounts.get(container.name, {})):
            limits = {name: value for name, value in of.items() if name in container.resources.limits}
            found.append({"name": container.name, "resources": {"requests": of, **({"limits": limits} if limits else {})}})
    return as_yaml("in the pod", {"containers": found})


def _spread(key: str, **fields: Any) -> str:
    return as_yaml("in the pod", {"topologySpreadConstraints": [{"topologyKey": key, **fields}]})


def _amount(change: Change) -> Quantity:
    return Quantity.parse(change.data["amount" if change.kind == "less" else "count"])


def change_in_words(world: World, change: Change) -> str:
    """What the change is, as an order; ``world`` knows who uses claims."""
    match change.kind:
        case "tolerate":
            return f"add a toleration for {{{tainted(change.data)}}} to request {change.request} of {change.claim}"
        case "release":
            users = _users(world, change.claim)
            keys = [f"{change.claim.partition('/')[0]}/{user.name}" for user in users] if PODS in world.kinds else []
            pods = [pod for key in keys if (pod := world.get(PODS, key)) is not None]
            named = ", ".join(user.name for user in users) + made_again(world, pods)
            return f"release claim {change.claim}" + (f" (pod {named})" if users else "")
        case "unbind":
            return f"do without the constraint on {change.data['attribute']} in {change.claim}"
        case "unselect":
            return f"do without the selector {change.data['expression']} in request {change.request} of {change.claim}"
        case "less":
            much = f"{change.data['amount']} of {change.data['capacity']}"
            return f"ask for {much} instead in request {change.request} of {change.claim}"
        case _:
            return f"ask for {change.data.get('count')} instead in request {change.request} of {change.claim}"


def _command(world: World, change: Change) -> str:
    namespace, _, name = change.claim.partition("/")
    if change.kind == "release":
        pods = [f"kubectl delete pod {user.name} -n {namespace}" for user in _users(world, change.claim)]
        return "\n".join(pods) or f"kubectl delete resourceclaim {name} -n {namespace}"
    if change.kind == "unbind":
        return as_yaml(f"{_ANEW}, remove", {"matchAttribute": change.data["attribute"]})
    request, _, sub = change.request.partition("/")
    match change.kind:
        case "tolerate":
            operator = "Equal" if change.data.get("value") else "Exists"
            asked: dict[str, Any] = {"tolerations": [{"operator": operator, **{k: v for k, v in change.data.items() if v}}]}
        case "less":
            asked = {"capacity": {"requests": {change.data["capacity"]: change.data["amount"]}}}
        case "unselect":
            return as_yaml(f"{_ANEW}, remove", {"selectors": [{"cel": {"expression": change.data["expression"]}}]})
        case _:
            asked = {"count": change.data.get("count")}
    wanted = {"firstAvailable": [{"name": sub, **asked}]} if sub else {"exactly": asked}
    return as_yaml(_ANEW, {"spec": {"devices": {"requests": [{"name": request, **wanted}]}}})


def _users(world: World, key: str) -> Sequence[Any]:
    claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, key)
    return claim.status.reserved_for if claim is not None else ()
