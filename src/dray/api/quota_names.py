"""Names that a quota may limit without a domain, and the scopes that it may have."""

from __future__ import annotations

from typing import Final

COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
REQUESTS: Final = "requests."
LIMITS: Final = "limits."
HUGE_PAGES: Final = "hugepages-"

POD_NAMES: Final = frozenset(("pods", *(prefix + name for prefix in ("", REQUESTS, LIMITS) for name in COMPUTE)))
# A quota on one of these makes every container say how much of it it wants. No other name does that.
MUST_SPECIFY: Final = frozenset(prefix + name for prefix in ("", REQUESTS, LIMITS) for name in ("cpu", "memory"))
VOLUME_NAMES: Final = frozenset({"persistentvolumeclaims", "requests.storage"})
SERVICE_NAMES: Final = frozenset({"services", "services.nodeports", "services.loadbalancers"})
# Kinds that can be counted by their bare name, from the time before ``count/``.
PLAIN_COUNTS: Final = frozenset({"configmaps", "secrets", "replicationcontrollers", "resourcequotas"})
STANDARD: Final = POD_NAMES | VOLUME_NAMES | SERVICE_NAMES | PLAIN_COUNTS
WHOLE: Final = SERVICE_NAMES | PLAIN_COUNTS | {"pods", "persistentvolumeclaims"}

POD_SCOPES: Final = frozenset(
    {"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"}
)
VOLUME_SCOPE: Final = "VolumeAttributesClass"
SCOPES: Final = POD_SCOPES | {VOLUME_SCOPE}
EXCLUSIVE: Final = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))


def is_standard(name: str) -> bool:
    return name in STANDARD or name.startswith((HUGE_PAGES, REQUESTS + HUGE_PAGES))


def scope_fits(scope: str, name: str) -> bool:
    """Whether a quota with this scope can limit this name."""
    if scope == VOLUME_SCOPE:
        return name in VOLUME_NAMES
    return name == "pods" or (scope != "BestEffort" and name in MUST_SPECIFY)
