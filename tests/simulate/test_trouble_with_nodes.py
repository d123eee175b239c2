"""``dray simulate``: sick and unplugged devices, and kubelets that stop, as annotations in a scenario make them."""

from __future__ import annotations

from typing import Any

from dray.api.kinds import NODES, RESOURCE_SLICES
from dray.simulate.run import Simulation
from dray.simulate.scenario import made_of

Plain = dict[str, Any]
SLICE = "gpu8-0-gpu.dray.dev"


def scenario(*steps: Plain, **spec: Any) -> Plain:
    given = {"until": "10m", "hardware": ["gpu8:1"], "steps": list(steps), **spec}
    return {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "s"}, "spec": given}


def workers(replicas: int) -> list[Plain]:
    """A Deployment whose pods each have one GPU."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.dray.dev"}}]
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    containers = [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]
    labels = {"app": "worker"}
    made = {"metadata": {"labels": labels}, "spec": {"containers": containers, "resourceClaims": claims}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": requests}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "worker", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": made},
        },
    ]


def annotate(at: str, kind: str, name: str, annotation: str, text: str | None) -> Plain:
    version = "v1" if kind == "Node" else "resource.k8s.io/v1"
    metadata = {"name": name, "annotations": {annotation: text}}
    return {"at": at, "patch": {"apiVersion": version, "kind": kind, "metadata": metadata}}


def running(*objects: Plain) -> Simulation:
    return Simulation(made_of([(f"object {n}", each) for n, each in enumerate(objects)]))


def slice_of(simulation: Simulation) -> Any:
    return simulation.world().all(RESOURCE_SLICES)[SLICE]


def devices(simulation: Simulation) -> list[str]:
    report = simulation.report()
    return sorted(found["device"] for pod in report.pods if pod["phase"] == "Running" for found in pod["claims"][0]["devices"])


def test_a_sick_device_is_tainted_its_pod_evicted_and_another_device_found() -> None:
    steps = (
        annotate("1m", "ResourceSlice", SLICE, "fault.dray.dev/gpu-0", "XID 79: fell off the bus"),
        annotate("5m", "ResourceSlice", SLICE, "fault.dray.dev/gpu-0", None),
    )
    simulation = running(scenario(*steps), *workers(2))
    simulation.run(60)
    assert devices(simulation) == ["gpu-0", "gpu-1"]
    simulation.run(240)
    (taint,) = slice_of(simulation).spec.devices[0].taints
    assert (taint.key, taint.effect) == ("dray.dev/unhealthy", "NoExecute")
    report = simulation.report()
    assert [each.by for each in report.evictions] == ["controllers"]
    assert devices(simulation) == ["gpu-1", "gpu-2"]
    simulation.run(400)
    assert slice_of(simulation).spec.devices[0].taints == ()
    assert simulation.report().invariants.violated == []


def test_a_device_that_is_unplugged_leaves_under_a_new_generation_and_comes_back() -> None:
    steps = (
        annotate("1m", "ResourceSlice", SLICE, "fault.dray.dev/gpu-7", "unplugged"),
        annotate("5m", "ResourceSlice", SLICE, "fault.dray.dev/gpu-7", None),
    )
    simulation = running(scenario(*steps), *workers(8))
    simulation.run(60)
    generation = slice_of(simulation).spec.pool.generation
    assert len(devices(simulation)) == 8
    simulation.run(240)
    assert len(slice_of(simulation).spec.devices) == 7
    assert slice_of(simulation).spec.pool.generation == generation + 1
    simulation.run(600)
    assert len(slice_of(simulation).spec.devices) == 8
    assert slice_of(simulation).spec.pool.generation == generation + 2
    assert simulation.report().invariants.violated == []


def test_a_node_whose_kubelet_stops_is_lost_and_its_pods_start_elsewhere() -> None:
    step = annotate("1m", "Node", "gpu8-0", "dray.dev/kubelet", "stopped")
    spread = {"hardware": ["gpu8:2"], "heartbeat": "10s"}
    simulation = running(scenario(step, **spread), *workers(8))
    simulation.run(60)
    before = {pod["node"] for pod in simulation.report().pods}
    assert "gpu8-0" in before
    simulation.run(600)
    (taint, *_) = simulation.world().all(NODES)["gpu8-0"].spec.taints
    assert taint.key == "node.kubernetes.io/unreachable"
    alive = [pod for pod in simulation.report().pods if pod["phase"] == "Running" and pod["node"] == "gpu8-1"]
    assert len(alive) == 8
