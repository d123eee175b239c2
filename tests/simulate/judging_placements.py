"""What must be true of every decision at the moment when it is written: a claim gets devices that it asked for, a pod a node that
it may be on, with devices that are ready, beside pods that it stands and near to those of its gang.

Always true: it is read from the objects of the API alone, with the rules of ``tests.solver`` for devices; nothing of Dray's own
reading of them is used. What changed only a while ago is not held against anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dray.api.gates import ALIASES
from dray.api.kinds import (
    CORE_POD_GROUPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from dray.cluster.port import Write
from dray.runtime.virtual import Written
from tests.simulate.judging_queues import Plain, Run, claims_of
from tests.simulate.settled import Settled
from tests.solver.expressions import evaluate
from tests.solver.model import Fatal, Problem, node_matches
from tests.solver.validity import violations

_HOSTNAME: Final = "kubernetes.io/hostname"
_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Placements:
    """Follows the writes of a run; ``wrong`` has what is wrong, of which object, and how."""

    def __init__(self, simulation: Run, settled: Settled) -> None:
        self._simulation, self._settled = simulation, settled
        self.wrong: list[tuple[str, str, str]] = []
        self._ours: set[str] = set()  # pods that the scheduler bound
        simulation.listen(self._written)

    def _written(self, written: Written) -> None:
        write = written.write
        if written.error is not None or written.host != "scheduler":
            return
        if write.kind == RESOURCE_CLAIMS and (write.body or {}).get("status", {}).get("allocation"):
            self._note("wrong devices", f"claim/{write.key}", self._of_devices(write))
        elif write.subresource == "binding":
            pod = self._simulation.objects(PODS)[write.key]
            self._ours.add(pod["metadata"]["uid"])
            self._note("wrong node", f"pod/{write.key}", self._of_node(pod))
            self._note("not ready", f"pod/{write.key}", self._of_readiness(pod))
            self._note("apart", f"pod/{write.key}", self._of_gang(pod))

    def _note(self, kind: str, about: str, found: Iterator[str]) -> None:
        self.wrong += [(kind, about, f"{detail} at {self._simulation.elapsed:.0f} s") for detail in found]

    # -------------------------------------------------------------------------------------------------------- devices

    def _of_devices(self, write: Write) -> Iterator[str]:
        """The devices are what the claim asks for, from some node that can use them."""
        claims = self._simulation.objects(RESOURCE_CLAIMS)
        claim = claims[write.key]
        asked = [each for request in claim["spec"]["devices"]["requests"] for each in _alternatives(request)]
        pools = {(each["driver"], each["pool"]) for each in claim["status"]["allocation"]["devices"]["results"]}
        everything = any(each.get("allocationMode") == "All" for each in asked)
        administers = any(each.get("adminAccess") for each in asked)
        named = {each["deviceClassName"] for each in asked}
        known = (DEVICE_CLASSES, *sorted(named))
        if not self._settled.pools(None if everything else pools) or not self._are_settled(*known):
            return
        classes = self._simulation.objects(DEVICE_CLASSES)
        if gone := sorted(named - classes.keys()):
            yield f"has devices of {', '.join(gone)}, which is no class"
            return
        # What admin access takes counts only while it is decided on: who came after it may have been written before it.
        others = [
            each
            for key, each in claims.items()
            if key != write.key and not administers and each.get("status", {}).get("allocation")
        ]
        slices = [each for each in self._slices() if everything or _pool(each["spec"]) in pools]
        line = {"classes": list(classes.values()), "claims": [claim], "allocatedClaims": others, "slices": slices}
        line["features"] = {name: all(map(self._simulation.gates, gates)) for name, gates in ALIASES.items()}
        yield from self._broken(line, claim["status"]["allocation"])

    def _broken(self, line: Plain, allocation: Plain) -> list[str]:
        """What is wrong with the allocation on every node that it allows, told of the last of them."""
        selector, found = allocation.get("nodeSelector"), list[str]()
        for name, node in self._simulation.objects(NODES).items():
            if selector is None or node_matches(node, selector):
                if not self._are_settled(NODES, name):
                    return []
                try:
                    found = violations(Problem({**line, "node": node}), [allocation], evaluate)
                except Fatal:
                    return []
                if not found:
                    return []
        return found

    def _slices(self) -> Iterator[Plain]:
        """As drivers publish them, with the taints that rules add."""
        on = self._simulation.gates("DRADeviceTaintRules")
        rules = self._simulation.objects(DEVICE_TAINT_RULES) if on else {}
        known = [rule["spec"] for name, rule in rules.items() if self._are_settled(DEVICE_TAINT_RULES, name)]
        for each in self._simulation.objects(RESOURCE_SLICES).values():
            spec = each["spec"]
            yield {**each, "spec": {**spec, "devices": [_with(known, spec, device) for device in spec.get("devices") or ()]}}

    def _are_settled(self, kind: Kind, *keys: str) -> bool:
        return all(self._settled.object(kind.resource, key) for key in keys)

    # ---------------------------------------------------------------------------------------------------------- nodes

    def _of_node(self, pod: Plain) -> Iterator[str]:
        """The node takes the pod, and so do the pods there. Who waits for a volume may come long after its node was chosen."""
        spec = pod["spec"]
        node = self._simulation.objects(NODES).get(spec["nodeName"])
        waited = self._waited(pod)
        if node is None or spec.get("volumes") or not self._settled.object(NODES.resource, spec["nodeName"], soon=not waited):
            return
        taints = [*node["spec"].get("taints", ()), *([_CORDONED] if node["spec"].get("unschedulable") else ())]
        for taint in taints:
            if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in spec.get("tolerations", ())):
                yield f"is bound to node {spec['nodeName']}, which has the taint {taint['key']}"
        labels = node["metadata"].get("labels", {})
        if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
            yield f"is bound to node {spec['nodeName']}, which it does not select"
        for other in self._placed():
            if other["spec"]["nodeName"] == spec["nodeName"] and (_repels(pod, other) or _repels(other, pod)):
                yield f"is bound to node {spec['nodeName']} beside {other['metadata']['name']}"

    def _waited(self, pod: Plain) -> bool:
        """Whether it may be bound later than decided on: its devices had to be made ready, or those of others of its gang."""
        results = (
            result
            for _, claim in claims_of(self._simulation, pod)
            for result in claim["status"]["allocation"]["devices"]["results"]
        )
        published = (
            device for each in self._simulation.objects(RESOURCE_SLICES).values() for device in each["spec"].get("devices") or ()
        )
        gang = _group_of(pod)[0] is not None or "dray.dev/gang" in pod["metadata"].get("annotations", {})
        return any(each.get("bindingConditions") for each in (published if gang else results))

    def _placed(self) -> Iterator[Plain]:
        """Who runs or starts where the scheduler wanted it."""
        for pod in self._simulation.objects(PODS).values():
            if pod["metadata"]["uid"] in self._ours and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                yield pod

    def _of_readiness(self, pod: Plain) -> Iterator[str]:
        for name, claim in claims_of(self._simulation, pod) if self._simulation.gates("DRADeviceBindingConditions") else ():
            for result in claim["status"]["allocation"]["devices"]["results"]:
                missing = set(result.get("bindingConditions", ())) - _met(claim["status"], result)
                if missing:
                    yield f"is bound while {result['device']} of claim {name} lacks {', '.join(sorted(missing))}"

    # ---------------------------------------------------------------------------------------------------------- gangs

    def _of_gang(self, pod: Plain) -> Iterator[str]:
        """Who has to be near to the others of its gang, or of its part of it, is: of gangs and nodes that were never changed."""
        kind, name = _group_of(pod)
        key = f"{pod['metadata']['namespace']}/{name}"
        if kind is None or not self._settled.from_the_start(kind.resource, key):
            return
        group = self._simulation.objects(kind).get(key)
        mates = [each for each in self._placed() if _group_of(each) == (kind, name) and _stays(each)]
        for part, label in _levels(group["spec"] if group is not None else {}):
            near = [each for each in mates if part in ("", _part(each))] if part in ("", _part(pod)) else []
            names = sorted({each["spec"]["nodeName"] for each in near})
            nodes = self._simulation.objects(NODES)
            if all(each in nodes and self._settled.object(NODES.resource, each, soon=False) for each in names):
                domains = {nodes[each]["metadata"].get("labels", {}).get(label, "") for each in names}
                if len(domains) > 1:
                    yield f"is on {pod['spec']['nodeName']}, and its gang on {', '.join(names)}: not in one {label}"


def _alternatives(request: Plain) -> list[Plain]:
    return request.get("firstAvailable") or [request["exactly"]]


def _pool(spec: Plain) -> tuple[str, str]:
    return spec["driver"], spec["pool"]["name"]


def _with(rules: list[Plain], spec: Plain, device: Plain) -> Plain:
    own = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
    selects = [rule for rule in rules if (chosen := rule.get("deviceSelector")) and chosen.items() <= own.items()]
    return {**device, "taints": [*device.get("taints", ()), *(rule["taint"] for rule in selects)]}


def _tolerates(toleration: Plain, taint: Plain) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"] or toleration.get("key", taint["key"]) != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _repels(one: Plain, other: Plain) -> bool:
    """Whether a pod stands no such pods on its node."""
    rules = one["spec"].get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", ())
    labels = other["metadata"].get("labels", {})
    same = one["metadata"]["namespace"] == other["metadata"]["namespace"] and one is not other
    return same and any(
        rule["topologyKey"] == _HOSTNAME and rule["labelSelector"]["matchLabels"].items() <= labels.items() for rule in rules
    )


def _met(status: Plain, result: Plain) -> set[str]:
    """The conditions of this very device that are so."""
    place = [result[name] for name in ("driver", "pool", "device")]
    said = [each for each in status.get("devices", ()) if [each[name] for name in ("driver", "pool", "device")] == place]
    said = [each for each in said if each.get("shareID") in (None, result.get("shareID"))]
    return {each["type"] for found in said for each in found.get("conditions", ()) if each["status"] == "True"}


def _group_of(pod: Plain) -> tuple[Kind | None, str]:
    core = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    own = pod["metadata"].get("annotations", {}).get("pod-group-name", "")
    return (CORE_POD_GROUPS, core) if core else (POD_GROUPS, own) if own else (None, "")


def _part(pod: Plain) -> str:
    return str(pod["metadata"].get("labels", {}).get("kai.scheduler/subgroup-name", ""))


def _stays(pod: Plain) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _levels(spec: Plain) -> Iterator[tuple[str, str]]:
    """The labels in which pods have to be equal, each with the part whose pods are meant ('': all)."""
    for part, said in (("", spec), *((each["name"], each) for each in spec.get("subGroups", ()))):
        if level := said.get("topologyConstraint", {}).get("requiredTopologyLevel"):
            yield part, level
    yield from (("", each["key"]) for each in spec.get("schedulingConstraints", {}).get("topology", ()))
