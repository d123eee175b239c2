"""A demand on a layout: which positions each alternative may take, before anything about use is known.

Everything here depends only on what the devices look like, so it is computed once per demand and layout and shared by all
nodes with that layout; with one exception: a toleration of an evicting taint can end. Then what counted on it is forgotten.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from weakref import ref

from dray.api.gates import Gates
from dray.api.resource import DeviceAttribute
from dray.api.tolerations import FOREVER, NEVER, tolerated_until
from dray.devices.capacity import CapacityError, Consumes, consumes
from dray.devices.demand import Alternative, ClaimDemand, Constraint, Demand
from dray.devices.selection import Failure
from dray.devices.shapes import Kind
from dray.devices.views import NodeLayout

PROBLEMS_KEPT = 20_000
EXPIRING_KEPT = 100_000

Atom = tuple[str, object]
Atoms = frozenset[Atom]


class Values:
    """The values of one constraint's attribute for one alternative, by position."""

    __slots__ = ("atoms", "failures", "masks", "present", "unknown")

    def __init__(self) -> None:
        self.atoms: dict[int, Atoms] = {}
        self.masks: dict[Atom, int] = {}
        # Positions that have the attribute; of them those with a kind of value that cannot be compared.
        self.present = 0
        self.unknown = 0
        self.failures: dict[int, str] = {}

    def add(self, position: int, atoms: Atoms) -> None:
        bit = 1 << position
        self.present |= bit
        self.atoms[position] = atoms
        if not atoms:
            self.unknown |= bit
        for atom in atoms:
            self.masks[atom] = self.masks.get(atom, 0) | bit

    def any_of(self, atoms: Atoms) -> int:
        mask = 0
        for atom in atoms:
            mask |= self.masks.get(atom, 0)
        return mask


class Option:
    """One alternative on a layout, as masks of positions."""

    __slots__ = (
        "admissible",
        "alternative",
        "consumes",
        "count",
        "failures",
        "listed",
        "poison",
        "selected",
        "usable",
        "values",
    )

    def __init__(self, alternative: Alternative) -> None:
        self.alternative = alternative
        self.count = alternative.count
        # selected: the selectors hold. admissible: and taints, operations and static capacity allow it.
        # usable: and it has the attributes that the constraints ask for.
        self.selected = 0
        self.admissible = 0
        self.usable = 0
        # Positions where looking at the device ends the search with an error, and the error.
        self.poison = 0
        self.failures: dict[int, Failure | CapacityError] = {}
        # For All: the positions that must all be taken, in upstream's order.
        self.listed: tuple[int, ...] = ()
        self.consumes: dict[int, Consumes] = {}
        self.values: dict[int, Values] = {}


class RequestProblem:
    __slots__ = ("claim", "index", "least", "least_after", "options")

    def __init__(self, claim: int, index: int, options: tuple[Option, ...]) -> None:
        self.claim = claim
        self.index = index
        self.options = options
        self.least = min(option.count for option in options)
        # Fewest devices that the later requests of the same claim need.
        self.least_after = 0


class Problem:
    """All requests of a demand in upstream's order. ``faithful``: a search can end in an error, as upstream's would."""

    __slots__ = ("constraints", "demand", "faithful", "layout", "requests", "wants_everything")

    def __init__(self, demand: Demand, layout: NodeLayout, requests: tuple[RequestProblem, ...]) -> None:
        self.demand = demand
        self.layout = layout
        self.requests = requests
        self.constraints: tuple[tuple[Constraint, ...], ...] = tuple(claim.constraints for claim in demand.claims)
        options = [option for request in requests for option in request.options]
        self.wants_everything = any(option.alternative.everything for option in options)
        self.faithful = any(
            option.poison
            or any(values.failures for values in option.values.values())
            or (option.alternative.everything and option.alternative.constraints)
            for option in options
        )


def positions(mask: int) -> list[int]:
    """The set bits, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class Analysis:
    """Makes problems. Holds the gates that change what a device's fields mean, and the time, by which tolerations end."""

    def __init__(self, gates: Gates) -> None:
        self.binding = gates("DRADeviceBindingConditions") and gates("DRAResourceClaimDeviceStatus")
        self._lists = gates("DRAListTypeAttributes")
        self._capacity = gates("DRAConsumableCapacity")
        self._fractional = gates("DRAFractionalCapacityRange")
        self._partitions = gates("DRAPartitionableDevices")
        self.now = NEVER
        self._ends = FOREVER  # the first toleration that ends, of the problem that is being made
        self._expiring: list[tuple[float, int, ref[Demand]]] = []  # heap
        self._numbers = count()

    def advance(self, now: float) -> bool:
        """It is later: whether a toleration ended that some answer counted on. Such answers are forgotten."""
        self.now = now
        ended = False
        while self._expiring and (self._expiring[0][0] <= now or len(self._expiring) > EXPIRING_KEPT):
            demand = heappop(self._expiring)[2]()
            if demand is not None:
                demand.forget()
                ended = True
        return ended

    def problem(self, demand: Demand, layout: NodeLayout) -> Problem:
        found = demand.problems.get(layout.serial)
        if found is None:
            if len(demand.problems) >= PROBLEMS_KEPT:
                demand.problems.clear()
            found = demand.problems[layout.serial] = self._make(demand, layout)
        assert isinstance(found, Problem)
        return found

    def _make(self, demand: Demand, layout: NodeLayout) -> Problem:
        requests: list[RequestProblem] = []
        self._ends = FOREVER
        limit = demand.limit.on(layout) if demand.limit is not None else layout.seen
        for number, claim in enumerate(demand.claims):
            own = [
                RequestProblem(
                    number, index, tuple(self._option(claim, alternative, layout, limit) for alternative in request.alternatives)
                )
                for index, request in enumerate(claim.requests)
            ]
            after = 0
            for request in reversed(own):
                request.least_after = after
                after += request.least
            requests.extend(own)
        if self._ends < demand.expires:
            demand.expires = self._ends
            heappush(self._expiring, (self._ends, next(self._numbers), ref(demand)))
        return Problem(demand, layout, tuple(requests))

    def _option(self, claim: ClaimDemand, alternative: Alternative, layout: NodeLayout, limit: int) -> Option:
        option = Option(alternative)
        mask, failures = alternative.selection.on(layout)
        if not self.binding:
            mask &= ~layout.binding
            failures = {position: failure for position, failure in failures.items() if not layout.binding >> position & 1}
        option.selected = mask & layout.here
        option.failures.update(failures)
        self._admit(option, layout)
        for position in option.failures:
            option.poison |= 1 << position
        if not alternative.everything:
            option.admissible &= limit
        option.usable = option.admissible
        # Constraints are asked in order: an error of one comes before an attribute that is missing for a later one.
        failed = 0
        for index in alternative.constraints:
            values = self._values(claim.constraints[index], alternative, option.admissible, layout)
            option.values[index] = values
            failed |= option.usable & sum(1 << position for position in values.failures)
            option.usable &= values.present | failed
        if alternative.everything:
            option.listed = tuple(
                position for position in layout.all_order if option.selected >> position & 1 and self._static(option, position)
            )
            option.count = len(option.listed)
        return option

    def _static(self, option: Option, position: int) -> bool:
        fitting = option.consumes.get(position)
        return fitting is None or fitting.fits

    def _admit(self, option: Option, layout: NodeLayout) -> None:
        verdicts: dict[int, tuple[bool, Consumes | CapacityError | None]] = {}
        for position in positions(option.selected):
            kind = layout.kinds[position]
            verdict = verdicts.get(kind.serial)
            if verdict is None:
                verdict = verdicts[kind.serial] = (
                    self._allows(kind, option.alternative, layout),
                    self._takes(kind, option.alternative),
                )
            allowed, takes = verdict
            if isinstance(takes, CapacityError):
                option.failures[position] = takes
                continue
            if takes is not None:
                option.consumes[position] = takes
                allowed = allowed and takes.fits
            if allowed:
                option.admissible |= 1 << position

    def _takes(self, kind: Kind, alternative: Alternative) -> Consumes | CapacityError | None:
        if not self._capacity or not (alternative.capacity or kind.multiple or kind.shape.capacity):
            return None
        try:
            return consumes(alternative.capacity, kind.shape.capacity, fractional=self._fractional)
        except CapacityError as error:
            return error

    def _allows(self, kind: Kind, alternative: Alternative, layout: NodeLayout) -> bool:
        if kind.skip_operations and not layout.operations:
            return False
        if kind.consumes and not self._partitions:
            return False
        if not kind.taints:
            return True
        until = min(tolerated_until(taint, alternative.tolerations) for taint in kind.taints)
        if until <= self.now:
            return False
        self._ends = min(self._ends, until)
        return True

    def _values(self, constraint: Constraint, alternative: Alternative, admissible: int, layout: NodeLayout) -> Values:
        values = Values()
        derived = alternative.derived.get(constraint.attribute)
        for position in positions(admissible):
            shape = layout.kinds[position].shape
            attribute = derived.at(shape) if derived is not None else shape.attribute(constraint.attribute)
            if isinstance(attribute, str):
                what = "evaluate" if derived is not None and derived.program is not None else "compile"
                values.failures[position] = f"{what} derived attribute {constraint.attribute}"
                values.failures[position] += (
                    f" on device {{device}} failed: {attribute}" if what == "evaluate" else f" failed: {attribute}"
                )
            elif attribute is not None:
                atoms = _atoms(attribute, lists=self._lists)
                if atoms or not self._lists:
                    values.add(position, atoms)
        return values


def _atoms(attribute: DeviceAttribute, *, lists: bool) -> Atoms:
    """The attribute's values, each with its type. Without the list gate a list has no comparable value."""
    if lists:
        for name in ("ints", "bools", "strings", "versions"):
            listed = getattr(attribute, name)
            if listed:
                return frozenset((name[:-1], value) for value in listed)
    if attribute.string is not None:
        return frozenset({("string", attribute.string)})
    if attribute.int_ is not None:
        return frozenset({("int", attribute.int_)})
    if attribute.bool_ is not None:
        return frozenset({("bool", attribute.bool_)})
    if attribute.version is not None:
        return frozenset({("version", attribute.version)})
    return frozenset()
