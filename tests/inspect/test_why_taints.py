"""``dray why`` about device taints (KEP-5055): who must leave and when, and who can lift a taint that keeps a pod waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray import testing
from dray.api.gates import Gates
from dray.explain.inventory import inventory
from dray.explain.published import Published
from tests.inspect.conftest import Plain, Run, claim, device_class, healthy, node, pod, result, slice_

LONG_AGO = "2026-01-01T00:00:00Z"
YEARS = 4_000_000_000


def ask(dray: Run, name: str, objects: list[Plain], *arguments: str) -> dict[str, Any]:
    answer = dray("why", objects, name, "-n", "ns", "-o", "json", *arguments)
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def rule(name: str = "service", effect: str = "NoExecute", **selector: str) -> Plain:
    taint = {"key": "example.com/service", "effect": effect, "timeAdded": LONG_AGO}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": LONG_AGO},
        "spec": {"deviceSelector": selector, "taint": taint},
    }


def users(*tolerations: Plain) -> list[Plain]:
    """A pod on a device of node n1, which its claim tolerates so much of."""
    used = claim("used", result("g0", tolerations=list(tolerations)), pods=("train",))
    return [*healthy()[:5], used, pod("train", "used", node="n1")]


def tainted_device(name: str, *effects: str) -> Plain:
    return {"name": name, "taints": [{"key": "gpu.example.com/ecc", "effect": e, "timeAdded": LONG_AGO} for e in effects]}


class TestAPodOnATaintedDevice:
    def test_must_leave_because_of_a_rule(self, dray: Run) -> None:
        found = ask(dray, "train", [*users(), rule(pool="n1")])
        assert found["verdict"] == "bound"
        assert found["summary"].endswith(
            ", and must leave now because of example.com/service:NoExecute on gpu.example.com/n1/g0 by rule service."
        )

    def test_is_told_until_when_it_may_stay(self, dray: Run) -> None:
        patient = {"key": "example.com/service", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": YEARS}
        found = ask(dray, "train", [*users(patient), rule()])
        assert ", and must leave at 2152-10-03T07:06:40Z because of example.com/service:NoExecute on" in found["summary"]

    def test_that_may_stay_longer_than_there_are_times_is_told_the_last_one(self, dray: Run) -> None:
        patient = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2**63 - 1}
        found = ask(dray, "train", [*users(patient), rule()])
        assert ", and must leave at 9999-12-31T23:59:59Z because of example.com/service:NoExecute on" in found["summary"]

    def test_may_stay_if_it_tolerates_the_taint_or_nobody_has_to_leave_for_it(self, dray: Run) -> None:
        for objects in ([*users({"operator": "Exists"}), rule()], [*users(), rule(effect="NoSchedule")]):
            assert "leave" not in ask(dray, "train", objects)["summary"]

    def test_that_was_evicted_says_so_for_as_long_as_it_is_there(self, dray: Run) -> None:
        objects = [*users(), rule()]
        leaving = objects[-2]
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager"}
        leaving["status"]["conditions"] = [condition]
        leaving["metadata"] |= {"deletionTimestamp": LONG_AGO, "finalizers": ["example.com/hold"]}
        assert ask(dray, "train", objects)["summary"].endswith(
            ", evicted because of example.com/service:NoExecute on gpu.example.com/n1/g0 by rule service; "
            "finalizer example.com/hold keeps its object."
        )
        assert ", evicted because of a device taint; " in ask(dray, "train", objects[:-1])["summary"]

    def test_that_ended_by_itself_was_not_evicted(self, dray: Run) -> None:
        objects = [*users(), rule()]
        objects[-2]["status"]["phase"] = "Succeeded"
        assert "taint" not in ask(dray, "train", objects)["summary"]


class TestAPodThatWaitsForATaint:
    def waiting(self, *others: Plain) -> list[Plain]:
        return [node("n1"), device_class(), *others, claim("one"), pod("new", "one")]

    def helps(self, dray: Run, objects: list[Plain]) -> list[tuple[str, str]]:
        return [(fix["text"], fix["command"]) for fix in ask(dray, "new", objects)["advice"]]

    def test_is_told_which_rule_to_remove(self, dray: Run) -> None:
        gpus = slice_("s", [{"name": "g0"}, {"name": "g1"}])
        tolerate, remove = self.helps(dray, self.waiting(gpus, rule(effect="NoSchedule")))
        assert tolerate[0].startswith("add a toleration for {example.com/service:NoSchedule}")
        assert remove == (
            "remove the rule service with the taint {example.com/service:NoSchedule}",
            "kubectl delete devicetaintrule service",
        )

    def test_is_told_of_all_rules_that_give_the_taint(self, dray: Run) -> None:
        gpus = slice_("s", [{"name": "g0"}])
        rules = [rule("a", "NoSchedule"), rule("b", "NoSchedule", pool="n1"), rule("elsewhere", "NoSchedule", pool="n2")]
        assert self.helps(dray, self.waiting(gpus, *rules))[1][1] == "kubectl delete devicetaintrule a b"

    def test_is_told_of_the_driver_that_publishes_it(self, dray: Run) -> None:
        gpus = slice_("s", [tainted_device("g0", "NoSchedule")])
        text, command = self.helps(dray, self.waiting(gpus))[1]
        assert (text, command) == ("have driver gpu.example.com withdraw its taint {gpu.example.com/ecc:NoSchedule}", "")

    def test_is_told_to_tolerate_the_key_where_that_has_two_effects(self, dray: Run) -> None:
        gpus = slice_("s", [tainted_device("g0", "NoSchedule", "NoExecute")])
        found = self.helps(dray, self.waiting(gpus))
        assert found[0][0] == "add a toleration for {gpu.example.com/ecc} to request gpu of ns/one"
        assert "tolerations:\n        - operator: Exists\n          key: gpu.example.com/ecc" in found[0][1]
        assert "effect" not in found[0][1]
        assert found[1][0] == "have driver gpu.example.com withdraw its taint {gpu.example.com/ecc}"

    def test_with_others_in_a_claim_is_told_of_the_rule_and_of_them(self, dray: Run) -> None:
        objects = [*users(), rule("service", "NoSchedule"), pod("new", "used")]
        found = ask(dray, "new", objects)
        assert "claim ns/used holds device gpu.example.com/n1/g0 with a taint that it does not tolerate" in found["summary"]
        assert [(fix["text"], fix["command"]) for fix in found["advice"]] == [
            (
                "remove the rule service with the taint {example.com/service:NoSchedule}",
                "kubectl delete devicetaintrule service",
            ),
            ("end pod train: claim ns/used is then allocated again", "kubectl delete pod train -n ns"),
        ]


@pytest.mark.parametrize("off", ["", "DRADeviceTaints", "DRADeviceTaintRules"])
def test_where_taints_are_switched_off_nobody_must_leave_and_no_device_is_tainted(off: str) -> None:
    gates = Gates.dray().updated({off: False} if off else {})
    patient = {"key": "example.com/service", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": YEARS}
    cluster = testing.VirtualCluster(gates=gates)
    cluster.start_scheduler()
    cluster.create(testing.device_class(), testing.node("n1"), testing.resource_slice("n1", 1))
    cluster.create(testing.claim("one", tolerations=[patient]), testing.pod("train", claims=["one"]))
    cluster.run(5)
    cluster.create(rule())
    assert ("must leave" in cluster.why("train").summary) == (not off)
    (row,) = inventory(Published(cluster.world(), gates=gates)).devices
    assert bool(row.taints) == (not off)
