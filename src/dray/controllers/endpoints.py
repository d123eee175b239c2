"""Endpoints and EndpointSlices: the addresses of the pods behind each Service, and copies of Endpoints that users write.

Always true: what is written for a Service is what its selector finds now; a slice holds at most 100 addresses; objects that
somebody else manages are left alone. Nothing here moves traffic: it is data for whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Pod
from dray.api.kinds import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES, Kind
from dray.api.meta import Object
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import generated
from dray.controllers.keyed import Keyed

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
CONTROLLER: Final = "endpointslice-controller.k8s.io"
MIRROR: Final = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR: Final = "endpointslice.kubernetes.io/skip-mirror"
OWN_ENDPOINTS: Final = "endpoints.kubernetes.io/managed-by"
HEADLESS: Final = "service.kubernetes.io/headless"
SLICE_MAX: Final = 100
ENDPOINTS_MAX: Final = 1000

Ports = tuple[tuple[str, str, int, str], ...]  # name, protocol, number, application protocol


class Endpoints(Keyed):
    """The decider. Keys are ``namespace/name`` of Services and of the Endpoints beside them."""

    name = "endpoints"
    kinds: Sequence[Kind] = (SERVICES, PODS, ENDPOINTS, ENDPOINT_SLICES)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._services = world.index(SERVICES, lambda found: (found.metadata.namespace,))
        self._pods = world.index(PODS, lambda found: (found.metadata.namespace,))
        self._slices = world.index(ENDPOINT_SLICES, _service_of)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == ENDPOINT_SLICES:
            return _service_of(change.object)
        if change.kind != PODS:
            return [change.object.key]
        if change.old is not None and change.new is not None and _address(change.old) == _address(change.new):
            return ()
        found = [pod for pod in (change.old, change.new) if pod is not None]
        near = self._services[change.object.metadata.namespace]
        return [key for key in near if any(self._selects(key, pod.metadata.labels) for pod in found)]

    def _selects(self, key: str, labels: dict[str, str]) -> bool:
        selector = self.world.get(SERVICES, key).spec.get("selector")
        return bool(selector) and selector.items() <= labels.items()

    def decide(self, key: str, now: float) -> list[Write]:
        service = self.world.get(SERVICES, key)
        endpoints = self.world.get(ENDPOINTS, key)
        if service is None or service.metadata.deletion_timestamp is not None:
            self.forget(key)
            ours = endpoints is not None and OWN_ENDPOINTS in endpoints.metadata.labels
            return [owning.delete(ENDPOINTS, endpoints)] if ours and endpoints.metadata.deletion_timestamp is None else []
        if service.spec.get("type") == "ExternalName":
            return []
        if not service.spec.get("selector"):
            return self._mirror(key, endpoints)
        pods = [self.world.get(PODS, pod) for pod in self._pods[service.metadata.namespace]]
        mine = [pod for pod in pods if service.spec["selector"].items() <= pod.metadata.labels.items() and _counts(pod)]
        grouped: dict[Ports, list[Pod]] = {}
        for pod in sorted(mine, key=lambda pod: pod.metadata.name):
            grouped.setdefault(_ports(service, pod), []).append(pod)
        return self._write_endpoints(service, endpoints, grouped) + self._write_slices(
            key,
            service,
            SERVICES,
            CONTROLLER,
            [(ports, [_endpoint(p, service) for p in found]) for ports, found in grouped.items()],
        )

    # ----------------------------------------------------------------------------------------------------- Endpoints

    def _write_endpoints(self, service: Any, known: Any, grouped: dict[Ports, list[Pod]]) -> list[Write]:
        subsets = [made for ports, pods in sorted(grouped.items()) if (made := _subset(service, ports, pods))]
        labels = {**service.metadata.labels, OWN_ENDPOINTS: "endpoint-controller"}
        if service.spec.get("clusterIP") == "None":
            labels[HEADLESS] = ""
        namespace, name = service.metadata.namespace, service.metadata.name
        if known is None:
            metadata = {"name": name, "namespace": namespace, "labels": labels}
            new = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
            return [Write("create", ENDPOINTS, namespace, name, new)]
        if known.metadata.deletion_timestamp is not None or (list(known.subsets) == subsets and known.metadata.labels == labels):
            return []
        gone = {label: None for label in known.metadata.labels if label not in labels}
        body: dict[str, Any] = {"metadata": {"labels": labels | gone}, "subsets": subsets or None}
        return [Write("patch", ENDPOINTS, namespace, name, body, uid=known.uid)]

    # -------------------------------------------------------------------------------------------------------- slices

    def _write_slices(
        self, key: str, owner: Any, kind: Kind, manager: str, wanted: list[tuple[Ports, list[dict[str, Any]]]]
    ) -> list[Write]:
        """One slice for each hundred addresses with the same ports; a Service without any has one empty slice."""
        shapes = [
            (ports, found[start : start + SLICE_MAX]) for ports, found in wanted for start in range(0, len(found), SLICE_MAX)
        ] or [((), [])]
        free = [self.world.get(ENDPOINT_SLICES, each) for each in self._slices[key]]
        free = [each for each in free if each.metadata.labels.get(MANAGED_BY) == manager]
        free = sorted((each for each in free if each.metadata.deletion_timestamp is None), key=lambda each: each.metadata.name)
        writes = []
        for number, (ports, found) in enumerate(shapes):
            body = _slice(owner, kind, manager, ports, found)
            same = next((each for each in free if _content(each) == _content_of(body)), None)
            near = same or next((each for each in free if tuple(each.ports or ()) == tuple(body["ports"])), None)
            if same is None:
                writes.append(self._put(owner, near, body, number))
            if near is not None:
                free.remove(near)
        return writes + [owning.delete(ENDPOINT_SLICES, each) for each in free]

    def _put(self, owner: Any, known: Any, body: dict[str, Any], number: int) -> Write:
        namespace = owner.metadata.namespace
        if known is not None:
            change = {"metadata": {"labels": body["metadata"]["labels"]}, "endpoints": body["endpoints"], "ports": body["ports"]}
            return Write("patch", ENDPOINT_SLICES, namespace, known.metadata.name, change, uid=known.uid)
        taken = sum(1 for _ in self._slices[owner.key])
        name = generated(owner.metadata.name, owner.uid, owner.metadata.resource_version, number, taken)
        body["metadata"] |= {"name": name, "generateName": f"{owner.metadata.name}-"}
        return Write("create", ENDPOINT_SLICES, namespace, name, body)

    def _mirror(self, key: str, endpoints: Any) -> list[Write]:
        """Endpoints that a user wrote for a Service without selector appear as slices too."""
        if endpoints is not None and SKIP_MIRROR in endpoints.metadata.labels:
            return []
        if endpoints is None or OWN_ENDPOINTS in endpoints.metadata.labels:
            slices = [self.world.get(ENDPOINT_SLICES, each) for each in self._slices[key]]
            mirrored = [each for each in slices if each.metadata.labels.get(MANAGED_BY) == MIRROR]
            return [owning.delete(ENDPOINT_SLICES, each) for each in mirrored if each.metadata.deletion_timestamp is None]
        wanted = [(_written_ports(subset), _written_addresses(subset)) for subset in endpoints.subsets]
        return self._write_slices(key, endpoints, ENDPOINTS, MIRROR, wanted)


def _service_of(found: Object) -> Iterable[str]:
    name = found.metadata.labels.get(SERVICE_NAME)
    return (f"{found.metadata.namespace}/{name}",) if name else ()


def _address(pod: Any) -> tuple[Any, ...]:
    """What of a pod shows in Endpoints."""
    status = pod.status
    leaving = pod.metadata.deletion_timestamp is not None
    return pod.metadata.labels, status.phase, status.pod_ip, pod.spec.node_name, podstate.ready(pod), leaving


def _counts(pod: Pod) -> bool:
    return bool(pod.status.pod_ip) and not pod.terminal


def _ports(service: Any, pod: Pod) -> Ports:
    found = []
    for port in service.spec.get("ports") or ():
        target, protocol = port.get("targetPort", port.get("port")), port.get("protocol", "TCP")
        if isinstance(target, str):
            target = next((number for name, number, kind in _container_ports(pod) if (name, kind) == (target, protocol)), None)
        if target is not None:
            found.append((port.get("name") or "", protocol, int(target), port.get("appProtocol") or ""))
    return tuple(found)


def _container_ports(pod: Pod) -> Iterable[tuple[str, int, str]]:
    for container in pod.spec.containers:
        for port in container.ports:
            yield port.name, port.container_port, port.protocol or "TCP"


def _subset(service: Any, ports: Ports, pods: list[Pod]) -> dict[str, Any] | None:
    living = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    always = service.spec.get("publishNotReadyAddresses")
    ready = [_endpoint_address(pod) for pod in living if always or podstate.ready(pod)][:ENDPOINTS_MAX]
    unready = [_endpoint_address(pod) for pod in living if not (always or podstate.ready(pod))][:ENDPOINTS_MAX]
    if not ready and not unready:
        return None
    made: dict[str, Any] = {"addresses": ready} if ready else {}
    if unready:
        made["notReadyAddresses"] = unready
    shown = [_plain_port(*port) for port in ports]
    return {**made, "ports": shown} if shown else made


def _plain_port(name: str, protocol: str, number: int, application: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name} if name else {}
    made |= {"port": number, "protocol": protocol}
    return made | {"appProtocol": application} if application else made


def _reference(pod: Pod) -> dict[str, Any]:
    return {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.uid}


def _endpoint_address(pod: Pod) -> dict[str, Any]:
    return {"ip": pod.status.pod_ip, "nodeName": pod.spec.node_name, "targetRef": _reference(pod)}


def _endpoint(pod: Pod, service: Any) -> dict[str, Any]:
    serving, leaving = podstate.ready(pod), pod.metadata.deletion_timestamp is not None
    ready = bool(service.spec.get("publishNotReadyAddresses")) or (serving and not leaving)
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": {"ready": ready, "serving": serving, "terminating": leaving},
        "targetRef": _reference(pod),
        "nodeName": pod.spec.node_name,
    }


def _slice(owner: Any, kind: Kind, manager: str, ports: Ports, endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    labels = {**owner.metadata.labels, SERVICE_NAME: owner.metadata.name, MANAGED_BY: manager}
    if kind == SERVICES and owner.spec.get("clusterIP") == "None":
        labels[HEADLESS] = ""
    metadata = {
        "namespace": owner.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owning.reference(kind, owner)],
    }
    family = "IPv6" if any(":" in address for each in endpoints for address in each["addresses"]) else "IPv4"
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": metadata,
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{"name": port[0]} | _plain_port(*port) for port in ports],
    }


def _content(found: Any) -> tuple[Any, ...]:
    return tuple(found.endpoints or ()), tuple(found.ports or ()), found.metadata.labels


def _content_of(body: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(body["endpoints"]), tuple(body["ports"]), body["metadata"]["labels"]


def _written_ports(subset: dict[str, Any]) -> Ports:
    return tuple(
        (port.get("name") or "", port.get("protocol") or "TCP", int(port["port"]), port.get("appProtocol") or "")
        for port in subset.get("ports") or ()
    )


def _written_addresses(subset: dict[str, Any]) -> list[dict[str, Any]]:
    made = []
    for field, ready in (("addresses", True), ("notReadyAddresses", False)):
        for address in subset.get(field) or ():
            more = {key: address[key] for key in ("targetRef", "nodeName", "hostname") if address.get(key)}
            made.append({"addresses": [address.get("ip", "")], "conditions": {"ready": ready}, **more})
    return made


class ApiService(Keyed):
    """The Service ``default/kubernetes``, by which pods find the API, with the address of the server that runs."""

    name = "apiservice"
    kinds: Sequence[Kind] = (SERVICES, ENDPOINTS, ENDPOINT_SLICES)
    KEY: Final = "default/kubernetes"

    def __init__(self, world: World, address: str, port: int) -> None:
        super().__init__(world)
        self._address, self._port = address, port
        self._work.add([self.KEY])

    def concerned(self, change: Change) -> Iterable[str]:
        return [self.KEY] if change.object.key == self.KEY else ()

    def decide(self, key: str, now: float) -> list[Write]:
        labels = {"component": "apiserver", "provider": "kubernetes"}
        port = {"name": "https", "port": self._port, "protocol": "TCP"}
        spec = {"type": "ClusterIP", "ports": [{**port, "port": 443, "targetPort": self._port}], "clusterIP": "10.96.0.1"}
        subsets = [{"addresses": [{"ip": self._address}], "ports": [port]}]
        endpoint = {"addresses": [self._address], "conditions": {"ready": True}}
        return [
            *self._ensure(SERVICES, labels, {"spec": spec}),
            *self._ensure(ENDPOINTS, {SKIP_MIRROR: "true"}, {"subsets": subsets}),
            *self._ensure(
                ENDPOINT_SLICES,
                {SERVICE_NAME: "kubernetes"},
                {"addressType": "IPv4", "endpoints": [endpoint], "ports": [port]},
            ),
        ]

    def _ensure(self, kind: Kind, labels: dict[str, str], content: dict[str, Any]) -> list[Write]:
        known = self.world.get(kind, self.KEY)
        if known is None:
            metadata = {"name": "kubernetes", "namespace": "default", "labels": labels}
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
            return [Write("create", kind, "default", "kubernetes", body)]
        if kind == SERVICES:
            right = (known.spec.get("ports") or [{}])[0].get("targetPort") == self._port
        else:
            shown = {field: msgspec.to_builtins(getattr(known, field)) for field in content if hasattr(known, field)}
            right = all(value == content[field] for field, value in shown.items())
        return [] if right else [Write("patch", kind, "default", "kubernetes", content, uid=known.uid)]
