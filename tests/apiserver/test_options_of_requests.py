"""Options in queries and bodies, and metadata that a write names: what kube-apiserver refuses is refused, in its words.

Each case was sent to a real kube-apiserver 1.37 as well.
"""

from __future__ import annotations

from typing import Any

import pytest

from dray.apiserver.api import Answer
from tests.apiserver.conftest import CONFIG_MAPS, Cluster, Json

ONE = f"{CONFIG_MAPS}/a"
APPLY = "application/apply-patch+yaml"
FROM_THE_START = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


def config_map(name: str = "a", **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


@pytest.fixture
def made(cluster: Cluster) -> Cluster:
    cluster.post(CONFIG_MAPS, config_map())
    return cluster


class TestWrites:
    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("dryRun=", 'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: [""]: supported values: "All"'),
            ("fieldValidation=strict", 'Unsupported value: "strict": supported values: "", "Ignore", "Strict", "Warn"'),
            (f"fieldManager={'é' * 100}", "fieldManager: Too long: may not be more than 128 bytes"),
            ("fieldManager=a\tb", "invalid character U+0009 (at position 1)"),
        ],
    )
    def test_that_ask_for_what_is_not_there_are_refused(self, cluster: Cluster, query: str, words: str) -> None:
        refused = cluster.post(f"{CONFIG_MAPS}?{query}", config_map(), code=422)
        assert words in refused["message"]
        assert "name" not in refused["details"]
        assert cluster.get(CONFIG_MAPS)["items"] == []

    @pytest.mark.parametrize("body", [{}, {"metadata": {}}, {"metadata": {"name": ""}}])
    def test_must_name_what_they_replace(self, made: Cluster, body: Json) -> None:
        refused = made.put(ONE, body, code=400)
        assert refused["message"] == "the name of the object (a based on URL) was undeterminable: name must be provided"

    def test_cannot_patch_a_name_away(self, made: Cluster) -> None:
        made.patch(ONE, {"metadata": {"name": None}}, code=400)

    def test_cannot_change_what_the_server_sets(self, made: Cluster) -> None:
        refused = made.put(ONE, config_map(deletionTimestamp="2020-01-01T00:00:00Z"), code=422)
        assert "metadata.deletionTimestamp: Invalid value" in refused["message"]
        refused = made.patch(ONE, {"metadata": {"uid": "x"}}, code=422)
        assert refused["message"].endswith('metadata.uid: Invalid value: "x": field is immutable')
        made.put(ONE, config_map(uid="x"), code=409)

    def test_may_create_with_the_version_of_nothing(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map(resourceVersion="0"))
        cluster.post(CONFIG_MAPS, config_map("b", resourceVersion="1"), code=400)

    def test_apply_does_not_make_what_the_client_thinks_is_there(self, cluster: Cluster) -> None:
        path = f"{ONE}?fieldManager=m"
        refused = cluster.call("PATCH", path, config_map(uid="1"), content_type=APPLY, code=409)
        assert "uid mismatch: the provided object specified uid 1, and no existing object was found" in refused["message"]
        cluster.call("PATCH", path, config_map(managedFields=[]), content_type=APPLY, code=400)
        cluster.call("PATCH", path, config_map(resourceVersion="1"), content_type=APPLY, code=201)

    @pytest.mark.parametrize(
        ("metadata", "field"),
        [
            (
                {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}]},
                "ownerReferences[0].apiVersion",
            ),
            ({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]}, "ownerReferences[0]"),
            ({"name": "", "generateName": "g" * 300}, "generateName"),
            ({"finalizers": ["foo"]}, "finalizers[0]"),
        ],
    )
    def test_are_refused_for_metadata(self, cluster: Cluster, metadata: Json, field: str) -> None:
        refused = cluster.post(CONFIG_MAPS, config_map(**metadata), code=422)
        assert [cause["field"] for cause in refused["details"]["causes"]] == [f"metadata.{field}"]


class TestDeletes:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            ({"dryRun": ["x"]}, 422),
            ({"propagationPolicy": ""}, 422),
            ({"propagationPolicy": "Sideways"}, 422),
            ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
            ({"kind": "Foo", "apiVersion": "v1"}, 400),
        ],
    )
    def test_with_options_that_are_none_delete_nothing(self, made: Cluster, body: Json, code: int) -> None:
        made.delete(ONE, body, code=code)
        made.delete(CONFIG_MAPS, body, code=code)
        assert made.get(ONE)

    def test_take_their_options_from_the_body_alone(self, made: Cluster) -> None:
        made.delete(f"{ONE}?propagationPolicy=Sideways", {"dryRun": ["All"]})
        made.delete(f"{ONE}?dryRun=All", {"gracePeriodSeconds": 0})
        made.call("GET", ONE, code=404)

    def test_tell_that_something_is_left_only_if_asked_in_the_old_way(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map(finalizers=["x/y"]))
        cluster.delete(ONE, {"propagationPolicy": "Foreground"}, code=200)
        cluster.delete(ONE, {"orphanDependents": False}, code=202)

    def test_of_collections_need_a_namespace(self, made: Cluster) -> None:
        refused = made.delete("/api/v1/configmaps", code=405)
        assert refused["message"] == "the server does not allow this method on the requested resource"
        assert made.get(ONE)

    def test_of_collections_are_of_one_page(self, made: Cluster) -> None:
        made.post(CONFIG_MAPS, config_map("b"))
        page = made.delete(f"{CONFIG_MAPS}?limit=1")
        assert [item["metadata"]["name"] for item in page["items"]] == ["a"]
        assert page["metadata"]["continue"]
        assert [item["metadata"]["name"] for item in made.get(CONFIG_MAPS)["items"]] == ["b"]
        made.delete(f"{CONFIG_MAPS}?limit=x", code=400)


class TestLists:
    @pytest.mark.parametrize(
        ("query", "code", "words"),
        [
            ("limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
            ("limit=99999999999999999999", 400, "value out of range"),
            ("timeoutSeconds=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
            ("sendInitialEvents=false", 422, "sendInitialEvents is forbidden for list"),
            ("resourceVersion=abc", 400, 'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint'),
            ("resourceVersionMatch=Foo", 422, 'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""'),
        ],
    )
    def test_that_are_none_are_refused(self, cluster: Cluster, query: str, code: int, words: str) -> None:
        assert words in cluster.call("GET", f"{CONFIG_MAPS}?{query}", code=code)["message"]

    @pytest.mark.parametrize("url", [ONE, f"{CONFIG_MAPS}?watch=1", CONFIG_MAPS])
    def test_no_version_is_the_mistake_of_who_asks(self, made: Cluster, url: str) -> None:
        """A kube-apiserver calls it its own error, but for lists."""
        asked = made.call("GET", f"{url}{'&' if '?' in url else '?'}resourceVersion=:", code=400)
        assert 'strconv.ParseUint: parsing ":": invalid syntax' in asked["message"]

    def test_with_a_limit_are_of_the_version_that_they_name(self, made: Cluster) -> None:
        version = made.get(ONE)["metadata"]["resourceVersion"]
        made.patch(ONE, {"data": {"k": "v"}})
        page = made.get(f"{CONFIG_MAPS}?limit=5&resourceVersion={version}")
        assert "data" not in page["items"][0]

    def test_as_tables_include_what_there_is(self, made: Cluster) -> None:
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        refused = made.call("GET", f"{CONFIG_MAPS}?includeObject=x", accept=table, code=400)
        assert "includeObject: Invalid value: \"x\": must be 'Metadata', 'Object', 'None', or empty" in refused["message"]
        made.call("GET", f"{CONFIG_MAPS}?includeObject=None", accept=table)


class TestWatches:
    @pytest.mark.parametrize("query", ["sendInitialEvents=false", "continue=x", "resourceVersionMatch=NotOlderThan"])
    def test_that_are_none_are_refused(self, cluster: Cluster, query: str) -> None:
        cluster.call("GET", f"{CONFIG_MAPS}?watch=1&{query}", code=422)

    def test_start_with_what_is_there_unless_told_not_to(self, made: Cluster) -> None:
        assert len(made.watch(CONFIG_MAPS)()) == 1
        assert made.watch(f"{CONFIG_MAPS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan")() == []

    def test_tell_where_the_start_ends_to_who_takes_bookmarks(self, made: Cluster) -> None:
        assert [type_ for type_, _ in made.watch(f"{CONFIG_MAPS}?{FROM_THE_START}")()] == ["ADDED"]
        told = made.watch(f"{CONFIG_MAPS}?{FROM_THE_START}&allowWatchBookmarks=true")()
        assert [type_ for type_, _ in told] == ["ADDED", "BOOKMARK"]

    def test_are_whatever_does_not_say_no(self, made: Cluster) -> None:
        assert made.get(f"{CONFIG_MAPS}?watch=False")["kind"] == "ConfigMapList"
        assert not isinstance(made.ask("GET", f"{CONFIG_MAPS}?watch=yes"), Answer)
