"""From decision to bound pod: claims written, devices ready, pod bound. One binding per pod, moved on by outcomes and changes.

Always true: a pod here counts on its node and its claims count as taken. A binding is in one stage of ``stages.TRANSITIONS``.
Whatever stage is interrupted, the API shows enough to go on: a restarted scheduler finds claims allocated and reserved for
the pod, and continues from there. A pod with a claim for extended resources is bound only while its status names that claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dray.api.core import PersistentVolumeClaim, Pod
from dray.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, RESOURCE_CLAIMS
from dray.api.meta import decode
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.books.nodes import Nodes
from dray.books.volumes import Chosen, VolumeAccount
from dray.cluster.metrics import Meter
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Refused, Write
from dray.cluster.world import World
from dray.devices.inventory import Inventory
from dray.scheduling.binding import conditions
from dray.scheduling.binding.bindings import Binding, Bindings, Ended
from dray.scheduling.binding.claims import RETRY_AFTER, ClaimWriter, Settled, pause_after
from dray.scheduling.binding.conditions import Verdict
from dray.scheduling.binding.gang import Gang
from dray.scheduling.binding.measures import Measures
from dray.scheduling.binding.outbox import Outbox
from dray.scheduling.binding.rests import Rests
from dray.scheduling.binding.stages import TRANSITIONS, Stage, Stimulus
from dray.scheduling.binding.tainted import must_be_left
from dray.scheduling.binding.volumes import binds_volume, reaches
from dray.scheduling.binding.writing import TOLD_MAX, creation, pod_status, still, usable, with_answer, write_failed
from dray.scheduling.config import Profile
from dray.scheduling.placing.state import Placement
from dray.scheduling.plugins.volumes import bound
from dray.scheduling.shape.claims import runs_with
from dray.scheduling.waiting.queue import QueuedPod

# When it is looked again whether it is the turn of a member that has to come after another one.
TURN_AFTER: Final = 0.5
# A bind that a server has failed so often is not waited for by others.
FAILURES_WAITED: Final = 6


class Binder:
    def __init__(
        self,
        world: World,
        nodes: Nodes,
        claims: ClaimWriter,
        volumes: VolumeAccount,
        rests: Rests,
        inventory: Inventory,
        meter: Meter,
        *,
        waits: bool,
    ) -> None:
        self._world, self._nodes, self._claims, self._volumes, self._rests = world, nodes, claims, volumes, rests
        self._inventory = inventory
        self._measures = Measures(meter)
        # Whether binding conditions count; without the feature pods are bound at once, as older schedulers do.
        self._waits = waits
        # Whether a member of a gang has to wait for another one that is on its way to the same kubelet.
        self.overtakes: Callable[[str], bool] = lambda uid: False
        # Whether a pod that waited for its devices or volumes still fits into the zones of its node.
        self.arrival: Callable[[str], tuple[str, Mapping[str, str]]] = lambda uid: ("comes", {})
        self.bindings = Bindings()
        self.outbox = Outbox()
        self._waiting = 0
        self._enter: dict[Stage, Callable[[Binding, float], None]] = {
            "claims": self._advance,
            "conditions": self._wait,
            "binding": self._bind,
            "bound": self._bound,
            "given up": self._give_up,
            "withdrawn": self._withdraw,
            "left alone": self._leave_alone,
        }

    # -------------------------------------------------------------------------------------------------------- reading

    @property
    def in_flight(self) -> int:
        """Pods whose writes are under way; those that wait for devices cost nothing and do not count."""
        return len(self.bindings) - self._waiting

    def on_its_way(self, uid: str) -> bool:
        """Whether the pod's bind is sent, and may come true at any moment. Not of one that a server fails again and again."""
        binding = self.bindings.get(uid)
        return binding is not None and binding.stage == "binding" and binding.failures < FAILURES_WAITED

    # ---------------------------------------------------------------------------------------------------- transitions

    def _step(self, binding: Binding, stimulus: Stimulus, now: float) -> None:
        before = binding.stage
        stage = binding.stage = TRANSITIONS[before, stimulus]
        if before != "binding" and (stimulus == "ready" or stimulus == "failed") and binding.has_devices:
            self._measures.prebound(binding, stimulus, now)
        if before == "conditions":
            self._waiting -= 1
        self._enter[stage](binding, now)

    def _fail(self, binding: Binding, reason: Reason | None, now: float) -> None:
        """The decision does not hold: everything is given back, and the pod is decided on again. Not once its bind is sent:
        then its answer, or the watch, tells whether it has its node."""
        if binding.writing is not None and not self.outbox.unsend(binding):
            return
        binding.reason = reason
        self._step(binding, "failed", now)

    # ------------------------------------------------------------------------------------------------------- starting

    def start(
        self,
        pending: QueuedPod,
        placement: Placement,
        profile: Profile,
        now: float,
        gang: Gang[Binding] | None,
    ) -> None:
        """The decision is made and counts: write it. The bindings of a gang are moved on with ``due`` when all are started."""
        binding = Binding(pending, placement, profile, now, gang)
        if gang is not None:
            gang.join(binding.uid, binding)
            self.bindings.remind(binding, now)
        pod = pending.pod
        self.bindings.add(binding)
        if placement.open or placement.pinned:
            for claim, result in zip(placement.open, placement.results):
                self._claims.allocate(claim, result, pod, now)
                if self._waits and conditions.has_any(result):
                    binding.conditional |= {claim.key}
            for claim in placement.pinned:
                self._claims.reserve(claim, pod)
            for claim in (*placement.open, *placement.pinned):
                self.bindings.follow(binding, claim.key)
        if placement.volumes or placement.provisioned:
            self._bind_volumes(binding, placement, now)
        if binding.special is not None and placement.leftover is not None:
            self._adopt(binding, placement.leftover, now)
        elif binding.special is not None:
            binding.stage = "creating"
            self._claims.hold_unmade(binding.special)
            binding.creation = creation(binding.special, pod)
            self.outbox.send(binding.creation)
        if gang is None:
            self._advance(binding, now)

    # ---------------------------------------------------------------------------------------------------------- volumes

    def _bind_volumes(self, binding: Binding, placement: Placement, now: float) -> None:
        """Tell whoever binds or makes volumes which node was chosen, and wait until they did."""
        chosen: Chosen = tuple((claim.key, volume.metadata.name) for claim, volume in placement.volumes)
        self._volumes.take(binding.uid, chosen)
        binding.volumes = [*(claim for claim, _ in placement.volumes), *placement.provisioned]
        for claim in binding.volumes:
            self.bindings.follow_volume(binding, claim.key)
        for claim, volume in placement.volumes:
            if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
                self.outbox.send(binds_volume(claim, volume, binding.key))
        for claim in placement.provisioned:
            self.outbox.send(binds_volume(claim, binding.node, binding.key))
        if placement.provisioned:
            self.outbox.nominate(binding)
        self.bindings.remind(binding, now + binding.profile.volume_timeout)

    def volume_changed(self, key: str, now: float) -> None:
        claim: PersistentVolumeClaim | None = self._world.get(PERSISTENT_VOLUME_CLAIMS, key)
        for binding in self.bindings.with_volume(key):
            if key not in binding.unbound:
                continue
            if claim is None:
                self._fail(binding, Reason("VolumeClaimMissing", f"pod/{binding.key}", {"claim": key}), now)
            elif bound(claim) and not reaches(self._world, claim, binding.node):
                # It got another volume than was chosen.
                self._fail(binding, None, now)
            elif bound(claim):
                binding.unbound -= {key}
                self._advance(binding, now)

    # ------------------------------------------------------------------------------------------------------ progress

    def settled(self, news: list[Settled], now: float) -> None:
        """What became of claims that pods here wait for."""
        for uid, key, lost, error in news:
            binding = self.bindings.get(uid)
            if binding is None or key not in binding.awaiting:
                continue
            binding.awaiting -= {key}
            if lost:
                self._fail(binding, write_failed(error) or Reason("ClaimLost", f"claim/{key}"), now)
            else:
                self._advance(binding, now)

    def claim_changed(self, key: str, now: float) -> None:
        for binding in self.bindings.with_claim(key):
            if binding.stage != "binding":
                self._go_on(binding, now)
            elif binding.held and self.outbox.unsend(binding):
                if binding.doubtful:
                    # It may have come true before: it is sent again whatever conditions say.
                    self._advance(binding, now)
                elif not self._check_conditions(binding, now):
                    # Ready a moment ago, and not any more: its claims stay allocated, and are waited for again.
                    self._fail(binding, None, now)

    def taints_changed(self, now: float) -> None:
        """Some device has a taint that evicts: nobody waits to be bound to it."""
        for binding in self.bindings if self._waiting else ():
            if binding.stage == "conditions":
                self._check_conditions(binding, now)
            elif binding.stage == "claims" and binding.ready_since is not None:
                self._leaves(binding, now)

    def pod_changed(self, binding: Binding, pod: Pod, now: float) -> None:
        binding.pending.pod = pod
        self._go_on(binding, now)

    def due(self, now: float) -> None:
        while (binding := self.bindings.pop_due(now)) is not None:
            if binding.unbound and now - binding.since >= binding.profile.volume_timeout:
                self._fail(binding, Reason("VolumeClaimUnbound", f"pod/{binding.key}", {"node": binding.node}), now)
            else:
                self._go_on(binding, now)

    def _go_on(self, binding: Binding, now: float) -> None:
        if binding.stage == "conditions":
            self._check_conditions(binding, now)
        else:
            self._advance(binding, now)

    def _advance(self, binding: Binding, now: float) -> None:
        """Go on if nothing is awaited: everything that was written must be there still, and be this pod's."""
        if binding.awaiting or binding.unbound or binding.stage not in ("claims", "binding") or binding.writing is not None:
            return
        claims: list[ResourceClaim] = []
        for key in binding.claims:
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is None or not usable(self._world, claim, binding.node, binding.uid):
                self._fail(binding, Reason("ClaimLost", f"claim/{key}"), now)
                return
            claims.append(claim)
        if binding.conditional and binding.stage == "claims" and not self._kept(binding, claims, now):
            return
        if claims and binding.stage == "claims" and self._waits and any(conditions.waits(claim) for claim in claims):
            binding.held = {claim.key: claim for claim in claims}
            self._step(binding, "devices awaited", now)
            return
        self._ready(binding, now)

    def _kept(self, binding: Binding, claims: list[ResourceClaim], now: float) -> bool:
        """Whether the API server keeps the conditions of devices that must be waited for. One that drops them would have the
        pod bound to a device that is not there."""
        dropped = [claim for claim in claims if claim.key in binding.conditional and not conditions.waits(claim)]
        for claim in dropped:
            self._claims.deallocate(claim)
        if dropped:
            self._fail(binding, Reason("ConditionsDropped", f"claim/{dropped[0].key}"), now)
        return not dropped

    def _ready(self, binding: Binding, now: float) -> None:
        """It is bound once its status names its claim; a member of a gang together with all others."""
        if binding.gang is not None:
            binding.ready_since = binding.ready_since or now
            self._bind_together(binding.gang.ready(binding.uid), now)
        elif self._mapped(binding):
            binding.ready_since = binding.ready_since or now
            self._come(binding, now)

    def _bind_together(self, members: list[Binding], now: float) -> None:
        """When the status of each names its claim, which no server lets go of, and which the last of them could still come to
        nothing before; in their order where they come to the same kubelet: who comes after one that must wait waits too."""
        if any(each.mapping is not None for each in members):
            return  # It goes on with the answer for the last of them.
        if any(each.stage != "binding" and self._leaves(each, now) for each in members):
            return
        untold = [each for each in members if not self._mapped(each)]
        if untold:
            return
        for each in members:
            if each.gang is not None:
                each.gang.release()
        mates = (mate for each in members[:1] if each.gang is not None for mate in each.gang.before(each.uid))
        held_up = {mate.node for mate in mates if mate.stage != "binding"}
        for each in members:
            if self.bindings.get(each.uid) is not each:
                continue  # One of them could not be bound, and ended the others.
            if each.node in held_up or self.overtakes(each.uid):
                self.bindings.remind(each, now + TURN_AFTER)
            elif not self._come(each, now):
                held_up.add(each.node)

    def _come(self, binding: Binding, now: float) -> bool:
        """It is bound, unless others came to its kubelet while it waited and left it no zones, or its device must be left; or it
        is its turn only later."""
        if binding.stage != "binding" and self._leaves(binding, now):
            return True
        # A bind without an answer may have come true: it is sent again as it was.
        verdict, notes = self.arrival(binding.uid) if binding.stage != "binding" else ("comes", {})
        if verdict == "waits":
            self.bindings.remind(binding, now + TURN_AFTER)
        elif verdict == "refused":
            self._fail(binding, Reason("ZonesLost", f"node/{binding.node}"), now)
        else:
            binding.notes = {**binding.notes, **notes} if notes else binding.notes
            self._step(binding, "ready", now)
        return verdict != "waits"

    # ---------------------------------------------------------------------------------------------- binding conditions

    def _wait(self, binding: Binding, now: float) -> None:
        self._waiting += 1
        binding.waited = now
        if self._check_conditions(binding, now):
            return
        note = f"waiting for binding conditions for device on node {binding.node}"
        self.outbox.tell(binding, now, "BindingConditionsPending", note, "Scheduling")
        for each in binding.gang.under_way if binding.gang is not None else (binding,):
            self.outbox.nominate(each)

    def _check_conditions(self, binding: Binding, now: float) -> bool:
        """Whether the wait is over, one way or the other."""
        assert binding.waited is not None
        claims = [claim for held in binding.held.values() if (claim := still(self._world, held, binding.uid)) is not None]
        if len(claims) < len(binding.held):
            lost = next(key for key in binding.held if key not in {claim.key for claim in claims})
            self._fail(binding, Reason("ClaimLost", f"claim/{lost}"), now)
            return True
        dues = [conditions.deadline(claim, binding.profile.binding_timeout, binding.waited) for claim in claims]
        verdicts = [conditions.judge(claim, now, due) for claim, due in zip(claims, dues)]
        ended = [(claim, verdict) for claim, verdict in zip(claims, verdicts) if verdict.readiness in ("failed", "timeout")]
        if ended:
            self._not_ready(binding, ended, now)
            return True
        if self._leaves(binding, now):
            return True
        if all(verdict.readiness == "ready" for verdict in verdicts):
            self._ready(binding, now)
            return True
        binding.ready_since = None
        if binding.gang is not None:
            binding.gang.not_ready(binding.uid)
        due = min(due for due, verdict in zip(dues, verdicts) if verdict.readiness == "pending")
        if due != binding.due:
            binding.due = due
            self.bindings.remind(binding, due)
        return False

    def _leaves(self, binding: Binding, now: float) -> bool:
        """Whether a pod with one of its claims would be evicted as soon as it is bound. Then it is decided on again instead."""
        claims: list[ResourceClaim] = [
            found for key in binding.claims if (found := self._world.get(RESOURCE_CLAIMS, key)) is not None
        ]
        leave = [(claim, reason) for claim in claims if (reason := must_be_left(self._inventory, claim, now)) is not None]
        if leave:
            self._end_wait(binding, [claim for claim, _ in leave], leave[0][1], now)
        return bool(leave)

    def _not_ready(self, binding: Binding, ended: list[tuple[ResourceClaim, Verdict]], now: float) -> None:
        """Some claims failed or ran out of time."""
        claim, worst = min(ended, key=lambda found: found[1].readiness != "failed")
        for _, verdict in ended:
            for device in verdict.devices:
                self._rests.rest(device, now)
        reason = conditions.reason_for(claim, worst, binding.profile.binding_timeout, binding.node)
        self._end_wait(binding, [bad for bad, _ in ended], reason, now)

    def _end_wait(self, binding: Binding, bad: list[ResourceClaim], reason: Reason, now: float) -> None:
        """These claims are cleared, unless a pod starts with them; what is ready, or on its way to be, stays where it is, so
        that the pod finds it again on the same node."""
        for claim in bad:
            if not runs_with(claim, self._nodes) and not self.bindings.binds_with(claim, binding.uid):
                self._claims.deallocate(claim)
        binding.reason, binding.keeps = reason, binding.node
        self._step(binding, "failed", now)

    # --------------------------------------------------------------------------------------------------------- the bind

    def _bind(self, binding: Binding, now: float) -> None:
        metadata, uid = binding.pending.pod.metadata, binding.uid
        about: dict[str, Any] = {"name": metadata.name, "namespace": metadata.namespace, "uid": uid}
        if binding.notes:
            # The API server copies them to the pod, in the same write.
            about["annotations"] = binding.notes
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": {"kind": "Node", "name": binding.node}}
        begun = bool(binding.claims or binding.volumes)
        binding.writing = Write(
            "create", PODS, metadata.namespace, metadata.name, body, "binding", uid=uid, about=binding.key, goes_on=begun
        )
        self.outbox.send(binding.writing)

    def _bind_ended(self, binding: Binding, error: ClusterError | None, now: float) -> None:
        if error is None:
            self._step(binding, "bound", now)
        elif error.in_doubt or isinstance(error, Conflict | NotFound):
            # It may be bound, or gone: the watch will tell. Until then it keeps its place, and binding again does no harm.
            binding.doubtful = True
            self.bindings.remind(binding, now + pause_after(binding.failures))
            binding.failures += isinstance(error, Refused) and error.in_doubt
        else:
            self._fail(binding, write_failed(error), now)

    def _bound(self, binding: Binding, now: float) -> None:
        because = f": {binding.because}" if binding.because else ""
        self.outbox.tell(binding, now, "Scheduled", f"Successfully assigned {binding.key} to {binding.node}{because}", "Binding")
        self._remove(binding)
        if binding.gang is not None:
            self._bind_together(binding.gang.placed(binding.uid), now)
        if binding.special is not None:
            self._claims.keep_only(binding.pod, binding.special.name)
        self.outbox.ended.append(Ended(binding.pending, True, node=binding.node))

    # ---------------------------------------------------------------------------------------- claims that are made here

    def _create_ended(self, binding: Binding, outcome: Outcome, now: float) -> None:
        result = "success" if outcome.ok else "failure"
        self._measures.created(result)
        if outcome.object is None or outcome.error is not None:
            # Also when there was no answer: a claim that was made all the same is found by its owner and annotation.
            self._fail(
                binding,
                Reason("WriteFailed", f"pod/{binding.key}", {"error": outcome.steady(str(outcome.error))[:TOLD_MAX]}),
                now,
            )
            return
        self._adopt(binding, decode(ResourceClaim, outcome.object), now)
        self._step(binding, "claim made", now)

    def _adopt(self, binding: Binding, claim: ResourceClaim, now: float) -> None:
        """The claim for extended resources exists: allocate it and tell the pod's status, both at once. Where anything is waited
        for the status is told last: no server lets go of the name of a claim, and the wait may fail."""
        assert binding.special is not None
        self._claims.adopt(binding.special, claim, binding.pod, now)
        self.bindings.follow(binding, claim.key)
        if self._waits and conditions.has_any(binding.special.allocation):
            binding.conditional |= {claim.key}
        if not self._must_wait(binding):
            self._mapped(binding)

    def _must_wait(self, binding: Binding) -> bool:
        """Whether more than writes is between the pod and its bind: devices, its own or of a claim of others, volumes, a gang."""
        if binding.conditional or binding.unbound or binding.gang is not None:
            return True
        claims = (self._world.get(RESOURCE_CLAIMS, key) for key in binding.claims)
        return self._waits and any(claim is not None and conditions.waits(claim) for claim in claims)

    def _mapped(self, binding: Binding) -> bool:
        """Whether the pod's status names its claim, if it has one for extended resources; if not, that is written, on what the
        status is now, so that a write of an earlier attempt cannot come true later."""
        if binding.mapping is not None:
            return False
        pod = binding.pod
        if binding.special is None or binding.special.is_named_in(pod):
            return True
        version = pod.metadata.resource_version
        status = {"extendedResourceClaimStatus": binding.special.status()}
        binding.mapping = pod_status(pod, status, version, goes_on=True)
        self.outbox.send(binding.mapping)
        return False

    def _mapping_ended(self, binding: Binding, outcome: Outcome, now: float) -> None:
        binding.mapping = None
        if outcome.ok and outcome.object is not None:
            binding.pending.pod = with_answer(binding.pod, outcome.write.resource_version, outcome.object)
            self._go_on(binding, now)
        elif isinstance(outcome.error, Conflict):
            # The pod is another by now: it is written again when the watch tells that, or after a while.
            current: Pod | None = self._world.get(PODS, binding.key)
            if current is not None and current.metadata.resource_version != outcome.write.resource_version:
                self.pod_changed(binding, current, now)
            else:
                self.bindings.remind(binding, now + RETRY_AFTER)
        elif (binding.stage == "conditions" or binding.gang is not None) and outcome.error is not None and outcome.error.in_doubt:
            # What took so long to make ready, or to come together, is not given up for want of an answer.
            self.bindings.remind(binding, now + pause_after(binding.failures))
            binding.failures += 1
        else:
            self._fail(binding, write_failed(outcome.error), now)

    def _orphaned(self, outcome: Outcome, binding: Binding | None) -> None:
        """An answer for a pod that is gone, or is decided on anew: a claim that was made for it is deleted again, unless the
        watch was faster and the pod is to have it after all."""
        write = outcome.write
        if write.kind is RESOURCE_CLAIMS and write.verb == "create" and outcome.object is not None:
            made = decode(ResourceClaim, outcome.object)
            if binding is None or made.key not in binding.claims:
                self._claims.delete(made, write.about)

    # --------------------------------------------------------------------------------------------------------- outcomes

    def observe(self, outcome: Outcome, now: float) -> None:
        write = outcome.write
        binding = self.bindings.get(write.uid) if write.kind is PODS else self.bindings.of_pod(write.about)
        if binding is None or (write.kind is RESOURCE_CLAIMS and write is not binding.creation):
            self._orphaned(outcome, binding)
        elif write is binding.writing:
            binding.writing = None
            self._bind_ended(binding, outcome.error, now)
        elif write is binding.mapping:
            self._mapping_ended(binding, outcome, now)
        elif write is binding.creation:
            self._create_ended(binding, outcome, now)
        elif write.kind in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS) and outcome.error is not None and binding.unbound:
            self._fail(binding, write_failed(outcome.error), now)

    def node_gone(self, name: str, now: float) -> None:
        """Nothing is waited for on a node that is no more. A bind that is under way is the watch's to tell of."""
        for binding in self.bindings.on_node(name):
            if binding.stage != "binding":
                self._fail(binding, None, now)

    def pod_gone(self, uid: str, now: float) -> None:
        """The pod was deleted or finished on its way. Devices that were being made ready for it alone are freed at once."""
        binding = self.bindings.get(uid)
        if binding is not None:
            self._step(binding, "pod gone", now)

    def part(self, uids: Sequence[str], now: float) -> None:
        """None of these is about to start. Each goes by itself then; the others of their gangs do not start either."""
        going = [binding for uid in uids if (binding := self.bindings.get(uid)) is not None and binding.gang is not None]
        for binding in going:
            others = list(binding.gang.lost(binding.uid)) if binding.gang is not None else []
            for each in others:
                if each not in going:
                    self._fail(each, Reason("GangMemberFailed", f"pod/{each.key}", {"member": binding.key}), now)
            binding.gang = None

    def pod_placed(self, pod: Pod, now: float) -> None:
        """The API shows the pod on a node, whether or not the answer to our write has come."""
        binding = self.bindings.get(pod.metadata.uid)
        if binding is not None:
            ours = binding.node == pod.spec.node_name and binding.stage == "binding"
            self._step(binding, "bound" if ours else "placed by others", now)

    # -------------------------------------------------------------------------------------------------------- endings

    def _give_up(self, binding: Binding, now: float) -> None:
        self._take_back(binding, gone=False)
        self.outbox.ended.append(Ended(binding.pending, False, binding.reason, binding.keeps))
        self._lost(binding, now)

    def _withdraw(self, binding: Binding, now: float) -> None:
        self._take_back(binding, gone=True)
        self._lost(binding, now)

    def _lost(self, binding: Binding, now: float) -> None:
        """Without this one the others of its gang do not start either."""
        for each in binding.gang.lost(binding.uid) if binding.gang is not None else ():
            reason = Reason("GangMemberFailed", f"pod/{each.key}", {"member": binding.key})
            self._fail(each, reason, now)

    def _leave_alone(self, binding: Binding, now: float) -> None:
        """Someone else placed the pod: its claims stay as they are, and the others of its gang wait for it no more."""
        self._remove(binding)
        for key in binding.claims:
            self._claims.let_go(key, binding.uid)
        if binding.special is not None and not binding.special.name:
            self._claims.drop_unmade(binding.special)
        if binding.gang is not None:
            self._bind_together(binding.gang.placed(binding.uid), now)

    def _take_back(self, binding: Binding, *, gone: bool) -> None:
        uid, special = binding.uid, binding.special
        self._remove(binding)
        for key in binding.claims:
            if not self._claims.intents.clearing(key) and (special is None or key != special.claim.key):
                self._claims.unreserve(key, uid, gone=gone)
        if special is None:
            return
        if special.name:
            # The API server keeps the name in the pod's status until another one is written there.
            self._claims.delete(special.claim, binding.key)
        else:
            self._claims.drop_unmade(special)

    def _remove(self, binding: Binding) -> None:
        self.bindings.remove(binding)
        self._volumes.give_back(binding.uid)
