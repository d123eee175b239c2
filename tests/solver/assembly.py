"""From picks to AllocationResults: what is written into a claim, and a form of it in which two answers can be compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from tests.solver.model import Json, Problem, Request, quantity
from tests.solver.search import Pick


def allocations(problem: Problem, picks: Iterable[Pick], shares: Iterator[int] | None = None) -> list[Json]:
    """One AllocationResult per claim. Share ids are numbers from ``shares``."""
    numbers = shares or itertools.count(1)
    by_claim = [[p for p in picks if p.claim == i] for i in range(len(problem.claims))]
    return [_allocation(problem, i, mine, numbers) for i, mine in enumerate(by_claim)]


def _allocation(problem: Problem, claim: int, picks: list[Pick], shares: Iterator[int]) -> Json:
    devices: Json = {"results": [_result(problem, p, shares) for p in picks]}
    config = _config(problem, claim, picks)
    if config:
        devices["config"] = config
    selector = _node_selector(problem, picks)
    return {"devices": devices, **({"nodeSelector": selector} if selector else {})}


def _result(problem: Problem, pick: Pick, shares: Iterator[int]) -> Json:
    raw, request = pick.device.raw, pick.request
    result: Json = {
        "request": request.in_result,
        "driver": pick.device.driver,
        "pool": pick.device.pool,
        "device": raw["name"],
    }
    optional = {
        "adminAccess": request.admin,
        "tolerations": request.raw.get("tolerations"),
        "skipNodeOperations": pick.device.slice["spec"].get("skipNodeOperations"),
    }
    if problem.on["DeviceBindingAndStatus"]:
        optional["bindingConditions"] = raw.get("bindingConditions")
        optional["bindingFailureConditions"] = raw.get("bindingFailureConditions")
    if pick.shared:
        optional["shareID"] = f"00000000-0000-4000-8000-{next(shares):012d}"
        optional["consumedCapacity"] = {n: text(v) for n, v in pick.consumed.items()}
    if any(c.get("compatibilityGroups") for c in pick.device.consumes):
        optional["compatibilityGroups"] = {c["counterSet"]: c.get("compatibilityGroups") or [] for c in pick.device.consumes}
    return result | {k: v for k, v in optional.items() if v}


def text(value: Fraction) -> str:
    """A quantity in whole units, or in thousandths where it is not whole."""
    return str(value) if value.denominator == 1 else f"{value * 1000}m"


def _config(problem: Problem, claim: int, picks: list[Pick]) -> list[Json]:
    spec = problem.claims[claim]["spec"]["devices"]
    chosen = _chosen(problem, claim, picks)
    names = [r.in_result for r in chosen]
    entries: list[tuple[list[str], Json]] = []
    for class_name in dict.fromkeys(r.raw["deviceClassName"] for r in chosen):
        using = [r.in_result for r in chosen if r.raw["deviceClassName"] == class_name]
        configs = problem.classes[class_name]["spec"].get("config") or []
        entries += [(using, {"source": "FromClass", **c}) for c in configs]
    for config in spec.get("config") or []:
        wanted = config.get("requests") or []
        if any(r.covered_by(wanted) for r in chosen):
            entries.append((wanted, {"source": "FromClaim", **config}))
    return [_scoped(entry, listed, chosen, names) for listed, entry in entries]


def _scoped(entry: Json, listed: list[str], chosen: list[Request], names: list[str]) -> Json:
    """An entry that speaks of every request carries no list."""
    bare = {k: v for k, v in entry.items() if k != "requests"}
    if not listed or all(r.covered_by(listed) for r in chosen):
        return bare
    return {**bare, "requests": listed}


def _chosen(problem: Problem, claim: int, picks: list[Pick]) -> list[Request]:
    """The alternative of each request that was taken."""
    taken = {id(p.request) for p in picks}
    return [r for alternatives in problem.requests[claim] for r in alternatives if id(r) in taken]


def _node_selector(problem: Problem, picks: list[Pick]) -> Json | None:
    expressions: list[Json] = []
    fields: list[Json] = []
    for pick in picks:
        spec = pick.device.slice["spec"]
        where = pick.device.raw if spec.get("perDeviceNodeSelection") else spec
        if where.get("nodeName") or pick.device.raw.get("bindsToNode"):
            name = problem.node["metadata"]["name"]
            pin = {"key": "metadata.name", "operator": "In", "values": [name]}
            return {"nodeSelectorTerms": [{"matchFields": [pin]}]}
        for term in (where.get("nodeSelector") or {}).get("nodeSelectorTerms") or []:
            expressions += [e for e in term.get("matchExpressions") or [] if e not in expressions]
            fields += [e for e in term.get("matchFields") or [] if e not in fields]
    term = {"matchExpressions": expressions} if expressions else {}
    term |= {"matchFields": fields} if fields else {}
    return {"nodeSelectorTerms": [term]} if term else None


# ------------------------------------------------------------------------------------------------------- comparison


def comparable(allocation: Json, *, upstream: bool = False) -> Json:
    """An AllocationResult without what may differ: share ids, the writing of quantities, empty lists and maps.
    ``upstream``: also without the snapshot of compatibility groups, which upstream does not write."""
    devices = allocation.get("devices") or {}
    selector = allocation.get("nodeSelector") or {}
    return {
        "results": [_comparable(r, upstream) for r in devices.get("results") or []],
        "config": [{k: v for k, v in c.items() if v} for c in devices.get("config") or []],
        "terms": [_term(t) for t in selector.get("nodeSelectorTerms") or []],
    }


def _comparable(result: Json, upstream: bool) -> Json:
    kept: Json = {k: v for k, v in result.items() if v not in (None, [], {}, False)}
    if "shareID" in kept:
        kept["shareID"] = True
    if "consumedCapacity" in kept:
        kept["consumedCapacity"] = {n: quantity(v) for n, v in kept["consumedCapacity"].items()}
    if upstream:
        kept.pop("compatibilityGroups", None)
    return kept


def _term(term: Json) -> Any:
    return {kind: sorted(map(repr, requirements)) for kind, requirements in term.items() if requirements}
