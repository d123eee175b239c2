"""What ``dray why`` advises was tried: done as it says, the pod fits; and what cannot help is not said."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.inspect.conftest import Plain, Run, claim, device_class, node, pod, result, slice_
from tests.numa.building import GPU, zone


def ask(dray: Run, objects: list[Plain], name: str = "new") -> dict[str, Any]:
    answer = dray("why", objects, name, "-n", "ns", "-o", "json")
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    assert found["fixes"] == [told(fix) for fix in found["advice"]] or not found["advice"]
    return found


def told(fix: dict[str, Any]) -> str:
    names = fix["nodes"]
    if not fix["tried"]:
        return f"{fix['text']} (not tried)"
    if not names:
        return str(fix["text"])
    some = f"{'node' if len(names) == 1 else 'nodes'} {' and '.join(names)}" if len(names) < 3 else f"{len(names)} nodes"
    return f"{fix['text']} (then {some} would do{fix['when']})"


def cordoned() -> list[Plain]:
    return [{**node("n1"), "spec": {"unschedulable": True}}, pod("new")]


def tainted() -> list[Plain]:
    return [{**node("n1"), "spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}}, pod("new")]


def selecting() -> list[Plain]:
    return [node("n1"), pod("new", nodeSelector={"zone": "a"})]


def affine() -> list[Plain]:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}, {"key": "old", "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return [node("n1"), pod("new", affinity={"nodeAffinity": required})]


def large() -> list[Plain]:
    return [node("n1"), pod("old", node="n1", cpu="2500m"), pod("new", cpu="6")]


def bound_by_an_attribute() -> list[Plain]:
    gpus = [{"name": f"g{i}", "attributes": {"numa": {"int": i % 2}}} for i in range(4)]
    asks = claim("four", count=3)
    asks["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/numa"}]
    few = slice_("s2", [{"name": "g0", "attributes": {"numa": {"int": 0}}}], node="n2")
    return [node("n1"), node("n2"), device_class(), slice_("s1", gpus), few, asks, pod("new", "four")]


def wider_than_its_cpus() -> list[Plain]:
    """Six GPUs need both zones of the node, two CPUs need one: the policy restricted admits no such pod."""
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n1"}}
    policy = [{"name": "topologyManagerPolicy", "value": "restricted"}, {"name": "topologyManagerScope", "value": "pod"}]
    zones = [zone(number, {"cpu": "4", "gpu": "4"}) for number in (0, 1)]
    new, amounts = pod("new"), {"cpu": "2", "memory": "1Gi", GPU: "6"}
    new["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": dict(amounts)}
    return [node("n1", **{GPU: "8"}), {**kind, "attributes": policy, "zones": zones}, new]


def beside_a_reserved_cpu() -> list[Plain]:
    """Four CPUs would fit into a zone if one of them were not reserved, and the kubelet counts as if it were not."""
    made = wider_than_its_cpus()
    made[1]["zones"] = [zone(number, {"cpu": ("3", "3", "4"), "gpu": "4"}) for number in (0, 1)]
    for amounts in made[2]["spec"]["containers"][0]["resources"].values():
        amounts |= {"cpu": "4", GPU: "1"}
    return made


def larger_than_all_zones() -> list[Plain]:
    """Twelve CPUs, of eight in two zones; the one GPU needs one zone, so the pod may have no more of CPUs than a zone has."""
    made = wider_than_its_cpus()
    for amounts in made[2]["spec"]["containers"][0]["resources"].values():
        amounts |= {"cpu": "12", GPU: "1"}
    return made


def with_a_request(**exactly: Any) -> list[Plain]:
    """GPUs of 80Gi each on n1; no GPU at all on n0 and n2."""
    gpus = [
        {"name": f"g{i}", "attributes": {"model": {"string": "A"}}, "capacity": {"memory": {"value": "80Gi"}}} for i in range(2)
    ]
    asks = claim("one")
    asks["spec"]["devices"]["requests"][0]["exactly"].update(exactly)
    other = slice_("s0", [{"name": "nic"}], node="n0", driver="nic.example.com")
    return [node("n0"), node("n1"), node("n2"), device_class(), other, slice_("s1", gpus), asks, pod("new", "one")]


SELECTOR = 'device.attributes["gpu.example.com"].model == "Z"'


def too_choosy() -> list[Plain]:
    return with_a_request(selectors=[{"cel": {"expression": SELECTOR}}])


def failing() -> list[Plain]:
    return with_a_request(selectors=[{"cel": {"expression": SELECTOR.replace("model", "nosuch")}}])


def too_large() -> list[Plain]:
    return with_a_request(capacity={"requests": {"memory": "500Gi"}})


def allowing_one_zone(span: str = "1") -> list[Plain]:
    made = wider_than_its_cpus()
    made[1]["attributes"][0]["value"] = "best-effort"
    made[2]["metadata"]["annotations"] = {"dray.dev/numa-span": span}
    return made


def with_a_device_in_the_other_zone() -> list[Plain]:
    made = allowing_one_zone()
    made[1]["attributes"][0]["value"] = "single-numa-node"
    made[1]["zones"] = [zone(0, {"cpu": "4"}), zone(1, {"cpu": "1"})]
    for amounts in made[2]["spec"]["containers"][0]["resources"].values():
        del amounts[GPU]
    far = slice_("s1", [{"name": "g0", "attributes": {"numaNode": {"int": 1}}}])
    made[2]["spec"] |= pod("new", "one")["spec"] | {"containers": made[2]["spec"]["containers"]}
    return [*made, device_class(), far, claim("one")]


def find(objects: list[Plain], kind: str, name: str) -> Plain:
    return next(each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))


def uncordon(objects: list[Plain]) -> None:
    find(objects, "Node", "n1")["spec"] = {}


def tolerate(objects: list[Plain]) -> None:
    toleration = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    find(objects, "Pod", "new")["spec"]["tolerations"] = [toleration]


def label(key: str, value: str) -> Callable[[list[Plain]], None]:
    return lambda objects: find(objects, "Node", "n1")["metadata"]["labels"].update({key: value})


def shrink(objects: list[Plain]) -> None:
    find(objects, "Pod", "new")["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5500m"


def request(**changes: str) -> Callable[[list[Plain]], None]:
    def change(objects: list[Plain]) -> None:
        for amounts in find(objects, "Pod", "new")["spec"]["containers"][0]["resources"].values():
            amounts |= {GPU if name == "gpu" else name: value for name, value in changes.items()}

    return change


def allow(span: str) -> Callable[[list[Plain]], None]:
    return lambda objects: find(objects, "Pod", "new")["metadata"].update(
        {"annotations": {"dray.dev/numa-span": span} if span else {}}
    )


def end_old(objects: list[Plain]) -> None:
    objects.remove(find(objects, "Pod", "old"))


def unbind(objects: list[Plain]) -> None:
    del find(objects, "ResourceClaim", "four")["spec"]["devices"]["constraints"]


def asked_for(objects: list[Plain]) -> Plain:
    found: Plain = find(objects, "ResourceClaim", "one")["spec"]["devices"]["requests"][0]["exactly"]
    return found


def unselect(objects: list[Plain]) -> None:
    del asked_for(objects)["selectors"]


def ask_for_80(objects: list[Plain]) -> None:
    asked_for(objects)["capacity"]["requests"]["memory"] = "80Gi"


REQUEST = "in request gpu of ns/one"


@pytest.mark.parametrize(
    ("objects", "text", "command", "do"),
    [
        (cordoned(), "uncordon node n1", "kubectl uncordon n1", uncordon),
        (tainted(), "add a toleration for the taint {team=a:NoSchedule} to the pod", "kubectl patch pod new -n ns", tolerate),
        (tainted(), "remove the taint {team=a:NoSchedule} from node n1", "kubectl taint node n1 team=a:NoSchedule-", uncordon),
        (selecting(), "label node n1 zone=a", "kubectl label node n1 zone=a --overwrite", label("zone", "a")),
        (affine(), "label node n1 gpu=", "kubectl label node n1 gpu= --overwrite", label("gpu", "")),
        (large(), "request 5.5 cpu instead of 6", "# in the pod", shrink),
        (wider_than_its_cpus(), f"request 4 {GPU} instead of 6", "# in the pod", request(gpu="4")),
        (wider_than_its_cpus(), "request 5 cpu instead of 2", "# in the pod", request(cpu="5")),
        (larger_than_all_zones(), "request 4 cpu instead of 12", "# in the pod", request(cpu="4")),
        (beside_a_reserved_cpu(), "request 3 cpu instead of 4", "# in the pod", request(cpu="3")),
        (
            allowing_one_zone(),
            "allow the pod to span 2 zones",
            "kubectl annotate pod new -n ns --overwrite dray.dev/numa-span=2",
            allow("2"),
        ),
        (
            with_a_device_in_the_other_zone(),
            "allow the pod to span 2 zones",
            "kubectl annotate pod new -n ns --overwrite dray.dev/numa-span=2",
            allow("2"),
        ),
        (
            allowing_one_zone("one"),
            "correct what the pod says of its zones, or take it away: dray.dev/numa-span",
            "kubectl annotate pod new -n ns --overwrite dray.dev/numa-span-",
            allow(""),
        ),
        (large(), "end pod ns/old", "kubectl delete pod old -n ns", end_old),
        (bound_by_an_attribute(), "do without the constraint on gpu.example.com/numa in ns/four", "# in the claim", unbind),
        (too_choosy(), f"do without the selector {SELECTOR} {REQUEST}", "# in the claim", unselect),
        (failing(), f"do without the selector {SELECTOR.replace('model', 'nosuch')} {REQUEST}", "# in the claim", unselect),
        (too_large(), f"ask for 80Gi of memory instead {REQUEST}", "# in the claim", ask_for_80),
    ],
)
def test_what_is_advised_helps_when_it_is_done(
    objects: list[Plain], text: str, command: str, do: Callable[[list[Plain]], None], dray: Run
) -> None:
    before = ask(dray, objects)
    assert before["verdict"] in ("unschedulable", "impossible")
    (fix,) = [fix for fix in before["advice"] if fix["text"] == text]
    assert fix["command"].startswith(command)
    assert fix["nodes"] == ["n1"]
    limited = "limits" in find(objects, "Pod", "new")["spec"]["containers"][0]["resources"]
    assert ("limits:" in fix["command"]) is (limited and command.startswith("#"))
    changed = copy.deepcopy(objects)
    do(changed)
    assert ask(dray, changed)["fits"] == ["n1"]


class TestTheCauseIsTold:
    def test_a_selector_that_takes_none_of_the_devices_that_there_are(self, dray: Run) -> None:
        found = ask(dray, too_choosy())
        assert f"1 node has no device of class gpu for request gpu that its selector {SELECTOR} takes" in found["summary"]
        assert "2 nodes have no device of class gpu for request gpu" in found["summary"]
        assert found["nearest"]["node"] == "n1"

    def test_a_long_selector_leaves_room_for_the_rest(self, dray: Run) -> None:
        long = " || ".join([SELECTOR] * 40)
        found = ask(dray, with_a_request(selectors=[{"cel": {"expression": long}}]))
        assert f"its selector {long[:160]}… takes" in found["summary"]

    def test_how_much_of_a_capacity_there_is(self, dray: Run) -> None:
        shown = dray("why", too_large(), "new", "-n", "ns").stdout
        assert "have not enough capacity left: memory needs 500Gi, 80Gi left" in shown

    def test_how_much_of_a_capacity_can_be_asked_for(self, dray: Run) -> None:
        policy = {"validRange": {"min": "1Gi", "max": "40Gi", "step": "1Gi"}}
        objects = with_a_request(capacity={"requests": {"memory": "50Gi"}})
        for device in find(objects, "ResourceSlice", "s1")["spec"]["devices"]:
            device |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}}}
        shown = dray("why", objects, "new", "-n", "ns").stdout
        assert "do not allow the requested capacity: memory of 50Gi (allowed: 1Gi to 40Gi in steps of 1Gi)" in shown
        assert f"ask for 40Gi of memory instead {REQUEST} (then node n1 would do)" in shown

    def test_all_of_a_class_is_not_none_of_it(self, dray: Run) -> None:
        objects = with_a_request(allocationMode="All")
        objects.remove(find(objects, "ResourceSlice", "s1"))
        assert "request gpu: all of class gpu" in dray("why", objects, "new", "-n", "ns").stdout

    def test_a_node_that_lacks_one_of_two_requests_is_nearer_than_one_that_lacks_both(self, dray: Run) -> None:
        objects = [*with_a_request(), device_class("nic", 'device.driver == "card.example.com"')]
        requests = find(objects, "ResourceClaim", "one")["spec"]["devices"]["requests"]
        requests.append({"name": "nic", "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1}})
        found = ask(dray, objects)
        assert (found["nearest"]["node"], found["nearest"]["request"]) == ("n1", "nic")

    def test_a_resource_that_nothing_offers_where_a_node_is_tainted_as_well(self, dray: Run) -> None:
        new = pod("new")
        new["spec"]["containers"][0]["resources"]["limits"] = {"example.com/foo": "1"}
        found = ask(dray, [tainted()[0], node("n2"), device_class(), slice_("s", [{"name": "g0"}], node="n2"), new])
        assert "let a device class serve example.com/foo, such as gpu" in found["fixes"]

    def test_a_storage_class_that_is_missing_is_to_be_created(self, dray: Run) -> None:
        kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "ns"}}
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        found = ask(dray, [node("n1"), {**kind, "spec": {"storageClassName": "fast"}}, pod("new", volumes=[volume])])
        assert found["fixes"] == ["create storage class fast, or name another in a new volume claim instead of ns/data"]

    def test_what_is_said_of_the_pod_names_it_once(self, dray: Run) -> None:
        found = ask(dray, [node("n1"), pod("new", schedulingGates=[{"name": "wait"}])])
        assert found["summary"] == "pod ns/new waits: it has scheduling gates: wait."


class TestWhoMustBeNearOthers:
    @pytest.fixture
    def follower(self) -> Plain:
        term = {"labelSelector": {"matchLabels": {"app": "old"}}, "topologyKey": "kubernetes.io/hostname"}
        made = pod("new", cpu="2")
        made["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return made

    def test_waits_for_room_beside_them(self, follower: Plain, dray: Run) -> None:
        old = pod("old", node="n1", cpu="7")
        old["metadata"]["labels"] = {"app": "old"}
        found = ask(dray, [node("n1"), node("n2"), old, follower])
        assert found["verdict"] == "unschedulable"
        assert "1 node has not enough cpu (needs 2, 1 free of 8)" in found["summary"]

    def test_is_not_helped_by_an_empty_node(self, follower: Plain, dray: Run) -> None:
        found = ask(dray, [node("n1"), follower])
        assert found["verdict"] == "unschedulable"
        assert not any("when empty" in fix for fix in found["fixes"])

    def test_may_still_ask_for_more_than_any_node_has(self, follower: Plain, dray: Run) -> None:
        follower["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1k"
        found = ask(dray, [node("n1"), follower])
        assert found["verdict"] == "impossible"
        assert "not enough cpu" in found["summary"]


class TestWhatCannotHelpIsNotSaid:
    def test_a_name_that_is_not_the_name_of_a_node(self, dray: Run) -> None:
        found = ask(dray, [node("n1"), pod("new", nodeSelector={"kubernetes.io/hostname": "gone"})])
        assert found["fixes"] == ["do without kubernetes.io/hostname=gone in the pod's node selector (then node n1 would do)"]

    def test_a_node_with_as_many_devices_that_do_not_agree_either(self, dray: Run) -> None:
        found = ask(dray, bound_by_an_attribute())
        assert "add a node with 3 devices of class gpu that agree on gpu.example.com/numa" in found["fixes"]

    def test_a_toleration_for_a_node_that_has_no_such_device(self, dray: Run) -> None:
        free = slice_("s", [{"name": "g0"}], node="n2")
        busy = [claim("used", result("g0", pool="n2"), pods=("old",), node="n2"), pod("old", "used", node="n2")]
        objects = [*tainted()[:1], node("n2"), device_class(), free, *busy, claim("one"), pod("new", "one")]
        found = ask(dray, objects)
        assert found["verdict"] == "unschedulable"
        assert not any("toleration" in fix or "taint" in fix for fix in found["fixes"])
        assert found["fixes"][0].startswith("release claim ns/used (pod old)")

    def test_more_cpu_than_any_node_has_is_not_to_be_freed(self, dray: Run) -> None:
        found = ask(dray, [node("n1"), pod("old", node="n1", cpu="2"), pod("new", cpu="64")])
        assert not any(fix.startswith(("free", "end")) for fix in found["fixes"])

    def test_more_devices_than_any_node_has_are_not_to_be_freed(self, dray: Run) -> None:
        objects = [node("n1"), device_class(), slice_("s", [{"name": "g0"}]), claim("two", count=2), pod("new", "two")]
        found = ask(dray, objects)
        assert found["verdict"] == "impossible"
        assert not any("free" in fix for fix in found["fixes"])
        assert "add a node with 2 devices of class gpu" in found["fixes"]

    def test_a_larger_skew_where_nodes_lack_the_key(self, dray: Run) -> None:
        selector = {"matchLabels": {"app": "x"}}
        spread = [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]
        found = ask(dray, [node("n1"), pod("new", topologySpreadConstraints=spread)])
        assert not any("maxSkew" in fix for fix in found["fixes"])
        assert "1 node does not have label rack, which a topology spread constraint needs" in found["summary"]
        assert "make the spread over rack a preference (then node n1 would do)" in found["fixes"]

    def test_where_two_things_are_missing_neither_alone_is_advised(self, dray: Run) -> None:
        objects = tainted()
        objects[-1]["spec"]["nodeSelector"] = {"zone": "a"}
        found = ask(dray, objects)
        assert found["fixes"] == []
        assert "None of the changes that Dray tried would help." in dray("why", objects, "new", "-n", "ns").stdout


class TestNames:
    def test_the_requirement_of_the_node_affinity(self, dray: Run) -> None:
        assert "does not match the pod's node selector or affinity: gpu exists" in ask(dray, affine())["summary"]

    def test_the_attribute_on_which_devices_do_not_agree(self, dray: Run) -> None:
        found = ask(dray, bound_by_an_attribute())
        reason = next(r for node in found["nodes"] if node["node"] == "n1" for r in node["reasons"])
        assert reason["message"].endswith("but no 3 of them agree on gpu.example.com/numa (2 do) for ns/four")
        assert (found["nearest"]["node"], found["nearest"]["missing"]) == ("n1", 0)
        assert found["nodes"][0]["node"] == "n1"

    def test_every_alternative_of_a_prioritized_list(self, dray: Run) -> None:
        asks = claim("any")
        big, small = (
            {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
            for name, count in (("big", 4), ("small", 2))
        )
        asks["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": [big, small]}]
        found = ask(dray, [node("n1"), device_class(), slice_("s", [{"name": "g0"}]), asks, pod("new", "any")])
        assert (
            "for request gpu/small (needs 2, 1 free of 1), nor for gpu/big (needs 4 of class gpu, 1 free of 1)"
            in found["summary"]
        )

    def test_of_holders_of_all_nodes_that_are_told_together(self, dray: Run) -> None:
        objects = [device_class(), claim("two", count=2), pod("new", "two")]
        for name in ("n1", "n2"):
            held = claim(f"held-{name}", result("g0", pool=name), pods=(f"old-{name}",), node=name)
            gpus = slice_(f"s-{name}", [{"name": "g0"}, {"name": "g1"}], node=name)
            objects += [node(name), gpus, held, pod(f"old-{name}", f"held-{name}", node=name)]
        shown = dray("why", objects, "new", "-n", "ns").stdout
        assert "devices g0 on each: allocated to ns/held-n1, ns/held-n2" in shown

    def test_a_selector_that_selects_nothing_is_told_once(self, dray: Run) -> None:
        objects = [device_class(expression="false"), claim("c"), pod("new", "c")]
        for number, name in enumerate(("n1", "n2", "n3"), 1):
            objects += [node(name), slice_(f"s-{name}", [{"name": f"g{i}"} for i in range(number)], node=name)]
        assert dray("why", objects, "new", "-n", "ns").stdout.count("class gpu: false is false") == 1

    def test_a_selector_that_fails_is_told_once_whatever_number_of_devices_it_fails_on(self, dray: Run) -> None:
        objects = [device_class(expression='device.attributes["gpu.example.com"].nope == "x"'), claim("c"), pod("new", "c")]
        for name in ("n1", "n2"):
            objects += [node(name), slice_(f"s-{name}", [{"name": f"g{i}"} for i in range(8)], node=name)]
        _, _, tree = dray("why", objects, "new", "-n", "ns").stdout.partition("\n\n")
        assert tree.count("fails with a CEL runtime error") == 1
        assert (
            "devices g0, g1, g2, g3 and 4 more on each: cannot be judged, "
            'the selector device.attributes["gpu.example.com"].nope == "x" '
            "fails with a CEL runtime error: no such key" in tree
        )

    def test_the_attribute_that_devices_do_not_have_instead_of_a_number_that_they_do(self, dray: Run) -> None:
        asks = claim("two", count=2)
        asks["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/uuid"}]
        objects = [device_class(), asks, pod("new", "two"), node("n1"), slice_("s", [{"name": "g0"}, {"name": "g1"}])]
        shown = dray("why", objects, "new", "-n", "ns").stdout
        assert "Nearest: node n1 has enough devices for ns/two, but they do not have attribute gpu.example.com/uuid." in shown


def test_another_node_is_not_advised_where_nodes_share_the_devices_that_are_lacking(dray: Run) -> None:
    def fixes(*slices: Plain, held: Plain) -> list[str]:
        used = [claim("used", held, pods=("first",)), pod("first", "used", node="n1"), claim("one"), pod("new", "one")]
        found: list[str] = ask(dray, [node("n1"), device_class(), *slices, *used])["fixes"]
        return found

    another = "add a node like n1, which would do when empty"
    shared = slice_("fabric", [{"name": "f0"}], pool="fabric", allNodes=True)
    assert another in fixes(slice_("own", [{"name": "g0"}]), held=result("g0"))
    told = fixes(shared, held=result("f0", pool="fabric"))
    assert told
    assert another not in told


def test_amounts_of_an_advice_are_in_one_unit(dray: Run) -> None:
    found = ask(dray, [node("n1", cpu="63500m"), pod("new", cpu="2k")])
    assert "needs 2000, 63.5 free of 63.5" in found["summary"]
    assert "request 63.5 cpu instead of 2000 (then node n1 would do)" in found["fixes"]
    assert "add a node like n1 with 2000 cpu" in found["fixes"]


def test_of_many_whom_it_could_hit_two_are_told(dray: Run) -> None:
    objects = [device_class(), claim("two", count=2), pod("new", "two")]
    for number in range(5):
        name = f"n{number}"
        held = claim(f"held-{name}", result("g0", pool=name), pods=(f"old-{name}",), node=name)
        gpus = slice_(f"s-{name}", [{"name": "g0"}, {"name": "g1"}], node=name)
        objects += [node(name), gpus, held, pod(f"old-{name}", f"held-{name}", node=name)]
    assert [fix["text"].split()[0] for fix in ask(dray, objects)["advice"]] == ["ask", "release", "release", "add"]


def test_nodes_that_are_told_together_are_told_in_the_plural(dray: Run) -> None:
    taints = {"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}}
    shown = dray("why", [{**node("n1"), **taints}, {**node("n2"), **taints}, pod("new")], "new", "-n", "ns").stdout
    assert "2 nodes (n1, n2): have an untolerated taint {team=a:NoSchedule}" in shown
