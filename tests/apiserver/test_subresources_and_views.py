"""Status, binding, eviction, scale; events in two groups; tables; discovery; reviews."""

from __future__ import annotations

import msgspec
import pytest

from dray.apiserver.api import Answer
from dray.apiserver.columns import human_duration
from tests.apiserver.conftest import CLAIMS, CONFIG_MAPS, PODS, Cluster, Json, config_map, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def claim(name: str = "claim") -> Json:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def allocation(device: str = "dev-0") -> Json:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "pool-a", "device": device}
    return {"allocation": {"devices": {"results": [result]}}}


class TestStatus:
    def test_a_write_of_the_object_leaves_the_status(self, cluster: Cluster) -> None:
        made = cluster.post(CLAIMS, claim() | {"status": allocation()})
        assert made["status"] == {}
        cluster.patch(f"{CLAIMS}/claim/status", {"status": allocation()})
        kept = cluster.patch(f"{CLAIMS}/claim", {"status": None, "metadata": {"labels": {"a": "b"}}})
        assert kept["status"]["allocation"]

    def test_a_write_of_the_status_leaves_the_rest(self, cluster: Cluster) -> None:
        cluster.post("/api/v1/nodes", {"metadata": {"name": "n"}})
        patch = {"spec": {"unschedulable": True}, "metadata": {"labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "1000m"}}}
        node = cluster.patch("/api/v1/nodes/n/status", patch)
        assert (node["spec"], node["metadata"]["labels"], node["status"]["allocatable"]) == ({}, {"a": "b"}, {"cpu": "1"})

    def test_kinds_that_keep_their_metadata_apart_keep_it(self, cluster: Cluster) -> None:
        cluster.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", {"metadata": {"name": "c"}})
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status"
        claim = cluster.patch(path, {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}})
        assert "labels" not in claim["metadata"]
        assert "annotations" not in claim["metadata"]

    def test_deallocation_takes_the_device_status_with_it(self, cluster: Cluster) -> None:
        cluster.post(CLAIMS, claim())
        cluster.patch(f"{CLAIMS}/claim/status", {"status": allocation()})
        device = {"driver": "gpu.example.com", "pool": "pool-a", "device": "dev-0", "data": {"x": 1}}
        assert cluster.patch(f"{CLAIMS}/claim/status", {"status": {"devices": [device]}})["status"]["devices"]
        assert "devices" not in cluster.patch(f"{CLAIMS}/claim/status", {"status": {"allocation": None}})["status"]

    def test_pod_claim_statuses_survive_a_kubelet_that_does_not_know_them(self, cluster: Cluster) -> None:
        made = cluster.post(PODS, pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))
        cluster.patch(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}})
        made["metadata"].pop("resourceVersion")
        after = cluster.put(f"{PODS}/p/status", made | {"status": {"phase": "Running"}})
        assert after["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": "c"}]

    def test_so_does_the_claim_for_extended_resources(self, cluster: Cluster) -> None:
        wanted = pod()
        (container,) = wanted["spec"]["containers"]
        container["resources"] = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
        made = cluster.post(PODS, wanted)
        mapping = {"containerName": container["name"], "resourceName": "example.com/gpu", "requestName": "r"}
        known = {"resourceClaimName": "special", "requestMappings": [mapping]}
        cluster.patch(f"{PODS}/p/status", {"status": {"extendedResourceClaimStatus": known}})
        made["metadata"].pop("resourceVersion")
        after = cluster.put(f"{PODS}/p/status", made | {"status": {"phase": "Running"}})
        assert after["status"]["extendedResourceClaimStatus"] == known


class TestContainers:
    @pytest.mark.parametrize(
        ("wanted", "lacking"),
        [
            *((name, name) for name in ("log", "exec", "attach")),
            ("portforward", "port to forward"),
            ("ephemeralcontainers", "place for ephemeral ones"),
        ],
    )
    def test_what_only_a_container_could_answer_is_refused_in_words(self, cluster: Cluster, wanted: str, lacking: str) -> None:
        cluster.post(PODS, pod())
        status = cluster.call("GET", f"{PODS}/p/{wanted}", code=400)
        assert f'pod "p" is simulated and has no container, so there is no {lacking};' in status["message"]

    def test_a_pod_that_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        assert cluster.call("GET", f"{PODS}/absent/log", code=404)["message"] == 'pods "absent" not found'

    def test_kubectl_finds_details_in_what_is_not_served(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod())
        assert cluster.call("GET", f"{PODS}/p/nonsense", code=404)["details"] == {}


class TestTaintRules:
    PATH = "/apis/resource.k8s.io/v1/devicetaintrules"

    def rule(self, cluster: Cluster) -> Json:
        taint = {"key": "example.com/broken", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}
        return cluster.post(self.PATH, {"metadata": {"name": "r"}, "spec": {"deviceSelector": {}, "taint": taint}})

    def test_a_changed_effect_counts_from_now(self, cluster: Cluster) -> None:
        self.rule(cluster)
        same = cluster.patch(f"{self.PATH}/r", {"spec": {"taint": {"value": "x"}}})
        assert (same["spec"]["taint"]["timeAdded"], same["metadata"]["generation"]) == ("2026-01-02T03:04:05Z", 2)
        new = cluster.patch(f"{self.PATH}/r", {"spec": {"taint": {"effect": "NoExecute"}}})
        assert (new["spec"]["taint"]["timeAdded"], new["metadata"]["generation"]) == ("2027-01-15T08:00:00Z", 3)

    def test_a_put_needs_a_version(self, cluster: Cluster) -> None:
        rule = self.rule(cluster)
        rule["metadata"].pop("resourceVersion")
        refused = cluster.put(f"{self.PATH}/r", rule, code=422)
        assert "metadata.resourceVersion" in refused["message"]

    @pytest.mark.parametrize("version", ["v1beta2", "v1alpha3"])
    def test_older_versions_take_a_put_without_one_and_show_what_they_delete(self, cluster: Cluster, version: str) -> None:
        self.rule(cluster)
        path = f"/apis/resource.k8s.io/{version}/devicetaintrules/r"
        rule = cluster.get(path)
        rule["metadata"].pop("resourceVersion")
        rule["spec"]["taint"]["value"] = "x"
        assert cluster.put(path, rule)["spec"]["taint"]["value"] == "x"
        assert cluster.delete(path)["kind"] == "DeviceTaintRule"

    def test_v1_answers_a_delete_with_a_status(self, cluster: Cluster) -> None:
        self.rule(cluster)
        assert cluster.delete(f"{self.PATH}/r")["kind"] == "Status"


class TestBinding:
    def bind(self, cluster: Cluster, name: str = "p", code: int = 201, **metadata: object) -> Json:
        body = {"kind": "Binding", "metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": "n"}}
        return cluster.post(f"{PODS}/{name}/binding", body, code=code)

    def test_it_assigns_the_node_and_merges_annotations(self, cluster: Cluster) -> None:
        body = pod()
        body["metadata"]["annotations"] = {"kept": "1", "changed": "old"}
        cluster.post(PODS, body)
        assert self.bind(cluster, annotations={"changed": "new", "added": "2"})["status"] == "Success"
        bound = cluster.get(f"{PODS}/p")
        assert bound["spec"]["nodeName"] == "n"
        assert bound["metadata"]["annotations"] == {"kept": "1", "changed": "new", "added": "2"}
        assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]

    def test_annotations_are_text(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod())
        assert "metadata.annotations" in self.bind(cluster, annotations={"count": 3}, code=400)["message"]
        assert "nodeName" not in cluster.get(f"{PODS}/p")["spec"]

    def test_a_pod_is_bound_once(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod())
        self.bind(cluster)
        assert "already assigned to node" in self.bind(cluster, code=409)["message"]

    def test_gated_deleted_and_other_pods_are_not_bound(self, cluster: Cluster) -> None:
        cluster.post(PODS, pod("gated", schedulingGates=[{"name": "example.com/gate"}]))
        self.bind(cluster, "gated", code=409)
        held = pod("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        cluster.post(PODS, held)
        cluster.delete(f"{PODS}/held")
        assert "is being deleted" in self.bind(cluster, "held", code=409)["message"]
        cluster.post(PODS, pod("other"))
        self.bind(cluster, "other", code=409, uid="another")
        self.bind(cluster, "absent", code=404)


class TestEviction:
    def test_a_budget_is_respected_and_spent(self, cluster: Cluster) -> None:
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        for name in "ab":
            body = pod(name, nodeName="n")
            body["metadata"]["labels"] = {"app": "web"}
            cluster.post(PODS, body)
            cluster.patch(
                f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
            )
        cluster.post(path, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})
        status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
        cluster.patch(f"{path}/b/status", {"status": status})
        cluster.post(f"{PODS}/a/eviction", {"kind": "Eviction", "metadata": {"name": "a"}}, code=201)
        after = cluster.get(f"{path}/b")["status"]
        assert (after["disruptionsAllowed"], list(after["disruptedPods"])) == (0, ["a"])
        refused = cluster.post(f"{PODS}/b/eviction", {"kind": "Eviction", "metadata": {"name": "b"}}, code=429)
        assert refused["details"]["causes"][0]["reason"] == "DisruptionBudget"
        assert "deletionTimestamp" not in cluster.get(f"{PODS}/b")["metadata"]


def test_scale_reads_and_writes_replicas(cluster: Cluster) -> None:
    path = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    cluster.post(path, {"metadata": {"name": "rs"}, "spec": spec})
    scale = cluster.get(f"{path}/rs/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "a=b")
    cluster.put(f"{path}/rs/scale", scale | {"spec": {"replicas": 5}})
    assert cluster.get(f"{path}/rs")["spec"]["replicas"] == 5
    cluster.put(f"{path}/rs/scale", scale | {"spec": {"replicas": 6}}, code=409)
    cluster.patch(f"{path}/rs/scale", {"spec": {"replicas": -1}}, code=422)


class TestEvents:
    NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
    CORE = "/api/v1/namespaces/default/events"

    def event(self) -> Json:
        about = {"kind": "Pod", "name": "p", "namespace": "default"}
        return {
            "metadata": {"name": "e"},
            "eventTime": "2026-01-02T03:04:05.000000Z",
            "reportingController": "example.com/c",
            "reportingInstance": "one",
            "action": "Testing",
            "reason": "Tested",
            "type": "Normal",
            "note": "words",
            "regarding": about,
        }

    def test_both_groups_show_the_same_events(self, cluster: Cluster) -> None:
        cluster.post(self.NEW, self.event())
        core = cluster.get(f"{self.CORE}/e")
        assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "words", "p")
        assert cluster.get(f"{self.NEW}/e")["note"] == "words"
        assert len(cluster.get(f"{self.CORE}?fieldSelector=involvedObject.name=p,type=Normal")["items"]) == 1

    def test_a_series_is_patched_through_the_new_group(self, cluster: Cluster) -> None:
        cluster.post(self.NEW, self.event())
        events = cluster.watch(f"{self.NEW}?resourceVersion=0")
        cluster.patch(f"{self.NEW}/e", {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}})
        assert [(type, obj["note"]) for type, obj in events()] == [("ADDED", "words"), ("MODIFIED", "words")]
        assert cluster.get(f"{self.CORE}/e")["series"]["count"] == 2

    def test_the_new_group_is_strict(self, cluster: Cluster) -> None:
        bare = self.event()
        for field in ("action", "reportingInstance"):
            del bare[field]
        message = cluster.post(self.NEW, bare, code=422)["message"]
        assert "action: Required value" in message
        assert "reportingInstance: Required value" in message


class TestTables:
    def rows(self, cluster: Cluster, path: str) -> list[Json]:
        table = cluster.call("GET", path, accept=TABLE)
        assert table["kind"] == "Table"
        columns = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(columns, row["cells"], strict=True)) for row in table["rows"]]

    def test_a_claim_shows_its_devices(self, cluster: Cluster) -> None:
        cluster.post(CLAIMS, claim())
        assert self.rows(cluster, CLAIMS)[0]["State"] == "pending"
        cluster.patch(f"{CLAIMS}/claim/status", {"status": allocation()})
        cluster.now += 90
        row = self.rows(cluster, f"{CLAIMS}/claim")[0]
        assert (row["State"], row["Devices"], row["Age"]) == ("allocated", "pool-a/dev-0", "90s")

    def test_a_slice_shows_node_pool_and_number_of_devices(self, cluster: Cluster) -> None:
        path = "/apis/resource.k8s.io/v1/resourceslices"
        pool = {"name": "pool-a", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": "a"}, {"name": "b"}]
        spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": devices}
        cluster.post(path, {"metadata": {"name": "s"}, "spec": spec})
        row = self.rows(cluster, path)[0]
        assert (row["Node"], row["Pool"], row["Devices"]) == ("n", "pool-a", 2)

    def test_every_kind_can_be_shown_however_little_it_has(self, cluster: Cluster) -> None:
        for resource in cluster.core.operations.registry.resources:
            for column in resource.columns:
                column.cell({"metadata": {"name": "x"}}, cluster.now)

    def test_only_metadata(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, config_map())
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        listed = cluster.call("GET", CONFIG_MAPS, accept=accept)
        assert listed["kind"] == "PartialObjectMetadataList"
        assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (11000, "3h3m"),
            (90000, "25h"),
            (260000, "3d"),
            (1e8, "3y62d"),
        ],
    )
    def test_durations_are_short(self, seconds: float, shown: str) -> None:
        assert human_duration(seconds) == shown


class TestDiscovery:
    def test_aggregated_and_legacy_list_the_same_resources(self, cluster: Cluster) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        for root in ("/api", "/apis"):
            answer = cluster.ask("GET", root, accept=accept)
            assert isinstance(answer, Answer)
            assert "as=APIGroupDiscoveryList" in answer.content_type
            for group in msgspec.json.decode(answer.body)["items"]:
                for version in group["versions"]:
                    name = group["metadata"]["name"]
                    path = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                    legacy = {r["name"] for r in cluster.get(path)["resources"] if "/" not in r["name"]}
                    assert legacy == {r["resource"] for r in version["resources"]}

    def test_a_client_that_has_the_document_is_told_so(self, cluster: Cluster) -> None:
        first = cluster.ask("GET", "/apis")
        assert isinstance(first, Answer)
        tag = dict(first.headers)["ETag"]
        again = cluster.ask("GET", "/apis", if_none_match=tag)
        assert isinstance(again, Answer)
        assert (again.code, again.body) == (304, b"")

    def test_every_kind_has_a_schema(self, cluster: Cluster) -> None:
        schemas = cluster.core.operations.schemas
        missing = [r.kind.resource for r in cluster.core.operations.registry.resources if schemas.kind(r.kind) is None]
        assert missing == []

    def test_every_group_has_an_openapi_document(self, cluster: Cluster) -> None:
        for entry in cluster.get("/openapi/v3")["paths"].values():
            assert cluster.get(entry["serverRelativeURL"].partition("?")[0])["components"]["schemas"]


class TestProtobuf:
    """What typed Go clients send: magic, type, and the object with numbered fields."""

    @staticmethod
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    def body(self, api_version: bytes, kind: bytes, obj: bytes) -> bytes:
        type_meta = self.field(1, api_version) + self.field(2, kind)
        return b"k8s\x00" + self.field(1, type_meta) + self.field(2, obj)

    def test_a_config_map(self, cluster: Cluster) -> None:
        entry = self.field(1, b"key") + self.field(2, b"value")
        obj = self.field(1, self.field(1, b"cm") + self.field(8, b"")) + self.field(2, entry)
        made = cluster.post(
            CONFIG_MAPS, self.body(b"v1", b"ConfigMap", obj), content_type="application/vnd.kubernetes.protobuf", code=201
        )
        assert (made["metadata"]["name"], made["data"]) == ("cm", {"key": "value"})

    @pytest.mark.parametrize("data", [b"", b"k8s\x00\xff\xff\xff", b"k8s\x00\x0a\x7f", b"k8s\x00" + b"\x0a\x02" * 50])
    def test_rubbish_is_refused(self, cluster: Cluster, data: bytes) -> None:
        answer = cluster.ask("POST", CONFIG_MAPS, data, content_type="application/vnd.kubernetes.protobuf")
        assert isinstance(answer, Answer)
        assert answer.code in (400, 415)

    @pytest.mark.parametrize("within", ["the object", "metadata", "a text", "a time", "an entry"])
    def test_a_number_where_bytes_belong_is_refused(self, cluster: Cluster, within: str) -> None:
        obj = {
            "metadata": b"\x08\x05",
            "a text": self.field(1, b"\x08\x05"),
            "a time": self.field(1, b"\x40\x05"),
            "an entry": b"\x10\x05",
        }.get(within, b"")
        data = b"k8s\x00\x08\x04" if within == "the object" else self.body(b"v1", b"ConfigMap", obj)
        cluster.post(CONFIG_MAPS, data, content_type="application/vnd.kubernetes.protobuf", code=400)

    def test_other_formats_are_refused(self, cluster: Cluster) -> None:
        cluster.post(CONFIG_MAPS, b"<xml/>", content_type="application/xml", code=415)
        cluster.call("GET", CONFIG_MAPS, accept="application/vnd.kubernetes.protobuf", code=406)
