"""Mixtures, drawn from a seed: everything that shares a cluster with devices at once, on nodes that align pods with zones beside
the devices of claims, under schedulers that are set up in other ways, while pools are published in parts, drivers come back with
fewer devices, device plugins hand over to drivers, and taints go through their stages.

Always true: nothing of this changes what the rest of the scenario draws. Each subject comes in every third scenario, so that most
have several of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from dray.nodes.zoned import zoning

if TYPE_CHECKING:
    from tests.simulate.random_scenarios import Drawing

Document = dict[str, Any]

BUSY: Final = 150
CHANCE: Final = 0.35
# Of each subject of a company.
COMPANY: Final = 0.25
_GROUP: Final = "resource.k8s.io/v1"
_PLUGIN: Final = "dray.dev/plugin-gpu"
_OTHER: Final = "second-scheduler"


class Mixtures:
    """What one scenario gets besides the rest of it."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.rng = random.Random(f"mixtures {drawing.seed}")
        self.subjects = [subject for subject in SUBJECTS if self.rng.random() < CHANCE]

    def join(self) -> None:
        """Add everything, once the scenario is drawn."""
        for subject in self.subjects:
            SUBJECTS[subject](self)

    # ---------------------------------------------------------------------------------------------------------- zones

    def zones(self) -> None:
        """Nodes with devices of claims have zones too, of any policy; most pods are aligned with them."""
        rng = self.rng
        chosen = [node for node in self.drawing.nodes if "dray.dev/numa" not in node["metadata"].get("annotations", {})]
        for node in chosen:
            if rng.random() < 0.8:
                self._divide(node["metadata"]["name"])
        for pod in self._pods():
            if rng.random() < 0.7:
                self._align(pod)

    def _divide(self, name: str) -> None:
        rng, count = self.rng, self.rng.choice((1, 2, 2, 2, 4))
        zone: Document = {"cpus": rng.choice((4, 8, 16)), "memory": rng.choice(("16Gi", "64Gi")), "devices": {_PLUGIN: 2}}
        zones = [dict(zone) for _ in range(count)]
        if rng.random() < 0.3:
            zones[0]["reservedCPUs"] = 2
        manager = {
            "policy": rng.choice(("single-numa-node", "single-numa-node", "restricted", "restricted", "best-effort", "none")),
            "scope": rng.choice(("pod", "container")),
            "preferClosestNUMANodes": rng.random() < 0.3,
        }
        given: Document = {"topologyManager": manager, "zones": zones}
        given["publish"] = {"after": f"{rng.choice((1, 5, 30))}s", "jitter": f"{rng.randint(0, 5)}s"}
        given["distances"] = [[10 if one == other else 21 + abs(one - other) for other in range(count)] for one in range(count)]
        if rng.random() < 0.15:
            given["exporter"] = None
        if rng.random() < 0.2:
            given["memoryManagerPolicy"] = "None"
        capacity, usable = zoning(given).amounts()
        metadata = {"name": name, "annotations": {"dray.dev/numa": json.dumps(given)}}
        status = {"capacity": capacity, "allocatable": usable}
        self.drawing.happens(0, patch={"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})

    def _align(self, pod: Document) -> None:
        """Guaranteed: whole CPUs, and as much as is asked for; some with devices of a plugin."""
        rng, resources = self.rng, pod["spec"]["containers"][0]["resources"]
        amounts = {"cpu": str(rng.choice((1, 2, 3, 4, 6, 8, 12))), "memory": rng.choice(("1Gi", "10Gi", "30Gi"))}
        limits = {**resources.get("limits", {}), **amounts}
        if rng.random() < 0.4:
            limits[_PLUGIN] = str(rng.randint(1, 4))
        resources["requests"], resources["limits"] = {**resources.get("requests", {}), **amounts}, limits
        if rng.random() < 0.4:
            needs = {"cpu": str(rng.randint(1, 3)), "memory": "1Gi"}
            other: Document = {"name": "beside", "image": "x", "resources": {"requests": needs, "limits": dict(needs)}}
            where = rng.choice(("containers", "containers", "initContainers"))
            if where == "initContainers" and rng.random() < 0.5:
                other["restartPolicy"] = "Always"
            pod["spec"].setdefault(where, []).append(other)
        if rng.random() < 0.1:
            pod["metadata"].setdefault("annotations", {})["dray.dev/numa-span"] = "1"

    # ------------------------------------------------------------------------------------------------------ schedulers

    def settings(self) -> None:
        """The scheduler is set up in other ways."""
        rng, drawing = self.rng, self.drawing
        zones: Document = {
            "reconstructAvailable": rng.random() < 0.6,
            "placementWait": rng.choice(("0s", "10s", "30s")),
            "scoringStrategy": {
                "type": rng.choice(("LeastNUMANodes", "LeastAllocated", "MostAllocated", "BalancedAllocation")),
                "distanceAware": rng.random() < 0.5,
            },
        }
        drawing.plugins.append({"name": "NUMA", "args": zones})
        if rng.random() < 0.4:
            drawing.plugins.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}})

    def two_profiles(self) -> None:
        """Some pods name another profile of the same scheduler, which does not preempt."""
        profile: Document = {"schedulerName": _OTHER, "pluginConfig": [], "plugins": {}}
        if self.rng.random() < 0.6:
            profile["plugins"]["multiPoint"] = {"disabled": [{"name": "DefaultPreemption"}]}
        self.drawing.profiles.append(profile)
        for pod in self._pods():
            if self.rng.random() < 0.4:
                pod["spec"]["schedulerName"] = _OTHER

    # ------------------------------------------------------------------------------------------------- what drivers do

    def in_parts(self) -> None:
        """A driver publishes its pool anew by two slices, one after the other; for a while the pool is incomplete."""
        rng = self.rng
        found = self._whole_pool()
        if found is None:
            return
        devices, at = found["spec"]["devices"], rng.randint(1, BUSY - 20)
        cut, generation = rng.randint(0, len(devices)), rng.randint(10, 19)
        kept = rng.sample(devices, rng.randint(max(len(devices) - 2, 0), len(devices)))
        for number, part in enumerate((kept[:cut], kept[cut:])):
            metadata = {**found["metadata"], "name": f"{found['metadata']['name']}-part-{number}"}
            pool = {**found["spec"]["pool"], "generation": generation, "resourceSliceCount": 2}
            spec = {**found["spec"], "pool": pool, "devices": part}
            self.drawing.happens(at + number * rng.randint(0, 15), apply={**found, "metadata": metadata, "spec": spec})
        gone = {key: found[key] for key in ("apiVersion", "kind", "metadata")}
        self.drawing.happens(rng.randint(at, BUSY), delete=gone)

    def driver_restarts(self) -> None:
        """All slices of a driver on a node go, and come back with some devices fewer, and others of these tainted."""
        rng = self.rng
        found = self._whole_pool()
        if found is None:
            return
        at = rng.randint(1, BUSY - 20)
        self.drawing.happens(at, delete={key: found[key] for key in ("apiVersion", "kind", "metadata")})
        devices = [dict(each) for each in found["spec"]["devices"]]
        kept = rng.sample(devices, max(len(devices) - rng.randint(0, 2), 0))
        for device in kept:
            if rng.random() < 0.2:
                effect = rng.choice(("NoSchedule", "NoExecute", "None"))
                device["taints"] = [*device.get("taints", ()), {"key": "example.com/new", "effect": effect}]
        pool = {**found["spec"]["pool"], "generation": rng.randint(20, 29)}
        back = at + rng.randint(0, 20)
        self.drawing.happens(back, apply={**found, "spec": {**found["spec"], "pool": pool, "devices": kept}})

    def _whole_pool(self) -> Document | None:
        """A slice that is all of its pool, and has nothing but devices."""
        plain = [
            each
            for each in self.drawing.slices
            if each["spec"]["pool"]["resourceSliceCount"] == 1
            and each["spec"].get("devices")
            and not each["spec"].get("sharedCounters")
            and not any(device.get("consumesCounters") for device in each["spec"]["devices"])
        ]
        return self.rng.choice(plain) if plain else None

    def handed_over(self) -> None:
        """On some nodes a device plugin serves what a driver publishes later, or the other way round."""
        rng = self.rng
        for node in self.drawing.nodes:
            name = node["metadata"]["name"]
            found = next((each for each in self.drawing.slices if each["spec"].get("nodeName") == name), None)
            if found is None or not name.startswith("gpu8") or rng.random() < 0.3:
                continue
            slices = {"delete": {key: found[key] for key in ("apiVersion", "kind", "metadata")}}, {"apply": found}
            plugin = {"patch": _served(name, str(len(found["spec"]["devices"])))}, {"patch": _served(name, "0")}
            at = rng.randint(10, BUSY - 30)
            if rng.random() < 0.5:
                times = 0, at, at + rng.randint(0, 10), 0
            else:
                times = at + rng.randint(0, 10), BUSY, BUSY + 5, at
            without, published, stops, serves = times
            self.drawing.happens(without, **slices[0])
            self.drawing.happens(published, **slices[1])
            self.drawing.happens(serves, **plugin[0])
            self.drawing.happens(stops, **plugin[1])

    # ----------------------------------------------------------------------------------------------------------- taints

    def stages(self) -> None:
        """A rule that only tells, then keeps pods away, then evicts them; and perhaps back again."""
        rng, found = self.rng, self.rng.choice(self.drawing.slices)
        selector = {"driver": found["spec"]["driver"]}
        if rng.random() < 0.7:
            selector["pool"] = found["spec"]["pool"]["name"]
        kind = {"apiVersion": _GROUP, "kind": "DeviceTaintRule", "metadata": {"name": "in-stages"}}
        at = rng.randint(0, 60)
        stages = ["None", "NoSchedule", "NoExecute", *(("None",) if rng.random() < 0.5 else ())]
        for number, effect in enumerate(stages):
            verb = "patch" if number else "apply"
            taint = {"key": "example.com/stage", "effect": effect}
            self.drawing.happens(at, **{verb: {**kind, "spec": {"deviceSelector": selector, "taint": taint}}})
            at = min(at + rng.randint(0, 30), BUSY)
        if rng.random() < 0.7:
            self.drawing.happens(at, delete=kind)
        self._tolerate_for_a_while()

    def _tolerate_for_a_while(self) -> None:
        for document in self.drawing.fixed:
            if document["kind"] in ("ResourceClaim", "ResourceClaimTemplate") and self.rng.random() < 0.4:
                spec = document["spec"] if document["kind"] == "ResourceClaim" else document["spec"]["spec"]
                for request in spec["devices"]["requests"]:
                    for each in request.get("firstAvailable") or [request["exactly"]]:
                        toleration = {"operator": "Exists", "effect": "NoExecute"}
                        seconds = {"tolerationSeconds": self.rng.randint(0, 40)} if self.rng.random() < 0.7 else {}
                        each["tolerations"] = [*each.get("tolerations", ()), {**toleration, **seconds}]

    def node_evicts(self) -> None:
        """A node is tainted so that pods leave it, at once or as late as they tolerate it."""
        rng, name = self.rng, self.rng.choice(self.drawing.nodes)["metadata"]["name"]
        kind, at = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, rng.randint(5, 120)
        taint = {"key": "example.com/leave", "effect": "NoExecute"}
        self.drawing.happens(at, patch={**kind, "spec": {"taints": [taint]}})
        if rng.random() < 0.8:
            self.drawing.happens(rng.randint(at, BUSY), patch={**kind, "spec": {"taints": None}})
        for pod in self._pods():
            if rng.random() < 0.4:
                toleration = {"key": taint["key"], "operator": "Exists", "effect": "NoExecute"}
                seconds = {"tolerationSeconds": rng.randint(0, 40)} if rng.random() < 0.7 else {}
                pod["spec"].setdefault("tolerations", []).append({**toleration, **seconds})

    # -------------------------------------------------------------------------------------------------------- workloads

    def rolling(self) -> None:
        """A Deployment whose pods are replaced by others, as an update does, while claims are short."""
        rng, at = self.rng, self.rng.randint(0, 60)
        labels = {"app": "rolled"}
        template = {"metadata": {"labels": labels}, "spec": self._spec()}
        metadata = {"name": "rolled", "namespace": "default"}
        kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
        strategy = rng.choice(({"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": rng.randint(0, 1)}}))
        spec = {"replicas": rng.randint(1, 4), "selector": {"matchLabels": labels}, "template": template, "strategy": strategy}
        self.drawing.happens(at, apply={**kind, "spec": spec})
        for number in range(rng.randint(1, 2)):
            at = rng.randint(at, BUSY)
            changed = {"template": {"metadata": {"labels": {**labels, "version": f"v{number}"}}}}
            self.drawing.happens(at, patch={**kind, "spec": changed})

    def _spec(self) -> Document:
        """As some pod has it, so that it asks for what others do."""
        known = [pod["spec"] for pod in self._pods() if "schedulingGates" not in pod["spec"]]
        made: Document = json.loads(json.dumps(self.rng.choice(known) if known else self.drawing.pod_spec()))
        for name in ("schedulingGroup", "schedulingGates", "restartPolicy"):
            made.pop(name, None)
        return made

    def _pods(self) -> Iterator[Document]:
        yield from self.drawing.company.pod_like()


def _served(node: str, amount: str) -> Document:
    """A node says that a device plugin serves so many."""
    amounts = {"dray.dev/gpu": amount}
    kind = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    return {**kind, "status": {"capacity": amounts, "allocatable": amounts}}


SUBJECTS: Final[dict[str, Callable[[Mixtures], None]]] = {
    "zones": Mixtures.zones,
    "settings": Mixtures.settings,
    "two profiles": Mixtures.two_profiles,
    "in parts": Mixtures.in_parts,
    "driver restarts": Mixtures.driver_restarts,
    "handed over": Mixtures.handed_over,
    "stages": Mixtures.stages,
    "node evicts": Mixtures.node_evicts,
    "rolling": Mixtures.rolling,
}
