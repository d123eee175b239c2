"""Why claims do not fit on a node, as data, at three depths: the node, each request, each device.

Nothing here is on the path of a decision: it is worked out only when somebody asks. For every device it names the first check
that fails, with its numbers, on the node as the ledger has it. ``changes`` are the smallest changes that would admit the
claims here: each one was tried before it is told. Nodes in the same state, whose devices are divided among their holders in the
same way, differ in names only: they share an ``Outline``, and what is told of them is the same as if each were asked by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import product
from operator import or_
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.gates import GATES
from dray.api.quantity import Quantity
from dray.api.reason import Reason
from dray.api.resource import DeviceKey, ResourceClaim
from dray.api.tolerations import refused_taint
from dray.devices.attempt import Attempt
from dray.devices.capacity import CapacityError, allowed
from dray.devices.changes import Change, Changes
from dray.devices.holders import Engine, Holders
from dray.devices.pools import Groups
from dray.devices.problem import Option, Problem, RequestProblem, positions
from dray.devices.selection import OWN, Failure
from dray.devices.shapes import Kind
from dray.devices.views import NodeView

# A summary is for events too, which are short.
_EXPRESSION_MAX: Final = 160
# How many pairs of devices that draw from counters in different ways are compared.
PAIRS: Final = 1024


class DeviceFinding(msgspec.Struct):
    """One device for one request: usable, or the first check that fails."""

    device: str
    reason: Reason | None = None


class RequestFinding(msgspec.Struct, rename="camel"):
    """One alternative of a request: how many devices it needs, how many match and how many of those can be used now;
    ``everything``: it needs all that match."""

    claim: str
    request: str
    device_class: str
    needed: int
    matching: int
    usable: int
    refused: dict[str, int] = {}
    devices: tuple[DeviceFinding, ...] = ()
    everything: bool = False

    @property
    def missing(self) -> int:
        return max(self.needed - self.usable, 0)

    def refused_by_itself(self) -> list[str]:
        """The expressions of the request itself that refuse devices which its class would take, once for each device."""
        reasons = (device.reason for device in self.devices if device.reason is not None)
        return [reason.data["expression"] for reason in reasons if reason.data.get("source") == OWN]


class Explanation(msgspec.Struct):
    """``reasons`` is the summary; ``nearest`` the request that lacks least (its index in ``requests``), if one does."""

    reasons: tuple[Reason, ...]
    requests: tuple[RequestFinding, ...] = ()
    nearest: int | None = None
    changes: tuple[Change, ...] = ()


Draws = tuple[tuple[int, str, Groups], ...]
"""The pool, the counter set, and the groups of a device there: for each counter set that it draws from."""

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
        self._changes = Changes(engine, view, problem, claims, self._holders, now)

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
            option.alternative.everything,
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
        taints = ((rule.metadata.name, rule.spec.taint) for rule in self._engine.inventory.overlay.rules_for(*key))
        wanted = (told["key"], told["value"], told["effect"])
        rule = next((name for name, taint in taints if (taint.key, taint.value, taint.effect) == wanted), "")
        return {"rule": rule} if rule else {}

    # --------------------------------------------------------------------------------------------------- without names

    def _outline(self) -> Outline:
        options = [(request, option) for request in self._problem.requests for option in request.options]
        outlined = tuple(self._outlined(request, option) for request, option in options)
        # Which constraint is to blame is told only where nothing else is, but costs little.
        return Outline(outlined, self._constraint(), tuple(self._changes.found()))

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
        return self._apart()

    def _apart(self) -> dict[str, Any]:
        """Two devices that are asked for and never go together: the counter set on which all that there are share no group."""
        asked = [request.options[0] for request in self._problem.requests if len(request.options) == 1]
        if sum(option.count for option in asked) < 2:
            return {}
        drawn = [(self._draws(option), option.count) for option in asked]
        for number, (own, count) in enumerate(drawn):
            others = [other for other, _ in drawn[number + 1 :]] + ([own] if count > 1 else [])
            for other in (other for other in others if len(own) * len(other) <= PAIRS):
                pairs = [pair for pair in product(own, other) if other is not own or pair[0] != pair[1] or own[pair[0]] > 1]
                if pairs and all(_conflict(*pair) for pair in pairs):
                    counter_set, offers = min(conflict for pair in pairs if (conflict := _conflict(*pair)) is not None)
                    told = f"share a compatibility group on counter set {counter_set} ({offers})"
                    return {"needed": 2, "constraint": told, "counterSet": counter_set}
        return {}

    def _draws(self, option: Option) -> Counter[Draws]:
        """What the devices draw from that could be used, and with which groups; how many are alike."""
        layout, found = self._view.layout, Counter[Draws]()
        for position in positions(option.usable & ~self._attempt.base_taken):
            part = layout.consumption[position][0]
            sets = self._view.contents[part].layout.sets
            found[tuple((part, sets[number], groups) for number, groups in layout.groups[position])] += 1
        return found

    def _agreeing(self, index: int, asked: Sequence[tuple[RequestProblem, Option]]) -> int:
        """The most devices that have one value, of those that the requests may take."""
        masks = [(self._attempt.candidates(request, option), option.values[index].masks) for request, option in asked]
        atoms = {atom for _, found in masks for atom in found}
        unions = (reduce(or_, (mask & found.get(atom, 0) for mask, found in masks), 0) for atom in atoms)
        return max((union.bit_count() for union in unions), default=0)

    def _differing(self, index: int, asked: Sequence[tuple[RequestProblem, Option]]) -> int:
        masks = [(self._attempt.candidates(request, option), option.values[index].masks) for request, option in asked]
        return len({atom for mask, found in masks for atom, bits in found.items() if mask & bits})

    def _summary(self, request: RequestProblem, finding: RequestFinding) -> Reason:
        data: dict[str, Any] = {"class": finding.device_class, "request": finding.request, "claim": finding.claim}
        node = f"node/{self._view.name}"
        if not finding.matching:
            return Reason("NoDevices", node, data | _refusing(finding))
        data |= {"needed": finding.needed, "free": finding.usable, "total": finding.matching, "refused": finding.refused}
        holders = sorted(
            {d.reason.data["claim"] for d in finding.devices if d.reason is not None and d.reason.code == "DeviceTaken"}
        )
        if holders:
            data["holders"] = holders
        off = sorted({name for d in finding.devices if (feature := _feature(d.reason)) for name in self._off(feature)})
        if off:
            data["features"] = off
        if all(option.alternative.everything for option in request.options):
            return Reason("AllDevicesBusy", node, data)
        return Reason("NotEnoughDevices", node, data | {"missing": finding.missing})

    def _off(self, feature: str) -> Iterator[str]:
        """The feature, and what it needs and is off too: to switch it on alone would change nothing."""
        _, needs = GATES[feature]
        return (name for name in (feature, *needs) if not self._engine.gates(name))

    # ---------------------------------------------------------------------------------------------- one device

    def _check(self, request: RequestProblem, option: Option, position: int) -> Check | None:
        """The first check that fails, in the order in which a search makes them."""
        return next(self._failing(request, option, position, self._view.layout.kinds[position], 1 << position), None)

    def _failing(self, request: RequestProblem, option: Option, position: int, kind: Kind, bit: int) -> Iterator[Check]:
        failure = option.failures.get(position)
        if isinstance(failure, Failure):
            yield "SelectorError", {"error": failure.message, "expression": failure.source.expression}
        if not option.selected & bit and not isinstance(failure, CapacityError):
            yield self._not_selected(option, kind, bit)
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

    def _not_selected(self, option: Option, kind: Kind, bit: int) -> Check:
        """A device of a feature that is switched off counts only where it is one that is asked for."""
        layout = self._view.layout
        if not (layout.here | layout.off) & bit:
            return "DeviceOtherNode", {}
        for source, column in zip(option.alternative.selection.sources, option.alternative.selection.columns):
            if column.program is not None and column.at(kind.shape) is False:
                return "DeviceNotSelected", {"source": source.owner, "expression": source.expression}
        if layout.off & bit:
            return "FeatureOff", {"feature": "DRADeviceCompatibilityGroups"}
        return ("BindingConditionsOff", {}) if kind.binding and not self._binding else ("DeviceNotSelected", {})

    def _capacity(self, option: Option, position: int) -> Iterator[Check]:
        takes = option.consumes.get(position)
        if takes is None:
            return
        if takes.why is not None:
            code, name = takes.why
            data: dict[str, Any] = {"capacity": name}
            if name in takes.values:
                data["needed"] = str(takes.values[name])
            if code == "CapacityExhausted":
                data["free"] = str(Quantity(takes.limits[name], takes.values[name].format))
            elif code == "CapacityPolicy" and (
                policy := allowed(self._view.layout.kinds[position].shape.capacity[name].request_policy)
            ):
                data["policy"] = policy
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
        if not kind.consumes:
            return
        further_share = kind.multiple and bool(self._attempt.base_shared & bit)
        if further_share and self._attempt.rejoins(position):
            return
        if not layout.groups[position]:
            yield "FeatureOff", {"feature": "DRAPartitionableDevices"}
            return
        part, counters = layout.consumption[position]
        content = self._view.contents[part]
        for number, groups in layout.groups[position]:
            state = content.groups.get(number)
            if state is not None and not state.admits(groups):
                used = ", ".join(sorted(state.groups)) or state.words
                offers = ", ".join(sorted(groups)) or "no group"
                yield "GroupIncompatible", {"counterSet": content.layout.sets[number], "groups": offers, "used": used}
        if further_share:
            return
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


def _conflict(one: Draws, other: Draws) -> tuple[str, str] | None:
    """The counter set on which two devices do not go together, and what they offer there; None where they do."""
    for part, counter_set, groups in one:
        for theirs in (theirs for their, name, theirs in other if (their, name) == (part, counter_set)):
            if (groups or theirs) and not groups & theirs:
                return counter_set, " and ".join(", ".join(sorted(each)) or "no group" for each in (groups, theirs))
    return None


def _feature(reason: Reason | None) -> str:
    """The feature that is off and keeps a device from a request, or nothing."""
    if reason is not None and reason.code == "BindingConditionsOff":
        return "DRADeviceBindingConditions"
    return str(reason.data["feature"]) if reason is not None and reason.code == "FeatureOff" else ""


def _refusing(finding: RequestFinding) -> dict[str, str]:
    """The selector of the request itself that refuses devices of its class; nothing where there are none of the class."""
    expression = next(iter(finding.refused_by_itself()), "")
    return (
        {"expression": expression if len(expression) <= _EXPRESSION_MAX else f"{expression[:_EXPRESSION_MAX]}…"}
        if expression
        else {}
    )


def _in_short(finding: RequestFinding) -> str:
    wanted = f"needs {finding.needed} of class {finding.device_class}"
    return f"{wanted}, {finding.usable} free of {finding.matching}" if finding.matching else f"{wanted}, none matches"
