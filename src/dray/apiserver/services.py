"""Addresses and node ports of Services: given by the server, each to one Service at a time.

An address that a client asks for is had if it is free and in the range; where none is asked for, the search starts at a place
that follows from the Service's name, so that the same requests give the same addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from dray.api.kinds import SERVICES
from dray.api.validation.errors import FieldError
from dray.apiserver.errors import invalid
from dray.apiserver.metadata import is_address
from dray.apiserver.registry import Context

Object = dict[str, Any]

ADDRESSES: Final = IPv4Network("10.96.0.0/12")
FIRST: Final = "10.96.0.1"  # of the Service default/kubernetes
PORTS: Final = range(30000, 32768)
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


def give_addresses(service: Object, old: Object | None, context: Context) -> None:
    """Runs before validation: a hook of the kind."""
    spec, before = service["spec"], (old or {}).get("spec") or {}
    if spec.get("type") == "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(field, None)
        return
    if before.get("clusterIP") and not spec.get("clusterIP") and before.get("type") != "ExternalName":
        spec["clusterIP"], spec["clusterIPs"] = before["clusterIP"], before.get("clusterIPs") or [before["clusterIP"]]
    if (spec.get("clusterIP") != "None" and spec.get("clusterIP") != before.get("clusterIP")) or not spec.get("clusterIP"):
        _address(service, context)
    if spec.get("clusterIP"):
        spec["clusterIPs"] = [spec["clusterIP"], *(spec.get("clusterIPs") or [])[1:]]
    _node_ports(service, before, context)


def _address(service: Object, context: Context) -> None:
    spec, metadata = service["spec"], service["metadata"]
    asked = spec.get("clusterIP") or ""
    if asked and not is_address(asked):
        return  # validation says so
    taken = {str(address) for other in _others(service, context) for address in _addresses_of(other)}
    if not asked:
        reserved = taken | ({FIRST} if metadata.get("name") != "kubernetes" else set())
        spec["clusterIP"] = _free(_seed(metadata), ADDRESSES.num_addresses - 2, lambda n: str(ADDRESSES[n + 1]), reserved)
        if not spec["clusterIP"]:
            _refuse(service, "spec.clusterIPs", [], "failed to allocate IP: range is full")
    elif IPv4Address(asked) not in ADDRESSES if ":" not in asked else True:
        message = (
            f"failed to allocate IP {asked}: the provided IP ({asked}) is not in the valid range. The range of valid IPs is "
        )
        _refuse(service, "spec.clusterIPs", [asked], f"{message}{ADDRESSES}")
    elif asked in taken:
        _refuse(service, "spec.clusterIPs", [asked], f"failed to allocate IP {asked}: provided IP is already allocated")


def _addresses_of(service: Object) -> list[str]:
    spec = service.get("spec") or {}
    return [*(spec.get("clusterIPs") or ()), *([spec["clusterIP"]] if spec.get("clusterIP") else ())]


def _node_ports(service: Object, before: Object, context: Context) -> None:
    spec = service["spec"]
    ports = spec.get("ports") or []
    if spec.get("type") not in _WITH_NODE_PORTS:
        for port in ports:
            if before.get("type") in _WITH_NODE_PORTS and port.get("nodePort") in _ports_of(before):
                port.pop("nodePort", None)
        return
    if spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        return
    had = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in before.get("ports") or ()}
    for port in ports:
        if not port.get("nodePort") and (kept := had.get((port.get("protocol"), port.get("port")))):
            port["nodePort"] = kept
    wanted = [port for port in ports if not port.get("nodePort") or port["nodePort"] not in _ports_of(before)]
    if wanted:
        _give_ports(service, wanted, context)


def _give_ports(service: Object, wanted: list[Object], context: Context) -> None:
    taken = {(p.get("protocol", "TCP"), p["nodePort"]) for other in _others(service, context) for p in _with_node_port(other)}
    for index, port in enumerate(service["spec"]["ports"]):
        if not any(port is each for each in wanted):
            continue
        protocol, asked, path = port.get("protocol", "TCP"), port.get("nodePort"), f"spec.ports[{index}].nodePort"
        if asked and asked not in PORTS:
            valid = f"{PORTS[0]}-{PORTS[-1]}"
            _refuse(service, path, asked, f"provided port is not in the valid range. The range of valid ports is {valid}")
        elif asked and (protocol, asked) in taken:
            _refuse(service, path, asked, "provided port is already allocated")
        elif not asked:
            used = {str(number) for _, number in taken}
            found = _free(_seed(service["metadata"], str(index)), len(PORTS), lambda n: str(PORTS[n]), used)
            if not found:
                _refuse(service, path, 0, "failed to allocate a nodePort: range is full")
            port["nodePort"] = int(found)
        taken.add((protocol, port["nodePort"]))


def _ports_of(spec: Object) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


def _with_node_port(service: Object) -> list[Object]:
    return [port for port in (service.get("spec") or {}).get("ports") or () if port.get("nodePort")]


def _others(service: Object, context: Context) -> list[Object]:
    own = service["metadata"].get("namespace"), service["metadata"].get("name")
    found = context.every("services", "")
    return [other for other in found if (other["metadata"].get("namespace"), other["metadata"]["name"]) != own]


def _seed(metadata: Object, *more: str) -> int:
    text = "/".join((metadata.get("namespace") or "", metadata.get("name") or "", *more))
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big")


def _free(seed: int, size: int, shown: Callable[[int], str], taken: set[str]) -> str:
    """The first free one from the seed on; with everything taken, nothing."""
    return next((text for step in range(min(size, len(taken) + 1)) if (text := shown((seed + step) % size)) not in taken), "")


def _refuse(service: Object, path: str, value: Any, message: str) -> None:
    raise invalid(SERVICES, service["metadata"].get("name") or "", [FieldError(path, "Invalid", value, message)])
