"""The manifests keep what they promise: least privilege, two replicas, probes, nothing running as root."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.cli import root
from dray.controllers.sets import kinds as set_kinds
from dray.nodes.hardware import CATALOGUE, hardware
from dray.runtime.machines import Machines
from dray.scheduling.configuration import parse
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS

DEPLOY = Path(__file__).parents[2] / "deploy"
PAGE = DEPLOY.parent / "docs" / "deploy.md"
FILES = sorted(path for path in DEPLOY.rglob("*.yaml") if path.name != "kustomization.yaml")
OBJECTS: list[dict[str, Any]] = [found for file in FILES for found in yaml.safe_load_all(file.read_text())]


def of_kind(*kinds: str) -> list[Any]:
    return [pytest.param(found, id=f"{found['kind']}/{found['metadata']['name']}") for found in OBJECTS if found["kind"] in kinds]


@pytest.mark.parametrize("role", of_kind("ClusterRole", "Role"))
def test_a_role_has_no_wildcards_and_reads_no_secrets(role: dict[str, Any]) -> None:
    for rule in role["rules"]:
        said = [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
        assert "*" not in said
        assert not {"secrets", "configmaps", "serviceaccounts"} & set(rule["resources"])
        assert not {"impersonate", "escalate", "bind", "deletecollection"} & set(rule["verbs"])


@pytest.mark.parametrize("deployment", of_kind("Deployment"))
class TestADeployment:
    def test_has_two_replicas_a_leader_and_a_disruption_budget(self, deployment: dict[str, Any]) -> None:
        assert deployment["spec"]["replicas"] == 2
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert "--leader-elect" in container["args"]
        budgets = [found for found in OBJECTS if found["kind"] == "PodDisruptionBudget"]
        assert deployment["spec"]["selector"] in [budget["spec"]["selector"] for budget in budgets]

    def test_is_probed(self, deployment: dict[str, Any]) -> None:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        paths = {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness", "startup")}
        assert paths == {"/livez", "/readyz"}
        assert {"name": "http", "containerPort": 8080} in container["ports"]

    def test_has_no_privileges(self, deployment: dict[str, Any]) -> None:
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]

    def test_uses_a_service_account_of_its_own_that_is_bound(self, deployment: dict[str, Any]) -> None:
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        assert account in [found["metadata"]["name"] for found in OBJECTS if found["kind"] == "ServiceAccount"]
        bound = {
            f["kind"] for f in OBJECTS if f["kind"].endswith("RoleBinding") and account in [s["name"] for s in f["subjects"]]
        }
        assert bound == {"ClusterRoleBinding", "RoleBinding"}

    def test_its_arguments_are_understood(self, deployment: dict[str, Any]) -> None:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        name, *arguments = container["args"]
        command = root.get_command(click.Context(root), name)
        assert command is not None
        parsed = command.make_context(name, list(arguments)).params
        assert parsed["leader_elect"]
        assert parsed["leader_elect_resource_namespace"] == deployment["metadata"].get("namespace", "dray-system")
        assert parsed["serve"] == "0.0.0.0:8080"


def may_follow(role: dict[str, Any]) -> set[tuple[str, str]]:
    """Groups and resources that a role may list and watch."""
    reading = [rule for rule in role["rules"] if {"list", "watch"} <= set(rule["verbs"])]
    return {(group, name) for rule in reading for group in rule["apiGroups"] for name in rule["resources"]}


@pytest.mark.parametrize(
    ("role", "kinds"),
    [
        ("dray-scheduler", SCHEDULER_KINDS),
        ("dray-controllers", set_kinds(("claims", "eviction"), ())),
        ("dray-quota", set_kinds(("quota",), ())),
        ("dray-exporter-operator", set_kinds(("exporter",), ())),
        ("dray-nodes", Machines.kinds),
    ],
)
def test_a_role_may_follow_every_kind_that_its_part_follows(role: str, kinds: Sequence[Kind]) -> None:
    (found,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role)]
    assert {(kind.group, kind.plural) for kind in kinds} <= may_follow(found)


@pytest.mark.parametrize(
    ("role", "heading"), [("dray-scheduler", "Rights"), ("dray-controllers", "Controllers"), ("dray-nodes", "Simulated nodes")]
)
def test_the_page_names_every_right_to_write(role: str, heading: str) -> None:
    (found,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role)]
    rows = re.findall(r"^\| (.+?) \|", PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    for rule in found["rules"]:
        for verb in set(rule["verbs"]) - {"get", "list", "watch"}:
            for resource in rule["resources"]:
                assert any(verb in row and f"`{resource}`" in row for row in rows), f"{verb} {resource}"


def test_the_devices_of_a_fabric_are_those_of_the_drivers_that_nodes_may_speak_for() -> None:
    (role,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "dray-nodes")]
    named = [name for rule in role["rules"] if rule["resources"] == ["resourceclaims/driver"] for name in rule["resourceNames"]]
    slices = [each["spec"] for each in hardware([f"{name}:1" for name in CATALOGUE]).objects if each["kind"] == "ResourceSlice"]
    attached = {each["driver"] for each in slices if any("bindingConditions" in device for device in each.get("devices", []))}
    assert set(named) == attached


def test_the_image_stands_in_one_place() -> None:
    """Whoever names another one names it for everything."""
    files = {path.parent: yaml.safe_load(path.read_text()) for path in DEPLOY.rglob("kustomization.yaml")}
    assert [folder.name for folder, found in files.items() if "images" in found] == ["image"]
    using = {file.parent for file in FILES if "image: dray\n" in file.read_text()}
    assert using
    for folder in using:
        assert DEPLOY / "components/image" in {(folder / each).resolve() for each in files[folder]["components"]}, folder


@pytest.mark.parametrize("file", [file for file in FILES if "components" in file.parts], ids=str)
def test_what_a_component_adds_to_an_overlay_goes_to_a_namespace(file: Path) -> None:
    """An overlay of one's own need not name one, and what names none would go where kubectl happens to be."""
    for found in yaml.safe_load_all(file.read_text()):
        cluster_wide = found["kind"].startswith("Cluster")
        assert ("namespace" in found["metadata"]) is not cluster_wide, found["kind"]


def test_metrics_are_read_of_every_part_wherever_it_runs() -> None:
    (monitor,) = (found for found in OBJECTS if found["kind"] == "PodMonitor")
    made = {found["metadata"]["name"] for found in OBJECTS if found["kind"] == "Namespace"}
    assert set(monitor["spec"]["namespaceSelector"]["matchNames"]) == made


def test_the_address_of_metrics_in_the_help_is_that_of_the_service() -> None:
    told = root.get_command(click.Context(root), "ui").help or ""  # type: ignore[union-attr]
    (service,) = (found for found in OBJECTS if found["kind"] == "Service")
    port = service["spec"]["ports"][0]["port"]
    assert f"/namespaces/dray-system/services/{service['metadata']['name']}:{port}/proxy/metrics" in told


def test_the_configuration_is_understood() -> None:
    (config,) = (found for found in OBJECTS if found["kind"] == "ConfigMap")
    parsed = parse(yaml.safe_load(config["data"]["config.yaml"]), Gates.dray())
    assert [profile.scheduler_name for profile in parsed.profiles] == ["dray"]
    assert parsed.profiles[0].binding_timeout == 600


class TestAlerts:
    RULES = [
        rule
        for found in OBJECTS
        if found["kind"] == "PrometheusRule"
        for group in found["spec"]["groups"]
        for rule in group["rules"]
    ]

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
    def test_asks_for_numbers_that_there_are(self, rule: dict[str, Any]) -> None:
        source = "\n".join(path.read_text() for path in (DEPLOY.parent / "src" / "dray").rglob("*.py"))
        named = re.findall(r"\b(?:dray|scheduler|dynamic_resource_allocation)_\w+", rule["expr"])
        assert named
        assert [name for name in named if f'"{name.removesuffix("_bucket")}"' not in source] == []

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
    def test_says_what_is_wrong_and_what_to_look_at(self, rule: dict[str, Any]) -> None:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] == "warning"
