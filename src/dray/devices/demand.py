"""What the claims of one pod ask for, in the form that the search works on.

A demand is compiled once per distinct content of the claims: pods made from one template share it and everything that
was found out with it. What makes a demand impossible on every node (a missing class, a feature that is off, too many
devices) is found here, once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple, Protocol

import msgspec

from dray.api.gates import Gates
from dray.api.quantity import Quantity, QuantityError, quantities
from dray.api.resource import (
    RESULTS_MAX,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.api.tolerations import FOREVER
from dray.devices.selection import OWN, Column, DerivedColumn, Selection, Source
from dray.devices.views import NodeLayout

_encode: Final = msgspec.json.Encoder().encode


# Stands for the claim's name in messages: demands are shared by claims of different names.
CLAIM: Final = "\x00"


class DemandError(ValueError):
    """The claims cannot be satisfied on any node as they stand."""

    def __init__(self, message: str, code: str, **data: object) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.claim = 0

    def text(self, name: str) -> str:
        return str(self).replace(CLAIM, name)


class Alternative:
    """One way to satisfy a request: the ``exactly`` part, or one entry of ``firstAvailable``."""

    __slots__ = (
        "admin",
        "capacity",
        "class_",
        "constraints",
        "count",
        "derived",
        "everything",
        "name",
        "selection",
        "short_name",
        "tolerations",
    )

    def __init__(self, name: str, short_name: str, class_: DeviceClass, selection: Selection) -> None:
        self.name = name
        self.short_name = short_name
        self.class_ = class_
        self.selection = selection
        self.everything = False
        self.count = 0
        self.admin = False
        self.tolerations: tuple[DeviceToleration, ...] = ()
        self.capacity: dict[str, Quantity] = {}
        self.derived: dict[str, DerivedColumn] = {}
        # Which constraints of the claim apply.
        self.constraints: tuple[int, ...] = ()


class Request:
    """One request: alternatives in order of preference (exactly one for ``exactly``)."""

    __slots__ = ("alternatives", "least", "name")

    def __init__(self, name: str, alternatives: tuple[Alternative, ...]) -> None:
        self.name = name
        self.alternatives = alternatives
        # Fewest devices that any alternative needs; for All that is known only on a node.
        self.least = min((0 if alternative.everything else alternative.count) for alternative in alternatives)


class Constraint:
    """``match`` or distinct values of one attribute."""

    __slots__ = ("attribute", "match")

    def __init__(self, attribute: str, *, match: bool) -> None:
        self.attribute = attribute
        self.match = match


class ClaimDemand:
    __slots__ = ("constraints", "requests")

    def __init__(self, requests: tuple[Request, ...], constraints: tuple[Constraint, ...]) -> None:
        self.requests = requests
        self.constraints = constraints


class Limit(Protocol):
    """Which devices may be used, for a reason that no claim states. Equal limits have equal answers."""

    def on(self, layout: NodeLayout) -> int:
        """The positions that may be used."""
        ...

    def __hash__(self) -> int: ...


class Without(NamedTuple):
    """All devices but those at these positions."""

    positions: int

    def on(self, layout: NodeLayout) -> int:
        return layout.seen & ~self.positions


# Limits under which the answers for one demand are kept.
_LIMITS_KEPT: Final = 64


class Demand:
    """The claims of one pod, compiled. ``cache`` holds what is known about it, by layout and by state."""

    __slots__ = (
        "__weakref__",
        "answers",
        "claims",
        "could",
        "epoch",
        "error",
        "expires",
        "key",
        "limit",
        "limited",
        "packed",
        "problems",
        "refused",
    )

    def __init__(self, key: tuple[bytes, ...], claims: tuple[ClaimDemand, ...], error: DemandError | None) -> None:
        self.key = key
        self.claims = claims
        self.error = error
        self.problems: dict[int, object] = {}
        self.answers: dict[int, object] = {}
        self.packed: dict[int, object] = {}
        self.refused: set[int] = set()
        # By layout, whether it would fit if no device were in use; by state, if only these were.
        self.could: dict[Hashable, bool] = {}
        self.epoch = -1
        # When the first toleration ends that one of the answers counted on.
        self.expires = FOREVER
        self.limit: Limit | None = None
        self.limited: dict[Limit, Demand] = {}

    def within(self, limit: Limit) -> Demand:
        """The same claims, from these devices only; requests for all devices are not limited. It has answers of its own."""
        found = self.limited.get(limit)
        if found is None:
            if len(self.limited) >= _LIMITS_KEPT:
                self.limited.clear()
            found = self.limited[limit] = Demand(self.key, self.claims, self.error)
            found.limit = limit
        return found

    def forget(self) -> None:
        """Everything that is known about it."""
        for known in (self.problems, self.answers, self.packed, self.refused, self.could, self.limited):
            known.clear()
        self.expires = FOREVER


class Compiler:
    """Turns claims into demands, with the classes as they are now."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self.classes: dict[str, DeviceClass] = {}
        self._columns: dict[str, Column] = {}
        self._derived: dict[str, DerivedColumn] = {}
        self._demands: dict[tuple[bytes, ...], Demand] = {}

    def put_class(self, cls: DeviceClass) -> None:
        before = self.classes.get(cls.metadata.name)
        self.classes[cls.metadata.name] = cls
        if before is None or _encode(before.spec) != _encode(cls.spec):
            self._demands.clear()

    def remove_class(self, name: str) -> None:
        if self.classes.pop(name, None) is not None:
            self._demands.clear()

    def demand(self, claims: tuple[ResourceClaim, ...]) -> Demand:
        key = tuple([_encode(claim.spec) for claim in claims])
        found = self._demands.get(key)
        if found is None:
            if len(self._demands) > 4096:
                self._demands.clear()
            found = self._demands[key] = self._compile(key, claims)
        return found

    def column(self, expression: str) -> Column:
        found = self._columns.get(expression)
        if found is None:
            if len(self._columns) > 4096:
                self._columns.clear()
            found = self._columns[expression] = Column(expression)
        return found

    def _derived_column(self, expression: str) -> DerivedColumn:
        found = self._derived.get(expression)
        if found is None:
            if len(self._derived) > 4096:
                self._derived.clear()
            found = self._derived[expression] = DerivedColumn(expression)
        return found

    # ----------------------------------------------------------------------------------------------------- compiling

    def _compile(self, key: tuple[bytes, ...], claims: tuple[ResourceClaim, ...]) -> Demand:
        compiled: list[ClaimDemand] = []
        try:
            compiled.extend(map(self._claim, claims))
        except DemandError as error:
            error.claim = len(compiled)
            return Demand(key, (), error)
        return Demand(key, tuple(compiled), None)

    def _claim(self, claim: ResourceClaim) -> ClaimDemand:
        requests: list[Request] = []
        least = 0
        for request in claim.spec.devices.requests:
            compiled = self._request(claim, request)
            if compiled.least > RESULTS_MAX - least:
                raise DemandError(
                    f"claim {CLAIM}, request {request.name}: adding {compiled.least} devices exceeds the claim limit of "
                    f"{RESULTS_MAX}, with {least} already accounted for",
                    "TooManyDevices",
                    request=request.name,
                    needed=least + compiled.least,
                    limit=RESULTS_MAX,
                )
            least += compiled.least
            requests.append(compiled)
        constraints = claim.spec.devices.constraints
        return ClaimDemand(tuple(requests), tuple(self._constraint(i, c) for i, c in enumerate(constraints)))

    def _constraint(self, index: int, constraint: DeviceConstraint) -> Constraint:
        if constraint.match_attribute is not None:
            return Constraint(constraint.match_attribute, match=True)
        if constraint.distinct_attribute is not None:
            return Constraint(constraint.distinct_attribute, match=False)
        raise DemandError(
            f"claim {CLAIM}, constraint #{index}: empty constraint (unsupported constraint type?)", "InvalidRequest"
        )

    def _request(self, claim: ResourceClaim, request: DeviceRequest) -> Request:
        if request.first_available and not self._gates("DRAPrioritizedList"):
            raise self._off(request.name, "has subrequests", "DRAPrioritizedList")
        if not self._gates("DRAConsumableCapacity"):
            if request.exactly is not None and request.exactly.capacity is not None:
                raise self._off(request.name, "has capacity requests", "DRAConsumableCapacity")
            for sub in request.first_available:
                if sub.capacity is not None:
                    raise self._off(sub.name, "has capacity requests", "DRAConsumableCapacity", word="subrequest")
        if request.first_available:
            subs = tuple(
                self._alternative(claim, request.name, sub, f"{request.name}/{sub.name}") for sub in request.first_available
            )
            return Request(request.name, subs)
        exactly = request.exactly if request.exactly is not None else ExactDeviceRequest()
        return Request(request.name, (self._alternative(claim, request.name, exactly, request.name),))

    def _off(self, request: str, what: str, gate: str, word: str = "request") -> DemandError:
        return DemandError(
            f"claim {CLAIM}, {word} {request}: {what}, but the {gate} feature is disabled", "FeatureOff", feature=gate
        )

    def _alternative(self, claim: ResourceClaim, parent: str, wanted: DeviceSubRequest, name: str) -> Alternative:
        short = wanted.name if name != parent else parent
        where = f"claim {CLAIM}, request {short}"
        self._check_features(wanted, where)
        if not wanted.device_class_name:
            raise DemandError(f"{where}: missing device class name (unsupported request type?)", "InvalidRequest")
        class_ = self.classes.get(wanted.device_class_name)
        if class_ is None:
            raise DemandError(
                f"{where}: could not retrieve device class {wanted.device_class_name}: "
                f'deviceclass.resource.k8s.io "{wanted.device_class_name}" not found',
                "ClassMissing",
                request=name,
                **{"class": wanted.device_class_name},
            )
        alternative = Alternative(name, short, class_, self._selection(class_, wanted.selectors))
        alternative.everything = wanted.allocation_mode == "All"
        if wanted.allocation_mode not in ("All", "ExactCount"):
            raise DemandError(f"{where}: unsupported count mode {wanted.allocation_mode}", "InvalidRequest")
        alternative.count = max(wanted.count, 0)
        alternative.admin = isinstance(wanted, ExactDeviceRequest) and bool(wanted.admin_access)
        alternative.tolerations = wanted.tolerations
        alternative.capacity = self._capacity(where, wanted)
        alternative.derived = {entry.name: self._derived_column(entry.expression) for entry in wanted.derived_attributes}
        alternative.constraints = tuple(
            index
            for index, constraint in enumerate(claim.spec.devices.constraints)
            if not constraint.requests or parent in constraint.requests or name in constraint.requests
        )
        return alternative

    def _check_features(self, wanted: DeviceSubRequest, where: str) -> None:
        if wanted.derived_attributes and not self._gates("DRADerivedAttributes"):
            message = f"{where}: cannot handle request with derived attributes, the feature is disabled"
            raise DemandError(message, "FeatureOff", feature="DRADerivedAttributes")
        for index, selector in enumerate(wanted.selectors):
            if selector.cel is None:
                message = f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
                raise DemandError(message, "InvalidRequest")
        if isinstance(wanted, ExactDeviceRequest) and wanted.admin_access is not None and not self._gates("DRAAdminAccess"):
            message = f"{where}: admin access is requested, but the feature is disabled"
            raise DemandError(message, "FeatureOff", feature="DRAAdminAccess")

    def of_class(self, name: str) -> Selection | None:
        """What the class alone selects; None where there is no such class."""
        class_ = self.classes.get(name)
        return self._selection(class_, ()) if class_ is not None else None

    def _selection(self, class_: DeviceClass, selectors: tuple[DeviceSelector, ...]) -> Selection:
        sources = [
            Source(f"class {class_.metadata.name}", i, s.cel.expression) for i, s in enumerate(class_.spec.selectors) if s.cel
        ]
        sources += [Source(OWN, i, s.cel.expression) for i, s in enumerate(selectors) if s.cel]
        return Selection(tuple(sources), tuple(self.column(source.expression) for source in sources))

    def _capacity(self, where: str, wanted: DeviceSubRequest) -> dict[str, Quantity]:
        try:
            return quantities(wanted.capacity.requests if wanted.capacity is not None else {})
        except QuantityError as error:
            raise DemandError(f"{where}: {error}", "InvalidRequest") from error
