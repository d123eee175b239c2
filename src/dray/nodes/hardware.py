"""A catalogue of example hardware: Nodes, ResourceSlices and DeviceClasses by name and count (``gpu8:4``).

Always true: what is made is valid by the rules of the API; names follow from the hardware's name and a running number, so the
same request makes the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

GROUP: Final = "resource.k8s.io/v1"
NODES_MAX: Final = 20_000
ATTACHED: Final = "fabric.dray.dev/attached"
ATTACH_FAILED: Final = "fabric.dray.dev/attach-failed"

Manifest = dict[str, Any]


class Hardware(msgspec.Struct):
    """The objects of some hardware. ``nodes`` go to the kubelets, ``objects`` (classes and slices) are created as they are."""

    nodes: list[Manifest] = []
    objects: list[Manifest] = []

    def add(self, other: Hardware) -> None:
        known = {(each["kind"], each["metadata"]["name"]) for each in self.objects}
        self.nodes.extend(other.nodes)
        self.objects.extend(each for each in other.objects if (each["kind"], each["metadata"]["name"]) not in known)


class UnknownHardware(ValueError):
    """A request for hardware that the catalogue does not have, or not in this number."""


def hardware(requests: Iterable[str]) -> Hardware:
    """The hardware of requests such as ``gpu8:4``; the count is 1 where it is left out."""
    made = Hardware()
    for request in requests:
        name, _, count = request.partition(":")
        if name not in CATALOGUE:
            raise UnknownHardware(f"there is no hardware {name!r}; the catalogue has {', '.join(sorted(CATALOGUE))}")
        if not (count or "1").isdigit() or not 0 < int(count or 1) <= NODES_MAX:
            raise UnknownHardware(f"{request!r}: the count must be a number from 1 to {NODES_MAX}")
        made.add(CATALOGUE[name](int(count or 1)))
    return made


# ------------------------------------------------------------------------------------------------------------- building


def _node(name: str, cpu: int, memory: str, **labels: str) -> Manifest:
    amounts = {"cpu": str(cpu), "memory": memory, "ephemeral-storage": "500Gi", "pods": "110"}
    usable = {**amounts, "cpu": f"{cpu * 1000 - 500}m"}
    common = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "dray.dev/simulated": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**common, **labels}},
        "status": {"capacity": amounts, "allocatable": usable},
    }


def _slice(name: str, driver: str, pool: str, spec: Manifest, *, slices: int = 1) -> Manifest:
    described = {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices}, **spec}
    return {"apiVersion": GROUP, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": described}


def _class(name: str, expression: str, **spec: Any) -> Manifest:
    selectors = [{"cel": {"expression": expression}}]
    return {"apiVersion": GROUP, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def _string(value: str) -> Manifest:
    return {"string": value}


# ------------------------------------------------------------------------------------------------------------ catalogue


def _plain(count: int) -> Hardware:
    """Nodes without devices."""
    return Hardware(nodes=[_node(f"plain-{n}", 16, "64Gi") for n in range(count)])


def _gpu8(count: int) -> Hardware:
    """Eight GPUs over two NUMA zones, two PCI roots in each."""
    made = Hardware(objects=[_class("gpu.dray.dev", 'device.driver == "gpu.dray.dev"', extendedResourceName="dray.dev/gpu")])
    for n in range(count):
        name = f"gpu8-{n}"
        made.nodes.append(_node(name, 96, "768Gi", **{"dray.dev/hardware": "gpu8"}))
        devices = [_gpu(index) for index in range(8)]
        made.objects.append(_slice(f"{name}-gpu.dray.dev", "gpu.dray.dev", name, {"nodeName": name, "devices": devices}))
    return made


def _gpu(index: int) -> Manifest:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": _string("D100"),
            "index": {"int": index},
            "numaNode": {"int": index // 4},
            "resource.kubernetes.io/pcieRoot": _string(f"pci0000:{index // 2:02x}"),
            "driverVersion": {"version": "1.2.0"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


_PROFILES: Final = {"1g": (1, 7), "2g": (2, 3), "3g": (4, 2), "7g": (8, 1)}  # memory slices, how many fit


def _mig(count: int) -> Hardware:
    """Two GPUs a node that can be cut into partitions: hardware partitions and time slices exclude each other."""
    chosen = 'device.driver == "mig.dray.dev" && device.attributes["mig.dray.dev"].type == "{}"'
    made = Hardware(objects=[_class("mig.dray.dev", 'device.driver == "mig.dray.dev"')])
    made.objects += [_class(f"mig-{profile}.dray.dev", chosen.format(profile)) for profile in (*_PROFILES, "timeslice")]
    for n in range(count):
        name = f"mig-{n}"
        made.nodes.append(_node(name, 64, "512Gi", **{"dray.dev/hardware": "mig"}))
        counters = [
            {"name": f"gpu-{gpu}", "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "8"}}} for gpu in range(2)
        ]
        shared = {"nodeName": name, "sharedCounters": counters}
        devices = {"nodeName": name, "devices": [device for gpu in range(2) for device in _partitions(gpu)]}
        made.objects += [
            _slice(f"{name}-mig.dray.dev-counters", "mig.dray.dev", name, shared, slices=2),
            _slice(f"{name}-mig.dray.dev-devices", "mig.dray.dev", name, devices, slices=2),
        ]
    return made


def _partitions(gpu: int) -> list[Manifest]:
    cut = [
        _partition(gpu, f"gpu-{gpu}-{profile}-{place}", profile, size, "partitioned")
        for profile, (size, fit) in _PROFILES.items()
        for place in range(fit)
    ]
    return cut + [_partition(gpu, f"gpu-{gpu}-timeslice-{place}", "timeslice", 2, "timesliced") for place in range(4)]


def _partition(gpu: int, name: str, type: str, size: int, group: str) -> Manifest:
    memory = {"value": f"{size * 10}Gi"}
    return {
        "name": name,
        "attributes": {
            "type": _string(type),
            "parent": _string(f"gpu-{gpu}"),
            "numaNode": {"int": gpu},
            "resource.kubernetes.io/pcieRoot": _string(f"pci0000:{gpu:02x}"),
        },
        "capacity": {"memory": memory},
        "consumesCounters": [
            {
                "counterSet": f"gpu-{gpu}",
                "counters": {"memory": memory, "slices": {"value": str(size)}},
                "compatibilityGroups": [group],
            }
        ],
    }


def _nic(count: int) -> Hardware:
    """Two network cards a node whose bandwidth is shared out in steps of 1G."""
    made = Hardware(objects=[_class("nic.dray.dev", 'device.driver == "nic.dray.dev"')])
    for n in range(count):
        name = f"nic-{n}"
        made.nodes.append(_node(name, 32, "128Gi", **{"dray.dev/hardware": "nic"}))
        devices = [_card(index) for index in range(2)]
        made.objects.append(_slice(f"{name}-nic.dray.dev", "nic.dray.dev", name, {"nodeName": name, "devices": devices}))
    return made


def _card(index: int) -> Manifest:
    policy = {"default": "1G", "validRange": {"min": "1G", "max": "100G", "step": "1G"}}
    return {
        "name": f"nic-{index}",
        "allowMultipleAllocations": True,
        "attributes": {"numaNode": {"int": index}, "resource.kubernetes.io/pcieRoot": _string(f"pci0000:{index * 2:02x}")},
        "capacity": {"bandwidth": {"value": "100G", "requestPolicy": policy}},
    }


def _fabric(count: int) -> Hardware:
    """Nodes on a fabric, and one pool of GPUs (two for each node) that are attached to a node before a pod runs there."""
    made = Hardware(objects=[_class("fabric-gpu.dray.dev", 'device.driver == "fabric.dray.dev"')])
    made.nodes = [_node(f"fabric-{n}", 64, "256Gi", **{"dray.dev/fabric": "one"}) for n in range(count)]
    on_fabric = {"key": "dray.dev/fabric", "operator": "In", "values": ["one"]}
    where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [on_fabric]}]}}
    devices = [_attachable(index) for index in range(2 * count)]
    parts = [devices[start : start + 128] for start in range(0, len(devices), 128)]
    made.objects += [
        _slice(f"fabric-one-{n}", "fabric.dray.dev", "fabric-one", {**where, "devices": part}, slices=len(parts))
        for n, part in enumerate(parts)
    ]
    return made


def _attachable(index: int) -> Manifest:
    return {
        "name": f"gpu-{index}",
        "attributes": {"model": _string("D100"), "enclosure": _string(f"enclosure-{index // 8}")},
        "capacity": {"memory": {"value": "80Gi"}},
        "bindsToNode": True,
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [ATTACH_FAILED],
    }


CATALOGUE: Final[dict[str, Callable[[int], Hardware]]] = {
    "plain": _plain,
    "gpu8": _gpu8,
    "mig": _mig,
    "nic": _nic,
    "fabric": _fabric,
}


def describe(name: str) -> str:
    """One sentence about an entry of the catalogue."""
    return (CATALOGUE[name].__doc__ or "").strip()
