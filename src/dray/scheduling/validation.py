"""What must hold between the parts of the scheduler after every step, checked from scratch."""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.books.nodes import Nodes
from dray.devices.engine import promised
from dray.scheduling.actions.nominator import Nominator
from dray.scheduling.binding.stages import UNDER_WAY
from dray.scheduling.parts import Parts


def violations(parts: Parts, nominator: Nominator) -> list[str]:
    return [*_nodes(parts.nodes), *_zones(parts), *_devices(parts), *_pods(parts, nominator), *_claims(parts, nominator)]


def _nodes(nodes: Nodes) -> Iterator[str]:
    """Sums are those of the pods, and every pod is where the account says."""
    for info in nodes:
        again = info.without(list(info.pods.values()))
        if again.requested or again.ports or any(again.usage.values()):
            yield f"node {info.name}: {again.requested} {again.ports} {again.usage} is requested by nobody"
        for uid, placed in info.pods.items():
            if nodes.placed(uid) is not placed or placed.node != info.name:
                yield f"node {info.name}: {placed} is counted elsewhere"


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


def _claims(parts: Parts, nominator: Nominator) -> Iterator[str]:
    """Devices are charged for what claims have or may get, for promises, for claims not made yet, and for nothing else."""
    expected = {claim.uid for claim in parts.world.all(RESOURCE_CLAIMS).values() if parts.claims.accounted(claim)}
    expected |= {promised(claim.uid) for each in nominator.all() for claim, _ in each.promises}
    unmade = (binding.special for binding in parts.binder.bindings)
    expected |= {special.claim.uid for special in unmade if special is not None and not special.name}
    charged = {holder for holder, entry in parts.engine.ledger.entries() if not holder.startswith("rest/")}
    for holder in sorted(charged ^ expected):
        missing = "has devices that are not charged" if holder in expected else "is charged for nothing"
        yield f"holder {holder}: {missing}"
