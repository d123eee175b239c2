"""Short ways to make slices, classes, claims and engines for tests."""

from __future__ import annotations

import itertools
from typing import Any

from dray.api.core import Node
from dray.api.defaults import apply_defaults
from dray.api.gates import Gates
from dray.api.meta import decode
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.devices import Devices, Verdict

Json = dict[str, Any]
DRIVER = "gpu.example.com"
GATES = Gates.dray()

_uids = itertools.count()


def node(name: str = "n1", *, features: tuple[str, ...] = (), **labels: str) -> Node:
    return decode(Node, {"metadata": {"name": name, "labels": labels}, "status": {"declaredFeatures": list(features)}})


def device(name: str, **fields: Any) -> Json:
    """Attributes may be given as plain values: ``device("a", attributes={"numa": 1})``."""
    attributes = {key: _attribute(value) for key, value in fields.pop("attributes", {}).items()}
    return {"name": name, **({"attributes": attributes} if attributes else {}), **fields}


def _attribute(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def slice_(devices: list[Json], *, name: str = "s1", pool: str = "p1", driver: str = DRIVER, **spec: Any) -> ResourceSlice:
    where = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n1"}
    count = spec.pop("count", 1)
    generation = spec.pop("generation", 1)
    pool_spec = {"name": pool, "generation": generation, "resourceSliceCount": count}
    body = {"driver": driver, "pool": pool_spec, "devices": devices, **where, **spec}
    return decode(ResourceSlice, {"metadata": {"name": name}, "spec": body})


def counters(*sets: tuple[str, Json], name: str = "counters", pool: str = "p1", count: int = 2, **spec: Any) -> ResourceSlice:
    shared = [
        {"name": set_name, "counters": {key: {"value": value} for key, value in values.items()}} for set_name, values in sets
    ]
    return slice_([], name=name, pool=pool, count=count, sharedCounters=shared, **spec)


def takes(counter_set: str, groups: tuple[str, ...] = (), **amounts: Any) -> list[Json]:
    entry: Json = {"counterSet": counter_set, "counters": {key: {"value": str(value)} for key, value in amounts.items()}}
    return [{**entry, "compatibilityGroups": list(groups)} if groups else entry]


def class_(name: str = "gpu", *expressions: str, **spec: Any) -> DeviceClass:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return decode(DeviceClass, {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}})


def exactly(name: str = "r", *, cls: str = "gpu", **fields: Any) -> Json:
    selectors = [{"cel": {"expression": expression}} for expression in fields.pop("select", ())]
    return {"name": name, "exactly": {"deviceClassName": cls, **({"selectors": selectors} if selectors else {}), **fields}}


def first_of(name: str, *subs: Json) -> Json:
    return {"name": name, "firstAvailable": [{"name": f"sub{i}", "deviceClassName": "gpu", **sub} for i, sub in enumerate(subs)]}


def claim(*requests: Json, name: str = "c", **devices: Any) -> ResourceClaim:
    plain = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{next(_uids)}"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }
    apply_defaults("resourceclaims", plain, 0.0)
    return decode(ResourceClaim, plain)


def engine(*objects: Any, gates: Gates = GATES, **more: Any) -> Devices:
    """An engine that knows node n1, the class gpu (every device) and the objects given."""
    shares = itertools.count(1)
    made = Devices(gates, new_share=lambda: f"share-{next(shares)}", **more)
    made.put_node(node())
    made.put_class(class_())
    for each in objects:
        if isinstance(each, ResourceSlice):
            made.put_slice(each)
        elif isinstance(each, DeviceClass):
            made.put_class(each)
        elif isinstance(each, DeviceTaintRule):
            made.put_rule(each)
        else:
            made.put_node(each)
    return made


def names(verdict: Verdict) -> list[list[str]]:
    """The devices that each claim got."""
    return [[result.device for result in allocation.devices.results] for allocation in verdict.results]


def take(made: Devices, *claims: ResourceClaim, on: str = "n1") -> Verdict:
    """Allocate and hold."""
    verdict = made.allocate(on, claims)
    assert verdict.ok, verdict.error
    for each, result in zip(claims, verdict.results):
        made.hold(each, result)
    return verdict
