"""``dray why``: verdict, dominant reason, the tree down to devices, and what would help."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

import pytest
import yaml

from dray.api.kinds import PODS
from dray.api.times import format_time
from dray.explain.snapshot import from_objects
from dray.explain.tree import _devices
from dray.explain.why import why
from tests.inspect.conftest import Plain, Run, claim, device_class, healthy, node, pod, result, slice_


def ask(dray: Run, name: str, objects: list[Plain]) -> dict[str, Any]:
    answer = dray("why", objects, name, "-n", "ns", "-o", "json")
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    assert {"pod", "verdict", "summary", "reasons", "nodes", "fixes"} <= found.keys()
    assert found["pod"] == f"ns/{name}"
    return found


def codes(reasons: list[dict[str, Any]]) -> list[str]:
    return [reason["code"] for reason in reasons]


def made_by(command: str) -> Any:
    """The object that a command to paste makes."""
    echo, body, *rest = shlex.split(command)
    assert (echo, rest) == ("echo", ["|", "kubectl", "apply", "-f", "-"])
    return json.loads(body)


def test_a_pod_on_a_node_is_bound_with_its_devices(dray: Run) -> None:
    found = ask(dray, "train", healthy())
    assert found["verdict"] == "bound"
    assert found["summary"] == "pod ns/train is on node n1 (Running) with gpu.example.com/n1/g0."


def test_a_pod_that_fits_waits_for_its_scheduler(dray: Run) -> None:
    found = ask(dray, "new", [*healthy(), claim("one"), pod("new", "one")])
    assert found["verdict"] == "waiting"
    assert found["fits"] == ["n1", "n2"]
    assert "scheduler with the name dray" in found["fixes"][0]


def test_a_wrong_annotation_is_the_pods_and_not_that_of_the_only_node(dray: Run) -> None:
    zones = [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": "4", "allocatable": "4"}]}]
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n1"}}
    wrong = pod("new") | {"metadata": {"name": "new", "namespace": "ns", "annotations": {"dray.dev/numa-span": "two"}}}
    wrong["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    found = ask(dray, "new", [node("n1"), {**kind, "topologyPolicies": ["SingleNUMANodePodLevel"], "zones": zones}, wrong])
    assert codes(found["reasons"]) == ["ZoneIntentInvalid"]
    assert "1 node is refused because the pod has a wrong annotation: annotation dray.dev/numa-span" in found["summary"]


class TestAPodForWhichDevicesAreTaken:
    def objects(self) -> list[Plain]:
        busy = [claim("b", result("g0", pool="n2"), pods=("x",), node="n2"), pod("x", "b", node="n2")]
        return [*healthy(), *busy, node("n3"), claim("two", count=2), pod("wants", "two")]

    def test_is_unschedulable_now_and_the_sentence_says_how_much_is_missing(self, dray: Run) -> None:
        found = ask(dray, "wants", self.objects())
        assert found["verdict"] == "unschedulable"
        assert "2 nodes have not enough devices of class gpu for request gpu (needs 2, at most 1 free of 2)" in found["summary"]
        assert codes(found["reasons"]) == ["NotEnoughDevices", "NoDevices"]

    def test_each_node_tells_each_device_with_its_first_failing_check(self, dray: Run) -> None:
        nodes = {entry["node"]: entry for entry in ask(dray, "wants", self.objects())["nodes"]}
        assert set(nodes) == {"n1", "n2", "n3"}
        (request,) = nodes["n1"]["requests"]
        assert (request["claim"], request["needed"], request["matching"], request["usable"]) == ("ns/two", 2, 2, 1)
        taken, free = request["devices"]
        assert taken["reason"]["message"] == "device gpu.example.com/n1/g0 is allocated to claim ns/used"
        assert free["reason"] is None

    def test_the_nearest_miss_and_changes_that_were_tried(self, dray: Run) -> None:
        found = ask(dray, "wants", self.objects())
        assert found["nearest"] == {"node": "n1", "claim": "ns/two", "request": "gpu", "missing": 1}
        assert any("release claim ns/used (pod train)" in fix for fix in found["fixes"])

    def test_of_nodes_that_lack_equally_many_the_one_with_devices_is_nearest(self, dray: Run) -> None:
        taken = [result(name, pool="m") for name in ("g0", "g1")]
        objects = [
            node("a"),
            node("m"),
            device_class(),
            slice_("s", [{"name": "g0"}, {"name": "g1"}], node="m"),
            claim("all", *taken, node="m"),
            claim("two", count=2),
            pod("wants", "two"),
        ]
        assert ask(dray, "wants", objects)["nearest"]["node"] == "m"

    def test_people_get_a_tree(self, dray: Run) -> None:
        told = dray("why", self.objects(), "wants", "-n", "ns").stdout
        assert told.startswith("unschedulable  pod ns/wants cannot be scheduled now")
        for line in ("claim ns/two", "request gpu: 2 of class gpu", "node n3: has no devices", "Nearest: node n1 lacks 1 device"):
            assert line in told
        assert "\x1b" not in told

    def test_devices_that_fail_alike_are_told_together(self, dray: Run) -> None:
        objects = [node("n1"), device_class(expression="false"), slice_("s", [{"name": "g0"}, {"name": "g1"}])]
        shown = dray("why", [*objects, claim("c"), pod("wants", "c")], "wants", "-n", "ns").stdout
        assert "devices g0, g1: are not selected by class gpu: false is false" in shown


class TestImpossible:
    def test_is_what_no_empty_node_could_take(self, dray: Run) -> None:
        found = ask(dray, "big", [*healthy(), pod("big", cpu="64")])
        assert found["verdict"] == "impossible"
        assert found["nodes"][0]["reasons"][0]["data"] == {"resource": "cpu", "needed": "64", "free": "8", "total": "8"}
        assert found["fixes"] == [
            "request 8 cpu instead of 64 (then node n2 would do)",
            "add a node like n1 with 64 cpu",
        ]

    def test_is_more_devices_than_a_node_has(self, dray: Run) -> None:
        found = ask(dray, "many", [*healthy(), claim("five", count=5), pod("many", "five")])
        assert found["verdict"] == "impossible"

    def test_tells_what_stays_and_not_what_is_in_use(self, dray: Run) -> None:
        taint = {"key": "broken", "effect": "NoSchedule"}
        gpus = slice_("s", [{"name": "g0", "taints": [taint]}, {"name": "g1", "taints": [taint]}])
        held = claim("held", result("g0"), pods=("holder",))
        objects = [node("n1"), device_class(), gpus, held, pod("holder", "held", node="n1"), claim("one"), pod("new", "one")]
        found = ask(dray, "new", objects)
        assert found["verdict"] == "impossible"
        assert found["summary"].endswith("(needs 1, 0 free of 2; 2 tainted).")
        assert found["fixes"][0].startswith("add a toleration for {broken:NoSchedule} to request gpu of ns/one")

    def test_tells_what_would_help_now_or_else_what_would_on_an_empty_node(self, dray: Run) -> None:
        asks = [claim("five", count=5), pod("many", "five")]
        fix = "ask for 2 instead in request gpu of ns/five (then {} would do{})"
        assert ask(dray, "many", [*healthy(), *asks])["fixes"][0] == fix.format("node n2", "")
        rest = [result("g1"), result("g0", pool="n2"), result("g1", pool="n2")]
        busy = [claim("rest", *rest, pods=("other",)), pod("other", "rest", node="n1")]
        assert ask(dray, "many", [*healthy(), *busy, *asks])["fixes"][0] == fix.format("nodes n1 and n2", " when empty")

    def test_is_a_broken_selector(self, dray: Run) -> None:
        broken = device_class("gpu", "device.attributes['x'].y == 1")
        found = ask(dray, "new", [*healthy()[:2], broken, *healthy()[3:], claim("one"), pod("new", "one")])
        assert found["verdict"] == "impossible"
        assert "SelectorError" in codes(found["reasons"])

    def test_is_a_pod_that_has_ended(self, dray: Run) -> None:
        assert ask(dray, "old", [*healthy(), pod("old", phase="Failed")])["verdict"] == "impossible"


class TestOfClaims:
    def test_a_missing_one_is_named(self, dray: Run) -> None:
        found = ask(dray, "new", [*healthy(), pod("new", "none")])
        assert (found["verdict"], found["summary"]) == (
            "impossible",
            "pod ns/new cannot be scheduled as it stands: claim ns/none does not exist.",
        )

    def test_a_missing_one_comes_with_what_makes_it(self, dray: Run) -> None:
        (create,) = ask(dray, "new", [*healthy(), pod("new", "none")])["advice"]
        assert create["text"] == "create ResourceClaim ns/none"
        assert made_by(create["command"])["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"

    def test_one_with_a_typo_comes_with_the_name_that_is_meant(self, dray: Run) -> None:
        near, create = ask(dray, "new", [*healthy(), claim("training"), pod("new", "trainning")])["advice"]
        assert near["text"] == "name ResourceClaim training, which exists, instead of trainning"
        assert near["command"] == "kubectl get resourceclaims.resource.k8s.io training -n ns -o yaml"
        assert create["text"] == "create ResourceClaim ns/trainning"

    def test_one_that_is_not_generated_yet_is_waited_for(self, dray: Run) -> None:
        new = pod("new")
        new["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        template = {**claim("t"), "kind": "ResourceClaimTemplate", "spec": {"spec": claim("t")["spec"]}}
        found = ask(dray, "new", [*healthy(), new, template])
        assert found["verdict"] == "waiting"
        assert codes(found["reasons"]) == ["ClaimNotCreated"]
        other = {**template, "metadata": {"name": "other", "namespace": "ns"}}
        never = ask(dray, "new", [*healthy(), new, other])
        assert (never["verdict"], codes(never["reasons"])) == ("impossible", ["TemplateMissing"])
        assert "a claim template that does not exist: t" in never["summary"]
        made = made_by(never["advice"][0]["command"])
        assert (made["kind"], made["metadata"]) == ("ResourceClaimTemplate", {"name": "t", "namespace": "ns"})
        assert made["spec"]["spec"]["devices"]["requests"]

    def test_one_of_a_class_that_does_not_exist_is_impossible(self, dray: Run) -> None:
        without = [each for each in healthy() if each["kind"] != "DeviceClass"]
        found = ask(dray, "new", [*without, device_class("other"), claim("one"), pod("new", "one")])
        assert (found["verdict"], codes(found["reasons"])) == ("impossible", ["ClassMissing"])
        made = made_by(found["advice"][-1]["command"])
        assert made["spec"]["selectors"][0]["cel"]["expression"] == "device.driver == 'gpu.example.com'"

    def test_gates_come_with_the_command_that_removes_them(self, dray: Run) -> None:
        gated = pod("new")
        gated["spec"]["schedulingGates"] = [{"name": "quota"}, {"name": "image"}]
        (remove,) = ask(dray, "new", [*healthy(), gated])["advice"]
        assert remove["text"].startswith("remove the scheduling gates quota, image")
        assert remove["command"] == (
            'kubectl patch pod new -n ns --type=json -p \'[{"op":"remove","path":"/spec/schedulingGates"}]\''
        )

    def test_one_allocated_elsewhere_pins_the_pod(self, dray: Run) -> None:
        cordoned = healthy()
        cordoned[0]["spec"] = {"unschedulable": True}
        found = ask(dray, "new", [*cordoned, pod("new", "used")])
        nodes = {entry["node"]: codes(entry["reasons"]) for entry in found["nodes"]}
        assert nodes == {"n1": ["NodeUnschedulable"], "n2": ["ClaimElsewhere"]}
        elsewhere = next(reason for reason in found["reasons"] if reason["code"] == "ClaimElsewhere")
        assert elsewhere["data"] == {"claim": "ns/used", "nodes": "n1"}
        assert "cannot use the devices of an already allocated claim ns/used (n1 can)" in found["summary"]


def test_devices_of_one_claim_that_never_go_together_are_told_the_counter_set(dray: Run) -> None:
    card = [{"name": "card", "counters": {"memory": {"value": "8Gi"}}}]
    parts = [
        {
            "name": way,
            "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "1Gi"}}, "compatibilityGroups": [way]}],
        }
        for way in ("mig", "vgpu")
    ]
    published = [slice_("c", [], count=2, sharedCounters=card), slice_("s", parts, count=2)]
    found = ask(dray, "new", [node("n1"), device_class(), *published, claim("both", count=2), pod("new", "both")])
    assert (found["verdict"], codes(found["reasons"])) == ("impossible", ["NoCombination"])
    assert "no 2 of them share a compatibility group on counter set card (mig and vgpu) for ns/both" in found["summary"]
    shown = dray("why", [node("n1"), device_class(), *published, claim("both", count=2), pod("new", "both")], "new", "-n", "ns")
    assert "compatibility group on counter set card" in shown.stdout.partition("Nearest: ")[2]


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("train", healthy()),
        ("wants", TestAPodForWhichDevicesAreTaken().objects()),
        ("new", [*healthy(), claim("one"), pod("new", "one")]),
        ("new", [*healthy(), pod("new", "none")]),
        ("big", [*healthy(), pod("big", cpu="64")]),
        ("old", [*healthy(), pod("old", phase="Failed")]),
    ],
)
def test_every_answer_is_the_same_as_json_and_as_yaml(name: str, objects: list[Plain], dray: Run) -> None:
    same_in_every_form(name, objects, dray)


def same_in_every_form(name: str, objects: list[Plain], dray: Run) -> None:
    told = dray("why", objects, name, "-n", "ns", "-o", "yaml")
    assert told.exit_code == 0, told.output
    assert yaml.safe_load(told.stdout) == ask(dray, name, objects)
    assert dray("why", objects, name, "-n", "ns", "-o", "wide").stdout.startswith(f"{ask(dray, name, objects)['verdict']}  ")


def test_gated_pods_wait(dray: Run) -> None:
    found = ask(dray, "new", [*healthy(), pod("new", schedulingGates=[{"name": "quota"}])])
    assert found["verdict"] == "waiting"
    assert "quota" in found["summary"]


def test_taints_of_nodes_are_told(dray: Run) -> None:
    tainted = node("n9")
    tainted["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
    found = ask(dray, "new", [tainted, pod("new")])
    assert "1 node has an untolerated taint {team=a:NoSchedule}" in found["summary"]


def test_devices_that_a_taint_keeps_away_are_told_with_a_toleration_that_helps(dray: Run) -> None:
    tainted = slice_("s", [{"name": "g0", "taints": [{"key": "bad", "effect": "NoSchedule"}]}])
    found = ask(dray, "new", [node("n1"), device_class(), tainted, claim("one"), pod("new", "one")])
    assert found["nodes"][0]["requests"][0]["devices"][0]["reason"]["code"] == "DeviceTainted"
    assert found["fixes"][0].startswith("add a toleration for {bad:NoSchedule} to request gpu of ns/one")


def test_a_cluster_without_nodes(dray: Run) -> None:
    """Files without nodes are none: there may be some."""
    world = from_objects({(PODS, "ns/new"): pod("new")}).world
    assert [reason.code for reason in why(world, world.get(PODS, "ns/new"), now=0.0).reasons] == ["NoNodes"]
    found = ask(dray, "new", [pod("new")])
    assert codes(found["reasons"]) == ["NotRead"]
    assert "(the files have no nodes)" in found["summary"]


class TestWhatFilesDoNotHave:
    """A kind that is in none of them may have objects in the cluster: nothing is impossible for the lack of these."""

    @pytest.mark.parametrize("lacking", ["ResourceSlice", "DeviceClass"])
    def test_of_devices(self, dray: Run, lacking: str) -> None:
        objects = [each for each in healthy() if each["kind"] != lacking]
        found = ask(dray, "new", [*objects, claim("wants"), pod("new", "wants")])
        assert (found["verdict"], codes(found["reasons"])) == ("unschedulable", ["NotRead"])
        assert found["summary"].startswith("whether pod ns/new can be scheduled cannot be told: ")
        assert f"the files have no {lacking.lower()}" in found["summary"]

    @pytest.mark.parametrize("lacking", ["ResourceSlice", "DeviceClass"])
    def test_of_what_serves_an_extended_resource(self, dray: Run, lacking: str) -> None:
        new = pod("new")
        new["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
        served = {**device_class(), "spec": {**device_class()["spec"], "extendedResourceName": "example.com/gpu"}}
        objects = [each for each in [*healthy(), served] if each["kind"] != lacking]
        assert codes(ask(dray, "new", [*objects, new])["reasons"]) == ["NotRead"]

    def test_what_is_against_it_on_every_node_is_told_all_the_same(self, dray: Run) -> None:
        objects = [each for each in healthy() if each["kind"] != "ResourceSlice"]
        found = ask(dray, "new", [*objects, claim("wants"), pod("new", "wants", cpu="100")])
        assert (found["verdict"], "ResourcesInsufficient" in codes(found["reasons"])) == ("impossible", True)

    def test_of_its_queue(self, dray: Run) -> None:
        new = pod("new")
        new["metadata"]["labels"] = {"kai.scheduler/queue": "team"}
        found = ask(dray, "new", [*healthy(), new])
        assert codes(found["reasons"]) == ["NotRead"]
        assert "queues.scheduling.run.ai team (the files have no queues.scheduling.run.ai)" in found["summary"]


class TestTheNameOfThePod:
    @pytest.mark.parametrize("name", ["ns/train", "pod/train"])
    def test_can_be_written_in_several_ways(self, name: str, dray: Run) -> None:
        arguments = [name] if name.startswith("ns/") else [name, "-n", "ns"]
        assert dray("why", healthy(), *arguments).stdout.startswith("bound")

    def test_that_is_not_there_is_trouble_with_a_hint(self, dray: Run) -> None:
        answer = dray("why", healthy(), "train", "-n", "other")
        assert answer.exit_code == 2
        assert "did you mean ns/train?" in answer.stderr


class TestAPodForWhichOthersLeave:
    """``high`` is nominated for n1, where ``low`` has the only device and is on its way out."""

    def objects(self, *more: Plain) -> list[Plain]:
        low = pod("low", "l", node="n1")
        low["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        high = pod("high", "h")
        high["spec"]["priority"] = 10
        high["status"] = {**high.get("status", {}), "nominatedNodeName": "n1"}
        devices = slice_("s", [{"name": "g0"}], node="n1")
        return [node("n1"), device_class(), devices, claim("l", result("g0"), pods=("low",)), low, claim("h"), high, *more]

    def test_waits_and_is_told_for_whom(self, dray: Run) -> None:
        found = ask(dray, "high", self.objects())
        assert found["verdict"] == "waiting"
        assert codes(found["reasons"]) == ["Preempting"]
        assert found["reasons"][0]["data"] == {"node": "n1", "victims": "ns/low"}
        assert "until pods of lower priority have made room on n1: ns/low" in found["summary"]

    def test_waits_for_the_claim_of_one_that_is_gone(self, dray: Run) -> None:
        objects = [each for each in self.objects() if each["metadata"]["name"] != "low"]
        found = ask(dray, "high", objects)
        assert (found["verdict"], codes(found["reasons"])) == ("waiting", ["Preempting"])

    def test_is_told_the_usual_when_what_they_leave_is_not_enough(self, dray: Run) -> None:
        objects = self.objects()
        for each in objects:
            if each["kind"] == "ResourceClaim" and each["metadata"]["name"] == "h":
                each["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
        assert ask(dray, "high", objects)["verdict"] == "impossible"

    @pytest.mark.parametrize(("priority", "fits"), [(0, False), (10, False), (11, True)])
    def test_keeps_what_it_is_promised_from_others(self, dray: Run, priority: int, fits: bool) -> None:
        other = pod("other", "o")
        other["spec"]["priority"] = priority
        objects = [each for each in self.objects(claim("o"), other) if each["metadata"]["name"] not in ("low", "l")]
        found = ask(dray, "other", objects)
        assert found["verdict"] == ("waiting" if fits else "unschedulable")
        assert found.get("fits", []) == (["n1"] if fits else [])


class TestOfRoomThatWouldBeMade:
    """The scheduler's own choice of whom to evict, with the reason for it."""

    def objects(self, **spec: Any) -> list[Plain]:
        held = [claim("held", result("g0"), result("g1"), pods=("low",), count=2), pod("low", "held", node="n1", priority=0)]
        base = [node("n1"), device_class(), slice_("s1", [{"name": "g0"}, {"name": "g1"}], node="n1")]
        return [*base, *held, claim("one"), pod("high", "one", priority=1000, **spec)]

    def test_who_would_be_evicted_is_told_with_why(self, dray: Run) -> None:
        found = ask(dray, "high", self.objects())
        assert found["verdict"] == "unschedulable"
        evicts = found["evicts"]
        assert (evicts["node"], [each["pod"] for each in evicts["victims"]]) == ("n1", ["ns/low"])
        assert evicts["victims"][0]["devices"] == ["n1/g0", "n1/g1"]
        assert "it is below priority 1000 (at most 0), no disruption budget is broken" in evicts["why"]
        told = dray("why", self.objects(), "high", "-n", "ns").stdout
        assert "The scheduler would make room on node n1" in told
        assert "ns/low" in told

    def test_a_pod_that_may_evict_nobody_is_told_of_nobody(self, dray: Run) -> None:
        assert ask(dray, "high", self.objects(preemptionPolicy="Never"))["evicts"] is None


def test_a_pod_whose_claim_is_allocated_by_a_class_that_went_is_answered(dray: Run) -> None:
    """The claim could not be allocated again, so what an empty cluster would say is not asked."""
    held = claim("held", result("g1"), pods=("late",), node="n1")
    objects = [each for each in healthy() if each["kind"] != "DeviceClass"]
    found = ask(dray, "late", [*objects, held, pod("late", "held", nodeSelector={"kubernetes.io/hostname": "absent"})])
    assert found["verdict"] == "unschedulable"
    assert "NodeSelectorMismatch" in codes(found["reasons"])


def test_fewer_devices_of_an_extended_resource_are_asked_for_where_the_pod_asks(dray: Run) -> None:
    served = [{**each, "spec": {**each["spec"], "extendedResourceName": "example.com/gpu"}} for each in [device_class()]]
    asks = [{"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "9"}, "requests": {"example.com/gpu": "9"}}}]
    others = [each for each in healthy() if each["kind"] != "DeviceClass"]
    found = ask(dray, "many", [*others, *served, pod("many", containers=asks)])
    fewer = [fix for fix in found["advice"] if "instead of 9" in fix["text"]]
    assert fewer
    assert "example.com/gpu" in fewer[0]["command"]
    assert "<extended-resources>" not in str(found["advice"])


def test_a_selector_that_fails_on_one_node_is_told_though_another_would_do(dray: Run) -> None:
    """As the scheduler decides: it asks all nodes, and an error of the request itself is one wherever it shows."""
    fails = 'device.attributes["gpu.example.com"].kind == "part"'
    devices = [{"name": "g0", "attributes": {"kind": {"string": "part"}}}]
    slices = [slice_("s1", devices, node="n1"), slice_("s2", [{"name": "g0"}], node="n2")]
    objects = [node("n1"), node("n2"), device_class("gpu", fails), *slices, claim("one"), pod("new", "one")]
    found = json.loads(dray("why", objects, "new", "-n", "ns", "-o", "json").stdout)
    assert found["verdict"] == "impossible"
    assert "CEL runtime error on device gpu.example.com/n2/g0: no such key: kind" in found["summary"]
    assert [reason["code"] for reason in found["reasons"]] == ["SelectorError"]


def test_a_gang_of_manifests_by_hand_is_judged_as_a_gang(dray: Run) -> None:
    """Nothing is defaulted in them, the scheduler's name neither."""
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"}, "spec": {}}
    metadata = {"name": "train", "namespace": "ns"}
    spec = {"queue": "team", "minMember": 3}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    asked = {"name": "w", "namespace": "ns", "uid": "u", "annotations": {"pod-group-name": "train"}}
    alone = {"apiVersion": "v1", "kind": "Pod", "metadata": asked, "spec": {"containers": [{"name": "c"}]}}
    answer = ask(dray, "w", [node("n1"), queue, group, alone])
    assert "has too few pods to start: 1 of 3" in answer["summary"]


class TestAGangThatOnlyItsPodsName:
    """No PodGroup, no queue, nothing defaulted: manifests by hand."""

    def pods(self, size: int, cpu: str, by: str) -> list[Plain]:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
        return [self.member(f"w{number}", cpu, owner, by, size) for number in range(size)]

    def member(self, name: str, cpu: str, owner: Plain, by: str, size: int) -> Plain:
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [owner]}
        spec: Plain = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        if by == "annotation":
            metadata["annotations"] = {"dray.dev/gang": str(size)}
        else:
            spec["schedulingGroup"] = {"podGroupName": "train"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def test_that_fits_as_a_whole_only_waits_for_its_scheduler(self, dray: Run) -> None:
        found = ask(dray, "w0", [node("n1"), node("n2"), *self.pods(4, "4", "annotation")])
        assert (found["verdict"], found["fits"]) == ("waiting", ["n1", "n2"])
        assert (found["queued"]["group"], found["queued"]["needs"]) == ("ns/Job/train", 4)

    def test_that_never_fits_as_a_whole_is_impossible_though_each_would_fit_alone(self, dray: Run) -> None:
        found = ask(dray, "w0", [node("n1"), *self.pods(3, "4", "annotation")])
        assert found["verdict"] == "impossible"
        assert found["fits"] == []
        assert codes(found["reasons"])[0] == "GangBlocked"
        assert "podgroup ns/Job/train cannot start as a whole: 2 of 3 pods fit together" in found["summary"]

    def test_that_does_not_fit_is_told_where_the_most_of_it_would_be(self, dray: Run) -> None:
        objects = [node("n1"), node("n2"), *self.pods(5, "4", "annotation")]
        found = ask(dray, "w0", objects)["queued"]["closest"]
        assert sorted(each["pod"] for each in found) == ["ns/w0", "ns/w1", "ns/w2", "ns/w3"]
        assert sorted(each["node"] for each in found) == ["n1", "n1", "n2", "n2"]
        told = dray("why", objects, "w0", "-n", "ns").stdout
        assert "The most pods that fit at the same time:\nNODE  COUNT  PODS\nn1    2      ns/w0, ns/w2" in told

    def test_of_kubernetes_whose_group_nobody_made_waits_for_it(self, dray: Run) -> None:
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        other = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "other", "namespace": "ns"}}
        found = ask(dray, "w0", [node("n1"), {**other, "spec": spec}, *self.pods(2, "1", "schedulingGroup")])
        assert (found["verdict"], found["fits"]) == ("unschedulable", [])
        assert found["summary"] == "pod ns/w0 cannot be scheduled now: podgroup ns/train does not exist."
        assert found["queued"] == {"queue": "", "group": "ns/train"}

    def test_of_kubernetes_is_not_said_to_lack_its_group_where_the_files_have_none_at_all(self, dray: Run) -> None:
        found = ask(dray, "w0", [node("n1"), *self.pods(2, "1", "schedulingGroup")])
        assert codes(found["reasons"]) == ["NotRead"]
        assert "podgroups.scheduling.k8s.io ns/train (the files have no podgroups.scheduling.k8s.io)" in found["summary"]

    @pytest.mark.parametrize(("cpu", "verdict"), [("4", "waiting"), ("5", "impossible")])
    def test_of_kubernetes_is_judged_as_a_whole_once_the_group_is_there(self, dray: Run, cpu: str, verdict: str) -> None:
        metadata = {"name": "train", "namespace": "ns"}
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
        found = ask(dray, "w0", [node("n1"), group, *self.pods(2, cpu, "schedulingGroup")])
        assert (found["verdict"], found["fits"]) == (verdict, ["n1"] if verdict == "waiting" else [])
        assert (found["queued"]["group"], found["queued"]["needs"]) == ("ns/train", 2)


class TestDevicesThatSeveralNodesShare:
    def objects(self) -> list[Plain]:
        fabric = slice_("f", [{"name": "gpu-2"}, {"name": "gpu-3"}], pool="fabric", allNodes=True)
        own = [slice_(f"s-{name}", [{"name": "gpu-2"}], node=name) for name in ("n1", "n2")]
        held = [claim("x", result("gpu-2", pool="fabric"), pods=("uses",)), pod("uses", "x", node="n1")]
        return [node("n1"), node("n2"), device_class(), fabric, *own, *held, claim("three", count=3), pod("wants", "three")]

    def test_are_told_once_and_as_what_they_are(self, dray: Run) -> None:
        shown = " ".join(dray("why", self.objects(), "wants", "-n", "ns").output.split())
        assert "device fabric/gpu-2, which these nodes share: allocated to ns/x" in shown
        assert "device fabric/gpu-3, which these nodes share: usable" in shown
        assert "devices gpu-2 on each: usable" in shown

    def test_stand_in_the_wide_tree_once(self, dray: Run) -> None:
        shown = dray("why", self.objects(), "wants", "-n", "ns", "-o", "wide").output
        assert shown.count("gpu.example.com/fabric/gpu-3: usable") == 1

    def test_are_of_some_nodes_where_not_all_see_them(self) -> None:
        assert _devices(["d/fabric/a", "d/fabric/a"], 3) == "device fabric/a, which some of these nodes share"


@pytest.mark.parametrize("queue", ["", "team"])
@pytest.mark.parametrize("ends_in", [3600, -3600])
def test_a_pod_for_which_others_left_in_vain_evicts_nobody_until_its_pause_ends(dray: Run, queue: str, ends_in: int) -> None:
    """Its condition tells of the pause, whoever wrote it."""
    amounts = {key: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for key in ("cpu", "memory", "gpu")}
    team = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"resources": amounts},
    }
    until = format_time(time.time() + ends_in)
    said = (
        f"0/1 nodes are available: x, pod ns/high evicts nobody before {until}: devices failed it after others had left for it."
    )
    held = [claim("l", result("g0"), pods=("low",)), pod("low", "l", node="n1", priority=1)]
    high = pod("high", "h", priority=10)
    high["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]
    for each in (held[1], high) if queue else ():
        each["metadata"]["labels"] = {"kai.scheduler/queue": queue}
    objects = [node("n1"), device_class(), slice_("s", [{"name": "g0"}]), *held, claim("h"), high, *([team] if queue else [])]
    found = ask(dray, "high", objects)
    if ends_in > 0:
        assert (found["verdict"], found["evicts"]) == ("unschedulable", None)
        assert found["reasons"][-1]["code"] == "EvictionsPaused"
        assert f"pod ns/high evicts nobody before {until}" in found["summary"]
        assert "look at the conditions of the pod's claims" in found["fixes"][0]
    else:
        assert [victim["pod"] for victim in found["evicts"]["victims"]] == ["ns/low"]
        assert "EvictionsPaused" not in codes(found["reasons"])
