"""Creates that a quota refused: they are worth another try when a quota lets more in than before, not when a back-off ends."""

from __future__ import annotations

from dray.api.core import ResourceQuota
from dray.api.quantity import Quantity
from dray.cluster.port import Change, Forbidden, Outcome


def over_quota(outcome: Outcome) -> str:
    """The namespace whose quota refused the write; empty where it ended in another way."""
    error = outcome.error
    return outcome.write.namespace if isinstance(error, Forbidden) and "exceeded quota" in error.message else ""


def room_in(change: Change) -> str:
    """The namespace in which a quota lets more in than before; empty where it does not."""
    old, new = change.old, change.new
    assert old is None or isinstance(old, ResourceQuota)
    assert new is None or isinstance(new, ResourceQuota)
    if old is None or (new is not None and not _wider(old, new)):
        return ""
    return old.metadata.namespace


def _wider(old: ResourceQuota, new: ResourceQuota) -> bool:
    limits = any(name not in new.spec.hard or _less(amount, new.spec.hard[name]) for name, amount in old.spec.hard.items())
    return limits or any(_less(amount, old.status.used.get(name, 0)) for name, amount in new.status.used.items())


def _less(one: str | int | float, other: str | int | float) -> bool:
    return Quantity.parse(one).nanos < Quantity.parse(other).nanos
