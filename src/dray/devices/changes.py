"""The smallest changes that would admit claims on a node: each one was tried before it is told.

A change is one thing: a taint that is tolerated, a claim that lets go, a request that asks for less. What is told of a node is
bounded by the number of trials, and leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from dray.api.quantity import Quantity
from dray.api.resource import DeviceKey, DeviceSubRequest, DeviceTaint, DeviceToleration, ResourceClaim
from dray.api.tolerations import refused_taint
from dray.devices.attempt import Attempt
from dray.devices.capacity import room
from dray.devices.holders import Engine, Holders, rests
from dray.devices.problem import Option, Problem, RequestProblem, positions
from dray.devices.selection import OWN
from dray.devices.views import NodeView

# How many changes of each kind are tried before giving up; each costs one search on one node.
TRIALS = 24


class Change(msgspec.Struct):
    """One change that would admit the claims: ``tolerate`` a taint, ``release`` a claim, ask for ``fewer`` devices or ``less``
    capacity, ``unbind`` devices from a constraint on an attribute, or ``unselect``: do without a selector of the request."""

    kind: str
    claim: str
    request: str = ""
    data: dict[str, Any] = {}

    @property
    def asked(self) -> tuple[str, str, str, str]:
        """What it is asked less of: of such changes the one that asks for most is told."""
        return self.kind, self.claim, self.request, str(self.data.get("capacity", ""))


# A change, or the number of the holder that lets go; the claims that have it; and the uid of that holder.
Trial = tuple[Change | int, Sequence[ResourceClaim], str]


class Changes:
    """Tries changes of one problem on one node."""

    def __init__(
        self, engine: Engine, view: NodeView, problem: Problem, claims: Sequence[ResourceClaim], holders: Holders, now: float
    ) -> None:
        self._engine, self._view, self._problem, self._claims = engine, view, problem, claims
        self._holders, self._now = holders, now

    @cached_property
    def _attempt(self) -> Attempt:
        return Attempt(self._problem, self._view)

    def found(self) -> Iterator[Change | int]:
        """Changes that were tried and would do: tolerate one taint, let go of one claim, ask one request for fewer devices,
        less capacity or devices that a selector of its own refuses, do without a constraint."""
        seen: set[object] = set()
        options = [(request, option) for request in self._problem.requests for option in request.options]
        yield from self._tried(trial for request, option in options for trial in self._tolerations(request, option, seen))
        yield from self._tried(trial for _, option in options for trial in self._releases(option, seen))
        yield from self._first_of_each(trial for request in self._problem.requests for trial in self._smaller(request))
        yield from self._first_of_each(trial for request, option in options for trial in self._less(request, option))
        yield from self._tried(self._unconstrained())
        yield from self._tried(trial for request, option in options for trial in self._unselected(request, option))

    def _unconstrained(self) -> Iterator[Trial]:
        for claim, constraints in enumerate(self._problem.constraints):
            for index, constraint in enumerate(constraints):
                named = {"attribute": constraint.attribute, "index": index}
                change = Change("unbind", self._claims[claim].key, data=named)
                yield change, self._with(change), ""

    def _tried(self, trials: Iterable[Trial]) -> Iterator[Change | int]:
        for change, claims, without in islice(trials, TRIALS):
            if self._engine.fits(self._view.name, claims, without):
                yield change

    def _first_of_each(self, trials: Iterable[Trial]) -> Iterator[Change]:
        """Of trials that ask for ever less, the first that would do."""
        told: set[object] = set()
        for change in self._tried(trial for trial in trials if _asked(trial) not in told):
            assert isinstance(change, Change)
            told.add(change.asked)
            yield change

    def _smaller(self, request: RequestProblem) -> Iterator[Trial]:
        """The same request for ever fewer devices, beginning with as many as it could have by itself."""
        option = request.options[0]
        if len(request.options) > 1 or option.alternative.everything:
            return
        free = self._attempt.candidates(request, option).bit_count()
        for count in range(min(option.count - 1, free), 0, -1):
            change = Change("fewer", self._claims[request.claim].key, option.alternative.name, {"count": count})
            yield change, self._with(change), ""

    def _less(self, request: RequestProblem, option: Option) -> Iterator[Trial]:
        """The same request for ever less of a capacity: as much as one of its devices has left."""
        alternative, kinds = option.alternative, self._view.layout.kinds
        for name, asked in alternative.capacity.items():
            left: dict[int, Quantity] = {}
            for position in positions(option.selected):
                entry = kinds[position].shape.capacity.get(name)
                most = room(entry, self._view.consumed(position).get(name, 0)) if entry is not None else None
                if most is not None and 0 < most.nanos < asked.nanos:
                    left[most.nanos] = most
            for nanos in sorted(left, reverse=True):
                data = {"capacity": name, "amount": str(left[nanos])}
                change = Change("less", self._claims[request.claim].key, alternative.name, data)
                yield change, self._with(change), ""

    def _unselected(self, request: RequestProblem, option: Option) -> Iterator[Trial]:
        """Without one of its own selectors; those of its class are not its to change."""
        own = [source for source in option.alternative.selection.sources if source.owner == OWN]
        for source in own:
            data = {"expression": source.expression, "index": source.number}
            change = Change("unselect", self._claims[request.claim].key, option.alternative.name, data)
            yield change, self._with(change), ""

    def _tolerations(self, request: RequestProblem, option: Option, seen: set[object]) -> Iterator[Trial]:
        for position in positions(option.selected):
            for toleration in self._tolerating(self._view.layout.kinds[position].taints, option.alternative.tolerations):
                key = (request.claim, request.index, toleration.key, toleration.value, toleration.effect)
                if key in seen:
                    continue
                seen.add(key)
                data = {"key": toleration.key, "value": toleration.value, "effect": toleration.effect}
                change = Change("tolerate", self._claims[request.claim].key, option.alternative.name, data)
                yield change, self._with(change), ""

    def _tolerating(self, taints: Sequence[DeviceTaint], known: Sequence[DeviceToleration]) -> Iterator[DeviceToleration]:
        """What would be tried for a device: its first taint that is not tolerated, or its key where that has several effects."""
        refused = [taint for taint in taints if refused_taint((taint,), known, self._now) is not None]
        if not refused:
            return
        first = refused[0]
        if any(taint.key == first.key and (taint.value, taint.effect) != (first.value, first.effect) for taint in refused):
            yield DeviceToleration(first.key, "Exists")
        else:
            yield DeviceToleration(first.key, "Equal" if first.value else "Exists", first.value, first.effect)

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

    def _with(self, change: Change) -> list[ResourceClaim]:
        """The claims with one request changed."""
        return [changed_claim(claim, change) if claim.key == change.claim else claim for claim in self._claims]


def changed_claim(claim: ResourceClaim, change: Change) -> ResourceClaim:
    """The claim as the change makes it; one that is to be released stays as it is."""
    claim = msgspec.convert(msgspec.to_builtins(claim), ResourceClaim)
    devices = claim.spec.devices
    if change.kind == "unbind":
        index = int(change.data["index"])
        devices.constraints = (*devices.constraints[:index], *devices.constraints[index + 1 :])
    name, _, alternative = change.request.partition("/")
    for request in (each for each in devices.requests if each.name == name):
        targets = [request.exactly] if request.exactly is not None else list(request.first_available)
        for target in targets:
            if not alternative or target.name == alternative:
                _change(target, change)
    return claim


def _change(target: DeviceSubRequest, change: Change) -> None:
    match change.kind:
        case "fewer":
            target.count = int(change.data["count"])
        case "tolerate":
            value, effect = str(change.data.get("value") or ""), str(change.data.get("effect") or "")
            toleration = DeviceToleration(str(change.data["key"]), "Equal" if value else "Exists", value, effect)
            target.tolerations = (*target.tolerations, toleration)
        case "less" if target.capacity is not None:
            target.capacity.requests = {**target.capacity.requests, str(change.data["capacity"]): str(change.data["amount"])}
        case "unselect":
            index = int(change.data["index"])
            target.selectors = (*target.selectors[:index], *target.selectors[index + 1 :])
        case _:
            pass


def _asked(trial: Trial) -> object:
    return trial[0].asked if isinstance(trial[0], Change) else trial[0]
