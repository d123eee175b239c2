"""Reads a ``KubeSchedulerConfiguration`` (kubescheduler.config.k8s.io/v1), strictly.

A field, plugin or argument that is not known is an error that names it and what is known; so is a setting that Dray cannot
honour. Fields that only concern how kube-scheduler talks to its API server are read and have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml
from msgspec import field

from dray.api.core import NodeAffinity, TopologySpreadConstraint
from dray.api.durations import seconds
from dray.api.gates import Gates
from dray.scheduling.config import DEFAULT_PLUGINS, FILTERS, SCORES, Config, Profile
from dray.scheduling.plugins.resources import FitArgs, ResourceWeight, Shape

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
KNOWN: Final = tuple(name for name, _ in DEFAULT_PLUGINS)
STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
DEVICE_SCORING: Final = ("Packing", "FirstFit")


class ConfigError(ValueError):
    """The configuration is wrong: names the field and what to do. The administrator must act."""


class _Strict(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class _PluginRef(_Strict):
    name: str
    weight: int = 0


class _PluginSet(_Strict):
    enabled: tuple[_PluginRef, ...] = ()
    disabled: tuple[_PluginRef, ...] = ()


class _Plugins(_Strict):
    pre_enqueue: _PluginSet = field(default_factory=_PluginSet)
    queue_sort: _PluginSet = field(default_factory=_PluginSet)
    pre_filter: _PluginSet = field(default_factory=_PluginSet)
    filter: _PluginSet = field(default_factory=_PluginSet)
    post_filter: _PluginSet = field(default_factory=_PluginSet)
    pre_score: _PluginSet = field(default_factory=_PluginSet)
    score: _PluginSet = field(default_factory=_PluginSet)
    reserve: _PluginSet = field(default_factory=_PluginSet)
    permit: _PluginSet = field(default_factory=_PluginSet)
    pre_bind: _PluginSet = field(default_factory=_PluginSet)
    bind: _PluginSet = field(default_factory=_PluginSet)
    post_bind: _PluginSet = field(default_factory=_PluginSet)
    multi_point: _PluginSet = field(default_factory=_PluginSet)


class _PluginConfig(_Strict):
    name: str
    args: dict[str, Any] = {}


class _Profile(_Strict):
    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins = field(default_factory=_Plugins)
    plugin_config: tuple[_PluginConfig, ...] = ()


class _File(_Strict):
    api_version: str
    kind: str
    parallelism: int = 16
    leader_election: dict[str, Any] = {}
    client_connection: dict[str, Any] = {}
    health_bind_address: str | None = None
    metrics_bind_address: str | None = None
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[_Profile, ...] = ()
    extenders: tuple[Any, ...] = ()
    delay_cache_until_active: bool = False


# ------------------------------------------------------------------------------------------------------ plugin arguments


class _Args(_Strict):
    api_version: str = API_VERSION
    kind: str = ""


class _Ratio(_Strict):
    shape: tuple[Shape, ...] = ()


class _Strategy(_Strict):
    type: str = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = (ResourceWeight("cpu"), ResourceWeight("memory"))
    requested_to_capacity_ratio: _Ratio | None = None


class _FitArgs(_Args):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: _Strategy = field(default_factory=_Strategy)


class _BalancedArgs(_Args):
    resources: tuple[ResourceWeight, ...] = (ResourceWeight("cpu"), ResourceWeight("memory"))


class _NodeAffinityArgs(_Args):
    added_affinity: NodeAffinity = field(default_factory=NodeAffinity)


class _InterPodAffinityArgs(_Args):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _SpreadArgs(_Args):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


class _PreemptionArgs(_Args):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class _VolumeBindingArgs(_Args):
    bind_timeout_seconds: int = 600
    shape: tuple[Shape, ...] = ()


class _DynamicResourcesArgs(_Args):
    filter_timeout: str | None = None
    binding_timeout: str | None = None
    # Dray's own: how devices are chosen where several would do.
    device_scoring: str = "Packing"


_ARGS: Final[dict[str, type[_Args]]] = {
    "NodeResourcesFit": _FitArgs,
    "NodeResourcesBalancedAllocation": _BalancedArgs,
    "NodeAffinity": _NodeAffinityArgs,
    "InterPodAffinity": _InterPodAffinityArgs,
    "PodTopologySpread": _SpreadArgs,
    "DefaultPreemption": _PreemptionArgs,
    "VolumeBinding": _VolumeBindingArgs,
    "DynamicResources": _DynamicResourcesArgs,
}

T = TypeVar("T")


def load_config(path: Path, gates: Gates) -> Config:
    """The configuration in a file. Errors name the file."""
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    try:
        return parse_config(found, gates)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_config(found: Any, gates: Gates) -> Config:
    if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND):
        raise ConfigError(f"apiVersion must be {API_VERSION} and kind {KIND}")
    file = _convert(found, _File, "")
    if file.extenders:
        raise ConfigError("extenders: Dray calls no scheduler extenders; remove the field")
    if not 0 < file.pod_initial_backoff_seconds <= file.pod_max_backoff_seconds:
        raise ConfigError("podInitialBackoffSeconds must be above 0 and not above podMaxBackoffSeconds")
    profiles = tuple(_profile(given, file, number, gates) for number, given in enumerate(file.profiles or (_Profile(),)))
    names = [profile.scheduler_name for profile in profiles]
    if len(set(names)) != len(names):
        raise ConfigError(f"profiles: schedulerName must be unique, got {', '.join(names)}")
    return Config(profiles, float(file.pod_initial_backoff_seconds), float(file.pod_max_backoff_seconds))


def _profile(given: _Profile, file: _File, number: int, gates: Gates) -> Profile:
    where = f"profiles[{number}]"
    if not given.scheduler_name and len(file.profiles) > 1:
        raise ConfigError(f"{where}.schedulerName is required where there are several profiles")
    percentage = (
        given.percentage_of_nodes_to_score
        if given.percentage_of_nodes_to_score is not None
        else file.percentage_of_nodes_to_score
    )
    if not 0 <= (percentage or 0) <= 100:
        raise ConfigError(f"{where}.percentageOfNodesToScore must be between 0 and 100, got {percentage}")
    filters, scores, others = _chosen(given.plugins, f"{where}.plugins")
    profile = Profile(
        scheduler_name=given.scheduler_name or "default-scheduler",
        filters=filters,
        scores=scores,
        preempts="DefaultPreemption" in others,
        percentage_of_nodes_to_score=percentage or 0,
    )
    for index, entry in enumerate(given.plugin_config):
        profile = _with_args(profile, entry, f"{where}.pluginConfig[{index}]", gates)
    return profile


# --------------------------------------------------------------------------------------------------------------- plugins


def _chosen(plugins: _Plugins, where: str) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...], frozenset[str]]:
    """Filters, scores with weights, and every plugin that is on, after upstream's rule for merging."""
    for point in msgspec.structs.fields(_Plugins):
        for reference in (*getattr(plugins, point.name).enabled, *getattr(plugins, point.name).disabled):
            if reference.name not in (*KNOWN, "*"):
                raise ConfigError(
                    f"{where}.{point.encode_name}: plugin {reference.name!r} is not known; known: {', '.join(KNOWN)}"
                )
    on = _merged([_PluginRef(name, weight) for name, weight in DEFAULT_PLUGINS], plugins.multi_point)
    filters = [each.name for each in _merged([each for each in on if each.name in FILTERS], plugins.filter)]
    scores = [each for each in _merged([each for each in on if each.name in SCORES], plugins.score) if each.name in SCORES]
    after = _merged([each for each in on if each.name == "DefaultPreemption"], plugins.post_filter)
    others = frozenset(each.name for each in (*after, *on) if each.name != "DefaultPreemption" or after)
    return tuple(name for name in filters if name in FILTERS), tuple((each.name, each.weight or 1) for each in scores), others


def _merged(defaults: Sequence[_PluginRef], given: _PluginSet) -> list[_PluginRef]:
    """Defaults less the disabled ones; an enabled one replaces its default in place, others follow."""
    disabled = {reference.name for reference in given.disabled}
    enabled = {reference.name: reference for reference in given.enabled}
    kept = [] if "*" in disabled else [each for each in defaults if each.name not in disabled or each.name in enabled]
    weights = {each.name: each.weight for each in defaults}
    merged = [enabled.get(each.name, each) for each in kept]
    merged.extend(reference for name, reference in enabled.items() if name not in {each.name for each in kept})
    return [_PluginRef(each.name, each.weight or weights.get(each.name, 0)) for each in merged]


# ------------------------------------------------------------------------------------------------------------- arguments


def _with_args(profile: Profile, entry: _PluginConfig, where: str, gates: Gates) -> Profile:
    shape = _ARGS.get(entry.name)
    if shape is None:
        known = ", ".join(_ARGS)
        raise ConfigError(f"{where}: plugin {entry.name!r} takes no arguments here; those that do: {known}")
    args = _convert(entry.args, shape, f"{where}.args")
    if args.kind not in ("", f"{entry.name}Args"):
        raise ConfigError(f"{where}.args.kind must be {entry.name}Args, got {args.kind!r}")
    return msgspec.structs.replace(profile, **_fields(args, f"{where}.args", gates))


def _fields(args: _Args, where: str, gates: Gates) -> dict[str, Any]:
    """The fields of a profile that these arguments set."""
    match args:
        case _FitArgs():
            return {"fit": _fit(args, where)}
        case _BalancedArgs():
            return {"balanced": args.resources}
        case _NodeAffinityArgs():
            return {"added_affinity": args.added_affinity}
        case _InterPodAffinityArgs():
            return {
                "hard_pod_affinity_weight": args.hard_pod_affinity_weight,
                "ignore_preferred_terms_of_existing_pods": args.ignore_preferred_terms_of_existing_pods,
            }
        case _SpreadArgs():
            if args.defaulting_type not in ("List", "System") or (args.default_constraints and args.defaulting_type == "System"):
                raise ConfigError(f"{where}.defaultingType must be List where defaultConstraints are given, else List or System")
            return {
                "default_constraints": args.default_constraints,
                "system_default_constraints": args.defaulting_type == "System",
            }
        case _PreemptionArgs():
            return {
                "min_candidate_nodes_percentage": args.min_candidate_nodes_percentage,
                "min_candidate_nodes_absolute": args.min_candidate_nodes_absolute,
            }
        case _DynamicResourcesArgs():
            return _dynamic(args, where, gates)
        case _:
            return {}


def _fit(args: _FitArgs, where: str) -> FitArgs:
    strategy = args.scoring_strategy
    if strategy.type not in STRATEGIES:
        raise ConfigError(f"{where}.scoringStrategy.type must be one of {', '.join(STRATEGIES)}, got {strategy.type!r}")
    shape = strategy.requested_to_capacity_ratio.shape if strategy.requested_to_capacity_ratio is not None else ()
    if strategy.type == "RequestedToCapacityRatio" and not shape:
        raise ConfigError(f"{where}.scoringStrategy.requestedToCapacityRatio.shape is required for RequestedToCapacityRatio")
    return FitArgs(
        strategy.type, strategy.resources, shape, frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)
    )


def _dynamic(args: _DynamicResourcesArgs, where: str, gates: Gates) -> dict[str, Any]:
    if args.device_scoring not in DEVICE_SCORING:
        raise ConfigError(f"{where}.deviceScoring must be one of {', '.join(DEVICE_SCORING)}, got {args.device_scoring!r}")
    found: dict[str, Any] = {"device_scoring": args.device_scoring}
    if args.filter_timeout is not None:
        if not gates("DRASchedulerFilterTimeout"):
            raise ConfigError(f"{where}.filterTimeout is set, but the feature gate DRASchedulerFilterTimeout is off")
        found["filter_timeout"] = _duration(args.filter_timeout, 0.0, f"{where}.filterTimeout")
    if args.binding_timeout is not None:
        if not gates("DRADeviceBindingConditions"):
            raise ConfigError(f"{where}.bindingTimeout is set, but the feature gate DRADeviceBindingConditions is off")
        found["binding_timeout"] = _duration(args.binding_timeout, 1.0, f"{where}.bindingTimeout")
    return found


def _duration(text: str, least: float, where: str) -> float:
    try:
        found = seconds(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    if found < least:
        raise ConfigError(f"{where} must be at least {least:g}s, got {text}")
    return found


def _convert(found: Any, shape: type[T], where: str) -> T:
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}".lstrip(": ")) from error
