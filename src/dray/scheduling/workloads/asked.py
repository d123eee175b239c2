"""What pods take of their queues: of nodes each by itself, of devices through claims.

Always true: a claim counts once, however many pods use it. What is given counts as it is, from the moment it is decided. What is
not given yet counts as what the claim would get: of alternatives the first that some node could serve, for ``allocationMode:
All`` the devices of the node that has most; beside that stand the least and the most that it can become, so that nobody is
turned away for an alternative that need not be taken, and no limit is exceeded by the one that is. Who only looks (admin
access) takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from dray.api.class_names import ClassNames
from dray.api.kinds import NODES
from dray.api.queues import CLASS_PREFIX, GPU, GPU_CLASS, GPU_RESOURCE
from dray.api.requests import offered_by
from dray.api.resource import AllocationResult, DeviceRequest, DeviceSubRequest, ResourceClaim
from dray.cluster.world import World
from dray.devices import Devices
from dray.devices.amounts import CAPACITY, COUNTER, Span, Stock, Stocks, Taken
from dray.devices.views import NodeLayout
from dray.scheduling.shape.claims import requests

Amounts = dict[str, float]
# By request and alternative: what it would take on each kind of node that could serve it.
Ways = list[list[list[Span]]]


class Guess(NamedTuple):
    """What a claim that has nothing yet would take, and between what."""

    expected: Amounts
    least: Amounts
    most: Amounts


class Asked(NamedTuple):
    """What a pod takes by itself, and by claim (uid) what it takes together with whoever else uses the claim; ``between``: the
    least and the most of claims of which that is not certain; ``missing``: the keys of claims that do not count yet."""

    own: Amounts
    claims: dict[str, Amounts]
    between: dict[str, tuple[Amounts, Amounts]]
    missing: list[str]

    @property
    def least(self) -> Asked:
        return self if not self.between else self._replace(claims=self.claims | {u: each[0] for u, each in self.between.items()})

    @property
    def most(self) -> Asked:
        return self if not self.between else self._replace(claims=self.claims | {u: each[1] for u, each in self.between.items()})


def together(asked: Iterable[Asked], held: Container[str] = ()) -> Amounts:
    """What several pods take in all; claims that are ``held`` cost nothing more."""
    found: Amounts = {}
    seen: set[str] = set()
    for each in asked:
        add(found, each.own)
        for uid, amounts in each.claims.items():
            if uid not in held and uid not in seen:
                seen.add(uid)
                add(found, amounts)
    return found


def add(into: Amounts, amounts: Amounts, sign: float = 1.0) -> None:
    for name, value in amounts.items():
        if value or name not in into:
            into[name] = into.get(name, 0.0) + sign * value


def resource_of(device_class: str) -> str:
    """What devices of a class are in a queue."""
    return GPU if device_class == GPU_CLASS else CLASS_PREFIX + device_class


def named(stock: Stock) -> str:
    """What a counter or a capacity is in a queue: ``counter/DRIVER/NAME``, ``capacity/DRIVER/NAME``."""
    return "/".join(stock)


def stock_of(resource: str) -> Stock | None:
    sort, _, rest = resource.partition("/")
    driver, slash, name = rest.partition("/")
    return Stock(sort, driver, name) if sort in (COUNTER, CAPACITY) and slash and driver and name else None


class DevicesAsked:
    """How much claims take, and how much there is."""

    def __init__(self, world: World, engine: Devices, classes: ClassNames) -> None:
        self._world, self.classes, self.stocks = world, classes, Stocks(engine)
        self._plugged: frozenset[str] | None = None
        self._layouts: list[NodeLayout] | None = None
        # By resource what devices have of it in all.
        self.kept: dict[str, float] = {}
        self._guesses: dict[tuple[str, str, frozenset[str]], Guess] = {}

    def look_again(self) -> None:
        """Devices may do for claims that did not before, or no more."""
        self._guesses.clear()
        self.stocks.forget()

    def changed(self) -> None:
        """Nodes, devices, rules for them or their classes came, changed or went."""
        self._layouts = self._plugged = None
        self.kept.clear()

    # --------------------------------------------------------------------------------------------------------- in all

    @property
    def plugged(self) -> frozenset[str]:
        """The resources that nodes offer themselves."""
        if self._plugged is None:
            self._plugged = frozenset(offered_by(self._world.all(NODES).values()))
        return self._plugged

    def in_all(self, resource: str) -> float:
        """What devices have of a resource that queues count, on the nodes that take pods."""
        found = self.kept.get(resource)
        if found is None:
            found = self.kept[resource] = self.counted(resource)
        return found

    def counted(self, resource: str) -> float:
        """The same, counted from scratch."""
        nodes = [node.metadata.name for node in self._world.all(NODES).values() if not node.spec.unschedulable]
        if (stock := stock_of(resource)) is not None:
            return self.stocks.in_all(nodes, stock)
        if resource.startswith(CLASS_PREFIX):
            return float(self.stocks.in_classes(nodes, [resource.removeprefix(CLASS_PREFIX)]))
        serving = self.classes.serving(GPU_RESOURCE if resource == GPU else resource)
        classes = [*([GPU_CLASS] if resource == GPU else []), *([serving.metadata.name] if serving is not None else [])]
        return float(self.stocks.in_classes(nodes, classes)) if classes else 0.0

    # ------------------------------------------------------------------------------------------------------ of one claim

    def given(self, claim: ResourceClaim, allocation: AllocationResult, counted: Collection[str]) -> Amounts:
        """What a claim with this allocation takes, of what is ``counted``."""
        classes = {name: each.device_class_name for name, each in requests(claim)}
        found: Amounts = {}
        for result in allocation.devices.results:
            if not result.admin_access:
                add(found, {resource_of(classes.get(result.request, "")): 1.0})
        if any(stock_of(name) for name in counted):
            add(found, _named(self.stocks.taken(allocation)))
        return _of(found, counted)

    def guess(self, claim: ResourceClaim, node: str, counted: Collection[str]) -> Guess:
        """What a claim without an allocation takes; ``node``: where its pod is, or empty."""
        key = (claim.uid, node, frozenset(counted))
        found = self._guesses.get(key)
        if found is None:
            found = self._guesses[key] = self._guess(claim, node, counted)
        return found

    def _guess(self, claim: ResourceClaim, node: str, counted: Collection[str]) -> Guess:
        plain = all(_is_plain(request) for request in claim.spec.devices.requests)
        if plain and not any(stock_of(name) for name in counted):
            amounts = _of(_counts(claim), counted)
            return Guess(amounts, amounts, amounts)
        found = Guess({}, {}, {})
        for index, ways in enumerate(self._ways(claim, node)):
            one = _of_request(claim.spec.devices.requests[index], ways)
            for into, amounts in zip(found, one):
                add(into, amounts)
        return Guess(*(_of(amounts, counted) for amounts in found))

    def _ways(self, claim: ResourceClaim, node: str) -> Ways:
        layouts = self.stocks.layouts([node]) if node else self._all_layouts()
        return ways_on(self.stocks, claim, layouts)

    def _all_layouts(self) -> list[NodeLayout]:
        if self._layouts is None:
            self._layouts = self.stocks.layouts(self._world.all(NODES))
        return self._layouts

    # ---------------------------------------------------------------------------------------------------- within a limit

    def narrowed(self, claim: ResourceClaim, room: Mapping[str, float]) -> ResourceClaim:
        """The claim without the alternatives that take more than there is ``room`` for; where none is left, all of them."""
        requests = claim.spec.devices.requests
        kept = tuple(map(partial(_narrowed, room=room), requests, self._ways(claim, "")))
        if kept == requests:
            return claim
        devices = msgspec.structs.replace(claim.spec.devices, requests=kept)
        return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=devices))

    def nodes_within(self, claim: ResourceClaim, room: Mapping[str, float]) -> frozenset[str] | None:
        """The nodes on which the claim can keep to what there is room for; None: all of them."""
        out = {layout.serial for layout in self._all_layouts() if not self._fits_on(claim, layout, room)}
        if not out:
            return None
        layouts = ((name, self.stocks.layouts([name])) for name in self._world.all(NODES))
        return frozenset(name for name, found in layouts if not found or found[0].serial not in out)

    def _fits_on(self, claim: ResourceClaim, layout: NodeLayout, room: Mapping[str, float]) -> bool:
        least: Amounts = {}
        for request, ways in zip(claim.spec.devices.requests, ways_on(self.stocks, claim, [layout])):
            add(least, _of_request(request, ways).least)
        return _fits(least, room)


# ------------------------------------------------------------------------------------------------------------- requests


def ways_on(stocks: Stocks, claim: ResourceClaim, layouts: Iterable[NodeLayout]) -> Ways:
    found: Ways = [[[] for _ in _alternatives(each)] for each in claim.spec.devices.requests]
    for layout in layouts:
        for request, spans in zip(found, stocks.spans(claim, layout)):
            for way, span in zip(request, spans):
                if span is not None:
                    way.append(span)
    return found


def _alternatives(request: DeviceRequest) -> Sequence[DeviceSubRequest]:
    return [request.exactly] if request.exactly is not None else request.first_available


def _narrowed(request: DeviceRequest, ways: Sequence[Sequence[Span]], room: Mapping[str, float]) -> DeviceRequest:
    left = tuple(
        each
        for each, spans in zip(request.first_available, ways)
        if not spans or any(_fits(_least(each.device_class_name, span), room) for span in spans)
    )
    return msgspec.structs.replace(request, first_available=left) if left else request


def _is_plain(request: DeviceRequest) -> bool:
    """Whether it is certain how many devices it gets."""
    return request.exactly is not None and request.exactly.allocation_mode != "All"


def _counts(claim: ResourceClaim) -> Amounts:
    found: Amounts = {}
    for request in claim.spec.devices.requests:
        if request.exactly is not None and not request.exactly.admin_access:
            add(found, {resource_of(request.exactly.device_class_name): float(max(1, request.exactly.count))})
    return found


def _of_request(request: DeviceRequest, ways: Sequence[Sequence[Span]]) -> Guess:
    """Of the ways that some node could serve; where there is none, as many devices as the request says."""
    named_ways = [(each.device_class_name, spans) for each, spans in zip(_alternatives(request), ways) if spans]
    if not named_ways:
        asked = _as_written(request)
        return Guess(asked[0], _each(min, asked), _each(max, asked)) if asked else Guess({}, {}, {})
    first, spans = named_ways[0]
    least = [_least(name, span) for name, spans in named_ways for span in spans]
    most = [_amounts(name, span, span.most) for name, spans in named_ways for span in spans]
    return Guess(_each(max, [_least(first, span) for span in spans]), _each(min, least), _each(max, most))


def _as_written(request: DeviceRequest) -> list[Amounts]:
    if request.exactly is not None and request.exactly.admin_access:
        return [{}]
    ways = _alternatives(request)
    counts = [0 if each.allocation_mode == "All" else max(1, each.count) for each in ways]
    return [{resource_of(each.device_class_name): float(count)} for each, count in zip(ways, counts)]


def _least(device_class: str, span: Span) -> Amounts:
    return _amounts(device_class, span, span.least)


def _amounts(device_class: str, span: Span, taken: Taken) -> Amounts:
    return {resource_of(device_class): float(span.devices), **_named(taken)} if span.devices else {}


def _each(choose: Callable[[Iterable[float]], float], several: Sequence[Amounts]) -> Amounts:
    names = dict.fromkeys(name for each in several for name in each)
    return {name: choose(each.get(name, 0.0) for each in several) for name in names}


def _named(taken: Taken) -> Amounts:
    return {named(stock): value for stock, value in taken.items()}


def _of(found: Amounts, counted: Container[str]) -> Amounts:
    return {name: value for name, value in found.items() if name == GPU or name in counted}


def _fits(amounts: Amounts, room: Mapping[str, float]) -> bool:
    return all(value <= room.get(name, value) for name, value in amounts.items())
