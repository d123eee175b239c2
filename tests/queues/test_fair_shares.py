"""Fair shares are those that KAI-Scheduler computes, for any resources, in any order of the queues."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dray.cli.queues import queues as command
from dray.queues.shares import fair_shares
from dray.queues.tree import Entitlement, Queue, QueueError, Tree, with_requests
from tests.queues.vectors import lines

RESOURCES = ("cpu_milli", "memory_bytes", "gpu")


def asked(*questions: Any) -> list[dict[str, Any]]:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in questions)
    return [json.loads(line) for line in CliRunner().invoke(command, ["shares", "-"], input=text).output.splitlines()]


# --------------------------------------------------------------------------------------------------------- as KAI's answers


def test_every_recorded_share_is_exact() -> None:
    recorded = lines("fairshare")
    answers = asked(*recorded)
    assert [answer["id"] for answer in answers] == [line["id"] for line in recorded]
    assert [line["id"] for line, answer in zip(recorded, answers, strict=True) if answer["fairShare"] != line["fair_share"]] == []


@pytest.mark.parametrize("name", ["tables", "scenarios"])
def test_the_shares_at_the_start_of_every_recorded_cluster_are_exact(name: str) -> None:
    worlds = {line["id"]: line["world"] for line in lines(name) if not line.get("outside") and line.get("world")}
    differing = [identity for identity, world in worlds.items() if not starts_as_recorded(world)]
    assert len(worlds) > 100
    assert differing == []


def starts_as_recorded(world: dict[str, Any]) -> bool:
    total = {name: sum(node["allocatable"].get(name, 0) for node in world["nodes"]) for name in RESOURCES}
    requested: dict[str, dict[str, float]] = {}
    for group in world["podgroups"]:
        for pod in group["pods"]:
            if pod["state"] in ("Pending", "Running", "Bound", "Allocated", "Binding"):
                sums = requested.setdefault(group["queue"], {})
                for name in RESOURCES:
                    sums[name] = sums.get(name, 0) + pod["requests"].get(name, 0)
    tree = Tree(Queue(q["name"], q.get("parent") or "", q["priority"], q["creation_rank"], entitled(q)) for q in world["queues"])
    found = fair_shares(total, with_requests(tree, requested))
    recorded = {q["name"]: q["kai_fair_share_at_start"] for q in world["queues"] if "kai_fair_share_at_start" in q}
    return all(
        math.isclose(found[q][n], share[n], rel_tol=1e-12) for q, share in recorded.items() for n in share if n in RESOURCES
    )


def entitled(queue: dict[str, Any]) -> dict[str, Entitlement]:
    given_ = {name: queue[name] for name in RESOURCES if name in queue}
    return {name: Entitlement(t["quota"], t["limit"], t["over_quota_weight"]) for name, t in given_.items()}


# -------------------------------------------------------------------------------------------------------------- the rules


def leaf(name: str, quota: float = 0, requested: float = 100, limit: float = -1, weight: float = 1, **more: Any) -> Queue:
    return Queue(name, resources={"gpu": Entitlement(quota, limit, weight, requested)}, **more)


def gpus(total: float, *queues: Queue) -> dict[str, float]:
    return {name: share["gpu"] for name, share in fair_shares({"gpu": total}, Tree(queues)).items()}


def test_quotas_come_first_as_far_as_they_are_requested() -> None:
    assert gpus(10, leaf("a", quota=6, requested=2), leaf("b", quota=4), leaf("c", weight=0)) == {"a": 2, "b": 8, "c": 0}


def test_quotas_that_exceed_the_cluster_are_not_scaled() -> None:
    assert gpus(10, leaf("a", quota=8), leaf("b", quota=8)) == {"a": 8, "b": 8}


def test_an_unlimited_quota_is_the_whole() -> None:
    assert gpus(10, leaf("a", quota=-1, requested=7), leaf("b")) == {"a": 7, "b": 3}


def test_what_is_left_goes_by_priority_then_weight() -> None:
    assert gpus(12, leaf("a", requested=4, priority=200), leaf("b", weight=3), leaf("c", weight=1)) == {"a": 4, "b": 6, "c": 2}


def test_without_weight_there_is_nothing_above_the_quota() -> None:
    assert gpus(10, leaf("a", quota=2, weight=0), leaf("b", requested=1)) == {"a": 2, "b": 1}


def test_limits_hold() -> None:
    assert gpus(10, leaf("a", limit=3), leaf("b")) == {"a": 3, "b": 7}


def test_the_unit_that_is_left_goes_to_who_was_cut_most_then_to_the_oldest() -> None:
    assert gpus(11, leaf("a", created=2), leaf("b", created=1)) == {"a": 5, "b": 6}
    assert gpus(10, leaf("a", weight=1), leaf("b", weight=2)) == {"a": 3, "b": 7}


def test_children_divide_what_their_parent_got() -> None:
    top = [leaf("x", quota=4, requested=20), leaf("y", quota=6, requested=6)]
    below = [leaf("x1", quota=3, parent="x"), leaf("x2", quota=1, requested=0, parent="x")]
    assert gpus(10, *top, *below) == {"x": 4, "y": 6, "x1": 4, "x2": 0}


def test_any_resource_follows_the_same_rule() -> None:
    names = ("cpu_milli", "h100.deviceclass", "mig-slices", "example.com/fpga")
    tree = Tree(Queue(q, resources={n: Entitlement(2, -1, 1, 9) for n in names}) for q in "ab")
    found = fair_shares(dict.fromkeys(names, 10.0), tree)
    assert found == {q: dict.fromkeys(names, 5.0) for q in "ab"}


def test_a_resource_that_a_queue_does_not_name_is_not_its_own() -> None:
    tree = Tree([leaf("a"), Queue("b", resources={"cpu": Entitlement(1, -1, 1, 9)})])
    assert fair_shares({"gpu": 4, "cpu": 4}, tree) == {"a": {"gpu": 4, "cpu": 0}, "b": {"gpu": 0, "cpu": 4}}


def test_who_used_much_lately_gets_less() -> None:
    used = Queue("a", resources={"gpu": Entitlement(0, -1, 1, 100, usage=0.5)})
    fresh = Queue("b", resources={"gpu": Entitlement(0, -1, 1, 100)})
    found = fair_shares({"gpu": 100}, Tree([used, fresh]))
    assert (found["a"]["gpu"], found["b"]["gpu"]) == (33, 67)


AMOUNT = st.integers(0, 40).map(lambda n: n / 4) | st.integers(0, 40).map(float)
BOUND = st.just(-1.0) | AMOUNT
QUEUES = st.lists(
    st.tuples(BOUND, BOUND, st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.0)), AMOUNT, st.sampled_from((50, 100, 200))),
    min_size=1,
    max_size=8,
)


@given(total=AMOUNT, terms=QUEUES, order=st.randoms())
def test_shares_are_bounded_by_what_can_be_requested_and_do_not_depend_on_the_order(
    total: float, terms: list[Any], order: Any
) -> None:
    queues = [
        Queue(f"q{i}", priority=priority, created=i, resources={"gpu": Entitlement(quota, limit, weight, requested)})
        for i, (quota, limit, weight, requested, priority) in enumerate(terms)
    ]
    found = gpus(total, *queues)
    for queue in queues:
        wants = queue.of("gpu")
        least = min(total if wants.quota == -1 else wants.quota, wants.requestable)
        assert least <= found[queue.name] < wants.requestable + 1
    guaranteed = sum(min(total if q.of("gpu").quota == -1 else q.of("gpu").quota, q.of("gpu").requestable) for q in queues)
    assert sum(found.values()) <= max(total, guaranteed) + 1e-9
    order.shuffle(queues)
    assert gpus(total, *queues) == found


# ------------------------------------------------------------------------------------------------------------- the command


def test_wrong_lines_are_named_and_the_rest_is_answered() -> None:
    good = {"id": "good", "total": {"gpu": 8}, "queues": [{"name": "a", "resources": {"gpu": {"quota": 2, "requested": 8}}}]}
    answers = asked(
        "not json",
        {"id": 1, "queues": [{"name": "a", "parent": "b"}]},
        {"id": 2, "queues": [{"name": "a"}, {"name": "a"}]},
        {"id": 3, "queues": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
        {"id": 4, "total": {"gpu": -1}},
        good,
    )
    problems = [answer.get("invalid", [""])[0] for answer in answers]
    for problem, said in zip(
        problems, ("not JSON", "does not exist", "given twice", "its own ancestor", ">= 0", ""), strict=True
    ):
        assert said in problem
    assert [answer.get("id") for answer in answers] == [None, 1, 2, 3, 4, "good"]
    assert answers[-1]["fairShare"] == {"a": {"gpu": 8}}


def test_the_exit_code_tells_that_a_line_was_wrong() -> None:
    assert CliRunner().invoke(command, ["shares"], input='{"total": {}}\n').exit_code == 0
    assert CliRunner().invoke(command, ["shares"], input="{\n").exit_code == 2


def test_parents_request_what_their_children_do_unless_they_say_otherwise() -> None:
    resources = {"gpu": {"quota": 0, "allocated": 2, "pending": 3}}
    queues = [{"name": "top", "resources": {"gpu": {}}}, *({"name": n, "parent": "top", "resources": resources} for n in "ab")]
    (answer,) = asked({"total": {"gpu": 8}, "queues": queues})
    assert answer["fairShare"] == {"top": {"gpu": 8}, "a": {"gpu": 4}, "b": {"gpu": 4}}


def test_a_tree_says_what_is_wrong_with_it() -> None:
    with pytest.raises(QueueError, match="'a': parent 'x' does not exist"):
        Tree([Queue("a", "x")])
