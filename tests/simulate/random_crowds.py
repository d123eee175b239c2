"""Crowds, drawn from a seed: gangs, jobs and services that would fit, each by itself, on a few nodes that are never enough for
all, so that rooms are made, promised, taken and given back all the time; and whatever may come in between just then.

Always true: the same seed makes the same documents; nothing happens after ``BUSY`` but what follows from what happened.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from dray.nodes.hardware import hardware

Document = dict[str, Any]

BUSY: Final = 150
END: Final = 600
_GROUP: Final = "resource.k8s.io/v1"
_UNLIMITED: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_PRIORITIES: Final = {"calm": 10, "train": 50, "swift": 75, "build": 100}
# hardware -> the class of its devices, and how many of them a node has at least for one pod.
_CLASSES: Final = {
    "gpu8": ("gpu.dray.dev", 8),
    "fabric": ("fabric-gpu.dray.dev", 2),
    "nic": ("nic.dray.dev", 2),
    "zones": ("", 8),
}
# What a device plugin serves, on nodes with zones.
_PLUGIN: Final = "dray.dev/plugin-gpu"


def crowd(seed: int) -> list[Document]:
    return Crowd(seed).documents()


class Crowd:
    """One scenario while it is drawn: ``fixed`` is there from the start, ``steps`` come later."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(f"crowd {seed}")
        self.family = self.rng.choice(("gpu8", "gpu8", "fabric", "fabric", "nic", "zones"))
        self.hardware = [f"{self.family}:{self.rng.randint(2, 3)}"]
        made = hardware(self.hardware)
        self.nodes = list(made.nodes)
        self.slices = [each for each in made.objects if each["kind"] == "ResourceSlice"]
        self.fixed: list[Document] = []
        self.steps: list[Document] = []
        self.queues: list[Document] = []
        self.groups: list[tuple[int, Document]] = []  # each with when its pods come
        self.members: list[tuple[int, str]] = []
        self.away: list[list[str]] = []
        self.serial = 0

    def documents(self) -> list[Document]:
        for name, value in _PRIORITIES.items():
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            self.fixed.append({**kind, "value": value})
        self._queues()
        self._racks()
        for _ in range(self.rng.randint(7, 11)):
            self._gang()
        for _ in range(self.rng.randint(0, 2)):
            self._service()
        for _ in range(self.rng.randint(3, 7)):
            self.rng.choice(_HAPPENINGS)(self)
        if self.family == "zones" and self.rng.random() < 0.6:
            self.exporter_is_lost()
        self.steps.sort(key=lambda step: int(step["at"].removesuffix("s")))
        return [*self.fixed, self._scenario()]

    def _scenario(self) -> Document:
        spec: Document = {"until": f"{END}s", "seed": self.seed, "hardware": self.hardware, "steps": self.steps}
        kind = self.rng.choice((*[""] * 6, "slow", "conflicts", "lost answers", "doubtful answers", "lost watches", "crashes"))
        if kind:
            spec["faults"] = {"kind": kind, "until": f"{self.rng.randint(60, BUSY)}s"}
        elif self.away:
            spec["faults"] = {"away": sorted(self.away, key=lambda each: int(each[0].removesuffix("s")))}
        return {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": f"crowd-{self.seed}"}, "spec": spec}

    # ------------------------------------------------------------------------------------------------------ the cluster

    def _queues(self) -> None:
        rng = self.rng
        parent = "company" if rng.random() < 0.5 else ""
        if parent:
            self._queue(parent, {}, "")
        for name in ("red", "blue", "green")[: rng.randint(2, 3)]:
            device, most = _CLASSES[self.family]
            limit = rng.choice((-1, -1, most, 2 * most))
            share = {"quota": rng.randint(0, most), "limit": limit, "overQuotaWeight": rng.randint(0, 2)}
            counted = {"gpu8": [f"deviceclass/{device}", "dray.dev/gpu"], "zones": [_PLUGIN]}
            self._queue(name, dict.fromkeys(counted.get(self.family, [f"deviceclass/{device}"]), share), parent)

    def _queue(self, name: str, shares: Document, parent: str) -> None:
        spec: Document = {"resources": {"cpu": _UNLIMITED, "memory": _UNLIMITED, "gpu": _UNLIMITED}}
        spec |= {"parentQueue": parent} if parent else {}
        for field in ("reclaimMinRuntime", "preemptMinRuntime"):
            if self.rng.random() < 0.25:
                spec[field] = f"{self.rng.randint(5, 60)}s"
        metadata = {"name": name, "annotations": {"dray.dev/resources": json.dumps(shares)}}
        made = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}
        self.fixed.append(made)
        self.queues.append(made)

    @property
    def leaves(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.queues if each["metadata"]["name"] != "company"]

    def _racks(self) -> None:
        kind = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "floor"}}
        self.fixed.append({**kind, "spec": {"levels": [{"nodeLabel": "rack"}]}})
        for number, node in enumerate(self.nodes):
            metadata = {"name": node["metadata"]["name"], "labels": {"rack": "ab"[min(number, 1)]}}
            self._happens(0, patch={"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    # -------------------------------------------------------------------------------------------------------- who comes

    def _gang(self) -> None:
        rng, name, at = self.rng, self._name("gang"), self.rng.randint(0, BUSY - 20)
        count, queue = rng.choice((1, 2, 2, 3, 4)), rng.choice(self.leaves)
        spec: Document = {"queue": queue, "minMember": rng.randint(1, count) if rng.random() < 0.4 else count}
        spec["stalenessGracePeriod"] = f"{rng.randint(5, 60)}s"
        if rng.random() < 0.35:
            spec["topologyConstraint"] = {"topology": "floor", "requiredTopologyLevel": "rack"}
        if rng.random() < 0.6:
            spec["preemptibility"] = rng.choice(("preemptible", "preemptible", "non-preemptible"))
        metadata = {"name": name, "namespace": "default"}
        group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
        self.fixed.append(group)
        self.groups.append((at, group))
        pod = self._pod(name, queue)
        pod["metadata"]["annotations"] |= {"pod-group-name": name}
        self._happens(at, apply=pod, count=count)
        self.members += [(at, name)] if count == 1 else [(at, f"{name}-{number}") for number in range(count)]

    def _service(self) -> None:
        """Pods that come back whenever they are evicted; now and then a job whose pods start together."""
        rng, name = self.rng, self._name("service")
        pod = self._pod(name, rng.choice(self.leaves))
        template = {"metadata": {"labels": {**pod["metadata"]["labels"], "app": name}}, "spec": pod["spec"]}
        metadata, at = {"name": name, "namespace": "default"}, rng.randint(0, 100)
        if rng.random() < 0.5:
            spec = {"replicas": rng.randint(1, 3), "selector": {"matchLabels": {"app": name}}, "template": template}
            made: Document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
            fewer = {"replicas": rng.randint(0, 2)}
        else:
            pod["spec"]["restartPolicy"] = "Never"
            template["metadata"]["annotations"] = {"dray.dev/gang": "2", "dray.dev/finishes-after": f"{rng.randint(20, 90)}s"}
            made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
            made["spec"] = {"completions": 3, "parallelism": 3, "template": template}
            fewer = {"parallelism": rng.randint(0, 2)}
        self._happens(at, apply=made)
        if rng.random() < 0.5:
            self._happens(
                rng.randint(at, BUSY), patch={**{key: made[key] for key in ("apiVersion", "kind", "metadata")}, "spec": fewer}
            )

    def _pod(self, name: str, queue: str) -> Document:
        rng = self.rng
        labels = {"app": rng.choice("ab"), "kai.scheduler/queue": queue}
        annotations = {"dray.dev/finishes-after": f"{rng.randint(10, 120)}s"} if rng.random() < 0.5 else {}
        container: Document = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m"}}}
        spec: Document = {"containers": [container], "priorityClassName": rng.choice(tuple(_PRIORITIES))}
        if rng.random() < 0.3:
            spec["terminationGracePeriodSeconds"] = rng.choice((0, 5, 30))
        self._ask(name, spec, container)
        metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _ask(self, name: str, spec: Document, container: Document) -> None:
        """For devices: by number, by a claim of its own, or by one that all of a gang share."""
        rng, (device, most) = self.rng, _CLASSES[self.family]
        way, count = rng.choice(("number", "own", "own", "shared")), rng.randint(1, max(1, most // 2))
        if self.family == "zones":
            asked = {"cpu": str(rng.choice((2, 8, 16))), "memory": "1Gi", _PLUGIN: str(count)}
            container["resources"] = {"requests": asked, "limits": asked}
            return
        if way == "number":
            named = "dray.dev/gpu" if self.family == "gpu8" else f"deviceclass.resource.kubernetes.io/{device}"
            container["resources"]["limits"] = {named: str(count)}
            return
        exactly: Document = {"deviceClassName": device, "count": count}
        if self.family == "nic":
            exactly["capacity"] = {"requests": {"bandwidth": rng.choice(("10G", "40G", "60G"))}}
        devices = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        slowly = {"fabric.dray.dev/attach-seconds": f"{rng.choice((1, 5, 15, 30))}s"} if self.family == "fabric" else {}
        metadata: Document = {"name": f"{name}-{way}", "namespace": "default"}
        if way == "own":
            made = {
                "kind": "ResourceClaimTemplate",
                "metadata": metadata,
                "spec": {"metadata": {"annotations": slowly}, "spec": devices},
            }
        else:
            made = {"kind": "ResourceClaim", "metadata": {**metadata, "annotations": slowly}, "spec": devices}
        self.fixed.append({"apiVersion": _GROUP, **made})
        reference = "resourceClaimTemplateName" if way == "own" else "resourceClaimName"
        spec["resourceClaims"] = [{"name": "d", reference: metadata["name"]}]
        container["resources"]["claims"] = [{"name": "d"}]

    # ------------------------------------------------------------------------------------------- what comes in between

    def _soon(self) -> int:
        """A little after some gang came: when room is made for it, or it is being bound."""
        at, _ = self.rng.choice(self.groups)
        return min(at + self.rng.choice((0, 1, 1, 2, 3, 5, 10)), BUSY)

    def scheduler_crashes(self) -> None:
        self._happens(self._soon(), crash={"host": "scheduler", "down": f"{self.rng.randint(1, 10)}s"})

    def server_is_away(self) -> None:
        at = self._soon()
        if all(int(end.removesuffix("s")) < at or at + 40 < int(start.removesuffix("s")) for start, end in self.away):
            self.away.append([f"{at}s", f"{at + self.rng.randint(11, 30)}s"])

    def node_is_made_again(self) -> None:
        """Deleted, and there again under the same name, at once or after a while."""
        node, at = self.rng.choice(self.nodes), self._soon()
        self._happens(at, delete={key: node[key] for key in ("apiVersion", "kind", "metadata")})
        self._happens(min(at + self.rng.choice((0, 0, 1, 20)), BUSY), apply=node)

    def exporter_is_lost(self) -> None:
        """Nobody tells for a while what is free of the zones of a node."""
        name, at = self.rng.choice(self.nodes)["metadata"]["name"], self._soon()
        self._happens(at, crash={"host": "nodes", "down": f"{self.rng.randint(5, 40)}s"})
        kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": name}}
        self._happens(at, delete=kind)

    def node_is_cordoned(self) -> None:
        metadata, at = {"name": self.rng.choice(self.nodes)["metadata"]["name"]}, self._soon()
        back = min(at + self.rng.randint(10, 90), BUSY)
        for when, value in ((at, True), *([(back, None)] if self.rng.random() < 0.7 else ())):
            self._happens(
                when, patch={"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": value}}
            )

    def device_is_tainted(self) -> None:
        """Devices that gangs use, perhaps, or are to have; later it is well again."""
        if not self.slices:
            return
        found, at = self.rng.choice(self.slices), self._soon()
        selector = {"driver": found["spec"]["driver"], "pool": found["spec"]["pool"]["name"]}
        if (devices := found["spec"].get("devices")) and self.rng.random() < 0.7:
            selector["device"] = self.rng.choice(devices)["name"]
        rule = {"apiVersion": _GROUP, "kind": "DeviceTaintRule", "metadata": {"name": self._name("rule")}}
        taint = {"key": "example.com/worn", "effect": self.rng.choice(("NoSchedule", "NoExecute"))}
        self._happens(at, apply={**rule, "spec": {"deviceSelector": selector, "taint": taint}})
        if self.rng.random() < 0.7:
            self._happens(min(at + self.rng.randint(1, 60), BUSY), delete=rule)

    def slice_is_published_anew(self) -> None:
        """By another generation of the pool, while claims are written or wait for their devices."""
        found = self.rng.choice(self.slices) if self.slices else None
        if found is not None and found["spec"]["pool"]["resourceSliceCount"] == 1:
            pool = {**found["spec"]["pool"], "generation": self.rng.randint(2, 9)}
            self._happens(self._soon(), apply={**found, "spec": {**found["spec"], "pool": pool}})

    def queue_goes(self) -> None:
        queue, at = self.rng.choice(self.queues), self._soon()
        self._happens(at, delete={key: queue[key] for key in ("apiVersion", "kind", "metadata")})
        if self.rng.random() < 0.8:
            self._happens(min(at + self.rng.randint(0, 30), BUSY), apply=queue)

    def gang_changes(self) -> None:
        """It needs more or fewer, or is in another queue."""
        _, group = self.rng.choice(self.groups)
        change = self.rng.choice(({"minMember": self.rng.randint(1, 4)}, {"queue": self.rng.choice(self.leaves)}))
        self._happens(self._soon(), patch={**group, "spec": change})

    def member_goes(self) -> None:
        at, name = self.rng.choice(self.members)
        metadata = {"name": name, "namespace": "default"}
        when = min(at + self.rng.choice((0, 1, 2, 3, 5, 20, 40)), BUSY)
        self._happens(when, delete={"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    def budget(self) -> None:
        least = self.rng.choice(({"minAvailable": self.rng.randint(1, 4)}, {"maxUnavailable": self.rng.randint(0, 1)}))
        spec = {"selector": {"matchLabels": {"app": self.rng.choice("ab")}}, **least}
        metadata = {"name": self._name("budget"), "namespace": "default"}
        self._happens(
            self._soon(), apply={"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
        )

    # ---------------------------------------------------------------------------------------------------------- writing

    def _happens(self, at: int, **what: Any) -> None:
        self.steps.append({"at": f"{at}s", **{key: value for key, value in what.items() if (key, value) != ("count", 1)}})

    def _name(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"


_HAPPENINGS: Final[tuple[Callable[[Crowd], None], ...]] = (
    Crowd.scheduler_crashes,
    Crowd.server_is_away,
    Crowd.node_is_made_again,
    Crowd.node_is_cordoned,
    Crowd.device_is_tainted,
    Crowd.slice_is_published_anew,
    Crowd.queue_goes,
    Crowd.gang_changes,
    Crowd.member_goes,
    Crowd.budget,
)
