"""Why claims do not fit on a node, as data, at three depths: the node, each request, each device.

Nothing here is on the path of a decision: it is worked out only when somebody asks. For every device it names the first check
that fails, with its numbers, on the node as the ledger has it. ``changes`` are the smallest changes that would admit the
claims here: each one was tried before it is told. Nodes in the same state, whose devices are divided among their holders in the
same way, differ in names only: they share an ``Outline``, and what is told of them is the same as if each were asked by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from dray.api.quantity import Quantity
from dray.api.reason import Reason
from dray.api.resource import DeviceToleration, ResourceClaim
from dray.api.tolerations import refused_taint
from dray.devices.attempt import Attempt
from dray.devices.capacity import CapacityError
from dray.devices.demand import Alternative
from dray.devices.inventory import Inventory
from dray.devices.ledger import Charge, DeviceKey, PoolKey
from dray.devices.problem import Option, Problem, RequestProblem, positions
from dray.devices.selection import Failure
from dray.devices.shapes import Kind
from dray.devices.views import NodeView

# How many changes of each kind are tried before giving up; each costs one search on one node.
TRIALS = 24


class DeviceFinding(msgspec.Struct):
    """One device for one request: usable, or the first check that fails."""

    device: str
    reason: Reason | None = None


class RequestFinding(msgspec.Struct, rename="camel"):
    """One alternative of a request: how many devices it needs, how many match and how many of those can be used now."""

    claim: str
    request: str
    device_class: str
    needed: int
    matching: int
    usable: int
    refused: dict[str, int] = {}
    devices: tuple[DeviceFinding, ...] = ()

    @property
    def missing(self) -> int:
        return max(self.needed - self.usable, 0)


class Change(msgspec.Struct):
    """One change that would admit the claims: ``tolerate`` a taint, ``release`` a claim, ask for ``fewer`` devices, or
    ``unbind`` devices from a constraint on an attribute."""

    kind: str
    claim: str
    request: str = ""
    data: dict[str, Any] = {}


class Explanation(msgspec.Struct):
    """``reasons`` is the summary; ``nearest`` the request that lacks least (its index in ``requests``), if one does."""

    reasons: tuple[Reason, ...]
    requests: tuple[RequestFinding, ...] = ()
    nearest: int | None = None
    changes: tuple[Change, ...] = ()


Check = tuple[str, dict[str, Any]]
"""The code and the data of a check that fails, but for names of devices and holders."""


class Outlined(NamedTuple):
    """One alternative of a request without names: the first check that fails, by position, and how many match."""

    checks: tuple[Check | None, ...]
    matching: int
    refused: dict[str, int]


class Outline(NamedTuple):
    """An explanation without names. ``changes``: a holder that is to let go stands as its number among those of the node."""

    options: tuple[Outlined, ...]
    constraint: dict[str, Any]
    changes: tuple[Change | int, ...]


Outlines = dict[Hashable, Outline]
"""What nodes share, by the state that they are in and by how their devices are divided: for as long as nothing changes."""

# A change, or the number of the holder that lets go; the claims that have it; and the uid of that holder.
Trial = tuple[Change | int, Sequence[ResourceClaim], str]


class Engine(Protocol):
    """What explaining needs of the allocator: who holds a device, what is published, and trials that leave no trace."""

    inventory: Inventory

    def owners(self, device: DeviceKey) -> tuple[str, ...]: ...

    def owner_name(self, uid: str) -> str: ...

    def charges(self, uid: str) -> tuple[Charge, ...]: ...

    def fits(self, node_name: str, claims: Sequence[ResourceClaim], without: str = "") -> bool: ...


class Holders:
    """Who holds the devices that a node sees: numbered in the order in which they are met."""

    def __init__(self, engine: Engine, view: NodeView) -> None:
        self._engine, self._view = engine, view
        self.numbers: dict[str, int] = {}
        self.on: dict[DeviceKey, tuple[str, ...]] = {}
        self._met: list[int] = []
        for content in view.contents:
            driver, pool = content.key
            names = content.names() if content.holdings else []
            for bit in sorted(content.holdings):
                key = DeviceKey(driver, pool, names[bit])
                found = self.on[key] = engine.owners(key)
                self._met.append(~bit)
                for uid in found:
                    self._met.append(self.numbers.setdefault(uid, len(self.numbers) + 1))
            self._met.append(0)

    def names(self, key: DeviceKey) -> str:
        return ", ".join([self._engine.owner_name(uid) for uid in self.on.get(key, ()) if not rests(uid)])

    def rest(self, key: DeviceKey) -> bool:
        """Whether nobody holds the device, and it only rests."""
        found = self.on.get(key)
        return bool(found) and all(map(rests, found or ()))

    def division(self) -> Hashable:
        """How the devices are divided, without names: where it is equal, letting go of the same numbers leaves the same."""
        contents = self._view.contents
        resting = [number for uid, number in self.numbers.items() if rests(uid)]
        if all(content.whole for content in contents):
            return tuple(self._met), tuple(resting), None
        pools = {content.key: (number, content.bits) for number, content in enumerate(contents)}
        charges = [[_nameless(charge, pools) for charge in self._engine.charges(uid)] for uid in self.numbers]
        return tuple(self._met), tuple(resting), tuple(map(tuple, charges))


def rests(uid: str) -> bool:
    """Whether this is no claim but the rest that a device has after a failure."""
    return uid.startswith("rest/")


def _nameless(charge: Charge, pools: dict[PoolKey, tuple[int, dict[str, tuple[int, ...]]]]) -> Hashable:
    """What a holder has of a device that the node sees; nothing of any other."""
    found = pools.get((charge.device.driver, charge.device.pool))
    if found is None:
        return None
    number, bits = found
    return number, bits.get(charge.device.device, charge.device.device), charge.mode, charge.consumed, charge.groups


class Explainer:
    """Explains one problem on one node."""

    def __init__(
        self, engine: Engine, view: NodeView, problem: Problem, claims: Sequence[ResourceClaim], *, binding: bool, now: float
    ) -> None:
        self._engine = engine
        self._view = view
        self._problem = problem
        self._claims = claims
        self._binding, self._now = binding, now
        self._holders = Holders(engine, view)

    @cached_property
    def _attempt(self) -> Attempt:
        return Attempt(self._problem, self._view)

    def explain(self, state: int, known: Outlines) -> Explanation:
        """``state``: the number of the state that the node is in; ``known``: what was found out about other nodes."""
        key = (state, self._problem.demand, tuple(claim.key for claim in self._claims), self._holders.division())
        outline = known.get(key)
        if outline is None:
            outline = known[key] = self._outline()
        findings: list[RequestFinding] = []
        reasons: list[Reason] = []
        keys = self._view.keys()
        names = [str(device) for device in keys]
        outlined = iter(outline.options)
        for request in self._problem.requests:
            own = [self._finding(request, option, next(outlined), keys, names) for option in request.options]
            findings.extend(own)
            if all(finding.missing or not finding.needed for finding in own) and own:
                reasons.append(self._of_alternatives(request, own))
        if not reasons:
            claim = ", ".join(claim.key for claim in self._claims)
            reasons.append(Reason("NoCombination", f"node/{self._view.name}", {"claim": claim} | outline.constraint))
        lacking = [number for number, finding in enumerate(findings) if finding.missing]
        nearest = min(lacking, key=lambda number: findings[number].missing, default=None)
        return Explanation(tuple(reasons), tuple(findings), nearest, self._named(outline.changes))

    def _named(self, changes: Sequence[Change | int]) -> tuple[Change, ...]:
        names = [self._engine.owner_name(uid) for uid in self._holders.numbers] if changes else []
        return tuple(Change("release", names[change - 1]) if isinstance(change, int) else change for change in changes)

    def _finding(
        self, request: RequestProblem, option: Option, outlined: Outlined, keys: Sequence[DeviceKey], names: Sequence[str]
    ) -> RequestFinding:
        devices = tuple(
            [
                DeviceFinding(name, self._reason(check, key, name) if check is not None else None)
                for check, key, name in zip(outlined.checks, keys, names)
            ]
        )
        return RequestFinding(
            self._claims[request.claim].key,
            option.alternative.name,
            option.alternative.class_.metadata.name,
            option.count,
            outlined.matching,
            outlined.matching - sum(outlined.refused.values()),
            outlined.refused,
            devices,
        )

    def _reason(self, check: Check, key: DeviceKey, name: str) -> Reason:
        code, data = check
        if code == "DeviceTaken":
            data = {"claim": self._holders.names(key)}
        elif code == "SelectorError":
            data = {"device": name, **data}
        elif code == "DeviceTainted":
            data = data | self._by_rule(key, data)
        return Reason(code, f"device/{name}", data)

    def _by_rule(self, key: DeviceKey, told: dict[str, str]) -> dict[str, str]:
        """The rule that a taint comes from; nothing if the driver publishes it."""
        taints = ((rule.metadata.name, rule.spec.taint) for rule in self._engine.inventory.rules_for(*key))
        wanted = (told["key"], told["value"], told["effect"])
        rule = next((name for name, taint in taints if (taint.key, taint.value, taint.effect) == wanted), "")
        return {"rule": rule} if rule else {}

    # --------------------------------------------------------------------------------------------------- without names

    def _outline(self) -> Outline:
        options = [(request, option) for request in self._problem.requests for option in request.options]
        outlined = tuple(self._outlined(request, option) for request, option in options)
        # Which constraint is to blame is told only where nothing else is, but costs little.
        return Outline(outlined, self._constraint(), tuple(self._changes()))

    def _outlined(self, request: RequestProblem, option: Option) -> Outlined:
        checks = tuple(self._check(request, option, position) for position in range(self._view.layout.width))
        unselected = ("DeviceNotSelected", "DeviceOtherNode")
        matching = [check for check in checks if check is None or check[0] not in unselected]
        return Outlined(checks, len(matching), dict(Counter(check[0] for check in matching if check is not None)))

    def _of_alternatives(self, request: RequestProblem, findings: Sequence[RequestFinding]) -> Reason:
        """The alternative that lacks least, with what is said of the others; their names alone hold for nodes that differ."""
        best = min(findings, key=lambda finding: (not finding.matching, finding.missing))
        reason = self._summary(request, best)
        others = [finding for finding in findings if finding is not best]
        if not others:
            return reason
        told = " nor ".join(f"for {finding.request} ({_in_short(finding)})" for finding in others)
        also = {"alternatives": told, "others": [finding.request for finding in others]}
        return Reason(reason.code, reason.object, reason.data | also)

    def _constraint(self) -> dict[str, Any]:
        """Of the constraints, the first that not enough devices satisfy whatever else is asked; nothing where none is alone
        to blame."""
        for claim, constraints in enumerate(self._problem.constraints):
            for index, constraint in enumerate(constraints):
                asked = [
                    (request, option)
                    for request in self._problem.requests
                    if request.claim == claim and len(request.options) == 1 and index in (option := request.options[0]).values
                ]
                needed = sum(option.count for _, option in asked)
                most = self._agreeing(index, asked) if constraint.match else self._differing(index, asked)
                if most < needed:
                    how = "agree on" if constraint.match else "differ in"
                    named = {"attribute": constraint.attribute, "constraint": f"{how} {constraint.attribute}"}
                    return {**named, "needed": needed, "free": most}
        return {}

    def _agreeing(self, index: int, asked: Sequence[tuple[RequestProblem, Option]]) -> int:
        """The most devices that have one value, of those that the requests may take."""
        masks = [(self._attempt.candidates(request, option), option.values[index].masks) for request, option in asked]
        atoms = {atom for _, found in masks for atom in found}
        return max((_union(mask & found.get(atom, 0) for mask, found in masks).bit_count() for atom in atoms), default=0)

    def _differing(self, index: int, asked: Sequence[tuple[RequestProblem, Option]]) -> int:
        masks = [(self._attempt.candidates(request, option), option.values[index].masks) for request, option in asked]
        return len({atom for mask, found in masks for atom, bits in found.items() if mask & bits})

    def _summary(self, request: RequestProblem, finding: RequestFinding) -> Reason:
        data: dict[str, Any] = {"class": finding.device_class, "request": finding.request, "claim": finding.claim}
        node = f"node/{self._view.name}"
        if not finding.matching:
            return Reason("NoDevices", node, data)
        data |= {"needed": finding.needed, "free": finding.usable, "total": finding.matching, "refused": finding.refused}
        holders = sorted(
            {d.reason.data["claim"] for d in finding.devices if d.reason is not None and d.reason.code == "DeviceTaken"}
        )
        if holders:
            data["holders"] = holders
        if all(option.alternative.everything for option in request.options):
            return Reason("AllDevicesBusy", node, data)
        return Reason("NotEnoughDevices", node, data | {"missing": finding.missing})

    # ---------------------------------------------------------------------------------------------- one device

    def _check(self, request: RequestProblem, option: Option, position: int) -> Check | None:
        """The first check that fails, in the order in which a search makes them."""
        return next(self._failing(request, option, position, self._view.layout.kinds[position], 1 << position), None)

    def _failing(self, request: RequestProblem, option: Option, position: int, kind: Kind, bit: int) -> Iterator[Check]:
        if kind.binding and not self._binding:
            yield "BindingConditionsOff", {}
        failure = option.failures.get(position)
        if isinstance(failure, Failure):
            yield "SelectorError", {"error": failure.message, "expression": failure.source.expression}
        if not option.selected & bit and not isinstance(failure, CapacityError):
            yield self._not_selected(option, position, kind)
        if not option.alternative.admin and self._attempt.base_taken & bit:
            yield ("DeviceCoolingDown" if self._holders.rest(self._view.key(position)) else "DeviceTaken"), {}
        if isinstance(failure, CapacityError):
            yield "CapacityPolicy", {"policy": str(failure)}
        yield from self._capacity(option, position)
        if kind.skip_operations and not self._view.layout.operations:
            yield "NodeOperationsUnsupported", {"operations": ", ".join(kind.skip_operations)}
        yield from self._counters(position, kind, bit)
        refused = refused_taint(kind.taints, option.alternative.tolerations, self._now)
        if refused is not None:
            yield "DeviceTainted", refused[1]
        for index, values in option.values.items():
            if not values.present & bit:
                yield "AttributeMissing", {"attribute": self._problem.constraints[request.claim][index].attribute}

    def _not_selected(self, option: Option, position: int, kind: Kind) -> Check:
        if not self._view.layout.here >> position & 1:
            return (
                ("FeatureOff", {"feature": "DRADeviceCompatibilityGroups"}) if kind.declares_groups else ("DeviceOtherNode", {})
            )
        for source, column in zip(option.alternative.selection.sources, option.alternative.selection.columns):
            if column.program is not None and column.at(kind.shape) is False:
                return "DeviceNotSelected", {"source": source.owner, "expression": source.expression}
        return "DeviceNotSelected", {}

    def _capacity(self, option: Option, position: int) -> Iterator[Check]:
        takes = option.consumes.get(position)
        if takes is None:
            return
        if takes.why is not None:
            code, name = takes.why
            data: dict[str, Any] = {"capacity": name}
            if name in takes.values:
                data["needed"] = str(takes.values[name])
            yield code, data
            return
        used = self._view.consumed(position)
        full = takes.room(used, None)
        if full is not None:
            left = takes.limits[full] - used.get(full, 0)
            format = takes.values[full].format
            yield "CapacityExhausted", {"capacity": full, "needed": str(takes.values[full]), "free": str(Quantity(left, format))}

    def _counters(self, position: int, kind: Kind, bit: int) -> Iterator[Check]:
        layout = self._view.layout
        if not kind.consumes or (kind.multiple and self._attempt.base_shared & bit):
            return
        if not layout.groups[position]:
            yield "FeatureOff", {"feature": "DRAPartitionableDevices"}
            return
        part, counters = layout.consumption[position]
        content = self._view.contents[part]
        for number, groups in layout.groups[position]:
            state = content.groups.get(number)
            if state is not None and not state.admits(groups):
                used = ", ".join(sorted(state.groups)) or "no group"
                offers = ", ".join(sorted(groups)) or "no group"
                yield "GroupIncompatible", {"counterSet": content.layout.sets[number], "groups": offers, "used": used}
        names = {index: pair for pair, index in content.layout.counters.items()}
        for counter, amount in counters:
            left = content.available[counter]
            if left < amount:
                counter_set, name = names[counter]
                numbers = {
                    "needed": str(Quantity(amount)),
                    "free": str(Quantity(max(left, 0))),
                    "missing": str(Quantity(amount - max(left, 0))),
                }
                yield "CountersExhausted", {"counterSet": counter_set, "counter": name, **numbers}
        if self._attempt.overcommitted() & bit:
            yield "CountersExhausted", {"counterSet": content.layout.sets[layout.groups[position][0][0]]}

    # ---------------------------------------------------------------------------------------------- smallest change

    def _changes(self) -> Iterator[Change | int]:
        """Changes that were tried and would do: tolerate one taint, let go of one claim, ask one request for fewer devices."""
        seen: set[object] = set()
        options = [(request, option) for request in self._problem.requests for option in request.options]
        yield from self._tried(trial for request, option in options for trial in self._tolerations(request, option, seen))
        yield from self._tried(trial for _, option in options for trial in self._releases(option, seen))
        for change in self._tried(trial for request in self._problem.requests for trial in self._smaller(request, seen)):
            assert isinstance(change, Change)
            seen.add((change.claim, change.request))
            yield change
        yield from self._tried(self._unconstrained())

    def _unconstrained(self) -> Iterator[Trial]:
        for claim, constraints in enumerate(self._problem.constraints):
            for index, constraint in enumerate(constraints):
                claims = [msgspec.convert(msgspec.to_builtins(each), ResourceClaim) for each in self._claims]
                devices = claims[claim].spec.devices
                devices.constraints = (*devices.constraints[:index], *devices.constraints[index + 1 :])
                named = {"attribute": constraint.attribute, "index": index}
                yield Change("unbind", self._claims[claim].key, data=named), claims, ""

    def _tried(self, trials: Iterable[Trial]) -> Iterator[Change | int]:
        for change, claims, without in islice(trials, TRIALS):
            if self._engine.fits(self._view.name, claims, without):
                yield change

    def _smaller(self, request: RequestProblem, told: set[object]) -> Iterator[Trial]:
        """The same request for ever fewer devices, beginning with as many as it could have by itself, until one is told."""
        option = request.options[0]
        if len(request.options) > 1 or option.alternative.everything:
            return
        free = self._attempt.candidates(request, option).bit_count()
        for count in range(min(option.count - 1, free), 0, -1):
            change = Change("fewer", self._claims[request.claim].key, option.alternative.name, {"count": count})
            if (change.claim, change.request) in told:
                return
            yield change, self._with(request, count=count), ""

    def _tolerations(self, request: RequestProblem, option: Option, seen: set[object]) -> Iterator[Trial]:
        for position in positions(option.selected):
            kind = self._view.layout.kinds[position]
            refused = refused_taint(kind.taints, option.alternative.tolerations, self._now)
            if refused is None:
                continue
            taint = refused[0]
            key = (request.claim, request.index, taint.key, taint.value, taint.effect)
            if key in seen:
                continue
            seen.add(key)
            toleration = DeviceToleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)
            data = {"key": taint.key, "value": taint.value, "effect": taint.effect}
            change = Change("tolerate", self._claims[request.claim].key, option.alternative.name, data)
            yield change, self._with(request, alternative=option.alternative, toleration=toleration), ""

    def _releases(self, option: Option, seen: set[object]) -> Iterator[Trial]:
        for key in self._in_the_way(option):
            for uid in self._holders.on.get(key, ()):
                if uid not in seen and not rests(uid):
                    seen.add(uid)
                    yield self._holders.numbers[uid], self._claims, uid

    def _in_the_way(self, option: Option) -> Iterator[DeviceKey]:
        """The devices that the option may take, and those in use that draw from the same counter sets."""
        layout = self._view.layout
        drawn: dict[int, set[int]] = {}
        for position in positions(option.selected):
            yield self._view.key(position)
            drawn.setdefault(layout.consumption[position][0], set()).update(number for number, _ in layout.groups[position])
        for part, sets in drawn.items():
            content = self._view.contents[part]
            for bit in sorted(content.holdings):
                if any(number in sets for number, _ in content.layout.groups[bit]):
                    yield DeviceKey(*content.key, content.device(bit).name)

    def _with(
        self,
        request: RequestProblem,
        *,
        count: int = 0,
        alternative: Alternative | None = None,
        toleration: DeviceToleration | None = None,
    ) -> list[ResourceClaim]:
        """The claims with one request changed."""
        claims = [msgspec.convert(msgspec.to_builtins(claim), ResourceClaim) for claim in self._claims]
        wanted = claims[request.claim].spec.devices.requests[request.index]
        targets = [wanted.exactly] if wanted.exactly is not None else list(wanted.first_available)
        for target in targets:
            if target is None or (alternative is not None and wanted.first_available and target.name != alternative.short_name):
                continue
            if count:
                target.count = count
            if toleration is not None:
                target.tolerations = (*target.tolerations, toleration)
        return claims


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _in_short(finding: RequestFinding) -> str:
    wanted = f"needs {finding.needed} of class {finding.device_class}"
    return f"{wanted}, {finding.usable} free of {finding.matching}" if finding.matching else f"{wanted}, none matches"
