"""The claims controller on the embedded API server, on virtual time, with everything going wrong that can."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dray.api.resource import FINALIZER
from dray.cluster.port import NotFound, Write
from dray.controllers.claims import ClaimsController
from dray.runtime.faults import EVERY
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock, Virtual

PODS_MADE = 8
TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
}


def pod(name: str) -> dict[str, Any]:
    entries = [{"name": entry, "resourceClaimTemplateName": "one"} for entry in ("a", "b")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": entries},
    }


class Cluster:
    def __init__(self, faults: str, seed: int) -> None:
        clock = Clock()
        self.core = InProcess(clock, seed=seed)
        self.virtual = Virtual(self.core, clock, seed=seed, faults=EVERY[faults])
        self.virtual.user(Write("create", RESOURCE_CLAIM_TEMPLATES, "default", "one", TEMPLATE))
        self.virtual.start("controllers", ClaimsController.kinds, lambda world: [ClaimsController(world)])

    def claims(self) -> dict[str, dict[str, Any]]:
        return self.core.all(RESOURCE_CLAIMS)

    def recorded(self) -> list[str]:
        pods = self.core.all(PODS).values()
        return [s["resourceClaimName"] for found in pods for s in found.get("status", {}).get("resourceClaimStatuses", [])]

    def allocate_all(self) -> None:
        """As a scheduler does, on every recorded claim."""
        for found in self.core.all(PODS).values():
            for number, status in enumerate(found["status"]["resourceClaimStatuses"]):
                name = status["resourceClaimName"]
                self._patch(name, {"metadata": {"finalizers": [FINALIZER]}})
                device = f"{found['metadata']['name']}-{number}"
                results = [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device}]
                user = {"resource": "pods", "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
                self._patch(name, {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}}, "status")
        self.virtual.pump()

    def _patch(self, name: str, body: dict[str, Any], subresource: str = "") -> None:
        self.core.write(Write("patch", RESOURCE_CLAIMS, "default", name, body, subresource=subresource))

    def finish(self, name: str) -> None:
        body = {"status": {"phase": "Succeeded"}}
        self.virtual.user(Write("patch", PODS, "default", name, body, subresource="status"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("faults", EVERY)
def test_every_entry_gets_a_claim_and_finished_pods_let_go_of_theirs(faults: str, seed: int) -> None:
    cluster = Cluster(faults, seed)
    names = [f"p{number}" for number in range(PODS_MADE)]
    for name in names:
        cluster.virtual.user(Write("create", PODS, "default", name, pod(name)))
    assert cluster.virtual.run_until(lambda: len(cluster.recorded()) == 2 * PODS_MADE, 1800)
    assert set(cluster.recorded()) <= {key.partition("/")[2] for key in cluster.claims()}
    cluster.allocate_all()
    for name in names[: PODS_MADE // 2]:
        cluster.finish(name)
    held = set(cluster.recorded()[PODS_MADE:])

    def let_go() -> bool:
        allocated = {claim["metadata"]["name"] for claim in cluster.claims().values() if claim["status"].get("allocation")}
        return allocated == held

    assert cluster.virtual.run_until(let_go, 1800)
    assert all(claim["status"]["reservedFor"] for claim in cluster.claims().values() if claim["status"].get("allocation"))


@pytest.mark.parametrize("faults", EVERY)
def test_no_claim_is_made_twice(faults: str) -> None:
    cluster = Cluster(faults, 1)
    for number in range(PODS_MADE):
        cluster.virtual.user(Write("create", PODS, "default", f"p{number}", pod(f"p{number}")))
    assert cluster.virtual.run_until(lambda: len(cluster.recorded()) == 2 * PODS_MADE, 1800)
    cluster.virtual.run(cluster.virtual.elapsed + 120)
    assert len(cluster.claims()) == 2 * PODS_MADE


@pytest.mark.parametrize("faults", EVERY)
def test_a_deleted_claim_is_made_again(faults: str) -> None:
    cluster = Cluster(faults, 2)
    cluster.virtual.user(Write("create", PODS, "default", "p", pod("p")))
    assert cluster.virtual.run_until(lambda: len(cluster.recorded()) == 2, 1800)
    gone = cluster.recorded()[0]
    cluster.virtual.user(Write("delete", RESOURCE_CLAIMS, "default", gone))
    assert cluster.virtual.run_until(lambda: gone not in cluster.recorded(), 1800)
    with pytest.raises(NotFound):
        cluster.core.write(Write("patch", RESOURCE_CLAIMS, "default", gone, {}))
