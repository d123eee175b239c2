"""The API server of a simulation says what was written, so that hosts look only there."""

from __future__ import annotations

from typing import Any

from dray.api.kinds import EVENTS, NODES, PODS, Kind
from dray.cluster.port import Write
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock

CORE_EVENTS = Kind("", "v1", "events", "Event", True)


def event(name: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "Tested", "type": "Normal"}


def test_kinds_that_changed_are_named_once() -> None:
    core = InProcess(Clock())
    for kind in (NODES, PODS):
        core.list(kind)
    core.changed()
    core.write(Write("create", NODES, body={"metadata": {"name": "n"}}))
    assert core.changed() == {NODES}
    assert core.changed() == set()


def test_a_kind_that_was_never_listed_is_not_named() -> None:
    core = InProcess(Clock())
    core.write(Write("create", NODES, body={"metadata": {"name": "n"}}))
    assert core.changed() == set()


def test_two_kinds_in_one_table_change_together() -> None:
    core = InProcess(Clock())
    for kind in (EVENTS, CORE_EVENTS):
        core.list(kind)
    core.changed()
    core.write(Write("create", CORE_EVENTS, "default", body=event("e")))
    assert core.changed() == {EVENTS, CORE_EVENTS}


def test_what_changed_is_told_to_watchers_at_once() -> None:
    core = InProcess(Clock())
    core.write(Write("create", NODES, body={"metadata": {"name": "n"}}))
    assert core.core.store.published == core.core.store.revision
