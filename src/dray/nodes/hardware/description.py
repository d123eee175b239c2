"""Hardware as people describe it in YAML, made into Nodes, ResourceSlices and DeviceClasses.

A description says what there is ``each`` time (for every node) and ``once``::

    apiVersion: dray.dev/v1alpha1
    kind: Hardware
    metadata: {name: two-gpus}
    description: Two GPUs.
    once:
    - {kind: DeviceClass, metadata: {name: gpu}, spec: {...}}
    each:
    - {kind: Node, spec: {}, status: {capacity: {cpu: 16, memory: 64Gi}}}
    - kind: ResourceSlice
      spec:
        driver: gpu.example.com
        devices:
        - {repeat: {gpu: 2}, name: "gpu-{gpu}"}

A Node may have zones (``numa``, see ``dray.nodes.zoned``).

Holes and ``repeat`` are those of ``dray.nodes.hardware.template``; ``{n}`` is the number of a node, ``{node}`` its name and
``{count}`` how many there are, which is the description's own ``count`` (1) where nobody says. Left out, these are filled in:
names, labels and allocatable of nodes, and of slices the name, the pool, generation and count, and the node. A slice with more
devices than the API takes becomes several.

Always true: what is made is labelled ``dray.dev/simulated``; names follow from the hardware's name and a running number, so the
same request makes the same objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from dray.api.quantity import Quantity, QuantityError
from dray.nodes.exclusion import GROUPS, remembered
from dray.nodes.faults import SIMULATED
from dray.nodes.hardware.template import ITEMS_MAX, Made, TemplateError, compiled, names
from dray.nodes.zoned import NUMA, ZonesError, zoning

API_VERSION: Final = "dray.dev/v1alpha1"
HARDWARE: Final = "dray.dev/hardware"
NODES_MAX: Final = 20_000
DEVICES_MAX: Final = 128
DEVICES_ADVANCED_MAX: Final = 64
_VERSIONS: Final = {"Node": "v1", "ResourceSlice": "resource.k8s.io/v1", "DeviceClass": "resource.k8s.io/v1"}
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_LISTS: Final = ("ints", "bools", "strings", "versions")
# What the system keeps for itself of a node's processors, in thousandths.
_RESERVED: Final = 500

# Stands for a node's name while copies are made: no text of anybody's has it.
_MARK: Final = "\ue0f0node\ue0f1"

Manifest = dict[str, Any]


class _Metadata(msgspec.Struct):
    name: str


class _Document(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: _Metadata
    description: str = ""
    count: Annotated[int, msgspec.Meta(ge=0, le=NODES_MAX)] = 1
    once: list[Manifest] = []
    each: list[Manifest] = []


class Description:
    """Some hardware, ready to be made in any number. Raises TemplateError for a description that is not one."""

    def __init__(self, document: Any, where: str) -> None:
        try:
            found = msgspec.convert(document, _Document)
        except msgspec.ValidationError as error:
            raise TemplateError(f"{where}: {error}") from error
        if (found.api_version, found.kind) != (API_VERSION, "Hardware"):
            raise TemplateError(f"{where}: must be kind Hardware of {API_VERSION}, not {found.kind} of {found.api_version}")
        self.name, self.text, self._where = found.metadata.name, " ".join(found.description.split()), where
        self.count = found.count
        self._once: Made = compiled(found.once, f"{where}: once")
        self._each: Made = compiled(found.each, f"{where}: each")
        self._alike = "n" not in names(found.each)

    def make(self, count: int) -> tuple[list[Manifest], list[Manifest]]:
        """(nodes, other objects)."""
        once = [self._other(manifest, "") for manifest in self._once({"count": count, "hardware": self.name})]
        if count > 1 and self._alike and (copies := self._copies(count)) is not None:
            return copies[0], _numbered(once) + copies[1]
        nodes, objects = list[Manifest](), once
        for number in range(count):
            more = self._machine(f"{self.name}-{number}", number, count)
            nodes += more[0]
            objects += more[1]
            if len(objects) > ITEMS_MAX:
                raise TemplateError(f"{self._where}: more than {ITEMS_MAX} objects")
        return nodes, _numbered(objects)

    def _machine(self, name: str, number: int, count: int) -> tuple[list[Manifest], list[Manifest]]:
        made = self._each({"n": number, "node": name, "count": count, "hardware": self.name})
        nodes = [self._node(manifest, name) for manifest in made if manifest.get("kind") == "Node"]
        return nodes, [self._other(manifest, name) for manifest in made if manifest.get("kind") != "Node"]

    def _copies(self, count: int) -> tuple[list[Manifest], list[Manifest]] | None:
        """Machines that differ in their name alone are made once and copied; None where they share names or pools."""
        nodes, objects = self._machine(_MARK, 0, count)
        own = [*(each["metadata"]["name"] for each in (*nodes, *objects)), *(each["spec"]["pool"]["name"] for each in objects)]
        if not all(_MARK in name for name in own):
            return None
        pattern = msgspec.json.encode((nodes, _numbered(objects)))
        if count * len(objects) > ITEMS_MAX:
            raise TemplateError(f"{self._where}: more than {ITEMS_MAX} objects")
        copies = [msgspec.json.decode(pattern.replace(_MARK.encode(), f"{self.name}-{n}".encode())) for n in range(count)]
        return [node for each in copies for node in each[0]], [found for each in copies for found in each[1]]

    def _node(self, manifest: Manifest, name: str) -> Manifest:
        manifest = self._with_zones(manifest)
        metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
        name = str(metadata.get("name") or name)
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            SIMULATED: "true",
            HARDWARE: self.name,
        }
        metadata = _metadata(metadata, name, labels)
        amounts = {"ephemeral-storage": "500Gi", "pods": "110", **(status.get("capacity") or {})}
        amounts = {key: str(value) for key, value in amounts.items()}
        usable = {**amounts, **({"cpu": self._usable(amounts["cpu"])} if "cpu" in amounts else {})}
        status = {**status, "capacity": amounts, "allocatable": {**usable, **(status.get("allocatable") or {})}}
        body = {"apiVersion": "v1", **manifest, "metadata": metadata, "status": status}
        return {key: value for key, value in body.items() if value != {}}

    def _with_zones(self, manifest: Manifest) -> Manifest:
        """``numa`` goes into an annotation that the node's kubelet reads; what is in the zones is what the node has."""
        given = manifest.get("numa")
        if given is None:
            return manifest
        try:
            capacity, usable = zoning(given).amounts()
        except ZonesError as error:
            raise TemplateError(f"{self._where}: numa of a Node: {error}") from error
        metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
        annotations = {**(metadata.get("annotations") or {}), NUMA: msgspec.json.encode(given).decode()}
        amounts = {**capacity, **(status.get("capacity") or {})}
        allocatable = {**usable, **(status.get("allocatable") or {})}
        rest = {key: value for key, value in manifest.items() if key != "numa"}
        changed = {"capacity": amounts, "allocatable": allocatable}
        return {**rest, "metadata": {**metadata, "annotations": annotations}, "status": {**status, **changed}}

    def _usable(self, cpu: str) -> str:
        try:
            return f"{max(Quantity.parse(cpu).milli - _RESERVED, 0)}m"
        except QuantityError as error:
            raise TemplateError(f"{self._where}: a node's capacity of cpu: {error}") from error

    def _other(self, manifest: Manifest, node: str) -> Manifest:
        kind = str(manifest.get("kind"))
        if kind not in _VERSIONS or (kind == "Node" and not node):
            raise TemplateError(
                f"{self._where}: {kind} is not allowed: each takes Nodes and slices, once takes slices and classes"
            )
        manifest = {"apiVersion": _VERSIONS[kind], **manifest}
        return _slice(manifest, node, self._where) if kind == "ResourceSlice" else manifest


def _metadata(given: Manifest, name: str, labels: dict[str, str]) -> Manifest:
    """Metadata with a name and labels; a label that is a number is written as text, because it can be nothing else."""
    texts = {key: {k: str(v) for k, v in given[key].items()} for key in ("labels", "annotations") if given.get(key)}
    return {"name": name, **given, **texts, "labels": {**labels, **texts.get("labels", {})}}


def _slice(manifest: Manifest, node: str, where: str) -> Manifest:
    spec, metadata = dict(manifest.get("spec") or {}), dict(manifest.get("metadata") or {})
    if not spec.get("driver"):
        raise TemplateError(f"{where}: a ResourceSlice needs spec.driver")
    pool = dict(spec.get("pool") or {})
    pool.setdefault("name", node or str(spec["driver"]))
    if not any(key in spec for key in _PLACES):
        spec |= {"nodeName": node} if node else {"allNodes": True}
    metadata = _metadata(metadata, f"{pool['name']}-{spec['driver']}", {SIMULATED: "true"})
    return {**manifest, "metadata": metadata, "spec": {**spec, "pool": {"generation": 1, **pool}}}


def _numbered(objects: Sequence[Manifest]) -> list[Manifest]:
    """Slices that are too large are cut; names that are taken get a number; each slice says how many its pool has."""
    made = [part for manifest in objects for part in (_parts(manifest) if manifest["kind"] == "ResourceSlice" else [manifest])]
    pools: dict[tuple[str, str], list[Manifest]] = {}
    known: dict[str, int] = {}
    for manifest in made:
        if manifest["kind"] != "ResourceSlice":
            continue
        spec, metadata = manifest["spec"], manifest["metadata"]
        if groups := remembered(spec.get("devices") or []):
            metadata["annotations"] = {GROUPS: groups, **metadata.get("annotations", {})}
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(manifest)
        taken = known[metadata["name"]] = known.get(metadata["name"], -1) + 1
        if taken:
            metadata["name"] = f"{metadata['name']}-{taken}"
    for slices in pools.values():
        for manifest in slices:
            manifest["spec"]["pool"].setdefault("resourceSliceCount", len(slices))
    return made


def _parts(manifest: Manifest) -> list[Manifest]:
    devices = manifest["spec"].get("devices") or []
    limit = DEVICES_ADVANCED_MAX if any(map(_advanced, devices)) else DEVICES_MAX
    if len(devices) <= limit:
        return [manifest]
    return [
        {
            **manifest,
            "metadata": dict(manifest["metadata"]),
            "spec": {**manifest["spec"], "pool": dict(manifest["spec"]["pool"]), "devices": devices[start : start + limit]},
        }
        for start in range(0, len(devices), limit)
    ]


def _advanced(device: Manifest) -> bool:
    """Devices that take more of the API's room: fewer of them go into a slice."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = device.get("attributes") or {}
    return any(kind in attribute for attribute in attributes.values() for kind in _LISTS)
