"""A KubeSchedulerConfiguration is read strictly and merged as upstream merges it."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api.gates import Gates
from dray.scheduling.arguments import ResourceWeight, Shape
from dray.scheduling.config import FILTERS, LeaderElection, Profile
from dray.scheduling.configuration import ConfigError, load, parse

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def profile(**raw: Any) -> Profile:
    return parse({**HEAD, "profiles": [raw]}).profiles[0]


def test_nothing_said_is_upstreams_default() -> None:
    made = parse(HEAD).profiles[0]
    assert made.scheduler_name == "default-scheduler"
    assert made.filters == FILTERS
    assert dict(made.scores)["TaintToleration"] == 3
    assert dict(made.scores)["DynamicResources"] == 2
    assert (made.binding_timeout, made.filter_timeout) == (600.0, 10.0)


def test_yaml_is_read() -> None:
    config = load(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 2
profiles:
- schedulerName: dray
  pluginConfig:
  - name: DynamicResources
    args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: DynamicResourcesArgs, bindingTimeout: 1m30s, filterTimeout: 0s}
"""
    )
    assert config.initial_backoff == 2.0
    assert (config.profiles[0].binding_timeout, config.profiles[0].filter_timeout) == (90.0, 0.0)


def test_a_disabled_plugin_neither_filters_nor_scores() -> None:
    made = profile(plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}})
    assert "TaintToleration" not in made.filters
    assert "TaintToleration" not in dict(made.scores)


def test_an_enabled_default_keeps_its_place_with_its_new_weight() -> None:
    before = [name for name, _ in profile().scores]
    made = profile(plugins={"multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 7}]}})
    assert [name for name, _ in made.scores] == before
    assert dict(made.scores)["NodeAffinity"] == 7


def test_everything_disabled_leaves_what_is_enabled() -> None:
    enabled = [{"name": name} for name in ("PrioritySort", "NodeResourcesFit", "DefaultBinder")]
    made = profile(plugins={"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}})
    assert made.filters == ("NodeResourcesFit",)
    assert made.scores == (("NodeResourcesFit", 1),)
    assert made.preempts is False


def test_a_score_is_disabled_without_its_filter() -> None:
    made = profile(plugins={"score": {"disabled": [{"name": "NodeResourcesFit"}]}})
    assert "NodeResourcesFit" in made.filters
    assert "NodeResourcesFit" not in dict(made.scores)


def test_fit_strategies() -> None:
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "example.com/gpu", "weight": 5}],
        "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
    }
    fit = profile(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]).fit
    assert fit.strategy == "RequestedToCapacityRatio"
    assert fit.resources == (ResourceWeight("example.com/gpu", 5),)
    assert fit.shape == (Shape(0, 0), Shape(100, 10))


def test_the_strategy_for_devices_is_chosen_by_drays_own_arguments() -> None:
    assert profile().device_scoring == "Packing"
    assert profile(pluginConfig=[{"name": "DrayDeviceScoring", "args": {"strategy": "Upstream"}}]).device_scoring == "Upstream"
    with pytest.raises(ConfigError, match="Upstream, Ready, Packing"):
        profile(pluginConfig=[{"name": "DrayDeviceScoring", "args": {"strategy": "Random"}}])


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"kind": "KubeSchedulerConfiguration"}, "apiVersion"),
        ({**HEAD, "profilez": []}, "unknown field 'profilez'"),
        ({**HEAD, "extenders": [{"urlPrefix": "x"}]}, "extenders"),
        ({**HEAD, "percentageOfNodesToScore": 101}, "percentageOfNodesToScore"),
        ({**HEAD, "podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds"),
        ({**HEAD, "profiles": [{"schedulerName": "a"}, {}]}, r"profiles\[1\].schedulerName"),
        ({**HEAD, "profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}, "another profile"),
        ({**HEAD, "profiles": [{"plugins": {"filter": {"enabled": [{"name": "Fancy"}]}}}]}, "unknown plugin 'Fancy'"),
        ({**HEAD, "profiles": [{"plugins": {"filtr": {}}}]}, "unknown field 'filtr'"),
        ({**HEAD, "profiles": [{"plugins": {"reserve": {"disabled": [{"name": "DynamicResources"}]}}}]}, "multiPoint"),
        ({**HEAD, "profiles": [{"plugins": {"score": {"enabled": [{"name": "NodePorts"}]}}}]}, "NodePorts has no part here"),
        ({**HEAD, "profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "DefaultBinder"}]}}}]}, "DefaultBinder"),
        ({**HEAD, "profiles": [{"pluginConfig": [{"name": "NodePorts", "args": {}}]}]}, "takes no arguments"),
        ({**HEAD, "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"x": 1}}]}]}, "x"),
        ({**HEAD, "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "500ms"}}]}]}, "1s"),
        ({**HEAD, "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "10x"}}]}]}, "duration"),
        (
            {**HEAD, "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultConstraints": [{}]}}]}]},
            "defaultConstraints: needs defaultingType List",
        ),
        ([], "mapping"),
        (
            {**HEAD, "profiles": [{"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": "much"}]}}}]},
            r"score.enabled\[0\].weight: must be a whole number",
        ),
        ({**HEAD, "leaderElection": {"leaderElect": True, "resourceLock": "endpoints"}}, "resourceLock: must be leases"),
        ({**HEAD, "leaderElection": {"leaderElects": True}}, "leaderElection: .*leaderElects"),
        ({**HEAD, "leaderElection": {"leaderElect": True, "leaseDuration": "long"}}, "leaseDuration: 'long' is not a duration"),
        ({**HEAD, "clientConnection": {"qps": "fast"}}, "clientConnection: "),
        (
            {
                **HEAD,
                "profiles": [{"pluginConfig": [{"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 101}}]}],
            },
            "minCandidateNodesPercentage must be 0..100",
        ),
    ],
)
def test_what_cannot_be_used_is_named(document: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(document)


def test_an_argument_of_a_gate_that_is_off_is_an_error() -> None:
    off = Gates.dray().updated({"DRADeviceBindingConditions": False})
    document = {**HEAD, "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "60s"}}]}]}
    with pytest.raises(ConfigError, match="DRADeviceBindingConditions"):
        parse(document, off)


def test_an_election_is_held_as_the_configuration_says() -> None:
    assert parse(HEAD).leader_election is None
    said = parse({**HEAD, "leaderElection": {"leaderElect": True, "leaseDuration": "30s", "resourceNamespace": "dray-system"}})
    assert said.leader_election == LeaderElection("dray-scheduler", "dray-system", 30.0, 10.0, 2.0)


def test_settings_that_change_nothing_are_told() -> None:
    connection = {"kubeconfig": "/etc/kubeconfig", "qps": 5000, "burst": 10000}
    config = parse({**HEAD, "parallelism": 32, "clientConnection": connection, "enableProfiling": False})
    assert config.kubeconfig == "/etc/kubeconfig"
    assert [notice.split(" ")[0] for notice in config.notices] == ["parallelism", "clientConnection.qps"]
    assert parse(HEAD).notices == ()


def timeouts(*seconds: str) -> list[dict[str, Any]]:
    return [
        {"schedulerName": f"s{index}", "pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": each}}]}
        for index, each in enumerate(seconds)
    ]


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [(["10s"], 20_000), (["1s"], 2_000), (["1ns"], 1), (["24h"], 1_000_000), (["0"], 1_000_000), (["1s", "5s"], 10_000)],
)
def test_the_filter_timeout_is_a_number_of_steps(seconds: list[str], steps: int) -> None:
    config = parse({**HEAD, "profiles": timeouts(*seconds)})
    assert config.search_budget == steps
    assert bool(config.notices) == (len(seconds) > 1)


def test_a_short_filter_timeout_ends_a_long_search_and_the_node_says_so() -> None:
    for seconds, node in (("10s", "n1"), ("1ms", "")):
        sim = Sim(parse({**HEAD, "profiles": [{**timeouts(seconds)[0], "schedulerName": "default-scheduler"}]}))
        sim.add_class()
        sim.add_node("n1")
        sim.add_slice("n1", 8)
        sim.add_claim("c", count=8)
        sim.add_pod("p", claims=["c"])
        sim.settle()
        assert sim.node_of("p") == node
    assert "decide in 2 steps" in sim.condition("p")["message"]


WRITTEN_BY_KUBE_SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {acceptContentTypes: "", burst: 100, contentType: application/vnd.kubernetes.protobuf, kubeconfig: "", qps: 50}
enableContentionProfiling: true
enableProfiling: true
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, resourceLock: leases,
                 resourceName: kube-scheduler, resourceNamespace: kube-system, retryPeriod: 2s}
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: VolumeBindingArgs, bindTimeoutSeconds: 600,
           shape: [{score: 10, utilization: 0}, {score: 0, utilization: 100}]}
    name: VolumeBinding
  plugins:
    bind: {}
    multiPoint:
      enabled:
      - {name: SchedulingGates, weight: 0}
      - {name: PrioritySort, weight: 0}
      - {name: NodeResourcesFit, weight: 1}
      - {name: DefaultBinder, weight: 0}
      - {name: NodeDeclaredFeatures, weight: 0}
    placementGenerate: {}
    placementScore: {}
    podGroupPostFilter: {}
  schedulerName: default-scheduler
"""


def test_what_kube_scheduler_writes_loads_quietly() -> None:
    found = load(WRITTEN_BY_KUBE_SCHEDULER, Gates.dray())
    assert found.notices == ()
    assert found.profiles[0].scheduler_name == "default-scheduler"


def test_what_differs_from_what_kube_scheduler_writes_is_told() -> None:
    (told,) = load(WRITTEN_BY_KUBE_SCHEDULER.replace("parallelism: 16", "parallelism: 32"), Gates.dray()).notices
    assert told.startswith("parallelism has no effect")
