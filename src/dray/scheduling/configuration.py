"""Reads a ``KubeSchedulerConfiguration`` (kubescheduler.config.k8s.io/v1) into a ``Config``.

Strict, as upstream is: every field, plugin and argument that is not known, and every value that cannot be honoured, is an
error that names where it stands and what would be right. Plugins merge as upstream merges them: defaults without the disabled
ones, an enabled default keeps its place with its new weight, others follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
import yaml

from dray.api import yaml_text
from dray.api.gates import Gates
from dray.scheduling.config import DEFAULT_PLUGINS, FILTERS, SCORES, Config, LeaderElection, Profile
from dray.scheduling.plugin_arguments import known_plugin, with_arguments
from dray.scheduling.plugins.installed import installed
from dray.scheduling.values import ConfigError, duration, listed, mapping, percentage_of_nodes, seconds_of

__all__ = ["API_VERSION", "KIND", "ConfigError", "load", "parse"]

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
# Without these nothing would be scheduled at all.
_NEEDED: Final = ("PrioritySort", "DefaultBinder")


def load(text: str, gates: Gates | None = None) -> Config:
    """A configuration from YAML or JSON."""
    try:
        document = yaml_text.document(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the scheduler configuration {yaml_text.unreadable(error)}") from error
    return parse(document, gates)


def parse(document: Any, gates: Gates | None = None) -> Config:
    gates = gates or Gates.dray()
    top = mapping(document, "the scheduler configuration", _TOP)
    if top.get("apiVersion") != API_VERSION or top.get("kind") != KIND:
        raise ConfigError(f"expected apiVersion {API_VERSION} and kind {KIND}, got {top.get('apiVersion')} {top.get('kind')}")
    if top.get("extenders"):
        raise ConfigError("extenders: scheduler extenders are not supported; remove them or use another scheduler for those pods")
    percentage = percentage_of_nodes(top, "")
    profiles = _profiles(top.get("profiles"), percentage, gates)
    initial = seconds_of(top, "podInitialBackoffSeconds", 1)
    longest = seconds_of(top, "podMaxBackoffSeconds", 10)
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
    entries = listed(raw, "profiles") or [{}]
    profiles: list[Profile] = []
    for index, found in enumerate(entries):
        where = f"profiles[{index}]"
        profile = mapping(found, where, _PROFILE)
        name = profile.get("schedulerName") or ("default-scheduler" if len(entries) == 1 else "")
        if not name:
            raise ConfigError(f"{where}.schedulerName: required when there is more than one profile")
        if any(other.scheduler_name == name for other in profiles):
            raise ConfigError(f"{where}.schedulerName: {name!r} is the name of another profile already")
        profiles.append(_profile(str(name), profile, where, percentage, gates))
    return tuple(profiles)


def _profile(name: str, raw: Mapping[str, Any], where: str, percentage: int, gates: Gates) -> Profile:
    plugins = mapping(raw.get("plugins") or {}, f"{where}.plugins", frozenset(_POINTS))
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
    own = percentage_of_nodes(raw, f"{where}.")
    base = Profile(
        scheduler_name=name,
        filters=tuple(filters),
        scores=tuple((each, weight or 1) for each, weight in scores.items()),
        preempts="DefaultPreemption" in post,
        percentage_of_nodes_to_score=own or percentage,
    )
    return with_arguments(base, raw.get("pluginConfig"), f"{where}.pluginConfig", gates)


# ---------------------------------------------------------------------------------------------------------- plugin sets

Enabled = list[tuple[str, int]]


def _point(raw: Any, where: str, point: str) -> tuple[Enabled, set[str]]:
    found = mapping(raw or {}, where, frozenset({"enabled", "disabled"}))
    enabled: Enabled = []
    for index, entry in enumerate(listed(found.get("enabled"), f"{where}.enabled")):
        plugin = mapping(entry, f"{where}.enabled[{index}]", frozenset({"name", "weight"}))
        enabled.append(
            (known_plugin(plugin.get("name"), f"{where}.enabled[{index}].name"), _weight(plugin, f"{where}.enabled[{index}]"))
        )
    disabled = set()
    for index, entry in enumerate(listed(found.get("disabled"), f"{where}.disabled")):
        plugin = mapping(entry, f"{where}.disabled[{index}]", frozenset({"name", "weight"}))
        name = plugin.get("name")
        disabled.add("*" if name == "*" else known_plugin(name, f"{where}.disabled[{index}].name"))
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
