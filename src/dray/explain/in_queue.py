"""What the queue and the gang of a pod make of the answer that it would get alone: they decide.

Always true: of a pod that starts with others nothing is told that holds for it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dray.api.core import Pod
from dray.api.kinds import DEVICE_CLASSES, NODES, RESOURCE_SLICES, Kind
from dray.api.requests import pod_requests
from dray.api.words import Counted, fixes, message
from dray.cluster.world import World
from dray.explain import missing
from dray.explain.advice import is_tried
from dray.explain.answer import NEVER, VerdictName, Why, as_it_stands, sentence
from dray.explain.evicting import WouldEvict
from dray.explain.fix import Fix
from dray.explain.queue_advice import RAISED, in_order
from dray.explain.queued import Outlook, Outlooks
from dray.scheduling.actions.preemptor import preempting
from dray.scheduling.placing.refusal import Refusal

# Reasons for which something is to be done that is not always found out to help.
_DONE: Final = frozenset({*RAISED, "QueueBehind", "QueueOvertaking"})


def is_read(pods: Iterable[Pod], unknown: Mapping[Kind, str]) -> bool:
    """Whether it is known what an empty cluster has for these pods. Devices may also serve extended resources."""
    of_devices = {RESOURCE_SLICES, DEVICE_CLASSES} & unknown.keys()
    wants = (bool(pod.spec.resource_claims) or any("/" in name for name in pod_requests(pod.spec)) for pod in pods)
    return NODES not in unknown and not (of_devices and any(wants))


def in_queue(world: World, answer: Why, pod: Pod, found: Outlook, never: Refusal | None, outlooks: Outlooks) -> Why:
    """The answer for the pod alone, and what its queue and its gang make of it: they decide. ``never``: why its gang would not
    start on the empty cluster either, where that is so."""
    answer.queued, answer.evicts = found.place, None
    if found.evicts is not None:
        victims = [victim.pod for victim in found.evicts.victims]
        return _decided(answer, pod, "waiting", Refusal(((preempting(pod, found.node, victims, "MakingRoom"), 0),)), found.evicts)
    refusal = found.refusal
    if refusal is None or all(count and reason.code != "OutsideDomain" for reason, count in refusal.reasons):
        return answer
    if answer.verdict == "impossible" and (not refusal.nodes or found.step == 1):
        return _besides(answer, refusal)
    if found.step > 1 and (refusal.nodes or never is not None):
        # What would help the pod alone leaves the others waiting.
        answer.advice = outlooks.advice(pod)
        answer.fixes = [fix.told for fix in answer.advice]
    elif found.step > 1 or not refusal.nodes or "GangNext" in refusal.codes:
        # No node was asked for this pod: what would make one do does not make it start.
        answer.advice = missing.advice(world, pod, [reason for reason, _ in refusal.reasons])
        answer.fixes = [fix.told for fix in answer.advice]
    elif answer.verdict == "unschedulable":
        # What makes a node do helps where it is the turn of the pod then.
        answer.advice, answer.notes = outlooks.in_turn(pod, answer.advice)
        answer.fixes = [fix.told for fix in answer.advice]
    if NEVER & refusal.codes:
        answer = _decided(answer, pod, "impossible", refusal)
        answer.summary = as_it_stands(pod, message(refusal.reasons, 0))
        return answer
    if never is not None:
        # What the empty cluster lacks is told, and not what is in use besides.
        never_starts = _decided(answer, pod, "impossible", never, step=found.step)
        return never_starts if refusal.nodes else _besides(never_starts, refusal)
    verdict: VerdictName = "impossible" if answer.verdict == "impossible" else "unschedulable"
    of_queue = outlooks.of_queue(pod) if RAISED.keys() & refusal.codes else None
    return _decided(answer, pod, verdict, refusal, step=found.step, of_queue=of_queue)


def _besides(answer: Why, refusal: Refusal) -> Why:
    """Of a pod that would never start: what its queue or its gang has against it comes on top, and is not why."""
    counts = [(reason, count) for reason, count in refusal.reasons if not count]
    if not counts:
        return answer
    answer.reasons += [reason for reason, _ in counts]
    answer.summary = f"{answer.summary.rstrip('.')}; besides, {message(counts, 0)}"
    answer.fixes = [*dict.fromkeys((*answer.fixes, *_told(counts)))]
    return answer


def _told(counts: Sequence[Counted]) -> list[str]:
    """What cures these in general; what is to be done for it was not tried."""
    done = fixes([found for found in counts if found[0].code in _DONE])
    others = fixes([found for found in counts if found[0].code not in _DONE])
    return [*(f"{cure} (not tried)" for cure in done), *others][:2]


def _decided(
    answer: Why,
    pod: Pod,
    verdict: VerdictName,
    refusal: Refusal,
    evicts: WouldEvict | None = None,
    step: int = 1,
    of_queue: list[Fix] | None = None,
) -> Why:
    """``step``: how many pods start together; ``of_queue``: what was found to help against what its queue says."""
    counts = list(refusal.reasons)
    answer.summary = sentence(pod, verdict, message(counts, refusal.nodes))
    answer.verdict, answer.reasons, answer.evicts = verdict, [reason for reason, _ in counts], evicts
    # What nodes lack for one member is not what the gang lacks; for a pod alone it was tried what helps.
    general = [(reason, count) for reason, count in counts if not missing.is_advised(reason)]
    cures = [(reason, count) for reason, count in general if not count or (step == 1 and (answer.fits or not is_tried(reason)))]
    if step > 1 and answer.advice:
        # What makes the whole gang start was found out.
        cures = [(reason, count) for reason, count in cures if reason.code != "GangBlocked"]
    if of_queue is not None:
        answer.advice = in_order(of_queue, answer.advice)
        answer.fixes = [fix.told for fix in answer.advice]
        cures = [(reason, count) for reason, count in cures if reason.code not in RAISED]
    if answer.fits:
        # Alone it would fit: what nodes say of it is not what stands against it.
        answer.fits, answer.nodes, answer.choice, answer.fixes = [], [], None, [fix.told for fix in answer.advice]
    told = _told(cures)
    told = [*told, *answer.fixes] if step == 1 else [*answer.fixes, *told]
    answer.fixes = [] if evicts is not None and evicts.victims else [*dict.fromkeys(told)]
    return answer
