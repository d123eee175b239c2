"""Every published device: pools by driver and name, generations, completeness, validity, taint rules, and views by node.

Changes are O(what changed): a slice replaces itself in its pool, the pool's contents and the views that show it are
forgotten, and made again when somebody looks. The inventory knows who uses a device only through the contents that it keeps
up to date with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import msgspec

from dray.api.core import Node, NodeSelector
from dray.api.gates import Gates
from dray.api.resource import Device, DeviceKey, DeviceTaint, DeviceTaintRule, ResourceSlice
from dray.api.selectors import SelectorError, node_selector_matches
from dray.books.journal import Books
from dray.devices.layouts import Layouts
from dray.devices.ledger import Charge, Holding, Ledger, PoolKey
from dray.devices.overlay import Overlay
from dray.devices.pools import Pool, PoolContent, PublishedSlice, counter_sets
from dray.devices.views import NodeView, Part, Segment

_encode = msgspec.json.Encoder().encode
SHAPES_KEPT = 500_000
OPTIONAL_OPERATIONS = "DRAOptionalNodeOperations"
# A pool of more slices than this is taken to concern every node rather than looked through.
_REACH_SLICES = 16


class Inventory:
    """The devices of a cluster. ``epoch`` changes when the numbers of states start afresh; what is in use never changes it."""

    def __init__(self, gates: Gates, *, by_pool: bool, books: Books) -> None:
        self._partitions = gates("DRAPartitionableDevices")
        self._groups = gates("DRADeviceCompatibilityGroups")
        self._operations = gates("DRAOptionalNodeOperations")
        self.ledger = Ledger(self._holding_changed, books)
        self.nodes: dict[str, Node] = {}
        self.epoch = 0
        self._pools: dict[PoolKey, Pool] = {}
        self._slices: dict[str, PublishedSlice] = {}
        self._on_node: dict[str, dict[str, PublishedSlice]] = {}
        self._elsewhere: dict[str, PublishedSlice] = {}
        self.views: dict[str, NodeView] = {}
        # Slices whose node selectors cannot be read, and why.
        self._unreadable: dict[str, str] = {}
        self._arrivals = 0
        # Serials of contents, layouts and states: never given out twice, because caches go by them.
        self._numbers = count(1)
        self.overlay = Overlay(gates)
        self._layouts = Layouts(gates, self.overlay, self._numbers, by_pool=by_pool)
        self._states: dict[tuple[object, ...], int] = {}

    # ------------------------------------------------------------------------------------------------------- changes

    def put_node(self, node: Node) -> None:
        name = node.metadata.name
        before = self.nodes.get(name)
        self.nodes[name] = node
        if before is None or _seen_of(before) != _seen_of(node):
            self._forget_view(name)
        elif name in self.views:
            self.views[name].node = node

    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self._forget_view(name)

    def put_slice(self, raw: ResourceSlice, key: str) -> None:
        """``key`` tells slices apart that have one name, which no cluster has but test data may."""
        name = key or raw.metadata.name
        before = self._slices.get(name)
        if before is not None and before.spec == raw.spec:
            return
        order = self._arrivals if before is None else before.order
        self._arrivals += 1
        slice = PublishedSlice(raw, name, order)
        if before is not None:
            self._unlink(before)
        self._slices[name] = slice
        pool_key = (slice.spec.driver, slice.spec.pool.name)
        pool = self._pools.get(pool_key)
        if pool is None:
            pool = self._pools[pool_key] = Pool(pool_key)
        pool.slices[name] = slice
        if slice.spec.node_name:
            self._on_node.setdefault(slice.spec.node_name, {})[name] = slice
        else:
            self._elsewhere[name] = slice
        self._forget_contents(pool)

    def remove_slice(self, name: str) -> None:
        slice = self._slices.pop(name, None)
        if slice is not None:
            self._unlink(slice)

    def put_rule(self, rule: DeviceTaintRule) -> None:
        self.remove_rule(rule.metadata.name)
        self.overlay.put(rule)
        self._forget_tainted(rule)

    def remove_rule(self, name: str) -> None:
        rule = self.overlay.remove(name)
        if rule is not None:
            self._forget_tainted(rule)

    def _unlink(self, slice: PublishedSlice) -> None:
        key = (slice.spec.driver, slice.spec.pool.name)
        pool = self._pools[key]
        self._forget_contents(pool)
        pool.slices.pop(slice.key, None)
        self._unreadable.pop(slice.key, None)
        if not pool.slices:
            del self._pools[key]
        if slice.spec.node_name:
            on_node = self._on_node[slice.spec.node_name]
            on_node.pop(slice.key, None)
            if not on_node:
                del self._on_node[slice.spec.node_name]
        else:
            self._elsewhere.pop(slice.key, None)

    def _forget_tainted(self, rule: DeviceTaintRule) -> None:
        selector = rule.spec.device_selector
        if selector is None:
            return
        for pool in self._pools.values():
            if selector.driver in (None, pool.key[0]) and selector.pool in (None, pool.key[1]):
                self._forget_contents(pool)

    def _forget_contents(self, pool: Pool) -> None:
        """Forget what was made of a pool's slices, and the view of every node that one of them concerns."""
        pool.forget()
        if not self.views:
            return
        for slice in pool.slices.values():
            if slice.spec.node_name:
                self._forget_view(slice.spec.node_name)
            else:
                for name in [name for name in self.views if self._targets(slice, self.nodes[name])]:
                    self._forget_view(name)

    def _forget_view(self, name: str) -> None:
        view = self.views.pop(name, None)
        if view is not None:
            for content in view.contents:
                content.views.discard(name)

    def _forget_shapes(self) -> None:
        """Devices whose attributes keep changing leave shapes behind that nobody will see again: start over."""
        for pool in self._pools.values():
            pool.forget()
        self.views.clear()
        self._layouts.forget()
        self._states.clear()
        self.epoch += 1

    def _holding_changed(self, key: DeviceKey, holding: Holding) -> None:
        pool = self._pools.get((key.driver, key.pool))
        if pool is None:
            return
        for content in pool.contents.values():
            content.update(key, holding)
            if content.local:
                for name in content.views:
                    self.views[name].state = 0

    # ------------------------------------------------------------------------------------------------------- reading

    def view(self, name: str) -> NodeView | None:
        """The node's devices now; None for a node that is not known."""
        view = self.views.get(name)
        if view is None:
            node = self.nodes.get(name)
            if node is None:
                return None
            if len(self._layouts) > SHAPES_KEPT:
                self._forget_shapes()
            view = self.views[name] = self._make_view(node)
            for content in view.contents:
                content.views.add(name)
        return view

    def held(self, view: NodeView, charges: Iterable[Charge] = ()) -> NodeView:
        """The node's devices as if these were all that is held of them."""
        contents = tuple(content.unused() for content in view.contents)
        holdings: dict[DeviceKey, Holding] = {}
        for charge in charges:
            holdings.setdefault(charge.device, Holding()).add(charge)
        for content in contents if holdings else ():
            for device, holding in holdings.items():
                if device[:2] == content.key:
                    content.update(device, holding)
        return NodeView(view.node, view.layout, contents, view.incomplete, view.invalid)

    def state(self, view: NodeView) -> int:
        """A number for the state that the node is in: equal numbers, equal answers (within one epoch)."""
        if view.state:
            return view.state
        key = view.state_key()
        found = self._states.get(key)
        if found is None:
            if len(self._states) > 1_000_000:
                self._forget_states()
            found = self._states[key] = next(self._numbers)
        if not view.fabric:
            # What several nodes see changes without any of them being told, so that is looked up each time.
            view.state = found
        return found

    def _forget_states(self) -> None:
        self._states.clear()
        self.epoch += 1
        for view in self.views.values():
            view.state = 0

    def published(self, key: DeviceKey) -> list[Device]:
        """The device as its pool has it now; several where a name occurs on several nodes."""
        pool = self._pools.get((key.driver, key.pool))
        newest = pool.of_generation(pool.newest()) if pool is not None else ()
        return [device for slice in newest for device in slice.spec.devices if device.name == key.device]

    def taints_now(self, key: DeviceKey) -> tuple[DeviceTaint, ...]:
        """Every taint that a device has now, published or not."""
        return self.overlay.taints(*key, (taint for device in self.published(key) for taint in device.taints))

    def reach(self, key: PoolKey) -> frozenset[str] | None:
        """The nodes whose devices are in the pool, and so share its counters and its completeness; None: perhaps all."""
        pool = self._pools.get(key)
        slices = pool.slices.values() if pool is not None else ()
        if len(slices) > _REACH_SLICES:
            return None
        names = {slice.spec.node_name for slice in slices if slice.spec.node_name or slice.spec.devices}
        return None if "" in names or None in names else frozenset(name for name in names if name)

    def completeness(self, key: PoolKey) -> tuple[int, int]:
        """How many slices the newest generation of a pool has, and how many it should have."""
        newest = self._pools[key].of_generation(self._pools[key].newest())
        return len(newest), newest[0].spec.pool.resource_slice_count

    def counts(self, key: PoolKey) -> bool:
        """Whether devices of the pool share counters."""
        pool = self._pools.get(key)
        return pool is not None and any(slice.spec.shared_counters for slice in pool.slices.values())

    def content(self, key: PoolKey) -> PoolContent | None:
        """The newest that is published of a pool, complete or not, and what of it is in use; None where it cannot be read."""
        pool = self._pools.get(key)
        if pool is None:
            return None
        if pool.now is None:
            newest = pool.of_generation(pool.newest())
            pool.now = self._content_of(pool, sorted(newest, key=lambda slice: slice.name))
        return pool.now[0]

    def pools(self) -> Iterable[Pool]:
        return self._pools.values()

    def shared_pools(self, name: str) -> set[PoolKey]:
        """The pools with devices that this node can use and that are not its own: those of a fabric or a network."""
        node = self.nodes.get(name)
        if node is None or not self._elsewhere:
            return set()
        found = (slice for slice in self._elsewhere.values() if self._targets(slice, node))
        return {(slice.spec.driver, slice.spec.pool.name) for slice in found}

    # ---------------------------------------------------------------------------------------------------- making views

    def _make_view(self, node: Node) -> NodeView:
        contents: list[PoolContent] = []
        parts: list[Part] = []
        incomplete: list[PoolKey] = []
        invalid: list[tuple[PoolKey, str]] = []
        offset = 0
        for key, slices in sorted(self._relevant(node).items()):
            content, problem = self._content(self._pools[key], slices)
            if problem == "incomplete":
                incomplete.append(key)
            elif problem:
                invalid.append((key, problem))
            elif content is not None:
                part = self._part(content, slices, node, offset)
                offset += sum(segment.length for segment in part.segments)
                contents.append(content)
                parts.append(part)
        operations = self._operations and OPTIONAL_OPERATIONS in node.status.declared_features
        layout = self._layouts.node(tuple(parts), operations)
        return NodeView(node, layout, tuple(contents), tuple(incomplete), tuple(invalid))

    def _relevant(self, node: Node) -> dict[PoolKey, list[PublishedSlice]]:
        """The slices that concern the node, of the newest generation among them, in order of arrival."""
        found: dict[PoolKey, list[PublishedSlice]] = {}
        slices = sorted(self._on_node.get(node.metadata.name, {}).values(), key=_order)
        if self._elsewhere:
            slices += sorted((slice for slice in self._elsewhere.values() if self._targets(slice, node)), key=_order)
        for slice in slices:
            if not self._partitions and (slice.spec.per_device_node_selection is not None or slice.spec.shared_counters):
                continue
            key = (slice.spec.driver, slice.spec.pool.name)
            group = found.get(key)
            if group is None or slice.generation > group[0].generation:
                found[key] = [slice]
            elif slice.generation == group[0].generation:
                group.append(slice)
        return found

    def _targets(self, slice: PublishedSlice, node: Node) -> bool:
        """Whether the slice concerns the node. One whose selector cannot be read does, and makes its pool invalid."""
        try:
            return self._selects(slice, node)
        except SelectorError as error:
            self._unreadable[slice.key] = f"slice {slice.name}: {error}"
            return True

    def _selects(self, slice: PublishedSlice, node: Node) -> bool:
        spec = slice.spec
        if spec.all_nodes or spec.node_selector is not None:
            return _node_matches(node, None, spec.all_nodes, spec.node_selector)
        if spec.per_device_node_selection:
            return any(_device_on(device, node) for device in spec.devices)
        return False

    def _content(self, pool: Pool, slices: list[PublishedSlice]) -> tuple[PoolContent | None, str]:
        """The content that these slices of a pool belong to, or why there is none ('' for an obsolete pool)."""
        for slice in slices if self._unreadable else ():
            if slice.key in self._unreadable:
                return None, self._unreadable[slice.key]
        expected = slices[0].spec.pool.resource_slice_count
        generation = slices[0].generation
        if len(slices) != expected:
            if pool.newest() > generation:
                return None, ""
            everything = pool.of_generation(generation)
            if len(everything) != expected:
                return None, "incomplete"
        else:
            everything = slices
        duplicate = self._duplicate(slices)
        if duplicate:
            return None, f"duplicate device name {duplicate}"
        return self._content_of(pool, sorted(everything, key=lambda slice: slice.name))

    def _has_devices(self, slice: PublishedSlice) -> bool:
        """Since Kubernetes 1.35 a slice has either devices or counters; in 1.34 one that has counters has their devices too."""
        return bool(slice.spec.devices) or not (self._partitions and slice.spec.shared_counters)

    def _duplicate(self, slices: list[PublishedSlice]) -> str:
        devices = [device.name for slice in slices if self._has_devices(slice) for device in slice.spec.devices]
        if len(set(devices)) == len(devices):
            return ""
        return next(name for number, name in enumerate(devices) if name in devices[:number])

    def _content_of(self, pool: Pool, slices: list[PublishedSlice]) -> tuple[PoolContent | None, str]:
        key = tuple(slice.key for slice in slices)
        found = pool.contents.get(key)
        if found is not None:
            return found, ""
        sets, problem = counter_sets(slices) if self._partitions else ((), "")
        if problem:
            return None, problem
        kinds = tuple(kind for slice in slices if self._has_devices(slice) for kind in self._layouts.kinds(slice))
        layout = self._layouts.pool(kinds, sets)
        if layout.invalid:
            return None, layout.invalid
        content = PoolContent(
            next(self._numbers), pool.key, slices, layout, partitions=self._partitions, live_groups=self._groups
        )
        for name, holding in self.ledger.holdings(pool.key).items():
            content.update(DeviceKey(*pool.key, name), holding)
        pool.contents[key] = content
        return content, ""

    def _part(self, content: PoolContent, slices: list[PublishedSlice], node: Node, offset: int) -> Part:
        segments: list[Segment] = []
        here = off = 0
        for slice in sorted(slices, key=lambda slice: slice.name):
            start, length = content.segments.get(slice.key, (0, 0))
            if not length:
                continue
            segments.append(Segment(start, length, offset))
            seen = _seen(slice, node, length)
            passed_over = seen & self._passed_over(content, start, length)
            here |= (seen & ~passed_over) << offset
            off |= passed_over << offset
            offset += length
        return Part(content.layout, _merged(segments), here, off)

    def _passed_over(self, content: PoolContent, start: int, length: int) -> int:
        """Which devices of a slice declare groups, with that gate off.

        Without partitions they cannot be had at all, so then they stay in the way of a request for all devices.
        """
        if self._groups or not self._partitions:
            return 0
        return sum(1 << bit for bit in range(length) if content.layout.kinds[start + bit].declares_groups)


def _order(slice: PublishedSlice) -> int:
    return slice.order


def _merged(segments: list[Segment]) -> tuple[Segment, ...]:
    """Neighbours that are neighbours in both numberings are one segment."""
    merged: list[Segment] = []
    for segment in segments:
        last = merged[-1] if merged else None
        if last is not None and last.start + last.length == segment.start:
            merged[-1] = Segment(last.start, last.length + segment.length, last.offset)
        else:
            merged.append(segment)
    return tuple(merged)


def _seen_of(node: Node) -> bytes:
    return _encode((node.metadata.labels, node.status.declared_features))


def _device_on(device: Device, node: Node) -> bool:
    return _node_matches(node, device.node_name, device.all_nodes, device.node_selector)


def _seen(slice: PublishedSlice, node: Node, length: int) -> int:
    """Which devices of the slice are the node's."""
    if not slice.spec.per_device_node_selection:
        return (1 << length) - 1
    return sum(1 << bit for bit, device in enumerate(slice.spec.devices) if _readably_on(device, node))


def _readably_on(device: Device, node: Node) -> bool:
    try:
        return _device_on(device, node)
    except SelectorError:
        return False


def _node_matches(node: Node, name: str | None, everywhere: bool | None, selector: NodeSelector | None) -> bool:
    if name:
        return name == node.metadata.name
    if everywhere:
        return True
    return selector is not None and node_selector_matches(selector, node)
