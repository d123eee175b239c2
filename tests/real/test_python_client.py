"""The official Python client works on both servers: typed objects, patches, watches, and errors as it knows them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.upstream import manifests
from tests.real.upstream.control_plane import Server

kubernetes: Any = pytest.importorskip("kubernetes")


@pytest.fixture
def api(cluster: Server) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(cluster.kubeconfig)) as found:
        yield found


def test_version_and_discovery(api: Any) -> None:
    assert kubernetes.client.VersionApi(api).get_code().major == "1"
    names = {r.name for r in kubernetes.client.CoreV1Api(api).get_api_resources().resources}
    assert {"pods", "pods/status", "pods/binding", "nodes"} <= names


def test_a_pod_lives_and_goes(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    made = core.create_namespaced_pod(namespace, manifests.pod("web", namespace=namespace))
    assert made.metadata.uid
    assert made.spec.containers[0].termination_message_path == "/dev/termination-log"
    core.patch_namespaced_pod("web", namespace, {"metadata": {"labels": {"app": "web"}}})
    assert [p.metadata.name for p in core.list_namespaced_pod(namespace, label_selector="app=web").items] == ["web"]
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "somewhere"}}
    core.create_namespaced_pod_binding("web", namespace, binding, _preload_content=False)
    assert core.read_namespaced_pod("web", namespace).spec.node_name == "somewhere"
    core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
    with pytest.raises(kubernetes.client.ApiException) as gone:
        core.read_namespaced_pod("web", namespace)
    assert gone.value.status == 404


def test_a_stale_update_is_a_conflict(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    stale = core.create_namespaced_config_map(namespace, {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    core.patch_namespaced_config_map("settings", namespace, {"data": {"a": "2"}})
    stale.data = {"a": "3"}
    with pytest.raises(kubernetes.client.ApiException) as conflict:
        core.replace_namespaced_config_map("settings", namespace, stale)
    assert conflict.value.status == 409


def test_claims_are_typed(api: Any, namespace: str) -> None:
    resource = kubernetes.client.ResourceV1Api(api)
    made = resource.create_namespaced_resource_claim(namespace, manifests.claim("gpu", namespace=namespace))
    assert made.spec.devices.requests[0].exactly.count == 1
    assert [c.metadata.name for c in resource.list_namespaced_resource_claim(namespace).items] == ["gpu"]


def test_a_watch_sees_what_happens(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    later = threading.Timer(0.2, lambda: core.create_namespaced_config_map(namespace, {"metadata": {"name": "new"}}))
    later.start()
    watch = kubernetes.watch.Watch()
    seen = []
    for event in watch.stream(core.list_namespaced_config_map, namespace, resource_version=start, timeout_seconds=10):
        seen.append((event["type"], event["object"].metadata.name))
        watch.stop()
    later.join()
    assert seen == [("ADDED", "new")]
