"""Endpoints and EndpointSlices follow the pods of a Service."""

from __future__ import annotations

from typing import Any

from dray.api.kinds import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from dray.controllers.endpoints import ApiService, Endpoints
from tests.simulated import Place
from tests.workloads import template


def begin() -> Place:
    place = Place()
    place.start("endpoints", Endpoints.kinds, lambda world: [Endpoints(world)])
    place.start_nodes()
    return place


def serve(place: Place, **spec: Any) -> None:
    body = {"ports": [{"name": "http", "port": 80, "targetPort": 8080}], "selector": {"app": "web"}, **spec}
    place.create(SERVICES, {"metadata": {"name": "web"}, "spec": body})


def add_pod(place: Place, name: str) -> None:
    pod = template("web")
    place.create(PODS, {"metadata": {"name": name, **pod["metadata"]}, "spec": pod["spec"]})


def addresses(place: Place) -> list[str]:
    subsets = place.get(ENDPOINTS, "web").get("subsets") or []  # type: ignore[union-attr]
    return sorted(address["ip"] for subset in subsets for address in subset.get("addresses", ()))


def sliced(place: Place) -> list[str]:
    return sorted(a for each in place.all(ENDPOINT_SLICES) for endpoint in each["endpoints"] or () for a in endpoint["addresses"])


def test_ready_pods_are_addresses_and_a_service_without_pods_has_an_empty_slice() -> None:
    place = begin()
    serve(place)
    place.pass_time(5)
    [empty] = place.all(ENDPOINT_SLICES)
    assert (empty["endpoints"], empty["metadata"]["labels"]["kubernetes.io/service-name"]) == ([], "web")
    for number in range(3):
        add_pod(place, f"p{number}")
    place.pass_time(20)
    ips = sorted(pod["status"]["podIP"] for pod in place.all(PODS))
    assert addresses(place) == sliced(place) == ips
    [subset] = place.get(ENDPOINTS, "web")["subsets"]  # type: ignore[index]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    place.delete(PODS, "p0")
    place.pass_time(60)
    assert len(addresses(place)) == len(sliced(place)) == 2


def test_slices_hold_a_hundred_addresses() -> None:
    place = begin()
    serve(place)
    for number in range(130):
        add_pod(place, f"p{number}")
    place.pass_time(60)
    assert sorted(len(each["endpoints"]) for each in place.all(ENDPOINT_SLICES)) == [30, 100]
    assert len(addresses(place)) == 130


def test_the_endpoints_go_with_the_service() -> None:
    place = begin()
    serve(place)
    place.pass_time(5)
    place.delete(SERVICES, "web")
    place.pass_time(5)
    assert place.get(ENDPOINTS, "web") is None


def test_endpoints_that_a_user_writes_are_mirrored_and_left_alone() -> None:
    place = begin()
    serve(place, selector=None)
    subsets = [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}]
    place.create(ENDPOINTS, {"metadata": {"name": "web"}, "subsets": subsets})
    place.pass_time(5)
    [mirrored] = place.all(ENDPOINT_SLICES)
    assert mirrored["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "endpointslicemirroring-controller.k8s.io"
    assert sliced(place) == ["10.1.2.3"]
    assert place.get(ENDPOINTS, "web")["subsets"] == subsets  # type: ignore[index]
    place.delete(ENDPOINTS, "web")
    place.pass_time(5)
    assert place.all(ENDPOINT_SLICES) == []


def test_the_api_is_found_as_the_service_kubernetes() -> None:
    place = Place()
    place.start("api", ApiService.kinds, lambda world: [ApiService(world, "127.0.0.1", 6443)])
    place.pass_time(5)
    assert place.get(SERVICES, "kubernetes")["spec"]["clusterIP"] == "10.96.0.1"  # type: ignore[index]
    assert place.get(ENDPOINTS, "kubernetes")["subsets"][0]["addresses"] == [{"ip": "127.0.0.1"}]  # type: ignore[index]
