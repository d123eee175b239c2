"""One line of ``dray allocate`` as plain values: the pools that a node sees, what is taken, what is asked.

Written from the API's rules alone and on purpose without any of Dray's own code for devices, so that two readings of the
rules can be compared. Nothing here is clever: everything is computed from the whole input each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Json = dict[str, Any]
DeviceId = tuple[str, str, str]

FEATURES = (
    "AdminAccess",
    "CompatibilityGroups",
    "ConsumableCapacity",
    "DerivedAttributes",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "FractionalCapacityRange",
    "ListTypeAttributes",
    "OptionalNodeOperations",
    "PartitionableDevices",
    "PrioritizedList",
)
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class Fatal(Exception):
    """The pod cannot be scheduled anywhere as it stands."""


class Refused(Exception):
    """This node cannot take the pod, whatever the search would find."""


def quantity(text: str | int | float) -> Fraction:
    """The exact value of a Kubernetes quantity."""
    found = re.fullmatch(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))", str(text))
    if not found:
        raise ValueError(f"not a quantity: {text}")
    number, exponent, suffix = found.groups()
    if exponent is not None:
        return Fraction(number) * Fraction(10) ** int(exponent)
    if suffix in _BINARY:
        return Fraction(number) * _BINARY[suffix]
    return Fraction(number) * Fraction(10) ** _DECIMAL[suffix]


@dataclass(frozen=True)
class Device:
    """A published device as a node sees it."""

    driver: str
    pool: str
    raw: Json
    slice: Json
    here: bool
    """Whether its node selection matches the node."""

    @property
    def id(self) -> DeviceId:
        return self.driver, self.pool, self.raw["name"]

    @property
    def conditioned(self) -> bool:
        return bool(self.raw.get("bindingConditions"))

    @property
    def consumes(self) -> list[Json]:
        found: list[Json] = self.raw.get("consumesCounters") or []
        return found

    @property
    def grouped(self) -> bool:
        return any(c.get("compatibilityGroups") for c in self.consumes)


@dataclass
class Pool:
    driver: str
    name: str
    state: str
    """complete, incomplete or invalid; only a complete pool gives devices."""
    devices: list[Device] = field(default_factory=list)
    """In slices that are relevant for the node, in order of slice name."""
    everywhere: list[Device] = field(default_factory=list)
    """Those and the ones of slices for other nodes."""
    counters: dict[str, dict[str, Fraction]] = field(default_factory=dict)

    @property
    def conditioned(self) -> bool:
        return any(d.conditioned for d in self.devices)


@dataclass(frozen=True)
class Request:
    """One alternative of a request: a request of kind ``exactly`` has one, ``firstAvailable`` one per subrequest."""

    name: str
    parent: str
    raw: Json

    @property
    def all(self) -> bool:
        return bool(self.raw["allocationMode"] == "All")

    @property
    def admin(self) -> bool:
        return bool(self.raw.get("adminAccess"))

    @property
    def asked(self) -> dict[str, Any]:
        return (self.raw.get("capacity") or {}).get("requests") or {}

    @property
    def in_result(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def covered_by(self, names: list[str] | None) -> bool:
        """Whether a list of request references speaks of this one."""
        return not names or self.in_result in names or (bool(self.parent) and self.parent in names)


@dataclass
class Taken:
    """What earlier allocations hold. Results with admin access hold nothing."""

    exclusive: set[DeviceId] = field(default_factory=set)
    shared: set[DeviceId] = field(default_factory=set)
    capacity: dict[DeviceId, dict[str, Fraction]] = field(default_factory=dict)
    groups: dict[DeviceId, dict[str, list[str]]] = field(default_factory=dict)
    """Snapshots of compatibility groups by counter set, where the claim carries one."""

    def holds(self, device: DeviceId) -> bool:
        return device in self.exclusive or device in self.shared or device in self.capacity


class Problem:
    """The claims of one pod on one node."""

    def __init__(self, line: Json) -> None:
        self.line = line
        self.node: Json = line["node"]
        features = line.get("features") or {}
        self.on = {name: features.get(name, True) for name in FEATURES}
        self.classes = {c["metadata"]["name"]: c for c in line.get("classes") or []}
        self.claims: list[Json] = line["claims"]
        self.requests = [list(_requests(c, bool(line.get("raw")))) for c in self.claims]
        self.taken = self._taken(line.get("allocatedClaims") or [])
        self.pools = sorted(self._pools(line.get("slices") or []), key=lambda p: (p.driver, p.name))

    def _taken(self, claims: list[Json]) -> Taken:
        taken = Taken()
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or []:
                if not result.get("adminAccess"):
                    self._take(taken, result)
        return taken

    def _take(self, taken: Taken, result: Json) -> None:
        device = (result["driver"], result["pool"], result["device"])
        if result.get("shareID") and self.on["ConsumableCapacity"]:
            taken.shared.add(device)
            sums = taken.capacity.setdefault(device, {})
            for name, value in (result.get("consumedCapacity") or {}).items():
                sums[name] = sums.get(name, Fraction(0)) + quantity(value)
        else:
            taken.exclusive.add(device)
        if result.get("compatibilityGroups") is not None:
            taken.groups[device] = result["compatibilityGroups"]

    def _pools(self, slices: list[Json]) -> Iterator[Pool]:
        for driver, name in {_pool_key(s) for s in slices}:
            pool = self._pool(driver, name, [s for s in slices if _pool_key(s) == (driver, name)])
            if pool:
                yield pool

    def _understood(self, item: Json) -> bool:
        spec = item["spec"]
        if self.on["PartitionableDevices"]:
            return True
        return not (spec.get("perDeviceNodeSelection") or spec.get("sharedCounters"))

    def _pool(self, driver: str, name: str, slices: list[Json]) -> Pool | None:
        relevant = [s for s in slices if self._understood(s) and self._relevant(s["spec"])]
        if not relevant:
            return None
        generation = max(_generation(s) for s in relevant)
        kept = [s for s in relevant if _generation(s) == generation]
        wanted = kept[0]["spec"]["pool"]["resourceSliceCount"]
        others: list[Json] = []
        if len(kept) != wanted:
            if any(_generation(s) > generation for s in slices):
                return None
            same = [s for s in slices if _generation(s) == generation]
            if len(same) != wanted:
                return Pool(driver, name, "incomplete")
            others = [s for s in same if s not in kept]
        return self._contents(driver, name, sorted(kept, key=_name), sorted(others, key=_name))

    def _contents(self, driver: str, name: str, kept: list[Json], others: list[Json]) -> Pool:
        devices = [d for s in kept for d in self._devices(s)]
        pool = Pool(driver, name, "complete", devices, devices + [d for s in others for d in self._devices(s)])
        sets = [c for s in kept + others for c in s["spec"].get("sharedCounters") or []]
        pool.counters = {c["name"]: {n: quantity(v["value"]) for n, v in (c.get("counters") or {}).items()} for c in sets}
        names = [d.raw["name"] for d in devices]
        invalid = len(set(names)) != len(names)
        if self.on["PartitionableDevices"]:
            invalid |= len(pool.counters) != len(sets)
            invalid |= any(not _known(c, pool.counters) for d in pool.everywhere for c in d.consumes)
        if invalid:
            return Pool(driver, name, "invalid")
        return pool

    def _devices(self, item: Json) -> Iterator[Device]:
        spec = item["spec"]
        for raw in spec.get("devices") or []:
            here = self._selected(raw) if spec.get("perDeviceNodeSelection") else True
            yield Device(spec["driver"], spec["pool"]["name"], raw, item, here)

    def _relevant(self, spec: Json) -> bool:
        if spec.get("perDeviceNodeSelection"):
            return any(self._selected(d) for d in spec.get("devices") or [])
        return self._selected(spec)

    def _selected(self, where: Json) -> bool:
        if where.get("nodeName"):
            return bool(where["nodeName"] == self.node["metadata"]["name"])
        if where.get("allNodes"):
            return True
        if where.get("nodeSelector"):
            return node_matches(self.node, where["nodeSelector"])
        return False


def _requests(claim: Json, raw: bool) -> Iterator[list[Request]]:
    for request in (claim["spec"].get("devices") or {}).get("requests") or []:
        if request.get("firstAvailable"):
            yield [Request(s["name"], request["name"], _defaulted(s, raw)) for s in request["firstAvailable"]]
        else:
            yield [Request(request["name"], "", _defaulted(request.get("exactly") or {}, raw))]


def _defaulted(request: Json, raw: bool) -> Json:
    if raw:
        return {"allocationMode": "", "count": 0, **request}
    filled = {**request, "allocationMode": request.get("allocationMode") or "ExactCount"}
    if filled["allocationMode"] == "ExactCount":
        filled["count"] = request.get("count") or 1
    return filled


def _pool_key(item: Json) -> tuple[str, str]:
    return item["spec"]["driver"], item["spec"]["pool"]["name"]


def _generation(item: Json) -> int:
    found: int = item["spec"]["pool"].get("generation", 0)
    return found


def _name(item: Json) -> str:
    found: str = item["metadata"]["name"]
    return found


def _known(consumed: Json, counters: dict[str, dict[str, Fraction]]) -> bool:
    known = counters.get(consumed["counterSet"])
    return known is not None and all(n in known for n in consumed.get("counters") or {})


def node_matches(node: Json, selector: Json) -> bool:
    """Terms are alternatives; a term without requirements matches nothing."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or []:
        wanted = [(labels, e) for e in term.get("matchExpressions") or []]
        wanted += [(fields, e) for e in term.get("matchFields") or []]
        if wanted and all(_requirement(values, e) for values, e in wanted):
            return True
    return False


def _requirement(values: dict[str, str], expression: Json) -> bool:
    key: str = expression["key"]
    operator: str = expression["operator"]
    wanted: list[str] = expression.get("values") or []
    if operator in ("Exists", "DoesNotExist"):
        return (key in values) == (operator == "Exists")
    if operator in ("In", "NotIn"):
        return (values.get(key) in wanted) == (operator == "In")
    if key not in values:
        return False
    return int(values[key]) > int(wanted[0]) if operator == "Gt" else int(values[key]) < int(wanted[0])
