"""What simulated kubelets count: the numbers of a real kubelet, by their names."""

from __future__ import annotations

import pytest

from dray.api.kinds import PODS
from dray.cluster.metrics import Recorder
from dray.nodes.drivers import Failed, NotYet
from dray.nodes.numbers import METRICS
from tests.nodes.laboratory import DRIVER, Driver, Laboratory, prepared


@pytest.fixture
def meter() -> Recorder:
    return Recorder()


@pytest.fixture
def lab(meter: Recorder) -> Laboratory:
    return Laboratory(Driver(), meter=meter)


def driver(lab: Laboratory) -> Driver:
    assert lab.driver is not None
    return lab.driver


def test_preparing_and_unpreparing_are_timed_by_pod_and_by_call(lab: Laboratory, meter: Recorder) -> None:
    begun = lab.now
    driver(lab).answer = lambda *asked: NotYet(begun + 4) if lab.now < begun + 4 else prepared(*asked)
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(10)
    (by_pod,) = meter.samples["dra_operations_duration_seconds", ("PrepareResources", "false")]
    (by_call,) = meter.samples["dra_grpc_operations_duration_seconds", (DRIVER, "NodePrepareResources", "OK")]
    assert by_pod == by_call == pytest.approx(4, abs=0.5)
    lab.place.delete(PODS, "p")
    lab.run(20)
    assert ("dra_operations_duration_seconds", ("UnprepareResources", "false")) in meter.samples
    assert ("dra_grpc_operations_duration_seconds", (DRIVER, "NodeUnprepareResources", "OK")) in meter.samples


def test_a_call_that_fails_is_counted_with_its_code(lab: Laboratory, meter: Recorder) -> None:
    driver(lab).answer = lambda *_: Failed("the driver is busy", "Unavailable")
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    assert meter.samples["dra_operations_duration_seconds", ("PrepareResources", "true")]
    assert meter.samples["dra_grpc_operations_duration_seconds", (DRIVER, "NodePrepareResources", "Unavailable")]
    assert ("dra_operations_duration_seconds", ("PrepareResources", "false")) not in meter.samples


def test_claims_in_use_are_counted_by_driver_and_in_all(lab: Laboratory, meter: Recorder) -> None:
    def in_use() -> dict[str, float]:
        return {labels[0]: value for (_, labels), value in meter.gauges.items() if value}

    lab.claim("one")
    lab.claim("other", driver="nic.dray.dev")
    lab.pod("p", "one", "other")
    lab.pod("q", "one")
    lab.run(5)
    assert in_use() == {DRIVER: 1, "nic.dray.dev": 1, "<any>": 2}
    lab.place.delete(PODS, "p")
    lab.run(15)
    assert in_use() == {DRIVER: 1, "<any>": 1}
    lab.place.delete(PODS, "q")
    lab.run(25)
    assert in_use() == {}


def test_a_pod_that_is_not_taken_is_counted_once(lab: Laboratory, meter: Recorder) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "4000"}}}
    lab.pod("big", containers=[container])
    lab.run(30)
    assert lab.phase("big") == "Failed"
    assert meter.counters["kubelet_admission_rejections_total", ("OutOfcpu",)] == 1


def test_everything_that_is_counted_is_declared(lab: Laboratory, meter: Recorder) -> None:
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    told = {name for name, _ in (*meter.samples, *meter.gauges, *meter.counters)}
    assert told <= METRICS.keys()
