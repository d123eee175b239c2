"""The messages of the kubelet's gRPC interfaces, with the numbers that their protocol gives to each field.

Plugin registration (``pluginregistration``), DRA (``v1`` and ``v1beta1``, which differ in the share of a device), health of DRA
devices (``v1`` and ``v1alpha1``, which are alike). Those of pod resources are in ``dray.numa.podresources``. Each field has a
default, as protocol buffers have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

# ------------------------------------------------------------------------------------------------------- registration

REGISTRATION: Final = "/pluginregistration.Registration/"


@dataclass(frozen=True, slots=True)
class InfoRequest:
    pass


@dataclass(frozen=True, slots=True)
class PluginInfo:
    type: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    endpoint: Annotated[str, 3] = ""
    supported_versions: Annotated[tuple[str, ...], 4] = ()


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    plugin_registered: Annotated[bool, 1] = False
    error: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class RegistrationStatusResponse:
    pass


# ---------------------------------------------------------------------------------------------------------------- DRA

# What a plugin advertises -> the service that it means.
DRA_SERVICES: Final = {
    "v1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/",
    "v1beta1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/",
}


@dataclass(frozen=True, slots=True)
class Claim:
    namespace: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True)
class NodeResourcesRequest:
    """NodePrepareResourcesRequest and NodeUnprepareResourcesRequest."""

    claims: Annotated[tuple[Claim, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class Device:
    request_names: Annotated[tuple[str, ...], 1] = ()
    pool_name: Annotated[str, 2] = ""
    device_name: Annotated[str, 3] = ""
    cdi_device_ids: Annotated[tuple[str, ...], 4] = ()
    share_id: Annotated[str | None, 5] = None


@dataclass(frozen=True, slots=True)
class NodePrepareResourceResponse:
    devices: Annotated[tuple[Device, ...], 1] = ()
    error: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class NodePrepareResourcesResponse:
    claims: Annotated[dict[str, NodePrepareResourceResponse], 1] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeUnprepareResourceResponse:
    error: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class NodeUnprepareResourcesResponse:
    claims: Annotated[dict[str, NodeUnprepareResourceResponse], 1] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------------------- health

# In the order in which the kubelet prefers them.
HEALTH_SERVICES: Final = {
    "v1.DRAResourceHealth": "/v1.DRAResourceHealth/",
    "v1alpha1.DRAResourceHealth": "/v1alpha1.DRAResourceHealth/",
}
HEALTHY: Final = 1
UNHEALTHY: Final = 2


@dataclass(frozen=True, slots=True)
class NodeWatchResourcesRequest:
    pass


@dataclass(frozen=True, slots=True)
class DeviceIdentifier:
    pool_name: Annotated[str, 1] = ""
    device_name: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    device: Annotated[DeviceIdentifier, 1] = DeviceIdentifier()
    health: Annotated[int, 2] = 0
    last_updated_time: Annotated[int, 3] = 0
    health_check_timeout_seconds: Annotated[int, 4] = 0
    message: Annotated[str, 5] = ""


@dataclass(frozen=True, slots=True)
class NodeWatchResourcesResponse:
    devices: Annotated[tuple[DeviceHealth, ...], 1] = ()
