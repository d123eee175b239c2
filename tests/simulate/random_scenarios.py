"""Random scenarios: everything that can happen to a cluster with devices, drawn from a seed.

Always true: the same seed makes the same documents, which `dray simulate` takes as they are. Each scenario has a random part of
all subjects (hardware, ways to ask for devices, things that happen, faults), so that rare combinations are met alone too. Nothing
happens after ``QUIET``: from then on the cluster has only to settle, and at ``END`` it must have.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from dray.nodes.hardware import hardware
from dray.runtime.faults import EVERY
from tests.simulate.random_company import CHANCE, SUBJECTS, Company
from tests.simulate.random_mixtures import COMPANY, Mixtures
from tests.simulate.random_teams import Teams

Document = dict[str, Any]

BUSY: Final = 150  # seconds in which things happen
QUIET: Final = 240  # nothing happens from here on, except what pods and devices do by themselves
END: Final = 600
BINDING_TIMEOUT: Final = 40

_GROUP: Final = "resource.k8s.io/v1"
# Faults that are drawn apart, so that the rest of a scenario does not hang on them.
_DOUBTS: Final = "doubtful answers"
# hardware -> its classes; attributes on which its devices can be held together
_CLASSES: Final = {
    "plain": (),
    "gpu8": ("gpu.dray.dev",),
    "mig": ("mig.dray.dev", "mig-1g.dray.dev", "mig-2g.dray.dev", "mig-3g.dray.dev", "mig-7g.dray.dev", "mig-timeslice.dray.dev"),
    "nic": ("nic.dray.dev",),
    "fabric": ("fabric-gpu.dray.dev",),
    "a100-8": ("gpu.nvidia.com", "mig.nvidia.com"),
    "h100-shared": ("mig-h100.nvidia.com", "mps-h100.nvidia.com", "vgpu-h100.nvidia.com"),
    "gb200-tray": ("gpu.nvidia.com", "dra.net"),
    "sriov": ("sriovnetwork.k8snetworkplumbingwg.io",),
    "fpga": ("fpga.dray.dev",),
    "cxl-fabric": ("cxl-gpu.dray.dev", "cxl-memory.dray.dev"),
    "tpu-v5p": ("tpu.google.com",),
}
_COMMON: Final = ("gpu8", "mig", "nic", "fabric")
# What people have: larger, so that there is only one of them, in some scenarios.
_RARE: Final = tuple(name for name in _CLASSES if name not in (*_COMMON, "plain"))
_LEAST: Final = {"tpu-v5p": 4}  # nodes; fewer have no whole block
_EXTENDED: Final = {
    "gpu8": "dray.dev/gpu",
    "a100-8": "nvidia.com/gpu",
    "gb200-tray": "nvidia.com/gpu",
    "sriov": "nvidia.com/sriov_resource",
}
_ATTRIBUTES: Final = {
    "gpu8": ("resource.kubernetes.io/pcieRoot", "gpu.dray.dev/numaNode"),
    "mig": ("resource.kubernetes.io/pcieRoot", "mig.dray.dev/parent"),
    "nic": ("resource.kubernetes.io/pcieRoot",),
    "a100-8": ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode", "gpu.nvidia.com/parentUUID"),
    "h100-shared": ("resource.kubernetes.io/pcieRoot",),
    "sriov": ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"),
    "fpga": ("resource.kubernetes.io/numaNode",),
}
_SUBJECTS: Final = (
    "templates", "extended", "shared", "several", "alternatives", "priorities", "taints", "slices", "nodes", "drains", "lost",
    "deletions", "crashes", "workloads", "gates", "affinity", "ports", "classes", "failing", "admin", "constraints",
    "sick", "stopped",
)  # fmt: skip


def generate(seed: int, *, company: bool = False, teams: bool = False, mixtures: bool = False) -> list[Document]:
    """The documents of one scenario; with ``company``, of what devices share a cluster with too; with ``teams``, of queues and
    gangs that need more than there is; with ``mixtures``, of much of a company at once, and of what else there is beside it."""
    return Drawing(seed, company, teams, mixtures).documents()


def _chosen(rng: random.Random) -> frozenset[str]:
    """About half of the subjects, with at least one way to ask for devices; devices for pods that ask for numbers, often."""
    chosen = {subject for subject in _SUBJECTS if rng.random() < 0.45}
    if rng.random() < 0.5:
        chosen.add("extended")
    if rng.random() < 0.6:
        chosen.add("priorities")
    if not chosen & {"templates", "extended", "shared"}:
        chosen.add(rng.choice(("templates", "extended", "shared")))
    return frozenset(chosen)


class Drawing:
    """One scenario while it is drawn: ``fixed`` is there from the start, ``steps`` come later."""

    def __init__(self, seed: int, company: bool, teams: bool, mixtures: bool) -> None:
        self.seed = seed
        self.teams, self.mixtures = teams, mixtures
        self.rng = random.Random(f"scenario {seed}")
        self.subjects = _chosen(self.rng)
        self.company = Company(self, SUBJECTS if company or mixtures else (), COMPANY if mixtures else CHANCE)
        self.hardware = [*self._hardware(), *self.company.hardware()]
        made = hardware(self.hardware)
        self.nodes = list(made.nodes)
        self.slices = [each for each in made.objects if each["kind"] == "ResourceSlice"]
        self.device_classes = [each for each in made.objects if each["kind"] == "DeviceClass"]
        self.families = [name for entry in self.hardware if _CLASSES.get(name := entry.partition(":")[0])]
        self.fixed: list[Document] = []
        self.steps: list[Document] = []
        self.ways: dict[str, list[Document]] = {family: [] for family in self.families}  # to ask for its devices
        self.shared: dict[str, str] = {}  # claim -> the hardware that it is for
        self.pods: list[str] = []
        self.settings: Document = {}  # of the scenario
        self.arguments: Document = {}  # of the scoring of devices
        self.plugins: list[Document] = []  # set up in other ways
        self.profiles: list[Document] = []  # besides the one that pods have by themselves
        self.serial = 0

    def documents(self) -> list[Document]:
        self._priorities()
        self._ways_to_ask()
        for _ in range(self.rng.randint(4, 11)):
            self._pods()
        for subject, happen in _HAPPENINGS.items():
            if subject in self.subjects:
                for _ in range(self.rng.randint(1, 3)):
                    happen(self)
        faults = self._faults()
        self.company.join()
        if self.teams:
            Teams(self).join()
        if self.mixtures:
            Mixtures(self).join()
        self.steps.sort(key=lambda step: int(str(step["at"]).removesuffix("s")))
        return [*self.fixed, self._configuration(), self._scenario(faults)]

    # ---------------------------------------------------------------------------------------------------- the cluster

    def _hardware(self) -> list[str]:
        names = [name for name in _COMMON if self.rng.random() < 0.5]
        rare = [self.rng.choice(_RARE)] if self.rng.random() < 0.3 else []
        names = names if names or rare else [self.rng.choice(("gpu8", "fabric"))]
        if "extended" in self.subjects and "gpu8" not in names and self.rng.random() < 0.7:
            names.append("gpu8")
        if self.rng.random() < 0.3:
            names.append("plain")
        return [*(f"{name}:{self.rng.randint(1, 2)}" for name in names), *(f"{name}:{_LEAST.get(name, 1)}" for name in rare)]

    def _configuration(self) -> Document:
        binding = {"kind": "DynamicResourcesArgs", "bindingTimeout": f"{BINDING_TIMEOUT}s"}
        plugins: list[Document] = [{"name": "DynamicResources", "args": binding}]
        if self.arguments:
            plugins.append({"name": "DrayDeviceScoring", "args": self.arguments})
        plugins += self.plugins
        profile = {"schedulerName": "default-scheduler", "pluginConfig": plugins}
        others = [{**each, "pluginConfig": plugins} for each in self.profiles]
        version, kind = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
        return {"apiVersion": version, "kind": kind, "profiles": [profile, *others]}

    def _faults(self) -> Document:
        kind = self.rng.choice(("", *(each for each in EVERY if each != _DOUBTS), "everything"))
        until = self.rng.randint(BUSY // 2, QUIET) if kind else 0
        apart = random.Random(f"doubts {self.seed}")
        if apart.random() < 0.15:
            kind, until = _DOUBTS, apart.randint(BUSY // 2, QUIET)
        return {"faults": {"kind": kind, "until": f"{until}s"}} if kind else {}

    def _scenario(self, faults: Document) -> Document:
        spec: Document = {"until": f"{END}s", "seed": self.seed, "hardware": self.hardware, "steps": self.steps}
        spec |= faults | self.settings
        return {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": f"seed-{self.seed}"}, "spec": spec}

    def _priorities(self) -> None:
        if "priorities" in self.subjects:
            self.fixed += [_priority("low", -10), _priority("high", 1000), _priority("urgent", 5000)]
            self.fixed.append({**_priority("patient", 2000), "preemptionPolicy": "Never"})
        if "admin" in self.subjects:
            labels = {"resource.kubernetes.io/admin-access": "true"}
            self.fixed.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}})

    # ------------------------------------------------------------------------------------------------- ways to ask

    def _ways_to_ask(self) -> None:
        if "templates" in self.subjects:
            for _ in range(self.rng.randint(1, 4)):
                name, family = self._name("t"), self.rng.choice(self.families)
                spec = {"metadata": {"annotations": self._attaching()}, "spec": {"devices": self._devices(family)}}
                self.ways[family].append({"resourceClaimTemplateName": name})
                self.fixed.append(_named("ResourceClaimTemplate", name, spec))
        if "shared" in self.subjects:
            for _ in range(self.rng.randint(1, 3)):
                self._shared_claim()

    def claim(self, kind: str, name: str, family: str, wanted: Document | None) -> None:
        """A claim for devices of this hardware, or a template of such claims; ``wanted``: for these."""
        annotations, devices = self._attaching(), {"devices": wanted or self._devices(family)}
        if kind == "ResourceClaimTemplate":
            self.fixed.append(_named(kind, name, {"metadata": {"annotations": annotations}, "spec": devices}))
        else:
            made = _named(kind, name, devices)
            made["metadata"]["annotations"] = annotations
            self.fixed.append(made)

    def _shared_claim(self) -> None:
        name, family = self._name("c"), self.rng.choice(self.families)
        claim = _named("ResourceClaim", name, {"devices": self._devices(family)})
        claim["metadata"]["annotations"] = self._attaching()
        self.shared[name] = family
        self.ways[family].append({"resourceClaimName": name})
        if self.rng.random() < 0.6:
            self.fixed.append(claim)
        else:
            self.happens(self._time(), apply=claim)

    def _attaching(self) -> dict[str, str]:
        found = {}
        if self.rng.random() < 0.4:
            found["fabric.dray.dev/attach-seconds"] = f"{self.rng.choice((0, 1, 10, 30, 60))}s"
        if "failing" in self.subjects and self.rng.random() < 0.4:
            found["fabric.dray.dev/attach"] = self.rng.choice(("fail", "silence"))
        return found

    def _devices(self, family: str) -> Document:
        requests = [self._request(f"r{number}", family) for number in range(self.rng.choice((1, 1, 1, 1, 2, 3)))]
        devices: Document = {"requests": requests}
        if "constraints" in self.subjects and family in _ATTRIBUTES and self.rng.random() < 0.6:
            kind = self.rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            devices["constraints"] = [{kind: self.rng.choice(_ATTRIBUTES[family])}]
        return devices

    def _request(self, name: str, family: str) -> Document:
        if "alternatives" in self.subjects and self.rng.random() < 0.5:
            choices = [{"name": f"s{n}", **self._wanted(family)} for n in range(self.rng.randint(1, 3))]
            return {"name": name, "firstAvailable": choices}
        wanted = self._wanted(family)
        if "admin" in self.subjects and self.rng.random() < 0.3:
            wanted["adminAccess"] = True
        return {"name": name, "exactly": wanted}

    def _wanted(self, family: str) -> Document:
        rng, chosen = self.rng, self.rng.choice(_CLASSES[family])
        wanted: Document = {"deviceClassName": chosen}
        if chosen == "nic.dray.dev" and rng.random() < 0.8:
            wanted["capacity"] = {"requests": {"bandwidth": rng.choice(("10G", "40G", "60G", "100G"))}}
        elif rng.random() < 0.08:
            wanted["allocationMode"] = "All"
        elif rng.random() < 0.5:
            wanted["count"] = rng.randint(1, 5 if family == "gpu8" else 2)
        if "taints" in self.subjects and rng.random() < 0.4:
            wanted["tolerations"] = [{"operator": "Exists", **({"effect": "NoSchedule"} if rng.random() < 0.6 else {})}]
        if rng.random() < 0.15 and chosen == "gpu.dray.dev":
            expression = f'device.attributes["gpu.dray.dev"].index {rng.choice(("<", ">="))} {rng.randint(1, 6)}'
            wanted["selectors"] = [{"cel": {"expression": expression}}]
        return wanted

    # --------------------------------------------------------------------------------------------------------- pods

    def _pods(self) -> None:
        name, count = self._name("p"), self.rng.choice((1, 1, 2, 3, 4, 6))
        spec = self.pod_spec()
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": self._pod_metadata(name), "spec": spec}
        at = self._time()
        self.happens(at, apply=pod, count=count)
        made = [name] if count == 1 else [f"{name}-{number}" for number in range(count)]
        self.pods += made
        for each in made if "schedulingGates" in spec else ():
            if self.rng.random() < 0.8:
                metadata = {"name": each, "namespace": "default"}
                patch = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"schedulingGates": None}}
                self.happens(min(at + self.rng.randint(1, 60), BUSY), patch=patch)

    def _pod_metadata(self, name: str) -> Document:
        rng, annotations = self.rng, {}
        if rng.random() < 0.5:
            annotations[f"dray.dev/{rng.choice(('finishes', 'finishes', 'fails'))}-after"] = f"{rng.randint(1, 150)}s"
        if rng.random() < 0.2:
            annotations["dray.dev/starts-after"] = f"{rng.randint(0, 30)}s"
        if rng.random() < 0.2:
            annotations["dray.dev/stops-after"] = f"{rng.randint(0, 40)}s"
        return {"name": name, "namespace": "default", "annotations": annotations, "labels": {"app": rng.choice("ab")}}

    def pod_spec(self) -> Document:
        rng = self.rng
        container: Document = {"name": "c", "image": "x", "resources": {"requests": self._requests()}}
        spec: Document = {"containers": [container]}
        family = rng.choice(self.families)
        claims = self._claims(family)
        if claims:
            spec["resourceClaims"] = claims
            container["resources"]["claims"] = [{"name": claim["name"]} for claim in claims]
        if "extended" in self.subjects and (not claims or rng.random() < 0.3):
            container["resources"]["limits"] = self._extended(family)
        if "priorities" in self.subjects and rng.random() < 0.6:
            spec["priorityClassName"] = rng.choice(("low", "high", "high", "urgent", "patient"))
        if "gates" in self.subjects and rng.random() < 0.3:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if "ports" in self.subjects and rng.random() < 0.4:
            container["ports"] = [{"containerPort": 80, "hostPort": rng.choice((8080, 8081))}]
        if "affinity" in self.subjects and rng.random() < 0.4:
            spec.update(self._where())
        if rng.random() < 0.3:
            spec["terminationGracePeriodSeconds"] = rng.choice((0, 5, 30))
        return spec

    def _requests(self) -> Document:
        rng = self.rng
        cpu = rng.choice(("100m", "500m", "2", "8")) if rng.random() < 0.85 else rng.choice(("14", "30", "60"))
        return {"cpu": cpu} if rng.random() < 0.7 else {"cpu": cpu, "memory": rng.choice(("1Gi", "60Gi"))}

    def _claims(self, family: str) -> list[Document]:
        """Most of the time of one kind of hardware: a pod with devices of several runs nowhere."""
        ways = self.ways[family] if self.rng.random() < 0.9 else [way for found in self.ways.values() for way in found]
        if not ways or ("extended" in self.subjects and self.rng.random() < 0.6):
            return []
        count = self.rng.choice((1, 1, 2, 3)) if "several" in self.subjects else 1
        return [{"name": f"d{number}", **way} for number, way in enumerate(self.rng.sample(ways, min(count, len(ways))))]

    def _extended(self, family: str) -> dict[str, str]:
        names = [f"deviceclass.resource.kubernetes.io/{name}" for name in _CLASSES[family]]
        most = 6 if family == "gpu8" else 2
        if family in _EXTENDED and self.rng.random() < 0.8:
            names = [_EXTENDED[family]]
        found = {self.rng.choice(names): str(self.rng.randint(1, most))}
        if self.rng.random() < 0.15:
            found[self.rng.choice(names)] = str(self.rng.randint(1, 2))
        return found

    def _where(self) -> Document:
        rng = self.rng
        match rng.randrange(4):
            case 0:
                return {"nodeSelector": {"kubernetes.io/hostname": rng.choice(self.nodes)["metadata"]["name"]}}
            case 1:
                return {"tolerations": [{"operator": "Exists"}]}
            case 2:
                spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
                return {"topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": "a"}}}]}
            case _:
                term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": rng.choice("ab")}}}
                kind = rng.choice(("podAntiAffinity", "podAntiAffinity", "podAffinity"))
                return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    # ---------------------------------------------------------------------------------------------- what happens later

    def crash(self) -> None:
        host = self.rng.choice(("scheduler", "scheduler", "controllers", "nodes"))
        self.happens(self._time(), crash={"host": host, "down": f"{self.rng.randint(1, 20)}s"})

    def delete(self) -> None:
        targets = [("v1", "Pod", name) for name in self.pods]
        targets += [(_GROUP, "ResourceClaim", name) for name in self.shared]
        for _ in range(self.rng.randint(1, 3)):
            version, kind, name = self.rng.choice(targets)
            self.happens(self._time(), delete=_reference(version, kind, name))
            if kind == "ResourceClaim" and self.rng.random() < 0.7:
                claim = _named("ResourceClaim", name, {"devices": self._devices(self.shared[name])})
                self.happens(self._time(), apply=claim)

    def taint(self) -> None:
        """A rule or a driver taints devices; most of the time somebody takes it back."""
        rng = self.rng
        taint = {"key": "example.com/broken", "effect": rng.choice(("NoSchedule", "NoSchedule", "NoExecute"))}
        found = rng.choice(self.slices)
        selector: Document = {"driver": found["spec"]["driver"]}
        if rng.random() < 0.6:
            selector["pool"] = found["spec"]["pool"]["name"]
        devices = found["spec"].get("devices")
        if devices and "pool" in selector and rng.random() < 0.6:
            selector["device"] = rng.choice(devices)["name"]
        name = self._name("rule")
        rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name}}
        at = self._time()
        self.happens(at, apply={**rule, "spec": {"deviceSelector": selector, "taint": taint}})
        if rng.random() < 0.7:
            self.happens(rng.randint(at, BUSY), delete=rule)

    def slice(self) -> None:
        """A driver goes, comes back, or publishes other devices."""
        rng, found = self.rng, self.rng.choice(self.slices)
        at = self._time()
        if rng.random() < 0.5:
            self.happens(at, delete={key: found[key] for key in ("apiVersion", "kind", "metadata")})
            at = rng.randint(at, BUSY)
            if rng.random() < 0.2:
                return
        devices = list(found["spec"].get("devices") or ())
        if devices and rng.random() < 0.5:
            devices = rng.sample(devices, rng.randint(0, len(devices)))
        spec = {**found["spec"], **({"devices": devices} if "devices" in found["spec"] else {})}
        if spec["pool"]["resourceSliceCount"] == 1 and rng.random() < 0.5:
            spec["pool"] = {**spec["pool"], "generation": rng.randint(2, 9)}
        self.happens(at, apply={**found, "spec": spec})

    def node(self) -> None:
        """A node is cordoned, tainted or gone for a while."""
        rng, name, at = self.rng, self.rng.choice(self.nodes)["metadata"]["name"], self._time()
        back = rng.randint(at, BUSY) if rng.random() < 0.8 else None
        match rng.randrange(3):
            case 0:
                self.happens(at, patch=_node(name, {"unschedulable": True}))
                if back:
                    self.happens(back, patch=_node(name, {"unschedulable": None}))
            case 1:
                taints = [{"key": "example.com/repair", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}]
                self.happens(at, patch=_node(name, {"taints": taints}))
                if back:
                    self.happens(back, patch=_node(name, {"taints": None}))
            case _:
                self.happens(at, delete=_reference("v1", "Node", name))
                if back:
                    self.happens(back, apply=next(node for node in self.nodes if node["metadata"]["name"] == name))

    def drain(self) -> None:
        name, at = self.rng.choice(self.nodes)["metadata"]["name"], self._time()
        self.happens(at, drain={"node": name})
        if self.rng.random() < 0.8:
            self.happens(self.rng.randint(at, BUSY), patch=_node(name, {"unschedulable": None}))

    def lose(self) -> None:
        """A kubelet is silent for a while: nothing starts or ends there, deleted pods stay."""
        name, at = self.rng.choice(self.nodes)["metadata"]["name"], self._time()
        back = self.rng.randint(at, BUSY)
        taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
        self.happens(at, patch=_kubelet(name, "false", "Unknown", taints))
        self.happens(back, patch=_kubelet(name, "true", "True", None))

    def sicken(self) -> None:
        """A device is sick or unplugged for a while, as its driver tells."""
        rng, found = self.rng, self.rng.choice(self.slices)
        devices = found["spec"].get("devices")
        if not devices:
            return
        key, at = f"fault.dray.dev/{rng.choice(devices)['name']}", self._time()
        said = rng.choice(("XID 79: fell off the bus", "NoSchedule too hot", "unplugged"))
        self.happens(at, patch=_fault(found, {key: said}))
        if rng.random() < 0.7:
            self.happens(rng.randint(at, BUSY), patch=_fault(found, {key: None}))

    def stop(self) -> None:
        """A kubelet is stopped for a while, and starts anew."""
        name, at = self.rng.choice(self.nodes)["metadata"]["name"], self._time()
        for when, value in ((at, "stopped"), (self.rng.randint(at, BUSY), None)):
            metadata = {"name": name, "annotations": {"dray.dev/kubelet": value}}
            self.happens(when, patch={"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    def workload(self) -> None:
        """A Deployment or Job whose pods the controllers make; scaled, and sometimes deleted, with a budget now and then."""
        rng, name, at = self.rng, self._name("w"), self._time()
        template = {"metadata": {**self._pod_metadata(name), "labels": {"app": name}}, "spec": self.pod_spec()}
        template["metadata"].pop("name"), template["metadata"].pop("namespace")
        if rng.random() < 0.5:
            kind, version = "Deployment", "apps/v1"
            template["metadata"]["annotations"] = {}
            spec = {"replicas": rng.randint(1, 4), "selector": {"matchLabels": {"app": name}}, "template": template}
        else:
            kind, version = "Job", "batch/v1"
            template["spec"]["restartPolicy"] = "Never"
            template["metadata"]["annotations"]["dray.dev/finishes-after"] = f"{rng.randint(1, 60)}s"
            spec = {"completions": rng.randint(1, 4), "parallelism": rng.randint(1, 3), "template": template}
        reference = _reference(version, kind, name)
        self.happens(at, apply={**reference, "spec": spec})
        if kind == "Deployment" and rng.random() < 0.5:
            self.happens(rng.randint(at, BUSY), patch={**reference, "spec": {"replicas": rng.randint(0, 6)}})
        if rng.random() < 0.3:
            self.happens(rng.randint(at, BUSY), delete=reference)
        if rng.random() < 0.3:
            budget = {"selector": {"matchLabels": {"app": name}}, "minAvailable": 1}
            self.happens(at, apply={**_reference("policy/v1", "PodDisruptionBudget", name), "spec": budget})

    def device_class(self) -> None:
        """A class is deleted for a while, so that nobody can ask for it."""
        found, at = self.rng.choice(self.device_classes), self._time()
        self.happens(at, delete={key: found[key] for key in ("apiVersion", "kind", "metadata")})
        if self.rng.random() < 0.8:
            self.happens(self.rng.randint(at, BUSY), apply=found)

    # ------------------------------------------------------------------------------------------------------- writing

    def happens(self, at: int, **what: Any) -> None:
        self.steps.append({"at": f"{at}s", **{key: value for key, value in what.items() if (key, value) != ("count", 1)}})

    def _time(self) -> int:
        """Often a time at which something else happens, so that things meet."""
        if self.steps and self.rng.random() < 0.35:
            near = int(str(self.rng.choice(self.steps)["at"]).removesuffix("s"))
            return min(near + self.rng.choice((0, 0, 1, 2)), BUSY)
        return self.rng.randint(0, BUSY)

    def _name(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"


_HAPPENINGS: Final[dict[str, Callable[[Drawing], None]]] = {
    "workloads": Drawing.workload,
    "deletions": Drawing.delete,
    "crashes": Drawing.crash,
    "taints": Drawing.taint,
    "slices": Drawing.slice,
    "nodes": Drawing.node,
    "drains": Drawing.drain,
    "lost": Drawing.lose,
    "sick": Drawing.sicken,
    "stopped": Drawing.stop,
    "classes": Drawing.device_class,
}


def _priority(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _reference(version: str, kind: str, name: str) -> Document:
    metadata = {"name": name} if kind == "Node" else {"name": name, "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _named(kind: str, name: str, spec: Document) -> Document:
    return {**_reference(_GROUP, kind, name), "spec": spec}


def _node(name: str, spec: Document) -> Document:
    return {**_reference("v1", "Node", name), "spec": spec}


def _fault(slice: Document, annotations: Document) -> Document:
    metadata = {"name": slice["metadata"]["name"], "annotations": annotations}
    return {"apiVersion": _GROUP, "kind": "ResourceSlice", "metadata": metadata}


def _kubelet(name: str, simulated: str, ready: str, taints: list[Document] | None) -> Document:
    metadata = {"name": name, "labels": {"dray.dev/simulated": simulated}}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": status}
