"""What remains of objects that came and went, counted in objects: bounded, whatever was done with them."""

from __future__ import annotations

import gc

import pytest

from dray.apiserver.expiry import EVENT_SECONDS, EVERY_SECONDS, Expiry
from dray.apiserver.store import Entry, Event, Store
from tests.apiserver.conftest import PODS, START, Cluster, Json, pod

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def event(name: str) -> Json:
    about = {"kind": "Pod", "name": "p", "namespace": "default", "apiVersion": "v1"}
    said = {"reason": "Scheduled", "type": "Normal", "action": "Binding", "note": "x"}
    who = {"reportingController": "x", "reportingInstance": "x", "eventTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"name": name}, "regarding": about, **said, **who}


def decoded(cluster: Cluster) -> dict[str, int]:
    """How many objects are kept in their decoded form, by table."""
    tables = cluster.core.store._tables.items()
    counts = {name: sum(entry._object is not None for entry in table.entries.values()) for name, table in tables}
    return {name: count for name, count in counts.items() if count}


def test_reading_many_objects_keeps_nothing(cluster: Cluster) -> None:
    for number in range(20):
        cluster.post(PODS, pod(f"p{number}"))
        cluster.post(EVENTS, event(f"e{number}"))
    cluster.get(f"{PODS}?labelSelector=app=p1")
    cluster.get(f"{PODS}?fieldSelector=spec.nodeName=n")
    cluster.call("GET", PODS, accept=TABLE)
    cluster.call("GET", PODS, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    cluster.get(EVENTS)
    cluster.watch(f"{PODS}?labelSelector=app=p1")()
    assert {name: count for name, count in decoded(cluster).items() if name in ("pods", "events")} == {}


def test_of_pods_that_are_gone_only_the_newest_changes_remain(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.apiserver.store.HISTORY", 50)
    for number in range(200):
        cluster.post(PODS, pod(f"p{number}"))
        cluster.delete(f"{PODS}/p{number}?gracePeriodSeconds=0")
    gc.collect()
    table = cluster.core.store.table("pods")
    kept = [found for found in gc.get_objects() if isinstance(found, Event) and found.table is table]
    assert (len(table.entries), len(table.keys), len(kept)) == (0, 0, 50)
    entries = {id(entry) for found in kept for entry in (found.entry, found.previous) if entry is not None}
    assert len(entries) <= 2 * 50


class TestEvents:
    def make(self) -> tuple[Store, Expiry]:
        store = Store()
        return store, Expiry(store)

    def put(self, store: Store, name: str) -> Entry:
        return store.put(store.table("events"), name, {"metadata": {"name": name}})

    def test_go_after_an_hour_without_a_change(self) -> None:
        store, expiry = self.make()
        self.put(store, "old")
        expiry.expire(START)
        self.put(store, "young")
        assert expiry.expire(START + EVENT_SECONDS - 1) == 0
        assert expiry.expire(START + EVENT_SECONDS) == 1
        assert list(store.table("events").entries) == ["young"]

    def test_stay_while_they_are_written_again(self) -> None:
        store, expiry = self.make()
        for minute in range(0, 3 * 3600, 60):
            self.put(store, "series")
            assert expiry.expire(START + minute) == 0

    @pytest.mark.parametrize("step", [EVERY_SECONDS, 7.0, 1800.0])
    def test_never_go_before_their_hour_and_not_long_after(self, step: float) -> None:
        store, expiry = self.make()
        born: dict[str, float] = {}
        now = START
        for number in range(400):
            self.put(store, f"e{number}")
            born[f"e{number}"] = now
            now += step
            before = set(store.table("events").entries)
            expiry.expire(now)
            gone = before - set(store.table("events").entries)
            assert all(now - born[name] >= EVENT_SECONDS for name in gone)
            assert all(now - born[name] < EVENT_SECONDS + 2 * step for name in store.table("events").entries)
