"""The zones of nodes: what is free in each, who has the rest, and how that is known. As the scheduler counts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, Kind
from dray.api.topology import NodeResourceTopology
from dray.api.words import words
from dray.cluster.world import World
from dray.numa.account import Held
from dray.numa.available import unreported
from dray.numa.demand import demand
from dray.numa.evaluate import reason
from dray.numa.fingerprint import counts_exactly
from dray.numa.placement import GROUPS_OBSERVED, GROUPS_PREDICTED, OBSERVED, PREDICTED, Record, groups_of, record, shares_of
from dray.numa.refused import TOPOLOGY_AFFINITY_ERROR
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.plugins.resources import readable
from dray.scheduling.scheduler import Scheduler

Amounts = dict[str, str]
_NO_GUARANTEE: Final = (
    "No kubelet aligns the devices of claims with CPUs and memory: the scheduler chooses devices near to the zones that the "
    "kubelet will probably take, and nothing guarantees it."
)


class ZoneHolder(msgspec.Struct):
    """A pod with something in a zone; ``known``: observed, or predicted."""

    pod: str
    amount: Amounts
    known: str


class ZoneRow(msgspec.Struct):
    """One zone of a node."""

    node: str
    zone: str
    policy: str
    scope: str
    free: Amounts
    total: Amounts
    holders: list[ZoneHolder]


class Unknown(msgspec.Struct):
    """A pod that a kubelet has given something by zone, with why a record of where cannot be used; if there is no other one,
    nobody knows."""

    node: str
    pod: str
    warnings: list[str] = []


class ZoneReport(msgspec.Struct):
    """``missing``: by node, resources that it offers and its kubelet may align, and of which nothing is published by zone.
    ``unread``: pods with a record that cannot be used, of which another one counts. ``unreported``: pods that have run for a
    minute and that no exporter has reported; ``stale``: nodes whose published zones were counted with other pods than are there
    now; ``not_understood``: by node, words about its Topology Manager that no kubelet has."""

    zones: list[ZoneRow]
    unknown: list[Unknown] = []
    unread: list[Unknown] = []
    missing: dict[str, list[str]] = {}
    unreported: list[str] = []
    stale: list[str] = []
    not_understood: dict[str, list[str]] = {}


def zone_report(
    world: World, now: float, *, config: Config | None = None, gates: Gates | None = None, nodes: Sequence[str] = ()
) -> ZoneReport:
    """Every zone of every node, or of those named."""
    scheduler = Scheduler(world, config, gates or Gates.dray())
    Ask(scheduler, now)
    found = ZoneReport([])
    published = world.all(NODE_RESOURCE_TOPOLOGIES) if NODE_RESOURCE_TOPOLOGIES in world.kinds else {}
    for info in sorted(scheduler.nodes, key=lambda info: info.name):
        if nodes and info.name not in nodes:
            continue
        if missing := scheduler.zones.missing(info.name):
            found.missing[info.name] = list(missing)
        topology: NodeResourceTopology | None = published.get(info.name)
        if topology is not None and (unknown := topology.not_understood):
            found.not_understood[info.name] = unknown
        layout = scheduler.zones.layout(info.name)
        if layout is None:
            continue
        held = {uid: entry for uid, entry in scheduler.zones.held_on(info.name).items() if uid in info.pods}
        pods = {uid: info.pods[uid].pod for uid in held}
        records = {uid: record(pod, layout) for uid, pod in pods.items()}
        state = scheduler.zones.state(info)
        assert state is not None
        for place in layout.places:
            free = {name: readable(name, row[place]) for name, row in zip(layout.resources, state.free)}
            total = {name: readable(name, row[place]) for name, row in zip(layout.resources, layout.allocatable)}
            holders = _holders(place, held, pods, records)
            found.zones.append(ZoneRow(info.name, layout.labels[place], layout.policy, layout.scope, free, total, holders))
        found.unknown += _unknown(info.name, pods, {uid: each for uid, each in records.items() if each.source == "none"})
        used = {uid: each for uid, each in records.items() if each.source != "none" and each.warnings}
        found.unread += _unknown(info.name, pods, used)
        assert topology is not None
        if counts_exactly(topology, [placed.pod for placed in info.pods.values()]) == "other":
            found.stale.append(info.name)
        found.unreported += unreported([pods[uid] for uid, entry in held.items() if entry.sure != "observed"], now)
    return found


def _holders(place: int, held: dict[str, Held], pods: dict[str, Pod], records: dict[str, Record]) -> list[ZoneHolder]:
    found = []
    for uid, entry in held.items():
        amount = {name: readable(name, value) for name, value in dict(entry.usage.placement).get(place, ())}
        for mask, amounts in entry.usage.groups:
            if mask >> place & 1:
                amount |= {name: f"{readable(name, value)} over {mask.bit_count()} zones" for name, value in amounts}
        if amount:
            found.append(ZoneHolder(pods[uid].key, amount, records[uid].source))
    return sorted(found, key=lambda holder: holder.pod)


def _unknown(node: str, pods: dict[str, Pod], records: dict[str, Record]) -> list[Unknown]:
    found = (Unknown(node, pods[uid].key, list(each.warnings)) for uid, each in records.items())
    return sorted(found, key=lambda each: each.pod)


def where(pod: Pod) -> str:
    """The zones of a pod in words, from its records: ``zones 0 and 1 (observed)``; empty where nothing is recorded."""
    annotations = pod.metadata.annotations
    for name, together, known in ((OBSERVED, GROUPS_OBSERVED, "observed"), (PREDICTED, GROUPS_PREDICTED, "predicted")):
        zones = {share.zone for share in shares_of(annotations.get(name, ""))}
        zones.update(zone for group in groups_of(annotations.get(together, "")) for zone in group.memory_nodes)
        if zones:
            named = sorted((zone.removeprefix("node-") for zone in zones), key=lambda zone: (len(zone), zone))
            return f"zone{'s' if len(zones) > 1 else ''} {' and '.join(named)} ({known})"
    return ""


def refused_for_zones(world: World, pod: Pod, now: float, config: Config | None, gates: Gates) -> list[str]:
    """Of a pod that its kubelet refused because of zones: what they lack for it now. Which they were then nobody has kept."""
    if pod.status.reason != TOPOLOGY_AFFINITY_ERROR:
        return []
    scheduler = Scheduler(world, config, gates)
    Ask(scheduler, now)
    info = scheduler.nodes.get(pod.spec.node_name)
    state = scheduler.zones.state(info) if info is not None else None
    if info is None or state is None:
        return [f"Nobody publishes the zones of node {pod.spec.node_name}, so it cannot be told what they lacked."]
    asked = scheduler.zones.asked(pod, scheduler.demands.of(pod))
    found = reason(scheduler.zones.evaluators.admit(state, asked), state, info.name)
    return [f"Now {words(found)}." if found is not None else f"Such a pod would find room in the zones of node {info.name} now."]


def without_zones(pod: Pod, unknown: Mapping[Kind, str]) -> list[str]:
    """Where zones may not be read and kubelets may align what the pod asks for: the answer is one without them."""
    why = unknown.get(NODE_RESOURCE_TOPOLOGIES, "")
    if not why.endswith(f"list {NODE_RESOURCE_TOPOLOGIES.resource}") or not demand(pod).units:
        return []
    return [f"Zones are left out of account, and a kubelet may refuse the pod because of them: {why}."]


def without_guarantee(world: World, pod: Pod) -> list[str]:
    """Where a pod mixes what kubelets align with what they do not look at: nothing keeps these together for sure."""
    devices = bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None
    if not devices or not demand(pod).units or NODE_RESOURCE_TOPOLOGIES not in world.kinds:
        return []
    if not world.all(NODE_RESOURCE_TOPOLOGIES):
        return []
    return [_NO_GUARANTEE]
