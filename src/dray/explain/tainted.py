"""What taints of devices (KEP-5055) mean for one pod: that it must leave or had to, and who can lift one that keeps it waiting.

Always true: whether a pod must leave is worked out by the code of the eviction controller. Who gives a taint is told for every
device that it keeps from the pod: what only some of the givers take back would not help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api import disruption
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.reason import Reason
from dray.api.resource import DeviceKey, DeviceTaint, ResourceClaim
from dray.api.times import format_time
from dray.cluster.world import World
from dray.controllers.taints import Eviction, Taints, as_if_it_stayed, eviction_of
from dray.devices.explain import Explanation
from dray.devices.inventory import Inventory
from dray.explain.fix import Fix, tainted
from dray.explain.supposed import Changed

Json = dict[str, Any]

EVICTED: Final = "DeletionByDeviceTaintManager"
_MOST_CAUSES: Final = 2


# ----------------------------------------------------------------------------------------------------------- who leaves


def leaving(world: World, pod: Pod, gates: Gates, now: float) -> str:
    """That the pod must leave its devices, when and because of which taint, or that it was told to; to be added to a sentence."""
    told = any(condition.type == disruption.TARGET and condition.reason == EVICTED for condition in pod.status.conditions)
    gone = pod.terminal or pod.metadata.deletion_timestamp is not None
    if gone and not told:
        return ""
    found = _eviction(world, pod, gates)
    if gone:
        kept = f"; finalizer {', '.join(pod.metadata.finalizers)} keeps its object" if pod.metadata.finalizers else ""
        return f", evicted because of {_causes(found) if found is not None else 'a device taint'}{kept}"
    if found is None:
        return ""
    when = "now" if found.when <= now else f"at {format_time(found.when)}"
    return f", and must leave {when} because of {_causes(found)}"


def _eviction(world: World, pod: Pod, gates: Gates) -> Eviction | None:
    uses_claims = bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None
    if not uses_claims or not gates("DRADeviceTaints"):
        return None
    taints = Taints()
    for slice in world.all(RESOURCE_SLICES).values() if RESOURCE_SLICES in world.kinds else ():
        taints.change_slice(None, slice)
    with_rules = gates("DRADeviceTaintRules") and DEVICE_TAINT_RULES in world.kinds
    for rule in world.all(DEVICE_TAINT_RULES).values() if with_rules else ():
        taints.put_rule(rule)
    # One that is on its way out is asked about as if it were not: its claim shows why as long as it holds it.
    status = msgspec.structs.replace(pod.status, phase="Running")
    asked = as_if_it_stayed(msgspec.structs.replace(pod, status=status))
    return eviction_of(world, taints, asked) if taints else None


def _causes(found: Eviction) -> str:
    named = [cause.text for cause in found.causes]
    more = f" and {len(named) - _MOST_CAUSES} more" if len(named) > _MOST_CAUSES else ""
    return f"{' and of '.join(named[:_MOST_CAUSES])}{more}"


# --------------------------------------------------------------------------------------------------- who lifts a taint


class Lifted(NamedTuple):
    """Who takes a taint from devices, as an order, and the command for it; ``rules``: those that are to go, if these suffice."""

    text: str
    command: str = ""
    rules: tuple[str, ...] = ()

    @property
    def changed(self) -> Changed:
        return {DEVICE_TAINT_RULES: dict.fromkeys(self.rules)} if self.rules else {}


def lifted(inventory: Inventory, devices: Iterable[str], taint: Json) -> Lifted:
    rules: dict[str, None] = {}
    drivers: dict[str, None] = {}
    for device in devices:
        key = DeviceKey.parse(device)
        rules |= dict.fromkeys(
            rule.metadata.name for rule in inventory.overlay.rules_for(*key) if _same(_plain(rule.spec.taint), taint)
        )
        if any(_same(_plain(own), taint) for published in inventory.published(key) for own in published.taints):
            drivers[key.driver] = None
    told = tainted(taint)
    parts = [f"have driver {driver} withdraw its taint {{{told}}}" for driver in drivers]
    if rules:
        parts.insert(0, f"remove the rule{'s' if len(rules) > 1 else ''} {', '.join(rules)} with the taint {{{told}}}")
    text = " and ".join(parts)
    if drivers or not rules:
        return Lifted(text)
    return Lifted(text, f"kubectl delete devicetaintrule {' '.join(rules)}", tuple(rules))


def _plain(taint: DeviceTaint) -> Json:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def kept_by(explained: Explanation, claim: str, request: str, taint: Json) -> list[str]:
    """The devices of a node that the taint keeps from a request."""
    return [
        device.device
        for finding in explained.requests
        if (finding.claim, finding.request) == (claim, request)
        for device in finding.devices
        if device.reason is not None and device.reason.code == "DeviceTainted" and _same(device.reason.data, taint)
    ]


def _same(one: Json, wanted: Json) -> bool:
    """Without an effect every taint of the key is wanted."""
    keys = ("key", "value", "effect") if wanted.get("effect") else ("key",)
    return all((one.get(key) or "") == (wanted.get(key) or "") for key in keys)


def advice(world: World, inventory: Inventory, reasons: Sequence[Reason]) -> Iterator[Fix]:
    """For claims that take no more pods because of a taint."""
    for reason in reasons:
        if reason.code != "ClaimTainted":
            continue
        found = lifted(inventory, [str(reason.data["device"])], reason.data)
        if found.text:
            yield Fix(found.text, found.command)
        key = reason.object.partition("/")[2]
        claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, key)
        if claim is not None and (users := [user.name for user in claim.status.reserved_for]):
            commands = "\n".join(f"kubectl delete pod {name} -n {claim.metadata.namespace}" for name in users)
            yield Fix(f"end pod{'s' if len(users) > 1 else ''} {', '.join(users)}: claim {key} is then allocated again", commands)
