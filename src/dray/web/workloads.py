"""Queues, gangs and evictions as the page shows them: what is now, and how it came to be.

Always true: gangs are told as the scheduler reads them; what is told of the past is bounded, the newest of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import PODS, QUEUES
from dray.api.times import parse_time
from dray.devices import Devices
from dray.explain.queues import resources, survey
from dray.scheduling.workloads.jobs import BESIDE, Job, Jobs
from dray.web.moments import Moment
from dray.web.views import Placing

Plain = dict[str, Any]

GANGS_MAX: Final = 200
MEMBERS_MAX: Final = 200
EVICTIONS_MAX: Final = 200
# Reasons of events that say that a pod was made to leave, by Dray or by upstream's controllers.
EVICTED: Final = frozenset({"Preempted", "StaleGang", "DeviceTaintManagerEviction", "TaintManagerEviction", "Evicted"})


def queues(moment: Moment, placing: Placing) -> Plain:
    """What `dray queues` says, the resources worth a look in order, how it came to be, gangs and evictions."""
    tree = survey(moment.world, moment.at, placing.config, placing.gates)
    plain: Plain = msgspec.to_builtins(tree)
    return {
        **plain,
        "resources": resources(tree),
        "history": {name: points for name, points in moment.history.items() if name in moment.world.all(QUEUES)},
        "gangs": list(gangs(moment)),
        "evictions": list(evictions(moment)),
    }


def gangs(moment: Moment) -> Iterator[Plain]:
    """Pods that start together, those that lack members first. What they ask for is not told, so devices need not be known."""
    jobs = Jobs(moment.world, Devices(Gates.dray()))
    for pod in moment.world.all(PODS).values():
        if not pod.terminal:
            jobs.put(pod)
    found = sorted((job for job in jobs if not job.key.startswith("pod/")), key=lambda job: (not _waits(job), job.key))
    yield from (_gang(job) for job in found[:GANGS_MAX])


def _waits(job: Job) -> bool:
    return any(not pod.spec.node_name for pod in job.pods.values())


def _gang(job: Job) -> Plain:
    pods = sorted(job.pods.values(), key=lambda pod: pod.key)
    placed = sum(bool(pod.spec.node_name) for pod in pods)
    return {
        "gang": job.key,
        "queue": job.queue if job.queue != BESIDE else "",
        "priority": job.priority,
        "needs": job.root.needed if job.root.is_leaf else None,
        "missing": job.missing,
        "placed": placed,
        "waiting": len(pods) - placed,
        "pods": [_member(pod) for pod in pods[:MEMBERS_MAX]],
    }


def _member(pod: Pod) -> Plain:
    return {"pod": pod.key, "node": pod.spec.node_name, "phase": pod.status.phase}


def evictions(moment: Moment) -> Iterator[Plain]:
    """Pods that were made to leave, the last first, each with why."""
    keys = {pod.uid: pod.key for pod in moment.world.all(PODS).values()}
    found = sorted(_evicted(moment.events), key=lambda each: (-each["at"], each["pod"]))
    for each in found[:EVICTIONS_MAX]:
        # Upstream's words name who comes instead by a number that tells people nothing.
        by = next((word for word in each["why"].split() if word in keys), "")
        yield {**each, "why": each["why"].replace(by, keys[by]) if by else each["why"], "for": keys.get(by, "")}


def _evicted(events: Iterable[Mapping[str, Any]]) -> Iterator[Plain]:
    for event in events:
        about = event.get("regarding") or event.get("involvedObject") or {}
        at = event.get("eventTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
        if event.get("reason") in EVICTED and about.get("kind") == "Pod" and at:
            why = str(event.get("note") or event.get("message") or "")
            pod = f"{about.get('namespace')}/{about.get('name')}"
            yield {"at": parse_time(str(at)), "pod": pod, "reason": str(event["reason"]), "why": why}
