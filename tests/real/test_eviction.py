"""Device taints evict on a real kube-apiserver as on ours: `dray controllers --only eviction`, with the rights in `deploy/`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.api.times import format_time, parse_time
from tests.real.tainting import Place
from tests.real.upstream.binaries import binary
from tests.real.upstream.client import PATHS, Client, eventually
from tests.real.upstream.control_plane import Server


@pytest.fixture
def place(cluster: Server, client: Client, namespace: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(cluster, client, namespace, tmp_path)
    try:
        with made.controllers() as program:
            yield made
            assert "forbidden" not in program.text().lower()
    finally:
        made.tidy()


TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
TOLERATION = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute"}


def test_a_taint_in_a_slice_evicts_with_condition_and_event_and_spares_the_others(place: Place) -> None:
    place.slice()
    place.using("train", "g0")
    place.using("patient", "g0", tolerations=[TOLERATION])
    place.using("other", "g1")
    place.slice({"g0": [TAINT]})
    place.wait_evicted("train")
    pod = place.client.get("Pod", "train", place.namespace)
    (condition,) = [c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    eventually(
        lambda: any(e["reason"] == "DeviceTaintManagerEviction" for e in place.client.list("Event", place.namespace)), "event"
    )
    assert not place.evicted("patient")
    assert not place.evicted("other")


def test_from_none_over_no_execute_to_removed_and_kubectl_waits_for_it(place: Place) -> None:
    place.slice()
    place.using("train", "g0")
    place.using("serve", "g1")
    place.rule("None")
    preview = place.told("NoEffect")
    assert preview["message"].startswith(
        "3 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if"
    )
    assert not place.evicted("train")
    before = place.stored_rule()
    place.change(effect="NoExecute")
    kubectl = [str(binary("kubectl")), "--kubeconfig", str(place.server.kubeconfig)]
    rule = f"devicetaintrule/rule-{place.namespace}"
    wait = ["wait", "--for=condition=EvictionInProgress=false", rule, "--timeout=40s"]
    done = subprocess.run([*kubectl, *wait], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert place.evicted("train")
    assert place.evicted("serve")
    condition, after = place.condition(), place.stored_rule()
    assert condition is not None
    assert (condition["reason"], condition["observedGeneration"]) == ("Completed", after["metadata"]["generation"])
    assert condition["message"] == "2 pods evicted since starting the controller."
    assert parse_time(after["spec"]["taint"]["timeAdded"]) >= parse_time(before["spec"]["taint"]["timeAdded"])
    place.client.call("DELETE", f"{PATHS['DeviceTaintRule']}/rule-{place.namespace}", {})
    place._made = [found for found in place._made if found["kind"] != "DeviceTaintRule"]
    place.using("next", "g0")
    place.using("marker", "g2")
    place.slice({"g2": [TAINT]})
    place.wait_evicted("marker")  # what came before it was looked at too
    assert not place.evicted("next")


def test_pods_that_arrive_later_leave_and_a_device_needs_no_slice(place: Place) -> None:
    place.rule("NoExecute", "g7")
    place.using("late", "g7")
    place.wait_evicted("late")


def test_a_rule_that_only_schedules_by_says_so(place: Place) -> None:
    place.rule("NoSchedule")
    assert place.told("OtherEffect")["status"] == "False"


def test_a_rule_that_expires_is_removed(place: Place) -> None:
    made = place.rule("NoSchedule", annotations={"dray.dev/expires-at": format_time(0)})
    place._made.remove(next(found for found in place._made if found["kind"] == "DeviceTaintRule"))
    names = lambda: [one["metadata"]["name"] for one in place.client.call("GET", PATHS["DeviceTaintRule"])["items"]]  # noqa: E731
    eventually(lambda: made["metadata"]["name"] not in names(), "the rule is gone")


def test_a_controller_that_was_killed_keeps_the_deadline(cluster: Server, client: Client, namespace: str, tmp_path: Path) -> None:
    place = Place(cluster, client, namespace, tmp_path)
    try:
        place.slice()
        place.using("patient", "g0", tolerations=[{**TOLERATION, "tolerationSeconds": 6}])
        with place.controllers():
            place.rule("NoExecute", "g0")
            assert place.told("PodsPendingEviction")["message"] == "1 pod needs to be evicted in 1 namespace."
        assert not place.evicted("patient")
        added = parse_time(place.stored_rule()["spec"]["taint"]["timeAdded"])
        with place.controllers():
            place.wait_evicted("patient")
        deleted = parse_time(client.get("Pod", "patient", namespace)["metadata"]["deletionTimestamp"])
        grace = client.get("Pod", "patient", namespace)["metadata"]["deletionGracePeriodSeconds"]
        assert deleted - grace >= added + 6
    finally:
        place.tidy()


def test_a_hundred_pods_leave_at_the_pace(place: Place) -> None:
    place.slice()
    for number in range(100):
        place.using(f"p{number}", "g0")
    place.rule("NoExecute", "g0")
    eventually(
        lambda: all(place.evicted(f"p{n}") for n in (0, 50, 99)) and leaving(place) == 100, "all left", seconds=60, every=0.5
    )
    assert place.told("Completed")["message"] == "100 pods evicted since starting the controller."


def leaving(place: Place) -> int:
    return sum("deletionTimestamp" in pod["metadata"] for pod in place.client.list("Pod", place.namespace))
