"""Placement records: what was observed before what was predicted, never a guess; and what is free, worked out from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.core import Pod
from dray.api.times import format_time
from dray.numa.available import Occupant, occupant, reconstructed, sureness, unreported
from dray.numa.demand import demand
from dray.numa.evaluate import Evaluators
from dray.numa.layout import Layout, State
from dray.numa.placement import (
    GROUPS_OBSERVED,
    INIT_MEMORY_PREDICTED,
    OBSERVED,
    PREDICTED,
    Placement,
    Record,
    decode,
    encode,
    record,
)
from tests.numa.building import GPU, layout, pod

TWO = layout({"cpu": 4, "gpu": 4, "memory": 100}, {"cpu": 4, "gpu": 4, "memory": 100}, policy="single-numa-node", scope="pod")


def share(zone: int | str, **amounts: object) -> dict[str, Any]:
    name = f"node-{zone}" if isinstance(zone, int) else zone
    return {"zone": name, "amount": {GPU if key == "gpu" else key: str(value) for key, value in amounts.items()}}


def noted(observed: Any = None, predicted: Any = None, groups: Any = None, **more: Any) -> Pod:
    texts = {OBSERVED: observed, PREDICTED: predicted, GROUPS_OBSERVED: groups}
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in texts.items() if value is not None}
    more.setdefault("metadata", {}).setdefault("annotations", {}).update(written)
    return pod(more.pop("needs", {"cpu": 2}), **more)


class TestReading:
    def test_s13_observed_counts_before_predicted(self) -> None:
        found = record(noted([share(1, cpu=3)], [share(0, cpu=3)]), TWO)
        assert (found.source, found.placement) == ("observed", ((1, (("cpu", 3000),)),))

    def test_predicted_counts_while_nothing_is_observed(self) -> None:
        found = record(noted(predicted=[share(0, cpu=3, gpu=1)]), TWO)
        assert (found.source, found.placement) == ("predicted", ((0, (("cpu", 3000), (GPU, 1))),))

    def test_no_record_is_no_placement(self) -> None:
        assert record(noted(), TWO) == Record()

    def test_s18_a_zone_that_the_node_does_not_have_drops_the_whole_record(self) -> None:
        found = record(noted([share(0, cpu=1), share(7, cpu=2)]), TWO)
        assert found.source == "none"
        assert "zone 'node-7' is not one of the node's (node-0, node-1)" in found.warnings[0]

    @pytest.mark.parametrize("observed", ["{", "[]", '[{"zone": 1}]', '[{"zone":"node-0","amount":{"cpu":"x"}}]', "null"])
    def test_s19_and_s20_what_cannot_be_read_falls_through_with_a_warning(self, observed: str) -> None:
        found = record(noted(observed, [share(0, cpu=3)]), TWO)
        assert found.source == "predicted"
        assert found.warnings[0].startswith(f"annotation {OBSERVED}: ")

    def test_negative_and_endless_records_are_refused(self) -> None:
        for text in ('[{"zone":"node-0","amount":{"cpu":"-1"}}]', "[" + "1," * 70_000 + "1]"):
            with pytest.raises(ValueError):
                decode(text, TWO)

    def test_the_same_zone_twice_is_added_up(self) -> None:
        assert decode(json.dumps([share(0, cpu=1), share(0, cpu=2)]), TWO) == ((0, (("cpu", 3000),)),)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", GPU, "memory"]), st.integers(1, 10**12), min_size=1)
PLACEMENTS = st.dictionaries(st.integers(0, 1), AMOUNTS, min_size=1).map(
    lambda found: tuple((place, tuple(sorted(found[place].items()))) for place in sorted(found))
)


@given(PLACEMENTS)
def test_what_is_written_is_read_back_exactly(placed: Placement) -> None:
    assert decode(encode(placed, TWO), TWO) == placed
    assert encode(decode(encode(placed, TWO), TWO), TWO) == encode(placed, TWO)


def test_a_record_has_the_form_that_kai_writes() -> None:
    placed = ((0, (("cpu", 8000), ("memory", 17179869184), (GPU, 2))),)
    text = '[{"zone":"node-0","amount":{"cpu":"8","memory":"17179869184","nvidia.com/gpu":"2"}}]'
    assert encode(placed, TWO) == text


# ------------------------------------------------------------------------------------------------------------ what is free


def free(*pods: Pod, node: Layout = TWO) -> State:
    return reconstructed(node, [occupant(each, demand(each), node).usage for each in pods])


def cpus(state: State) -> tuple[int, ...]:
    return tuple(value // 1000 for value in state.free[state.layout.resources.index("cpu")])


class TestWhatIsFree:
    def test_is_what_can_be_allocated_less_what_pods_have(self) -> None:
        assert cpus(free(noted([share(1, cpu=2)]), noted(predicted=[share(0, cpu=2)]))) == (2, 2)

    def test_s15_a_pod_that_was_just_bound_counts_by_its_prediction(self) -> None:
        evaluators = Evaluators()
        verdict = evaluators.admit(free(noted(predicted=[share(0, cpu=3)])), demand(pod({"cpu": 3})))
        assert verdict.masks == (0b10,)

    def test_s16_a_pod_that_is_gone_counts_no_longer(self) -> None:
        assert cpus(free()) == (4, 4)

    def test_s17_a_pod_without_a_record_is_left_out_and_named(self) -> None:
        unknown = noted()
        assert cpus(free(unknown)) == (4, 4)
        assert occupant(unknown, demand(unknown), TWO).missing
        shared = noted(needs={"cpu": "500m"})
        assert not occupant(shared, demand(shared), TWO).missing

    def test_more_taken_than_there_is_leaves_nothing(self) -> None:
        assert cpus(free(noted([share(0, cpu=9)]))) == (0, 4)

    def test_s22_memory_that_spans_zones_keeps_them_together(self) -> None:
        group = [{"memoryNodes": ["node-0", "node-1"], "amount": {"memory": "120"}}]
        state = free(noted([share(0, cpu=2), share(1, cpu=2)], groups=group))
        assert state.groups == (0b11,)
        assert sum(state.free[state.layout.resources.index("memory")]) == 80
        verdict = Evaluators().admit(state, demand(pod({"memory": 40})))
        assert not verdict.admit
        assert verdict.refusal is not None
        assert verdict.refusal.code == "ZoneMemoryGroups"

    def test_a_pod_with_nothing_but_memory_across_zones_is_known_by_its_group(self) -> None:
        group = [{"memoryNodes": ["node-0", "node-1"], "amount": {"memory": "120"}}]
        given = noted(groups=group, needs={"memory": 120})
        assert not occupant(given, demand(given), TWO).missing

    def test_predicted_memory_in_two_zones_of_a_whole_pod_is_a_group(self) -> None:
        wide = layout({"memory": 100}, {"memory": 100}, policy="restricted", scope="pod")
        given = noted(predicted=[share(0, memory=100), share(1, memory=20)], needs={"memory": 120})
        assert free(given, node=wide).groups == (0b11,)

    def test_s25_devices_that_an_init_container_left_are_where_they_were_predicted(self) -> None:
        stranded = pod(
            {"gpu": 1},
            inits=({"gpu": 4},),
            metadata={"annotations": {OBSERVED: json.dumps([share(0, gpu=1)]), PREDICTED: json.dumps([share(0, gpu=4)])}},
        )
        state = free(stranded)
        assert state.free[state.layout.resources.index(GPU)] == (0, 4)

    def test_cpus_that_an_init_container_left_are_where_they_were_predicted(self) -> None:
        notes = {OBSERVED: json.dumps([share(1, cpu=1)]), PREDICTED: json.dumps([share(1, cpu=4)])}
        state = free(pod({"cpu": 1}, inits=({"cpu": 4},), metadata={"annotations": notes}))
        total = state.layout.allocatable[state.layout.resources.index("cpu")]
        assert state.free[state.layout.resources.index("cpu")] == (total[0], total[1] - 4000)

    @pytest.mark.parametrize("phase", ["Pending", "Running"])
    @pytest.mark.parametrize("record", [OBSERVED, PREDICTED])
    def test_memory_of_init_containers_counts_until_the_pod_runs(self, phase: str, record: str) -> None:
        early = [{"memoryNodes": ["node-0"], "amount": {"memory": "50"}}]
        notes = {record: json.dumps([share(0, memory=10)]), INIT_MEMORY_PREDICTED: json.dumps(early)}
        given = pod({"memory": 10}, inits=({"memory": 60},), metadata={"annotations": notes})
        given.status.phase = phase
        state = free(given)
        assert state.free[state.layout.resources.index("memory")] == (40 if phase == "Pending" else 90, 100)

    def test_memory_of_init_containers_from_two_zones_binds_them_until_the_pod_runs(self) -> None:
        early = [{"memoryNodes": ["node-0", "node-1"], "amount": {"memory": "120"}}]
        notes = {OBSERVED: json.dumps([share(0, cpu=1)]), INIT_MEMORY_PREDICTED: json.dumps(early)}
        given = pod({"cpu": 1, "memory": 10}, inits=({"memory": 120},), metadata={"annotations": notes})
        assert free(given).groups == (0b11,)
        given.status.phase = "Running"
        assert free(given).groups == ()

    @pytest.mark.parametrize("text", ["{", "[]", '[{"memoryNodes": ["node-9"], "amount": {"memory": "5"}}]'])
    def test_what_cannot_be_read_of_init_containers_counts_for_nothing(self, text: str) -> None:
        notes = {OBSERVED: json.dumps([share(0, memory=10)]), INIT_MEMORY_PREDICTED: text}
        state = free(pod({"memory": 10}, inits=({"memory": 60},), metadata={"annotations": notes}))
        assert state.free[state.layout.resources.index("memory")] == (90, 100)


class TestTheExportersHealth:
    NOW = 1767229200.0

    def running(self, seconds: float, **more: Any) -> tuple[Pod, Any]:
        given = noted(**more)
        given.status.phase, given.status.start_time = "Running", format_time(self.NOW - seconds)
        return given, occupant(given, demand(given), TWO)

    def late(self, *pods: tuple[Pod, Occupant]) -> list[str]:
        return unreported([pod for pod, found in pods if sureness(found, started=True) != "observed"], self.NOW)

    def test_a_pod_that_runs_for_long_without_a_report_is_a_sign(self) -> None:
        assert self.late(self.running(120, predicted=[share(0, cpu=2)])) == ["ns/p"]

    def test_one_that_just_started_or_was_reported_is_not(self) -> None:
        assert self.late(self.running(20), self.running(120, observed=[share(0, cpu=2)])) == []

    def test_one_that_has_nothing_by_zone_is_not(self) -> None:
        assert self.late(self.running(120, needs={"cpu": "500m"})) == []
