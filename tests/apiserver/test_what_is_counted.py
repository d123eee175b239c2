"""``/metrics``: KEP-5055 tells operators to see from it whether DeviceTaintRules are in use."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from dray.apiserver.api import Answer
from dray.apiserver.authentication.users import ANONYMOUS
from tests.apiserver.conftest import CONFIG_MAPS, Cluster, config_map

RULES = "/apis/resource.k8s.io/{}/devicetaintrules"


def stored(cluster: Cluster) -> dict[tuple[str, str], float]:
    """group, resource -> objects"""
    answer = cluster.ask("GET", "/metrics")
    assert isinstance(answer, Answer)
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    samples = families["apiserver_resource_objects"].samples
    found = {(sample.labels["group"], sample.labels["resource"]): sample.value for sample in samples}
    assert len(found) == len(samples), "each kind is told once"
    return found


def rule(name: str, version: str) -> dict[str, object]:
    spec = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": {"key": "example.com/broken", "effect": "NoSchedule"}}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def test_rules_are_counted_once_whatever_version_they_were_written_in(cluster: Cluster) -> None:
    assert stored(cluster)["resource.k8s.io", "devicetaintrules"] == 0
    for version in ("v1", "v1alpha3"):
        cluster.post(RULES.format(version), rule(f"of-{version}", version))
    assert stored(cluster)["resource.k8s.io", "devicetaintrules"] == 2
    cluster.delete(RULES.format("v1") + "/of-v1alpha3")
    assert stored(cluster)["resource.k8s.io", "devicetaintrules"] == 1


def test_kinds_without_a_group_and_kinds_that_are_only_answered(cluster: Cluster) -> None:
    before = stored(cluster)["", "configmaps"]
    cluster.post(CONFIG_MAPS, config_map())
    counted = stored(cluster)
    assert counted["", "configmaps"] == before + 1
    assert ("authorization.k8s.io", "subjectaccessreviews") not in counted


def test_not_everybody_may_read_it(cluster: Cluster) -> None:
    answer = cluster.ask("GET", "/metrics", user=ANONYMOUS)
    assert isinstance(answer, Answer)
    assert answer.code == 403
    refused = cluster.ask("POST", "/metrics")
    assert isinstance(refused, Answer)
    assert refused.code == 404
