"""Claims are prepared before a pod runs and unprepared before it goes, whatever drivers and kubelets do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.nodes.checkpoint import Files
from dray.nodes.drivers import Answer, ClaimName, Done, Failed, NotYet, Operation, PreparedDevice
from dray.runtime.faults import Crash, Faults
from tests.nodes.laboratory import DRIVER, NODE, Driver, Laboratory, prepared


@pytest.fixture
def lab() -> Laboratory:
    return Laboratory(Driver())


def driver(lab: Laboratory) -> Driver:
    assert lab.driver is not None
    return lab.driver


def test_a_pod_runs_when_its_claim_is_prepared_and_goes_when_it_is_unprepared(lab: Laboratory) -> None:
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    assert (lab.phase("p"), driver(lab).calls) == ("Running", [("prepare", DRIVER, ["mine"])])
    lab.place.delete(PODS, "p")
    lab.run(10)
    assert (lab.phase("p"), driver(lab).calls[1:]) == ("gone", [("unprepare", DRIVER, ["mine"])])


@pytest.mark.parametrize(("group", "phase"), [("ranks", "Running"), ("others", "Pending")])
def test_a_claim_may_be_reserved_for_the_group_of_the_pod(lab: Laboratory, group: str, phase: str) -> None:
    lab.claim("ours")
    lab.pod("p", "ours", schedulingGroup={"podGroupName": "ranks"})
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": "u"}
    lab.status("ours", {"reservedFor": [user]})
    lab.run(5)
    assert lab.phase("p") == phase


def test_a_pod_that_finishes_is_reported_only_after_its_claim_is_unprepared(lab: Laboratory) -> None:
    lab.claim("mine")
    lab.pod("p", "mine", annotations={"dray.dev/finishes-after": "10s"})
    lab.run(5)
    driver(lab).answer = lambda *_: NotYet(lab.now + 1)
    lab.run(18)
    assert lab.phase("p") == "Running"
    driver(lab).answer = prepared
    lab.run(30)
    assert (lab.phase("p"), driver(lab).asked("unprepare")) == ("Succeeded", [(DRIVER, ["mine"])])


def test_two_pods_that_share_a_claim_have_it_prepared_once_and_unprepared_after_the_second(lab: Laboratory) -> None:
    lab.claim("ours")
    lab.pod("a", "ours")
    lab.pod("b", "ours")
    lab.run(5)
    assert (lab.phase("a"), lab.phase("b")) == ("Running", "Running")
    lab.place.delete(PODS, "a")
    lab.run(10)
    assert (lab.phase("a"), [call[0] for call in driver(lab).calls]) == ("gone", ["prepare"])
    lab.place.delete(PODS, "b")
    lab.run(15)
    assert [call[0] for call in driver(lab).calls] == ["prepare", "unprepare"]


def test_a_claim_that_is_left_to_a_pod_while_that_pod_ends_is_unprepared_too(lab: Laboratory) -> None:
    lab.claim("ours")
    lab.claim("own", "gpu-1")
    lab.pod("a", "ours", "own")
    lab.pod("b", "ours")
    lab.run(5)
    driver(lab).answer = lambda *_: NotYet(lab.now + 1)
    lab.place.delete(PODS, "a")
    lab.run(8)
    lab.place.delete(PODS, "b")
    lab.run(12)
    driver(lab).answer = prepared
    lab.run(20)
    assert (lab.phase("a"), lab.phase("b")) == ("gone", "gone")
    assert sorted(name for _, names in driver(lab).asked("unprepare") for name in names) == ["ours", "own"]


def test_a_claim_that_is_being_unprepared_is_refused_to_a_new_pod_until_that_is_done(lab: Laboratory) -> None:
    lab.claim("ours")
    lab.pod("a", "ours")
    lab.run(5)
    driver(lab).answer = lambda *_: NotYet(lab.now + 1)
    lab.place.delete(PODS, "a")
    lab.run(8)
    lab.pod("b", "ours")
    lab.run(10)
    assert any("ResourceClaim ours is being unprepared" in text for text in lab.events())
    driver(lab).answer = prepared
    lab.run(30)
    assert (lab.phase("a"), lab.phase("b")) == ("gone", "Running")
    assert [call[0] for call in driver(lab).calls] == ["prepare", "unprepare", "prepare"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda *_: {}, "NodePrepareResources skipped 1 ResourceClaims"),
        (lambda *_: {"other": Done()}, "NodePrepareResources returned result for unknown claim UID other"),
        (lambda *_: Failed("no such socket"), "NodePrepareResources: no such socket"),
        (
            lambda _, __, claims: {claim.uid: Done(error="out of steam") for claim in claims},
            "NodePrepareResources failed for ResourceClaim mine: out of steam",
        ),
    ],
)
def test_an_answer_that_is_no_good_is_told_and_asked_for_again(lab: Laboratory, answer: object, words: str) -> None:
    driver(lab).answer = answer  # type: ignore[assignment]
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    status = lab.shown("p")
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    told = f"FailedPrepareDynamicResources: Failed to prepare dynamic resources: prepare dynamic resources: {words}"
    assert told in lab.events()
    driver(lab).answer = prepared
    lab.run(20)
    assert lab.phase("p") == "Running"


def test_a_driver_that_is_not_registered_keeps_the_pod_waiting_and_terminating(lab: Laboratory) -> None:
    driver(lab).registered.clear()
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    assert any("DRA driver gpu.dray.dev is not registered" in text for text in lab.events())
    driver(lab).registered.add(DRIVER)
    lab.run(20)
    assert lab.phase("p") == "Running"
    driver(lab).registered.clear()
    lab.place.delete(PODS, "p")
    lab.run(60)
    assert lab.phase("p") == "Running"
    assert any(text.startswith("FailedUnprepareDynamicResources") for text in lab.events())
    driver(lab).registered.add(DRIVER)
    lab.run(80)
    assert lab.phase("p") == "gone"


def test_a_retry_replaces_what_the_driver_that_succeeded_had_answered(lab: Laboratory) -> None:
    """Given two drivers of which the second fails, the first one's devices are not there twice after the retry."""
    broken = [True]

    def answer(operation: Operation, name: str, claims: Sequence[ClaimName]) -> Answer:
        if operation == "prepare" and name == "nic.dray.dev" and broken[0]:
            return Failed("not yet")
        return {claim.uid: Done((PreparedDevice(NODE, f"{name}-0", (), (f"{name}/d=0",)),)) for claim in claims}

    driver(lab).answer = answer
    lab.claim("gpu", "gpu-0")
    lab.claim("nic", "nic-0", driver="nic.dray.dev")
    lab.pod("p", "gpu", "nic")
    lab.run(5)
    assert lab.phase("p") == "Pending"
    broken[0] = False
    lab.run(20)
    found = lab.place.get(PODS, "p")
    assert found is not None
    assert found["metadata"]["annotations"]["dray.dev/cdi-devices"] == "c=gpu.dray.dev/d=0,nic.dray.dev/d=0"


def test_one_call_a_driver_for_all_claims_of_a_pod(lab: Laboratory) -> None:
    lab.claim("one")
    lab.claim("two", "gpu-1")
    lab.claim("unused", "gpu-2")
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "one"}, {"name": "two"}]}}
    lab.pod("p", "one", "two", "unused", containers=[container])
    lab.run(5)
    assert driver(lab).calls == [("prepare", DRIVER, ["one", "two", "unused"])]


def test_a_pod_deleted_while_its_claim_is_prepared_lets_the_driver_finish_first(lab: Laboratory) -> None:
    driver(lab).answer = lambda *_: NotYet(lab.now + 1)
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    lab.place.delete(PODS, "p")
    lab.run(10)
    assert lab.phase("p") == "Pending"
    driver(lab).answer = prepared
    lab.run(20)
    assert (lab.phase("p"), [call[0] for call in driver(lab).calls]) == ("gone", ["prepare", "unprepare"])


def test_a_pod_that_is_deleted_by_force_still_has_its_claim_unprepared(lab: Laboratory) -> None:
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    lab.place.delete(PODS, "p", gracePeriodSeconds=0)
    lab.run(6)
    assert lab.phase("p") == "gone"
    lab.run(10)
    assert driver(lab).asked("unprepare") == [(DRIVER, ["mine"])]


def test_a_claim_of_the_same_name_waits_for_the_old_one_to_be_unprepared(lab: Laboratory) -> None:
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    driver(lab).answer = lambda *_: Failed("busy")
    lab.place.delete(PODS, "p", gracePeriodSeconds=0)
    lab.place.patch(RESOURCE_CLAIMS, "mine", {"metadata": {"finalizers": None}})
    lab.status("mine", {"reservedFor": None})
    lab.place.delete(RESOURCE_CLAIMS, "mine")
    lab.run(7)
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(10)
    assert any("old ResourceClaim with same name mine" in text for text in lab.events())
    driver(lab).answer = prepared
    lab.run(120)
    assert lab.phase("p") == "Running"


def test_operations_that_results_allow_to_skip_are_skipped(lab: Laboratory) -> None:
    lab.claim("mine")
    result = {"request": "gpu", "driver": "absent.dray.dev", "pool": NODE, "device": "gpu-0", "skipNodeOperations": ["*"]}
    lab.status("mine", {"allocation": None})
    lab.status("mine", {"allocation": {"devices": {"results": [result]}}})
    lab.pod("p", "mine")
    lab.run(5)
    assert (lab.phase("p"), driver(lab).calls) == ("Running", [])


# ----------------------------------------------------------------------------------------------------- restarts


def test_a_kubelet_that_restarts_asks_drivers_again_and_unprepares_once() -> None:
    lab = Laboratory(Driver(), faults=Faults(crashes=(Crash(8.0, "nodes"),)))
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(20)
    assert [call[0] for call in driver(lab).calls] == ["prepare", "prepare"]
    lab.place.delete(PODS, "p")
    lab.run(30)
    assert (lab.phase("p"), [call[0] for call in driver(lab).calls]) == ("gone", ["prepare", "prepare", "unprepare"])


def test_what_went_while_no_kubelet_ran_is_unprepared_from_the_checkpoint(tmp_path: Path) -> None:
    lab = Laboratory(Driver(), faults=Faults(crashes=(Crash(8.0, "nodes", 20.0),)), checkpoint=Files({NODE: tmp_path}))
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(10)
    lab.place.delete(PODS, "p", gracePeriodSeconds=0)
    lab.run(40)
    assert driver(lab).asked("unprepare") == [(DRIVER, ["mine"])]


def test_a_pod_that_ends_just_after_a_restart_is_unprepared_from_what_the_api_shows() -> None:
    lab = Laboratory(Driver(), faults=Faults(crashes=(Crash(8.0, "nodes", 20.0),)))
    lab.claim("mine")
    lab.pod("p", "mine", annotations={"dray.dev/finishes-after": "15s"})
    lab.run(40)
    assert (lab.phase("p"), driver(lab).asked("unprepare")) == ("Succeeded", [(DRIVER, ["mine"])])


# ----------------------------------------------------------------------------------------- the simulated drivers


def test_how_preparing_ends_is_set_on_the_claim() -> None:
    lab = Laboratory()
    lab.claim("slow", annotations={"dray.dev/prepare-seconds": "20s"})
    lab.claim("broken", annotations={"dray.dev/prepare": "fail"})
    lab.claim("silent", annotations={"dray.dev/prepare": "silence"})
    for name in ("slow", "broken", "silent"):
        lab.pod(name, name)
    lab.run(15)
    assert {lab.phase(name) for name in ("slow", "broken", "silent")} == {"Pending"}
    lab.run(60)
    assert [lab.phase(name) for name in ("slow", "broken", "silent")] == ["Running", "Pending", "Pending"]
    assert any("ResourceClaim broken: the device cannot be prepared" in text for text in lab.events())
    assert any("NodePrepareResources: rpc error: code = DeadlineExceeded" in text for text in lab.events())


def test_a_device_that_does_not_let_go_keeps_the_pod_terminating() -> None:
    lab = Laboratory()
    lab.claim("mine", annotations={"dray.dev/unprepare": "fail"})
    lab.pod("p", "mine")
    lab.run(5)
    lab.place.delete(PODS, "p")
    lab.run(60)
    assert lab.phase("p") == "Running"
    lab.place.patch(RESOURCE_CLAIMS, "mine", {"metadata": {"annotations": {"dray.dev/unprepare": None}}})
    lab.run(80)
    assert lab.phase("p") == "gone"
