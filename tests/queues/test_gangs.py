"""What a gang needs to start, how it grows and shrinks, and when a broken one goes."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dray.queues.gangs import (
    Gang,
    Member,
    Part,
    State,
    broken,
    fill,
    is_preemptible,
    is_running,
    is_stale,
    next_attempt,
    next_victims,
    stale_until,
    surplus,
)
from dray.queues.order import Fill

PLAIN = Part("", 2)
# Two leaders and, of three replicas of workers, any two.
MIXED = Part("root", None, (Part("leader", 1), Part("workers", 2, tuple(Part(f"replica-{i}", 2) for i in range(3)))))


def pods(count: int, state: State = "pending", leaf: str = "", start: int = 0) -> list[Member]:
    return [Member(f"{leaf}{i}", state, leaf, created=i, uid=f"{leaf}{i}") for i in range(start, start + count)]


def is_ready(gang: Gang) -> bool:
    """Whether it would run if all that wait were placed, as counted here."""
    members = [msgspec.structs.replace(each, state="active") for each in gang.members("pending", "active")]
    return is_running(gang.root, Gang(gang.root, members))


def names(members: list[Member]) -> list[str]:
    return [member.name for member in members]


def test_a_gang_starts_with_its_minimum_and_grows_by_one() -> None:
    assert names(next_attempt(Gang(PLAIN, pods(4)))) == ["0", "1"]
    assert names(next_attempt(Gang(PLAIN, [*pods(1, "active"), *pods(3, start=1)]))) == ["1"]
    assert names(next_attempt(Gang(PLAIN, [*pods(2, "active"), *pods(2, start=2)]))) == ["2"]
    assert next_attempt(Gang(PLAIN, pods(4, "active"))) == []


def test_a_gang_whose_pods_do_not_suffice_is_not_tried() -> None:
    few = Gang(PLAIN, [*pods(1), *pods(3, "gated", start=1)])
    assert not is_ready(few)
    assert next_attempt(few) == []
    assert is_ready(Gang(PLAIN, pods(2)))


def test_pods_of_higher_task_priority_come_first() -> None:
    members = [Member("late", created=1), Member("first", task_priority=7, created=9), Member("early", created=0)]
    assert names(next_attempt(Gang(PLAIN, members))) == ["first", "early"]


def mixed(**active: int) -> Gang:
    """Each leaf has three pods, of which so many are active."""
    members: list[Member] = []
    for leaf in ("leader", "replica-0", "replica-1", "replica-2"):
        running = active.get(leaf.replace("-", "_"), 0)
        members += pods(running, "active", leaf) + pods(3 - running, "pending", leaf, running)
    return Gang(MIXED, members)


def test_as_many_parts_as_needed_start_together() -> None:
    assert names(next_attempt(mixed())) == ["leader0", "replica-00", "replica-01", "replica-10", "replica-11"]


def test_above_the_minimum_a_whole_part_comes_next_then_single_pods_where_least_is() -> None:
    assert names(next_attempt(mixed(leader=1, replica_0=2, replica_1=2))) == ["leader1"]
    assert names(next_attempt(mixed(leader=3, replica_0=2, replica_1=2))) == ["replica-20", "replica-21"]
    assert names(next_attempt(mixed(leader=3, replica_0=3, replica_1=2, replica_2=2))) == ["replica-12"]


def test_surplus_pods_go_first_then_surplus_parts_then_all() -> None:
    assert names(next_victims(mixed(leader=1, replica_0=3, replica_1=2, replica_2=2))) == ["replica-02"]
    assert names(next_victims(mixed(leader=1, replica_0=2, replica_1=2, replica_2=2))) == ["replica-20", "replica-21"]
    everything = ["leader0", "replica-00", "replica-01", "replica-10", "replica-11"]
    assert names(next_victims(mixed(leader=1, replica_0=2, replica_1=2))) == everything


def test_what_a_protected_gang_may_lose_is_its_surplus() -> None:
    assert names(surplus(Gang(PLAIN, pods(4, "active")))) == ["3", "2"]
    assert surplus(Gang(PLAIN, pods(2, "active"))) == []


def test_where_a_gang_stands_in_the_order() -> None:
    assert [fill(Gang(PLAIN, pods(n, "active"))) for n in (0, 1, 2, 3)] == [Fill.BELOW, Fill.BELOW, Fill.AT, Fill.ABOVE]


def test_a_gang_that_lost_a_member_is_stale_until_its_grace_ends() -> None:
    assert is_stale(Gang(PLAIN, [*pods(1, "active"), *pods(1, start=1)]))
    assert is_stale(Gang(PLAIN, pods(2, "leaving")))
    assert not is_stale(Gang(PLAIN, pods(2, "active")))
    assert not is_stale(Gang(PLAIN, pods(2)))
    assert not is_stale(Gang(PLAIN, [*pods(1, "active"), *pods(1, "succeeded", start=1)]))
    assert stale_until(100.0) == 160.0
    assert stale_until(100.0, 5.0) == 105.0
    assert stale_until(100.0, -1.0) is None


def test_a_part_that_the_gang_can_do_without_breaks_alone() -> None:
    enough = mixed(leader=1, replica_0=2, replica_1=2)
    assert is_running(MIXED, enough)
    assert broken(enough) == [], "minSubGroup says that two parts are enough"
    assert broken(mixed(leader=1, replica_0=2, replica_1=2, replica_2=1)) == [MIXED.parts[1].parts[2]]
    assert broken(mixed(leader=1, replica_0=2, replica_1=1)) == [MIXED], "nothing of it runs without its workers"


def test_work_below_priority_100_can_be_preempted_unless_it_says_otherwise() -> None:
    assert is_preemptible(None, 99)
    assert not is_preemptible(None, 100)
    assert is_preemptible(True, 900)
    assert not is_preemptible(False, 1)


LEAF = st.builds(lambda minimum: Part("", minimum), st.integers(0, 3))


def grouped(children: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    return st.builds(
        lambda parts, of: Part("", min(of, len(parts)) if of is not None else None, tuple(parts)),
        st.lists(children, min_size=1, max_size=3),
        st.none() | st.integers(0, 3),
    )


def named(part: Part, name: str = "r") -> Part:
    below = tuple(named(child, f"{name}.{i}") for i, child in enumerate(part.parts))
    return msgspec.structs.replace(part, name=name, parts=below)


def leaves(part: Part) -> list[str]:
    return [part.name] if part.is_leaf else [leaf for child in part.parts for leaf in leaves(child)]


@given(part=st.recursive(LEAF, grouped, max_leaves=6), data=st.data())
def test_attempts_fill_a_gang_to_the_last_pod_and_victims_empty_it_without_ever_breaking_it_early(
    part: Part, data: st.DataObject
) -> None:
    root = named(part)
    state = {m.name: m for leaf in leaves(root) for m in pods(data.draw(st.integers(0, 4)), leaf=leaf)}
    if not is_ready(Gang(root, state.values())):
        assert next_attempt(Gang(root, state.values())) == []
        return
    steps = 0
    while attempt := next_attempt(Gang(root, state.values())):
        state |= {m.name: msgspec.structs.replace(m, state="active") for m in attempt}
        steps += 1
        assert is_running(root, Gang(root, state.values()))
    assert steps <= len(state)
    for left in {member.leaf for member in state.values() if member.state == "pending"}:
        assert any(not is_ready(Gang(each, state.values())) for each in way_to(root, left))
    while victims := next_victims(Gang(root, state.values())):
        before = len([m for m in state.values() if m.state == "active"])
        state |= {m.name: msgspec.structs.replace(m, state="pending") for m in victims}
        assert len(victims) == before or is_running(root, Gang(root, state.values()))


def way_to(part: Part, leaf: str) -> list[Part]:
    below = next((child for child in part.parts if leaf in leaves(child)), None)
    return [part] if below is None else [part, *way_to(below, leaf)]
