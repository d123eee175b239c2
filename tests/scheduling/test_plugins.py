"""The seam for plugins: one module and one registration add a check, a score and a reason."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from scheduling_cluster import Sim

from dray.api.codes import CODES, CURABLE
from dray.api.codes.code import NODE, Code
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import NODES
from dray.books.nodes import NodeInfo
from dray.scheduling import configuration, plugin_arguments
from dray.scheduling.config import DEFAULT_PLUGINS, FILTERS, SCORES
from dray.scheduling.parts import Parts
from dray.scheduling.plugins import installed, registry
from dray.scheduling.plugins.base import Compiled, PodShape, Reasons, because

CODE = Code(plugins=("Quiet",), meaning="the node is noisy", wakes=(NODE,), subject="node", says="<is> noisy", cure="wait")


class Quiet:
    """As docs/plugins.md shows it: pods labelled quiet go to nodes without the label noisy, the emptiest first."""

    name = "Quiet"
    codes = {"NodeNoisy": CODE}

    def __init__(self, parts: Parts) -> None:
        self.asked = 0

    def sign(self, pod: Pod) -> bool:
        return "quiet" in pod.metadata.labels

    def compile(self, shape: PodShape) -> Compiled | None:
        if "quiet" not in shape.pod.metadata.labels:
            return None
        return Compiled(["node", "labels"], check=self._check, measure=lambda info: -len(info.pods), normalize="reverse")

    def _check(self, info: NodeInfo) -> Reasons | None:
        self.asked += 1
        return because("NodeNoisy") if "noisy" in info.node.metadata.labels else None


CONFIGURED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled:
      - {name: Quiet, weight: 100}
"""


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Sim:
    entry = EntryPoint("Quiet", f"{__name__}:Quiet", installed.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Quiet)
    for module in (registry, configuration, plugin_arguments):
        monkeypatch.setattr(module, "installed", lambda: {"Quiet": entry})
    monkeypatch.setitem(CODES, "NodeNoisy", CODE)
    return Sim(configuration.load(CONFIGURED, Gates.dray()))


def test_a_plugin_of_another_package_filters_tells_why_and_wakes(quiet: Sim) -> None:
    node = quiet.add_node("n1", labels={"noisy": "1"})
    quiet.add_pod("p", labels={"quiet": "1"})
    quiet.add_pod("other")
    quiet.settle(5)
    assert quiet.node_of("other") == "n1"
    assert "1 node is noisy" in quiet.condition("p")["message"]
    quiet.api.put(NODES, {**node, "metadata": {"name": "n1", "uid": node["metadata"]["uid"]}})
    quiet.settle(15)
    assert quiet.node_of("p") == "n1"


def test_its_score_counts_with_its_weight(quiet: Sim) -> None:
    for name in ("a", "b"):
        quiet.add_node(name)
    for number in range(4):
        quiet.add_pod(f"p{number}", labels={"quiet": "1"})
        quiet.settle(1)
    assert sorted(quiet.node_of(f"p{number}") for number in range(4)) == ["a", "a", "b", "b"]


def test_every_builtin_plugin_owns_its_codes(sim: Sim) -> None:
    known = {plugin.name: plugin for plugin in sim.scheduler.cycle.plugins}
    for name, plugin in known.items():
        assert set(plugin.codes) == {code for code, found in CODES.items() if name in found.plugins}
    assert {name for name, _ in DEFAULT_PLUGINS if name in FILTERS or name in SCORES} - {"NodeName"} <= set(known)
    assert {code for code, found in CODES.items() if found.curable} == CURABLE
