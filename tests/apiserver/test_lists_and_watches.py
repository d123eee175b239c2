"""Lists are consistent, watches miss nothing and repeat nothing, and slow watchers harm nobody."""

from __future__ import annotations

import random

import msgspec
import pytest

from dray.api import kinds
from dray.apiserver.api import Answer
from dray.apiserver.catalog import CATALOG
from dray.apiserver.selection import Selection
from dray.apiserver.store import Entry, Store
from dray.apiserver.watching import Stream
from tests.apiserver.conftest import CONFIG_MAPS, PODS, Cluster, Json, config_map, pod


def names(listed: Json) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def seen(events: list[tuple[str, Json]]) -> list[tuple[str, str]]:
    return [(type, obj["metadata"].get("name", "")) for type, obj in events]


class TestLists:
    def test_pages_are_of_one_moment(self, cluster: Cluster) -> None:
        for number in range(9):
            cluster.post(CONFIG_MAPS, config_map(f"m-{number}"))
        page = cluster.get(f"{CONFIG_MAPS}?limit=4")
        first, found = page["metadata"], names(page)
        assert first["remainingItemCount"] == 5
        cluster.post(CONFIG_MAPS, config_map("m-45"))
        cluster.delete(f"{CONFIG_MAPS}/m-8")
        cluster.patch(f"{CONFIG_MAPS}/m-5", {"data": {"k": "new"}})
        while "continue" in page["metadata"]:
            page = cluster.get(f"{CONFIG_MAPS}?limit=4&continue={page['metadata']['continue']}")
            assert page["metadata"]["resourceVersion"] == first["resourceVersion"]
            assert all(item["data"] == {"k": "v"} for item in page["items"])
            found += names(page)
        assert found == [f"m-{number}" for number in range(9)]

    def test_a_token_older_than_the_history_is_expired_and_offers_to_go_on(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dray.apiserver.store.HISTORY", 1)
        for number in range(4):
            cluster.post(CONFIG_MAPS, config_map(f"m-{number}"))
        token = cluster.get(f"{CONFIG_MAPS}?limit=2")["metadata"]["continue"]
        for number in range(3):
            cluster.patch(f"{CONFIG_MAPS}/m-0", {"data": {"k": str(number)}})
        refused = cluster.call("GET", f"{CONFIG_MAPS}?limit=2&continue={token}", code=410)
        assert refused["reason"] == "Expired"
        rest = cluster.get(f"{CONFIG_MAPS}?limit=2&continue={refused['metadata']['continue']}")
        assert names(rest) == ["m-2", "m-3"]

    def test_an_exact_version_shows_the_past(self, cluster: Cluster) -> None:
        at = cluster.post(CONFIG_MAPS, config_map("a"))["metadata"]["resourceVersion"]
        cluster.post(CONFIG_MAPS, config_map("b"))
        cluster.delete(f"{CONFIG_MAPS}/a")
        assert names(cluster.get(f"{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=Exact")) == ["a"]
        assert names(cluster.get(f"{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=NotOlderThan")) == ["b"]

    @pytest.mark.parametrize(
        ("query", "code"),
        [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=1&resourceVersionMatch=Sometimes", 422),
            ("resourceVersion=abc", 400),
            ("resourceVersion=999999", 504),
            ("limit=x", 400),
            ("continue=rubbish", 400),
            ("fieldSelector=data.k=v", 400),
            ("labelSelector=a in (", 400),
        ],
    )
    def test_bad_options_are_refused(self, cluster: Cluster, query: str, code: int) -> None:
        assert cluster.call("GET", f"{CONFIG_MAPS}?{query}", code=code)["kind"] == "Status"

    def test_field_selectors_know_what_absent_means(self, cluster: Cluster) -> None:
        cluster.post("/api/v1/nodes", {"metadata": {"name": "open"}})
        cluster.post("/api/v1/nodes", {"metadata": {"name": "closed"}, "spec": {"unschedulable": True}})
        assert names(cluster.get("/api/v1/nodes?fieldSelector=spec.unschedulable=false")) == ["open"]


class TestWatches:
    def test_a_watch_from_a_version_sees_everything_after_it_once(self, cluster: Cluster) -> None:
        at = cluster.post(CONFIG_MAPS, config_map("a"))["metadata"]["resourceVersion"]
        cluster.post(CONFIG_MAPS, config_map("b"))
        events = cluster.watch(f"{CONFIG_MAPS}?resourceVersion={at}")
        cluster.delete(f"{CONFIG_MAPS}/a")
        found = events()
        assert seen(found) == [("ADDED", "b"), ("DELETED", "a")]
        versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in found]
        assert versions == sorted(set(versions))
        assert events() == []

    def test_a_watch_without_version_starts_with_what_is_there(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map("a"))
        assert seen(cluster.watch(CONFIG_MAPS)()) == [("ADDED", "a")]
        assert seen(cluster.watch(f"{CONFIG_MAPS}?resourceVersion=0")()) == [("ADDED", "a")]

    def test_initial_events_end_with_a_bookmark(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map("a"))
        events = cluster.watch(f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
        (first, _), (last, bookmark) = events()
        assert (first, last) == ("ADDED", "BOOKMARK")
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        cluster.post(CONFIG_MAPS, config_map("b"))
        assert seen(events()) == [("ADDED", "b")]

    def test_initial_events_need_a_version_match(self, cluster: Cluster) -> None:
        cluster.call("GET", f"{CONFIG_MAPS}?watch=1&sendInitialEvents=true", code=422)
        cluster.call("GET", f"{CONFIG_MAPS}?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", code=422)

    def test_what_leaves_a_selector_is_deleted_and_what_enters_is_added(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod())
        events = cluster.watch(f"{PODS}?fieldSelector=status.phase!=Succeeded,status.phase!=Failed&resourceVersion=0")
        done = cluster.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
        cluster.patch(f"{PODS}/p", {"metadata": {"labels": {"more": "1"}}})
        cluster.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
        found = events()
        assert [type for type, _ in found] == ["ADDED", "DELETED", "ADDED"]
        left = found[1][1]
        assert left["status"]["phase"] == "Pending"
        assert left["metadata"]["resourceVersion"] == done["metadata"]["resourceVersion"]

    def test_a_compacted_version_is_an_error_event(self, cluster: Cluster) -> None:
        cluster.core.store.table("configmaps").compacted = 5
        answer = cluster.ask("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion=3")
        assert isinstance(answer, Answer)
        assert answer.code == 200
        event = msgspec.json.decode(answer.body)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")

    def test_a_version_of_the_future_is_refused(self, cluster: Cluster) -> None:
        refused = cluster.call("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion=999999", code=504)
        assert refused["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    def test_a_bookmark_advances_though_nothing_matched(self, cluster: Cluster) -> None:
        stream = cluster.ask("GET", f"{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&labelSelector=never=1")
        assert isinstance(stream, Stream)
        at = int(cluster.post(CONFIG_MAPS, config_map())["metadata"]["resourceVersion"])
        bookmark = msgspec.json.decode(stream.bookmark())
        assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= at

    def test_a_table_watch_sends_its_columns_once(self, cluster: Cluster) -> None:
        stream = cluster.ask("GET", f"{CONFIG_MAPS}?watch=1", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        assert isinstance(stream, Stream)
        cluster.post(CONFIG_MAPS, config_map("a"))
        cluster.post(CONFIG_MAPS, config_map("b"))
        first, second = (msgspec.json.decode(line)["object"] for line in stream.pending().splitlines())
        assert [c["name"] for c in first["columnDefinitions"]] == ["Name", "Data", "Age"]
        assert second["columnDefinitions"] is None


class TestSlowWatchers:
    def test_a_full_buffer_ends_the_watch_and_holds_no_memory(self) -> None:
        store = Store(buffer=3)
        table = store.table("t")
        slow, quick = (store.watch(table, "", None, store.revision) for _ in range(2))
        taken = 0
        for number in range(10):
            store.put(table, f"k{number}", {"metadata": {"name": str(number)}})
            taken += len(quick.take())
        assert (slow.overflowed, len(slow.buffer)) == (True, 0)
        assert (quick.overflowed, taken) == (False, 10)

    def test_large_objects_are_kept_by_their_bytes(self) -> None:
        store = Store()
        table = store.table("t")
        slow = store.watch(table, "", None, store.revision)
        for number in range(90):
            store.put(table, "k", {"metadata": {"name": "k"}, "data": f"{number:1000000}"})
        assert slow.overflowed
        assert sum(len(event.entry.raw) for event in table.history) <= 64 * 1024 * 1024
        assert table.compacted == store.revision - len(table.history)

    def test_the_client_is_told_to_list_again(self, cluster: Cluster) -> None:
        stream = cluster.ask("GET", f"{CONFIG_MAPS}?watch=1")
        assert isinstance(stream, Stream)
        stream._watcher.limit = 1
        for name in "ab":
            cluster.post(CONFIG_MAPS, config_map(name))
        event = msgspec.json.decode(stream.pending())
        assert (event["type"], event["object"]["code"], stream.ended) == ("ERROR", 410, True)


def test_watchers_see_a_change_when_it_is_durable_and_not_before() -> None:
    class Held:
        def append(self, revision: int, table: str, key: str, value: bytes | None) -> None:
            pass

    store = Store(Held())
    table = store.table("t")
    watcher = store.watch(table, "", None, store.revision)
    entry = store.put(table, "k", {"metadata": {"name": "k"}})
    assert watcher.take() == []
    late = store.watch(table, "", None, entry.revision - 1)
    store.publish(entry.revision)
    assert [d.type for d in watcher.take()] == ["ADDED"]
    assert [d.type for d in late.take()] == ["ADDED"]


def test_what_is_kept_of_an_object_is_its_bytes() -> None:
    """Decoded, it takes several times the memory; only what is read is decoded again."""
    store = Store()
    table = store.table("things")
    given = {"metadata": {"name": "a"}, "data": {"n": 1}}
    entry = store.put(table, "a", given)
    assert entry.object is not given
    changed = store.put(table, "a", {"metadata": {"name": "a"}, "data": {"n": 2}})
    assert (entry._object, changed._object) == (None, None)
    assert (entry.object["data"], changed.object["data"]) == ({"n": 1}, {"n": 2})


class TestAWatchOfOneObject:
    def test_sees_that_object_from_its_start_to_its_end(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map("a"))
        seen = cluster.watch(f"{CONFIG_MAPS}?fieldSelector=metadata.name=b")
        other = cluster.watch(f"{CONFIG_MAPS}?fieldSelector=metadata.name=b2")
        for name in ("b", "b2"):
            cluster.post(CONFIG_MAPS, config_map(name))
        cluster.delete(f"{CONFIG_MAPS}/b")
        assert [(kind, obj["metadata"]["name"]) for kind, obj in seen()] == [("ADDED", "b"), ("DELETED", "b")]
        assert [kind for kind, _ in other()] == ["ADDED"]

    def test_looks_at_that_object_only(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counted, not timed: what a get costs, however many objects there are."""
        for number in range(50):
            cluster.post(CONFIG_MAPS, config_map(f"c{number}"))
        looked: list[str] = []
        matches = Selection._matches
        monkeypatch.setattr(Selection, "_matches", lambda self, obj: looked.append("") or matches(self, obj))
        seen = cluster.watch(f"{CONFIG_MAPS}?fieldSelector=metadata.name=c7")
        assert (len(seen()), len(looked)) == (1, 1)
        for number in range(50):
            cluster.patch(f"{CONFIG_MAPS}/c{number}", {"data": {"k": "new"}})
        assert (len(seen()), len(looked)) == (1, 3)

    def test_that_ends_leaves_nothing(self, cluster: Cluster) -> None:
        table = cluster.core.store.table("configmaps")
        stream = cluster.ask("GET", f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=x")
        assert isinstance(stream, Stream)
        assert list(table.watchers_of) == ["default/x"]
        stream.close()
        assert table.watchers_of == {}


SELECTORS = ("a=x", "a!=x", "a in (x,y)", "a notin (x)", "a", "!a", "a=x,b=y", "a=")
FIELDS = ("spec.nodeName=n", "spec.nodeName!=n", "spec.nodeName=", "status.phase=Running", "metadata.name=n,spec.nodeName=x")


def test_what_is_looked_at_in_the_bytes_is_what_matches() -> None:
    """Stored objects are not decoded as a whole to be chosen from; the choice is that of the whole object."""
    chance = random.Random(7)
    resource = CATALOG.of(kinds.PODS)
    chosen = 0
    for _ in range(2000):
        obj: Json = {"metadata": {"name": chance.choice("nx")}, "spec": {}, "status": {}}
        for place, name, values in (
            ("metadata", "labels", ()),
            ("spec", "nodeName", "nx"),
            ("status", "phase", ("Running", "x")),
        ):
            if chance.random() < 0.7:
                labels = {key: chance.choice(("x", "y", "")) for key in "ab" if chance.random() < 0.7}
                obj[place][name] = chance.choice(values) if values else chance.choice((labels, None))
        wanted = chance.choice(("", *SELECTORS)), chance.choice(("", *FIELDS))
        selection = Selection(resource, "", *wanted)
        if selection.matches is not None:
            chosen += selection.matches(obj)
            assert selection.chooses(Entry(None, msgspec.json.encode(obj), 1)) == selection.matches(obj), (wanted, obj)
    assert chosen > 100


def test_a_field_that_leads_nowhere_is_refused_however_deep_it_is(cluster: Cluster) -> None:
    told = cluster.call("GET", f"{PODS}?fieldSelector={'a.' * 3000}b=c", code=400)
    assert "field label not supported" in told["message"]
