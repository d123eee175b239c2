"""What the cluster shows, told to the parts that it concerns. One method for each kind of object.

Always true: a change that cannot change a decision (a heartbeat, a condition, a finalizer) wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.api.core import Pod
from dray.api.kinds import (
    CSI_NODES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from dray.api.resource import ResourceClaim
from dray.api.tolerations import evicts
from dray.books.nodes import Placed
from dray.cluster.port import Change
from dray.numa.refused import REASONS
from dray.scheduling.actions.preemptor import Preemptor
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.plugins.images import ImageNodes
from dray.scheduling.plugins.neighbours import Neighbours
from dray.scheduling.plugins.zones import Zones
from dray.scheduling.shape.claims import claim_keys, claim_topic
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting import events, pauses
from dray.scheduling.waiting.hints import claim_matters, must_be_left, pod_matters, same_node, unbound_claim_keys, with_conditions
from dray.scheduling.waiting.queue import QueuedPod


class Observer:
    def __init__(
        self,
        parts: Parts,
        cycle: Cycle,
        preemptor: Preemptor,
        reports: Reports,
        neighbours: Neighbours,
        images: ImageNodes,
        zones: Zones,
    ) -> None:
        self._parts, self._world, self._nodes, self._queue = parts, parts.world, parts.nodes, parts.queue
        self._engine, self._claims, self._binder, self._wakeups = parts.engine, parts.claims, parts.binder, parts.wakeups
        self._cycle, self._preemptor, self._neighbours, self._images = cycle, preemptor, neighbours, images
        self._reports, self._zones = reports, zones
        self._schedulers = frozenset(parts.config.by_name)
        self._pods_by_claim = parts.world.index(PODS, unbound_claim_keys)
        self._handlers: dict[Kind, Callable[[Any, Any, float], None]] = {
            PODS: self._pod,
            NODES: self._node,
            RESOURCE_CLAIMS: self._claim,
            RESOURCE_SLICES: self._slice,
            DEVICE_CLASSES: self._class,
            DEVICE_TAINT_RULES: self._rule,
            PERSISTENT_VOLUMES: self._volume,
            PERSISTENT_VOLUME_CLAIMS: self._volume,
            STORAGE_CLASSES: self._volume,
            CSI_NODES: self._attach_limits,
            VOLUME_ATTACHMENTS: self._attachment,
            NAMESPACES: self._namespace,
            # After nodes and pods, which it is read with.
            NODE_RESOURCE_TOPOLOGIES: self._topology,
        }

    def everything(self) -> None:
        """All that the world has, as if it had just come."""
        for kind, handler in self._handlers.items():
            if kind in self._world.kinds:
                for found in list(self._world.all(kind).values()):
                    handler(None, found, 0.0)

    def observe(self, change: Change, now: float) -> None:
        handler = self._handlers.get(change.kind)
        if handler is not None:
            handler(change.old, change.new, now)

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod is waiting to be placed by this scheduler."""
        named = pod.spec.scheduler_name in self._schedulers
        return named and not pod.terminal and pod.metadata.deletion_timestamp is None and not pod.spec.node_name

    # -------------------------------------------------------------------------------------------------------------- pods

    def _pod(self, old: Pod | None, new: Pod | None, now: float) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._pod_gone(old.uid, now)
        if new is None:
            return
        if new.terminal:
            self._pod_gone(new.uid, now)
            if new.spec.node_name and new.status.reason in REASONS:
                self._refused(old, new, now)
        elif new.spec.node_name:
            self._pod_placed(old, new, now)
        elif self.is_ours(new):
            self._pod_waits(old, new, now)
        else:
            self._pod_gone(new.uid, now)

    def _refused(self, old: Pod | None, new: Pod, now: float) -> None:
        of = self._parts.demands.of(new)
        if old is None:
            self._zones.refused_before(new, of)
        elif not old.terminal:
            self._zones.refused(new, of, now)

    def _pod_gone(self, uid: str, now: float) -> None:
        pending = self._queue.forget(uid, now)
        if pending is not None and pending.pod.spec.resource_claims:
            self._give_back_claims(pending.pod)
        self._binder.pod_gone(uid, now)
        self._preemptor.forget(uid)
        self._nodes.displace(uid)
        self._preemptor.preemption.gone(uid)

    def _give_back_claims(self, pod: Pod) -> None:
        """A claim that was allocated for a pod that never started, and that no other pod names, is free again."""
        for key in claim_keys(pod):
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is None or self._pods_by_claim[key]:
                continue
            if claim.status.allocation is not None and not claim.status.reserved_for:
                self._claims.deallocate(claim)
            elif self._claims.intents.in_doubt(claim):
                # It may turn out to be allocated for this pod.
                self._claims.unreserve(key, pod.uid, gone=True)

    def _pod_placed(self, old: Pod | None, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        placed = self._nodes.placed(uid)
        if placed is not None and placed.pod.spec.containers == pod.spec.containers:
            demand = placed.demand
        else:
            demand = self._parts.demands.of(pod)
        self._queue.forget(uid, now)
        self._preemptor.bound(uid, now)
        self._preemptor.forget(uid)
        self._binder.pod_placed(pod, now)
        self._nodes.place(Placed(pod, demand, pod.spec.node_name))
        self._zones.placed(old, pod, demand)

    def _pod_waits(self, old: Pod | None, new: Pod, now: float) -> None:
        uid = new.metadata.uid
        binding = self._binder.bindings.get(uid)
        if binding is not None:
            self._binder.pod_changed(binding, new, now)
            return
        pending = self._queue.get(uid)
        if pending is None and self._nodes.placed(uid) is not None:
            # Bound a moment ago: the watch is behind the answer to our write.
            return
        if pending is None:
            pending = QueuedPod(new, self._parts.demands.of(new), now)
            if (pause := pauses.told(new)) is not None:
                self._queue.pause(pending, pause)
            self._queue.push(pending, now)
            return
        signed = self._cycle.needs.signed
        changed = old is None or pod_matters(old, new) or signed(old) != signed(new)
        pending.pod = new
        self._preemptor.seen(old, pending, now)
        if changed:
            pending.demand = self._parts.demands.of(new)
            pending.blocked_until = pending.failed_until = pending.evicts_from = 0.0
            pending.in_vain = 0
            self._queue.push(pending, now)
        self._reports.seen(pending, now)

    # ------------------------------------------------------------------------------------------------- nodes and devices

    def _node(self, old: Any, new: Any, now: float) -> None:
        self._images.changed(old, new)
        if new is None:
            name = old.metadata.name
            self._nodes.remove(name)
            self._preemptor.node_gone(name, now)
            self._binder.node_gone(name, now)
            self._neighbours.relabelled()
            self._engine.remove_node(name)
            self._wakeups.node_gone(name)
            self._zones.node(name)
            return
        if old is not None and same_node(old, new):
            # A heartbeat.
            return
        self._nodes.put(new)
        if old is None or old.metadata.labels != new.metadata.labels:
            self._neighbours.relabelled()
        self._engine.put_node(new)
        self._wakeups.node(new.metadata.name)
        self._zones.node(new.metadata.name)

    def _topology(self, old: Any, new: Any, now: float) -> None:
        before = self._zones.any
        self._zones.topology(old, new)
        if self._zones.any != before:
            # Plans were made without a word about zones.
            self._cycle.forget_candidates()

    def _claim(self, old: ResourceClaim | None, new: ResourceClaim | None, now: float) -> None:
        found = new if new is not None else old
        assert found is not None
        if new is None:
            self._cycle.needs.forget_claim(found.uid)
        elif old is not None and old.uid == new.uid and old.status.allocation is not None and new.status.allocation is None:
            self._preemptor.nominator.given_back(new.uid)
        self._claims.observe(old, new, now)
        self._preemptor.preemption.claim_changed(old)
        key = found.metadata.key
        self._binder.claim_changed(key, now)
        if claim_matters(old, new):
            self._wakeups.event(claim_topic(key))
            if self._queue.count("waiting") and (owner := found.metadata.controller) is not None:
                self._queue.set_apart(owner.uid, now)

    def _slice(self, old: Any, new: Any, now: float) -> None:
        if new is None:
            self._engine.remove_slice(old.metadata.name)
        else:
            self._engine.put_slice(new)
        self._cycle.devices.scorer.binding_conditions += with_conditions(new) - with_conditions(old)
        if new is not None and must_be_left(old, new):
            self._binder.taints_changed(now)
        for found in (old, new):
            if found is not None:
                self._wakeups.devices(found.spec.node_name or "")
                self._wakeups.pool((found.spec.driver, found.spec.pool.name))

    def _class(self, old: Any, new: Any, now: float) -> None:
        if new is None:
            self._engine.remove_class(old.metadata.name)
            self._parts.classes.remove(old.metadata.name)
        else:
            self._engine.put_class(new)
            self._parts.classes.put(new)
        self._cycle.forget_candidates()
        self._wakeups.event(events.CLASSES)
        self._wakeups.devices()

    def _rule(self, old: Any, new: Any, now: float) -> None:
        if new is None:
            self._engine.remove_rule(old.metadata.name)
        else:
            self._engine.put_rule(new)
            if evicts(new.spec.taint):
                self._binder.taints_changed(now)
        self._wakeups.devices()

    # ------------------------------------------------------------------------------------------- volumes and namespaces

    def _volume(self, old: Any, new: Any, now: float) -> None:
        self._binder.volume_changed((new if new is not None else old).key, now)
        self._wakeups.event(events.VOLUMES)

    def _attach_limits(self, old: Any, new: Any, now: float) -> None:
        self._wakeups.event(events.VOLUMES, events.FREE)

    def _attachment(self, old: Any, new: Any, now: float) -> None:
        if new is None:
            self._wakeups.event(events.VOLUMES, events.FREE)

    def _namespace(self, old: Any, new: Any, now: float) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._neighbours.namespaces_changed()
            self._wakeups.event(events.PODS)
