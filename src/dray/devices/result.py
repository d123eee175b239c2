"""From picks to the allocation that is written to a claim: results, configuration, node selector, as upstream composes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.api.gates import Gates
from dray.api.resource import (
    CONFIG_RESULTS_MAX,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueConfiguration,
    ResourceClaim,
)
from dray.api.selectors import node_name_selector
from dray.devices.attempt import Pick
from dray.devices.demand import Alternative, ClaimDemand, Demand
from dray.devices.views import NodeView


class Unwritable(ValueError):
    """There is a solution, but no API server would take the allocation. ``claim`` is the number of the claim."""

    def __init__(self, claim: int, message: str) -> None:
        super().__init__(message)
        self.claim = claim


class Assembly:
    """Makes allocations. ``new_share`` gives the id of a new share of a device."""

    def __init__(self, gates: Gates, new_share: Callable[[], str]) -> None:
        self._binding = gates("DRADeviceBindingConditions") and gates("DRAResourceClaimDeviceStatus")
        self._groups = gates("DRADeviceCompatibilityGroups")
        self.new_share = new_share

    def results(
        self,
        view: NodeView,
        demand: Demand,
        claims: Sequence[ResourceClaim],
        picks: Sequence[Pick],
        chosen: dict[tuple[int, int], int],
    ) -> tuple[AllocationResult, ...]:
        by_claim: list[list[Pick]] = [[] for _ in claims]
        for pick in picks:
            by_claim[pick.request.claim].append(pick)
        return tuple(
            [
                self._allocation(view, number, compiled, claim, own, chosen)
                for number, (compiled, claim, own) in enumerate(zip(demand.claims, claims, by_claim))
            ]
        )

    def _allocation(
        self,
        view: NodeView,
        number: int,
        compiled: ClaimDemand,
        claim: ResourceClaim,
        picks: list[Pick],
        chosen: dict[tuple[int, int], int],
    ) -> AllocationResult:
        alternatives = [request.alternatives[chosen.get((number, index), 0)] for index, request in enumerate(compiled.requests)]
        config = _config(claim, alternatives) if self._has_config(claim, alternatives) else ()
        if len(config) > CONFIG_RESULTS_MAX:
            raise Unwritable(number, f"{len(config)} device configurations apply, an allocation can hold {CONFIG_RESULTS_MAX}")
        results = tuple([self._result(view, pick) for pick in picks])
        return AllocationResult(DeviceAllocationResult(results, config), _node_selector(view, number, picks))

    def _has_config(self, claim: ResourceClaim, alternatives: list[Alternative]) -> bool:
        return bool(claim.spec.devices.config) or any(alternative.class_.spec.config for alternative in alternatives)

    def _result(self, view: NodeView, pick: Pick) -> DeviceRequestAllocationResult:
        device = view.device(pick.position)
        kind = device.kind
        spec = device.slice.spec
        alternative = pick.option.alternative
        result = DeviceRequestAllocationResult(alternative.name, spec.driver, spec.pool.name, device.name)
        if alternative.admin:
            result.admin_access = True
        result.tolerations = alternative.tolerations
        result.skip_node_operations = spec.skip_node_operations
        if self._binding:
            result.binding_conditions = kind.binding
            result.binding_failure_conditions = kind.binding_failure
        if pick.shared:
            result.share_id = self.new_share()
            if pick.consumes is not None and pick.consumes.values:
                result.consumed_capacity = {name: str(value) for name, value in pick.consumes.values.items()}
        if self._groups and kind.declares_groups:
            result.compatibility_groups = {entry.counter_set: tuple(sorted(entry.groups)) for entry in kind.consumes}
        return result


def _config(claim: ResourceClaim, alternatives: list[Alternative]) -> tuple[DeviceAllocationConfiguration, ...]:
    """Class configuration once per class, then the claim's; a list that covers every request is left empty ("all")."""
    names: dict[str, list[str]] = {}
    classes = {alternative.class_.metadata.name: alternative.class_ for alternative in alternatives}
    for alternative in alternatives:
        names.setdefault(alternative.class_.metadata.name, []).append(alternative.name)
    found: list[tuple[str, tuple[str, ...], OpaqueConfiguration | None]] = []
    for name, requests in names.items():
        found.extend(("FromClass", tuple(requests), entry.opaque) for entry in classes[name].spec.config)
    chosen = {alternative.name for alternative in alternatives} | {
        alternative.name.partition("/")[0] for alternative in alternatives
    }
    found.extend(
        ("FromClaim", own.requests, own.opaque)
        for own in claim.spec.devices.config
        if not own.requests or any(request in chosen for request in own.requests)
    )
    return tuple(
        DeviceAllocationConfiguration(source, () if _covers(requests, alternatives) else requests, opaque)
        for source, requests, opaque in found
    )


def _covers(requests: tuple[str, ...], alternatives: list[Alternative]) -> bool:
    return all(alternative.name in requests or alternative.name.partition("/")[0] in requests for alternative in alternatives)


def _node_selector(view: NodeView, claim: int, picks: list[Pick]) -> NodeSelector | None:
    """Where the allocation can be used: this node if any device is tied to it, else what all its devices ask for."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for pick in picks:
        device = view.device(pick.position)
        spec = device.slice.spec
        source = device.published if spec.per_device_node_selection else spec
        if source.node_name is not None or device.kind.binds_to_node:
            return node_name_selector(view.name)
        if source.node_selector is None or not source.node_selector.node_selector_terms:
            continue
        if len(source.node_selector.node_selector_terms) > 1:
            terms = len(source.node_selector.node_selector_terms)
            raise Unwritable(claim, f"create NodeSelector: unsupported ResourceSlice.NodeSelector with {terms} terms")
        term = source.node_selector.node_selector_terms[0]
        _add_new(fields, term.match_fields)
        _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _add_new(known: list[NodeSelectorRequirement], more: tuple[NodeSelectorRequirement, ...]) -> None:
    for requirement in more:
        if not any(_same(requirement, other) for other in known):
            known.append(requirement)


def _same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return one.key == other.key and one.operator == other.operator and set(one.values) == set(other.values)
