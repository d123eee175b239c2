"""The exhaustive solver: tries every choice in the documented order and takes the first that breaks no rule.

Exponential on purpose. Each candidate is judged from the whole list of picks made so far, so there is nothing to undo and
nothing that can be left over from an abandoned branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tests.solver import rules
from tests.solver.model import Device, Fatal, Pool, Problem, Refused, Request, quantity
from tests.solver.rules import Evaluate

LIMIT = 32
"""Devices in one claim."""

Order = Literal["upstream", "dray"]


class TooLarge(Exception):
    """The input is too large for an exhaustive search."""


@dataclass(frozen=True)
class Pick:
    claim: int
    request: Request
    device: Device
    shared: bool
    consumed: dict[str, Fraction]
    charged: bool
    """Whether it is the pick that charges counters and joins groups; a further share of a device does neither."""


@dataclass(frozen=True)
class Answer:
    outcome: Literal["ok", "refused", "fatal"]
    picks: tuple[Pick, ...] = ()
    why: str = ""


def solve(problem: Problem, evaluate: Evaluate, order: Order = "dray", steps: int = 200_000) -> Answer:
    """The first solution in order, or that there is none, or that the pod is wrong."""
    search = _Search(problem, evaluate, order, steps)
    try:
        search.prepare()
        found = search.claims_from(0, 0, ())
    except Fatal as error:
        return Answer("fatal", why=str(error))
    except Refused as error:
        return Answer("refused", why=str(error))
    if found is None:
        invalid = any(p.state == "invalid" for p in problem.pools)
        return Answer("refused", why="invalid resource pools" if invalid else "no combination fits")
    return Answer("ok", found)


class _Search:
    def __init__(self, problem: Problem, evaluate: Evaluate, order: Order, steps: int) -> None:
        self.problem, self.evaluate, self.order, self.steps = problem, evaluate, order, steps
        self.devices = candidates(problem, order)
        self.pools = {(p.driver, p.name): p for p in problem.pools}
        self.matching: dict[int, list[Device]] = {}
        self.selected: dict[tuple[int, int], bool] = {}

    # ---------------------------------------------------------------------------------------------------- preparation

    def prepare(self) -> None:
        """What is wrong with the pod before any search, and the devices of every request for all of them."""
        for claim, requests in zip(self.problem.claims, self.problem.requests):
            for constraint in claim["spec"]["devices"].get("constraints") or []:
                if not (constraint.get("matchAttribute") or constraint.get("distinctAttribute")):
                    raise Fatal("empty constraint")
            least = sum(min(self._prepare(a) for a in alternatives) for alternatives in requests)
            if least > LIMIT:
                raise Fatal(f"{least} devices in one claim")

    def _prepare(self, request: Request) -> int:
        on, raw = self.problem.on, request.raw
        if request.parent and not on["PrioritizedList"]:
            raise Fatal("firstAvailable is off")
        if raw.get("adminAccess") is not None and not on["AdminAccess"]:
            raise Fatal("adminAccess is off")
        if request.asked and not on["ConsumableCapacity"]:
            raise Fatal("capacity requests are off")
        if raw.get("derivedAttributes") and not on["DerivedAttributes"]:
            raise Fatal("derived attributes are off")
        if raw.get("deviceClassName") not in self.problem.classes:
            raise Fatal(f"no class {raw.get('deviceClassName')}")
        if raw["allocationMode"] not in ("ExactCount", "All"):
            raise Fatal(f"unknown mode {raw['allocationMode']}")
        return len(self._all(request)) if request.all else int(raw["count"])

    def _all(self, request: Request) -> list[Device]:
        # Whichever order single devices are tried in, a request for all of them takes them in upstream's, and so it meets
        # pools and devices that cannot be read.
        found: list[Device] = []
        for pool in sorted(self.problem.pools, key=lambda p: p.conditioned):
            if pool.state != "complete":
                raise Refused(f"pool {pool.driver}/{pool.name} is {pool.state}")
            readable = [d for d in pool.devices if self._selectable(d, request) and self._suits(d, request)]
            found += [d for d in readable if not rules.passed_over(self.problem, d)]
        self.matching[id(request)] = found
        return found

    def _suits(self, device: Device, request: Request) -> bool:
        """Whether the request fits the device when nobody else uses it."""
        if not self.problem.on["ConsumableCapacity"]:
            return True
        taken = rules.consumption(self.problem, device, request)
        return taken is not None and rules.fits(device, [taken])

    def _selectable(self, device: Device, request: Request) -> bool:
        key = (id(device), id(request))
        if key not in self.selected:
            self.selected[key] = rules.selectable(self.problem, device, request, self.evaluate)
        return self.selected[key]

    # ---------------------------------------------------------------------------------------------------------- search

    def claims_from(self, claim: int, number: int, picks: tuple[Pick, ...]) -> tuple[Pick, ...] | None:
        """Everything from request ``number`` of ``claim`` on."""
        if claim == len(self.problem.requests):
            return picks
        if number == len(self.problem.requests[claim]):
            return self.claims_from(claim + 1, 0, picks)
        for request in self.problem.requests[claim][number]:
            found = self._devices_from(claim, number, request, 0, 0, picks)
            if found is not None:
                return found
        return None

    def _devices_from(
        self, claim: int, number: int, request: Request, had: int, start: int, picks: tuple[Pick, ...]
    ) -> tuple[Pick, ...] | None:
        """The rest of one request, and everything after it."""
        self.steps -= 1
        if self.steps < 0:
            raise TooLarge
        wanted = len(self.matching[id(request)]) if request.all else int(request.raw["count"])
        if request.all and not wanted:
            return None
        if had == wanted:
            return self.claims_from(claim, number + 1, picks)
        if sum(p.claim == claim for p in picks) + wanted - had > LIMIT:
            return None
        if request.all:
            pick = self._admit(claim, request, self.matching[id(request)][had], picks)
            return self._devices_from(claim, number, request, had + 1, 0, (*picks, pick)) if pick else None
        for position in range(start, len(self.devices)):
            pick = self._try(claim, request, self.devices[position], picks)
            if pick:
                found = self._devices_from(claim, number, request, had + 1, position + 1, (*picks, pick))
                if found is not None:
                    return found
        return None

    def _try(self, claim: int, request: Request, device: Device, picks: tuple[Pick, ...]) -> Pick | None:
        if self._in_use(claim, request, device, picks) or not self._selectable(device, request):
            return None
        if self.problem.on["ConsumableCapacity"] and self._share(request, device, picks) is None:
            return None
        return self._admit(claim, request, device, picks)

    def _in_use(self, claim: int, request: Request, device: Device, picks: tuple[Pick, ...]) -> bool:
        mine = [p for p in picks if p.device.id == device.id and not p.shared]
        if request.admin:
            return any(p.claim == claim for p in mine)
        return bool(mine) or device.id in self.problem.taken.exclusive

    def _admit(self, claim: int, request: Request, device: Device, picks: tuple[Pick, ...]) -> Pick | None:
        """The pick if it breaks no rule together with those before it."""
        if self._in_use(claim, request, device, picks) or not rules.usable(self.problem, device):
            return None
        shared = rules.shareable(self.problem, device)
        again = shared and (
            device.id in self.problem.taken.shared
            or device.id in self.problem.taken.capacity
            or any(p.device.id == device.id and p.shared for p in picks)
        )
        charged = bool(device.consumes) and not again
        if charged and not self._counters_fit(device, picks):
            return None
        if not rules.tolerated(self.problem, device, request):
            return None
        if not self._constraints_hold(claim, request, device, picks):
            if request.all:
                raise Fatal("all devices are asked for, but a constraint refuses one")
            return None
        consumed: dict[str, Fraction] = {}
        if self.problem.on["ConsumableCapacity"]:
            taken = self._share(request, device, picks)
            if taken is None:
                return None
            consumed = taken if shared else {}
        return Pick(claim, request, device, shared, consumed, charged)

    def _share(self, request: Request, device: Device, picks: tuple[Pick, ...]) -> dict[str, Fraction] | None:
        """What the request takes of the device's capacities; None where they do not suffice beside the other shares."""
        taken = rules.consumption(self.problem, device, request)
        earlier = [self.problem.taken.capacity.get(device.id, {}), *(p.consumed for p in picks if p.device.id == device.id)]
        return taken if taken is not None and rules.fits(device, [taken, *earlier]) else None

    def _counters_fit(self, device: Device, picks: tuple[Pick, ...]) -> bool:
        pool = self.pools[device.driver, device.pool]
        charged = [p.device for p in picks if p.charged and (p.device.driver, p.device.pool) == (pool.driver, pool.name)]
        held = [d for d in pool.everywhere if self.problem.taken.holds(d.id)]
        for consumed in device.consumes:
            name = consumed["counterSet"]
            if not counters_suffice(pool, name, [*held, *charged, device]):
                return False
            if self.problem.on["CompatibilityGroups"] and not rules.compatible(
                [*groups_held(self.problem, pool, name), *(g for d in [*charged, device] for g in groups_of(d, name))]
            ):
                return False
        return True

    def _constraints_hold(self, claim: int, request: Request, device: Device, picks: tuple[Pick, ...]) -> bool:
        for constraint in self.problem.claims[claim]["spec"]["devices"].get("constraints") or []:
            if not request.covered_by(constraint.get("requests")):
                continue
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            before = [p for p in picks if p.claim == claim and p.request.covered_by(constraint.get("requests"))]
            pairs = [*((p.device, p.request) for p in before), (device, request)]
            values = [rules.attribute(self.problem, d, r, name, self.evaluate) for d, r in pairs]
            if not (rules.match if constraint.get("matchAttribute") else rules.distinct)(values):
                return False
        return True


def candidates(problem: Problem, order: Order) -> list[Device]:
    """Every device of a complete pool that a node sees, in the order in which a request tries them: upstream puts pools with
    binding conditions last, Dray devices with them."""
    pools = [p for p in problem.pools if p.state == "complete"]
    if order == "upstream":
        return [d for p in sorted(pools, key=lambda p: p.conditioned) for d in p.devices]
    return sorted((d for p in pools for d in p.devices), key=lambda d: d.conditioned)


def counters_suffice(pool: Pool, name: str, devices: list[Device]) -> bool:
    """Whether a counter set covers what the devices consume of it together."""
    left = dict(pool.counters[name])
    for consumed in (c for d in devices for c in d.consumes if c["counterSet"] == name):
        for counter, value in consumed["counters"].items():
            left[counter] -= quantity(value["value"])
    return all(value >= 0 for value in left.values())


def groups_of(device: Device, name: str) -> list[list[str]]:
    return [c.get("compatibilityGroups") or [] for c in device.consumes if c["counterSet"] == name]


def groups_held(problem: Problem, pool: Pool, name: str) -> list[list[str]]:
    """Groups of the devices that are allocated on a counter set: the claim's snapshot, else the slice's word."""
    found = []
    for device in pool.everywhere:
        if not problem.taken.holds(device.id):
            continue
        snapshot = problem.taken.groups.get(device.id)
        found += groups_of(device, name) if snapshot is None else [g for s, g in snapshot.items() if s == name]
    return found
