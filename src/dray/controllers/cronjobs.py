"""CronJobs: a Job at each time of the schedule, as the concurrency policy allows, and a short memory of old ones.

Always true: a time has one Job, because its name follows from the time; of times that were missed only the last is caught up;
a suspended CronJob starts nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from dray.api.cron import BadSchedule, Schedule
from dray.api.kinds import CRON_JOBS, JOBS, RESOURCE_QUOTAS, Kind
from dray.api.times import format_time, parse_time
from dray.api.workloads import CronJob, Job
from dray.cluster.port import Change, Conflict, Outcome, Refused, Write
from dray.cluster.world import World
from dray.controllers import owning
from dray.controllers.keyed import Keyed

SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
NAME_MAX: Final = 52
MISSED_MANY: Final = 100


class CronJobs(Keyed):
    """The decider. Keys are ``namespace/name`` of CronJobs."""

    name = "cronjobs"
    source = "cronjob-controller"
    kinds: Sequence[Kind] = (CRON_JOBS, JOBS, RESOURCE_QUOTAS)
    counted = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._jobs = world.index(JOBS, owning.controller_of)
        self._owners = owning.Owners(world, CRON_JOBS, lambda key, job: False)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == CRON_JOBS:
            return [change.object.key]
        return self._owners.of(change)

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        found = self.world.get(CRON_JOBS, key)
        if found is None or outcome.write.kind != JOBS or outcome.write.verb != "create":
            return
        name = outcome.write.name
        if outcome.ok:
            self._say(found, "SuccessfulCreate", f"Created job {name}", now)
        elif isinstance(outcome.error, Refused) and not isinstance(outcome.error, Conflict):
            note = f"Error creating job: {outcome.error.message}"
            self.say(self._recorder.warning(CRON_JOBS, found, "FailedCreate", note, action="CreateJob", now=now))

    def decide(self, key: str, now: float) -> list[Write]:
        found: CronJob | None = self.world.get(CRON_JOBS, key)
        if found is None:
            self.forget(key)
            return []
        jobs = [self.world.get(JOBS, job) for job in self._jobs[found.uid]]
        if found.metadata.deletion_timestamp is not None:
            return []
        status = self._seen(found, jobs, now)
        writes = self._history(found, jobs)
        if not found.spec.get("suspend"):
            started, more = self._due(found, jobs, now)
            writes += started
            status |= more
        if status:
            namespace, name = found.metadata.namespace, found.metadata.name
            body = {"status": status}
            writes.append(Write("patch", CRON_JOBS, namespace, name, body, subresource="status", uid=found.uid))
        return writes

    # ------------------------------------------------------------------------------------------------------- status

    def _seen(self, found: CronJob, jobs: list[Job], now: float) -> dict[str, Any]:
        """The Jobs that run, and when the last one succeeded: where the status says otherwise."""
        running = sorted((job for job in jobs if not _ended(job)), key=lambda job: job.metadata.name)
        active = [_reference(job) for job in running]
        made: dict[str, Any] = {}
        known = found.status.get("active") or []
        if [ref.get("uid") for ref in known] != [ref["uid"] for ref in active]:
            made["active"] = active or None
            for gone in known:
                job = next((job for job in jobs if job.uid == gone.get("uid")), None)
                if job is not None and _ended(job):
                    self._say(found, "SawCompletedJob", f"Saw completed job: {job.metadata.name}, condition: {_ended(job)}", now)
                elif job is None:
                    self._say(found, "MissingJob", f"Active job went missing: {gone.get('name')}", now)
        done = [job.status.completion_time for job in jobs if _ended(job) == "Complete" and job.status.completion_time]
        if done and max(done) > (found.status.get("lastSuccessfulTime") or ""):
            made["lastSuccessfulTime"] = max(done)
        return made

    def _history(self, found: CronJob, jobs: list[Job]) -> list[Write]:
        """Old Jobs beyond the limits go, the oldest first."""
        writes = []
        for end, field, default in (("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1)):
            limit = found.spec.get(field, default)
            old = [job for job in jobs if _ended(job) == end and job.metadata.deletion_timestamp is None]
            old.sort(key=lambda job: (job.status.start_time or "", job.metadata.name))
            writes += [owning.delete(JOBS, job, propagationPolicy="Background") for job in old[: max(0, len(old) - limit)]]
        return writes

    # --------------------------------------------------------------------------------------------------------- times

    def _due(self, found: CronJob, jobs: list[Job], now: float) -> tuple[list[Write], dict[str, Any]]:
        """The Job to start now, if any; the key is looked at again at the next time."""
        zone = found.spec.get("timeZone") or ""
        try:
            schedule = Schedule(found.spec.get("schedule", ""))
            following = schedule.after(now, zone)
        except (BadSchedule, LookupError, ValueError) as error:
            note = f"unparseable schedule {found.spec.get('schedule')!r}: {error}"
            self.say(self._recorder.warning(CRON_JOBS, found, "UnparseableSchedule", note, action="Schedule", now=now))
            return [], {}
        if following is not None:
            self.look_at(found.key, following)
        last = found.status.get("lastScheduleTime") or found.metadata.creation_timestamp
        since = parse_time(last) if last else now
        deadline = found.spec.get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, now - deadline)
        due = schedule.latest(now, since, zone)
        if due is None:
            return [], {}
        if self._missed_many(schedule, since, now, zone):
            note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self.say(self._recorder.warning(CRON_JOBS, found, "TooManyMissedTimes", note, action="Schedule", now=now))
        return self._start(found, [job for job in jobs if not _ended(job)], due, now)

    def _missed_many(self, schedule: Schedule, since: float, now: float, zone: str) -> bool:
        at: float | None = since
        for _ in range(MISSED_MANY + 1):
            at = schedule.after(at, zone) if at is not None else None
            if at is None or at > now:
                return False
        return True

    def _start(self, found: CronJob, running: list[Job], due: float, now: float) -> tuple[list[Write], dict[str, Any]]:
        policy = found.spec.get("concurrencyPolicy") or "Allow"
        name = f"{found.metadata.name[:NAME_MAX]}-{int(due) // 60}"
        if any(job.metadata.name == name for job in running):
            return [], {"lastScheduleTime": format_time(due)}
        if policy == "Forbid" and running:
            self._say(
                found,
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is Forbid",
                now,
            )
            return [], {}
        writes = []
        if policy == "Replace":
            leaving = [job for job in running if job.metadata.deletion_timestamp is None]
            writes = [owning.delete(JOBS, job, propagationPolicy="Background") for job in leaving]
        return [*writes, _job(found, name, due)], {"lastScheduleTime": format_time(due)}

    def _say(self, found: CronJob, reason: str, note: str, now: float) -> None:
        self.say(self._recorder.normal(CRON_JOBS, found, reason, note, action=reason, now=now))


def _job(found: CronJob, name: str, due: float) -> Write:
    template = found.spec.get("jobTemplate") or {}
    given = template.get("metadata") or {}
    zone = found.spec.get("timeZone") or ""
    moment = datetime.datetime.fromtimestamp(due, ZoneInfo(zone) if zone else datetime.UTC)
    metadata = {
        "name": name,
        "namespace": found.metadata.namespace,
        "labels": given.get("labels") or {},
        "annotations": {**(given.get("annotations") or {}), SCHEDULED: moment.isoformat().replace("+00:00", "Z")},
        "ownerReferences": [owning.reference(CRON_JOBS, found)],
    }
    body = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "spec": template.get("spec") or {}}
    return Write("create", JOBS, found.metadata.namespace, name, body)


def _ended(job: Job) -> str:
    return next((c.type for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"), "")


def _reference(job: Job) -> dict[str, Any]:
    metadata = job.metadata
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": job.uid,
        "resourceVersion": metadata.resource_version,
    }
