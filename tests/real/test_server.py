"""Both servers start, know who asks, keep claims as they were sent and refuse what is wrong."""

from __future__ import annotations

import pytest

from tests.real.upstream import manifests
from tests.real.upstream.client import Client, Refused
from tests.real.upstream.control_plane import PLAIN_TOKEN, Server


def test_a_started_server_has_the_default_namespaces(client: Client) -> None:
    names = {n["metadata"]["name"] for n in client.list("Namespace")}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names


def test_a_claim_is_created_with_its_defaults(client: Client, namespace: str) -> None:
    wanted = manifests.claim("gpu", namespace=namespace)
    del wanted["spec"]["devices"]["requests"][0]["exactly"]["count"]
    made = client.create(wanted)
    assert made["metadata"]["uid"]
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
    }


def test_a_claim_that_names_no_class_is_refused_with_the_field(client: Client, namespace: str) -> None:
    wrong = manifests.claim("gpu", class_name="", namespace=namespace)
    with pytest.raises(Refused) as refused:
        client.create(wrong)
    assert refused.value.code == 422
    fields = [c["field"] for c in refused.value.status["details"]["causes"]]
    assert fields == ["spec.devices.requests[0].exactly.deviceClassName"]


def test_the_spec_of_a_claim_never_changes(client: Client, namespace: str) -> None:
    client.create(manifests.claim("gpu", namespace=namespace))
    path = f"apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/gpu"
    with pytest.raises(Refused, match="immutable"):
        client.call("PATCH", path, {"spec": {"devices": {"requests": []}}}, "application/merge-patch+json")


def test_alpha_fields_of_a_slice_are_kept(client: Client) -> None:
    grouped = {"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}, "compatibilityGroups": ["mig"]}
    listed = {"links": {"strings": ["a", "b"]}}
    made = client.create(
        manifests.resource_slice("alpha-fields", [{"name": "d", "consumesCounters": [grouped], "attributes": listed}])
    )
    assert made["spec"]["devices"] == [{"name": "d", "consumesCounters": [grouped], "attributes": listed}]


def test_a_token_that_is_not_known_gets_401(cluster: Server) -> None:
    with pytest.raises(Refused) as refused:
        Client(cluster.kubeconfig, token="someone-else").list("Namespace")
    assert refused.value.code == 401


def test_rbac_on_the_real_server_grants_exactly_what_a_role_says(server: Server) -> None:
    admin, plain = Client(server.kubeconfig), Client(server.kubeconfig, token=PLAIN_TOKEN)
    with pytest.raises(Refused) as refused:
        plain.list("ResourceSlice")
    assert refused.value.code == 403
    role = {"rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]}]}
    api = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "slice-reader"}}
    admin.create({**api, "kind": "ClusterRole", **role})
    who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "plain"}
    what = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "slice-reader"}
    admin.create({**api, "kind": "ClusterRoleBinding", "roleRef": what, "subjects": [who]})
    for _ in range(50):  # the authoriser learns of the binding through a watch
        try:
            plain.list("ResourceSlice")
            break
        except Refused:
            continue
    assert isinstance(plain.list("ResourceSlice"), list)
    with pytest.raises(Refused):
        plain.list("DeviceClass")
