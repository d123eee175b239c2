"""A wake-up reaches one pod of a group; only its being refused as before may end it there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dray.api.codes import CODES
from dray.api.core import Pod
from dray.api.meta import decode
from dray.api.reason import Reason
from dray.books.demand import Demands
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.waiting.queue import Queue, QueuedPod
from dray.testing import builders

WHY = Refusal(((Reason(next(iter(CODES)), "pod/x"), 0),))


def waiting(queue: Queue, *names: str) -> list[QueuedPod]:
    """Pods that were refused for one and the same reason, long ago."""
    demands = Demands()
    pods = [
        decode(Pod, {**builders.pod(name), "metadata": {"name": name, "namespace": "default", "uid": name}}) for name in names
    ]
    found = [QueuedPod(pod, demands.of(pod), 0.0) for pod in pods]
    for pending in found:
        queue.push(pending, 0.0)
        assert queue.pop(0.0) is pending
        queue.refuse(pending, "group", WHY, frozenset({"topic"}), 0.0)
    return found


@pytest.mark.parametrize(
    "becomes",
    [
        lambda queue, leader: queue.refuse(leader, leader.uid, WHY, frozenset({"victims"}), 100.0),
        lambda queue, leader: queue.push(leader, 100.0),
        lambda queue, leader: queue.fail(leader, 100.0),
        lambda queue, leader: queue.forget(leader.uid, 100.0),
        lambda queue, leader: queue.placed(leader, 100.0),
    ],
    ids=["waits for something else", "changed", "failed", "gone", "placed"],
)
@pytest.mark.parametrize("popped", [True, False])
def test_the_next_pod_has_its_turn(becomes: Callable[[Queue, QueuedPod], object], popped: bool) -> None:
    queue = Queue()
    first, second = waiting(queue, "first", "second")
    for group in queue.under("topic"):
        queue.wake(group, 100.0)
    if popped:
        assert queue.pop(100.0) is first
    becomes(queue, first)
    assert second.state == "active"


def test_the_others_stay_when_the_first_is_refused_as_before() -> None:
    queue = Queue()
    first, second = waiting(queue, "first", "second")
    for group in queue.under("topic"):
        queue.wake(group, 100.0)
    queue.pop(100.0)
    queue.refuse(first, "group", WHY, frozenset({"topic"}), 100.0)
    assert (first.state, second.state) == ("waiting", "waiting")
    assert queue.pop(200.0) is None
