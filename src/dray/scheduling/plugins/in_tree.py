"""Volumes of in-tree plugins that CSI drivers attach nowadays (KEP-625): by which driver, and how that driver names them.

Always true: the same disk has one name, whether a pod names it, a persistent volume does, or an attachment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from dray.api.core import CSINode, PersistentVolume, Volume

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_ZONES: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_UNSPECIFIED: Final = "UNSPECIFIED"

Named = tuple[str, str]
"""A driver, and its name for a volume."""


class InTree(NamedTuple):
    """``always``: attached by the driver on every node; else where the node says that the plugin is migrated."""

    plugin: str
    driver: str
    handle: Callable[[Mapping[str, Any], Mapping[str, str]], str]
    always: bool = True


def _field(name: str) -> Callable[[Mapping[str, Any], Mapping[str, str]], str]:
    return lambda source, labels: str(source.get(name, ""))


def _ebs(source: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """``aws://us-east-1a/vol-1`` and ``vol-1`` are the same."""
    return str(source.get("volumeID", "")).rpartition("/")[2]


def _pd(source: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    zone = next((labels[label] for label in _ZONES if label in labels), _UNSPECIFIED)
    place = "regions/" + zone.partition("__")[0].rpartition("-")[0] if "__" in zone else f"zones/{zone}"
    return f"projects/{_UNSPECIFIED}/{place}/disks/{source.get('pdName', '')}"


SOURCES: Final[Mapping[str, InTree]] = {
    "aws_elastic_block_store": InTree("kubernetes.io/aws-ebs", "ebs.csi.aws.com", _ebs),
    "gce_persistent_disk": InTree("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", _pd),
    "azure_disk": InTree("kubernetes.io/azure-disk", "disk.csi.azure.com", _field("diskURI")),
    "cinder": InTree("kubernetes.io/cinder", "cinder.csi.openstack.org", _field("volumeID")),
    "vsphere_volume": InTree("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", _field("volumePath"), always=False),
    "portworx_volume": InTree("kubernetes.io/portworx-volume", "pxd.portworx.com", _field("volumeID"), always=False),
}
_BY_PLUGIN: Final = {found.plugin: found for found in SOURCES.values()}


class Migration:
    """Which plugins are migrated on a node."""

    def __init__(self, node: CSINode | None, *, everywhere: bool = False) -> None:
        annotated = node.metadata.annotations.get(MIGRATED_PLUGINS, "") if node is not None else ""
        self._annotated = frozenset(name.strip() for name in annotated.split(","))
        self._everywhere = everywhere

    def _migrates(self, found: InTree) -> bool:
        return found.always or self._everywhere or found.plugin in self._annotated

    def inline(self, volume: Volume) -> Named | None:
        """A volume that a pod names itself."""
        return self._named(volume, {})

    def persistent(self, volume: PersistentVolume) -> Named | None:
        if volume.spec.csi:
            return str(volume.spec.csi.get("driver", "")), str(volume.spec.csi.get("volumeHandle", ""))
        return self._named(volume.spec, volume.metadata.labels)

    def provisioner(self, name: str) -> str:
        """The driver that makes volumes for a storage class."""
        found = _BY_PLUGIN.get(name)
        return found.driver if found is not None and self._migrates(found) else name

    def _named(self, holder: object, labels: Mapping[str, str]) -> Named | None:
        for field, found in SOURCES.items():
            source: Mapping[str, Any] | None = getattr(holder, field)
            if source is not None and self._migrates(found):
                return found.driver, found.handle(source, labels)
        return None


EVERYWHERE: Final = Migration(None, everywhere=True)
"""As on a node where every plugin is migrated: what a pod may have to have attached at all."""
