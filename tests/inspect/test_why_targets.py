"""How a pod, a claim or a group is named for ``dray why``, as kubectl names them."""

from __future__ import annotations

import json

import pytest

from tests.inspect.conftest import Run, claim, healthy, pod

WAYS = (["new"], ["pod/new"], ["pods/new"], ["po/new"], ["pod", "new"], ["pods", "new"], ["Pod/new"], ["ns/new"])


@pytest.mark.parametrize("way", [*WAYS, ["claim/one"], ["resourceclaim", "one"], ["resourceclaims.resource.k8s.io/one"]])
def test_a_pod_is_named_in_every_way_of_kubectl(dray: Run, way: list[str]) -> None:
    objects = [*healthy(), claim("one"), pod("new", "one")]
    namespace = [] if way == ["ns/new"] else ["-n", "ns"]
    answer = dray("why", objects, *way, *namespace, "-o", "json")
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["pod"] == "ns/new"


def test_a_claim_that_several_pods_use_is_told_of_by_all_that_wait(dray: Run) -> None:
    objects = [*healthy(), claim("one"), pod("a", "one"), pod("b", "one"), pod("other")]
    answer = dray("why", objects, "claim/one", "-n", "ns", "-o", "json")
    assert [each["pods"] for each in json.loads(answer.stdout)["causes"]] == [["ns/a", "ns/b"]]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (["node/n1"], '"node" is not a kind that has pods: use POD, NAMESPACE/POD or KIND/NAME, where KIND is one of pod, '),
        (["node/n1"], "`dray devices --node NAME` lists the devices of a node"),
        (["node", "n1"], "resourceclaim, podgroup, deployment"),
        (["a", "b", "c"], "expected one name"),
        (["pod/a", "pod/b"], "expected one name"),
        (["pod/"], 'expected KIND/NAME, got "pod/"'),
        (["claim/unused"], 'ResourceClaim "unused" has no pods in namespace "ns"; see `dray claims -n ns`'),
        (["claim/none"], 'ResourceClaim "none" has no pods in namespace "ns" or does not exist'),
        (["nothing"], 'pod "nothing" not found in namespace "ns"'),
    ],
)
def test_what_cannot_be_asked_about_says_what_to_write(dray: Run, target: list[str], said: str) -> None:
    answer = dray("why", [*healthy(), claim("unused")], *target, "-n", "ns")
    assert answer.exit_code == 2
    assert said in " ".join(answer.output.split())


@pytest.mark.parametrize(("kind", "more"), [("node", "`dray devices --node NAME`"), ("queues", "`dray queues`"), ("nowhere", "")])
def test_what_stands_before_the_slash_is_called_a_namespace_only_where_it_is_one(dray: Run, kind: str, more: str) -> None:
    answer = dray("why", [*healthy(), pod("p")], f"{kind}/n1")
    assert answer.exit_code == 2
    said = " ".join(answer.output.split())
    assert f'"{kind}" is not a namespace with pods, and not a kind that has pods: use POD, NAMESPACE/POD or KIND/NAME' in said
    assert more in said


def test_a_workload_that_is_taken_for_a_pod_is_told_as_it_is_asked_about(dray: Run) -> None:
    new = pod("sum-x7k2p")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "uid-sum", "controller": True}
    new["metadata"]["ownerReferences"] = [owner]
    answer = dray("why", [*healthy(), new], "sum", "-n", "ns")
    assert answer.exit_code == 2
    assert 'pod "sum" not found in namespace "ns"; did you mean job/sum?' in answer.stderr
    assert dray("why", [*healthy(), new], "job/sum", "-n", "ns").exit_code == 0


def test_the_name_of_a_workload_that_was_probably_meant_is_told(dray: Run) -> None:
    new = pod("train-x7k2p")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    new["metadata"]["ownerReferences"] = [owner]
    for kind, meant in (("job", "; did you mean train?"), ("deploy", "")):
        answer = dray("why", [*healthy(), new], f"{kind}/trian", "-n", "ns")
        assert answer.exit_code == 2
        assert answer.stderr.strip().endswith(f'"trian" has no pods in namespace "ns" or does not exist{meant}')
