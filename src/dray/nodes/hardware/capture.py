"""Descriptions of hardware that a cluster has: what its nodes and slices show, without what makes each of them one of a kind.

Always true: nodes with the same room and the same devices become one description; names of nodes and identities of devices
(UUIDs, serial numbers, MAC addresses) are replaced, so that the description can be made in any number and passed on; made
without a number, it is as many as there were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.nodes.faults import SIMULATED
from dray.nodes.hardware.description import API_VERSION, HARDWARE

_IDENTITY_NAME: Final = re.compile(r"(uuid|guid|serial|serialnumber|mac|macaddress)$", re.IGNORECASE)
_IDENTITY: Final = re.compile(r"([A-Z]+-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)
_OWN_LABELS: Final = ("kubernetes.io/hostname", SIMULATED, HARDWARE)

Manifest = dict[str, Any]


class Captured(msgspec.Struct):
    """A description, and the nodes that it was made from."""

    document: Manifest
    nodes: list[str]
    devices: int


def captured(nodes: Iterable[Manifest], slices: Iterable[Manifest], classes: Iterable[Manifest], name: str) -> list[Captured]:
    """The hardware of some nodes. Slices of no single node are one more description, made once."""
    newest = _newest(slices)
    local: dict[str, list[Manifest]] = {}
    for each in newest:
        local.setdefault(each["spec"].get("nodeName") or "", []).append(each)
    alike: dict[bytes, tuple[Manifest, list[Manifest]]] = {}
    for node in nodes:
        shape = _machine(node, local.get(node["metadata"]["name"], []))
        alike.setdefault(msgspec.json.encode(shape, order="sorted"), (shape, []))[1].append(node)
    found = [_described(shape, group, f"{name}-{place}") for place, (shape, group) in enumerate(alike.values(), 1)]
    if shared := local.get("", []):
        once = [_shared(each) for each in shared]
        document = _document(f"{name}-shared", "Devices of no single node.", once, [])
        found.append(Captured(document, [], sum(len(each["spec"].get("devices") or ()) for each in once)))
    wanted = [_class(each) for each in classes]
    for made in found:
        made.document["once"] = wanted + made.document["once"]
    return found


def _newest(slices: Iterable[Manifest]) -> list[Manifest]:
    """Without those that a newer generation of their pool has replaced."""
    kept = sorted(slices, key=lambda each: str(each["metadata"]["name"]))
    newest: dict[tuple[str, str], int] = {}
    for each in kept:
        pool = each["spec"]["pool"]
        key = (each["spec"]["driver"], pool["name"])
        newest[key] = max(newest.get(key, 0), pool.get("generation", 0))
    return [
        each
        for each in kept
        if each["spec"]["pool"].get("generation", 0) == newest[each["spec"]["driver"], each["spec"]["pool"]["name"]]
    ]


def _machine(node: Manifest, slices: Sequence[Manifest]) -> Manifest:
    """What nodes are compared by: their room and their devices."""
    name, status = node["metadata"]["name"], node.get("status") or {}
    room = {key: status[key] for key in ("capacity", "allocatable") if status.get(key)}
    return {"status": room, "slices": [_local(each, name) for each in slices]}


def _local(slice_: Manifest, node: str) -> Manifest:
    spec = _plain_spec(slice_["spec"], node)
    pool = slice_["spec"]["pool"]["name"]
    spec.pop("nodeName", None)
    if pool != node:
        spec["pool"] = {"name": _hidden(pool, node) if node in pool else f"{{node}}-{_escaped(pool)}"}
    return {"kind": "ResourceSlice", "spec": spec}


def _shared(slice_: Manifest) -> Manifest:
    spec = _plain_spec(slice_["spec"], "")
    return {"kind": "ResourceSlice", "spec": {**spec, "pool": {"name": _escaped(slice_["spec"]["pool"]["name"])}}}


def _plain_spec(spec: Manifest, node: str) -> Manifest:
    kept = {key: _replaced(value, node) for key, value in spec.items() if key not in ("pool", "devices")}
    if spec.get("devices"):
        kept["devices"] = [_device(device, node) for device in spec["devices"]]
    return kept


def _device(device: Manifest, node: str) -> Manifest:
    # Names of devices and counters are the driver's, and may happen to look like a node's.
    own: Manifest = {key: _replaced(device[key], "") for key in ("name", "consumesCounters") if key in device}
    made: Manifest = {**_replaced(device, node), **own}
    for name, attribute in (made.get("attributes") or {}).items():
        text = attribute.get("string")
        if text and (_IDENTITY_NAME.search(name) or _IDENTITY.fullmatch(text)):
            attribute["string"] = f"{{node}}-{made['name']}" if node else made["name"]
    for taint in made.get("taints") or ():
        taint.pop("timeAdded", None)
    return made


def _replaced(value: Any, node: str) -> Any:
    """Without the node's name, and with braces that stay braces."""
    if isinstance(value, str):
        return _hidden(value, node)
    if isinstance(value, list):
        return [_replaced(item, node) for item in value]
    if isinstance(value, dict):
        return {_hidden(key, node): _replaced(item, node) for key, item in value.items()}
    return value


def _hidden(text: str, node: str) -> str:
    return "{node}".join(_escaped(part) for part in text.split(node)) if node and node in text else _escaped(text)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _described(shape: Manifest, group: Sequence[Manifest], name: str) -> Captured:
    names = [node["metadata"]["name"] for node in group]
    labels = _common([node["metadata"].get("labels") or {} for node in group])
    drivers: dict[str, int] = {}
    for each in shape["slices"]:
        drivers[each["spec"]["driver"]] = drivers.get(each["spec"]["driver"], 0) + len(each["spec"].get("devices") or ())
    text = ", ".join(f"{count} of {driver}" for driver, count in sorted(drivers.items()) if count)
    node: Manifest = {"kind": "Node", "metadata": {"labels": labels}, "status": shape["status"]}
    document = _document(name, f"Nodes with devices: {text}." if text else "Nodes without devices.", [], [node, *shape["slices"]])
    return Captured({**document, "count": len(names)}, names, sum(drivers.values()))


def _common(labels: Sequence[Manifest]) -> Manifest:
    """The labels that all have; what only one has says who it is."""
    first, *others = labels
    return {
        _escaped(key): _escaped(value)
        for key, value in first.items()
        if key not in _OWN_LABELS and all(other.get(key) == value for other in others)
    }


def _document(name: str, text: str, once: list[Manifest], each: list[Manifest]) -> Manifest:
    head = {"apiVersion": API_VERSION, "kind": "Hardware", "metadata": {"name": name}, "description": text}
    return {**head, "once": once, "each": each}


def _class(found: Manifest) -> Manifest:
    return {
        "kind": "DeviceClass",
        "metadata": {"name": found["metadata"]["name"]},
        "spec": _replaced(found.get("spec") or {}, ""),
    }
