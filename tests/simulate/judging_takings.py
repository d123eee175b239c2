"""What must be true of whoever has to leave for others: it may be preempted, it has less to say than they have, and it has run
for as long as its queue lets it.

Always true: it is read from the objects of the API and from what the pod is told when it has to leave. Where it cannot be known,
as of gangs that changed a moment ago, nothing is held against anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final

from dray.api.kinds import POD_GROUPS, PODS
from dray.api.times import parse_time
from dray.runtime.virtual import Written
from tests.simulate.judging_queues import Plain, Queues, Run, group_of, of_kubernetes
from tests.simulate.settled import Settled

_PREEMPTIBLE_BELOW: Final = 100
_FOR_PRIORITY: Final = "to accommodate a higher priority pod"
_TAKES_BACK: Final = "takes back its share from queue"
_MOVES: Final = "there is another place"


class Takings:
    """Follows the writes of a run; ``wrong`` has what is wrong, of which object, and how."""

    def __init__(self, simulation: Run, settled: Settled, queues: Queues) -> None:
        self._simulation, self._settled, self._queues = simulation, settled, queues
        self.wrong: list[tuple[str, str, str]] = []
        self._pods: dict[str, Plain] = {}  # as they were when they were told to leave
        simulation.listen(self._written)

    def _written(self, written: Written) -> None:
        write = written.write
        if written.error is not None or written.host != "scheduler" or write.kind != PODS:
            return
        if write.verb == "patch" and "DisruptionTarget" in str(write.body):
            self._pods[write.key] = self._simulation.objects(PODS)[write.key]
        elif write.verb == "delete" and write.about not in ("", write.key):
            victim, taker = self._pods.get(write.key), self._simulation.objects(PODS).get(write.about)
            if victim is not None and taker is not None:
                now = self._simulation.elapsed
                found = self._of(victim, taker)
                self.wrong += [("taken without right", f"pod/{write.key}", f"{how} at {now:.0f} s") for how in found]

    def _of(self, victim: Plain, taker: Plain) -> Iterator[str]:
        if not self._is_known(victim) or not self._is_known(taker):
            return
        theirs, mine = self._queues.of(victim), self._queues.of(taker)
        if not theirs and not mine and _alone(victim) and _alone(taker):
            if _priority(victim) >= _priority(taker):
                yield f"leaves for {taker['metadata']['name']}, which is no more important"
            return
        if theirs and mine and not self._is_preemptible(victim):
            yield f"leaves for {taker['metadata']['name']}, and may not be preempted"
        least = self._least(theirs, mine, _told(victim)) if theirs and mine and self._is_needed(victim) else 0.0
        # It started after it was made, and it was decided before it is written that it leaves.
        age = _time(_told_at(victim)) - _time(victim["metadata"]["creationTimestamp"])
        if victim["status"].get("startTime") and age < least:
            yield f"leaves for {taker['metadata']['name']} after less than {least:.0f} s"

    # ---------------------------------------------------------------------------------------------------------- queues

    def _is_known(self, pod: Plain) -> bool:
        """Whether what its pod group says, and all queues, are as they were for a while."""
        group = group_of(pod)
        still = not group or self._settled.object(POD_GROUPS.resource, group)
        return still and not of_kubernetes(pod) and self._queues.never_changed

    def _is_preemptible(self, pod: Plain) -> bool:
        labels, spec = pod["metadata"].get("labels", {}), self._queues.group(pod)
        said = spec.get("preemptibility") if group_of(pod) else labels.get("kai.scheduler/preemptibility")
        return said == "preemptible" if said else _priority(pod) < _PREEMPTIBLE_BELOW

    def _is_needed(self, pod: Plain) -> bool:
        """Whether no gang of it can do without the pod: what is more than its gang needs goes at any time."""
        group = group_of(pod)
        known = {key for key, each in self._simulation.objects(PODS).items() if group_of(each) == group}
        own = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        return _alone(pod) or (bool(group) and self._queues.group(pod).get("minMember", 0) >= len(known | {own}))

    def _least(self, theirs: str, mine: str, told: str) -> float:
        """How long a pod of that queue is left alone by pods of this one."""
        if _MOVES in told:
            return 0.0
        if _FOR_PRIORITY in told and theirs == mine:
            return self._queues.first("preemptMinRuntime", self._queues.upwards(theirs))
        if _TAKES_BACK not in told:
            return 0.0
        above = self._queues.upwards(mine)
        apart = list(takewhile(lambda each: each not in above, self._queues.upwards(theirs)))
        common = [each for each in self._queues.upwards(theirs) if each in above]
        return self._queues.first("reclaimMinRuntime", [*apart[-1:], *common])


def _priority(pod: Plain) -> int:
    return int(pod["spec"].get("priority", 0))


def _alone(pod: Plain) -> bool:
    """Whether it is in no gang."""
    return not group_of(pod) and "dray.dev/gang" not in pod["metadata"].get("annotations", {})


def _target(pod: Plain) -> Plain:
    return next(each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget")


def _told(pod: Plain) -> str:
    return str(_target(pod).get("message", ""))


def _told_at(pod: Plain) -> str:
    return str(_target(pod)["lastTransitionTime"])


def _time(stamp: Any) -> float:
    return parse_time(str(stamp))
