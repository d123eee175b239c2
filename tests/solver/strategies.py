"""Random small clusters and claims in the form of ``dray allocate``, with every feature mixed.

At most three nodes that see at most about six devices each. What is taken was allocated by the exhaustive solver, so the
state is one that a cluster can be in. Expressions come from a list with a Python reading of each, so that the solver needs
no expression engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.solver.assembly import allocations
from tests.solver.model import FEATURES, Device, Fatal, Json, Problem, quantity
from tests.solver.search import TooLarge, solve

GPU, NIC = "gpu.example.com", "nic.example.com"
Draw = Callable[[st.SearchStrategy[Any]], Any]

# ------------------------------------------------------------------------------------------------------ expressions


def _attribute(device: Device, name: str) -> Any:
    value = _published(device, name)
    if value is None:
        raise Fatal(f"no such key: {name}")
    return next(iter(value.values()))


def _published(device: Device, name: str) -> Any:
    """A bare attribute as ``device.attributes["gpu.example.com"]`` shows it."""
    found = device.raw.get("attributes") or {}
    return found.get(name) if device.driver == GPU else None


def _memory(device: Device) -> Any:
    found = (device.raw.get("capacity") or {}).get("memory")
    if found is None or device.driver != GPU:
        raise Fatal("no such key: memory")
    return quantity(found["value"])


CONDITIONS: dict[str, Callable[[Device], Any]] = {
    "true": lambda d: True,
    f'device.driver == "{GPU}"': lambda d: d.driver == GPU,
    f'device.driver == "{NIC}"': lambda d: d.driver == NIC,
    "device.allowMultipleAllocations": lambda d: bool(d.raw.get("allowMultipleAllocations")),
    f'device.attributes["{GPU}"].model == "a"': lambda d: _attribute(d, "model") == "a",
    f'has(device.attributes["{GPU}"].model) && device.attributes["{GPU}"].model == "b"': lambda d: (
        (_published(d, "model") or {}).get("string") == "b"
    ),
    f'!("numa" in device.attributes["{GPU}"]) || device.attributes["{GPU}"].numa == 0': lambda d: (
        (_published(d, "numa") or {}).get("int", 0) == 0
    ),
    f'device.driver == "{GPU}" && device.capacity["{GPU}"].memory.compareTo(quantity("4")) >= 0': lambda d: (
        d.driver == GPU and _memory(d) >= 4
    ),
}
DERIVED: dict[str, Callable[[Device], Any]] = {
    f'device.attributes["{GPU}"].numa': lambda d: _attribute(d, "numa"),
    f'"model" in device.attributes["{GPU}"] ? device.attributes["{GPU}"].model : "none"': lambda d: (
        _published(d, "model") or {"string": "none"}
    )["string"],
}


def evaluate(expression: str, device: Device) -> Any:
    return {**CONDITIONS, **DERIVED}[expression](device)


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


CLASSES: list[Json] = [
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [_cel(f'device.driver == "{GPU}"')]}},
    {"metadata": {"name": "nic"}, "spec": {"selectors": [_cel(f'device.driver == "{NIC}"')]}},
    {"metadata": {"name": "any"}, "spec": {"config": [{"opaque": {"driver": GPU, "parameters": {"mode": "any"}}}]}},
]

# ----------------------------------------------------------------------------------------------------------- devices

_TAINTS = [
    {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
    {"key": "example.com/broken", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    {"key": "example.com/note", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"},
]
_TOLERATIONS = [
    {"key": "example.com/broken", "operator": "Exists"},
    {"key": "example.com/broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    {"operator": "Exists", "effect": "NoExecute"},
]
_POLICIES: list[Json] = [
    {},
    {"requestPolicy": {"default": "1", "validValues": ["1", "2", "4"]}},
    {"requestPolicy": {"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}}},
    {"requestPolicy": {"default": "500m", "validRange": {"min": "500m", "step": "500m"}}},
    {"requestPolicy": {"default": "0"}},
]
_GROUPS = [[], ["mig"], ["vgpu"], ["mig", "vgpu"]]


def _rarely() -> st.SearchStrategy[bool]:
    return st.integers(0, 5).map(lambda n: n == 5)


@st.composite
def attributes(draw: Draw) -> Json:
    found: Json = {"model": {"string": draw(st.sampled_from("ab"))}, "numa": {"int": draw(st.integers(0, 1))}}
    found["example.org/zones"] = draw(
        st.sampled_from([{"strings": ["x"]}, {"strings": ["x", "y"]}, {"strings": ["y", "z"]}, {"string": "y"}])
    )
    for name in list(found):
        if draw(_rarely()):
            del found[name]
    return found


@st.composite
def devices(draw: Draw, name: str, *, counters: bool, conditions: bool) -> Json:
    """One device; ``counters`` makes it a partition of counter set cs-0 or cs-1 or both."""
    found: Json = {"name": name, "attributes": draw(attributes())}
    if draw(st.booleans()):
        found["capacity"] = {"memory": {"value": str(draw(st.sampled_from([2, 4, 8])))}}
        if draw(st.booleans()):
            found["allowMultipleAllocations"] = True
            found["capacity"]["memory"] |= draw(st.sampled_from([p for p in _POLICIES if _suits(p, found)]))
    if draw(_rarely()):
        found["taints"] = draw(st.lists(st.sampled_from(_TAINTS), min_size=1, max_size=2, unique_by=str))
    if conditions and draw(st.booleans()):
        found |= {"bindingConditions": ["example.com/ready"], "bindingFailureConditions": ["example.com/failed"]}
        found["bindsToNode"] = draw(st.booleans())
    if counters:
        sets = draw(st.sampled_from([["cs-0"], ["cs-1"], ["cs-0", "cs-1"], []]))
        found["consumesCounters"] = [draw(consumptions(s)) for s in sets]
    return found


def _suits(policy: Json, device: Json) -> bool:
    highest = {"validValues": 4, "validRange": 6}
    return all(
        int(device["capacity"]["memory"]["value"]) >= limit
        for key, limit in highest.items()
        if key in policy.get("requestPolicy", {}) and policy["requestPolicy"]["default"] != "500m"
    )


@st.composite
def consumptions(draw: Draw, name: str) -> Json:
    units = {"units": {"value": str(draw(st.sampled_from([1, 1, 2, 3])))}}
    groups = draw(st.sampled_from(_GROUPS))
    return {"counterSet": name, "counters": units, **({"compatibilityGroups": groups} if groups else {})}


# ------------------------------------------------------------------------------------------------------------- slices


@st.composite
def pools(draw: Draw, driver: str, name: str, where: Json, size: int) -> list[Json]:
    """The slices of one pool: devices in one or two of them, counters in one of their own; sometimes one is missing."""
    counters, conditions = draw(st.integers(0, 2)) == 2, draw(_rarely())
    made = [draw(devices(f"d{i}", counters=counters, conditions=conditions)) for i in range(size)]
    if where.get("perDeviceNodeSelection"):
        made = [d | draw(st.sampled_from([{"nodeName": "n0"}, {"nodeName": "n1"}, {"allNodes": True}])) for d in made]
    cut = draw(st.integers(0, size))
    parts: list[Json] = [{"devices": part} for part in (made[:cut], made[cut:]) if part]
    if counters:
        limits = {f"cs-{i}": draw(st.integers(2, 6)) for i in range(2)}
        sets = [{"name": n, "counters": {"units": {"value": str(v)}}} for n, v in limits.items()]
        parts.append({"sharedCounters": sets})
    missing = int(draw(_rarely()) and draw(st.booleans()))
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts) + missing}
    skip = {"skipNodeOperations": ["*"]} if draw(_rarely()) and draw(st.booleans()) else {}
    return [_slice(f"{name}-{i}", driver, pool, where | part | skip) for i, part in enumerate(parts)]


def _slice(name: str, driver: str, pool: Json, spec: Json) -> Json:
    if "sharedCounters" in spec and spec.get("perDeviceNodeSelection"):
        spec = {k: v for k, v in spec.items() if k != "perDeviceNodeSelection"} | {"allNodes": True}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": pool, **spec}}


_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0"]}]}]}


@st.composite
def slices(draw: Draw, nodes: int) -> list[Json]:
    """A local pool for each node, and sometimes one that several nodes see."""
    found: list[Json] = []
    for i in range(nodes):
        driver = draw(st.sampled_from([GPU, GPU, NIC]))
        found += draw(pools(driver, f"n{i}-local", {"nodeName": f"n{i}"}, draw(st.integers(2, 5))))
    if draw(st.booleans()):
        where = draw(st.sampled_from([{"allNodes": True}, {"nodeSelector": _ZONE}, {"perDeviceNodeSelection": True}]))
        found += draw(pools(draw(st.sampled_from([GPU, NIC])), "fabric", where, draw(st.integers(1, 2))))
    shuffled: list[Json] = draw(st.permutations(found))
    return shuffled


# ------------------------------------------------------------------------------------------------------------- claims


@st.composite
def exact_requests(draw: Draw) -> Json:
    found: Json = {"deviceClassName": draw(st.sampled_from(["gpu", "any", "any", "nic"]))}
    if draw(_rarely()):
        found["allocationMode"] = "All"
    else:
        found["count"] = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    if draw(_rarely()):
        found["selectors"] = [_cel(draw(st.sampled_from(sorted(CONDITIONS))))]
    if draw(_rarely()):
        found["tolerations"] = draw(st.lists(st.sampled_from(_TOLERATIONS), min_size=1, max_size=2, unique_by=str))
    if draw(_rarely()):
        found["capacity"] = {"requests": {"memory": draw(st.sampled_from(["500m", "1", "2", "3", "4"]))}}
    return found


@st.composite
def requests(draw: Draw, name: str) -> Json:
    if draw(_rarely()):
        alternatives = [draw(exact_requests()) | {"name": f"sub-{i}"} for i in range(draw(st.integers(1, 3)))]
        return {"name": name, "firstAvailable": alternatives}
    exactly = draw(exact_requests())
    if draw(_rarely()) and draw(st.booleans()):
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


@st.composite
def constraints(draw: Draw, names: list[str]) -> Json:
    attribute = draw(st.sampled_from([f"{GPU}/model", f"{GPU}/numa", "example.org/zones", f"{NIC}/numa"]))
    kind = draw(st.sampled_from(["matchAttribute", "matchAttribute", "distinctAttribute"]))
    some = draw(st.lists(st.sampled_from(names), unique=True))
    return {kind: attribute, **({"requests": some} if some else {})}


@st.composite
def claims(draw: Draw, name: str) -> Json:
    asked = [draw(requests(f"r{i}")) for i in range(draw(st.sampled_from([1, 1, 1, 2, 3])))]
    names = [r["name"] for r in asked]
    spec: Json = {"requests": asked}
    if draw(st.integers(0, 2)) == 2:
        spec["constraints"] = [draw(constraints(names)) for _ in range(draw(st.integers(1, 2)))]
    if draw(_rarely()):
        _derive(draw, spec)
    if draw(_rarely()):
        some = draw(st.lists(st.sampled_from(names), unique=True))
        config = {"opaque": {"driver": GPU, "parameters": {"mode": "claim"}}}
        spec["config"] = [config | ({"requests": some} if some else {})]
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": {"devices": spec}}


def _derive(draw: Draw, spec: Json) -> None:
    """A derived attribute for the first request, and a constraint that uses it."""
    request = spec["requests"][0]
    expression = draw(st.sampled_from(sorted(DERIVED)))
    for target in request.get("firstAvailable") or [request["exactly"]]:
        target["derivedAttributes"] = [{"name": "derived.example.com/key", "expression": expression}]
    spec.setdefault("constraints", []).append({"matchAttribute": "derived.example.com/key", "requests": [request["name"]]})


# ------------------------------------------------------------------------------------------------------------- lines


@st.composite
def lines(draw: Draw) -> Json:
    """One question: nodes, slices, what is taken, and the claims of one pod on one node."""
    count = draw(st.integers(1, 3))
    nodes = [_node(draw, i) for i in range(count)]
    features = {draw(st.sampled_from(FEATURES)): False} if draw(_rarely()) else {}
    line: Json = {
        "features": features,
        "node": nodes[0],
        "nodes": nodes,
        "classes": CLASSES,
        "slices": draw(slices(count)),
        "allocatedClaims": [],
    }
    shares = itertools.count(1_000_000)
    for number in range(draw(st.sampled_from([0, 0, 1, 2, 3]))):
        earlier = {**line, "features": {}, "node": draw(st.sampled_from(nodes)), "claims": [draw(claims(f"earlier-{number}"))]}
        line["allocatedClaims"] = [*line["allocatedClaims"], *_allocated(earlier, shares)]
    line["claims"] = [draw(claims(f"claim-{i}")) for i in range(draw(st.sampled_from([1, 1, 1, 2, 3])))]
    return line


def _node(draw: Draw, number: int) -> Json:
    features = {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}} if draw(st.booleans()) else {}
    labels = {"zone": draw(st.sampled_from(["z0", "z1"]))}
    return {"metadata": {"name": f"n{number}", "labels": labels}, **features}


def _allocated(earlier: Json, shares: Any) -> list[Json]:
    """The earlier claim with its allocation, if it had one."""
    problem = Problem(earlier)
    try:
        answer = solve(problem, evaluate, steps=5_000)
    except TooLarge:
        return []
    if answer.outcome != "ok":
        return []
    (allocation,) = allocations(problem, answer.picks, shares)
    return [{**earlier["claims"][0], "status": {"allocation": allocation}}]
