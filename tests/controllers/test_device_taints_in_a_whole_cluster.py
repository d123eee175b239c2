"""Device taints with everything that runs in `dray up`, on virtual time: pods leave, find other devices, nothing stays behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.simulate.run import Report, simulate
from dray.simulate.scenario import read

Plain = dict[str, Any]
ALL = {"driver": "gpu.dray.dev", "pool": "gpu8-0"}


def template(*tolerations: Plain) -> Plain:
    exactly = {"deviceClassName": "gpu.dray.dev", "tolerations": list(tolerations)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def deployment(replicas: int, **spec: Any) -> Plain:
    pod = {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        **spec,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "serve"}},
            "template": {"metadata": {"labels": {"app": "serve"}}, "spec": pod},
        },
    }


def rule(effect: str, selector: Plain | None = None) -> Plain:
    spec = {"deviceSelector": ALL if selector is None else selector, "taint": {"key": "example.com/broken", "effect": effect}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "rule"}, "spec": spec}


def run(folder: Path, *objects: Plain, steps: list[Plain], seed: int = 0, **spec: Any) -> Report:
    given = {"until": "5m", "hardware": ["gpu8:2"], "steps": steps, "seed": seed, **spec}
    scenario = {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "s"}, "spec": given}
    file = folder / "scenario.yaml"
    file.write_text(yaml.safe_dump_all([scenario, *objects]))
    return simulate(read([file]))


def nodes(report: Report) -> list[str]:
    return sorted(pod["node"] or "" for pod in report.pods)


def test_pods_leave_and_run_again_elsewhere_and_their_old_claims_are_gone(tmp_path: Path) -> None:
    report = run(tmp_path, template(), deployment(6), steps=[{"at": "1m", "apply": rule("NoExecute")}])
    assert nodes(report) == ["gpu8-1"] * 6
    assert {pod["phase"] for pod in report.pods} == {"Running"}
    assert report.evictions
    assert all(60 <= eviction.at < 63 for eviction in report.evictions if eviction.by == "controllers")
    assert report.invariants.violated == []
    assert len({claim["name"] for pod in report.pods for claim in pod["claims"]}) == 6


def test_where_there_is_no_other_place_they_wait_and_come_back_when_the_taint_is_gone(tmp_path: Path) -> None:
    gone = {"at": "3m", "delete": {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "rule"}}}
    tainted = {"at": "1m", "apply": rule("NoExecute", {})}
    waiting = run(tmp_path, template(), deployment(3), steps=[tainted], until="2m")
    assert nodes(waiting) == ["", "", ""]
    assert {pod["phase"] for pod in waiting.pods} == {"Pending"}
    back = run(tmp_path, template(), deployment(3), steps=[tainted, gone])
    assert "" not in nodes(back)


def test_a_pod_that_tolerates_it_for_a_while_may_use_the_device_for_that_long(tmp_path: Path) -> None:
    toleration = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 90}
    report = run(tmp_path, template(toleration), deployment(4), steps=[{"at": "1m", "apply": rule("NoExecute")}], until="151s")
    evicted = [eviction.at for eviction in report.evictions if eviction.by == "controllers"]
    assert evicted
    assert min(evicted) >= 150


def test_who_tolerated_it_long_enough_is_evicted_once_and_not_placed_there_again(tmp_path: Path) -> None:
    toleration = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 90}
    everything = {"at": "1m", "apply": rule("NoExecute", {})}
    report = run(tmp_path, template(toleration), deployment(4), steps=[everything], until="15m")
    assert len([eviction for eviction in report.evictions if eviction.by == "controllers"]) == 4
    assert {(pod["phase"], pod["node"]) for pod in report.pods} == {("Pending", None)}
    assert all(pod["reasons"] for pod in report.pods)


def test_no_schedule_keeps_new_pods_away_and_leaves_the_others(tmp_path: Path) -> None:
    more = {
        "at": "2m",
        "patch": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}, "spec": {"replicas": 9}},
    }
    report = run(tmp_path, template(), deployment(6), steps=[{"at": "1m", "apply": rule("NoSchedule")}, more])
    before = run(tmp_path, template(), deployment(6), steps=[], until="1m")
    assert nodes(report).count("gpu8-0") == nodes(before).count("gpu8-0") > 0
    assert nodes(report).count("gpu8-1") == 9 - nodes(report).count("gpu8-0")


def test_a_bare_pod_through_an_extended_resource_leaves_and_its_claim_goes(tmp_path: Path) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {"dray.dev/gpu": 1}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": {"containers": [container]}}
    report = run(tmp_path, pod, steps=[{"at": "1m", "apply": rule("NoExecute", {})}])
    assert report.pods == []
    assert [(eviction.name, eviction.by) for eviction in report.evictions] == [("bare", "controllers")]
    assert report.invariants.violated == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trouble", ["lost answers", "everything"])
def test_with_faults_nobody_is_left_on_the_tainted_devices(trouble: str, seed: int, tmp_path: Path) -> None:
    steps: list[Plain] = [
        {"at": "30s", "apply": rule("None")},
        {"at": "1m", "patch": rule("NoExecute")},
        {"at": "70s", "crash": {"host": "controllers", "down": "20s"}},
    ]
    faults = {"kind": trouble, "until": "2m"}
    report = run(tmp_path, template(), deployment(6), steps=steps, seed=seed, faults=faults, until="10m")
    assert nodes(report) == ["gpu8-1"] * 6
    assert report.invariants.violated == []
