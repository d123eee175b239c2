"""Jobs: pods run until enough of them have succeeded, or too many have failed.

Always true: a pod is created once although its answer is lost; a finished Job creates nothing; it is called finished only when
none of its pods runs any more. Succeeded and failed pods are counted while they exist, and the counts in the status never fall.
A Job that names another manager is left to it. Pods that match its selector are adopted, those that no longer do are let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.core import Pod
from dray.api.digits import whole
from dray.api.kinds import JOBS, PODS, RESOURCE_QUOTAS, Kind
from dray.api.meta import Condition, Object
from dray.api.selectors import selects
from dray.api.times import format_time, parse_time
from dray.api.workloads import Job
from dray.cluster.port import Change, Outcome, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import Creates, generated
from dray.controllers.indexes import INDEX, completed_text, index_of, indexed, parse_completed
from dray.controllers.keyed import Keyed
from dray.controllers.replicasets import pod_from

BACKOFF_LIMIT: Final = 6
BACKOFF_SECONDS: Final = 10.0
BACKOFF_MAX_SECONDS: Final = 600.0
BURST: Final = 500
MANAGER: Final = "kubernetes.io/job-controller"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
JOB_UID: Final = "batch.kubernetes.io/controller-uid"


class _Pods:
    """The pods of a Job, sorted by what they mean for it."""

    def __init__(self, job: Job, pods: list[Pod]) -> None:
        self.active = [pod for pod in pods if podstate.active(pod)]
        self.terminating = [pod for pod in pods if not pod.terminal and pod.metadata.deletion_timestamp is not None]
        succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
        failed = sum(pod.status.phase == "Failed" for pod in pods)
        self.failed = max(failed, job.status.failed)
        self.completed = parse_completed(job.status.completed_indexes, job) | {index_of(pod) for pod in succeeded} - {None}
        self.succeeded = len(self.completed) if indexed(job) else max(len(succeeded), job.status.succeeded)


class Jobs(Keyed):
    """The decider. Keys are ``namespace/name`` of Jobs."""

    name = "jobs"
    kinds: Sequence[Kind] = (JOBS, PODS, RESOURCE_QUOTAS)
    counted = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._creates = Creates(PODS)
        self._pods = world.index(PODS, owning.controller_of)
        self._orphans = world.index(PODS, owning.orphan_in)
        self._owners = owning.Owners(world, JOBS, self._selects)
        self._failures: dict[str, tuple[int, float]] = {}  # job uid -> failures seen, and when the last one was

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == JOBS:
            return [change.object.key]
        return self._owners.of(change)

    def _selects(self, key: str, pod: Object) -> bool:
        return selects(self.world.get(JOBS, key).spec.selector, pod.metadata.labels)

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if outcome.write.verb == "create":
            self._creates.ended(key, outcome, now)

    def decide(self, key: str, now: float) -> list[Write]:
        job: Job | None = self.world.get(JOBS, key)
        if job is None:
            self.forget(key)
            self._creates.forget(key)
            return []
        if job.spec.managed_by not in (None, "", MANAGER):
            return []
        if _has(job, "Complete") or _has(job, "Failed"):
            return self._expire(job, now)
        if job.metadata.deletion_timestamp is not None:
            return []
        owned = [self.world.get(PODS, pod) for pod in self._pods[job.uid]]
        if moved := self._moved(job, owned):
            return moved
        pods = _Pods(job, owned)
        verdict = self._verdict(job, pods, now)
        if verdict is not None or job.spec.suspend:
            writes = [owning.delete(PODS, pod) for pod in pods.active]
        else:
            writes = self._scale(job, pods, now)
        return writes + self._report(job, pods, verdict, now)

    def _moved(self, job: Job, owned: list[Pod]) -> list[Write]:
        """Pods that change hands: own ones that no longer match, and matching ones that nothing controls."""
        strays = [self.world.get(PODS, key) for key in self._orphans[job.metadata.namespace]]
        mine = [pod for pod in strays if podstate.active(pod) and selects(job.spec.selector, pod.metadata.labels)]
        lost = [pod for pod in owned if podstate.active(pod) and not selects(job.spec.selector, pod.metadata.labels)]
        return [owning.adopt(PODS, pod, JOBS, job) for pod in mine] + [owning.release(PODS, pod, job.uid) for pod in lost]

    def _verdict(self, job: Job, pods: _Pods, now: float) -> Condition | None:
        """Whether the Job has reached its end, and which."""
        for known in job.status.conditions:
            if known.type in ("SuccessCriteriaMet", "FailureTarget") and known.status == "True":
                return known
        limit = job.spec.backoff_limit if job.spec.backoff_limit is not None else BACKOFF_LIMIT
        if pods.failed > limit:
            return Condition("FailureTarget", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        deadline = job.spec.active_deadline_seconds
        if deadline is not None and job.status.start_time is not None and not job.spec.suspend:
            end = parse_time(job.status.start_time) + deadline
            if now >= end:
                return Condition("FailureTarget", "True", "DeadlineExceeded", "Job was active longer than specified deadline")
            self.look_at(job.key, end)
        if (met := _success(job, pods)) is not None:
            return met
        wanted = job.spec.completions
        done = pods.succeeded >= wanted if wanted is not None else pods.succeeded > 0 and not pods.active
        reached = "Reached expected number of succeeded pods"
        return Condition("SuccessCriteriaMet", "True", "CompletionsReached", reached) if done else None

    # -------------------------------------------------------------------------------------------------------- pods

    def _scale(self, job: Job, pods: _Pods, now: float) -> list[Write]:
        namespace = job.metadata.namespace
        unseen = self._creates.unseen(job.key, lambda name: self.world.get(PODS, f"{namespace}/{name}") is not None, now)
        parallel = job.spec.parallelism if job.spec.parallelism is not None else 1
        left = parallel if job.spec.completions is None else min(parallel, job.spec.completions - pods.succeeded)
        if job.spec.completions is None and pods.succeeded:
            left = min(left, len(pods.active))  # somebody succeeded: the others finish, nobody new starts
        difference = left - len(pods.active) - unseen
        if unseen:
            self.look_at(job.key, now + 5.0)
        if difference < 0 and not unseen:
            return [owning.delete(PODS, pod) for pod in sorted(pods.active, key=podstate.removal_order)[:-difference]]
        if difference > 0 and (resume := self._resumes(job, pods, now)) > now:
            self.look_at(job.key, resume)
            difference = 0
        new = self._new(job, pods, min(difference, BURST), now)
        return [*self._creates.again(job.key, but=new), *new]

    def _new(self, job: Job, pods: _Pods, count: int, now: float) -> list[Write]:
        if not indexed(job):
            return [self._create(job, None, now, number) for number in range(count)]
        waiting = {index_of_write(write) for write in self._creates.again(job.key)}
        taken = pods.completed | {index_of(pod) for pod in pods.active} | waiting
        free = (index for index in range(job.spec.completions or 0) if index not in taken)
        return [self._create(job, index, now, number) for number, index in zip(range(count), free)]

    def _resumes(self, job: Job, pods: _Pods, now: float) -> float:
        """After a failure the next pod waits, longer each time."""
        seen, at = self._failures.get(job.uid, (job.status.failed, 0.0))
        if pods.failed > seen:
            seen, at = pods.failed, now
        self._failures[job.uid] = (seen, at)
        return at + min(BACKOFF_MAX_SECONDS, BACKOFF_SECONDS * 2.0 ** min(pods.failed - 1, 20)) if pods.failed else now

    def _create(self, job: Job, index: int | None, now: float, number: int) -> Write:
        base = job.metadata.name if index is None else f"{job.metadata.name}-{index}"
        name = generated(base, job.uid, now, number)
        body = pod_from(job.spec.template, name, job.metadata.namespace, owning.reference(JOBS, job))
        own = {JOB_NAME: job.metadata.name, "job-name": job.metadata.name, JOB_UID: job.uid, "controller-uid": job.uid}
        body["metadata"]["labels"] = {**body["metadata"]["labels"], **own}
        if index is not None:
            body["metadata"]["labels"][INDEX] = str(index)
            body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), INDEX: str(index)}
            body["spec"] = _with_index(body["spec"], index)
        return self._creates.send(job.key, job.metadata.namespace, name, body)

    # ------------------------------------------------------------------------------------------------------ status

    def _report(self, job: Job, pods: _Pods, verdict: Condition | None, now: float) -> list[Write]:
        known = job.status
        status: dict[str, Any] = {
            "active": len(pods.active),
            "ready": sum(map(podstate.ready, pods.active)),
            "terminating": len(pods.terminating),
            "succeeded": pods.succeeded,
            "failed": pods.failed,
        }
        changes = {field: value for field, value in status.items() if getattr(known, field) != value}
        if indexed(job) and completed_text(pods.completed) != known.completed_indexes:
            changes["completedIndexes"] = completed_text(pods.completed)
        if known.start_time is None and not job.spec.suspend:
            changes["startTime"] = format_time(now)
        finished = verdict is not None and not pods.active and not pods.terminating
        conditions = _conditions(job, verdict, finished, now)
        if conditions is not None:
            changes["conditions"] = conditions
        if finished and verdict is not None and verdict.type == "SuccessCriteriaMet":
            changes["completionTime"] = format_time(now)
        return [_status(job, changes)] if changes else []

    def _expire(self, job: Job, now: float) -> list[Write]:
        self._failures.pop(job.uid, None)
        ttl = job.spec.ttl_seconds_after_finished
        ended = next(c.last_transition_time for c in job.status.conditions if c.type in ("Complete", "Failed"))
        if ttl is None or ended is None or job.metadata.deletion_timestamp is not None:
            return []
        if (due := parse_time(ended) + ttl) > now:
            self.look_at(job.key, due)
            return []
        return [owning.delete(JOBS, job, propagationPolicy="Foreground")]


def index_of_write(write: Write) -> int | None:
    return whole(str(write.body["metadata"].get("annotations", {}).get(INDEX, "")))


def _success(job: Job, pods: _Pods) -> Condition | None:
    """Whether a rule of the success policy is met."""
    for number, rule in enumerate(job.spec.success_policy.rules if job.spec.success_policy is not None else ()):
        wanted = parse_completed(rule.succeeded_indexes, job) if rule.succeeded_indexes is not None else None
        have = pods.completed if wanted is None else pods.completed & wanted
        least = rule.succeeded_count if rule.succeeded_count is not None else len(wanted or ())
        if have and len(have) >= least:
            return Condition("SuccessCriteriaMet", "True", "SuccessPolicy", f"Matched rules at index {number}")
    return None


def _has(job: Job, type: str) -> bool:
    return any(c.type == type and c.status == "True" for c in job.status.conditions)


def _conditions(job: Job, verdict: Condition | None, finished: bool, now: float) -> list[dict[str, Any]] | None:
    """All conditions, where one has to change."""
    known = {condition.type: condition for condition in job.status.conditions}
    wanted: list[tuple[str, str, str, str]] = []
    if verdict is not None:
        wanted.append((verdict.type, "True", verdict.reason, verdict.message))
        if finished:
            end = "Complete" if verdict.type == "SuccessCriteriaMet" else "Failed"
            wanted.append((end, "True", verdict.reason, verdict.message))
    elif job.spec.suspend:
        wanted.append(("Suspended", "True", "JobSuspended", "Job suspended"))
    elif "Suspended" in known:
        wanted.append(("Suspended", "False", "JobResumed", "Job resumed"))
    new = [each for each in wanted if each[0] not in known or known[each[0]].status != each[1]]
    if not new:
        return None
    names = {each[0] for each in new}
    kept = [_plain(c) for c in job.status.conditions if c.type not in names]
    stamp = format_time(now)
    return kept + [
        {"type": t, "status": s, "reason": r, "message": m, "lastProbeTime": stamp, "lastTransitionTime": stamp}
        for t, s, r, m in new
    ]


def _plain(condition: Condition) -> dict[str, Any]:
    fields = ("type", "status", "reason", "message")
    return {**{field: getattr(condition, field) for field in fields}, "lastTransitionTime": condition.last_transition_time}


def _status(job: Job, status: dict[str, Any]) -> Write:
    return Write("patch", JOBS, job.metadata.namespace, job.metadata.name, {"status": status}, subresource="status", uid=job.uid)


def _with_index(spec: dict[str, Any], index: int) -> dict[str, Any]:
    """The containers learn their index from the environment."""
    variable = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
    containers = [{**c, "env": [*(c.get("env") or ()), variable]} for c in spec.get("containers") or ()]
    return {**spec, "containers": containers}
