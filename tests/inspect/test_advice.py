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


def ask_for_one_zone(objects: list[Plain]) -> None:
    for amounts in find(objects, "Pod", "new")["spec"]["containers"][0]["resources"].values():
        amounts[GPU] = "4"


def end_old(objects: list[Plain]) -> None:
    objects.remove(find(objects, "Pod", "old"))


def unbind(objects: list[Plain]) -> None:
    del find(objects, "ResourceClaim", "four")["spec"]["devices"]["constraints"]


@pytest.mark.parametrize(
    ("objects", "text", "command", "do"),
    [
        (cordoned(), "uncordon node n1", "kubectl uncordon n1", uncordon),
        (tainted(), "add a toleration for the taint {team=a:NoSchedule} to the pod", "kubectl patch pod new -n ns", tolerate),
        (tainted(), "remove the taint {team=a:NoSchedule} from node n1", "kubectl taint node n1 team=a:NoSchedule-", uncordon),
        (selecting(), "label node n1 zone=a", "kubectl label node n1 zone=a --overwrite", label("zone", "a")),
        (affine(), "label node n1 gpu=", "kubectl label node n1 gpu= --overwrite", label("gpu", "")),
        (large(), "request 5.5 cpu instead of 6", "# in the pod", shrink),
        (wider_than_its_cpus(), f"request 4 {GPU} instead of 6", "# in the pod", ask_for_one_zone),
        (large(), "end pod ns/old", "kubectl delete pod old -n ns", end_old),
        (bound_by_an_attribute(), "do without the constraint on gpu.example.com/numa in ns/four", "# in the claim", unbind),
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
    assert ("limits:" in fix["command"]) is limited
    changed = copy.deepcopy(objects)
    do(changed)
    assert ask(dray, changed)["fits"] == ["n1"]


class TestWhatCannotHelpIsNotSaid:
    def test_a_toleration_for_a_node_that_has_no_such_device(self, dray: Run) -> None:
        free = slice_("s", [{"name": "g0"}], node="n2")
        busy = [claim("used", result("g0", pool="n2"), pods=("old",), node="n2"), pod("old", "used", node="n2")]
        objects = [*tainted()[:1], node("n2"), device_class(), free, *busy, claim("one"), pod("new", "one")]
        found = ask(dray, objects)
        assert found["verdict"] == "unschedulable"
        assert not any("toleration" in fix or "taint" in fix for fix in found["fixes"])
        assert found["fixes"][0].startswith("let go of claim ns/used (pod old)")

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
        assert "No single change that was tried would do." in dray("why", objects, "new", "-n", "ns").stdout


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
            "devices g0, g1, g2, g3 and 4 more on each: have a selector that fails with a CEL runtime error: no such key" in tree
        )

    def test_the_attribute_that_devices_do_not_have_instead_of_a_number_that_they_do(self, dray: Run) -> None:
        asks = claim("two", count=2)
        asks["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/uuid"}]
        objects = [device_class(), asks, pod("new", "two"), node("n1"), slice_("s", [{"name": "g0"}, {"name": "g1"}])]
        shown = dray("why", objects, "new", "-n", "ns").stdout
        assert "Nearest: node n1 has enough devices for ns/two, but they do not have attribute gpu.example.com/uuid." in shown


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
    assert [fix["text"].split()[0] for fix in ask(dray, objects)["advice"]] == ["ask", "let", "let", "add"]


def test_nodes_that_are_told_together_are_told_in_the_plural(dray: Run) -> None:
    taints = {"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}}
    shown = dray("why", [{**node("n1"), **taints}, {**node("n2"), **taints}, pod("new")], "new", "-n", "ns").stdout
    assert "2 nodes (n1, n2): have an untolerated taint {team=a:NoSchedule}" in shown
