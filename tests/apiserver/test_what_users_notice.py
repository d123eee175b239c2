"""Small things that clients of a real server rely on."""

from __future__ import annotations

import pytest

from apiserver.conftest import Cluster
from dray.api.times import format_micro_time, format_time

PODS = "/api/v1/namespaces/default/pods"
YAML = "application/yaml"


def pod(name: str = "p", **spec: object) -> dict:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "x"}], **spec}}


def test_tabs_in_flow_style_are_read_as_go_reads_them(cluster: Cluster) -> None:
    body = b'{\n\t"metadata": {"name": "c",},\n\t"data": {\n\t\t"k": "v",\n\t},\n}'
    assert cluster.post("/api/v1/namespaces/default/configmaps", body, content_type=YAML)["data"] == {"k": "v"}


def test_aliases_are_refused(cluster: Cluster) -> None:
    body = b"metadata: {name: c}\ndata: {a: &x y, b: *x}"
    answer = cluster.call("POST", "/api/v1/namespaces/default/configmaps", body, code=400, content_type=YAML)
    assert "aliases are not supported" in answer["message"]


def test_unknown_and_repeated_fields_are_named_together(cluster: Cluster) -> None:
    body = b'{"metadata":{"name":"c"},"data":{"a":"1","a":"2"},"more":1}'
    answer = cluster.call("POST", "/api/v1/namespaces/default/configmaps?fieldValidation=Strict", body, code=400)
    assert 'strict decoding error: unknown field "more", duplicate field "data.a"' in answer["message"]


def test_items_of_a_list_do_not_repeat_what_they_are(cluster: Cluster) -> None:
    cluster.post(PODS, pod())
    listed = cluster.get(PODS)
    assert (listed["kind"], "kind" in listed["items"][0], "apiVersion" in listed["items"][0]) == ("PodList", False, False)
    assert cluster.get(f"{PODS}/p")["kind"] == "Pod"


def test_binding_a_pod_is_no_change_of_its_spec(cluster: Cluster) -> None:
    cluster.post(PODS, pod())
    cluster.post(f"{PODS}/p/binding", {"target": {"name": "n"}})
    assert cluster.get(f"{PODS}/p")["metadata"]["generation"] == 1


@pytest.mark.parametrize(("timeout", "code"), [("5s", 200), ("0", 200), ("1h30m", 200), ("soon", 400), ("5", 400)])
def test_a_timeout_must_be_a_duration(cluster: Cluster, timeout: str, code: int) -> None:
    cluster.call("GET", f"{PODS}?timeout={timeout}", code=code)


def test_years_before_1000_are_written_in_full() -> None:
    assert format_time(-62135596800) == "0001-01-01T00:00:00Z"
    assert format_micro_time(-62135596798) == "0001-01-01T00:00:02.000000Z"


def test_events_are_found_by_who_reported_them(cluster: Cluster) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}, "reportingComponent": "me"}
    cluster.post("/api/v1/namespaces/default/events", event)
    for path, found in (
        ("/api/v1/events?fieldSelector=source%3Dme", 1),
        ("/apis/events.k8s.io/v1/events?fieldSelector=reportingController%3Dme", 1),
        ("/apis/events.k8s.io/v1/events?fieldSelector=regarding.kind%3DNode", 0),
    ):
        assert len(cluster.get(path.replace("%3D", "="))["items"]) == found


def test_a_review_is_no_table(cluster: Cluster) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    cluster.call("POST", path, {"spec": {}}, code=406, accept="application/json;as=Table;v=v1;g=meta.k8s.io")


class TestRuntimeClasses:
    def classes(self, cluster: Cluster) -> None:
        body = {
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
        }
        cluster.post("/apis/node.k8s.io/v1/runtimeclasses", body)

    def test_a_pod_gets_what_its_class_costs_and_where_it_is(self, cluster: Cluster) -> None:
        self.classes(cluster)
        spec = cluster.post(PODS, pod(runtimeClassName="kata"))["spec"]
        assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"kata": "yes"})
        assert {"key": "kata", "operator": "Exists"} in spec["tolerations"]

    def test_a_class_that_does_not_exist_or_does_not_fit_is_refused(self, cluster: Cluster) -> None:
        assert 'RuntimeClass "kata" not found' in cluster.post(PODS, pod(runtimeClassName="kata"), code=403)["message"]
        self.classes(cluster)
        wrong = pod(runtimeClassName="kata", nodeSelector={"kata": "no"})
        assert "conflict" in cluster.post(PODS, wrong, code=403)["message"]


@pytest.mark.parametrize(
    ("schedule", "zone", "problem"),
    [
        ("*/5 * * * *", None, ""),
        ("@hourly", "Europe/Berlin", ""),
        ("* * * *", None, "spec.schedule"),
        ("61 * * * *", None, "out of range"),
        ("TZ=UTC * * * * *", None, "spec.timeZone"),
        ("* * * * *", "Mars/Olympus", "unknown time zone"),
    ],
)
def test_schedules_of_cron_jobs_are_checked(cluster: Cluster, schedule: str, zone: str | None, problem: str) -> None:
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}}}
    spec = {"schedule": schedule, "jobTemplate": template} | ({"timeZone": zone} if zone else {})
    path = "/apis/batch/v1/namespaces/default/cronjobs"
    answer = cluster.post(path, {"metadata": {"name": "c"}, "spec": spec}, code=422 if problem else 201)
    assert problem in answer.get("message", "")


@pytest.mark.parametrize(
    ("name", "fine"), [("kernel.shm_rmid_forced", True), ("net/ipv4/x", True), ("foo-", False), ("bar..", False)]
)
def test_names_of_sysctls_are_checked(cluster: Cluster, name: str, fine: bool) -> None:
    context = {"sysctls": [{"name": name, "value": "1"}]}
    cluster.post(PODS, pod(securityContext=context), code=201 if fine else 422)


def test_pods_of_a_replication_controller_outlive_it_unless_told(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    cluster.post(path, {"metadata": {"name": "r"}, "spec": {"selector": {"a": "b"}, "template": template}})
    assert cluster.delete(f"{path}/r")["metadata"]["finalizers"] == ["orphan"]
