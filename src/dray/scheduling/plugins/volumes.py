"""Persistent volumes: where a pod's volumes can be reached, which are taken, and which are still to be made.

Always true: a claim that is bound is followed to its volume; one that waits for its first consumer is decided with the pod
(a volume that fits, or a new one made for the node); any other unbound claim keeps the pod waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from dray.api.core import (
    CSINode,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
    Volume,
    VolumeAttachment,
)
from dray.api.kinds import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, VOLUME_ATTACHMENTS
from dray.api.quantity import Quantity
from dray.api.selectors import label_requirements, matches_all, node_selector_matches
from dray.books.demand import Demand
from dray.books.nodes import NodeInfo, Nodes
from dray.books.volumes import VolumeAccount
from dray.cluster.world import World
from dray.scheduling.plugins.base import Check, Compiled, PodShape, Reasons, because, codes_of
from dray.scheduling.plugins.in_tree import EVERYWHERE, Migration

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
Choice = tuple[list[tuple[PersistentVolumeClaim, PersistentVolume]], list[PersistentVolumeClaim]]
"""Claims with the volumes that they get, and claims for which a volume is to be made."""
# Volumes that one writer has to itself, and the field that names them.
_EXCLUSIVE: Final = (("gce_persistent_disk", "pdName"), ("aws_elastic_block_store", "volumeID"))


class Volumes:
    """Answers for the volume plugins, from what the world shows now."""

    def __init__(self, world: World, nodes: Nodes, account: VolumeAccount) -> None:
        self._world = world
        self._nodes = nodes
        self._account = account
        self._attachments = (
            world.index(VOLUME_ATTACHMENTS, lambda found: [found.spec.node_name]) if VOLUME_ATTACHMENTS in world.kinds else None
        )

    def check(self, demand: Demand, plugin: str) -> Check | None:
        makers: dict[str, Callable[[Demand], Check | None]] = {
            "VolumeBinding": self._binding,
            "VolumeZone": self._zone,
            "VolumeRestrictions": self._restrictions,
            "NodeVolumeLimits": self._limits,
        }
        return makers[plugin](demand)

    # ---------------------------------------------------------------------------------------------------------- finding

    def _get(self, kind: Any, key: str) -> Any:
        return self._world.get(kind, key) if kind in self._world.kinds else None

    def claim_names(self, demand: Demand) -> list[str]:
        return volume_claim_keys(demand.namespace, demand.pod_name, demand.volumes)

    def _claims(self, demand: Demand) -> list[PersistentVolumeClaim]:
        found = (self._get(PERSISTENT_VOLUME_CLAIMS, key) for key in self.claim_names(demand))
        return [claim for claim in found if claim is not None]

    def missing(self, demand: Demand) -> Reasons | None:
        """What keeps the pod from every node: a claim that does not exist, or that something else has to bind first."""
        for key in self.claim_names(demand):
            claim: PersistentVolumeClaim | None = self._get(PERSISTENT_VOLUME_CLAIMS, key)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                return because("VolumeClaimMissing", claim=key)
            if bound(claim) and self._get(PERSISTENT_VOLUMES, claim.spec.volume_name) is None:
                return because("VolumeClaimUnbound", claim=key, lacks=f"volume {claim.spec.volume_name}")
            if not bound(claim) and not self._waits_for_pod(claim):
                name = claim.spec.storage_class_name
                lacks = {"lacks": f"storage class {name}"} if name and self._class(claim) is None else {}
                return because("VolumeClaimUnbound", claim=key, **lacks)
        return None

    def _waits_for_pod(self, claim: PersistentVolumeClaim) -> bool:
        cls = self._class(claim)
        return cls is not None and cls.volume_binding_mode == "WaitForFirstConsumer"

    def _class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        found: StorageClass | None = self._get(STORAGE_CLASSES, claim.spec.storage_class_name or "")
        return found

    def unbound(self, demand: Demand) -> list[PersistentVolumeClaim]:
        """Claims that are bound only once the pod has its node."""
        return [claim for claim in self._claims(demand) if not bound(claim)]

    # ---------------------------------------------------------------------------------------------------------- binding

    def _binding(self, demand: Demand) -> Check | None:
        claims = self._claims(demand)
        if not claims:
            return None
        unbound = [claim for claim in claims if not bound(claim)]

        def check(info: NodeInfo) -> Reasons | None:
            for claim in claims:
                if bound(claim):
                    volume: PersistentVolume | None = self._get(PERSISTENT_VOLUMES, claim.spec.volume_name)
                    if volume is None or not reachable(volume, info.node):
                        return because("VolumeNodeAffinity", volume=claim.spec.volume_name)
            chosen = self.choose(unbound, info.node) if unbound else ()
            return because("VolumeNodeAffinity", volume=chosen.key) if isinstance(chosen, PersistentVolumeClaim) else None

        return check

    def choose(self, claims: list[PersistentVolumeClaim], node: Node) -> Choice | PersistentVolumeClaim:
        """What each unbound claim gets on the node: a volume of its own, or one that is to be made; or the claim that gets
        neither. Larger claims choose last, so that small ones do not take what only the large ones leave."""
        taken: dict[str, None] = {}
        matched: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
        provisioned: list[PersistentVolumeClaim] = []
        for claim in sorted(claims, key=lambda claim: (_size(claim), claim.key)):
            volume = self.match(claim, node, taken)
            if volume is not None:
                taken[volume.metadata.name] = None
                matched.append((claim, volume))
            elif self._can_provision(claim, node):
                provisioned.append(claim)
            else:
                return claim
        return matched, provisioned

    def match(self, claim: PersistentVolumeClaim, node: Node, taken: Collection[str]) -> PersistentVolume | None:
        """The smallest volume that the claim could have on this node, and that is not on its way to another claim."""
        if PERSISTENT_VOLUMES not in self._world.kinds:
            return None
        wanted = _size(claim)
        found: list[tuple[Quantity, str, PersistentVolume]] = []
        for volume in self._given(claim) or self._world.all(PERSISTENT_VOLUMES).values():
            size = Quantity.parse(volume.spec.capacity.get("storage", "0"))
            name = volume.metadata.name
            free = name not in taken and self._account.claim_of(name) in ("", claim.key)
            if free and size >= wanted and _suits(volume, claim) and reachable(volume, node):
                found.append((size, name, volume))
        return min(found, key=lambda each: each[:2])[2] if found else None

    def _given(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """The volume that the claim is to have already: chosen for a pod that shares it, or by whoever wrote that into the
        volume. It gets no other."""
        chosen: PersistentVolume | None = self._get(PERSISTENT_VOLUMES, self._account.volume_of(claim.key))
        if chosen is not None:
            return [chosen]
        return [volume for volume in self._world.all(PERSISTENT_VOLUMES).values() if _owned(volume, claim)]

    def _can_provision(self, claim: PersistentVolumeClaim, node: Node) -> bool:
        cls = self._class(claim)
        if cls is None or cls.provisioner in ("", _NO_PROVISIONER):
            return False
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected and selected != node.metadata.name:
            return False
        return not cls.allowed_topologies or any(_topology(term, node) for term in cls.allowed_topologies)

    # ---------------------------------------------------------------------------------------------------- zones and others

    def _zone(self, demand: Demand) -> Check | None:
        wanted: list[tuple[str, str, frozenset[str]]] = []
        for claim in self._claims(demand):
            volume: PersistentVolume | None = self._get(PERSISTENT_VOLUMES, claim.spec.volume_name) if bound(claim) else None
            for label in _ZONE_LABELS if volume is not None else ():
                value = volume.metadata.labels.get(label) if volume is not None else None
                if value is not None:
                    wanted.append((claim.spec.volume_name, label, frozenset(value.split("__"))))
        if not wanted:
            return None

        def check(info: NodeInfo) -> Reasons | None:
            labels = info.node.metadata.labels
            for volume, label, zones in wanted:
                if label in labels and labels[label] not in zones:
                    return because("VolumeNodeAffinity", volume=volume)
            return None

        return check

    def _restrictions(self, demand: Demand) -> Check | None:
        single = [claim.key for claim in self._claims(demand) if "ReadWriteOncePod" in claim.spec.access_modes]
        disks = [disk for volume in demand.volumes for disk in _disks(volume)]
        if not single and not disks:
            return None

        def check(info: NodeInfo) -> Reasons | None:
            for placed in info.pods.values():
                theirs = placed.demand
                if not theirs.volumes:
                    continue
                if (taken := _collision(disks, _all_disks(theirs))) is not None:
                    return because("VolumeTaken", volume=taken)
            return next((because("VolumeTaken", volume=key) for key in single if self._used_elsewhere(key, demand)), None)

        return check

    def _used_elsewhere(self, key: str, demand: Demand) -> bool:
        """A volume for one pod alone is taken wherever that pod runs."""
        return any(
            placed.demand.volumes and placed.demand is not demand and key in self.claim_names(placed.demand)
            for info in self._nodes
            for placed in info.pods.values()
        ) or any(placed.demand is demand for info in self._nodes for placed in info.pods.values())

    def _limits(self, demand: Demand) -> Check | None:
        if not self._by_driver(demand, EVERYWHERE) or CSI_NODES not in self._world.kinds:
            return None

        def check(info: NodeInfo) -> Reasons | None:
            found: CSINode | None = self._get(CSI_NODES, info.name)
            drivers = found.spec.drivers if found is not None else ()
            limits = {driver.name: driver.allocatable.count for driver in drivers if driver.allocatable is not None}
            migration = Migration(found)
            for driver, volumes in self._by_driver(demand, migration).items() if limits else ():
                limit = limits.get(driver)
                if limit is not None and len(volumes | self._attached(info, driver, migration)) > limit:
                    return because("VolumeLimit", driver=driver, limit=limit)
            return None

        return check

    def _by_driver(self, demand: Demand, migration: Migration) -> dict[str, set[str]]:
        """Volumes to attach, by the driver that attaches them on such a node."""
        found: dict[str, set[str]] = {}
        for inline in demand.volumes:
            if (named := migration.inline(inline)) is not None:
                found.setdefault(named[0], set()).add(named[1])
        for claim in self._claims(demand):
            volume: PersistentVolume | None = self._get(PERSISTENT_VOLUMES, claim.spec.volume_name) if bound(claim) else None
            if volume is not None:
                if (named := migration.persistent(volume)) is not None:
                    found.setdefault(named[0], set()).add(named[1])
            elif (cls := self._class(claim)) is not None:
                found.setdefault(migration.provisioner(cls.provisioner), set()).add(claim.key)
        return found

    def _attached(self, info: NodeInfo, driver: str, migration: Migration) -> set[str]:
        """What is attached to the node or will be: for its pods, and whatever else is, whether or not a pod uses it."""
        found: set[str] = set()
        for placed in info.pods.values():
            if placed.demand.volumes:
                found |= self._by_driver(placed.demand, migration).get(driver, set())
        for key in self._attachments[info.name] if self._attachments is not None else ():
            attachment: VolumeAttachment | None = self._get(VOLUME_ATTACHMENTS, key)
            if attachment is not None and attachment.spec.attacher == driver:
                found.add(self._name_of(attachment, migration))
        return found

    def _name_of(self, attachment: VolumeAttachment, migration: Migration) -> str:
        """As its driver names it; an attachment of a volume that is gone still takes a place."""
        source = attachment.spec.source
        volume: PersistentVolume | None = self._get(PERSISTENT_VOLUMES, source.persistent_volume_name or "")
        if volume is None and source.inline_volume_spec is not None:
            volume = PersistentVolume(spec=source.inline_volume_spec)
        named = migration.persistent(volume) if volume is not None else None
        return named[1] if named is not None else f"attachment {attachment.metadata.name}"


def _size(claim: PersistentVolumeClaim) -> Quantity:
    return Quantity.parse(claim.spec.resources.requests.get("storage", "0"))


def volume_claim_keys(namespace: str, pod_name: str, volumes: Iterable[Volume]) -> list[str]:
    """Keys of the volume claims that a pod uses, generated ones included."""
    names: list[str] = []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            names.append(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            names.append(f"{namespace}/{pod_name}-{volume.name}")
    return names


def bound(claim: PersistentVolumeClaim) -> bool:
    """As upstream reads it, whatever the phase says."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def reachable(volume: PersistentVolume, node: Node) -> bool:
    affinity = volume.spec.node_affinity
    return affinity is None or affinity.required is None or node_selector_matches(affinity.required, node)


def _owned(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume says that it is this claim's."""
    owner = volume.spec.claim_ref
    named = owner is not None and (owner.namespace, owner.name) == (claim.metadata.namespace, claim.metadata.name)
    return named and owner is not None and owner.uid in ("", claim.uid)


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec = volume.spec
    if spec.claim_ref is not None and not _owned(volume, claim):
        return False
    if volume.metadata.deletion_timestamp is not None or volume.status.phase not in ("", "Available", "Bound"):
        return False
    if spec.storage_class_name != (claim.spec.storage_class_name or ""):
        return False
    if not set(claim.spec.access_modes) <= set(spec.access_modes):
        return False
    if (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
        return False
    wanted = label_requirements(claim.spec.selector)
    return wanted is None or matches_all(wanted, volume.metadata.labels)


def _topology(term: TopologySelectorTerm, node: Node) -> bool:
    labels = node.metadata.labels
    return all(labels.get(expression.key) in expression.values for expression in term.match_label_expressions)


Disk = tuple[tuple[str, str], bool]


def _disks(volume: Volume) -> Iterable[Disk]:
    for field, name in _EXCLUSIVE:
        source: dict[str, Any] | None = getattr(volume, field)
        if source is not None:
            yield (field, str(source.get(name, ""))), bool(source.get("readOnly")) and field == "gce_persistent_disk"


def _all_disks(demand: Demand) -> list[Disk]:
    return [disk for volume in demand.volumes for disk in _disks(volume)]


def _collision(ours: list[Disk], theirs: list[Disk]) -> str | None:
    """The name of a disk that both use and not both only read."""
    for disk, read_only in ours:
        for other, also_read_only in theirs:
            if disk == other and not (read_only and also_read_only):
                return disk[1]
    return None


class VolumePlugin:
    """One of the four volume plugins."""

    def __init__(self, name: str, volumes: Volumes) -> None:
        self.name, self._volumes = name, volumes
        self.codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        check = self._volumes.check(shape.demand, self.name) if shape.demand.volumes else None
        return None if check is None else Compiled(["labels", "volumes"], check=check)


VOLUME_PLUGINS: Final = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
