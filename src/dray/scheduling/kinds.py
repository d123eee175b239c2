"""What the scheduler mirrors. Apart from the scheduler, because this is known, and asked of a cluster, before that is loaded."""

from __future__ import annotations

from typing import Final

from dray.api.kinds import (
    CORE_POD_GROUPS,
    CSI_NODES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)

OWNER_KINDS: Final[tuple[Kind, ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
"""Whose pods spread by default."""
KINDS: Final[tuple[Kind, ...]] = (
    NODES,
    PODS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    VOLUME_ATTACHMENTS,
    POD_DISRUPTION_BUDGETS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    NODE_RESOURCE_TOPOLOGIES,
    PRIORITY_CLASSES,
    QUEUES,
    POD_GROUPS,
    CORE_POD_GROUPS,
    *OWNER_KINDS,
)
