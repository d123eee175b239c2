"""What a simulated node does with pods, claims and its own heartbeats."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from dray.api.kinds import EVENTS, LEASES, NODES, PODS, RESOURCE_CLAIMS
from dray.nodes.hardware import hardware
from dray.nodes.kubelet import Kubelets
from dray.runtime.faults import Crash, Faults
from tests.simulated import Place

GPU = {"request": "gpu", "driver": "gpu.dray.dev", "pool": "gpu8-0", "device": "gpu-3"}


def begin(faults: Faults | None = None, nodes: int = 1, **options: Any) -> Place:
    place = Place(faults=faults or Faults())
    made = hardware([f"gpu8:{nodes}"])
    place.start("nodes", Kubelets.kinds, lambda world: [Kubelets(world, made.nodes, **options)])
    return place


@pytest.fixture
def place() -> Place:
    return begin()


def pod(place: Place, name: str = "p", claim: str = "", **annotations: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "i"}
    spec: dict[str, Any] = {"nodeName": "gpu8-0", "containers": [container]}
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        container["resources"] = {"claims": [{"name": "gpu"}]}
    keyed = {f"dray.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return place.create(PODS, {"metadata": {"name": name, "annotations": keyed}, "spec": spec})


def phase(place: Place, name: str = "p") -> str | None:
    found = place.get(PODS, name)
    return str(found["status"]["phase"]) if found is not None else None


def test_nodes_register_ready_and_with_what_they_have(place: Place) -> None:
    place.shell.run(2)
    node = place.get(NODES, "gpu8-0")
    assert node is not None
    assert node["status"]["capacity"]["cpu"] == "96"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"


def test_each_node_renews_its_lease_every_ten_seconds() -> None:
    place = begin(nodes=20)
    renewals: dict[str, list[float]] = {}

    def note(written: Any) -> None:
        if written.write.kind == LEASES:
            renewals.setdefault(written.write.name, []).append(written.at)

    place.shell.listeners.append(note)
    place.shell.run(100)
    assert len(renewals) == 20
    for times in renewals.values():
        assert all(later - earlier < 10.1 for earlier, later in pairwise(times))
        assert 10 <= len(times) <= 13


def test_a_bound_pod_runs_with_addresses_and_is_ready(place: Place) -> None:
    pod(place)
    place.shell.run(5)
    status = place.get(PODS, "p")["status"]  # type: ignore[index]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.")
    assert status["startTime"]
    assert {"type": "Ready", "status": "True"}.items() <= next(c for c in status["conditions"] if c["type"] == "Ready").items()
    assert status["containerStatuses"][0]["state"]["running"]


def test_a_pod_of_another_node_is_left_alone(place: Place) -> None:
    place.create(
        PODS, {"metadata": {"name": "far"}, "spec": {"nodeName": "elsewhere", "containers": [{"name": "c", "image": "i"}]}}
    )
    place.shell.run(30)
    assert phase(place, "far") == "Pending"


@pytest.mark.parametrize(
    ("annotations", "ended", "code"),
    [
        ({"finishes_after": "30s"}, "Succeeded", 0),
        ({"fails_after": "20s"}, "Failed", 1),
        ({"fails_after": "0.5m", "exit_code": "137"}, "Failed", 137),
        ({"fails_after": "1m", "finishes_after": "30s"}, "Succeeded", 0),
    ],
)
def test_a_pod_ends_when_its_annotation_says_so(place: Place, annotations: dict[str, str], ended: str, code: int) -> None:
    pod(place, **annotations)
    place.shell.run(15)
    assert phase(place) == "Running"
    place.shell.run(40)
    assert phase(place) == ended
    state = place.get(PODS, "p")["status"]["containerStatuses"][0]["state"]  # type: ignore[index]
    assert state["terminated"]["exitCode"] == code


def test_an_annotation_that_is_no_duration_is_told(place: Place) -> None:
    pod(place, finishes_after="soon")
    place.shell.run(30)
    assert phase(place) == "Running"
    assert any("'soon' is not a duration" in event["message"] for event in place.all(EVENTS))


def test_a_deleted_pod_goes_within_its_grace_period(place: Place) -> None:
    pod(place, stops_after="10s")
    place.shell.run(5)
    place.delete(PODS, "p")
    place.shell.run(12)
    assert place.get(PODS, "p") is not None
    place.shell.run(17)
    assert place.get(PODS, "p") is None


def test_a_pod_that_stops_slower_than_its_grace_period_is_killed(place: Place) -> None:
    pod(place, stops_after="1h")
    place.shell.run(5)
    place.delete(PODS, "p", gracePeriodSeconds=20)
    place.shell.run(24)
    assert place.get(PODS, "p") is not None
    place.shell.run(27)
    assert place.get(PODS, "p") is None


def claimed(place: Place, status: dict[str, Any]) -> None:
    place.patch(RESOURCE_CLAIMS, "mine", {"status": status}, subresource="status")


def test_a_pod_waits_until_its_claim_is_allocated_and_reserved_for_it(place: Place) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.dray.dev"}}
    uid = pod(place, claim="mine")["metadata"]["uid"]
    place.shell.run(10)
    place.create(RESOURCE_CLAIMS, {"metadata": {"name": "mine"}, "spec": {"devices": {"requests": [request]}}})
    place.shell.run(20)
    claimed(place, {"allocation": {"devices": {"results": [GPU]}}})
    place.shell.run(30)
    assert phase(place) == "Pending"
    claimed(place, {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]})
    place.shell.run(40)
    assert phase(place) == "Running"
    told = " ".join(event["message"] for event in place.all(EVENTS))
    for words in ("mine does not exist", "mine is not allocated", "mine is not reserved for the pod"):
        assert words in told
    found = place.get(PODS, "p")
    assert found is not None
    assert found["metadata"]["annotations"]["dray.dev/devices"] == "gpu.dray.dev/gpu8-0/gpu-3"


def test_a_kubelet_that_restarts_goes_on_where_it_was() -> None:
    place = begin(Faults(crashes=(Crash(8.0, "nodes"), Crash(20.0, "nodes"))))
    pod(place, finishes_after="30s")
    place.shell.run(34)
    assert phase(place) == "Succeeded"


def test_a_node_that_somebody_deletes_stays_deleted(place: Place) -> None:
    place.shell.run(5)
    place.delete(NODES, "gpu8-0")
    place.shell.run(60)
    assert place.get(NODES, "gpu8-0") is None


def test_a_pod_is_ready_when_its_readiness_gates_are_open(place: Place) -> None:
    gate = {"readinessGates": [{"conditionType": "example.com/warm"}]}
    body = {"nodeName": "gpu8-0", "containers": [{"name": "a", "image": "x"}], **gate}
    place.create(PODS, {"metadata": {"name": "p"}, "spec": body})
    place.pass_time(5)
    assert _ready(place) == "False"
    open_gate = {"status": {"conditions": [{"type": "example.com/warm", "status": "True"}]}}
    place.patch(PODS, "p", open_gate, subresource="status", patch="strategic")
    place.pass_time(5)
    assert _ready(place) == "True"


def test_a_pod_over_its_deadline_fails(place: Place) -> None:
    body = {"nodeName": "gpu8-0", "activeDeadlineSeconds": 20, "containers": [{"name": "a", "image": "x"}]}
    place.create(PODS, {"metadata": {"name": "p"}, "spec": body})
    place.pass_time(60)
    status = place.get(PODS, "p")["status"]  # type: ignore[index]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_pod_that_names_its_node_counts_as_scheduled_and_its_generation_as_seen(place: Place) -> None:
    body = {"nodeName": "gpu8-0", "containers": [{"name": "a", "image": "x"}]}
    place.create(PODS, {"metadata": {"name": "p"}, "spec": body})
    place.pass_time(5)
    place.patch(PODS, "p", {"spec": {"containers": [{"name": "a", "image": "y"}]}}, patch="strategic")
    place.pass_time(5)
    found = place.get(PODS, "p")
    assert found is not None
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    assert any(c["type"] == "PodScheduled" and c["status"] == "True" for c in found["status"]["conditions"])


def _ready(place: Place) -> str:
    found = place.get(PODS, "p")
    assert found is not None
    return str(next(c["status"] for c in found["status"]["conditions"] if c["type"] == "Ready"))
