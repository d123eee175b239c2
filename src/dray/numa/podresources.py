"""The kubelet's podresources API, v1: what each running container has been given, as messages (``dray.api.wire``).

Exporters ask for it, simulated kubelets answer. Field numbers are upstream's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

SERVICE: Final = "v1.PodResourcesLister"
LIST: Final = f"/{SERVICE}/List"


@dataclass(frozen=True, slots=True)
class NUMANode:
    id: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True)
class TopologyInfo:
    nodes: Annotated[tuple[NUMANode, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    memory_type: Annotated[str, 1] = ""
    size: Annotated[int, 2] = 0
    topology: Annotated[TopologyInfo | None, 3] = None


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    resource_name: Annotated[str, 1] = ""
    device_ids: Annotated[tuple[str, ...], 2] = ()
    topology: Annotated[TopologyInfo | None, 3] = None


@dataclass(frozen=True, slots=True)
class CDIDevice:
    name: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class ClaimResource:
    cdi_devices: Annotated[tuple[CDIDevice, ...], 1] = ()
    driver_name: Annotated[str, 2] = ""
    pool_name: Annotated[str, 3] = ""
    device_name: Annotated[str, 4] = ""
    share_id: Annotated[str | None, 5] = None


@dataclass(frozen=True, slots=True)
class DynamicResource:
    claim_name: Annotated[str, 2] = ""
    claim_namespace: Annotated[str, 3] = ""
    claim_resources: Annotated[tuple[ClaimResource, ...], 4] = ()


@dataclass(frozen=True, slots=True)
class ContainerResources:
    name: Annotated[str, 1] = ""
    devices: Annotated[tuple[ContainerDevices, ...], 2] = ()
    cpu_ids: Annotated[tuple[int, ...], 3] = ()
    memory: Annotated[tuple[ContainerMemory, ...], 4] = ()
    dynamic_resources: Annotated[tuple[DynamicResource, ...], 5] = ()


@dataclass(frozen=True, slots=True)
class PodResources:
    name: Annotated[str, 1] = ""
    namespace: Annotated[str, 2] = ""
    containers: Annotated[tuple[ContainerResources, ...], 3] = ()
    cpu_ids: Annotated[tuple[int, ...], 4] = ()
    memory: Annotated[tuple[ContainerMemory, ...], 5] = ()


@dataclass(frozen=True, slots=True)
class ListPodResourcesRequest:
    pass


@dataclass(frozen=True, slots=True)
class ListPodResourcesResponse:
    pod_resources: Annotated[tuple[PodResources, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class AllocatableResourcesRequest:
    pass


@dataclass(frozen=True, slots=True)
class AllocatableResourcesResponse:
    devices: Annotated[tuple[ContainerDevices, ...], 1] = ()
    cpu_ids: Annotated[tuple[int, ...], 2] = ()
    memory: Annotated[tuple[ContainerMemory, ...], 3] = ()


@dataclass(frozen=True, slots=True)
class GetPodResourcesRequest:
    pod_name: Annotated[str, 1] = ""
    pod_namespace: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class GetPodResourcesResponse:
    pod_resources: Annotated[PodResources | None, 1] = None
