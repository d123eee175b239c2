"""Reads a ``KubeSchedulerConfiguration`` (kubescheduler.config.k8s.io/v1) into a ``Config``.

Strict, as upstream is: every field, plugin and argument that is not known, and every value that cannot be honoured, is an
error that names where it stands and what would be right. Plugins merge as upstream merges them: defaults without the disabled
ones, an enabled default keeps its place with its new weight, others follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
import yaml

from dray.api.core import NodeAffinity, TopologySpreadConstraint
from dray.api.gates import Gates
from dray.numa.scores import STRATEGIES as ZONE_STRATEGIES
from dray.scheduling.arguments import FitArgs, ResourceWeight, Shape, ZoneArgs
from dray.scheduling.config import DEFAULT_PLUGINS, FILTERS, SCORES, Config, LeaderElection, Profile
from dray.scheduling.plugins.device_scoring import STRATEGIES
from dray.scheduling.plugins.installed import installed

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

_TOP: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "parallelism",
        "leaderElection",
        "clientConnection",
        "healthzBindAddress",
        "metricsBindAddress",
        "enableProfiling",
        "enableContentionProfiling",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "profiles",
        "extenders",
        "delayCacheUntilActive",
    }
)
_PROFILE: Final = frozenset({"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"})
# Where plugins of upstream decide on groups of pods; there are none here, and none is known.
_OF_GROUPS: Final = ("placementGenerate", "placementScore", "podGroupPostFilter")
_POINTS: Final = (
    "multiPoint",
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    *_OF_GROUPS,
)
# Points at which a plugin can be switched on its own; at the others it goes with what it does here.
_OWN_POINTS: Final = ("multiPoint", "filter", "score", "postFilter")
_KNOWN: Final = frozenset(name for name, _ in DEFAULT_PLUGINS)
# Dray's own: arguments only, there is nothing to enable.
_DEVICE_SCORING: Final = "DrayDeviceScoring"
# Without these nothing would be scheduled at all.
_NEEDED: Final = ("PrioritySort", "DefaultBinder")


class ConfigError(ValueError):
    """The configuration cannot be used. Whoever wrote it must correct it; says where and how."""


def load(text: str, gates: Gates | None = None) -> Config:
    """A configuration from YAML or JSON."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the scheduler configuration is not YAML: {error}") from error
    return parse(document, gates)


def parse(document: Any, gates: Gates | None = None) -> Config:
    gates = gates or Gates.dray()
    top = _mapping(document, "the scheduler configuration", _TOP)
    if top.get("apiVersion") != API_VERSION or top.get("kind") != KIND:
        raise ConfigError(f"expected apiVersion {API_VERSION} and kind {KIND}, got {top.get('apiVersion')} {top.get('kind')}")
    if top.get("extenders"):
        raise ConfigError("extenders: scheduler extenders are not supported; remove them or use another scheduler for those pods")
    percentage = _percentage(top, "")
    profiles = _profiles(top.get("profiles"), percentage, gates)
    initial = _seconds(top, "podInitialBackoffSeconds", 1)
    longest = _seconds(top, "podMaxBackoffSeconds", 10)
    if initial <= 0 or longest < initial:
        raise ConfigError("podInitialBackoffSeconds must be above 0 and podMaxBackoffSeconds not below it")
    connection = _section(_ClientConnection, top.get("clientConnection"), "clientConnection")
    return Config(
        profiles=profiles,
        initial_backoff=float(initial),
        max_backoff=float(longest),
        leader_election=_leader_election(top.get("leaderElection")),
        kubeconfig=connection.kubeconfig,
        notices=(*_without_effect(top, connection), *_different_timeouts(profiles), *_different_zones(profiles)),
    )


# ------------------------------------------------------------------------------------------------ beyond the profiles


class _LeaderElection(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    leader_elect: bool = False
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "dray-scheduler"
    resource_namespace: str = "kube-system"


class _ClientConnection(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0
    burst: int = 0


Section = TypeVar("Section", _LeaderElection, _ClientConnection)


def _section(type: type[Section], raw: Any, where: str) -> Section:
    try:
        return msgspec.convert(raw or {}, type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error


def _leader_election(raw: Any) -> LeaderElection | None:
    found = _section(_LeaderElection, raw, "leaderElection")
    if not found.leader_elect:
        return None
    if found.resource_lock != "leases":
        raise ConfigError(f"leaderElection.resourceLock: must be leases, got {found.resource_lock!r}")
    return LeaderElection(
        found.resource_name,
        found.resource_namespace,
        duration(found.lease_duration, "leaderElection.leaseDuration"),
        duration(found.renew_deadline, "leaderElection.renewDeadline"),
        duration(found.retry_period, "leaderElection.retryPeriod"),
    )


# Settings of kube-scheduler that have nothing to act on here, and what to do instead.
_WITHOUT_EFFECT: Final = {
    "parallelism": "decisions are made one after the other; --writes-in-flight says how many writes overlap",
    "healthzBindAddress": "use --serve",
    "metricsBindAddress": "use --serve",
    "enableProfiling": "there is no profiling endpoint",
    "enableContentionProfiling": "there is no profiling endpoint",
    "delayCacheUntilActive": "a standby always keeps its picture warm, so that it takes over at once",
}


# What kube-scheduler writes where nobody set anything: nothing to tell about.
_UPSTREAM: Final = {"parallelism": 16, "enableProfiling": True, "enableContentionProfiling": True}
_DEFAULT_SHAPE: Final = [(0, 10), (100, 0)]


def _without_effect(top: Mapping[str, Any], connection: _ClientConnection) -> list[str]:
    told = (name for name in _WITHOUT_EFFECT if top.get(name) and top[name] != _UPSTREAM.get(name))
    notices = [f"{name} has no effect: {_WITHOUT_EFFECT[name]}" for name in told]
    if (connection.qps, connection.burst) not in ((0, 0), (50, 100)):
        notices.append("clientConnection.qps and burst have no effect: the API server's own limits are respected")
    if connection.content_type not in ("", "application/vnd.kubernetes.protobuf") or connection.accept_content_types:
        notices.append("clientConnection.contentType has no effect: JSON is spoken")
    return notices


def _different_timeouts(profiles: tuple[Profile, ...]) -> list[str]:
    timeouts = sorted({profile.filter_timeout for profile in profiles})
    if len(timeouts) < 2:
        return []
    longest = 0.0 if 0.0 in timeouts else timeouts[-1]
    return [f"filterTimeout differs between profiles: one allocator serves all, so {longest:g}s counts for each (0: no limit)"]


def _different_zones(profiles: tuple[Profile, ...]) -> list[str]:
    counted = {(p.zones.ignored, p.zones.reconstruct, p.zones.wait) for p in profiles if "NUMA" in p.filters}
    if len(counted) < 2:
        return []
    return [
        "ignoreList, reconstructAvailable and placementWait of NUMA differ between profiles: those of the first count for all"
    ]


def _profiles(raw: Any, percentage: int, gates: Gates) -> tuple[Profile, ...]:
    listed = _list(raw, "profiles") or [{}]
    profiles: list[Profile] = []
    for index, found in enumerate(listed):
        where = f"profiles[{index}]"
        profile = _mapping(found, where, _PROFILE)
        name = profile.get("schedulerName") or ("default-scheduler" if len(listed) == 1 else "")
        if not name:
            raise ConfigError(f"{where}.schedulerName: required when there is more than one profile")
        if any(other.scheduler_name == name for other in profiles):
            raise ConfigError(f"{where}.schedulerName: {name!r} is the name of another profile already")
        profiles.append(_profile(str(name), profile, where, percentage, gates))
    return tuple(profiles)


def _profile(name: str, raw: Mapping[str, Any], where: str, percentage: int, gates: Gates) -> Profile:
    plugins = _mapping(raw.get("plugins") or {}, f"{where}.plugins", frozenset(_POINTS))
    settings = {point: _point(plugins.get(point), f"{where}.plugins.{point}", point) for point in _POINTS}
    merged = _merge(dict(DEFAULT_PLUGINS), *settings["multiPoint"])
    for needed in _NEEDED:
        if needed not in merged:
            raise ConfigError(f"{where}.plugins: {needed} cannot be disabled, there is no other plugin for its part")
    others = installed()
    filtering = {each: 0 for each in merged if each in FILTERS or each in others}
    scoring = {each: weight for each, weight in merged.items() if each in SCORES or each in others}
    filters = _merge(filtering, *settings["filter"], first=True)
    scores = _merge(scoring, *settings["score"], first=True)
    post = _merge({each: 0 for each in merged if each == "DefaultPreemption"}, *settings["postFilter"])
    own = _percentage(raw, f"{where}.")
    base = Profile(
        scheduler_name=name,
        filters=tuple(filters),
        scores=tuple((each, weight or 1) for each, weight in scores.items()),
        preempts="DefaultPreemption" in post,
        percentage_of_nodes_to_score=own or percentage,
    )
    return _with_arguments(base, raw.get("pluginConfig"), f"{where}.pluginConfig", gates)


# ---------------------------------------------------------------------------------------------------------- plugin sets

Enabled = list[tuple[str, int]]


def _point(raw: Any, where: str, point: str) -> tuple[Enabled, set[str]]:
    found = _mapping(raw or {}, where, frozenset({"enabled", "disabled"}))
    enabled: Enabled = []
    for index, entry in enumerate(_list(found.get("enabled"), f"{where}.enabled")):
        plugin = _mapping(entry, f"{where}.enabled[{index}]", frozenset({"name", "weight"}))
        enabled.append(
            (_known(plugin.get("name"), f"{where}.enabled[{index}].name"), _weight(plugin, f"{where}.enabled[{index}]"))
        )
    disabled = set()
    for index, entry in enumerate(_list(found.get("disabled"), f"{where}.disabled")):
        plugin = _mapping(entry, f"{where}.disabled[{index}]", frozenset({"name", "weight"}))
        name = plugin.get("name")
        disabled.add("*" if name == "*" else _known(name, f"{where}.disabled[{index}].name"))
    if point not in _OWN_POINTS and disabled - {"*"} - {name for name, _ in enabled}:
        raise ConfigError(f"{where}.disabled: a plugin is switched off as a whole; list it under multiPoint.disabled instead")
    if point in _OF_GROUPS and enabled:
        raise ConfigError(f"{where}.enabled: there are no plugins for groups of pods here")
    if point == "filter":
        _only(enabled, (*FILTERS, *installed()), where)
    if point == "score":
        _only(enabled, (*SCORES, *installed()), where)
    return enabled, disabled


def _weight(plugin: Mapping[str, Any], where: str) -> int:
    weight = plugin.get("weight") or 0
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        raise ConfigError(f"{where}.weight: must be a whole number, 1 or more, got {weight!r}")
    return weight


def _only(enabled: Enabled, possible: tuple[str, ...], where: str) -> None:
    for name, _ in enabled:
        if name not in possible:
            raise ConfigError(f"{where}.enabled: {name} has no part here; possible: {', '.join(possible)}")


def _known(name: Any, where: str) -> str:
    if name not in _KNOWN and name not in installed():
        raise ConfigError(f"{where}: unknown plugin {name!r}; known: {', '.join(sorted((*_KNOWN, *installed())))}")
    return str(name)


def _merge(defaults: dict[str, int], enabled: Enabled, disabled: set[str], *, first: bool = False) -> dict[str, int]:
    """``first``: what a single point enables beyond the defaults runs before them, as upstream orders it."""
    kept = {name: weight for name, weight in defaults.items() if "*" not in disabled and name not in disabled}
    added: dict[str, int] = {}
    for name, weight in enabled:
        if name in kept:
            kept[name] = weight or kept[name]
        else:
            added[name] = weight or dict(DEFAULT_PLUGINS).get(name, 1)
    return {**added, **kept} if first else {**kept, **added}


# ------------------------------------------------------------------------------------------------------------ arguments


class _Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str = ""
    kind: str = ""


class _DynamicResources(_Args):
    filter_timeout: str | None = None
    binding_timeout: str | None = None


class _Resource(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    weight: int = 1


class _ShapePoint(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    utilization: int
    score: int


class _Ratio(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    shape: list[_ShapePoint] = []


class _Strategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    type: str = "LeastAllocated"
    resources: list[_Resource] | None = None
    requested_to_capacity_ratio: _Ratio | None = None


class _Fit(_Args):
    ignored_resources: list[str] = []
    ignored_resource_groups: list[str] = []
    scoring_strategy: _Strategy | None = None


class _Balanced(_Args):
    resources: list[_Resource] | None = None


class _NodeAffinity(_Args):
    added_affinity: NodeAffinity | None = None


class _InterPodAffinity(_Args):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _Spread(_Args):
    default_constraints: list[TopologySpreadConstraint] = []
    defaulting_type: str = "System"


class _Preemption(_Args):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class _DeviceScoring(_Args):
    strategy: str = "Ready"


class _ZoneScoring(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    type: str = "LeastNUMANodes"
    resources: list[_Resource] | None = None
    distance_aware: bool = False


class _Zones(_Args):
    ignore_list: list[str] = []
    # KAI's plugin arguments are all text.
    reconstruct_available: bool | str = True
    placement_wait: str = "10s"
    scoring_strategy: _ZoneScoring | None = None


class _VolumeBinding(_Args):
    bind_timeout_seconds: int = 600
    shape: list[_ShapePoint] = []


_ARGUMENTS: Final[dict[str, type[_Args]]] = {
    "DynamicResources": _DynamicResources,
    "NodeResourcesFit": _Fit,
    "NodeResourcesBalancedAllocation": _Balanced,
    "NodeAffinity": _NodeAffinity,
    "InterPodAffinity": _InterPodAffinity,
    "PodTopologySpread": _Spread,
    "DefaultPreemption": _Preemption,
    "VolumeBinding": _VolumeBinding,
    "NUMA": _Zones,
    _DEVICE_SCORING: _DeviceScoring,
}


def _with_arguments(profile: Profile, raw: Any, where: str, gates: Gates) -> Profile:
    seen: set[str] = set()
    for index, entry in enumerate(_list(raw, where)):
        config = _mapping(entry, f"{where}[{index}]", frozenset({"name", "args"}))
        name = config.get("name")
        if name != _DEVICE_SCORING:
            name = _known(name, f"{where}[{index}].name")
        if name in seen:
            raise ConfigError(f"{where}[{index}].name: {name} has arguments already")
        seen.add(name)
        if name not in _ARGUMENTS:
            raise ConfigError(f"{where}[{index}]: {name} takes no arguments")
        at = f"{where}[{index}].args"
        try:
            args = msgspec.convert(config.get("args") or {}, _ARGUMENTS[name])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{at} of {name}: {error}") from error
        if args.kind not in ("", f"{name}Args"):
            raise ConfigError(f"{at}.kind: expected {name}Args, got {args.kind!r}")
        profile = msgspec.structs.replace(profile, **_values(args, at, gates))
    return profile


def _values(args: _Args, at: str, gates: Gates) -> dict[str, Any]:
    match args:
        case _DynamicResources():
            return _dynamic_resources(args, at, gates)
        case _Fit():
            return {"fit": _fit(args, at)}
        case _Balanced():
            return {"balanced": _resources(args.resources, at)} if args.resources else {}
        case _NodeAffinity():
            return {"added_affinity": args.added_affinity or NodeAffinity()}
        case _InterPodAffinity():
            if not 0 <= args.hard_pod_affinity_weight <= 100:
                raise ConfigError(f"{at}.hardPodAffinityWeight: must be between 0 and 100")
            return {
                "hard_pod_affinity_weight": args.hard_pod_affinity_weight,
                "ignore_preferred_terms_of_existing_pods": args.ignore_preferred_terms_of_existing_pods,
            }
        case _Spread():
            return {"default_spread": _default_spread(args, at)}
        case _VolumeBinding():
            shape = [(point.utilization, point.score) for point in args.shape]
            if (shape and shape != _DEFAULT_SHAPE) or args.bind_timeout_seconds < 0:
                raise ConfigError(f"{at}: only bindTimeoutSeconds, 0 or more, and the default shape are supported")
            return {"volume_timeout": float(args.bind_timeout_seconds)}
        case _Zones():
            return {"zones": _zones(args, at)}
        case _DeviceScoring():
            if args.strategy not in STRATEGIES:
                raise ConfigError(f"{at}.strategy: unknown strategy {args.strategy!r}; known: {', '.join(STRATEGIES)}")
            return {"device_scoring": args.strategy}
        case _Preemption():
            percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
            if not 0 <= percentage <= 100 or absolute < 0 or not (percentage or absolute):
                raise ConfigError(
                    f"{at}: minCandidateNodesPercentage must be 0..100, minCandidateNodesAbsolute 0 or more, one of them above 0"
                )
            return {
                "min_candidate_nodes_percentage": args.min_candidate_nodes_percentage,
                "min_candidate_nodes_absolute": args.min_candidate_nodes_absolute,
            }
        case _:
            return {}


def _dynamic_resources(args: _DynamicResources, at: str, gates: Gates) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if args.filter_timeout is not None:
        _needs(gates, "DRASchedulerFilterTimeout", f"{at}.filterTimeout")
        values["filter_timeout"] = duration(args.filter_timeout, f"{at}.filterTimeout")
    if args.binding_timeout is not None:
        _needs(gates, "DRADeviceBindingConditions", f"{at}.bindingTimeout")
        values["binding_timeout"] = duration(args.binding_timeout, f"{at}.bindingTimeout")
        if values["binding_timeout"] < 1:
            raise ConfigError(f"{at}.bindingTimeout: must be at least 1s, got {args.binding_timeout}")
    return values


def _zones(args: _Zones, at: str) -> ZoneArgs:
    strategy = args.scoring_strategy or _ZoneScoring()
    known = ("LeastNUMANodes", *ZONE_STRATEGIES)
    if strategy.type not in known:
        raise ConfigError(f"{at}.scoringStrategy.type: unknown strategy {strategy.type!r}; known: {', '.join(known)}")
    if args.reconstruct_available not in (True, False, "true", "false"):
        raise ConfigError(f"{at}.reconstructAvailable: must be true or false, got {args.reconstruct_available!r}")
    return ZoneArgs(
        ignored=frozenset(args.ignore_list),
        reconstruct=args.reconstruct_available in (True, "true"),
        wait=duration(args.placement_wait, f"{at}.placementWait"),
        strategy=strategy.type,
        weights=_resources(strategy.resources, f"{at}.scoringStrategy"),
        distances=strategy.distance_aware,
    )


def _needs(gates: Gates, gate: str, where: str) -> None:
    if not gates(gate):
        raise ConfigError(f"{where}: cannot be set while the feature gate {gate} is off")


def _fit(args: _Fit, at: str) -> FitArgs:
    strategy = args.scoring_strategy or _Strategy()
    where = f"{at}.scoringStrategy"
    if strategy.type not in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"):
        raise ConfigError(
            f"{where}.type: unknown strategy {strategy.type!r}; known: LeastAllocated, MostAllocated, RequestedToCapacityRatio"
        )
    shape: tuple[Shape, ...] = ()
    if strategy.type == "RequestedToCapacityRatio":
        ratio = strategy.requested_to_capacity_ratio
        if ratio is None or not ratio.shape:
            raise ConfigError(f"{where}.requestedToCapacityRatio.shape: at least one point is required")
        shape = tuple(Shape(point.utilization, point.score) for point in ratio.shape)
        _check_shape(shape, f"{where}.requestedToCapacityRatio.shape")
    made = FitArgs(
        strategy=strategy.type,
        shape=shape,
        ignored_resources=frozenset(args.ignored_resources),
        ignored_groups=frozenset(args.ignored_resource_groups),
    )
    return msgspec.structs.replace(made, resources=_resources(strategy.resources, where)) if strategy.resources else made


def _check_shape(shape: tuple[Shape, ...], where: str) -> None:
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100 or not 0 <= point.score <= 10:
            raise ConfigError(f"{where}[{index}]: utilization must be 0..100 and score 0..10")
        if index and shape[index - 1].utilization >= point.utilization:
            raise ConfigError(f"{where}[{index}].utilization: must be above the one before")


def _resources(raw: list[_Resource] | None, where: str) -> tuple[ResourceWeight, ...]:
    found = tuple(ResourceWeight(resource.name, resource.weight or 1) for resource in raw or ())
    for index, resource in enumerate(found):
        if not 1 <= resource.weight <= 100:
            raise ConfigError(f"{where}.resources[{index}].weight: must be between 1 and 100")
    return found


def _default_spread(args: _Spread, at: str) -> tuple[TopologySpreadConstraint, ...] | None:
    if args.defaulting_type not in ("System", "List"):
        raise ConfigError(f"{at}.defaultingType: must be System or List, got {args.defaulting_type!r}")
    if args.defaulting_type == "System":
        if args.default_constraints:
            raise ConfigError(f"{at}.defaultConstraints: needs defaultingType List; System has constraints of its own")
        return None
    for index, constraint in enumerate(args.default_constraints):
        _check_constraint(constraint, f"{at}.defaultConstraints[{index}]")
    return tuple(args.default_constraints)


def _check_constraint(constraint: TopologySpreadConstraint, where: str) -> None:
    if constraint.max_skew < 1:
        raise ConfigError(f"{where}.maxSkew: must be 1 or more, got {constraint.max_skew}")
    if not constraint.topology_key:
        raise ConfigError(f"{where}.topologyKey: is required")
    if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        raise ConfigError(
            f"{where}.whenUnsatisfiable: must be DoNotSchedule or ScheduleAnyway, got {constraint.when_unsatisfiable!r}"
        )
    if constraint.label_selector is not None:
        raise ConfigError(f"{where}.labelSelector: must be empty; services and workloads say which pods belong together")


# ------------------------------------------------------------------------------------------------------------- values

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str, where: str) -> float:
    """Seconds of a Go duration: ``600s``, ``1h30m``."""
    parts = _DURATION.findall(text)
    if text == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"{where}: {text!r} is not a duration such as 600s or 10m")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def _mapping(value: Any, where: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a mapping, got {type(value).__name__}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where}: expected a list, got {type(value).__name__}")
    return value


def _seconds(top: Mapping[str, Any], name: str, default: int) -> int:
    value = top.get(name, default)
    if not isinstance(value, int):
        raise ConfigError(f"{name}: expected a number of seconds, got {value!r}")
    return value


def _percentage(raw: Mapping[str, Any], where: str) -> int:
    value = raw.get("percentageOfNodesToScore") or 0
    if not isinstance(value, int) or not 0 <= value <= 100:
        raise ConfigError(f"{where}percentageOfNodesToScore: must be between 0 and 100, got {value!r}")
    return value
