"""The operator of the placement exporter: there while nodes have zones that a scheduler looks at, as the manifests have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from dray.api.kinds import DAEMON_SETS, NAMESPACES, NODE_RESOURCE_TOPOLOGIES
from dray.cli import root
from dray.cli.controllers import _numa_enabled
from dray.cluster.port import Write
from dray.controllers.exporter import APPLIED, NAME, NAMESPACE, ExporterOperator, Mode, Settings, daemon_set
from tests.simulated import Place

DEPLOY = Path(__file__).parents[2] / "deploy" / "overlays" / "exporter"


class Cluster:
    def __init__(self, mode: Mode, numa: bool | None, zones: bool = True) -> None:
        self.numa = numa
        self.place = Place()
        self.place.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        if zones:
            self.publish()
        settings = Settings(mode)
        self.place.start("operator", ExporterOperator.kinds, lambda world: [ExporterOperator(world, settings, lambda: self.numa)])
        self.wait(5)

    def publish(self) -> None:
        self.place.create(NODE_RESOURCE_TOPOLOGIES, {"metadata": {"name": "n1"}, "zones": [{"name": "node-0", "type": "Node"}]})

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

    def test_auto_leaves_everything_as_it_is_while_nobody_knows_whether_the_plugin_is_on(self) -> None:
        cluster = Cluster("auto", numa=None)
        cluster.wait(70)
        assert cluster.daemon() is None
        cluster.numa = True
        cluster.wait(70)
        cluster.numa = None
        cluster.wait(70)
        assert cluster.daemon() is not None

    def test_auto_deploys_nothing_where_no_node_publishes_zones_although_the_plugin_is_a_default(self) -> None:
        cluster = Cluster("auto", numa=True, zones=False)
        cluster.wait(120)
        assert cluster.daemon() is None

    def test_auto_deploys_it_as_soon_as_a_node_publishes_zones_and_not_longer(self) -> None:
        cluster = Cluster("auto", numa=True, zones=False)
        cluster.publish()
        cluster.wait(5)
        assert cluster.daemon() is not None
        cluster.place.shell.user(Write("delete", NODE_RESOURCE_TOPOLOGIES, "", "n1"))
        cluster.wait(5)
        assert cluster.daemon() is None

    def test_on_deploys_it_where_no_node_publishes_zones_yet(self) -> None:
        assert Cluster("on", numa=True, zones=False).daemon() is not None


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


REQUIRED = [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]


class TestTheSchedulersConfiguration:
    @pytest.mark.parametrize(
        ("plugins", "on"),
        [
            ({}, True),
            ({"multiPoint": {"enabled": [{"name": "NodeResourcesFit"}]}}, True),
            ({"multiPoint": {"disabled": [{"name": "NUMA"}]}}, False),
            ({"multiPoint": {"disabled": [{"name": "*"}], "enabled": REQUIRED}}, False),
            ({"multiPoint": {"disabled": [{"name": "*"}], "enabled": [*REQUIRED, {"name": "NUMA"}]}}, True),
            ({"filter": {"disabled": [{"name": "NUMA"}]}}, True),
            ({"filter": {"disabled": [{"name": "NUMA"}]}, "score": {"disabled": [{"name": "NUMA"}]}}, False),
        ],
    )
    def test_says_whether_zones_are_looked_at_as_the_scheduler_understands_it(
        self, plugins: Any, on: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert _numa_enabled(written(tmp_path, {"schedulerName": "a", "plugins": plugins})) is on
        assert not caplog.records

    def test_one_profile_that_looks_at_zones_is_enough(self, tmp_path: Path) -> None:
        without = {"multiPoint": {"disabled": [{"name": "NUMA"}]}}
        assert _numa_enabled(written(tmp_path, {"schedulerName": "a", "plugins": without}, {"schedulerName": "b"}))

    def test_without_one_the_defaults_count_which_look_at_zones(self) -> None:
        assert _numa_enabled(None)

    def test_a_file_that_cannot_be_read_says_nothing_and_that_is_told(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "broken.yaml").write_text("a: [")
        (tmp_path / "another.yaml").write_text("kind: Pod")
        (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
        (tmp_path / "deep.yaml").write_text("a: " + "[" * 9000 + "]" * 9000)
        (tmp_path / "number.yaml").write_text("a: !!int x")
        for name in ("broken", "another", "bytes", "deep", "number", "missing"):
            caplog.clear()
            assert _numa_enabled(tmp_path / f"{name}.yaml") is None
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            assert "stays as it is" in caplog.text

    def test_one_that_cannot_be_read_at_the_start_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("a: [")
        for name in ("broken", "missing"):
            told = CliRunner().invoke(root, ["controllers", "--only=exporter", f"--scheduler-config={tmp_path}/{name}.yaml"])
            assert told.exit_code == 2
            assert f"{name}.yaml" in told.output
            assert "--exporter on" in told.output


def written(folder: Path, *profiles: Any) -> Path:
    file = folder / "config.yaml"
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**kind, "profiles": list(profiles)}))
    return file


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
