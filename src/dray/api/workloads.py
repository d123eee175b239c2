"""Deployments, Jobs and budgets, as far as Dray's controllers decide on them. Templates keep their spec plain."""

from __future__ import annotations

from typing import Any

from msgspec import field

from dray.api.core import LabelSelector, PodTemplateSpec
from dray.api.meta import Condition, Object, Struct


class RollingUpdate(Struct):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class DeploymentStrategy(Struct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Struct):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    strategy: DeploymentStrategy = field(default_factory=DeploymentStrategy)
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None
    paused: bool = False


class DeploymentCondition(Condition):
    last_update_time: str | None = None


class DeploymentStatus(Struct):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    collision_count: int | None = None
    conditions: tuple[DeploymentCondition, ...] = ()


class Deployment(Object):
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


class DaemonSetUpdateStrategy(Struct):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DaemonSetSpec(Struct):
    selector: LabelSelector | None = None
    revision_history_limit: int | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    min_ready_seconds: int = 0
    update_strategy: DaemonSetUpdateStrategy = field(default_factory=DaemonSetUpdateStrategy)


class DaemonSetStatus(Struct):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    updated_number_scheduled: int = 0


class DaemonSet(Object):
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class SuccessPolicyRule(Struct):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(Struct):
    rules: tuple[SuccessPolicyRule, ...] = ()


class JobSpec(Struct):
    managed_by: str | None = None
    success_policy: SuccessPolicy | None = None
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str | None = None
    suspend: bool = False
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class JobStatus(Struct):
    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
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
    revision: int = 0
