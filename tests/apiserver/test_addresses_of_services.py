"""Services get addresses and node ports from the server, each to one of them."""

from __future__ import annotations

from typing import Any

from apiserver.conftest import Cluster

PATH = "/api/v1/namespaces/default/services"


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_a_service_gets_an_address_that_no_other_has(cluster: Cluster) -> None:
    addresses = {cluster.post(PATH, service(f"s{n}"))["spec"]["clusterIP"] for n in range(20)}
    assert len(addresses) == 20
    assert all(address.startswith("10.") and address != "10.96.0.1" for address in addresses)


def test_an_address_that_is_taken_or_elsewhere_is_refused(cluster: Cluster) -> None:
    cluster.post(PATH, service("a", clusterIP="10.96.7.7"))
    taken = cluster.post(PATH, service("b", clusterIP="10.96.7.7"), code=422)
    assert "already allocated" in taken["message"]
    assert "not in the valid range" in cluster.post(PATH, service("b", clusterIP="192.168.0.1"), code=422)["message"]


def test_a_headless_service_and_an_external_name_have_none(cluster: Cluster) -> None:
    assert cluster.post(PATH, service("a", clusterIP="None"))["spec"]["clusterIP"] == "None"
    assert "clusterIP" not in cluster.post(PATH, service("b", type="ExternalName", externalName="x.example"))["spec"]


def test_an_update_without_the_address_keeps_it(cluster: Cluster) -> None:
    made = cluster.post(PATH, service("a"))
    again = cluster.put(f"{PATH}/a", service("a", selector={"app": "x"}))
    assert again["spec"]["clusterIP"] == made["spec"]["clusterIP"]


def test_node_ports_are_given_kept_and_refused(cluster: Cluster) -> None:
    port = cluster.post(PATH, service("a", type="NodePort"))["spec"]["ports"][0]["nodePort"]
    assert 30000 <= port <= 32767
    assert cluster.put(f"{PATH}/a", service("a", type="NodePort"))["spec"]["ports"][0]["nodePort"] == port
    wanted = {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}
    assert "already allocated" in cluster.post(PATH, service("b", **wanted), code=422)["message"]
    wanted["ports"] = [{"port": 80, "nodePort": 80}]
    assert "The range of valid ports is 30000-32767" in cluster.post(PATH, service("b", **wanted), code=422)["message"]
