"""The operator of the placement exporter: there while NUMA scheduling is on, and as the manifests have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from dray.api.kinds import DAEMON_SETS, NAMESPACES
from dray.cli import root
from dray.cli.controllers import _numa_enabled
from dray.cluster.port import Write
from dray.controllers.exporter import APPLIED, NAME, NAMESPACE, ExporterOperator, Mode, Settings, daemon_set, plugin_enabled
from tests.simulated import Place

DEPLOY = Path(__file__).parents[2] / "deploy" / "overlays" / "exporter"


class Cluster:
    def __init__(self, mode: Mode, numa: bool) -> None:
        self.numa = numa
        self.place = Place()
        self.place.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        settings = Settings(mode)
        self.place.start("operator", ExporterOperator.kinds, lambda world: [ExporterOperator(world, settings, lambda: self.numa)])
        self.wait(5)

    def wait(self, seconds: float) -> None:
        self.place.shell.run(self.place.shell.elapsed + seconds)

    def daemon(self) -> Any:
        return self.place.core.get(DAEMON_SETS, f"{NAMESPACE}/{NAME}")


class TestWhenItIsDeployed:
    def test_o01_auto_without_numa_scheduling_deploys_nothing(self) -> None:
        cluster = Cluster("auto", numa=False)
        assert cluster.daemon() is None

    def test_o02_auto_with_numa_scheduling_deploys_it(self) -> None:
        cluster = Cluster("auto", numa=True)
        assert cluster.daemon()["spec"]["template"]["spec"]["serviceAccountName"] == NAME

    def test_o03_off_deploys_nothing_whatever_the_scheduler_does(self) -> None:
        assert Cluster("off", numa=True).daemon() is None

    def test_o04_on_deploys_it_whatever_the_scheduler_does(self) -> None:
        assert Cluster("on", numa=False).daemon() is not None

    def test_it_goes_when_numa_scheduling_is_turned_off(self) -> None:
        cluster = Cluster("auto", numa=True)
        cluster.numa = False
        cluster.wait(70)
        assert cluster.daemon() is None


class TestWhatIsThere:
    def test_comes_back_when_it_is_deleted(self) -> None:
        cluster = Cluster("on", numa=True)
        cluster.place.shell.user(Write("delete", DAEMON_SETS, NAMESPACE, NAME))
        cluster.wait(5)
        assert cluster.daemon() is not None

    def test_an_older_one_is_brought_up_to_date(self) -> None:
        cluster = Cluster("on", numa=True)
        old = {"metadata": {"annotations": {APPLIED: "old"}}, "spec": {"minReadySeconds": 0}}
        cluster.place.shell.user(Write("patch", DAEMON_SETS, NAMESPACE, NAME, old))
        cluster.wait(5)
        assert cluster.daemon()["metadata"]["annotations"][APPLIED] == daemon_set(Settings())["metadata"]["annotations"][APPLIED]

    def test_nothing_is_written_while_nothing_changes(self) -> None:
        cluster = Cluster("on", numa=True)
        version = cluster.daemon()["metadata"]["resourceVersion"]
        cluster.wait(600)
        assert cluster.daemon()["metadata"]["resourceVersion"] == version

    def test_a_daemon_set_of_somebody_else_is_left_alone(self) -> None:
        cluster = Cluster("off", numa=False)
        labels = {"app": "other"}
        containers = [{"name": "c", "image": "i"}]
        spec = {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        }
        cluster.place.create(DAEMON_SETS, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec}, NAMESPACE)
        cluster.wait(120)
        assert cluster.daemon() is not None


class TestTheSchedulersConfiguration:
    @pytest.mark.parametrize(
        ("plugins", "on"),
        [
            ({"multiPoint": {"enabled": [{"name": "numa"}]}}, True),
            ({"filter": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}, True),
            ({"multiPoint": {"enabled": [{"name": "NodeResourcesFit"}]}}, False),
            ({"multiPoint": {"disabled": [{"name": "numa"}]}}, False),
            ({}, False),
        ],
    )
    def test_turns_it_on_or_not(self, plugins: Any, on: bool, tmp_path: Path) -> None:
        configuration = {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "plugins": plugins}]}
        assert plugin_enabled(configuration) is on
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(configuration))
        assert _numa_enabled(file) is on

    def test_a_file_that_cannot_be_read_says_no(self, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("a: [")
        assert not _numa_enabled(tmp_path / "broken.yaml")
        assert not _numa_enabled(tmp_path / "missing.yaml")


class TestTheManifests:
    def test_are_what_the_operator_keeps(self) -> None:
        daemon = yaml.safe_load((DEPLOY / "exporter.yaml").read_text())
        wanted = daemon_set(Settings())
        assert daemon["spec"] == wanted["spec"]
        assert daemon["metadata"]["labels"] == wanted["metadata"]["labels"]

    def test_the_container_writes_nothing_on_the_node(self) -> None:
        pod = daemon_set(Settings())["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert all(mount["readOnly"] for mount in container["volumeMounts"])
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert "hostNetwork" not in pod

    def test_its_arguments_are_understood(self) -> None:
        (container,) = daemon_set(Settings())["spec"]["template"]["spec"]["containers"]
        name, *arguments = container["args"]
        command = root.get_command(click.Context(root), name)
        assert command is not None
        assert command.make_context(name, [*arguments, "--node=n1"]).params["node"] == "n1"


def test_an_unknown_controller_is_refused_with_the_known_ones() -> None:
    told = CliRunner().invoke(root, ["controllers", "--only", "exporters"])
    assert told.exit_code == 2
    assert "exporter" in told.output
