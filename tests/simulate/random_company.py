"""What devices share a cluster with, drawn from a seed: queues and gangs, zones, volumes, quotas, budgets, other namespaces,
nodes that come later or change their size, pods that go past the scheduler.

Always true: nothing of this changes what the rest of the scenario draws, so that a scenario without company is the same as ever.
Each subject comes seldom, so that it is met alone as often as with others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from dray.api.gates import WITHOUT_EFFECT
from dray.nodes.hardware import hardware
from tests.volumes import local_claim, local_class, local_volume

if TYPE_CHECKING:
    from tests.simulate.random_scenarios import Drawing

Document = dict[str, Any]

CHANCE: Final = 0.09
_UNLIMITED: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_GPU: Final = "gpu.dray.dev"
_GATES: Final = (
    "DRAAdminAccess", "DRAPrioritizedList", "DRAExtendedResource", "DRADeviceTaintRules", "DRADeviceTaints",
    "DRADeviceBindingConditions", "DRAConsumableCapacity", "DRAPartitionableDevices", "DRADeviceCompatibilityGroups",
)  # fmt: skip
assert not WITHOUT_EFFECT.intersection(_GATES)


class Company:
    """The subjects of one scenario, and what they add to it."""

    def __init__(self, drawing: Drawing, subjects: Collection[str], chance: float) -> None:
        self.drawing = drawing
        self.rng = random.Random(f"company {drawing.seed}")
        self.subjects = frozenset(subject for subject in subjects if self.rng.random() < chance)
        self.queues: list[str] = []
        self.volumes: list[str] = []
        self.budgeted: set[str] = set()

    def hardware(self) -> list[str]:
        return [f"zones:{self.rng.randint(1, 2)}"] if "zones" in self.subjects else []

    def join(self) -> None:
        """Add everything, once the scenario is drawn."""
        for subject, add in SUBJECTS.items():
            if subject in self.subjects:
                add(self)

    # ---------------------------------------------------------------------------------------------------- what there is

    def applied(self, kind: str) -> Iterator[Document]:
        """Every step that applies such an object."""
        return (step for step in self.drawing.steps if step.get("apply", {}).get("kind") == kind)

    def bare(self) -> Iterator[tuple[Document, Document]]:
        """Pods that nobody looks after, each with its step."""
        return ((step, step["apply"]) for step in self.applied("Pod"))

    def pod_like(self) -> Iterator[Document]:
        """Everything with ``metadata`` and ``spec`` of pods."""
        yield from (pod for _, pod in self.bare())
        for kind in ("Deployment", "Job"):
            yield from (step["apply"]["spec"]["template"] for step in self.applied(kind))

    def add(self, *documents: Document) -> None:
        self.drawing.fixed += documents

    # ----------------------------------------------------------------------------------------------- queues and gangs

    def queue(self) -> None:
        """Queues of a random tree, and a queue for most pods."""
        rng = self.rng
        parent = "company" if rng.random() < 0.4 else ""
        if parent:
            self.add(self._queue(parent, ""))
        for name in ("red", "blue", "green")[: rng.randint(1, 3)]:
            self.queues.append(name)
            self.add(self._queue(name, parent))
        for pod in self.pod_like():
            if rng.random() < 0.8:
                pod["metadata"].setdefault("labels", {})["kai.scheduler/queue"] = rng.choice(self.queues)

    def _queue(self, name: str, parent: str) -> Document:
        rng = self.rng
        share = {"quota": rng.randint(0, 6), "limit": rng.choice((-1, -1, 8)), "overQuotaWeight": rng.randint(0, 2)}
        spec: Document = {"resources": {"cpu": _UNLIMITED, "memory": _UNLIMITED, "gpu": share}}
        if parent:
            spec["parentQueue"] = parent
        if rng.random() < 0.3:
            spec["priority"] = rng.choice((50, 200))
        if rng.random() < 0.2:
            spec["reclaimMinRuntime"] = f"{rng.randint(1, 60)}s"
        shares = {f"deviceclass/{_GPU}": share, "dray.dev/gpu": share} if rng.random() < 0.7 else {}
        metadata: Document = {"name": name, "annotations": {"dray.dev/resources": json.dumps(shares)}}
        return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}

    def gang(self) -> None:
        """Pods that start together: KAI's groups, Kubernetes' own, or the pods of a Job."""
        rng = self.rng
        for step, pod in self.bare():
            count = step.get("count", 1)
            if rng.random() < 0.6:
                self._group(pod, rng.randint(1, count) if rng.random() < 0.5 else count, f"{step['at']}")
        for step in self.applied("Job"):
            spec = step["apply"]["spec"]
            spec["template"]["metadata"].setdefault("annotations", {})["dray.dev/gang"] = str(rng.randint(1, spec["parallelism"]))

    def _group(self, pod: Document, least: int, at: str) -> None:
        rng, name = self.rng, f"{pod['metadata']['name']}-group"
        metadata = {"name": name, "namespace": pod["metadata"]["namespace"]}
        if rng.random() < 0.4:
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
            version, spec = "scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"gang": {"minCount": least}}}
        else:
            pod["metadata"].setdefault("annotations", {})["pod-group-name"] = name
            version, spec = "scheduling.run.ai/v2alpha2", {"minMember": least, "stalenessGracePeriod": f"{rng.randint(5, 60)}s"}
            queue = pod["metadata"].get("labels", {}).get("kai.scheduler/queue")
            spec |= {"queue": queue} if queue else {}
            spec |= {"preemptibility": rng.choice(("preemptible", "non-preemptible"))} if rng.random() < 0.4 else {}
        group = {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        if rng.random() < 0.8:
            self.add(group)
        else:
            self.drawing.happens(min(int(at.removesuffix("s")) + rng.randint(0, 20), 150), apply=group)

    # ------------------------------------------------------------------------------------------- zones, volumes, limits

    def zone(self) -> None:
        """Pods that a kubelet aligns, some with devices of a plugin, some with devices of claims near to a zone."""
        rng = self.rng
        zoned = [node["metadata"]["name"] for node in self.drawing.nodes if node["metadata"]["name"].startswith("zones-")]
        if rng.random() < 0.6:
            for name in zoned:
                self.add(self._zoned_devices(name, zoned))
            if not any(each["metadata"]["name"] == _GPU for each in self.drawing.device_classes):
                selector = {"cel": {"expression": f'device.driver == "{_GPU}"'}}
                metadata = {"name": _GPU}
                kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata}
                self.add({**kind, "spec": {"selectors": [selector], "extendedResourceName": "dray.dev/gpu"}})
        for pod in self.pod_like():
            if rng.random() < 0.7:
                self._align(pod)

    def _zoned_devices(self, node: str, zoned: list[str]) -> Document:
        devices = [{"name": f"gpu-{n}", "attributes": {"numaNode": {"int": n // 2}, "index": {"int": n}}} for n in range(4)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        metadata, spec = {"name": f"{node}-near"}, {"driver": _GPU, "nodeName": node, "pool": pool, "devices": devices}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}

    def _align(self, pod: Document) -> None:
        rng, resources = self.rng, pod["spec"]["containers"][0]["resources"]
        amounts = {"cpu": str(rng.choice((1, 4, 16, 24, 40))), "memory": rng.choice(("1Gi", "100Gi"))}
        limits = {**resources.get("limits", {}), **amounts}
        if not pod["spec"].get("resourceClaims") and rng.random() < 0.5:
            limits["dray.dev/plugin-gpu"] = str(rng.randint(1, 6))
        resources["requests"], resources["limits"] = {**resources.get("requests", {}), **amounts}, limits
        if rng.random() < 0.2:
            pod["metadata"].setdefault("annotations", {})["dray.dev/numa-span"] = "1"

    def volume(self) -> None:
        """Local volumes, each on a node, and claims that wait for their first consumer."""
        rng = self.rng
        self.add(local_class(rng.choice(("WaitForFirstConsumer", "WaitForFirstConsumer", "Immediate"))))
        for number in range(rng.randint(1, 5)):
            self._now_or_later(local_volume(f"pv{number}", rng.choice(self.drawing.nodes)["metadata"]["name"]))
        for number in range(rng.randint(1, 3)):
            self.volumes.append(f"data{number}")
            self._now_or_later(local_claim(f"data{number}"))
        for pod in self.pod_like():
            if rng.random() < 0.4:
                claim = {"claimName": rng.choice(self.volumes)}
                pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]

    def _now_or_later(self, document: Document) -> None:
        if self.rng.random() < 0.8:
            self.add(document)
        else:
            self.drawing.happens(self.rng.randint(1, 150), apply=document)

    def quota(self) -> None:
        """The namespace may have so much; what is too much is refused, and workloads try again."""
        hard = {"pods": str(self.rng.randint(3, 20))}
        for each in self.drawing.device_classes:
            if self.rng.random() < 0.4:
                name = each["metadata"]["name"]
                hard[f"{name}.deviceclass.resource.k8s.io/devices"] = str(self.rng.randint(1, 8))
        metadata = {"name": "enough", "namespace": "default"}
        self.add({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})

    def budget(self) -> None:
        """Pods of an app, of which only so many may be disturbed."""
        for app in ("a", "b"):
            least = self.rng.choice(({"minAvailable": self.rng.randint(1, 4)}, {"maxUnavailable": self.rng.randint(0, 2)}))
            spec = {"selector": {"matchLabels": {"app": app}}, **least}
            metadata = {"name": f"of-{app}", "namespace": "default"}
            self.add({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec})

    # ---------------------------------------------------------------------------------------------------------- nodes

    def late_node(self) -> None:
        """One node more of what there is comes later, as an autoscaler brings it, and sometimes goes again."""
        rng, name = self.rng, self.rng.choice([each for each in self.drawing.hardware if not each.startswith("tpu")])
        kind, _, count = name.partition(":")
        made, before = hardware([f"{kind}:{int(count) + 1}"]), hardware([name])
        known = {each["metadata"]["name"] for each in (*before.nodes, *before.objects)}
        added = [each for each in (*made.nodes, *made.objects) if each["metadata"]["name"] not in known]
        at = rng.randint(5, 120)
        for each in added:
            self.drawing.happens(at + (rng.randint(0, 20) if each["kind"] == "ResourceSlice" else 0), apply=each)
        if rng.random() < 0.3:
            node = next(each for each in added if each["kind"] == "Node")
            self.drawing.happens(rng.randint(at, 150), delete={key: node[key] for key in ("apiVersion", "kind", "metadata")})

    def resized(self) -> None:
        """A node says that it has less, and later more again."""
        rng, node = self.rng, self.rng.choice(self.drawing.nodes)
        reference = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["metadata"]["name"]}}
        before = node["status"].get("allocatable") or node["status"]["capacity"]
        at = rng.randint(1, 120)
        self.drawing.happens(
            at, patch={**reference, "status": {"allocatable": {"cpu": rng.choice(("1", "4", "10")), "pods": "5"}}}
        )
        if rng.random() < 0.7:
            back = {"cpu": str(before["cpu"]), "pods": str(before.get("pods", 110))}
            self.drawing.happens(rng.randint(at, 150), patch={**reference, "status": {"allocatable": back}})

    def past_the_scheduler(self) -> None:
        """Somebody binds pods by hand, without asking whether there is room."""
        rng = self.rng
        for number in range(rng.randint(1, 4)):
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": rng.choice(("1", "8", "14"))}}}
            spec = {"nodeName": rng.choice(self.drawing.nodes)["metadata"]["name"], "containers": [container]}
            metadata = {"name": f"by-hand-{number}", "namespace": "default", "labels": {"app": rng.choice("ab")}}
            self.drawing.happens(
                rng.randint(0, 150), apply={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )

    # ----------------------------------------------------------------------------------------------------------- pods

    def containers(self) -> None:
        """Init containers, sidecars, and claims that only some containers see."""
        rng = self.rng
        for pod in self.pod_like():
            if rng.random() < 0.6:
                first = pod["spec"]["containers"][0]
                other: Document = {"name": "other", "image": "x", "resources": {"requests": {"cpu": "1"}}}
                if first["resources"].get("claims") and rng.random() < 0.5:
                    other["resources"]["claims"] = first["resources"]["claims"][:1]
                if rng.random() < 0.4 and (limits := first["resources"].get("limits")):
                    other["resources"]["limits"] = {name: "1" for name in limits if "/" in name}
                where = rng.choice(("containers", "initContainers"))
                if where == "initContainers" and rng.random() < 0.5:
                    other["restartPolicy"] = "Always"
                pod["spec"].setdefault(where, []).append(other)

    def crashing(self) -> None:
        """Containers that exit a few times before they go on; pods that take their time to be prepared."""
        rng = self.rng
        for pod in self.pod_like():
            if rng.random() < 0.4:
                found = {"dray.dev/crashes-after": f"{rng.randint(1, 20)}s", "dray.dev/crashes": str(rng.randint(1, 3))}
                pod["metadata"].setdefault("annotations", {}).update(found)
        for document in self.drawing.fixed:
            if document["kind"] in ("ResourceClaim", "ResourceClaimTemplate") and rng.random() < 0.5:
                metadata = document["metadata"] if document["kind"] == "ResourceClaim" else document["spec"]["metadata"]
                metadata.setdefault("annotations", {})["dray.dev/prepare-seconds"] = f"{rng.randint(1, 30)}s"

    def patience(self) -> None:
        """Devices that are tainted for good are kept for a while."""
        for document in self.drawing.fixed:
            if document["kind"] in ("ResourceClaim", "ResourceClaimTemplate"):
                spec = document["spec"] if document["kind"] == "ResourceClaim" else document["spec"]["spec"]
                for request in spec["devices"]["requests"]:
                    for each in request.get("firstAvailable") or [request["exactly"]]:
                        seconds = self.rng.randint(0, 60)
                        each["tolerations"] = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]

    def sets(self) -> None:
        """A StatefulSet and a DaemonSet with the needs of some pod."""
        rng = self.rng
        for kind in ("StatefulSet", "DaemonSet"):
            name, labels = f"{kind.lower()}-w", {"app": f"{kind.lower()}-w"}
            template = {"metadata": {"labels": labels}, "spec": self.drawing.pod_spec()}
            spec: Document = {"selector": {"matchLabels": labels}, "template": template}
            if kind == "StatefulSet":
                spec |= {"replicas": rng.randint(1, 3), "serviceName": name}
                spec["podManagementPolicy"] = rng.choice(("OrderedReady", "Parallel"))
            metadata = {"name": name, "namespace": "default"}
            at = rng.randint(0, 120)
            made = {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata}
            self.drawing.happens(at, apply={**made, "spec": spec})
            if rng.random() < 0.3:
                self.drawing.happens(rng.randint(at, 150), delete=made)

    def namespace(self) -> None:
        """Another namespace with pods and claims of its own, which is deleted with everything in it, or not."""
        rng = self.rng
        labels = {"resource.kubernetes.io/admin-access": "true"}
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": labels}}
        self.add(own)
        for document in list(self.drawing.fixed):
            if document["kind"] in ("ResourceClaim", "ResourceClaimTemplate"):
                self.add({**document, "metadata": {**document["metadata"], "namespace": "team"}})
        for step, pod in list(self.bare()):
            if rng.random() < 0.5:
                there = {**pod, "metadata": {**pod["metadata"], "namespace": "team"}}
                self.drawing.happens(rng.randint(0, 150), apply=there, count=step.get("count", 1))
        if rng.random() < 0.5:
            self.drawing.happens(rng.randint(20, 150), delete=own)

    # ------------------------------------------------------------------------------------------------------- settings

    def gates(self) -> None:
        """One or two features are off."""
        chosen = self.rng.sample(_GATES, self.rng.randint(1, 2))
        self.drawing.settings["featureGates"] = dict.fromkeys(chosen, False)

    def heartbeat(self) -> None:
        """Nodes renew leases, so that one whose kubelet is silent is noticed, and in the end left."""
        self.drawing.settings["heartbeat"] = "10s"
        for pod in self.pod_like():
            if self.rng.random() < 0.5:
                seconds = self.rng.randint(0, 60)
                keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
                tolerated = [
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds} for key in keys
                ]
                pod["spec"].setdefault("tolerations", []).extend(tolerated)
        self.drawing.stop()

    def upstream(self) -> None:
        """The first devices that fit, as upstream takes them."""
        self.drawing.arguments["strategy"] = "Upstream"


SUBJECTS: Final[dict[str, Callable[[Company], None]]] = {
    "sets": Company.sets,
    "queues": Company.queue,
    "gangs": Company.gang,
    "zones": Company.zone,
    "volumes": Company.volume,
    "quotas": Company.quota,
    "budgets": Company.budget,
    "late nodes": Company.late_node,
    "resized nodes": Company.resized,
    "past the scheduler": Company.past_the_scheduler,
    "containers": Company.containers,
    "crashing": Company.crashing,
    "patience": Company.patience,
    "namespaces": Company.namespace,
    "features": Company.gates,
    "heartbeats": Company.heartbeat,
    "upstream": Company.upstream,
}
