"""Proof that nothing is owned twice: every rule checked over all claims, pods, slices and nodes of a cluster.

A brute-force reading of the API's rules, without the allocator and its ledger. A *violation* must never be true, not even for a
moment. A *leftover* is what a controller has still to clean up, or what a driver has taken away; it is normal for a short while.
What cannot be told, because nothing is known of a kind, is neither: the rule is named as one that was not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from dray.api.consumers import claims_of, is_pod, reserves
from dray.api.core import Node, Pod
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import FINALIZER, RESERVED_FOR_MAX, RESULTS_MAX, DeviceKey, ResourceClaim
from dray.api.selectors import node_selector_matches
from dray.api.topology import NodeResourceTopology
from dray.cluster.world import World
from dray.explain.published import Holder, Published
from dray.explain.usage import node_usage
from dray.numa.placement import OBSERVED, shares_of

EXTENDED_RESULTS_MAX: Final = 128
_EVERYTHING_KNOWN: Final[Mapping[Kind, str]] = {}


class Finding(msgspec.Struct, frozen=True):
    """A rule that does not hold, the objects that break it, and how."""

    rule: str
    objects: tuple[str, ...]
    detail: str


class Report(msgspec.Struct):
    checked: dict[str, int]
    violations: list[Finding]
    leftovers: list[Finding]
    unchecked: dict[str, str] = {}
    """Rules that could not be checked, each with why."""

    @property
    def found(self) -> bool:
        """Whether there was anything that could break a rule."""
        return any(self.checked[what] for what in ("claims", "devices", "pools", "pods"))


def verify(world: World, unknown: Mapping[Kind, str] = _EVERYTHING_KNOWN) -> Report:
    """Check everything. The order of findings follows rules and names, so that equal clusters give equal reports. ``unknown``:
    kinds of which nothing can be told, and why, as a ``Snapshot`` has them."""
    published = Published(world)
    violations = [found for rule in _RULES for found in rule(published)]
    leftovers = [found for rule in _LEFTOVERS for found in rule(published)]
    doubtful = {rule: unknown[kind] for rule, kind in _ABSENCES.items() if kind in unknown}
    found = {finding.rule for finding in (*violations, *leftovers)}
    return Report(
        _checked(published),
        [finding for finding in violations if finding.rule not in doubtful],
        [finding for finding in leftovers if finding.rule not in doubtful],
        {rule: why for rule, why in doubtful.items() if rule in found},
    )


def _checked(published: Published) -> dict[str, int]:
    world = published.world
    return {
        "claims": len(world.all(RESOURCE_CLAIMS)),
        "devices": len(published.devices),
        "allocated": sum(len(found) for found in published.holders.values()),
        "counterSets": sum(len(pool.counters()) for pool in published.pools.values()),
        "pools": len(published.pools),
        "pods": len(world.all(PODS)),
        "nodes": len(world.all(NODES)),
        "rules": len(_RULES),
    }


# ------------------------------------------------------------------------------------------------------------ devices


def _one_owner(published: Published) -> Iterator[Finding]:
    for identity in sorted(published.holders):
        owners = published.owners(identity)
        whole = [owner for owner in owners if owner.result.share_id is None]
        if len(whole) > 1:
            yield Finding("device-owner", _named(identity, whole), f"{len(whole)} allocations own the whole device")
        elif whole and len(owners) > 1:
            yield Finding("device-owner", _named(identity, owners), "owned as a whole and in shares at the same time")


def _one_share(published: Published) -> Iterator[Finding]:
    for identity in sorted(published.holders):
        shares = Counter(owner.result.share_id for owner in published.owners(identity) if owner.result.share_id is not None)
        for share, times in sorted(shares.items(), key=lambda item: str(item[0])):
            if times > 1:
                owners = [owner for owner in published.owners(identity) if owner.result.share_id == share]
                yield Finding("share-owner", _named(identity, owners), f"share {share} is given out {times} times")


def _shared_allowed(published: Published) -> Iterator[Finding]:
    for identity, device in sorted(published.devices.items()):
        shared = [owner for owner in published.owners(identity) if owner.result.share_id is not None]
        if len(shared) > 1 and not device.device.allow_multiple_allocations:
            yield Finding("share-allowed", _named(identity, shared), "shared although the device does not allow it")


def _capacity(published: Published) -> Iterator[Finding]:
    for identity, device in sorted(published.devices.items()):
        consumed: dict[str, Quantity] = {}
        owners = [owner for owner in published.owners(identity) if owner.result.share_id is not None]
        for owner in owners:
            for name, amount in (owner.result.consumed_capacity or {}).items():
                consumed[name] = consumed.get(name, Quantity(0)) + Quantity.parse(amount)
        for name, total in sorted(consumed.items()):
            published_capacity = device.device.capacity.get(name)
            limit = Quantity.parse(published_capacity.value) if published_capacity is not None else Quantity(0)
            if total > limit:
                yield Finding("capacity", _named(identity, owners), f"{name}: {total} consumed of {limit}")


class _Drawn(msgspec.Struct):
    """What the devices in use draw from one counter, how much there is (None: not published), and which they are."""

    counter_set: str
    name: str
    total: Quantity
    limit: Quantity | None
    devices: list[DeviceKey]


def _drawn(published: Published) -> Iterator[_Drawn]:
    """Each device in use takes its counters once, however many shares it has."""
    for (driver, pool_name), pool in published.pools.items():
        limits = pool.counters()
        used: dict[tuple[str, str], Quantity] = {}
        users: dict[tuple[str, str], list[DeviceKey]] = {}
        for device in (device for slice in pool.slices for device in slice.spec.devices):
            identity = DeviceKey(driver, pool_name, device.name)
            if not published.owners(identity):
                continue
            for entry in device.consumes_counters:
                for name, counter in entry.counters.items():
                    key = (entry.counter_set, name)
                    used[key] = used.get(key, Quantity(0)) + Quantity.parse(counter.value)
                    users.setdefault(key, []).append(identity)
        for (counter_set, name), total in sorted(used.items()):
            yield _Drawn(counter_set, name, total, limits.get(counter_set, {}).get(name), users[counter_set, name])


def _counters(published: Published) -> Iterator[Finding]:
    for drawn in _drawn(published):
        if drawn.limit is not None and drawn.total > drawn.limit:
            detail = f"counter set {drawn.counter_set}, {drawn.name}: {drawn.total} used of {drawn.limit}"
            yield Finding("counters", _in_use(published, drawn.devices), detail)


def _groups(published: Published) -> Iterator[Finding]:
    """All devices in use on a counter set share a group, or none has any."""
    for (driver, pool, counter_set), members in sorted(published.groups.items()):
        groups_of = [groups for _, groups in members]
        if any(groups_of) and not frozenset.intersection(*groups_of):
            devices = dict.fromkeys(members)
            told = "; ".join(f"{identity[2]}: {', '.join(sorted(groups)) or 'none'}" for identity, groups in devices)
            detail = f"{driver}/{pool} counter set {counter_set}: no group in common ({told})"
            yield Finding("compatibility", _in_use(published, [identity for identity, _ in devices]), detail)


def _in_use(published: Published, devices: list[DeviceKey]) -> tuple[str, ...]:
    """These devices, and the claims that have them: one of those has to go."""
    names = [f"device/{identity}" for identity in devices]
    claims = [f"claim/{owner.claim.key}" for identity in devices for owner in published.owners(identity)]
    return tuple(dict.fromkeys([*names, *claims]))


def _named(identity: DeviceKey, owners: list[Holder]) -> tuple[str, ...]:
    claims = dict.fromkeys(f"claim/{owner.claim.key}" for owner in owners)
    return (f"device/{identity}", *claims)


# ------------------------------------------------------------------------------------------------------------- claims


def _claims(published: Published) -> Iterator[ResourceClaim]:
    claims = published.world.all(RESOURCE_CLAIMS)
    return (claims[key] for key in sorted(claims))


def _finalizers(published: Published) -> Iterator[Finding]:
    for claim in _claims(published):
        if claim.status.allocation is not None and FINALIZER not in claim.metadata.finalizers:
            yield Finding("finalizer", (f"claim/{claim.key}",), "allocated without the finalizer that protects it")


def _reservations(published: Published) -> Iterator[Finding]:
    for claim in _claims(published):
        reserved = claim.status.reserved_for
        name = (f"claim/{claim.key}",)
        if reserved and claim.status.allocation is None:
            yield Finding("reserved-unallocated", name, f"reserved for {len(reserved)} without an allocation")
        if len(reserved) > RESERVED_FOR_MAX:
            yield Finding("reserved-limit", name, f"reserved for {len(reserved)}, at most {RESERVED_FOR_MAX} are allowed")
        if len({user.uid for user in reserved}) < len(reserved):
            yield Finding("reserved-twice", name, "the same consumer is listed twice")
        owner = claim.metadata.controller
        for user in reserved:
            if owner is not None and owner.kind == "Pod" and user.resource == "pods" and user.uid != owner.uid:
                yield Finding("claim-owner", name, f"made for pod {owner.name}, reserved for pod {user.name}")


def _results(published: Published) -> Iterator[Finding]:
    for claim in _claims(published):
        if claim.status.allocation is None:
            continue
        count = len(claim.status.allocation.devices.results)
        extended = "resource.kubernetes.io/extended-resource-claim" in claim.metadata.annotations
        limit = EXTENDED_RESULTS_MAX if extended else RESULTS_MAX
        if count > limit:
            yield Finding("results-limit", (f"claim/{claim.key}",), f"{count} devices, at most {limit} are allowed")


# --------------------------------------------------------------------------------------------------------------- pods


def _placed(published: Published) -> Iterator[tuple[Pod, Node | None]]:
    """Pods on a node that still use what they have."""
    pods, nodes = published.world.all(PODS), published.world.all(NODES)
    for key in sorted(pods):
        if pods[key].spec.node_name and not pods[key].terminal:
            yield pods[key], nodes.get(pods[key].spec.node_name)


def _claims_of(published: Published, pod: Pod) -> Iterator[tuple[str, ResourceClaim | None]]:
    return ((key, published.world.get(RESOURCE_CLAIMS, key)) for key in claims_of(pod))


def _pods_have_claims(published: Published) -> Iterator[Finding]:
    for pod, _ in _placed(published):
        if pod.status.phase != "Running":
            continue
        for key, claim in _claims_of(published, pod):
            objects = (f"pod/{pod.key}", f"claim/{key}")
            if claim is None:
                yield Finding("pod-claim", objects, "the pod runs and its claim does not exist")
            elif claim.status.allocation is None:
                yield Finding("pod-claim", objects, "the pod runs and its claim is not allocated")
            elif not reserves(claim, pod):
                yield Finding("pod-claim", objects, "the pod runs and its claim is not reserved for it")


def _pods_where_claims_are(published: Published) -> Iterator[Finding]:
    for pod, node in _placed(published):
        for key, claim in _claims_of(published, pod):
            allocation = claim.status.allocation if claim is not None else None
            if allocation is None or node is None or claim is None:
                continue
            objects = (f"pod/{pod.key}", f"node/{node.metadata.name}", f"claim/{key}")
            if allocation.node_selector is not None and not node_selector_matches(allocation.node_selector, node):
                yield Finding("pod-node", objects, "the pod is on a node that its claim does not allow")
            for result in allocation.devices.results:
                device = published.devices.get(DeviceKey.of(result))
                if device is not None and not device.reachable_from(node):
                    yield Finding("pod-node", objects, f"device {device.name} cannot be used from the pod's node")


def _node_resources(published: Published) -> Iterator[Finding]:
    for name, usage in sorted(node_usage(published.world).items()):
        for resource, (used, total) in sorted(usage.items()):
            if used > total:
                yield Finding("node-resources", (f"node/{name}",), f"{resource}: pods request {used} of {total}")


def _host_ports(published: Published) -> Iterator[Finding]:
    taken: dict[tuple[str, str, int], list[tuple[str, str]]] = {}
    for pod, _ in _placed(published):
        containers = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
        for port in (port for container in containers for port in container.ports if port.host_port):
            address = port.host_ip or "0.0.0.0"
            users = taken.setdefault((pod.spec.node_name, port.protocol, port.host_port), [])
            for other, where in users:
                if other != pod.key and (address == where or "0.0.0.0" in (address, where)):
                    objects = (f"node/{pod.spec.node_name}", f"pod/{other}", f"pod/{pod.key}")
                    yield Finding("host-port", objects, f"both use {port.protocol} port {port.host_port}")
            users.append((pod.key, address))


# ---------------------------------------------------------------------------------------------------------- leftovers


def _stale_reservations(published: Published) -> Iterator[Finding]:
    for claim in _claims(published):
        for user in claim.status.reserved_for:
            if not is_pod(user):
                continue
            pod: Pod | None = published.world.get(PODS, f"{claim.metadata.namespace}/{user.name}")
            if pod is None or pod.uid != user.uid:
                detail = f"reserved for pod {user.name} ({user.uid}), which does not exist"
            elif pod.terminal:
                detail = f"reserved for pod {user.name}, which has ended"
            else:
                continue
            yield Finding("reserved-for-nobody", (f"claim/{claim.key}",), detail)


def _vanished_devices(published: Published) -> Iterator[Finding]:
    for identity in sorted(published.holders):
        if identity not in published.devices:
            yield Finding("device-vanished", _named(identity, published.holders[identity]), "allocated and no longer published")


def _vanished_counters(published: Published) -> Iterator[Finding]:
    """The driver has taken the slice with the counters away, and left the one with the devices."""
    for drawn in _drawn(published):
        if drawn.limit is None:
            detail = f"counter set {drawn.counter_set}, {drawn.name}: {drawn.total} used and no longer published"
            yield Finding("counters-vanished", _in_use(published, drawn.devices), detail)


def _stuck_claims(published: Published) -> Iterator[Finding]:
    for claim in _claims(published):
        if claim.metadata.deletion_timestamp and not claim.status.reserved_for:
            held = ", ".join(claim.metadata.finalizers)
            yield Finding("claim-stuck", (f"claim/{claim.key}",), f"is deleted, has no users, and is held by {held or 'nothing'}")


def _zones(published: Published) -> Iterator[Finding]:
    """CPUs that pods have for themselves, and devices, by what was observed of running pods; a record may be a little older than
    the next pod. Memory may come from several zones together."""
    topologies: Mapping[str, NodeResourceTopology] = (
        published.world.all(NODE_RESOURCE_TOPOLOGIES) if NODE_RESOURCE_TOPOLOGIES in published.world.kinds else {}
    )
    held: dict[tuple[str, str, str], list[tuple[Pod, Quantity]]] = {}
    for pod, _ in _placed(published):
        for share in shares_of(pod.metadata.annotations.get(OBSERVED, "")) if pod.spec.node_name in topologies else ():
            for resource, amount in share.amount.items():
                if resource != "memory" and not resource.startswith("hugepages-"):
                    held.setdefault((pod.spec.node_name, share.zone, resource), []).append((pod, Quantity.parse(amount)))
    for (node, zone, resource), shares in sorted(held.items()):
        limit = _zone_has(topologies[node], zone, resource)
        total = sum((amount for _, amount in shares), Quantity(0))
        if limit is not None and total > limit:
            objects = (f"node/{node}", *(f"pod/{pod.key}" for pod, _ in shares))
            yield Finding("zone-resources", objects, f"zone {zone}, {resource}: pods were observed with {total} of {limit}")


def _zone_has(topology: NodeResourceTopology, name: str, resource: str) -> Quantity | None:
    """What may be given out there; None where that is not published, or cannot be read."""
    found = (each for zone in topology.zones if zone.name == name for each in zone.resources if each.name == resource)
    amount = next((each.allocatable if each.allocatable is not None else each.capacity for each in found), None)
    try:
        return Quantity.parse(amount) if amount is not None else None
    except QuantityError:
        return None


Rule = Callable[[Published], Iterator[Finding]]
_RULES: Final[tuple[Rule, ...]] = (
    _one_owner,
    _one_share,
    _shared_allowed,
    _capacity,
    _counters,
    _groups,
    _finalizers,
    _reservations,
    _results,
    _pods_have_claims,
    _pods_where_claims_are,
    _node_resources,
    _host_ports,
)
_LEFTOVERS: Final[tuple[Rule, ...]] = (_stale_reservations, _vanished_devices, _vanished_counters, _stuck_claims, _zones)
# Rules about what is not there, and the kind of it: where nothing is known of that kind, they are no finding.
_ABSENCES: Final[Mapping[str, Kind]] = {
    "pod-claim": RESOURCE_CLAIMS,
    "reserved-for-nobody": PODS,
    "device-vanished": RESOURCE_SLICES,
}
