"""Eviction goes on at its pace, through failures and restarts, and touches nobody else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from dray.api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_SLICES
from dray.api.meta import ObjectMeta
from dray.api.resource import Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec
from dray.cluster.port import NotFound, Refused, Unreachable, Write
from dray.cluster.world import World
from dray.controllers.eviction import TaintEviction
from dray.controllers.pace import Pace
from dray.controllers.taints import Taints
from dray.runtime.faults import Faults
from tests.controllers.eviction_cluster import Tainted, taint, tolerates

DELETIONS = ("device_taint_eviction_controller_pod_deletions_total", ())
SECONDS = ("device_taint_eviction_controller_pod_deletion_duration_seconds", ())


def fails(cluster: Tainted, of: Callable[[Write], bool], *errors: Exception, done: bool = False) -> list[Exception]:
    """The next such writes end in these errors; ``done``: although they happen. Gives the errors that are left."""
    left, write = list(errors), cluster.core.write

    def attempt(wanted: Write) -> Any:
        if not (of(wanted) and left):
            return write(wanted)
        if done:
            write(wanted)
        raise left.pop(0)

    cluster.core.write = attempt  # type: ignore[method-assign]
    return left


def is_delete(write: Write) -> bool:
    return write.verb == "delete" and write.kind == PODS


def is_mark(write: Write) -> bool:
    return write.verb == "patch" and write.kind == PODS and write.subresource == "status"


class TestThePace:
    def test_so_many_a_second_and_all_of_them_in_the_end(self) -> None:
        cluster = Tainted(rate=10.0, burst=5)
        cluster.start_eviction()
        for number in range(100):
            cluster.using(f"p{number}", "gpu-0")
        cluster.rule()
        counts = []
        for _ in range(12):
            cluster.run(1)
            counts.append(len(cluster.leaving()))
        steps = [after - before for before, after in itertools.pairwise(counts)]
        assert max(steps) <= 11
        assert len(cluster.leaving()) == 100

    def test_a_few_at_the_same_time(self) -> None:
        """While answers take ten seconds, no more than these are under way."""
        cluster = Tainted(faults=Faults(write_delay=(5.0, 5.0)), rate=1000.0, burst=1000, parallel=3)
        cluster.start_eviction()
        for number in range(10):
            cluster.using(f"p{number}", "gpu-0")
        cluster.rule()
        cluster.run(9)
        assert len(cluster.writes("patch", PODS, "status")) == 3
        cluster.run(200)
        assert len(cluster.leaving()) == 10

    def test_pods_that_cannot_be_deleted_keep_nobody_waiting(self) -> None:
        cluster = Tainted(parallel=2)
        cluster.start_eviction()
        for number in range(6):
            cluster.using(f"p{number}", "gpu-0")
        write = cluster.core.write

        def attempt(wanted: Write) -> Any:
            if is_delete(wanted) and wanted.name in ("p0", "p1"):
                raise Refused(500, "InternalError", "a webhook says no")
            return write(wanted)

        cluster.core.write = attempt  # type: ignore[method-assign]
        cluster.rule()
        cluster.run(60)
        assert cluster.leaving() == {"p2", "p3", "p4", "p5"}
        cluster.core.write = write  # type: ignore[method-assign]
        cluster.run(600)
        assert len(cluster.leaving()) == 6

    def test_what_was_cancelled_costs_no_time(self) -> None:
        """A rule for everything, taken back after a moment, does not delay the next one by what it would have evicted."""
        cluster = Tainted(rate=1.0, burst=1)
        cluster.start_eviction()
        for number in range(200):
            cluster.using(f"p{number}", "gpu-0")
        cluster.using("broken", "gpu-1")
        cluster.rule()
        cluster.run(3)
        cluster.delete(DEVICE_TAINT_RULES, "rule")
        cluster.rule("next", selector={"device": "gpu-1"})
        cluster.run(3)
        assert cluster.evicted("broken")
        assert len(cluster.leaving()) <= 6

    def test_a_rule_that_is_taken_back_does_not_flood_the_server_with_events(self) -> None:
        cluster = Tainted()
        cluster.start_eviction()
        for number in range(300):
            cluster.using(f"p{number}", "gpu-0", tolerations=[tolerates(600)])
        cluster.rule()
        cluster.run(5)
        cluster.delete(DEVICE_TAINT_RULES, "rule")
        cluster.run(5)
        assert len(cluster.events()) == 200

    def test_those_that_are_due_longest_go_first(self) -> None:
        pace = Pace(1.0, 1)
        for key, when in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
            pace.put(key, when)
        order = [key for now in range(1, 20) for key, _ in pace.due(float(now), 8)]
        assert order == ["a", "b", "c"]

    def test_memory_is_bounded_however_often_a_deadline_moves(self) -> None:
        pace = Pace(1.0, 1)
        for number in range(20_000):
            pace.put("a", float(number))
        assert len(pace) == 1
        assert len(pace._heap) <= 2000


class TestFailures:
    def test_a_delete_that_fails_is_tried_again_and_counted_once(self, cluster: Tainted) -> None:
        fails(cluster, is_delete, *[Refused(500, "InternalError", "not now")] * 2)
        cluster.rule()
        cluster.run(30)
        assert cluster.evicted("train")
        assert len(cluster.writes("delete")) == 3
        assert cluster.meter.counters[DELETIONS] == 1
        assert cluster.meter.counters["workqueue_retries_total", ("device-taint-eviction-controller",)] == 2

    def test_a_delete_whose_answer_was_lost_is_counted_once(self, cluster: Tainted) -> None:
        fails(cluster, is_delete, Unreachable("no answer"), done=True)
        cluster.rule()
        cluster.run(30)
        assert cluster.evicted("train")
        assert cluster.meter.counters[DELETIONS] == 1
        assert cluster.told()[2] == "1 pod evicted since starting the controller."

    def test_a_pod_that_is_gone_when_it_is_looked_at_is_done_and_not_counted(self, cluster: Tainted) -> None:
        fails(cluster, is_mark, NotFound(404, "NotFound", "gone"))
        cluster.delete(PODS, "train", gracePeriodSeconds=0)
        cluster.rule()
        cluster.run(30)
        assert cluster.writes("delete") == []
        assert DELETIONS not in cluster.meter.counters

    def test_a_pod_that_somebody_deleted_meanwhile_is_not_counted(self, cluster: Tainted) -> None:
        """Upstream counts it as evicted."""
        cluster.rule(taint={"timeAdded": cluster.ago(-5)})
        cluster.run(4)
        cluster.shell.at(cluster.shell.elapsed + 0.5, lambda: cluster.delete(PODS, "train"))
        cluster.run(20)
        assert cluster.writes("delete") == []
        assert DELETIONS not in cluster.meter.counters
        assert cluster.told() == ("False", "NotStarted", "")

    def test_a_new_pod_of_the_same_name_is_not_touched(self) -> None:
        """It came while the controller saw the old one: the precondition on the uid keeps it."""
        cluster = Tainted(faults=Faults(event_delay=(2.0, 2.0)))
        cluster.start_eviction()
        cluster.using("train", "gpu-0")
        cluster.run(10)
        cluster.rule()
        cluster.run(1.9)
        cluster.delete(PODS, "train", gracePeriodSeconds=0)
        cluster.pod("train", "other")
        cluster.run(60)
        assert not cluster.evicted("train")
        assert any(one.error is not None for one in cluster.writes("patch", PODS, "status"))
        before = len(cluster.written)
        cluster.run(600)
        assert len(cluster.written) == before

    def test_the_live_look_sees_that_a_pod_has_ended(self) -> None:
        cluster = Tainted(faults=Faults(event_delay=(2.0, 2.0)))
        cluster.start_eviction()
        cluster.using("train", "gpu-0")
        cluster.run(10)
        cluster.rule()
        cluster.run(1.9)
        cluster.status(PODS, "train", {"phase": "Succeeded"})
        cluster.run(60)
        assert cluster.writes("delete") == []

    def test_a_taint_that_goes_between_the_look_and_the_delete_spares_the_pod(self) -> None:
        cluster = Tainted(faults=Faults(write_delay=(1.0, 1.0)))
        cluster.start_eviction()
        cluster.using("train", "gpu-0")
        cluster.run(10)
        cluster.rule()
        cluster.run(1.5)
        assert len(cluster.writes("patch", PODS, "status")) == 1
        cluster.delete(DEVICE_TAINT_RULES, "rule")
        cluster.run(60)
        assert not cluster.evicted("train")
        assert cluster.writes("delete") == []

    def test_the_delete_does_not_wait_behind_writes_of_others_until_its_reason_is_gone(self, cluster: Tainted) -> None:
        """``test_what_is_begun_is_ended_before_more_is_begun`` is what a shell makes of it."""
        cluster.rule()
        cluster.run(10)
        assert [one.write.goes_on for one in cluster.writes("patch", PODS, "status")] == [False]
        assert [(one.write.goes_on, bool(one.write.uid)) for one in cluster.writes("delete")] == [(True, True)]


class TestWhatCausesNothing:
    def test_a_change_of_a_pod_that_does_not_matter(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(600)])
        cluster.slice({"gpu-1": [taint()]})
        cluster.run()
        adds = dict(cluster.meter.counters)
        cluster.patch(PODS, "patient", {"metadata": {"labels": {"a": "b"}}})
        cluster.status(PODS, "patient", {"phase": "Running"})
        cluster.run(60)
        assert dict(cluster.meter.counters) == adds

    def test_a_slice_that_is_published_again_unchanged(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(600)])
        time = cluster.ago(0)
        cluster.slice({"gpu-1": [taint(timeAdded=time)]})
        cluster.run()
        adds = dict(cluster.meter.counters)
        cluster.slice({"gpu-1": [taint(timeAdded=time)], "gpu-2": [taint("NoSchedule")]})
        cluster.run(60)
        assert dict(cluster.meter.counters) == adds

    def test_a_slice_is_looked_at_with_its_own_devices_only(self) -> None:
        cluster = Tainted()
        for number in range(50):
            cluster.using(f"p{number}", "gpu-1")
        cluster.using("train", "gpu-0")
        world = World(TaintEviction.kinds)
        decider = TaintEviction(world)
        for kind in TaintEviction.kinds:
            for change in world.replace(kind, cluster.core.list(kind)[0]):
                decider.observe(change, cluster.now)
        decider.act(cluster.now)
        judged: list[str] = []
        decider._judge = lambda key, now: judged.append(key)  # type: ignore[method-assign]
        cluster.slice({"gpu-0": [taint()]})
        for change in world.replace(RESOURCE_SLICES, cluster.core.list(RESOURCE_SLICES)[0]):
            decider.observe(change, cluster.now)
        decider.act(cluster.now)
        assert judged == ["default/train"]


class TestARestart:
    def test_keeps_the_deadline(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(60)])
        cluster.slice({"gpu-1": [taint()]})
        for _ in range(5):
            cluster.run(10)
            cluster.restart()
        assert not cluster.evicted("patient")
        cluster.run(12)
        assert cluster.evicted("patient")

    def test_evicts_at_once_what_became_due_while_it_was_down(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(60)])
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(10)
        cluster.shell.crash("controllers", 300)
        cluster.run(299)
        assert not cluster.evicted("patient")
        cluster.run(2)
        assert cluster.evicted("patient")

    def test_forgets_what_was_cancelled_while_it_was_down(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(60)])
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(10)
        cluster.shell.crash("controllers", 30)
        cluster.slice()
        cluster.run(300)
        assert not cluster.evicted("patient")

    def test_does_not_count_pods_that_an_earlier_life_told_to_leave(self, cluster: Tainted) -> None:
        cluster.rule()
        cluster.run(5)
        cluster.restart()
        cluster.run(60)
        assert cluster.told() == ("False", "NotStarted", "")
        assert len(cluster.writes("delete")) == 1


class TestNumbers:
    def test_deletions_and_how_long_they_took_are_measured(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(30)])
        cluster.slice({"gpu-0": [taint(timeAdded=cluster.ago(100))], "gpu-1": [taint()]})
        cluster.run(60)
        assert cluster.meter.counters[DELETIONS] == 2
        first, second = cluster.meter.samples[SECONDS]
        assert 100 <= first < 102
        assert second < 2

    def test_the_queue_is_measured_as_controllers_of_kubernetes_are(self, cluster: Tainted) -> None:
        queue = ("device-taint-eviction-controller",)
        fails(cluster, is_delete, *[Refused(500, "InternalError", "not now")] * 6)
        cluster.slice({"gpu-0": [taint()]})
        cluster.run(2)
        assert 0 < cluster.meter.gauges["workqueue_longest_running_processor_seconds", queue] <= 2
        cluster.run(60)
        assert cluster.meter.counters["workqueue_adds_total", queue] == 1
        (waited,), (took,) = (cluster.meter.samples[f"workqueue_{what}_duration_seconds", queue] for what in ("queue", "work"))
        assert waited < took
        for gauge in ("depth", "unfinished_work_seconds", "longest_running_processor_seconds"):
            assert cluster.meter.gauges[f"workqueue_{gauge}", queue] == 0

    def test_a_pod_without_a_taint_time_counts_from_its_object(self, cluster: Tainted) -> None:
        """The API server always gives a time; the text of a broken one does no harm."""
        for text in (None, "", "yesterday"):
            device = Device("g", taints=(DeviceTaint("a", "", "NoExecute", text),))
            metadata = ObjectMeta(name="s", creation_timestamp="2026-01-01T00:00:00Z")
            taints = Taints()
            taints.change_slice(None, ResourceSlice(metadata, ResourceSliceSpec("d", ResourcePool("p", 1, 1), devices=(device,))))
            (active,) = taints.on("d", "p", "g")
            assert active.added == 1767225600.0


def test_slices_that_come_and_go_in_any_order_leave_what_is_published_now(cluster: Tainted) -> None:
    cluster.slice({"gpu-0": [taint()]}, name="second", generation=1)
    cluster.run(2)
    assert cluster.evicted("train")
    cluster.using("next", "gpu-0")
    cluster.run(2)
    assert cluster.evicted("next")
    cluster.delete(RESOURCE_SLICES, "second")
    cluster.using("last", "gpu-0")
    cluster.run(20)
    assert not cluster.evicted("last")
