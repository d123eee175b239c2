"""Teams that share devices, drawn from a seed: trees of queues, gangs of several parts that have to be near to each other, and
whatever happens to them while room is being made.

Always true: nothing of this changes what the rest of the scenario draws. There is more asked for than there is, so that rooms are
made, promised and given up all the time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulate.random_scenarios import Drawing

Document = dict[str, Any]

BUSY: Final = 150
_UNLIMITED: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_KAI: Final = "scheduling.run.ai/v2alpha2"
_CORE: Final = "scheduling.k8s.io/v1beta1"
_PRIORITIES: Final = {"calm": 10, "train": 50, "swift": 75, "build": 100}
# What is counted of devices, by the beginning of the hardware's name: amounts of a queue are a few of these.
_COUNTED: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "gpu8": (("deviceclass/gpu.dray.dev", 1), ("dray.dev/gpu", 1)),
    "mig": (("counter/mig.dray.dev/memory", 20 * 2**30), ("deviceclass/mig-1g.dray.dev", 1)),
    "nic": (("capacity/nic.dray.dev/bandwidth", 40 * 10**9), ("deviceclass/nic.dray.dev", 1)),
    "fabric": (("deviceclass/fabric-gpu.dray.dev", 1),),
}


class Teams:
    """The queues and gangs of one scenario."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.rng = random.Random(f"teams {drawing.seed}")
        self.queues: list[Document] = []
        self.leaves: list[str] = []
        self.groups: list[tuple[int, Document]] = []  # each with when its pods come
        self.members: list[tuple[int, str]] = []
        self.serial = 0

    def join(self) -> None:
        """Add everything, once the scenario is drawn."""
        for name, value in _PRIORITIES.items():
            metadata = {"name": name}
            self.drawing.fixed.append(
                {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}
            )
        self._tree()
        self._racks()
        self._enlist()
        for _ in range(self.rng.randint(3, 7)):
            self._gang()
        for _ in range(self.rng.choice((0, 1, 2))):
            self._service()
        if self.rng.random() < 0.4:
            self._budgets()
        for happen in _HAPPENINGS:
            for _ in range(self.rng.choice((0, 0, 1, 2))):
                happen(self)

    # ---------------------------------------------------------------------------------------------------------- queues

    def _tree(self) -> None:
        """One to four queues for pods, below one or two others or at the top."""
        rng = self.rng
        parents = rng.choice(([""], ["company"], ["company", "lab"]))
        for parent in filter(None, parents):
            self._add_queue(parent, "")
        for name in ("red", "blue", "green", "grey")[: rng.choice((1, 2, 2, 3, 4))]:
            self._add_queue(name, rng.choice(parents))
            self.leaves.append(name)

    def _add_queue(self, name: str, parent: str) -> None:
        metadata: Document = {"name": name}
        spec: Document = {"resources": {"cpu": _UNLIMITED, "memory": _UNLIMITED, "gpu": _UNLIMITED}}
        if parent:
            spec["parentQueue"] = parent
        if name not in ("company", "lab") or self.rng.random() < 0.3:
            metadata["annotations"], spec["resources"] = {"dray.dev/resources": self._further()}, self._native()
        if self.rng.random() < 0.3:
            spec["priority"] = self.rng.choice((50, 200))
        for field in ("reclaimMinRuntime", "preemptMinRuntime"):
            if self.rng.random() < 0.25:
                spec[field] = f"{self.rng.randint(1, 90)}s"
        queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}
        self.queues.append(queue)
        self.drawing.fixed.append(queue)

    def _native(self) -> Document:
        rng = self.rng
        cpu = {"quota": rng.choice((-1, 8000, 30000)), "limit": rng.choice((-1, -1, 40000)), "overQuotaWeight": rng.randint(0, 2)}
        return {"cpu": cpu if rng.random() < 0.3 else _UNLIMITED, "memory": _UNLIMITED, "gpu": _UNLIMITED}

    def _share(self, unit: int) -> Document:
        rng = self.rng
        limit = rng.choice((-1, -1, -1, -1, -1, rng.randint(2, 8) * unit))
        quota = rng.choice((0, 1, 2, 3, 4, -1))
        return {"quota": max(quota * unit, -1), "limit": limit, "overQuotaWeight": rng.randint(0, 2)}

    def _further(self) -> str:
        names = (pair for family in dict.fromkeys(self.drawing.families) for pair in _COUNTED.get(family, ()))
        return json.dumps({name: self._share(unit) for name, unit in names if self.rng.random() < 0.7})

    def _enlist(self) -> None:
        """Most of the pods that are there anyway wait in a queue too; fewer of each, so that gangs find room."""
        for step in self.drawing.steps:
            if step.get("count", 1) > 2:
                step["count"] = 2
            applied = step.get("apply", {})
            template = applied.get("spec", {}).get("template") if applied.get("kind") in ("Deployment", "Job") else applied
            if applied.get("kind") in ("Pod", "Deployment", "Job") and self.rng.random() < 0.7:
                template["metadata"].setdefault("labels", {})["kai.scheduler/queue"] = self.rng.choice(self.leaves)
                if self.rng.random() < 0.7:
                    template["metadata"]["labels"]["kai.scheduler/preemptibility"] = "preemptible"
                if applied["kind"] == "Job" and self.rng.random() < 0.5:
                    least = self.rng.randint(1, applied["spec"]["parallelism"])
                    template["metadata"].setdefault("annotations", {})["dray.dev/gang"] = str(least)

    # ----------------------------------------------------------------------------------------------------------- gangs

    def _racks(self) -> None:
        levels = [{"nodeLabel": "row"}, {"nodeLabel": "rack"}]
        kind = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "floor"}}
        self.drawing.fixed.append({**kind, "spec": {"levels": levels}})
        for node in self.drawing.nodes:
            if self.rng.random() < 0.9:
                metadata = {"name": node["metadata"]["name"], "labels": {"row": "one", "rack": self.rng.choice("ab")}}
                self.drawing.happens(0, patch={"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    def _near(self) -> Document:
        if self.rng.random() < 0.65:
            return {}
        level = self.rng.choice(("requiredTopologyLevel", "preferredTopologyLevel"))
        return {"topologyConstraint": {"topology": "floor", level: self.rng.choice(("row", "rack", "rack"))}}

    def _gang(self) -> None:
        self.serial += 1
        name, at, family = f"gang{self.serial}", self.rng.randint(0, 130), self.rng.choice(self.drawing.families)
        parts = [f"part{number}" for number in range(self.rng.choice((0, 0, 0, 2, 3)))]
        pods = {part: self.rng.randint(1, 3) for part in parts} or {"": self.rng.choice((1, 2, 2, 3, 4))}
        least = {part: self.rng.randint(1, count) if self.rng.random() < 0.4 else count for part, count in pods.items()}
        tie = self._group(name, at, least)
        asked = self._asked(name, family)
        priority = self.rng.choice((*_PRIORITIES, None))
        lives = {"dray.dev/finishes-after": f"{self.rng.randint(5, 150)}s"} if self.rng.random() < 0.35 else {}
        for part, count in pods.items():
            # Leader and workers need not ask for the same.
            needs = asked if not part or self.rng.random() < 0.8 else self._asked(f"{name}{part}", family)
            made = self._pod(f"{name}{part}", part, needs, lives)
            made["spec"] |= tie.get("spec", {}) | ({"priorityClassName": priority} if priority else {})
            made["metadata"]["annotations"] |= tie.get("annotations", {})
            made["metadata"]["labels"] |= tie.get("labels", {})
            when = at if self.rng.random() < 0.8 else at + self.rng.randint(0, 15)
            self.drawing.happens(when, apply=made, count=count)
            names = [f"{name}{part}"] if count == 1 else [f"{name}{part}-{number}" for number in range(count)]
            self.members += [(when, each) for each in names]

    def _service(self) -> None:
        """Pods that come back whenever they are evicted."""
        self.serial += 1
        name, labels = (
            f"service{self.serial}",
            {"app": f"service{self.serial}", "kai.scheduler/queue": self.rng.choice(self.leaves)},
        )
        made = self._pod(name, "", self._asked(name, self.rng.choice(self.drawing.families)), {})
        template = {"metadata": {"labels": labels}, "spec": made["spec"]}
        template["spec"] |= {"priorityClassName": priority} if (priority := self.rng.choice((*_PRIORITIES, None))) else {}
        spec = {"replicas": self.rng.randint(1, 5), "selector": {"matchLabels": {"app": labels["app"]}}, "template": template}
        metadata = {"name": name, "namespace": "default"}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        self.drawing.happens(self.rng.randint(0, 100), apply=deployment)

    def _group(self, name: str, at: int, least: dict[str, int]) -> Document:
        """What ties the pods to their group and queue; the group itself is there, or comes with them or after them."""
        rng, queue = self.rng, self.rng.choice(self.leaves)
        labels = {"kai.scheduler/queue": queue}
        metadata = {"name": name, "namespace": "default"}
        if "" in least and rng.random() < 0.25:
            spec: Document = {"schedulingPolicy": {"gang": {"minCount": least[""]}}}
            if rng.random() < 0.3:
                spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
            version, tie = _CORE, {"spec": {"schedulingGroup": {"podGroupName": name}}}
        else:
            spec = {"queue": queue, "stalenessGracePeriod": f"{rng.randint(5, 60)}s", **self._near()}
            if "" in least:
                spec["minMember"] = least[""]
            else:
                spec["subGroups"] = [{"name": part, "minMember": count, **self._near()} for part, count in least.items()]
                if rng.random() < 0.3:
                    spec["minSubGroup"] = rng.randint(1, len(least))
            spec |= {"preemptibility": rng.choice(("preemptible", "non-preemptible"))} if rng.random() < 0.4 else {}
            version, tie = _KAI, {"annotations": {"pod-group-name": name}}
        group = {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        self.groups.append((at, group))
        if rng.random() < 0.5:
            self.drawing.fixed.append(group)
        else:
            self.drawing.happens(min(at + rng.choice((0, 0, 1, 10)), BUSY), apply=group)
        return {**tie, "labels": labels if version == _CORE or rng.random() < 0.5 else {}}

    def _asked(self, name: str, family: str) -> Document:
        """What each member asks for: by number, by a claim of its own, or by one of all of them."""
        rng = self.rng
        way = rng.choice(("number", "number", "own", "own", "shared", "both", "cpu"))
        if way == "number" and family == "gpu8":
            return {"limits": {"dray.dev/gpu": str(rng.randint(1, 5))}}
        if way == "cpu":
            return {"requests": {"cpu": rng.choice(("4", "14", "30"))}}
        found = []
        devices = self._few(family) if rng.random() < 0.7 else None
        if way != "shared":
            found.append(("own", {"resourceClaimTemplateName": f"{name}-own"}))
            self.drawing.claim("ResourceClaimTemplate", f"{name}-own", family, devices)
        if way in ("shared", "both"):
            found.append(("all", {"resourceClaimName": f"{name}-all"}))
            self.drawing.claim("ResourceClaim", f"{name}-all", family, devices)
        return {"claims": [{"name": entry, **how} for entry, how in found]}

    def _few(self, family: str) -> Document | None:
        """One or two devices of a class, so that there is room for several that ask for them."""
        classes = [name for name, _ in _COUNTED.get(family, ()) if name.startswith("deviceclass/")]
        if not classes:
            return None
        exactly: Document = {"deviceClassName": classes[0].partition("/")[2], "count": self.rng.choice((1, 1, 2))}
        if family == "nic":
            exactly["capacity"] = {"requests": {"bandwidth": self.rng.choice(("10G", "40G", "60G"))}}
        return {"requests": [{"name": "r", "exactly": exactly}]}

    def _pod(self, name: str, part: str, needs: Document, annotations: dict[str, str]) -> Document:
        labels = {"app": self.rng.choice("ab"), **({"kai.scheduler/subgroup-name": part} if part else {})}
        resources: Document = {"requests": needs.get("requests", {"cpu": "500m"})}
        if "limits" in needs:
            resources["limits"] = needs["limits"]
        spec: Document = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
        if claims := needs.get("claims"):
            spec["resourceClaims"] = claims
            resources["claims"] = [{"name": claim["name"]} for claim in claims]
        if self.rng.random() < 0.3:
            spec["terminationGracePeriodSeconds"] = self.rng.choice((0, 5, 30))
        metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": dict(annotations)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _budgets(self) -> None:
        for app in "ab":
            least = self.rng.choice(({"minAvailable": self.rng.randint(1, 5)}, {"maxUnavailable": self.rng.randint(0, 2)}))
            spec = {"selector": {"matchLabels": {"app": app}}, **least}
            metadata = {"name": f"teams-{app}", "namespace": "default"}
            made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
            self.drawing.happens(self.rng.randint(0, 60), apply=made)

    # ------------------------------------------------------------------------------------- while room is being made

    def _soon(self) -> int:
        """A little after some gang came: when room is made for it, or it is being bound."""
        at, _ = self.rng.choice(self.groups)
        return min(at + self.rng.choice((0, 1, 1, 2, 3, 5, 10, 20)), BUSY)

    def queue_changes(self) -> None:
        queue = self.rng.choice(self.queues)
        metadata = {"name": queue["metadata"]["name"], "annotations": {"dray.dev/resources": self._further()}}
        spec = {"resources": {**self._native()}}
        if self.rng.random() < 0.3:
            spec["parentQueue"] = self.rng.choice(("company", "nobody", None))
        self.drawing.happens(self._soon(), patch={**queue, "metadata": metadata, "spec": spec})

    def queue_goes(self) -> None:
        queue, at = self.rng.choice(self.queues), self._soon()
        self.drawing.happens(at, delete={key: queue[key] for key in ("apiVersion", "kind", "metadata")})
        if self.rng.random() < 0.8:
            self.drawing.happens(self.rng.randint(at, BUSY), apply=queue)

    def group_changes(self) -> None:
        """More or fewer are needed, in another queue."""
        _, group = self.rng.choice(self.groups)
        spec: Document = {}
        if "minMember" in group["spec"]:
            spec["minMember"] = self.rng.randint(1, 4)
        if "queue" in group["spec"]:
            spec["queue"] = self.rng.choice(self.leaves)
            spec["preemptibility"] = self.rng.choice(("preemptible", "non-preemptible"))
        if spec:
            self.drawing.happens(self._soon(), patch={**group, "spec": spec})

    def group_goes(self) -> None:
        _, group = self.rng.choice(self.groups)
        at = self._soon()
        self.drawing.happens(at, delete={key: group[key] for key in ("apiVersion", "kind", "metadata")})
        if self.rng.random() < 0.7:
            self.drawing.happens(self.rng.randint(at, BUSY), apply=group)

    def member_goes(self) -> None:
        """One for whom room is being made, perhaps."""
        at, name = self.rng.choice(self.members)
        metadata = {"name": name, "namespace": "default"}
        when = min(at + self.rng.choice((0, 1, 2, 3, 5, 20)), BUSY)
        self.drawing.happens(when, delete={"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    def device_fails(self) -> None:
        """A device that a gang is to have, perhaps, is tainted meanwhile."""
        found = self.rng.choice(self.drawing.slices)
        selector = {"driver": found["spec"]["driver"], "pool": found["spec"]["pool"]["name"]}
        if devices := found["spec"].get("devices"):
            selector["device"] = self.rng.choice(devices)["name"]
        self.serial += 1
        rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": f"meanwhile-{self.serial}"}}
        taint = {"key": "example.com/worn", "effect": self.rng.choice(("NoSchedule", "NoExecute"))}
        at = self._soon()
        self.drawing.happens(at, apply={**rule, "spec": {"deviceSelector": selector, "taint": taint}})
        if self.rng.random() < 0.6:
            self.drawing.happens(self.rng.randint(at, BUSY), delete=rule)

    def scheduler_crashes(self) -> None:
        self.drawing.happens(self._soon(), crash={"host": "scheduler", "down": f"{self.rng.randint(1, 10)}s"})


_HAPPENINGS: Final[tuple[Callable[[Teams], None], ...]] = (
    Teams.queue_changes,
    Teams.queue_goes,
    Teams.group_changes,
    Teams.group_goes,
    Teams.member_goes,
    Teams.device_fails,
    Teams.scheduler_crashes,
)
