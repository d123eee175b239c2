"""The World shows what the API showed last, whatever order news arrives in."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import PODS
from dray.cluster.world import World


def pod(version: int, uid: str = "u1", name: str = "p", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": spec}


@pytest.fixture
def world() -> World:
    return World([PODS])


def names(world: World) -> list[str]:
    return sorted(world.all(PODS))


def test_an_older_state_does_not_replace_a_newer_one(world: World) -> None:
    world.put(PODS, pod(5, nodeName="a"))
    assert world.put(PODS, pod(4)) == []
    assert world.put(PODS, pod(5)) == []
    assert world.get(PODS, "n/p").spec.node_name == "a"


def test_a_late_answer_about_an_object_that_went_does_not_bring_it_back(world: World) -> None:
    world.put(PODS, pod(5))
    world.remove(PODS, pod(7))
    assert world.put(PODS, pod(6)) == []
    assert names(world) == []


def test_an_object_that_went_before_it_was_seen_stays_gone(world: World) -> None:
    world.remove(PODS, pod(7))
    assert world.put(PODS, pod(5)) == []


def test_another_object_of_the_same_name_is_a_removal_and_an_addition(world: World) -> None:
    world.put(PODS, pod(5))
    changes = world.put(PODS, pod(9, uid="u2"))
    assert [(change.old and change.old.uid, change.new and change.new.uid) for change in changes] == [("u1", None), (None, "u2")]


def test_a_list_keeps_what_was_written_after_it_was_made(world: World) -> None:
    world.put(PODS, pod(5, name="old"))
    world.put(PODS, pod(12, uid="u2", name="new"))
    world.replace(PODS, [], "10")
    assert names(world) == ["n/new"]


def test_a_list_that_is_late_does_not_bring_back_what_was_replaced_since(world: World) -> None:
    """Made again under its name by a write whose answer was faster than the list; the watch tells of it once more."""
    world.put(PODS, pod(12, uid="u2"))
    assert world.replace(PODS, [pod(5)], "10") == []
    assert world.get(PODS, "n/p").uid == "u2"
    world.put(PODS, pod(13, uid="u2", nodeName="a"))
    assert world.get(PODS, "n/p").spec.node_name == "a"


def test_a_late_answer_that_a_newer_list_does_not_know_is_not_believed(world: World) -> None:
    world.replace(PODS, [], "10")
    assert world.put(PODS, pod(8)) == []
    assert len(world.put(PODS, pod(11))) == 1


def test_after_a_server_was_restored_only_what_it_lists_counts(world: World) -> None:
    world.replace(PODS, [pod(90, nodeName="a"), pod(95, uid="u2", name="lost")], "100")
    world.remove(PODS, pod(99))
    world.replace(PODS, [pod(12, nodeName="b")], "20")
    assert names(world) == ["n/p"]
    assert world.get(PODS, "n/p").spec.node_name == "b"
    assert len(world.put(PODS, pod(21, nodeName="c"))) == 1


def test_an_object_that_cannot_be_read_is_left_out_and_the_rest_is_kept(world: World, caplog: pytest.LogCaptureFixture) -> None:
    broken = {**pod(5, name="broken"), "spec": "nonsense"}
    world.replace(PODS, [broken, pod(6, uid="u2", name="fine")], "10")
    assert names(world) == ["n/fine"]
    assert "cannot be read" in caplog.text


def test_indexes_follow_every_change(world: World) -> None:
    world.put(PODS, pod(5, nodeName="a"))
    by_node = world.index(PODS, lambda found: (found.spec.node_name,) if found.spec.node_name else ())
    assert list(by_node["a"]) == ["n/p"]
    world.put(PODS, pod(6, nodeName="b"))
    assert (list(by_node["a"]), list(by_node["b"])) == ([], ["n/p"])
    world.replace(PODS, [], "10")
    assert list(by_node.values()) == []


def test_how_far_the_watch_has_come_is_not_said_by_answers(world: World) -> None:
    """An answer says nothing of what others wrote before."""
    world.put(PODS, pod(5), answer=True)
    assert not world.has_come_to(PODS, "5")
    world.put(PODS, pod(5))
    assert world.has_come_to(PODS, "5")
    world.remove(PODS, pod(7), answer=True)
    assert not world.has_come_to(PODS, "7")
    world.remove(PODS, pod(7))
    assert world.has_come_to(PODS, "7")
    world.replace(PODS, [], "9")
    assert world.has_come_to(PODS, "9")
    assert world.has_come_to(PODS, "a version that is no number")
