"""What must hold between the parts of the scheduler after every step, checked from scratch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dray.api.kinds import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.quantity import Quantity
from dray.api.resource import DeviceKey, ResourceSlice
from dray.books.nodes import Nodes
from dray.devices.engine import promised
from dray.devices.ledger import Holding, Ledger
from dray.queues.gangs import is_stale
from dray.scheduling.actions.nominator import Nominator
from dray.scheduling.binding.stages import UNDER_WAY
from dray.scheduling.parts import Parts
from dray.scheduling.workloads.part import Workloads


def violations(parts: Parts, nominator: Nominator, workloads: Workloads) -> list[str]:
    devices = (*_devices(parts), *_holdings(parts.engine.ledger), *_amounts(parts))
    pods = (*_pods(parts, nominator), *_known(parts), *_gangs(parts))
    return [*_nodes(parts.nodes), *_zones(parts), *devices, *pods, *_claims(parts, nominator), *_queues(workloads)]


def _nodes(nodes: Nodes) -> Iterator[str]:
    """Sums are those of the pods, and every pod is where the account says."""
    for info in nodes:
        again = info.without(list(info.pods.values()))
        if again.requested or again.ports or any(again.usage.values()):
            yield f"node {info.name}: {again.requested} {again.ports} {again.usage} is requested by nobody"
        for uid, placed in info.pods.items():
            if nodes.placed(uid) is not placed or placed.node != info.name:
                yield f"node {info.name}: {placed} is counted elsewhere"
    yield from _kept_of_nodes(nodes)


def _kept_of_nodes(nodes: Nodes) -> Iterator[str]:
    """What is kept of all nodes and pods is what they are."""
    again: dict[str, int] = {}
    for info in nodes:
        for name, value in info.allocatable.items() if not info.node.spec.unschedulable else ():
            again[name] = again.get(name, 0) + value
    offered = {name: value for name, value in nodes.offered.items() if value}
    if offered != {name: value for name, value in again.items() if value}:
        yield f"nodes: {offered} is offered in all, and by each {again}"
    if nodes.closed != {info.name for info in nodes if info.node.spec.unschedulable}:
        yield f"nodes: {sorted(nodes.closed)} take no pods, and others do not"
    leaving = {placed.pod.uid for placed in nodes.all_placed() if placed.leaving}
    if {placed.pod.uid for placed in nodes.leaving()} != leaving:
        yield f"nodes: {nodes.leaving()} are leaving, and {sorted(leaving)} are being deleted"


def _zones(parts: Parts) -> Iterator[str]:
    """Who has something by zone is on that node."""
    for uid, held in parts.zones.holders():
        if parts.nodes.node_of(uid) != held.node:
            yield f"zones of {held.node}: {uid} has something there and counts on {parts.nodes.node_of(uid) or 'no node'}"


def _devices(parts: Parts) -> Iterator[str]:
    """Nobody but a promise or a rest has what another has."""
    exclusive: dict[object, str] = {}
    for holder, entry in parts.engine.ledger.entries():
        if entry.standing == "promised":
            continue
        for charge in entry.charges:
            if charge.mode == "exclusive":
                other = exclusive.setdefault(charge.device, holder)
                if other != holder and "shown" not in (entry.standing, parts.engine.ledger.standing(other)):
                    yield f"device {charge.device}: decided for {other} and for {holder}"


def _holdings(ledger: Ledger) -> Iterator[str]:
    """Shares, consumed capacity, groups and rests of each device are those of its holders."""
    again: dict[DeviceKey, Holding] = {}
    for _, entry in ledger.entries():
        for charge in entry.charges:
            again.setdefault(charge.device, Holding()).add(charge)
    counted, kept = {device: holding.state() for device, holding in again.items()}, ledger.snapshot()
    for device in sorted(counted.keys() | kept.keys()) if counted != kept else ():
        if counted.get(device) != kept.get(device):
            yield f"device {device}: is held as {kept.get(device)}, and its holders have {counted.get(device)}"


def _amounts(parts: Parts) -> Iterator[str]:
    """What is decided takes no more of shared capacity and of counters than there is, with all that others have; unless it is
    about to be given up for one of them."""
    ledger = parts.engine.ledger
    crossed = {intent.uid for intent in parts.claims.intents if intent.contested}
    decided = {charge.device for holder in ledger.on_the_way() - crossed for charge in ledger.charges(holder)}
    if not decided:
        return
    pools = {device[:2] for device in decided}
    used: dict[DeviceKey, Holding] = {}
    for _, entry in ledger.entries():
        for charge in entry.charges if entry.standing != "promised" else ():
            if charge.device[:2] in pools and charge.mode != "rest":
                used.setdefault(charge.device, Holding()).add(charge)
    for pool, slices in _published(parts, pools).items():
        yield from _beyond(pool, slices, used, decided)


def _published(parts: Parts, pools: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[ResourceSlice]]:
    """The newest slices of these pools."""
    found: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in parts.world.all(RESOURCE_SLICES).values():
        pool = (each.spec.driver, each.spec.pool.name)
        if pool in pools:
            found.setdefault(pool, []).append(each)
    for slices in found.values():
        newest = max(each.spec.pool.generation for each in slices)
        slices[:] = [each for each in slices if each.spec.pool.generation == newest]
    return found


def _beyond(
    pool: tuple[str, str], slices: list[ResourceSlice], used: Mapping[DeviceKey, Holding], decided: Collection[DeviceKey]
) -> Iterator[str]:
    drawn: dict[tuple[str, str], int] = {}
    concerned: set[tuple[str, str]] = set()
    for device in (device for each in slices for device in each.spec.devices):
        key = DeviceKey(*pool, device.name)
        holding = used.get(key)
        if holding is None:
            continue
        for name, amount in holding.consumed.items() if key in decided else ():
            if name in device.capacity and amount > _nanos(device.capacity[name].value):
                yield f"device {'/'.join(pool)}/{device.name}: {amount} of {name} is taken, of {device.capacity[name].value}"
        for entry in device.consumes_counters:
            for name, counter in entry.counters.items():
                of_set = (entry.counter_set, name)
                drawn[of_set] = drawn.get(of_set, 0) + _nanos(counter.value)
                concerned |= {of_set} if key in decided else set()
    limits = {(s.name, n): _nanos(c.value) for each in slices for s in each.spec.shared_counters for n, c in s.counters.items()}
    for of_set, amount in drawn.items():
        if of_set in concerned and amount > limits.get(of_set, amount):
            yield f"pool {'/'.join(pool)}: {amount} of counter {'/'.join(of_set)} is taken, of {limits[of_set]}"


def _nanos(amount: str | int | float) -> int:
    return Quantity.parse(amount).nanos


def _pods(parts: Parts, nominator: Nominator) -> Iterator[str]:
    """A pod is waiting, promised, being bound or on a node: each in every part that must know, and in no other."""
    for pending in parts.queue:
        placed = parts.nodes.placed(pending.uid)
        if placed is not None and placed.standing != "promised":
            yield f"pod {pending.pod.key}: waits and counts on {placed.node} ({placed.standing})"
        if parts.binder.bindings.get(pending.uid) is not None:
            yield f"pod {pending.pod.key}: waits and is being bound"
        if bool(pending.nominated) != (nominator.get(pending.uid) is not None):
            yield f"pod {pending.pod.key}: nominated for {pending.nominated!r} without being promised anything"
        if pending.state == "taken":
            yield f"pod {pending.pod.key}: decided on, and forgotten"
        if pending.state == "waiting" and (pending.group is None or not pending.group.topics):
            yield f"pod {pending.pod.key}: waits for nothing"
    for binding in parts.binder.bindings:
        placed = parts.nodes.placed(binding.pod.uid)
        if placed is None or placed.node != binding.node or placed.standing == "promised":
            yield f"pod {binding.pod.key}: is being bound to {binding.node} and counts as {placed}"
        if binding.stage not in UNDER_WAY:
            yield f"pod {binding.pod.key}: is being bound, and {binding.stage}"
    under_way = sum(binding.stage != "conditions" for binding in parts.binder.bindings)
    if parts.binder.in_flight != under_way:
        yield f"binder: counts the writes of {parts.binder.in_flight} pods, and those of {under_way} are under way"
    for nomination in nominator.all():
        uid = nomination.pending.uid
        if parts.queue.get(uid) is None or parts.nodes.node_of(uid) != nomination.node:
            yield f"pod {nomination.pending.pod.key}: promised {nomination.node}, and not waiting for it"
    for placed in parts.nodes.all_placed():
        if placed.standing == "decided" and parts.binder.bindings.get(placed.pod.uid) is None:
            known = parts.world.get(PODS, placed.pod.key)
            if known is None or known.uid != placed.pod.uid or not known.spec.node_name:
                # Bound a moment ago: the watch is behind the answer to our write.
                continue
            yield f"pod {placed.pod.key}: decided for {placed.node}, and nobody binds it"


def _known(parts: Parts) -> Iterator[str]:
    """Who is to be placed here waits or is on its way, and who is on a node counts there."""
    for pod in parts.world.all(PODS).values():
        placed, ours = parts.nodes.placed(pod.uid), pod.spec.scheduler_name in parts.config.by_name
        if pod.terminal:
            continue
        if pod.spec.node_name:
            if placed is None or placed.node != pod.spec.node_name:
                yield f"pod {pod.key}: is on {pod.spec.node_name} and counts as {placed}"
        elif ours and pod.metadata.deletion_timestamp is None and placed is None and parts.queue.get(pod.uid) is None:
            yield f"pod {pod.key}: is to be placed, and nobody knows of it"


def _gangs(parts: Parts) -> Iterator[str]:
    """Whoever is waited for by the others of its gang is on its way."""
    for binding in parts.binder.bindings:
        for other in binding.gang.awaited if binding.gang is not None else ():
            if parts.binder.bindings.get(other) is None:
                yield f"pod {binding.pod.key}: waits for {other} of its gang, which is not on its way"


def _queues(workloads: Workloads) -> Iterator[str]:
    """What queues hold is what their pods have, and what is kept of jobs and devices is what they are."""
    kept, again = workloads.use.snapshot(), workloads.counted_again()
    for name in sorted(kept.keys() | again.keys()) if again and kept != again else ():
        if kept.get(name) != again.get(name):
            yield f"queue account, {name}: is {kept.get(name)}, and its pods have {again.get(name)}"
    for name, amount in workloads.jobs.devices.kept.items() if again else ():
        if amount != (counted := workloads.jobs.devices.counted(name)):
            yield f"queues: {amount} of {name} is kept for all devices, and {counted} is there"
    listed, members = workloads.jobs.with_waiting(), workloads.members()
    for job in workloads.jobs:
        if job.waiting and job not in listed:
            yield f"{job}: waits, and is not among those who do"
        broken = bool(job.stale) or (not job.single and is_stale(members.gang(job)))
        if broken and job.key not in workloads.jobs.stirred:
            yield f"{job}: is broken, and nobody looks at it"


def _claims(parts: Parts, nominator: Nominator) -> Iterator[str]:
    """Devices are charged for what claims have or may get, for promises, for claims not made yet, and for nothing else."""
    expected = {claim.uid for claim in parts.world.all(RESOURCE_CLAIMS).values() if parts.claims.intents.accounted(claim)}
    expected |= {promised(claim.uid) for each in nominator.all() for claim, _ in each.promises}
    unmade = (binding.special for binding in parts.binder.bindings)
    expected |= {special.claim.uid for special in unmade if special is not None and not special.name}
    charged = {holder for holder, entry in parts.engine.ledger.entries() if not holder.startswith("rest/")}
    for holder in sorted(charged ^ expected):
        missing = "has devices that are not charged" if holder in expected else "is charged for nothing"
        yield f"holder {holder}: {missing}"
