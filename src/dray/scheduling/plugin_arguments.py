"""What the arguments of plugins (``pluginConfig``) mean: each is checked as upstream does and becomes fields of a ``Profile``."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dray.api.core import NodeAffinity, TopologySpreadConstraint
from dray.api.gates import Gates
from dray.numa.scores import STRATEGIES as ZONE_STRATEGIES
from dray.scheduling.arguments import FitArgs, ResourceWeight, Shape, ZoneArgs
from dray.scheduling.config import DEFAULT_PLUGINS, Profile
from dray.scheduling.plugins.device_scoring import STRATEGIES
from dray.scheduling.plugins.installed import installed
from dray.scheduling.values import ConfigError, duration, listed, mapping

# Dray's own: arguments only, there is nothing to enable.
DEVICE_SCORING: Final = "DrayDeviceScoring"
_KNOWN: Final = frozenset(name for name, _ in DEFAULT_PLUGINS)
# What kube-scheduler writes where nobody set anything.
_DEFAULT_SHAPE: Final = [(0, 10), (100, 0)]


def known_plugin(name: Any, where: str) -> str:
    """The name of a plugin, one of Dray's or one that is installed beside it."""
    if isinstance(name, str) and name in _KNOWN:
        return name
    if not isinstance(name, str) or name not in installed():
        raise ConfigError(f"{where}: unknown plugin {name!r}; known: {', '.join(sorted((*_KNOWN, *installed())))}")
    try:
        installed()[name].load()
    except Exception as error:
        package = installed()[name].dist
        whose = f" of {package.name} {package.version}" if package is not None else ""
        raise ConfigError(f"{where}: plugin {name!r}{whose} cannot be loaded: {type(error).__name__}: {error}") from error
    return name


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
    # KAI's plugin arguments are all text.
    ignore_list: list[str] | str = []
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
    DEVICE_SCORING: _DeviceScoring,
}


def with_arguments(profile: Profile, raw: Any, where: str, gates: Gates) -> Profile:
    seen: set[str] = set()
    for index, entry in enumerate(listed(raw, where)):
        config = mapping(entry, f"{where}[{index}]", frozenset({"name", "args"}))
        name = config.get("name")
        if name != DEVICE_SCORING:
            name = known_plugin(name, f"{where}[{index}].name")
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
        ignored=_names(args.ignore_list),
        reconstruct=args.reconstruct_available in (True, "true"),
        wait=duration(args.placement_wait, f"{at}.placementWait"),
        strategy=strategy.type,
        weights=_resources(strategy.resources, f"{at}.scoringStrategy"),
        distances=strategy.distance_aware,
    )


def _names(listed: list[str] | str) -> frozenset[str]:
    """A list, or names with commas between them."""
    names = listed.split(",") if isinstance(listed, str) else listed
    return frozenset(filter(None, (name.strip() for name in names)))


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
