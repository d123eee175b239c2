"""Which taints evict whom: taints that drivers publish, taints that rules add, and the pods that use the devices.

Always true: only ``NoExecute`` counts here; of a pool only the newest generation counts; a rule is matched with the allocation
itself, so that a device which nobody publishes any more can be tainted too; time counts from when a taint was added, by the API's
word, and never from when it was seen. Finished pods, pods on their way out and pods without a node are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

import msgspec

from dray.api.consumers import group_of, is_group, is_pod, owns, reserves
from dray.api.core import Pod
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.meta import Object
from dray.api.resource import (
    DeviceKey,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceSlice,
)
from dray.api.times import parse_time
from dray.api.tolerations import EVICTING, FOREVER, evicts, selects, tolerated_seconds
from dray.cluster.world import World

Selector = tuple[str | None, str | None, str | None]


class Cause(msgspec.Struct, frozen=True, order=True):
    """One taint of one device. Rules come first, by name; then what drivers publish."""

    published: bool
    rule: str
    rule_uid: str
    device: str
    index: int
    taint: str

    @property
    def text(self) -> str:
        by = "" if self.published else f" by rule {self.rule}"
        return f"{self.taint} on {self.device}{by}"


class Eviction(msgspec.Struct, frozen=True):
    """When a pod must leave, and every taint that asks for it, also those that would ask for it later."""

    when: float
    causes: tuple[Cause, ...]


class Active(msgspec.Struct, frozen=True):
    """A taint that is in force on a device, since when, and what to say of it."""

    taint: DeviceTaint
    added: float
    cause: Cause


# ---------------------------------------------------------------------------------------------------- taints in force


class _Pool:
    __slots__ = ("generations", "slices")

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.generations: Counter[int] = Counter()

    @property
    def newest(self) -> int | None:
        return max(self.generations, default=None)

    def of(self, generation: int | None) -> list[ResourceSlice]:
        return [found for found in self.slices.values() if found.spec.pool.generation == generation]

    def put(self, slice: ResourceSlice) -> None:
        self.slices[slice.metadata.name] = slice
        self.generations[slice.spec.pool.generation] += 1

    def drop(self, slice: ResourceSlice) -> None:
        del self.slices[slice.metadata.name]
        self.generations[slice.spec.pool.generation] -= 1
        if not self.generations[slice.spec.pool.generation]:
            del self.generations[slice.spec.pool.generation]


class Taints:
    """The evicting taints of every device. A change of a slice costs in proportion to its own devices."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], _Pool] = {}
        self._published: dict[str, dict[str, tuple[Active, ...]]] = {}  # device -> slice -> taints
        self._rules: dict[Selector, dict[str, DeviceTaintRule]] = {}

    def __bool__(self) -> bool:
        return bool(self._published or self._rules)

    def change_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> set[str]:
        """The devices whose taints are others now."""
        found = old or new
        assert found is not None
        key = (found.spec.driver, found.spec.pool.name)
        pool = self._pools.setdefault(key, _Pool())
        before = pool.newest
        gone = [old] if old is not None else []
        come = [new] if new is not None else []
        for slice in gone:
            pool.drop(slice)
        for slice in come:
            pool.put(slice)
        if not pool.slices:
            del self._pools[key]
        after = pool.newest
        if before != after:  # then the whole pool counts
            return self._replace([*pool.of(before), *_in(before, gone)], pool.of(after))
        return self._replace(_in(before, gone), _in(after, come))

    def _replace(self, gone: Iterable[ResourceSlice], come: Iterable[ResourceSlice]) -> set[str]:
        before = {(device, slice.metadata.name): found for slice in gone for device, found in _evicting(slice)}
        after = {(device, slice.metadata.name): found for slice in come for device, found in _evicting(slice)}
        for device, name in before.keys() - after.keys():
            held = self._published[device]
            del held[name]
            if not held:
                del self._published[device]
        for (device, name), found in after.items():
            self._published.setdefault(device, {})[name] = found
        return {place[0] for place in before.keys() | after.keys() if before.get(place) != after.get(place)}

    def put_rule(self, rule: DeviceTaintRule) -> None:
        selector = rule.spec.device_selector
        if selector is not None and selector.by_names and evicts(rule.spec.taint):
            self._rules.setdefault(_selector(selector), {})[rule.metadata.name] = rule

    def drop_rule(self, rule: DeviceTaintRule) -> None:
        selector = rule.spec.device_selector
        if selector is not None and (same := self._rules.get(_selector(selector))) is not None:
            same.pop(rule.metadata.name, None)
            if not same:
                del self._rules[_selector(selector)]

    def on(self, driver: str, pool: str, device: str) -> Iterator[Active]:
        """The evicting taints of a device: those that the driver publishes, and those of rules."""
        name = device_name(driver, pool, device)
        for found in self._published.get(name, {}).values():
            yield from found
        if self._rules:
            for selector in product((None, driver), (None, pool), (None, device)):
                for rule in self._rules.get(selector, {}).values():
                    yield _of_rule(rule, name)

    def count_published(self, selector: DeviceTaintSelector | None) -> int:
        """How many published devices a selector is about."""
        return sum(
            selects(selector, driver, pool, device.name)
            for (driver, pool), found in self._pools.items()
            if selector is not None and selector.driver in (None, driver) and selector.pool in (None, pool)
            for slice in found.of(found.newest)
            for device in slice.spec.devices
        )


def device_name(driver: str, pool: str, device: str) -> str:
    """``DRIVER/POOL/DEVICE``: neither a driver's nor a device's name has a slash."""
    return f"{driver}/{pool}/{device}"


def taint_text(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _in(generation: int | None, slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    return [slice for slice in slices if slice.spec.pool.generation == generation]


def _evicting(slice: ResourceSlice) -> Iterator[tuple[str, tuple[Active, ...]]]:
    spec = slice.spec
    for device in spec.devices:
        if any(evicts(taint) for taint in device.taints):
            name = device_name(spec.driver, spec.pool.name, device.name)
            yield (
                name,
                tuple(
                    Active(taint, _added(taint, slice), Cause(True, "", "", name, index, taint_text(taint)))
                    for index, taint in enumerate(device.taints)
                    if evicts(taint)
                ),
            )


def _of_rule(rule: DeviceTaintRule, device: str) -> Active:
    taint = rule.spec.taint
    return Active(taint, _added(taint, rule), Cause(False, rule.metadata.name, rule.uid, device, 0, taint_text(taint)))


def _added(taint: DeviceTaint, holder: Object) -> float:
    """When the taint was added. The API server always says so; without its word, its object is as old as the taint can be."""
    for text in (taint.time_added, holder.metadata.creation_timestamp):
        try:
            if text:
                return parse_time(text)
        except ValueError:
            continue
    return 0.0


def _selector(selector: DeviceTaintSelector) -> Selector:
    return selector.driver, selector.pool, selector.device


# ------------------------------------------------------------------------------------------------------ who must leave


class Users:
    """The claims that hold devices, by device, and the pods that use the claims."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._holders = world.index(RESOURCE_CLAIMS, _devices_held)
        self._members = world.index(PODS, lambda pod: (f"{pod.metadata.namespace}/{group_of(pod)}",) if group_of(pod) else ())

    def of_device(self, device: str) -> Iterator[ResourceClaim]:
        for key in self._holders[device]:
            yield self._world.get(RESOURCE_CLAIMS, key)

    def selected(self, selector: DeviceTaintSelector | None) -> list[str]:
        """The devices in use that a rule's selector is about."""
        if selector is None or not selector.by_names:
            return []
        if selector.driver is not None and selector.pool is not None and selector.device is not None:
            name = device_name(selector.driver, selector.pool, selector.device)
            return [name] if self._holders[name] else []
        return [name for name in self._holders.values() if selects(selector, *DeviceKey.parse(name))]

    def pods_on(self, devices: Iterable[str]) -> dict[str, None]:
        """The keys of the pods that the claims on these devices are reserved for."""
        return {key: None for device in devices for claim in self.of_device(device) for key in self.of_claim(claim)}

    def of_claim(self, claim: ResourceClaim) -> Iterator[str]:
        """The keys of the pods that a claim is reserved for, by themselves or as a group."""
        for user in claim.status.reserved_for:
            key = f"{claim.metadata.namespace}/{user.name}"
            if is_pod(user):
                yield key
            elif is_group(user):
                yield from self._members[key]

    def affected(self, rule: DeviceTaintRule) -> Affected:
        """Whom the rule alone would evict if its effect was ``NoExecute``, now or when a toleration ends, and who of them is on
        the way out already."""
        taint = msgspec.structs.replace(rule.spec.taint, effect=EVICTING)
        alone = Taints()
        alone.put_rule(msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint)))
        devices = self.selected(rule.spec.device_selector)
        pods, going = dict[str, Eviction](), list[str]()
        for key in self.pods_on(devices):
            pod: Pod | None = self._world.get(PODS, key)
            found = eviction_of(self._world, alone, as_if_it_stayed(pod)) if pod is not None else None
            if pod is not None and pod.metadata.deletion_timestamp is not None and found is not None:
                going.append(key)
            elif found is not None:
                pods[key] = found
        held = sum(_results_on(claim, name) for name in devices for claim in self.of_device(name))
        return Affected(held, pods, going)


class Affected(msgspec.Struct):
    """What a rule is about: allocations of devices that it selects, the pods that it would evict, and those that use the devices
    until they are gone."""

    allocated: int
    pods: dict[str, Eviction]
    going: list[str]

    @property
    def namespaces(self) -> set[str]:
        return {key.partition("/")[0] for key in self.pods}


def eviction_of(world: World, taints: Taints, pod: Pod) -> Eviction | None:
    """When and why a pod must leave; None when it may stay."""
    if not leavable(pod):
        return None
    when, causes = FOREVER, set[Cause]()
    for claim in claims_in_use(world, pod):
        assert claim.status.allocation is not None
        for result in claim.status.allocation.devices.results:
            for at, cause in _untolerated(taints, result):
                when = min(when, at)
                causes.add(cause)
    return Eviction(when, tuple(sorted(causes))) if causes else None


def as_if_it_stayed(pod: Pod) -> Pod:
    """The pod as it was before it was told to leave, to be asked about."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=None))


def leavable(pod: Pod) -> bool:
    """It is on a node, and neither finished nor on its way out."""
    return bool(pod.spec.node_name) and not pod.terminal and pod.metadata.deletion_timestamp is None


def tainted(taints: Taints, claim: ResourceClaim) -> bool:
    """Whether some taint asks the claim's users to leave."""
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    return any(True for result in results for _ in _untolerated(taints, result))


def _untolerated(taints: Taints, result: DeviceRequestAllocationResult) -> Iterator[tuple[float, Cause]]:
    for active in taints.on(result.driver, result.pool, result.device):
        seconds = tolerated_seconds(active.taint, result.tolerations)
        if seconds != FOREVER:
            yield active.added + seconds, active.cause


def claims_in_use(world: World, pod: Pod) -> Iterator[ResourceClaim]:
    """The allocated claims that are reserved for the pod or its group: named by it, made for it, or made for its extended
    resources."""
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [(entry.resource_claim_name or recorded.get(entry.name), not entry.resource_claim_name) for entry in
             pod.spec.resource_claims]  # fmt: skip
    if pod.status.extended_resource_claim_status is not None:
        names.append((pod.status.extended_resource_claim_status.resource_claim_name, True))
    for name, generated in names:
        claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, f"{pod.metadata.namespace}/{name}") if name else None
        if claim is None or claim.status.allocation is None:
            continue
        if reserves(claim, pod) and (not generated or owns(pod, claim.metadata.controller)):
            yield claim


def _devices_held(claim: ResourceClaim) -> list[str]:
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    return list(dict.fromkeys(device_name(result.driver, result.pool, result.device) for result in results))


def _results_on(claim: ResourceClaim, device: str) -> int:
    assert claim.status.allocation is not None
    return sum(device_name(r.driver, r.pool, r.device) == device for r in claim.status.allocation.devices.results)
