"""What annotations ask of simulated nodes, drivers and fabrics and nobody can read is told, and not silently something else."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIMS
from dray.testing import VirtualCluster, claim, device_class, node_with_devices, pod

Plain = dict[str, Any]


def ran(*objects: Plain, seconds: float = 30) -> VirtualCluster:
    made = VirtualCluster()
    made.start_all()
    made.create(device_class("gpu"), *node_with_devices("n1", 2), *objects)
    made.run(seconds)
    return made


def told(made: VirtualCluster, reason: str) -> set[str]:
    return {event["message"] for event in made.all(EVENTS) if event["reason"] == reason}


@pytest.mark.parametrize(
    ("annotations", "wrong"),
    [
        (
            {"dray.dev/fails-after": "5s", "dray.dev/exit-code": "many"},
            "dray.dev/exit-code: 'many' is not an integer of at least 1",
        ),
        ({"dray.dev/fails-after": "5s", "dray.dev/exit-code": "0"}, "dray.dev/exit-code: '0' is not an integer of at least 1"),
        ({"dray.dev/crashes-after": "5s", "dray.dev/crashes": "-1"}, "dray.dev/crashes: '-1' is not an integer of at least 0"),
        ({"dray.dev/finishes-after": "soon"}, "dray.dev/finishes-after: 'soon' is not a duration; write 30s, 1m30s or 500ms"),
    ],
)
def test_of_a_pod_is_told_by_an_event(annotations: dict[str, str], wrong: str) -> None:
    made = ran(pod("p", annotations=annotations))
    assert told(made, "InvalidAnnotation") == {f"annotation {wrong}"}


def test_what_can_be_read_is_not_told() -> None:
    made = ran(pod("p", annotations={"dray.dev/crashes-after": "5s", "dray.dev/crashes": "2", "dray.dev/exit-code": "3"}))
    assert told(made, "InvalidAnnotation") == set()


@pytest.mark.parametrize(
    ("annotation", "value", "wrong"),
    [
        ("dray.dev/prepare", "never", "'never' is not one of succeed, fail, silence"),
        ("dray.dev/prepare-seconds", "long", "'long' is not a duration"),
    ],
)
def test_of_a_claim_preparing_fails_with_it_until_it_is_corrected(annotation: str, value: str, wrong: str) -> None:
    asked = claim("c")
    asked["metadata"]["annotations"] = {annotation: value}
    made = ran(asked, pod("p", claims=["c"]))
    [found] = made.all(PODS)
    assert found["status"]["phase"] == "Pending"
    assert any(f"annotation {annotation}: {wrong}" in each for each in told(made, "FailedPrepareDynamicResources"))
    made.patch(RESOURCE_CLAIMS, "c", {"metadata": {"annotations": {annotation: None}}})
    made.run(120)
    [found] = made.all(PODS)
    assert found["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("annotation", "value", "wrong"),
    [
        ("fabric.dray.dev/attach", "maybe", "'maybe' is not one of succeed, fail, silence"),
        ("fabric.dray.dev/attach-seconds", "long", "'long' is not a duration; write 30s, 1m30s or 500ms"),
        ("fabric.dray.dev/failure-percent", "half", "'half' is not an integer"),
        ("fabric.dray.dev/failure-percent", "²", "'²' is not an integer"),
    ],
)
def test_of_a_fabric_is_told_on_the_claim(annotation: str, value: str, wrong: str) -> None:
    asked = claim("c")
    asked["metadata"]["annotations"] = {annotation: value}
    ready = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
    made = VirtualCluster()
    made.start_all()
    nodes = node_with_devices("n1", 1)
    for body in nodes:
        body["metadata"].setdefault("labels", {})["dray.dev/simulated"] = "true"
        for device in body.get("spec", {}).get("devices", ()):
            device |= ready
    made.create(device_class("gpu"), *nodes, asked, pod("p", claims=["c"]))
    made.run(30)
    assert told(made, "InvalidAnnotation") == {f"annotation {annotation}: {wrong}"}
    [found] = made.all(PODS)
    assert found["status"]["phase"] == "Running"
