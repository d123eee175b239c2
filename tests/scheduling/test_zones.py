"""Zones in the scheduler: pods go only where their kubelet would take them, and what they take there counts at once."""

from __future__ import annotations

import msgspec
import pytest
from scheduling_cluster import Sim
from zoned import GPU, add_zoned, aligned, change, observe, record, started, topology

from dray.api import kinds
from dray.api.times import format_time
from dray.cluster.port import Unreachable
from dray.numa.intent import SPAN
from dray.numa.placement import PREDICTED
from dray.scheduling.arguments import ZoneArgs
from dray.scheduling.config import Config, Profile

CPU4 = {"cpu": 4}


def patient(**args: object) -> Sim:
    return Sim(Config((Profile(zones=ZoneArgs(**args)),)))  # type: ignore[arg-type]


class TestInOneCycle:
    def test_three_three_and_two_cores_on_two_zones_of_four_exactly_two_are_placed(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        for name, cores in (("a", 3), ("b", 3), ("c", 2)):
            sim.add_pod(name, **aligned(cores))
        sim.settle()
        assert [sim.node_of(name) for name in "abc"] == ["n1", "n1", ""]
        assert (record(sim, "a"), record(sim, "b")) == ({"node-0": {"cpu": "3"}}, {"node-1": {"cpu": "3"}})
        assert "same zones" in sim.condition("c")["message"]

    def test_a_pod_that_is_left_over_is_placed_when_a_zone_is_free(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        for name, cores in (("a", 3), ("b", 3), ("c", 2)):
            sim.add_pod(name, **aligned(cores))
        sim.settle()
        started(sim, "a", "b")
        observe(sim, "a", zone1={"cpu": "3"})
        observe(sim, "b", zone0={"cpu": "3"})
        sim.remove(kinds.PODS, "default/b")
        sim.settle()
        assert record(sim, "c") == {"node-0": {"cpu": "2"}}

    def test_which_of_two_equal_pods_is_where_is_not_known_before_it_is_observed(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        for name, cores in (("a", 3), ("b", 3), ("c", 2)):
            sim.add_pod(name, **aligned(cores))
        sim.settle()
        started(sim, "a", "b")
        observe(sim, "a", zone1={"cpu": "3"})
        sim.settle()
        assert sim.node_of("c") == "", "b was predicted there, and is in zone 0"
        observe(sim, "b", zone0={"cpu": "3"})
        sim.settle(60)
        assert sim.node_of("c") == ""

    def test_a_gpu_and_cores_that_are_free_in_different_zones_do_not_help(self, sim: Sim) -> None:
        add_zoned(sim, "apart", {"cpu": 8, GPU: 0}, {"cpu": 1, GPU: 2})
        add_zoned(sim, "together", {"cpu": 8, GPU: 2}, {"cpu": 1, GPU: 0})
        sim.add_pod("p", **aligned(4, gpu=1))
        sim.settle()
        assert sim.node_of("p") == "together"

    def test_a_full_node_pod_spans_both_zones_under_restricted(self, sim: Sim) -> None:
        add_zoned(sim, "n1", {"cpu": 16, GPU: 4}, {"cpu": 16, GPU: 4}, policy="restricted")
        sim.add_pod("small", **aligned(10, gpu=6))
        sim.add_pod("large", **aligned(24, gpu=6))
        sim.settle()
        assert sim.node_of("small") == ""
        assert set(record(sim, "large")) == {"node-0", "node-1"}

    def test_equal_pods_are_bound_beside_each_other(self, sim: Sim) -> None:
        add_zoned(sim, "n1", {"cpu": 8, GPU: 4}, {"cpu": 8, GPU: 4})
        for number in range(8):
            sim.add_pod(f"p{number}", **aligned(2, gpu=1))
        sim.settle()
        assert sorted(tuple(record(sim, f"p{n}")) for n in range(8)) == [("node-0",)] * 4 + [("node-1",)] * 4


class TestWhatIsNotConcerned:
    def test_pods_that_no_kubelet_aligns_go_anywhere(self, sim: Sim) -> None:
        add_zoned(sim, "n1", {"cpu": 2}, {"cpu": 2})
        sim.add_pod("p", requests={"cpu": "3"})
        sim.settle()
        assert sim.node_of("p") == "n1"
        assert record(sim, "p") == {}

    def test_a_node_that_publishes_nothing_takes_what_fits(self, sim: Sim) -> None:
        sim.add_node("n1", cpu="8")
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert sim.node_of("p") == "n1"

    def test_a_policy_that_never_refuses_takes_what_fits_and_is_recorded(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4, policy="best-effort")
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert sum(int(amounts["cpu"]) for amounts in record(sim, "p").values()) == 5

    def test_a_resource_that_an_administrator_knows_not_to_be_aligned_is_ignored(self) -> None:
        sim = patient(ignored=frozenset({"memory"}))
        add_zoned(sim, "n1", {"cpu": 4, "memory": 10}, {"cpu": 4, "memory": 10})
        sim.add_pod("p", **aligned(2, memory=15))
        sim.settle()
        assert record(sim, "p") == {"node-0": {"cpu": "2"}}


class TestTopologiesComeAndGo:
    def test_a_topology_that_appears_counts_from_then_on_with_the_pods_that_are_there(self, sim: Sim) -> None:
        sim.add_node("n1", cpu="8")
        sim.add_pod("a", **aligned(3))
        sim.settle()
        assert sim.node_of("a") == "n1"
        change(sim, "a", metadata={"annotations": {PREDICTED: '[{"zone":"node-0","amount":{"cpu":"3"}}]'}})
        started(sim, "a")
        sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, topology("n1", CPU4, CPU4))
        sim.add_pod("b", **aligned(2))
        sim.add_pod("c", **aligned(5))
        sim.settle()
        assert record(sim, "b") == {"node-1": {"cpu": "2"}}
        assert sim.node_of("c") == ""

    def test_a_topology_that_goes_keeps_nobody_out(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert sim.node_of("p") == ""
        sim.remove(kinds.NODE_RESOURCE_TOPOLOGIES, "n1")
        sim.settle()
        assert sim.node_of("p") == "n1"

    def test_larger_zones_wake_who_waits_for_them(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("p", **aligned(5))
        sim.settle()
        sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, topology("n1", {"cpu": 6}, {"cpu": 2}))
        sim.settle()
        assert record(sim, "p") == {"node-0": {"cpu": "5"}}

    def test_one_that_cannot_be_read_counts_as_none(self, sim: Sim) -> None:
        sim.add_node("n1", cpu="8")
        broken = topology("n1", CPU4, CPU4)
        broken["zones"][0]["resources"][0]["allocatable"] = "four"
        sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, broken)
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert sim.node_of("p") == "n1"


class TestRecords:
    def test_a_scheduler_that_starts_anew_counts_by_the_records(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        started(sim, "a")
        sim.start()
        sim.add_pod("b", **aligned(2))
        sim.settle()
        assert record(sim, "b") == {"node-1": {"cpu": "2"}}

    def test_what_was_observed_counts_before_what_was_predicted(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        started(sim, "a")
        observe(sim, "a", zone1={"cpu": "3"})
        sim.add_pod("b", **aligned(2))
        sim.settle()
        assert record(sim, "b") == {"node-0": {"cpu": "2"}}

    def test_the_record_comes_with_the_binding_and_costs_no_other_write(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        assert [write.subresource for write in sim.log if write.kind is kinds.PODS] == ["binding"]


class TestStaleTopology:
    def test_a_pod_that_is_not_published_yet_counts(self, sim: Sim) -> None:
        """``available`` still says that everything is free."""
        add_zoned(sim, "n1", CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        started(sim, "a")
        sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, topology("n1", CPU4))
        sim.add_pod("b", **aligned(2))
        sim.settle()
        assert sim.node_of("b") == ""

    def test_a_pod_that_is_gone_and_still_published_does_not_count(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, zone0={"cpu": "1"})
        sim.add_pod("b", **aligned(4))
        sim.settle()
        assert sim.node_of("b") == "n1"

    def test_without_reconstruction_what_is_published_is_believed(self) -> None:
        sim = patient(reconstruct=False)
        add_zoned(sim, "n1", CPU4, zone0={"cpu": "1"})
        sim.add_pod("b", **aligned(4))
        sim.settle()
        assert sim.node_of("b") == ""
        sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, topology("n1", CPU4))
        sim.settle()
        assert sim.node_of("b") == "n1"

    def test_without_reconstruction_pods_of_one_cycle_count_all_the_same(self) -> None:
        sim = patient(reconstruct=False)
        add_zoned(sim, "n1", CPU4, CPU4)
        for name in "abc":
            sim.add_pod(name, **aligned(3))
        sim.settle()
        assert sum(sim.node_of(name) == "n1" for name in "abc") == 2


class TestWaitingForPlacements:
    def test_a_node_with_a_pod_of_which_nothing_is_known_is_left_alone_for_a_while(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("foreign", **aligned(3), node_name="n1", phase="Running")
        sim.add_pod("p", **aligned(2))
        sim.settle(9)
        assert sim.node_of("p") == ""
        assert "a pod whose zones are not known" in sim.condition("p")["message"]
        sim.settle(2)
        assert sim.node_of("p") == "n1"

    def test_an_observation_ends_the_wait(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("foreign", **aligned(3), node_name="n1", phase="Running")
        sim.add_pod("p", **aligned(2))
        sim.settle(1)
        observe(sim, "foreign", zone0={"cpu": "3"})
        sim.settle()
        assert record(sim, "p") == {"node-1": {"cpu": "2"}}

    def test_a_pod_does_not_overtake_another_one_on_its_way_to_the_kubelet(self, sim: Sim) -> None:
        """Which zones they get depends on which of them is admitted first."""
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.add_pod("b", **aligned(2))
        sim.settle()
        assert [sim.node_of(name) for name in "ab"] == ["n1", ""]
        started(sim, "a")
        sim.settle()
        assert record(sim, "b") == {"node-1": {"cpu": "2"}}

    def test_what_is_given_back_meanwhile_makes_a_pod_on_its_way_doubtful(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        started(sim, "a")
        sim.add_pod("b", **aligned(2))
        sim.settle()
        sim.remove(kinds.PODS, "default/a")
        sim.add_pod("c", **aligned(2))
        sim.settle(1)
        assert sim.node_of("c") == "", "b may be in zone 0 now"
        observe(sim, "b", zone0={"cpu": "2"})
        started(sim, "b")
        sim.settle()
        assert record(sim, "c") == {"node-0": {"cpu": "2"}}

    def test_who_does_not_want_to_wait_does_not(self) -> None:
        sim = patient(wait=0.0)
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("foreign", **aligned(3), node_name="n1", phase="Running")
        sim.add_pod("p", **aligned(2))
        sim.settle()
        assert sim.node_of("p") == "n1"


class TestWhatAPodSaysOfItsZones:
    @pytest.mark.parametrize(("before", "after"), [("1", "2"), ("none", "2")])
    def test_it_is_tried_again_when_that_changes(self, sim: Sim, before: str, after: str) -> None:
        add_zoned(sim, "n1", CPU4, CPU4, policy="best-effort")
        sim.add_pod("p", **aligned(6))
        change(sim, "p", metadata={"annotations": {SPAN: before}})
        sim.settle()
        assert sim.node_of("p") == ""
        change(sim, "p", metadata={"annotations": {SPAN: after}})
        sim.settle()
        assert sim.node_of("p") == "n1"

    def test_s31_it_means_nothing_where_no_node_publishes_zones(self, sim: Sim) -> None:
        sim.add_node("n1", cpu="8")
        sim.add_pod("p", **aligned(6))
        change(sim, "p", metadata={"annotations": {SPAN: "1"}})
        sim.settle()
        assert sim.node_of("p") == "n1"

    def test_a_node_of_which_nothing_is_known_will_not_do_beside_others_that_publish_theirs(self, sim: Sim) -> None:
        add_zoned(sim, "small", {"cpu": 2}, {"cpu": 2})
        sim.add_node("unknown", cpu="8")
        sim.add_pod("p", **aligned(6))
        sim.add_pod("free", requests={"cpu": "5"})
        for name in ("p", "free"):
            change(sim, name, metadata={"annotations": {SPAN: "1"}})
        sim.settle()
        assert (sim.node_of("p"), sim.node_of("free")) == ("", "unknown")
        sim.remove(kinds.PODS, "default/free")
        sim.settle()
        assert sim.node_of("p") == ""
        sim.remove(kinds.NODE_RESOURCE_TOPOLOGIES, "small")
        sim.settle()
        assert sim.node_of("p") == "unknown"


class TestKubeletsThatRefuse:
    def refuse(self, sim: Sim, name: str) -> None:
        change(sim, name, status={"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected"})
        sim.settle()

    def test_such_pods_are_not_sent_there_again_while_nothing_changes(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        self.refuse(sim, "a")
        sim.add_pod("again", **aligned(3))
        sim.add_pod("other", **aligned(2))
        sim.settle(1)
        assert [sim.node_of(name) for name in ("again", "other")] == ["", "n1"]
        assert sim.meter.counters["dray_numa_admission_refusals_total", ("TopologyAffinityError",)] == 1

    def test_a_scheduler_that_starts_again_knows_it_of_the_pod_that_failed_and_for_no_longer(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        change(sim, "a", status={"startTime": format_time(sim.now)})
        self.refuse(sim, "a")
        sim.settle(20)
        sim.restart()
        sim.add_pod("again", **aligned(3))
        sim.settle(30)
        assert "refused such a pod before (TopologyAffinityError)" in sim.condition("again")["message"]
        assert ("dray_numa_admission_refusals_total", ("TopologyAffinityError",)) not in sim.meter.counters  # not twice
        sim.settle(20)
        assert sim.node_of("again") == "n1"

    def test_after_a_minute_it_is_tried_again(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        self.refuse(sim, "a")
        sim.add_pod("again", **aligned(3))
        sim.settle(59)
        assert sim.node_of("again") == ""
        assert "TopologyAffinityError" in sim.condition("again")["message"]
        sim.settle(2)
        assert sim.node_of("again") == "n1"

    def test_that_a_node_is_selected_again_is_counted(self) -> None:
        """Something changes on the node in between, so it is tried again, and refuses again."""
        sim = patient(wait=0.0)
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("a", **aligned(3))
        sim.settle()
        self.refuse(sim, "a")
        assert ("dray_numa_reselected_nodes_total", ()) not in sim.meter.counters
        sim.add_pod("other", **aligned(1))
        sim.settle()
        sim.add_pod("again", **aligned(3))
        sim.settle()
        self.refuse(sim, "again")
        assert sim.meter.counters["dray_numa_reselected_nodes_total", ()] == 1

    def test_where_nothing_is_published_it_is_counted_too(self, sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
        """The node is passed, as it must be, and who looks at the numbers sees that it should publish its zones."""
        sim.add_node("n1", cpu="8")
        for name in "ab":
            sim.add_pod(name, **aligned(5))
            sim.settle()
            self.refuse(sim, name)
        assert sim.meter.counters["dray_numa_admission_refusals_total", ("TopologyAffinityError",)] == 2
        assert sim.meter.counters["dray_numa_reselected_nodes_total", ()] == 1
        assert [found.message for found in caplog.records] == [
            "a kubelet refused a pod for its zones, of which nothing is published"
        ] * 2

    def test_what_has_nothing_to_do_with_zones_is_not_counted_there(self, sim: Sim) -> None:
        sim.add_node("n1", cpu="8")
        sim.add_pod("a", **aligned(5))
        sim.settle()
        change(sim, "a", status={"phase": "Failed", "reason": "UnexpectedAdmissionError"})
        sim.settle()
        assert not any(name.startswith("dray_numa") for name, _ in sim.meter.counters)


class TestWhatIsNotKnownThatShouldBe:
    def gauge(self, sim: Sim, name: str) -> float:
        return sim.meter.gauges[f"dray_numa_{name}", ()]

    def unreported(self, sim: Sim) -> float:
        return self.gauge(sim, "pods_not_reported")

    def running(self, sim: Sim) -> None:
        add_zoned(sim, "n1", {"cpu": 4, "memory": 8 << 30})
        sim.add_pod("a", **aligned(3))
        sim.settle()
        change(sim, "a", status={"phase": "Running", "startTime": format_time(sim.now)})
        sim.settle(50)

    def test_a_pod_that_nobody_reports_is_counted_although_nothing_else_happens(self, sim: Sim) -> None:
        self.running(sim)
        assert self.unreported(sim) == 0
        sim.settle(80)
        assert self.unreported(sim) == 1
        assert sim.scheduler.wake() is None, "and it is not looked at again and again"

    def test_and_no_longer_when_it_is_reported(self, sim: Sim) -> None:
        self.running(sim)
        sim.settle(80)
        observe(sim, "a", zone0={"cpu": "3"})
        sim.settle(61)
        assert self.unreported(sim) == 0

    def test_nor_when_nobody_publishes_zones_any_more(self, sim: Sim) -> None:
        self.running(sim)
        add_zoned(sim, "n2", {})
        sim.settle(130)
        assert (self.unreported(sim), self.gauge(sim, "nodes_without_zone_data")) == (1, 1)
        for name in ("n1", "n2"):
            sim.remove(kinds.NODE_RESOURCE_TOPOLOGIES, name)
        sim.settle(61)
        assert (self.unreported(sim), self.gauge(sim, "nodes_without_zone_data")) == (0, 0)

    @pytest.mark.parametrize(
        ("zones", "policy", "lacking"),
        [
            ([{"cpu": 4, "memory": 8}], "restricted", 1),
            ([{"cpu": 4, "memory": 8, GPU: 2}], "restricted", 0),
            ([], "single-numa-node", 1),
            ([], "best-effort", 0),
        ],
    )
    def test_nodes_that_would_refuse_and_publish_nothing_of_a_device_are_counted(
        self, sim: Sim, zones: list[dict[str, int]], policy: str, lacking: int
    ) -> None:
        sim.add_node("n1", resources={GPU: "2"})
        sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, topology("n1", *zones, policy=policy))
        sim.settle()
        assert self.gauge(sim, "nodes_without_zone_data") == lacking


class TestZonesThatAreKept:
    def test_nodes_that_are_as_full_and_keep_other_zones_do_not_share_an_answer(self, sim: Sim) -> None:
        """On each of two nodes a pod with three cores waits, and another one with three is there; once in each zone."""
        zones = [{"cpu": 4}, {"cpu": 3}]
        for node, waiting in (("n1", 0), ("n2", 1)):
            add_zoned(sim, node, *zones)
            sim.add_pod(f"{node}-there", **aligned(3), node_name=node, phase="Running")
            observe(sim, f"{node}-there", **{f"zone{1 - waiting}": {"cpu": "3"}})
            started(sim, f"{node}-there")
        sim.settle()
        account = sim.scheduler.parts.zones
        there = {node: account.entry(sim.pod(f"{node}-there")["metadata"]["uid"]) for node in ("n1", "n2")}
        for node, other in (("n1", "n2"), ("n2", "n1")):
            same = there[other]
            assert same is not None
            account.post(f"{node}-waits", msgspec.structs.replace(same, node=node, sure="awaited"))
        assert account.tallies["n1"].state == account.tallies["n2"].state
        assert account.tallies["n1"] != account.tallies["n2"]


class TestWhoIsNotBoundYet:
    def test_finds_what_became_free_meanwhile(self) -> None:
        """Its kubelet gives it the lower zone, which nobody reports, so the next one must not be sent there."""
        sim = patient(wait=10)
        add_zoned(sim, "n1", CPU4, {"cpu": 2})
        sim.add_pod("a", **aligned(3))
        sim.settle()
        started(sim, "a")
        observe(sim, "a", zone0={"cpu": "3"})
        sim.fault = lambda write: Unreachable("away") if write.subresource == "binding" else None
        sim.add_pod("b", **aligned(2))
        sim.settle(5)
        sim.remove(kinds.PODS, "default/a")
        sim.settle(5)
        sim.fault = None
        sim.settle(5)
        assert sim.node_of("b") == "n1"
        started(sim, "b")
        sim.add_pod("c", **aligned(4))
        sim.settle(60)
        assert sim.node_of("c") == ""
        sim.add_pod("d", **aligned(2))
        sim.settle(60)
        assert sim.node_of("d") == "n1"


class TestWhoHasNoRecord:
    def test_is_not_evicted_for_zones_that_it_probably_has(self) -> None:
        """It counts where its kubelet probably puts it, so that nobody is sent there; but nobody has to go for a guess."""
        sim = patient(wait=1)
        add_zoned(sim, "n1", CPU4, CPU4)
        sim.add_pod("ours", priority=100, **aligned(3))
        sim.settle(3)
        started(sim, "ours")
        observe(sim, "ours", zone0={"cpu": "3"})
        sim.add_pod("stranger", node_name="n1", priority=0, **aligned(3))
        sim.settle(5)
        sim.add_pod("high", priority=50, **aligned(3))
        sim.settle(30)
        assert sim.node_of("high") == ""
        assert not [write for write in sim.log if write.verb == "delete"]
        started(sim, "stranger")
        observe(sim, "stranger", zone1={"cpu": "3"})
        sim.settle(30)
        assert [write.name for write in sim.log if write.verb == "delete"] == ["stranger"]
