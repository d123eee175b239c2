"""Why a pod is where it is, or why it is nowhere: the scheduler's own checks, asked of every node, told from top to bottom.

The verdict is one of: ``bound`` (it has a node), ``waiting`` (something is under way and ends by itself), ``unschedulable`` (not
now: what is in use stands against it) and ``impossible`` (not even with every other pod gone: the pod, the claim or the cluster
must change). Nothing is changed by asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api import disruption
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import (
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from dray.api.reason import Reason
from dray.api.resource import DeviceKey, ResourceClaim, ResourceClaimStatus
from dray.api.times import format_time
from dray.api.words import Counted, counted, fixes, in_upstream_words, message, words
from dray.cluster.world import World
from dray.explain import awaited as awaiting
from dray.explain import missing, tainted, volumes
from dray.explain.advice import Advisor, Refused, is_tried
from dray.explain.answer import NEVER, PASSING, VerdictName, Why, as_it_stands, sentence
from dray.explain.awaited import Awaited
from dray.explain.choice import Choice, choice
from dray.explain.claimed import claims_in
from dray.explain.evicting import WouldEvict, would_evict
from dray.explain.failures import FailedBinding, lacked_right, of_condition, refusal_of, resting, switched_off
from dray.explain.fix import Fix, tied, untied
from dray.explain.in_queue import in_queue, is_read
from dray.explain.nearest import NodeAnswer, distance, nearest
from dray.explain.queued import Outlook, Outlooks
from dray.explain.snapshot import without_collecting
from dray.explain.supposed import added
from dray.explain.unheeded import unheeded
from dray.explain.zones import refused_for_zones, where, without_guarantee, without_zones
from dray.nodes.attaching import attachment
from dray.scheduling.actions.preemption import Eviction
from dray.scheduling.actions.preemptor import preempting
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.shape.extended import is_special, owner_uid
from dray.scheduling.telling.reports import FOR_PRIORITY
from dray.scheduling.waiting import pauses

# Reasons that name an object which is not there: its kind, and where its name is.
_NOTHING: Final[Mapping[Kind, str]] = {}
_MOST_ADVICE: Final = 6


@without_collecting()
def why(
    world: World,
    pod: Pod,
    *,
    now: float,
    config: Config | None = None,
    gates: Gates | None = None,
    failures: Sequence[FailedBinding] = (),
    unknown: Mapping[Kind, str] = _NOTHING,
    outlooks: Outlooks | None = None,
) -> Why:
    """The answer for one pod of the world. ``config``: the scheduler's, where it is known; ``failures``: from events;
    ``unknown``: kinds that could not be read, and why: their objects are not called missing; ``outlooks``: where many are asked
    about, what comes of those of queues."""
    known = gates or Gates.dray()
    # Schedulers may have other features than the API server, and tell where that matters.
    told = dict.fromkeys([] if pod.spec.node_name else switched_off(pod), False)
    there = known.updated(told)
    answer = _why(world, pod, now, config, there, failures, unknown, outlooks)
    if off := {name for reason in answer.reasons for name in _off(reason)}:
        then = known.updated(told | dict.fromkeys(off, True))
        on = _why(world, pod, now, config, then, failures, unknown, outlooks)
        _switch_on(answer, sorted(off), on.fits, "its scheduler" if all(map(known, off)) else "the API server and its scheduler")
    answer.notes += [*without_guarantee(world, pod), *without_zones(pod, unknown)]
    if not any(reason.code == "PodSaysUnreadable" for reason in answer.reasons):
        answer.notes += unheeded(world, pod, unknown)
    return answer


def _off(reason: Reason) -> Sequence[str]:
    """The features that are off and stand against it."""
    named: Sequence[str] = reason.data.get("features", ())
    return [str(reason.data["feature"])] if reason.code == "FeatureOff" else named


def _switch_on(answer: Why, features: Sequence[str], fits: Sequence[str], whom: str) -> None:
    """What comes before anybody is sent away: a feature that is off and keeps devices from the pod."""
    if fits:
        switches = ",".join(f"{name}=true" for name in features)
        answer.advice.insert(0, Fix(f"start {whom} with --feature-gates {switches}", nodes=list(fits[:1])))
        answer.fixes.insert(0, answer.advice[0].told)


def _why(
    world: World,
    pod: Pod,
    now: float,
    config: Config | None,
    gates: Gates,
    failures: Sequence[FailedBinding],
    unknown: Mapping[Kind, str],
    outlooks: Outlooks | None,
) -> Why:
    outlooks = outlooks or Outlooks(world, now, config, gates, failures)
    if pod.spec.node_name:
        failed = pod.status.phase == "Failed" and pod.status.reason
        answer = _failed(pod) if failed else _bound(world, pod, tainted.leaving(world, pod, gates, now))
        answer.notes = refused_for_zones(world, pod, now, config, gates)
        if not pod.terminal and not pod.metadata.deletion_timestamp:
            without = missing.undelivered(world, pod, gates)
            answer.notes += [*without, *outlooks.notes(pod)]
            # Nobody chose devices for a pod that runs without those that it asks for.
            answer.choice = None if without else _placed_again(world, pod, now, config, gates)
        return answer
    if pod.terminal or pod.metadata.deletion_timestamp:
        ended = f"has ended ({pod.status.phase})" if pod.terminal else "is being deleted"
        return Why(pod.key, "impossible", f"pod {pod.key} {ended} and will not be scheduled.", [])
    question = _Question(world, pod, now, config, gates, failures, unknown)
    answer = question.answer()
    found = outlooks.of(pod) if not answer.awaited else None
    if found is not None:
        if (untold := question.depends_on_unread(found)) is not None:
            return untold
        never = outlooks.never(pod) if is_read((pod, *found.others), unknown) else None
        answer = in_queue(world, answer, pod, found, never, outlooks)
        if answer.fits and (late := question.waits_for(found.others)) is not None:
            late.queued = answer.queued
            return late
        if answer.fits and not answer.reasons:
            question.tell_of_failure(answer, found.others)
    elif (answer.fits or answer.verdict == "unschedulable") and (untold_of := missing.unread_of_queues(pod, unknown)):
        return question.refused(untold_of)
    answer.notes = [*answer.notes, *outlooks.notes(pod)]
    return _unless_paused(answer, pod, now)


def _unless_paused(answer: Why, pod: Pod, now: float) -> Why:
    """Others left for it in vain: for a while nobody does, whoever could."""
    pause = pauses.told(pod)
    if pause is None or pause.until <= now or answer.verdict != "unschedulable":
        return answer
    reason = pause.reason(pod)
    answer.reasons, answer.evicts = [*answer.reasons, reason], None
    answer.summary = f"{answer.summary.rstrip('.')}; {words(reason)}."
    answer.fixes = [*dict.fromkeys((*fixes([(reason, 0)]), *answer.fixes))]
    return answer


def _failed(pod: Pod) -> Why:
    """What its kubelet said; what it was to have is nobody's by now."""
    said = f"{pod.status.reason}: {pod.status.message.rstrip('.')}" if pod.status.message else pod.status.reason
    again = "It stays as it is: whoever made it makes another one"
    return Why(pod.key, "bound", f"pod {pod.key} was on node {pod.spec.node_name} and failed: {said}. {again}.", [])


def _bound(world: World, pod: Pod, leaving: str) -> Why:
    devices = [
        str(DeviceKey.of(result))
        for claim in claims_in(world, pod)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    ]
    held = f" with {', '.join(devices)}" if devices else ""
    zones = f", in {found}" if (found := where(pod)) else ""
    phase = f" ({pod.status.phase})" if pod.status.phase else ""
    summary = f"pod {pod.key} is on node {pod.spec.node_name}{phase}{held}{zones}"
    return Why(pod.key, "bound", f"{summary}{_preempted(world, pod)}{leaving}.", [])


def _preempted(world: World, pod: Pod) -> str:
    """That the pod has to leave, and why: for others, and for whom as far as that shows, or as its scheduler said."""
    marked = [c for c in pod.status.conditions if c.type == disruption.TARGET and c.reason == "PreemptionByScheduler"]
    if not marked or pod.terminal:
        return ""
    said = (marked[0].message or "").partition(": ")[2]
    if said and said != FOR_PRIORITY:
        return f", and has to leave: {said}"
    others: list[Pod] = [
        other
        for other in world.all(PODS).values()
        if other.status.nominated_node_name == pod.spec.node_name and not other.spec.node_name
    ]
    above = sorted(other.key for other in others if (other.spec.priority or 0) > (pod.spec.priority or 0))
    return f", and is being preempted: it makes room for {' and '.join(above) or 'a pod of higher priority'}"


def _placed_again(world: World, pod: Pod, now: float, config: Config | None, gates: Gates) -> Choice | None:
    """What would be decided for a pod that has a node, if it had none and no claims but those that others use too."""
    own = {claim.uid for claim in claims_in(world, pod) if {user.uid for user in claim.status.reserved_for} <= {pod.uid}}

    def before(claim: ResourceClaim) -> ResourceClaim | None:
        if claim.uid not in own:
            return claim
        return None if is_special(claim) else msgspec.structs.replace(claim, status=ResourceClaimStatus())

    placed, node = pod, pod.spec.node_name
    status = msgspec.structs.replace(pod.status, nominated_node_name="")
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)
    pods = (pod if each is placed else each for each in world.all(PODS).values())
    claims = (found for claim in world.all(RESOURCE_CLAIMS).values() if (found := before(claim)) is not None)
    question = _Question(_world_with(world, pods, claims), pod, now, config, gates, ())
    return question.choice(node)


def _world_with(world: World, pods: Iterable[Pod], claims: Iterable[ResourceClaim]) -> World:
    """Another world with these pods and claims, and everything else as it is."""
    objects: dict[Kind, Mapping[str, Any]] = {kind: world.all(kind) if kind in world.kinds else {} for kind in KINDS}
    objects[PODS] = {pod.key: pod for pod in pods}
    objects[RESOURCE_CLAIMS] = {claim.key: claim for claim in claims}
    return World.of(objects)


class _Alone(NamedTuple):
    """A cluster with nobody else in it: what its nodes say, and which of them would do."""

    ask: Ask
    state: CycleState
    nodes: list[NodeAnswer]
    fits: list[str]


class _Question:
    """One pod, asked of a scheduler that was told everything and decides nothing."""

    def __init__(
        self,
        world: World,
        pod: Pod,
        now: float,
        config: Config | None,
        gates: Gates,
        failures: Sequence[FailedBinding],
        unknown: Mapping[Kind, str] = _NOTHING,
    ) -> None:
        self._world, self._pod, self._now, self._gates, self._unknown = world, pod, now, gates, unknown
        name = pod.spec.scheduler_name or "default-scheduler"
        known = config.by_name if config is not None else {}
        self._profile = known.get(name) or _as_told(world, name, failures)
        self._config = Config(profiles=(self._profile,))
        self._scheduler = Scheduler(world, self._config, gates)
        self._ask = Ask(self._scheduler, now, self._profile)
        self._failures = failures
        self._longest_back_off = (config or self._config).max_backoff
        self._resting = dict(resting(failures, (config or self._config).device_rest, now))
        self._ask.count_rests(self._resting)

    def answer(self) -> Why:
        awaited = list(self._awaited(self._pod))
        if awaited:
            return self._waits(awaited)
        try:
            state = self._ask.state(self._pod)
        except NotPlaced as refused:
            return self.refused([self._of_template(reason) for reason, _ in refused.refusal.reasons])
        if state.unusable:
            return self.refused([reason for _, reason in state.unusable])
        self._ask.count_promises((self._pod.uid,), state.demand.priority)
        nodes = self._nodes(self._ask, state)
        if not nodes:
            return self.refused([Reason("NoNodes", "")])
        fits = [node.node for node in nodes if not node.reasons]
        if fits and (wrong := self._ask.broken(state)):
            return self.refused(wrong)
        if fits:
            answer = self._fits(fits, nodes)
            answer.choice = choice(self._scheduler, state, fits)
            return answer
        leaving = self._ask.leaving(state)
        if leaving is not None:
            return self._made_room(leaving, nodes)
        rests = self._rests(nodes)
        awake = self._awake(state) if rests else ""
        return self._rested(rests, nodes, awake) if awake else self._nowhere(state, nodes)

    def waits_for(self, others: Iterable[Pod]) -> Why | None:
        """The answer where it is bound together with others, and devices of theirs are not ready."""
        late = {other.key: found for other in others if (found := list(self._awaited(other)))}
        return self._waits([each for found in late.values() for each in found], sorted(late)) if late else None

    def tell_of_failure(self, answer: Why, others: Iterable[Pod]) -> None:
        """None of a gang is bound if one of its pods cannot be: then the answer says which, and why."""
        keys = {other.key for other in others}
        failed = next((found for found in reversed(self._failures) if found.pod in keys), None)
        if failed is not None:
            reason = Reason("GangMemberFailed", f"pod/{self._pod.key}", {"member": failed.pod})
            answer.reasons = [reason, failed.reason]
            answer.summary = f"{answer.summary} The last attempt: {words(reason)}: {failed.message}."
            answer.fixes += fixes([(failed.reason, 0)])

    def choice(self, placed: str) -> Choice | None:
        """The nodes that would do, compared; None where the pod cannot be asked about."""
        try:
            state = self._ask.state(self._pod)
        except NotPlaced:
            return None
        fits = [node.node for node in self._nodes(self._ask, state) if not node.reasons]
        return choice(self._scheduler, state, fits, placed)

    def _nodes(self, ask: Ask, state: CycleState) -> list[NodeAnswer]:
        return [NodeAnswer(found.node, found.reasons, found.devices) for found in ask.answers(state)]

    # ------------------------------------------------------------------------------------------------------ answers

    def _waits(self, found: list[Awaited], others: Sequence[str] = ()) -> Why:
        reasons = awaiting.reasons(found)
        summary = awaiting.summary(self._pod, found, self._failures, self._now, others)
        more = awaiting.more_help(self._world, found, self._failures, self._now)
        help_ = [*fixes([(reason, 0) for reason in reasons]), *more]
        notes = awaiting.withdrawn(self._world, found)
        return Why(self._pod.key, "waiting", summary, reasons, awaited=found, fixes=help_, notes=notes)

    def depends_on_unread(self, found: Outlook) -> Why | None:
        """Where its queue, its pod group or their topology is of a kind that could not be read: nobody knows what they say."""
        told = [reason for reason, _ in found.refusal.reasons] if found.refusal is not None else []
        unread = [reason for reason in told if missing.unless_unread(reason, self._pod, self._unknown) is not reason]
        answer = self.refused(unread) if unread else None
        if answer is not None:
            answer.queued = found.place
        return answer

    def refused(self, reasons: list[Reason]) -> Why:
        """What concerns the pod, whatever the node."""
        reasons = [missing.unless_unread(reason, self._pod, self._unknown) for reason in reasons]
        counts: list[Counted] = [(reason, 0) for reason in reasons]
        codes = {reason.code for reason in reasons}
        if "NotRead" in codes:
            summary = f"whether pod {self._pod.key} can be scheduled cannot be told: {message(counts, 0)}"
            return Why(self._pod.key, "unschedulable", summary, reasons, fixes=fixes(counts))
        if codes <= PASSING or codes == {"SchedulingGated"}:
            verdict: VerdictName = "waiting"
        else:
            verdict = "impossible" if codes & NEVER else "unschedulable"
        told = message(counts, 0)
        summary = as_it_stands(self._pod, told) if verdict == "impossible" else sentence(self._pod, verdict, told)
        said = in_upstream_words(counts, 0)
        advice = missing.advice(self._world, self._pod, reasons)
        advice += tainted.advice(self._world, self._scheduler.engine.inventory, reasons)
        helps = [fix.told for fix in advice] or fixes(counts)
        return Why(self._pod.key, verdict, summary, reasons, fixes=helps, advice=advice, upstream=said)

    def _of_template(self, reason: Reason) -> Reason:
        """A claim that is not generated yet never will be where there is no template."""
        template = str(reason.data.get("template") or "")
        known = RESOURCE_CLAIM_TEMPLATES in self._world.kinds and RESOURCE_CLAIM_TEMPLATES not in self._unknown
        if reason.code != "ClaimNotCreated" or not template or not known:
            return reason
        there = self._world.get(RESOURCE_CLAIM_TEMPLATES, f"{self._pod.metadata.namespace}/{template}")
        return reason if there is not None else Reason("TemplateMissing", reason.object, reason.data)

    def _fits(self, fits: list[str], nodes: list[NodeAnswer]) -> Why:
        named = ", ".join(fits[:3]) + (f" and {len(fits) - 3} more" if len(fits) > 3 else "")
        by = self._profile.scheduler_name
        summary = f"pod {self._pod.key} fits on {named}; scheduler {by} has not placed it yet."
        refused = [node for node in nodes if node.reasons]
        if making := volumes.being_made(self._world, self._pod):
            said = volumes.summary(self._pod, making)
            return Why(self._pod.key, "waiting", said, [], refused, volumes.help_with(making), fits)
        help_ = [f"make sure that a scheduler with the name {by} runs", "wait: it is next, or backs off after a failed attempt"]
        failed, told = self._last_failure(), refusal_of(self._pod)
        if failed is not None or told:
            help_.reverse()  # there is one that has looked at it
        if right := lacked_right(self._pod):
            help_ = [right]
        if failed is None:
            said = f" It was refused before: {told}" if told else ""
            return Why(self._pod.key, "waiting", f"{summary}{said}", [], refused, help_, fits)
        when = f" at {format_time(failed.at)}" if failed.at is not None else ""
        told = f"{summary} An attempt failed{when}: {failed.message}."
        return Why(self._pod.key, "waiting", told, [failed.reason], refused, [*help_, *fixes([(failed.reason, 0)])], fits)

    def _rested(self, resting: list[str], nodes: list[NodeAnswer], awake: str) -> Why:
        """Only devices stand against it that failed to bind a short while ago: a pod takes them as its last choice, and the one
        that they failed waits its back-off first."""
        reasons = [Reason("DeviceCoolingDown", f"device/{name}", {"until": format_time(self._resting[name])}) for name in resting]
        counts: list[Counted] = [(reason, 0) for reason in sorted(reasons, key=lambda reason: str(reason.data["until"]))]
        failed = self._last_failure()
        told = message(counts, 0)
        if failed is not None and (failed.at is None or self._now < failed.at + self._longest_back_off):
            told = f"{told} The last attempt: {failed.message}."
            return Why(self._pod.key, "waiting", sentence(self._pod, "waiting", told), reasons, nodes, fixes(counts, limit=2))
        answer = self._fits([awake], nodes)
        answer.summary = f"{answer.summary} There is no better choice: {told}"
        answer.reasons = reasons
        return answer

    def _made_room(self, leaving: Eviction, nodes: list[NodeAnswer]) -> Why:
        """Pods leave the node for which it is nominated, and what they leave is enough."""
        reason = preempting(self._pod, leaving.node, [placed.pod.key for placed in leaving.victims])
        counts: list[Counted] = [(reason, 0)]
        summary = sentence(self._pod, "waiting", message(counts, 0))
        return Why(self._pod.key, "waiting", summary, [reason], nodes, fixes(counts))

    def _nowhere(self, state: CycleState, nodes: list[NodeAnswer]) -> Why:
        if untold := missing.untold(self._pod, (node.reasons for node in nodes), self._unknown):
            return self.refused(untold)
        advice = missing.advice(self._world, self._pod, missing.nowhere(self._world, [node.reasons for node in nodes]))
        advice += [*self._attach(state), *Advisor(self._world, self._ask, state, _refused(nodes)).fixes()]
        alone = self._alone()
        possible = alone is None or bool(alone.fits)
        verdict: VerdictName = "unschedulable" if possible else "impossible"
        if alone is not None and not possible:
            then = Advisor(self._world, alone.ask, alone.state, _refused(alone.nodes), " when empty").fixes()
            advice += [fix for fix in then if not advice or not fix.nodes]
            # Where an empty cluster would not do either, what it lacks is told, and not what is in use besides.
            nodes = alone.nodes
        elif alone is not None and not tied(self._pod) and self._another_helps(alone):
            advice, like = advice[: _MOST_ADVICE - 1], alone.fits[0]
            changed = added(self._world, self._world.all(NODES)[like], 1)
            advice.append(Fix(f"add a node like {like}, which would do when empty", rank=6, changed=changed))
        nodes = sorted(nodes, key=distance)
        counts = counted({node.node: node.reasons for node in nodes})
        advice += [Fix(cure, rank=6, tried=False) for cure in fixes(found for found in counts if not is_tried(found[0]))]
        summary = sentence(self._pod, verdict, message(counts, len(nodes)))
        reasons = [reason for reason, _ in counts]
        advice = advice[:_MOST_ADVICE]
        told = [fix.told for fix in advice]
        said = in_upstream_words(counts, len(nodes))
        answer = Why(self._pod.key, verdict, summary, reasons, nodes, told, nearest=nearest(nodes), advice=advice, upstream=said)
        answer.evicts = self._evicts(state) if possible else None
        return answer

    def _another_helps(self, alone: _Alone) -> bool:
        """Whether one node more of the kind brings what is lacking: not where that is in use and of a pool that nodes share."""
        engine, node = self._scheduler.engine, alone.fits[0]
        info = alone.ask.scheduler.nodes.get(node)
        placement = alone.ask.on(alone.state, info) if info is not None else None
        shared = engine.inventory.shared_pools(node)
        return not isinstance(placement, Placement) or not any(
            engine.owners(DeviceKey.of(result))
            for _, allocation in placement.given
            for result in allocation.devices.results
            if (result.driver, result.pool) in shared
        )

    def _attach(self, state: CycleState) -> list[Fix]:
        """What a fabric could attach to a node that is there, so that it would do."""
        found = attachment(self._world, self._ask, state) if RESOURCE_SLICES in self._world.kinds else None
        if found is None:
            return []
        named = ", ".join(found.devices)
        what = f"device{'s' if len(found.devices) > 1 else ''} {named} of the fabric ({found.driver}) to node {found.node}"
        return [Fix(f"attach {what}", "dray fabric --autoscale", [found.node], rank=2)]

    def _evicts(self, state: CycleState) -> WouldEvict | None:
        eviction = self._ask.evicts(state)
        return would_evict(self._world, state, eviction) if eviction is not None else None

    # ------------------------------------------------------------------------------------------------------- asking

    def _rests(self, nodes: list[NodeAnswer]) -> list[str]:
        """The devices that the pod could have if they did not rest; each is told until when."""
        found: dict[str, None] = {}
        for device in (d for node in nodes if node.devices for request in node.devices.requests for d in request.devices):
            if device.reason is not None and device.reason.code == "DeviceCoolingDown" and device.device in self._resting:
                data = {"until": format_time(self._resting[device.device])}
                device.reason = Reason(device.reason.code, device.reason.object, data)
                found[device.device] = None
        return list(found)

    def _awake(self, state: CycleState) -> str:
        """The node that would do if no device rested, or nothing."""
        rests = self._scheduler.parts.rests
        with self._scheduler.parts.books.trial():
            rests.lift(rests.steps)
            placement = self._ask.would(state)
        return placement.node if placement is not None else ""

    def _last_failure(self) -> FailedBinding | None:
        return next((found for found in reversed(self._failures) if found.of(self._pod)), of_condition(self._pod))

    def _alone(self) -> _Alone | None:
        """The cluster without any other pod, its claims and any allocation; None where that says nothing, since a claim of the
        pod could not be allocated again as it is. Whom the pod must be near is not there either, and counts as everywhere."""
        named = set(claim_keys(self._pod))
        claims: Iterable[ResourceClaim] = self._world.all(RESOURCE_CLAIMS).values()
        own = (claim for claim in claims if claim.key in named or self._pod.uid in owner_uid(claim))
        free = [msgspec.structs.replace(claim, status=ResourceClaimStatus()) for claim in own]
        pod = untied(self._pod) if tied(self._pod) else self._pod
        scheduler = Scheduler(_world_with(self._world, [pod], free), self._config, self._gates)
        ask = Ask(scheduler, self._now, self._profile)
        try:
            state = ask.state(pod)
        except NotPlaced:
            return None
        nodes = self._nodes(ask, state)
        return _Alone(ask, state, nodes, [node.node for node in nodes if not node.reasons])

    def _awaited(self, pod: Pod) -> Iterator[Awaited]:
        for claim in claims_in(self._world, pod):
            if pod.uid in {user.uid for user in claim.status.reserved_for}:
                yield from awaiting.awaited(claim, self._profile.binding_timeout, self._now)


def _as_told(world: World, name: str, failures: Sequence[FailedBinding]) -> Profile:
    """Of a scheduler whose configuration is not given, what it said itself."""
    profile, timeout = Profile(scheduler_name=name), awaiting.timeout_of(world, name, failures)
    return profile if timeout is None else msgspec.structs.replace(profile, binding_timeout=timeout)


def _refused(nodes: Sequence[NodeAnswer]) -> Refused:
    return [(node.node, node.reasons, node.devices) for node in nodes if node.reasons]
