"""The seam for plugins: one module and one registration add a check, a score and a reason."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scheduling_cluster import Sim

from dray.api.codes import CODES, CURABLE
from dray.api.gates import Gates
from dray.api.kinds import NODES, PODS
from dray.explain.why import why
from dray.scheduling import configuration
from dray.scheduling.config import DEFAULT_PLUGINS, FILTERS, SCORES
from dray.scheduling.plugins import installed
from dray.scheduling.values import ConfigError

PAGE = Path(__file__).parents[2] / "docs/plugins.md"


def installed_beside(folder: Path, code: str, entry: str) -> None:
    """A package as pip puts it into a folder of the path."""
    metadata = folder / "quiet-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[{installed.GROUP}]\n{entry}\n")
    (folder / "quiet.py").write_text(code)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path has a folder more, and what comes in with it goes again."""
    monkeypatch.syspath_prepend(tmp_path)
    installed.installed.cache_clear()
    yield tmp_path
    installed.installed.cache_clear()
    sys.modules.pop("quiet", None)
    CODES.pop("NodeNoisy", None)


@pytest.fixture
def quiet(package: Path) -> Sim:
    """The package that docs/plugins.md shows, installed and configured as it says."""
    code, declared, configured = re.findall(r"^```(?:python|toml)?\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [(name, where)] = tomllib.loads(declared)["project"]["entry-points"][installed.GROUP].items()
    installed_beside(package, code, f"{name} = {where}")
    return Sim(configuration.load(configured, Gates.dray()))


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


def test_its_cure_is_told_by_dray_why_as_what_nobody_tried(quiet: Sim) -> None:
    quiet.add_node("n1", labels={"noisy": "1"})
    quiet.add_pod("p", labels={"quiet": "1"})
    quiet.settle(5)
    world = quiet.scheduler.world
    answer = why(world, world.get(PODS, "default/p"), now=quiet.now, config=quiet.scheduler.config)
    assert answer.fixes == ["take the label noisy from a node (not tried)"]


def test_its_score_counts_with_its_weight(quiet: Sim) -> None:
    for name in ("a", "b"):
        quiet.add_node(name)
    for number in range(4):
        quiet.add_pod(f"p{number}", labels={"quiet": "1"})
        quiet.settle(1)
    assert sorted(quiet.node_of(f"p{number}") for number in range(4)) == ["a", "a", "b", "b"]


def test_one_that_cannot_be_loaded_is_named_with_its_package(package: Path) -> None:
    installed_beside(package, "import nothing_of_this_name", "Quiet = quiet:Quiet")
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins:\n    score:\n"
    with pytest.raises(ConfigError, match=r"plugin 'Quiet' of quiet 0.1 cannot be loaded: ModuleNotFoundError: No module named"):
        configuration.load(text + "      enabled: [{name: Quiet}]\n", Gates.dray())


def test_every_builtin_plugin_owns_its_codes(sim: Sim) -> None:
    known = {plugin.name: plugin for plugin in sim.scheduler.cycle.plugins}
    for name, plugin in known.items():
        assert set(plugin.codes) == {code for code, found in CODES.items() if name in found.plugins}
    assert {name for name, _ in DEFAULT_PLUGINS if name in FILTERS or name in SCORES} - {"NodeName"} <= set(known)
    assert {code for code, found in CODES.items() if found.curable} == CURABLE
