"""What controllers still have to look at."""

from __future__ import annotations

from dray.controllers.work import FIRST_REST, Work


def test_a_key_rests_longer_after_each_failure_in_a_row() -> None:
    work = Work()
    for failures in range(3):
        work.started("key")
        work.failed("key", 0.0)
        assert work.wake() == FIRST_REST * 2**failures
        assert work.take(10.0) == ["key"]


def test_a_key_with_nothing_left_to_write_starts_afresh() -> None:
    work = Work()
    work.started("key")
    work.failed("key", 0.0)
    work.take(10.0)
    work.started("key", 0)
    work.started("key")
    work.failed("key", 0.0)
    assert work.wake() == FIRST_REST


def test_what_succeeds_beside_a_failure_does_not_end_the_back_off() -> None:
    """A status that is written each time a create is refused must not make the next try come at once."""
    work = Work()
    for failures in range(5):
        work.started("key", 3)
        for good in (True, False, True):
            work.succeeded("key") if good else work.failed("key", 0.0)
        assert work.wake() == FIRST_REST * 2**failures
        assert work.take(100.0) == ["key"]


def test_several_failures_at_once_count_as_one() -> None:
    work = Work()
    work.started("key", 3)
    for _ in range(3):
        work.failed("key", 0.0)
    assert work.wake() == FIRST_REST


def test_a_key_that_a_quota_refused_rests_only_until_there_is_room_in_its_namespace() -> None:
    work = Work()
    for key in ("here", "there"):
        work.started(key)
        work.failed(key, 0.0, 100.0, over_quota=key)
    work.room("here")
    assert work.take(1.0) == ["here"]
    assert work.take(100.0) == ["there"]


def test_writes_that_were_decided_together_fail_as_one() -> None:
    work = Work()
    for failures in range(3):
        work.started("key", 4)
        work.succeeded("key")
        work.failed("key", 0.0)
        work.failed("key", 0.0)
        work.succeeded("key")
        assert work.wake() == FIRST_REST * 2**failures
        assert work.take(10.0) == ["key"]
    work.started("key", 2)
    work.succeeded("key")
    work.succeeded("key")
    work.take(10.0)
    work.started("key")
    work.failed("key", 0.0)
    assert work.wake() == FIRST_REST
