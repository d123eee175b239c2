"""Whether a given answer keeps every rule, judged from the end state alone: no order, no search, only sums and sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from tests.solver import rules
from tests.solver.model import Device, DeviceId, Json, Problem, Request, quantity
from tests.solver.rules import Evaluate
from tests.solver.search import LIMIT, counters_suffice, groups_held, groups_of


@dataclass(frozen=True)
class Placed:
    claim: int
    request: Request
    device: Device
    raw: Json


def violations(problem: Problem, results: list[Json], evaluate: Evaluate) -> list[str]:
    """Every broken rule in words; an empty list means that the answer is valid."""
    if len(results) != len(problem.claims):
        return [f"{len(results)} results for {len(problem.claims)} claims"]
    placed, broken = _placed(problem, results)
    if broken:
        return broken
    checks = (_requests, _devices, _exclusive, _capacity, _counters, _constraints)
    return [problem_found for check in checks for problem_found in check(problem, placed, evaluate)]


def _placed(problem: Problem, results: list[Json]) -> tuple[list[Placed], list[str]]:
    devices = {d.id: d for p in problem.pools if p.state == "complete" for d in p.devices}
    placed, broken = [], []
    for number, allocation in enumerate(results):
        known = {r.in_result: r for alternatives in problem.requests[number] for r in alternatives}
        for raw in (allocation.get("devices") or {}).get("results") or []:
            device = devices.get((raw["driver"], raw["pool"], raw["device"]))
            if device is None or raw["request"] not in known:
                broken.append(f"{raw['request']}: no such device or request: {raw['driver']}/{raw['pool']}/{raw['device']}")
            else:
                placed.append(Placed(number, known[raw["request"]], device, raw))
    return placed, broken


def _requests(problem: Problem, placed: list[Placed], evaluate: Evaluate) -> Iterator[str]:
    """Each request is served by one of its alternatives, with as many different devices as it asks for."""
    for number, claim in enumerate(problem.requests):
        mine = [p for p in placed if p.claim == number]
        if len(mine) > LIMIT:
            yield f"claim {number} has {len(mine)} devices"
        for alternatives in claim:
            served = [[p for p in mine if p.request is a] for a in alternatives]
            chosen = [(a, s) for a, s in zip(alternatives, served) if s]
            if len(chosen) != 1:
                yield f"{alternatives[0].in_result}: {len(chosen)} alternatives are served"
                continue
            request, devices = chosen[0]
            if len({p.device.id for p in devices}) != len(devices):
                yield f"{request.in_result}: one device twice"
            if len(devices) != _wanted(problem, request, evaluate):
                yield f"{request.in_result}: {len(devices)} devices"


def _wanted(problem: Problem, request: Request, evaluate: Evaluate) -> int:
    if not request.all:
        return int(request.raw["count"])
    everything = [d for p in problem.pools for d in p.devices if rules.selectable(problem, d, request, evaluate)]
    if not problem.on["ConsumableCapacity"]:
        return len(everything)
    needs = [(d, rules.consumption(problem, d, request)) for d in everything]
    return sum(need is not None and rules.fits(d, [need]) for d, need in needs)


def _devices(problem: Problem, placed: list[Placed], evaluate: Evaluate) -> Iterator[str]:
    """Each device suits its request."""
    for p in placed:
        name = f"{p.request.in_result} on {p.device.id}"
        if not rules.selectable(problem, p.device, p.request, evaluate):
            yield f"{name}: not selected"
        if not rules.usable(problem, p.device):
            yield f"{name}: not usable here"
        if not rules.tolerated(problem, p.device, p.request):
            yield f"{name}: taint not tolerated"
        if bool(p.raw.get("shareID")) != rules.shareable(problem, p.device):
            yield f"{name}: share id where there is no share, or none where there is"
        if bool(p.raw.get("adminAccess")) != p.request.admin:
            yield f"{name}: wrong admin access"


def _exclusive(problem: Problem, placed: list[Placed], evaluate: Evaluate) -> Iterator[str]:
    """A device that is not shared has one owner, apart from those with admin access in other claims."""
    owners: dict[DeviceId, list[Placed]] = defaultdict(list)
    for p in placed:
        if not p.raw.get("shareID"):
            owners[p.device.id].append(p)
    for device, mine in owners.items():
        normal = [p for p in mine if not p.request.admin]
        if len(normal) > 1 or (normal and device in problem.taken.exclusive):
            yield f"{device} has two owners"
        if len({p.claim for p in mine}) != len(mine):
            yield f"{device} twice in one claim"
    for p in placed:
        if p.raw.get("shareID") and not p.request.admin and p.device.id in problem.taken.exclusive:
            yield f"{p.device.id} is shared but held by another as a whole"
    identifiers = [p.raw["shareID"] for p in placed if p.raw.get("shareID")]
    if len(set(identifiers)) != len(identifiers):
        yield "one share id twice"


def _capacity(problem: Problem, placed: list[Placed], evaluate: Evaluate) -> Iterator[str]:
    """Shares consume what the policy says and fit into the device together."""
    if not problem.on["ConsumableCapacity"]:
        return
    used: dict[DeviceId, list[dict[str, Fraction]]] = defaultdict(list)
    for p in placed:
        wanted = rules.consumption(problem, p.device, p.request)
        if wanted is None or not rules.fits(p.device, [wanted]):
            yield f"{p.request.in_result} does not fit {p.device.id}"
        if p.raw.get("shareID"):
            said = {n: quantity(v) for n, v in (p.raw.get("consumedCapacity") or {}).items()}
            if said != wanted:
                yield f"{p.request.in_result} on {p.device.id} consumes {said}, not {wanted}"
            used[p.device.id].append(said)
    devices = {p.device.id: p.device for p in placed}
    for device, shares in used.items():
        if not rules.fits(devices[device], [problem.taken.capacity.get(device, {}), *shares]):
            yield f"{device} is over its capacity"


def _counters(problem: Problem, placed: list[Placed], evaluate: Evaluate) -> Iterator[str]:
    """Each device is charged once to its counter sets, and the devices of a set go together."""
    for pool in problem.pools:
        mine = {p.device.id: p.device for p in placed if (p.device.driver, p.device.pool) == (pool.driver, pool.name)}
        held = {d.id: d for d in pool.everywhere if problem.taken.holds(d.id)}
        new = [d for i, d in mine.items() if not (i in held and rules.shareable(problem, d))]
        for name in {c["counterSet"] for d in new for c in d.consumes}:
            if not counters_suffice(pool, name, [*held.values(), *new]):
                yield f"counter set {name} of {pool.name} is over its value"
            groups = [*groups_held(problem, pool, name), *(g for d in new for g in groups_of(d, name))]
            if problem.on["CompatibilityGroups"] and not rules.compatible(groups):
                yield f"counter set {name} of {pool.name} holds incompatible groups {groups}"


def _constraints(problem: Problem, placed: list[Placed], evaluate: Evaluate) -> Iterator[str]:
    for number, claim in enumerate(problem.claims):
        for constraint in claim["spec"]["devices"].get("constraints") or []:
            mine = [p for p in placed if p.claim == number and p.request.covered_by(constraint.get("requests"))]
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            values = [rules.attribute(problem, p.device, p.request, name, evaluate) for p in mine]
            check = rules.match if constraint.get("matchAttribute") else rules.distinct
            if mine and not check(values):
                yield f"constraint on {name} of claim {number} does not hold: {values}"
