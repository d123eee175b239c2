"""Deployments, Jobs and budgets, as far as Dray's controllers decide on them. Templates keep their spec plain."""

from __future__ import annotations

from typing import Any

from msgspec import field

from dray.api.core import LabelSelector, PodTemplateSpec
from dray.api.meta import Condition, Int64, Object, Struct


class RollingUpdate(Struct):
    max_surge: Int64 | str | None = None
    max_unavailable: Int64 | str | None = None


class DeploymentStrategy(Struct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Struct):
    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    strategy: DeploymentStrategy = field(default_factory=DeploymentStrategy)
    min_ready_seconds: Int64 = 0
    revision_history_limit: Int64 | None = None
    progress_deadline_seconds: Int64 | None = None
    paused: bool = False


class DeploymentCondition(Condition):
    last_update_time: str | None = None


class DeploymentStatus(Struct):
    observed_generation: Int64 = 0
    replicas: Int64 = 0
    updated_replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0
    unavailable_replicas: Int64 = 0
    collision_count: Int64 | None = None
    conditions: tuple[DeploymentCondition, ...] = ()


class Deployment(Object):
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


class DaemonSetUpdateStrategy(Struct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DaemonSetSpec(Struct):
    selector: LabelSelector | None = None
    revision_history_limit: Int64 | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    min_ready_seconds: Int64 = 0
    update_strategy: DaemonSetUpdateStrategy = field(default_factory=DaemonSetUpdateStrategy)


class DaemonSetStatus(Struct):
    observed_generation: Int64 = 0
    desired_number_scheduled: Int64 = 0
    current_number_scheduled: Int64 = 0
    number_misscheduled: Int64 = 0
    number_ready: Int64 = 0
    number_available: Int64 = 0
    number_unavailable: Int64 = 0
    updated_number_scheduled: Int64 = 0


class DaemonSet(Object):
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class SuccessPolicyRule(Struct):
    succeeded_indexes: str | None = None
    succeeded_count: Int64 | None = None


class SuccessPolicy(Struct):
    rules: tuple[SuccessPolicyRule, ...] = ()


class JobSpec(Struct):
    managed_by: str | None = None
    success_policy: SuccessPolicy | None = None
    parallelism: Int64 | None = None
    completions: Int64 | None = None
    backoff_limit: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    ttl_seconds_after_finished: Int64 | None = None
    completion_mode: str | None = None
    suspend: bool = False
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class JobStatus(Struct):
    active: Int64 = 0
    ready: Int64 | None = None
    terminating: Int64 | None = None
    succeeded: Int64 = 0
    failed: Int64 = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    conditions: tuple[Condition, ...] = ()


class Job(Object):
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class CronJob(Object):
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class ControllerRevision(Object):
    data: dict[str, Any] = {}
    revision: Int64 = 0
