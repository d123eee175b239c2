"""``topology.node.k8s.io``: NodeResourceTopology in v1alpha2 and v1alpha1, as exporters publish it.

One type for both versions: v1alpha1 only lacks the attributes. The object's name is the node's; an old v1alpha1 object has a
namespace, which says nothing. Unknown values of attributes count as absent.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from dray.api.core import QuantityValue
from dray.api.meta import Object, Struct

GROUP: Final = "topology.node.k8s.io"

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]

POLICY_ATTRIBUTE: Final = "topologyManagerPolicy"
SCOPE_ATTRIBUTE: Final = "topologyManagerScope"
PREFER_CLOSEST_ATTRIBUTE: Final = "topologyManagerOptionPreferClosestNumaNodes"
# What no exporter publishes today; Dray's simulated kubelets do, and reads them where they are.
CPU_MANAGER_ATTRIBUTE: Final = "cpuManagerPolicy"
MEMORY_MANAGER_ATTRIBUTE: Final = "memoryManagerPolicy"

POLICIES: Final[dict[str, Policy]] = {
    "none": "none",
    "best-effort": "best-effort",
    "restricted": "restricted",
    "single-numa-node": "single-numa-node",
}
SCOPES: Final[dict[str, Scope]] = {"container": "container", "pod": "pod"}

# The deprecated ``topologyPolicies[0]``: policy and scope in one word.
LEGACY: Final[dict[str, tuple[Policy, Scope]]] = {
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "Restricted": ("restricted", "container"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "BestEffort": ("best-effort", "container"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
}


class AttributeInfo(Struct):
    name: str = ""
    value: str = ""


class CostInfo(Struct):
    """The distance to another zone, as the firmware's table has it: 10 is local, 255 unknown."""

    name: str = ""
    value: int = 0


class ResourceInfo(Struct):
    """Amounts of one resource in one zone; what is not published is None."""

    name: str = ""
    capacity: QuantityValue | None = None
    allocatable: QuantityValue | None = None
    available: QuantityValue | None = None


class Zone(Struct):
    """``type`` is ``Node`` for a NUMA node; zones of other types are not looked at."""

    name: str = ""
    type: str = ""
    parent: str = ""
    costs: tuple[CostInfo, ...] = ()
    attributes: tuple[AttributeInfo, ...] = ()
    resources: tuple[ResourceInfo, ...] = ()

    @property
    def number(self) -> int | None:
        """The NUMA id: the integer that the name ends with. The position in the list says nothing."""
        found = re.search(r"\d{1,9}$", self.name, re.ASCII)
        return int(found[0]) if found else None


class NodeResourceTopology(Object):
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[AttributeInfo, ...] = ()
    zones: tuple[Zone, ...] = ()

    def attribute(self, name: str) -> str:
        """The value of an attribute, empty when there is none; of several with one name the last counts."""
        return next((found.value for found in reversed(self.attributes) if found.name == name), "")

    @property
    def management(self) -> tuple[Policy, Scope]:
        """Policy and scope: the deprecated word first, then each attribute on its own where it is there."""
        policy, scope = LEGACY.get(self.topology_policies[0] if self.topology_policies else "", ("none", "container"))
        policy = POLICIES.get(self.attribute(POLICY_ATTRIBUTE), policy)
        return policy, SCOPES.get(self.attribute(SCOPE_ATTRIBUTE), scope)

    @property
    def not_understood(self) -> list[str]:
        """What it says of the Topology Manager in words that no kubelet has, and what counts instead."""
        policy, scope = self.management
        word = self.topology_policies[0] if self.topology_policies else ""
        said = (
            (POLICY_ATTRIBUTE, self.attribute(POLICY_ATTRIBUTE), POLICIES, policy),
            (SCOPE_ATTRIBUTE, self.attribute(SCOPE_ATTRIBUTE), SCOPES, scope),
            ("topologyPolicies", word, (*LEGACY, "None"), f"{policy}, {scope}"),
        )
        return [
            f"{name} {value!r} is none of {', '.join(known)}: counts as {counts}"
            for name, value, known, counts in said
            if value and value not in known
        ]

    @property
    def numa_zones(self) -> tuple[Zone, ...]:
        """The zones that are NUMA nodes, by their number; those without one come last, by name."""
        nodes = (zone for zone in self.zones if zone.type == "Node")
        return tuple(sorted(nodes, key=lambda zone: (zone.number is None, zone.number or 0, zone.name)))
