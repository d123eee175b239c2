"""Device taint eviction (KEP-5055), each sentence on virtual time: who must leave, when, and who must not."""

from __future__ import annotations

import pytest

from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, EVENTS, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.meta import decode
from dray.api.resource import (
    POD_CLAIM_NAME,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.eviction import TaintEviction
from dray.controllers.taints import Taints, Users
from tests.controllers.eviction_cluster import DRIVER, Tainted, owned, taint, tolerates


class TestATaintThatADriverPublishes:
    def test_evicts_the_pods_that_use_the_device_at_once_and_says_so(self, cluster: Tainted) -> None:
        cluster.using("other", "gpu-1")
        cluster.slice({"gpu-0": [taint()]})
        cluster.run()
        assert cluster.evicted("train")
        assert not cluster.evicted("other")
        assert cluster.events() == [f"Marking for deletion: example.com/broken:NoExecute on {DRIVER}/n1/gpu-0"]

    def test_leaves_a_condition_that_says_why_the_pod_was_disrupted(self, cluster: Tainted) -> None:
        cluster.slice({"gpu-0": [taint()]})
        cluster.run()
        (condition,) = [c for c in cluster.all(PODS)[0]["status"]["conditions"] if c["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "DeletionByDeviceTaintManager")
        assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"

    @pytest.mark.parametrize("effect", ["NoSchedule", "None"])
    def test_with_another_effect_evicts_nobody(self, cluster: Tainted, effect: str) -> None:
        cluster.slice({"gpu-0": [taint(effect)]})
        cluster.run(60)
        assert cluster.leaving() == set()
        assert cluster.writes("patch", PODS, "status") == []

    def test_with_an_effect_of_a_newer_version_evicts_nobody(self) -> None:
        """The API refuses a new one, and keeps a stored one."""
        device = Device("gpu-0", taints=(DeviceTaint("a", "", "NoExecuteMaybe"),))
        found = ResourceSlice(spec=ResourceSliceSpec(DRIVER, ResourcePool("n1", 1, 1), devices=(device,)))
        taints = Taints()
        assert taints.change_slice(None, found) == set()
        assert list(taints.on(DRIVER, "n1", "gpu-0")) == []

    def test_goes_with_its_slice(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(60)])
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(10)
        cluster.delete(RESOURCE_SLICES, "n1")
        cluster.run(120)
        assert not cluster.evicted("patient")
        assert cluster.events("patient") == ["Cancelling deletion"]

    def test_of_an_old_generation_of_the_pool_does_not_count(self, cluster: Tainted) -> None:
        cluster.slice(name="n1-new", generation=2)
        cluster.slice({"gpu-0": [taint()]}, generation=1)
        cluster.run(60)
        assert not cluster.evicted("train")

    def test_counts_again_when_the_newer_generation_goes(self, cluster: Tainted) -> None:
        cluster.slice(name="n1-new", generation=2)
        cluster.slice({"gpu-0": [taint()]}, generation=1)
        cluster.run()
        cluster.delete(RESOURCE_SLICES, "n1-new")
        cluster.run()
        assert cluster.evicted("train")

    def test_of_a_new_generation_replaces_those_of_the_old(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(60)])
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(1)
        cluster.slice(name="n1-new", generation=2)
        cluster.run(120)
        assert not cluster.evicted("patient")


class TestARule:
    def test_evicts_from_the_device_that_it_names(self, cluster: Tainted) -> None:
        cluster.using("other", "gpu-1")
        cluster.rule()
        cluster.run()
        assert cluster.leaving() == {"train"}
        assert cluster.events() == [f"Marking for deletion: example.com/broken:NoExecute on {DRIVER}/n1/gpu-0 by rule rule"]

    @pytest.mark.parametrize(
        ("selector", "leaves"),
        [
            ({}, True),
            ({"driver": DRIVER}, True),
            ({"pool": "n1"}, True),
            ({"device": "gpu-0"}, True),
            ({"driver": DRIVER, "device": "gpu-0"}, True),
            ({"driver": "other.example.com"}, False),
            ({"driver": DRIVER, "pool": "n2"}, False),
            ({"driver": DRIVER, "pool": "n1", "device": "gpu-1"}, False),
        ],
    )
    def test_matches_by_driver_pool_and_device_and_all_that_are_given(
        self, cluster: Tainted, selector: dict[str, str], leaves: bool
    ) -> None:
        cluster.rule(selector=selector)
        cluster.run(20)
        assert cluster.evicted("train") == leaves

    def test_without_a_selector_matches_nothing(self, cluster: Tainted) -> None:
        body = {"metadata": {"name": "rule"}, "spec": {"taint": {"key": "a", "effect": "NoExecute"}}}
        cluster.create(DEVICE_TAINT_RULES, body)
        cluster.run(20)
        assert not cluster.evicted("train")
        assert cluster.told() == ("False", "NotStarted", "")

    @pytest.mark.parametrize("names", [{}, {"driver": DRIVER, "pool": "n1", "device": "gpu-0"}])
    @pytest.mark.parametrize("more", [{"deviceClassName": "gpu"}, {"selectors": [{"cel": {"expression": "true"}}]}])
    def test_of_kubernetes_1_34_that_selects_by_class_or_expression_matches_nothing_and_is_told(
        self, names: dict[str, str], more: dict[str, object]
    ) -> None:
        """Newer servers have no such fields; read without them, it would be a rule about every device."""
        spec = {"deviceSelector": {**names, **more}, "taint": {"key": "a", "effect": "NoExecute"}}
        rule = decode(DeviceTaintRule, {"metadata": {"name": "old", "uid": "u"}, "spec": spec})
        world = World(TaintEviction.kinds)
        controller, taints = TaintEviction(world), Taints()
        taints.put_rule(rule)
        assert list(taints.on(DRIVER, "n1", "gpu-0")) == []
        assert Users(world).selected(rule.spec.device_selector) == []
        controller.observe(Change(DEVICE_TAINT_RULES, None, rule), 0.0)
        (event,) = [write for write in controller.act(0.0) if write.kind == EVENTS]
        assert isinstance(event.body, dict)
        assert (event.body["type"], event.body["reason"]) == ("Warning", "SelectsNothing")
        assert "select by driver, pool and device" in event.body["note"]

    def test_evicts_from_a_device_that_no_slice_lists(self, cluster: Tainted) -> None:
        cluster.delete(RESOURCE_SLICES, "n1")
        cluster.run()
        cluster.rule()
        cluster.run()
        assert cluster.evicted("train")

    def test_stays_in_force_when_the_slice_goes(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(30)])
        cluster.rule(selector={"device": "gpu-1"})
        cluster.run(10)
        cluster.delete(RESOURCE_SLICES, "n1")
        cluster.run(15)
        assert not cluster.evicted("patient")
        cluster.run(10)
        assert cluster.evicted("patient")

    def test_changed_to_another_device_lets_one_go_and_takes_the_other(self, cluster: Tainted) -> None:
        cluster.using("one", "gpu-1", tolerations=[tolerates(60)])
        cluster.using("two", "gpu-2", tolerations=[tolerates(60)])
        cluster.rule(selector={"device": "gpu-1"})
        cluster.run(10)
        cluster.patch(DEVICE_TAINT_RULES, "rule", {"spec": {"deviceSelector": {"device": "gpu-2"}}})
        cluster.run(70)
        assert (cluster.evicted("one"), cluster.evicted("two")) == (False, True)
        assert cluster.events("one") == ["Cancelling deletion"]

    def test_is_one_taint_more_beside_what_the_driver_published(self, cluster: Tainted) -> None:
        """Taints are cumulative: tolerating the driver's is not enough."""
        cluster.using("patient", "gpu-1", tolerations=[tolerates(key="example.com/warm")])
        cluster.slice({"gpu-1": [taint(key="example.com/warm")]})
        cluster.run(10)
        assert not cluster.evicted("patient")
        cluster.rule(selector={"device": "gpu-1"})
        cluster.run()
        assert cluster.evicted("patient")


class TestATolerationOfTheClaim:
    def using(self, cluster: Tainted, *tolerations: dict[str, object]) -> None:
        cluster.using("patient", "gpu-1", tolerations=list(tolerations))

    def test_without_an_end_keeps_the_pod_for_ever(self, cluster: Tainted) -> None:
        self.using(cluster, tolerates())
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(86400)
        assert not cluster.evicted("patient")

    def test_with_seconds_counts_from_when_the_taint_was_added(self, cluster: Tainted) -> None:
        self.using(cluster, tolerates(60))
        cluster.slice({"gpu-1": [taint(timeAdded=cluster.ago(20))]})
        cluster.run(38)
        assert not cluster.evicted("patient")
        cluster.run(4)
        assert cluster.evicted("patient")

    def test_the_shortest_counts(self, cluster: Tainted) -> None:
        self.using(cluster, tolerates(120), tolerates(30))
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(28)
        assert not cluster.evicted("patient")
        cluster.run(4)
        assert cluster.evicted("patient")

    def test_one_without_an_end_wins_over_one_with(self, cluster: Tainted) -> None:
        self.using(cluster, tolerates(5), tolerates())
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(100)
        assert not cluster.evicted("patient")

    @pytest.mark.parametrize("seconds", [0, -5])
    def test_of_no_time_evicts_at_once(self, cluster: Tainted, seconds: int) -> None:
        self.using(cluster, tolerates(seconds))
        cluster.slice({"gpu-1": [taint()]})
        cluster.run()
        assert cluster.evicted("patient")

    @pytest.mark.parametrize(
        "toleration",
        [
            tolerates(key="example.com/other"),
            {"key": "example.com/broken", "operator": "Equal", "value": "no", "effect": "NoExecute"},
            tolerates(effect="NoSchedule"),
        ],
    )
    def test_of_another_key_value_or_effect_does_not_help(self, cluster: Tainted, toleration: dict[str, object]) -> None:
        self.using(cluster, toleration)
        cluster.slice({"gpu-1": [taint(value="yes")]})
        cluster.run()
        assert cluster.evicted("patient")

    @pytest.mark.parametrize(
        "toleration",
        [
            {"operator": "Exists"},
            {"operator": "Exists", "effect": "NoExecute"},
            {"key": "example.com/broken", "operator": "Exists"},
            {"key": "example.com/broken", "operator": "Equal", "value": "yes"},
            {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"},
        ],
    )
    def test_with_an_empty_key_or_effect_matches_every_one(self, cluster: Tainted, toleration: dict[str, object]) -> None:
        """Upstream evicts despite an empty effect; the API says that it matches all effects."""
        self.using(cluster, toleration)
        cluster.slice({"gpu-1": [taint(value="yes")]})
        cluster.run(60)
        assert not cluster.evicted("patient")

    def test_seconds_of_a_toleration_that_is_not_of_no_execute_are_ignored(self, cluster: Tainted) -> None:
        self.using(cluster, {"key": "example.com/broken", "operator": "Exists", "tolerationSeconds": 5})
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(60)
        assert not cluster.evicted("patient")

    def test_must_be_there_for_each_taint_also_for_two_of_one_key(self, cluster: Tainted) -> None:
        self.using(cluster, tolerates(value="a", operator="Equal"))
        cluster.slice({"gpu-1": [taint(value="a"), taint(value="b")]})
        cluster.run()
        assert cluster.evicted("patient")

    def test_a_taint_for_scheduling_beside_one_for_eviction_needs_no_toleration_to_stay(self, cluster: Tainted) -> None:
        self.using(cluster, tolerates())
        cluster.slice({"gpu-1": [taint("NoSchedule"), taint("NoExecute")]})
        cluster.run(60)
        assert not cluster.evicted("patient")

    def test_must_be_there_for_each_device_of_the_claim(self, cluster: Tainted) -> None:
        cluster.using("patient", "gpu-1", "gpu-2", tolerations=[tolerates(value="a", operator="Equal")])
        cluster.slice({"gpu-1": [taint(value="a")], "gpu-2": [taint(value="b")]})
        cluster.run()
        assert cluster.evicted("patient")


class TestWhatMakesAnEvictionUnnecessary:
    @pytest.fixture
    def patient(self, cluster: Tainted) -> Tainted:
        cluster.using("patient", "gpu-1", tolerations=[tolerates(60)])
        cluster.slice({"gpu-1": [taint()]})
        cluster.run(10)
        return cluster

    def stays(self, cluster: Tainted, *events: str) -> None:
        cluster.run(120)
        assert not cluster.evicted("patient")
        assert cluster.events("patient") == list(events)

    def test_the_taint_is_removed(self, patient: Tainted) -> None:
        patient.slice()
        self.stays(patient, "Cancelling deletion")

    def test_the_effect_becomes_less(self, patient: Tainted) -> None:
        patient.slice({"gpu-1": [taint("NoSchedule")]})
        self.stays(patient, "Cancelling deletion")

    def test_the_claim_is_deallocated(self, patient: Tainted) -> None:
        patient.status(RESOURCE_CLAIMS, "patient", {"allocation": None, "reservedFor": None})
        self.stays(patient, "Cancelling deletion")

    def test_the_claim_is_deleted(self, patient: Tainted) -> None:
        patient.status(RESOURCE_CLAIMS, "patient", {"allocation": None, "reservedFor": None})
        patient.patch(RESOURCE_CLAIMS, "patient", {"metadata": {"finalizers": None}})
        patient.delete(RESOURCE_CLAIMS, "patient")
        self.stays(patient, "Cancelling deletion")

    def test_the_claim_is_no_longer_reserved_for_the_pod(self, patient: Tainted) -> None:
        patient.status(RESOURCE_CLAIMS, "patient", {"reservedFor": None})
        self.stays(patient, "Cancelling deletion")

    def test_the_pod_ends(self, patient: Tainted) -> None:
        patient.status(PODS, "patient", {"phase": "Succeeded"})
        self.stays(patient)

    def test_the_pod_is_deleted_by_somebody_else(self, patient: Tainted) -> None:
        patient.delete(PODS, "patient", gracePeriodSeconds=0)
        patient.run(120)
        assert patient.events("patient") == []
        assert patient.writes("delete") == []

    def test_a_later_time_of_the_taint_moves_the_deadline(self, patient: Tainted) -> None:
        patient.slice({"gpu-1": [taint()]})  # without a time: added now
        patient.run(55)
        assert not patient.evicted("patient")
        patient.run(10)
        assert patient.evicted("patient")


class TestWhichPodsUseTheDevice:
    def test_all_pods_of_a_shared_claim_leave(self, cluster: Tainted) -> None:
        for name in ("a", "b", "c"):
            cluster.pod(name, "shared")
        cluster.claim("shared", "gpu-1", users=("a", "b", "c"))
        cluster.slice({"gpu-1": [taint()]})
        cluster.run()
        assert cluster.leaving() == {"a", "b", "c"}

    def test_a_pod_that_arrives_later_leaves_too(self, cluster: Tainted) -> None:
        cluster.rule()
        cluster.run(30)
        cluster.using("late", "gpu-0")
        cluster.run()
        assert cluster.evicted("late")

    def test_a_pod_without_a_node_stays_until_it_has_one(self, cluster: Tainted) -> None:
        cluster.using("waits", "gpu-0", node="")
        cluster.rule()
        cluster.run(30)
        assert not cluster.evicted("waits")
        target = {"kind": "Node", "name": "n1"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits"}, "target": target}
        cluster.shell.user(Write("create", PODS, "default", "waits", body, subresource="binding"))
        cluster.run()
        assert cluster.evicted("waits")

    def test_a_finished_pod_is_left_alone(self, cluster: Tainted) -> None:
        cluster.status(PODS, "train", {"phase": "Succeeded"})
        cluster.rule()
        cluster.run(30)
        assert not cluster.evicted("train")

    def test_a_pod_that_the_claim_is_not_reserved_for_is_left_alone(self, cluster: Tainted) -> None:
        cluster.pod("names-it", "train")
        cluster.rule()
        cluster.run()
        assert cluster.leaving() == {"train"}

    def test_a_reservation_for_an_earlier_pod_of_the_name_does_not_count(self, cluster: Tainted) -> None:
        cluster.delete(PODS, "train", gracePeriodSeconds=0)
        cluster.pod("train", "train")
        cluster.rule()
        cluster.run(30)
        assert not cluster.evicted("train")

    def test_a_generated_claim_counts_when_the_pod_records_it(self, cluster: Tainted) -> None:
        made = cluster.pod("gen", entries=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
        cluster.claim("gen-gpu-x", "gpu-0", metadata=owned(made, POD_CLAIM_NAME, "gpu"), users=("gen",))
        cluster.rule()
        cluster.run(30)
        assert not cluster.evicted("gen")
        cluster.status(PODS, "gen", {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gen-gpu-x"}]})
        cluster.run()
        assert cluster.evicted("gen")

    def test_a_generated_claim_of_an_earlier_pod_does_not_count(self, cluster: Tainted) -> None:
        first = cluster.pod("gen", entries=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
        cluster.delete(PODS, "gen", gracePeriodSeconds=0)
        second = cluster.pod("gen", entries=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
        cluster.claim("gen-gpu-x", "gpu-0", metadata=owned(first, POD_CLAIM_NAME, "gpu"), users=("gen",))
        cluster.status(PODS, "gen", {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gen-gpu-x"}]})
        cluster.rule()
        cluster.run(30)
        assert not cluster.evicted("gen")
        cluster.status(RESOURCE_CLAIMS, "gen-gpu-x", {"allocation": None, "reservedFor": None})
        cluster.patch(RESOURCE_CLAIMS, "gen-gpu-x", {"metadata": {"finalizers": None}})
        cluster.delete(RESOURCE_CLAIMS, "gen-gpu-x")
        cluster.claim("gen-gpu-x", "gpu-0", metadata=owned(second, POD_CLAIM_NAME, "gpu"), users=("gen",))
        cluster.run()
        assert cluster.evicted("gen")

    def test_a_pod_with_a_device_through_an_extended_resource_leaves_too(self, cluster: Tainted) -> None:
        """Upstream misses these (kubernetes#141290)."""
        cluster.extended("plain", "gpu-1")
        cluster.rule(selector={"device": "gpu-1"})
        cluster.run()
        assert cluster.evicted("plain")

    def test_admin_access_is_no_exemption(self, cluster: Tainted) -> None:
        cluster.patch(NAMESPACES, "default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
        cluster.using("admin", "gpu-1", adminAccess=True)
        cluster.rule(selector={"device": "gpu-1"})
        cluster.run()
        assert cluster.evicted("admin")

    def test_the_earliest_of_two_claims_counts_and_both_rules_count_the_pod(self, cluster: Tainted) -> None:
        cluster.pod("two", "now", "later")
        cluster.claim("now", "gpu-1", tolerations=[tolerates(20)], users=("two",))
        cluster.claim("later", "gpu-2", tolerations=[tolerates(600)], users=("two",))
        cluster.rule("first", selector={"device": "gpu-1"})
        cluster.rule("second", selector={"device": "gpu-2"})
        cluster.run(10)
        for rule in ("first", "second"):
            assert cluster.told(rule) == ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
        cluster.run(15)
        assert cluster.evicted("two")
        for rule in ("first", "second"):
            cluster.run(10)
            assert cluster.told(rule) == ("False", "Completed", "1 pod evicted since starting the controller.")

    def test_pods_in_other_namespaces_leave_too(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0", namespace="research")
        cluster.rule()
        cluster.run()
        assert cluster.evicted("train", "default")
        assert cluster.evicted("train", "research")


class TestAClaimThatIsReservedForAPodGroup:
    @pytest.fixture
    def group(self) -> Tainted:
        """A claim for a group of two, one more pod that names the claim, and a pod of another group."""
        made = Tainted()
        made.start_eviction()
        made.slice()
        for name, group in (("rank-0", "ranks"), ("rank-1", "ranks"), ("stranger", ""), ("other", "others")):
            made.pod(name, "shared", group=group)
        made.claim("shared", "gpu-0")
        made.reserve_for_group("shared", "ranks")
        made.run()
        return made

    def test_all_pods_of_the_group_leave_and_nobody_else(self, group: Tainted) -> None:
        group.rule()
        group.run(60)
        assert group.leaving() == {"rank-0", "rank-1"}
        assert group.told()[2] == "2 pods evicted since starting the controller."

    def test_a_pod_that_joins_the_group_later_leaves_too(self, group: Tainted) -> None:
        group.rule()
        group.run()
        group.pod("rank-2", "shared", group="ranks")
        group.run()
        assert group.evicted("rank-2")

    def test_a_group_of_the_same_name_elsewhere_stays(self, group: Tainted) -> None:
        group.pod("rank-0", "shared", group="ranks", namespace="elsewhere")
        group.claim("shared", "gpu-1", namespace="elsewhere")
        group.reserve_for_group("shared", "ranks", "elsewhere")
        group.rule()
        group.run(10)
        assert not group.evicted("rank-0", "elsewhere")

    def test_they_may_stay_when_the_reservation_goes(self, group: Tainted) -> None:
        group.pod("patient", "slow", group="ranks")
        group.claim("slow", "gpu-1", tolerations=[tolerates(60)])
        group.reserve_for_group("slow", "ranks")
        group.slice({"gpu-1": [taint()]})
        group.run(10)
        group.reserve("slow")
        group.run(120)
        assert not group.evicted("patient")
        assert group.events("patient") == ["Cancelling deletion"]

    @pytest.mark.parametrize(("owner", "leaves"), [("ranks", True), ("others", False)])
    def test_a_claim_that_was_made_for_the_group_counts_for_its_pods(self, group: Tainted, owner: str, leaves: bool) -> None:
        group.pod("made", entries=[{"name": "gpu", "resourceClaimTemplateName": "t"}], group="ranks")
        reference = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "name": owner,
            "uid": "u",
            "controller": True,
        }
        group.claim("generated", "gpu-1", metadata={"ownerReferences": [reference]})
        group.reserve_for_group("generated", "ranks")
        group.status(PODS, "made", {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "generated"}]})
        group.slice({"gpu-1": [taint()]})
        group.run(10)
        assert group.evicted("made") == leaves

    def test_a_preview_counts_its_pods(self, group: Tainted) -> None:
        group.rule(effect="None")
        group.run(10)
        assert "2 pods" in group.told()[2]


class TestGates:
    @pytest.mark.parametrize("gate", ["DRADeviceTaints", "DRADeviceTaintRules"])
    def test_switched_off_a_rule_evicts_nobody_and_its_status_is_not_touched(self, gate: str) -> None:
        cluster = Tainted(gates=Gates.parse(f"{gate}=false", Gates.dray()))
        cluster.start_eviction()
        cluster.slice()
        cluster.using("train", "gpu-0")
        cluster.rule()
        cluster.run(60)
        assert not cluster.evicted("train")
        assert cluster.condition() is None
