"""Claims that crossed: two schedulers gave out at the same time what is not there for both."""

from __future__ import annotations

from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.devices import Devices


def crossed(engine: Devices, claim: ResourceClaim) -> Reason | None:
    """Why no pod is bound with what the API shows for this claim, whoever was first: it has to be allocated again."""
    found = engine.overdrawn(claim.metadata.uid) if claim.status.allocation is not None else None
    if found is None:
        return None
    return Reason("ClaimCrossed", f"claim/{claim.key}", {"device": str(found.device), "other": found.other, **found.of})
