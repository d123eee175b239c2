"""``dray why`` of pods whose devices have to be ready before they are bound, or were not, or are of a feature that is off."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.reason import Reason
from dray.api.times import format_micro_time, format_time
from dray.api.words import words
from dray.cluster.port import Forbidden
from dray.explain.overview import causes, pods_of, waiting
from dray.explain.story import story
from dray.scheduling.binding.writing import write_failed
from dray.testing import VirtualCluster, builders
from tests.inspect.conftest import Plain, Run, claim, device_class, healthy, node, pod, result, slice_
from tests.inspect.test_why import ask, codes, same_in_every_form


class TestBindingConditions:
    def objects(self) -> list[Plain]:
        conditions = {"bindingConditions": ["attached", "ready"], "bindingFailureConditions": ["failed"]}
        waiting = claim("fabric", result("g1", **conditions), pods=("new",))
        waiting["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
        attached = {
            "type": "attached",
            "status": "True",
            "reason": "Done",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        }
        waiting["status"]["devices"] = [
            {"driver": "gpu.example.com", "pool": "n1", "device": "g1", "conditions": [attached]},
        ]
        return [*healthy(), waiting, pod("new", "fabric")]

    def test_are_told_the_same_as_json_and_as_yaml(self, dray: Run) -> None:
        same_in_every_form("new", self.objects(), dray)

    def test_each_that_is_awaited_is_told_with_since_when_and_until_when(self, dray: Run) -> None:
        found = ask(dray, "new", self.objects())
        assert found["verdict"] == "waiting"
        (awaited,) = found["awaited"]
        assert awaited == {
            "claim": "ns/fabric",
            "device": "gpu.example.com/n1/g1",
            "condition": "ready",
            "status": "not reported",
            "since": "2026-01-01T00:00:00Z",
            "deadline": "2026-01-01T00:10:00Z",
            "message": "",
        }
        assert "waits for ready of gpu.example.com/n1/g1" in found["summary"]
        assert codes(found["reasons"]) == ["BindingPending"]

    def test_those_of_the_claim_for_extended_resources_are_told_before_the_pod_names_it(self) -> None:
        conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        cluster = VirtualCluster()
        cluster.create(
            *builders.node_with_devices("n1", [builders.device("g0", **conditions)]),
            builders.device_class(extendedResourceName="example.com/gpu"),
        )
        cluster.start_all()
        amounts = {"example.com/gpu": "1"}
        cluster.create(builders.pod("new", requests=amounts, limits=amounts))
        cluster.run(5)
        found = cluster.why("new")
        assert (found.verdict, [(each.device, each.condition) for each in found.awaited]) == (
            "waiting",
            [("gpu.example.com/n1/g0", "ready")],
        )
        told = story(cluster.world(), cluster.world().all(PODS)["default/new"], [])
        assert "allocated" in {line.what for line in told}
        [special] = cluster.world().all(RESOURCE_CLAIMS).values()
        of_claim = pods_of(cluster.world(), "ResourceClaim", "default", special.metadata.name)
        assert [each.key for each in of_claim] == ["default/new"]
        listed = causes(cluster.world(), waiting(cluster.world().all(PODS).values()), now=cluster.clock.now)
        assert [(each.verdict, each.pods) for each in listed] == [("waiting", ["default/new"])]

    def late(self, seconds: int, name: str = "new", device: str = "g0") -> Plain:
        """The event of an attempt that ran out of time."""
        data = {"timeout": seconds, "node": "n1", "condition": "ready"}
        said = words(Reason("BindingTimeout", f"device/gpu.example.com/n1/{device}", data))
        return TestAfterABindingThatFailed().event(3000 - seconds, said, name, f"uid-{name}")

    def test_how_long_its_scheduler_waits_shows_in_what_it_said_before(self, dray: Run) -> None:
        other = pod("other", "none")
        other["spec"]["schedulerName"] = "another"
        told = [self.late(30), self.late(45, device="g1"), other, self.late(90, "other"), self.late(95, "gone")]
        found = ask(dray, "new", [*self.objects(), *told])
        assert found["awaited"][0]["deadline"] == "2026-01-01T00:00:45Z"
        assert " 2 devices failed it before, the last at 20" in found["summary"]
        assert "g1 did not become ready within 45 seconds" in found["summary"]

    def test_a_configuration_that_is_given_counts_more(self, dray: Run, tmp_path: Path) -> None:
        file = tmp_path / "scheduler.yaml"
        file.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: dray\n"
            "  pluginConfig:\n  - name: DynamicResources\n    args: {bindingTimeout: 20s}\n"
        )
        told = [*self.objects(), self.late(30)]
        answer = dray("why", told, "new", "-n", "ns", "-o", "json", "--config", str(file))
        assert json.loads(answer.stdout)["awaited"][0]["deadline"] == "2026-01-01T00:00:20Z"

    def test_a_wait_that_should_be_over_is_told_as_such(self, dray: Run) -> None:
        objects = self.objects()
        found = ask(dray, "new", objects)
        assert "; that was to end at 2026-01-01T00:10:00Z." in found["summary"]
        assert "see whether the pod's scheduler runs" in found["fixes"][-1]
        objects[-2]["status"]["allocation"]["allocationTimestamp"] = format_time(time.time())
        found = ask(dray, "new", objects)
        assert "at the latest until 20" in found["summary"]
        assert found["fixes"] == [found["fixes"][0]]

    def test_where_nobody_reports_on_a_driver_its_controller_is_asked_after(self, dray: Run) -> None:
        objects = self.objects()
        del objects[-2]["status"]["devices"]
        controller = (
            "see whether the controller runs that prepares devices of gpu.example.com: nobody has reported on any of them"
        )
        assert controller in ask(dray, "new", objects)["fixes"]
        assert controller not in ask(dray, "new", self.objects())["fixes"]
        assert controller in ask(dray, "new", [*objects, self.late(30)])["fixes"]

    def test_who_said_that_a_device_failed_has_reported(self, dray: Run) -> None:
        objects = self.objects()
        del objects[-2]["status"]["devices"]
        failed = TestAfterABindingThatFailed().event(30, name="other", uid="uid-other")
        assert not any("nobody has reported" in each for each in ask(dray, "new", [*objects, failed])["fixes"])

    def test_a_device_that_was_withdrawn_meanwhile_is_named(self, dray: Run) -> None:
        assert ask(dray, "new", self.objects())["notes"] == []
        objects = [each for each in self.objects() if each["metadata"]["name"] != "s1"]
        (note,) = ask(dray, "new", objects)["notes"]
        assert note.startswith("No longer published: gpu.example.com/n1/g1.")

    def test_a_claim_that_failed_while_a_pod_runs_with_it_tells_who_that_is(self, dray: Run) -> None:
        objects = self.objects()
        failed = {
            "type": "failed",
            "status": "True",
            "reason": "Link",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        }
        objects[-2]["status"]["devices"][0]["conditions"] = [failed]
        objects[-2]["status"]["reservedFor"] = [{"resource": "pods", "name": "first", "uid": "uid-first"}]
        found = ask(dray, "new", [*objects, pod("first", "fabric", node="n1")])
        assert (found["verdict"], codes(found["reasons"])) == ("unschedulable", ["BindingFailed"])
        assert found["fixes"][1] == "end first, which runs with claim fabric: it is allocated again"
        assert found["advice"][1]["command"] == "kubectl delete pod first -n ns"

    def test_what_a_driver_says_is_shown_as_it_is(self, dray: Run) -> None:
        said = "port [red]3[/bold]: no link"
        objects = self.objects()
        ready = {
            "type": "ready",
            "status": "False",
            "reason": "Link",
            "message": said,
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        }
        objects[-2]["status"]["devices"][0]["conditions"].append(ready)
        assert said in dray("why", objects, "new", "-n", "ns").stdout


class TestAFeatureThatIsOffInItsScheduler:
    """Which features a scheduler has is written nowhere: it names those that keep devices from a pod in its refusal."""

    CONDITIONS: Plain = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}

    def objects(self, *devices: Plain, off: str) -> list[Plain]:
        new = pod("new", "one")
        data = {"needed": 1, "free": 0, "total": 2, "features": [off]}
        said = f"0/1 nodes are available: {words(Reason('NotEnoughDevices', 'node/n1', data))}."
        new["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]
        return [node("n1"), device_class(), slice_("s", list(devices)), claim("one"), new]

    def test_is_off_for_dray_why_too_and_to_switch_it_on_helps(self, dray: Run) -> None:
        found = ask(dray, "new", self.objects({"name": "g0", **self.CONDITIONS}, off="DRADeviceBindingConditions"))
        assert (found["verdict"], codes(found["reasons"])) == ("impossible", ["NotEnoughDevices"])
        assert "1 with binding conditions, which are off; off: DRADeviceBindingConditions" in found["summary"]
        assert found["fixes"] == [
            "start its scheduler with --feature-gates DRADeviceBindingConditions=true (then node n1 would do)"
        ]

    def test_what_needs_it_is_switched_on_with_it(self, dray: Run) -> None:
        consumed = {"counterSet": "card", "counters": {"memory": {"value": "1Gi"}}, "compatibilityGroups": ["mig"]}
        objects = self.objects({"name": "g0", "consumesCounters": [consumed]}, off="DRAPartitionableDevices")
        objects[2]["spec"]["pool"]["resourceSliceCount"] = 2
        card = [{"name": "card", "counters": {"memory": {"value": "8Gi"}}}]
        found = ask(dray, "new", [*objects, slice_("c", [], count=2, sharedCounters=card)])
        assert "1 of a feature that is off; off: DRAPartitionableDevices" in found["summary"]
        assert found["fixes"][0].startswith("start its scheduler with --feature-gates DRAPartitionableDevices=true")

    def test_a_claim_that_uses_it_is_told_the_same(self, dray: Run) -> None:
        objects = self.objects({"name": "g0"}, off="DRAPrioritizedList")
        objects[3]["spec"]["devices"]["requests"] = [
            {
                "name": "gpu",
                "firstAvailable": [{"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}],
            }
        ]
        found = ask(dray, "new", objects)
        assert codes(found["reasons"]) == ["FeatureOff"]
        assert found["fixes"][0].startswith("start its scheduler with --feature-gates DRAPrioritizedList=true")

    def test_to_switch_it_on_is_not_told_where_that_would_not_help(self, dray: Run) -> None:
        taint = {"key": "k", "effect": "NoSchedule"}
        device = {"name": "g0", **self.CONDITIONS, "taints": [taint]}
        found = ask(dray, "new", self.objects(device, off="DRADeviceBindingConditions"))
        assert not [fix for fix in found["fixes"] if "--feature-gates" in fix]

    def test_does_not_matter_to_a_pod_whose_devices_do_not_need_it(self, dray: Run) -> None:
        found = ask(dray, "new", self.objects({"name": "g0"}, off="DRADeviceBindingConditions"))
        assert found["fits"] == ["n1"]
        assert found["summary"].endswith(
            "It was refused before: 0/1 nodes are available: node n1 has not enough devices (needs 1, 0 free "
            "of 2; off: DRADeviceBindingConditions)."
        )


class TestAfterABindingThatFailed:
    SAID = words(
        Reason("BindingFailed", "device/gpu.example.com/n1/g0", {"condition": "failed", "node": "n1", "message": "Bad: no link"})
    )

    def event(self, ago: float, note: str = "", name: str = "new", uid: str = "uid-new") -> Plain:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name}-{ago}", "namespace": "ns"},
            "regarding": {"kind": "Pod", "name": name, "namespace": "ns", "uid": uid},
            "eventTime": format_micro_time(time.time() - ago),
            "reason": "FailedScheduling",
            "note": f"{note or self.SAID}.",
        }

    def objects(self, *more: Plain, devices: int = 1) -> list[Plain]:
        published = slice_("s", [{"name": f"g{number}"} for number in range(devices)])
        return [node("n1"), device_class(), published, claim("one"), pod("new", "one"), *more]

    def test_the_device_rests_and_the_pod_waits_for_it(self, dray: Run) -> None:
        found = ask(dray, "new", self.objects(self.event(2)))
        assert found["verdict"] == "waiting"
        assert "device gpu.example.com/n1/g0 failed to bind a short while ago, and is the last choice until" in found["summary"]
        assert "The last attempt: device gpu.example.com/n1/g0 could not be bound to node n1: failed" in found["summary"]
        assert (codes(found["reasons"]), found["fits"]) == (["DeviceCoolingDown"], [])
        assert found["nodes"][0]["requests"][0]["devices"][0]["reason"]["code"] == "DeviceCoolingDown"
        assert found["fixes"][0].startswith("wait: it is tried again after the pod's back-off")

    def test_what_failed_for_another_pod_rests_too(self, dray: Run) -> None:
        found = ask(dray, "new", self.objects(self.event(10, name="other", uid="uid-other")))
        assert (found["verdict"], codes(found["reasons"])) == ("waiting", ["DeviceCoolingDown"])
        assert "The last attempt" not in found["summary"]

    @pytest.mark.parametrize(("name", "ago"), [("other", 2), ("new", 30)])
    def test_a_pod_that_need_not_back_off_is_told_that_it_takes_it_at_once(self, name: str, ago: float, dray: Run) -> None:
        """The scheduler gives a device that rests to whoever finds no other, save to the pod that it just failed."""
        found = ask(dray, "new", self.objects(self.event(ago, name=name, uid=f"uid-{name}")))
        assert found["fits"] == ["n1"]
        assert "fits on n1; scheduler dray has not placed it yet." in found["summary"]
        assert "There is no better choice: device gpu.example.com/n1/g0 failed to bind a short while ago" in found["summary"]

    @pytest.mark.parametrize(("ago", "devices"), [(10, 2), (300, 1)])
    def test_a_pod_that_fits_again_is_told_what_failed_and_when(self, ago: float, devices: int, dray: Run) -> None:
        found = ask(dray, "new", self.objects(self.event(ago), devices=devices))
        assert (found["verdict"], found["fits"]) == ("waiting", ["n1"])
        assert "An attempt failed at 20" in found["summary"]
        assert "gpu.example.com/n1/g0 could not be bound to node n1: failed (Bad: no link)." in found["summary"]
        assert codes(found["reasons"]) == ["BindingFailed"]

    def test_a_namesake_that_is_gone_does_not_count(self, dray: Run) -> None:
        found = ask(dray, "new", self.objects(self.event(300, uid="uid-before")))
        assert (found["fits"], found["reasons"]) == (["n1"], [])

    def test_the_condition_is_enough_where_events_are_gone(self, dray: Run) -> None:
        objects = self.objects()
        late = words(Reason("BindingTimeout", "device/gpu.example.com/n1/g0", {"condition": "ready", "node": "n1"}))
        objects[4]["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": f"{late}."}]
        found = ask(dray, "new", objects)
        assert f"An attempt failed: {late}." in found["summary"]
        assert codes(found["reasons"]) == ["BindingTimeout"]

    def test_other_shortages_stay_what_they_are(self, dray: Run) -> None:
        objects = self.objects(self.event(10))
        objects[3] = claim("one", count=2)
        found = ask(dray, "new", objects)
        assert (found["verdict"], codes(found["reasons"])) == ("impossible", ["NotEnoughDevices"])


def test_a_scheduler_that_may_not_write_is_granted_the_right_and_not_waited_for(dray: Run) -> None:
    """As a real API server said it to ``dray scheduler``, about a claim with the longest name."""
    refusal = Forbidden(
        403,
        "Forbidden",
        f'resourceclaims.resource.k8s.io "{"c" * 253}" is forbidden: User "system:serviceaccount:dray-system:dray-scheduler"'
        ' cannot patch resource "resourceclaims/status" in API group "resource.k8s.io" in the namespace "ns"',
    )
    reason = write_failed(refusal)
    assert reason is not None
    waiting = pod("new", "one")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words(reason)}
    waiting["status"] = {**waiting.get("status", {}), "conditions": [condition]}
    found = ask(dray, "new", [*healthy(), claim("one"), waiting])
    assert found["verdict"] == "waiting"
    (advice,) = found["fixes"]
    assert advice.startswith(
        "let system:serviceaccount:dray-system:dray-scheduler patch resourceclaims/status (resource.k8s.io): "
    )
