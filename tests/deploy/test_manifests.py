"""The manifests keep what they promise: least privilege, two replicas, probes, nothing running as root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from dray.api.gates import Gates
from dray.cli import root
from dray.scheduling.configuration import parse

DEPLOY = Path(__file__).parents[2] / "deploy"
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
        bound = [s["name"] for found in OBJECTS if found["kind"].endswith("RoleBinding") for s in found["subjects"]]
        assert bound.count(account) == 2

    def test_its_arguments_are_understood(self, deployment: dict[str, Any]) -> None:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        name, *arguments = container["args"]
        command = root.get_command(click.Context(root), name)
        assert command is not None
        parsed = command.make_context(name, list(arguments)).params
        assert parsed["leader_elect"]
        assert parsed["leader_elect_resource_namespace"] == "dray-system"
        assert parsed["serve"] == "0.0.0.0:8080"


def test_the_configuration_is_understood() -> None:
    (config,) = (found for found in OBJECTS if found["kind"] == "ConfigMap")
    parsed = parse(yaml.safe_load(config["data"]["config.yaml"]), Gates.dray())
    assert [profile.scheduler_name for profile in parsed.profiles] == ["dray"]
    assert parsed.profiles[0].binding_timeout == 600
