"""A KubeSchedulerConfiguration is read strictly and merged as upstream merges it."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.gates import Gates
from dray.scheduling.config import FILTERS, Profile
from dray.scheduling.configuration import ConfigError, load, parse
from dray.scheduling.plugins.resources import ResourceWeight, Shape

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
    assert profile().device_scoring == "Ready"
    assert profile(pluginConfig=[{"name": "DrayDeviceScoring", "args": {"strategy": "Packing"}}]).device_scoring == "Packing"
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
