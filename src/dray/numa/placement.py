"""Where a pod's resources are, by zone, as a value and as the records that outlive a scheduler.

A placement names positions of a layout and exact amounts. A record is the JSON in a pod's annotation: zones by name, amounts
as quantities. ``kai.scheduler/numa-placement-observed`` is what a kubelet did (the exporter writes it),
``kai.scheduler/numa-placement-predicted`` what the scheduler expects (written with the binding). What was observed counts
before what was predicted; a record that cannot be read, or that names a zone which the node does not have, counts as none:
nothing is guessed from it. Memory that only init containers have is in neither of them: ``dray.dev/numa-init-memory-predicted``
has it, and counts until the pod runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeVar

import msgspec

from dray.api.core import Pod, QuantityValue
from dray.api.quantity import QuantityError
from dray.numa.demand import Amounts, is_memory
from dray.numa.layout import Layout, amount, spelt

PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
OBSERVED: Final = "kai.scheduler/numa-placement-observed"
# Memory that was given out from several zones together: the Memory Manager's groups, which amounts by zone cannot tell.
GROUPS_OBSERVED: Final = "kai.scheduler/numa-memory-groups-observed"
GROUPS_PREDICTED: Final = "kai.scheduler/numa-memory-groups-predicted"
INIT_MEMORY_PREDICTED: Final = "dray.dev/numa-init-memory-predicted"
# All that says where a pod is.
RECORDS: Final = (PREDICTED, OBSERVED, GROUPS_OBSERVED, GROUPS_PREDICTED, INIT_MEMORY_PREDICTED)
RECORD_MAX: Final = 64 * 1024

T = TypeVar("T")
Source = Literal["observed", "predicted", "none"]
# (position, amounts there), by position; nothing empty.
Placement = tuple[tuple[int, Amounts], ...]
# (mask, amounts drawn from it together)
Groups = tuple[tuple[int, Amounts], ...]


class ZoneShare(msgspec.Struct):
    zone: str
    amount: dict[str, QuantityValue]


class GroupShare(msgspec.Struct, rename="camel"):
    memory_nodes: list[str]
    amount: dict[str, QuantityValue]


Share = TypeVar("Share", ZoneShare, GroupShare)


class Record(msgspec.Struct, frozen=True):
    """What is known of one pod. ``warnings`` say which annotations were not used, and why. ``groups`` is None where nothing
    says how memory was drawn from several zones."""

    source: Source = "none"
    placement: Placement = ()
    groups: Groups | None = None
    warnings: tuple[str, ...] = ()


def placement(rows: Mapping[int, Sequence[int]], layout: Layout) -> Placement:
    """Amounts by row and position as a placement."""
    by_place: dict[int, list[tuple[str, int]]] = {}
    for row in sorted(rows, key=lambda row: layout.resources[row]):
        for place, value in enumerate(rows[row]):
            if value > 0:
                by_place.setdefault(place, []).append((layout.resources[row], value))
    return tuple((place, tuple(by_place[place])) for place in sorted(by_place))


@lru_cache(maxsize=8192)
def encode(placed: Placement, layout: Layout) -> str:
    """The annotation for a placement: the same placement gives the same bytes."""
    shares = [
        ZoneShare(layout.zones[place], {name: spelt(name, value) for name, value in sorted(amounts)}) for place, amounts in placed
    ]
    return msgspec.json.encode(shares).decode()


@lru_cache(maxsize=8192)
def decode(text: str, layout: Layout) -> Placement:
    """The placement in an annotation. Raises ValueError that says what is wrong with it."""
    shares = _read(text, list[ZoneShare])
    if not shares:
        raise ValueError("it names no zone")
    rows: dict[tuple[int, str], int] = {}
    for share in shares:
        place = _position(share.zone, layout)
        for name, value in share.amount.items():
            rows[place, name] = rows.get((place, name), 0) + _positive(name, value)
    by_place: dict[int, list[tuple[str, int]]] = {}
    for (place, name), value in sorted(rows.items()):
        if value:
            by_place.setdefault(place, []).append((name, value))
    return tuple((place, tuple(amounts)) for place, amounts in by_place.items())


def decode_groups(text: str, layout: Layout) -> Groups:
    """The groups in an annotation; ``[]`` says that there are none. Raises ValueError."""
    return tuple((mask, amounts) for mask, amounts in _drawn(text, layout) if mask.bit_count() > 1)


def encode_passing(passing: Groups, layout: Layout) -> str:
    """The annotation for memory that only init containers have, '' for none."""
    shares = [
        GroupShare(
            [zone for place, zone in enumerate(layout.zones) if mask >> place & 1],
            {name: spelt(name, value) for name, value in amounts},
        )
        for mask, amounts in passing
    ]
    return msgspec.json.encode(shares).decode() if shares else ""


def passing(pod: Pod, layout: Layout) -> Groups:
    """Memory that a pod gives back when its init containers are done, by the zones that it is drawn from together; nothing for
    one that runs. A Memory Manager gives it back when the next container starts, which the phase shows a little later."""
    if pod.status.phase == "Running":
        return ()
    return _attempt(pod.metadata.annotations.get(INIT_MEMORY_PREDICTED), _drawn, INIT_MEMORY_PREDICTED, layout, []) or ()


def _drawn(text: str, layout: Layout) -> Groups:
    found: dict[int, dict[str, int]] = {}
    for share in _read(text, list[GroupShare]):
        mask = 0
        for zone in share.memory_nodes:
            mask |= 1 << _position(zone, layout)
        amounts = found.setdefault(mask, {})
        for name, value in share.amount.items():
            amounts[name] = amounts.get(name, 0) + _positive(name, value)
    return tuple((mask, tuple(sorted(amounts.items()))) for mask, amounts in sorted(found.items()))


def shares_of(text: str) -> list[ZoneShare]:
    """The amounts by zone in an annotation, whatever zones there are; nothing where it cannot be read."""
    return _readable(text, list[ZoneShare])


def groups_of(text: str) -> list[GroupShare]:
    """The same for memory from several zones together."""
    return _readable(text, list[GroupShare])


def _readable(text: str, type: type[list[Share]]) -> list[Share]:
    try:
        found = _read(text, type) if text else []
        for share in found:
            for name, value in share.amount.items():
                _positive(name, value)
    except ValueError:
        return []
    return found


def record(pod: Pod, layout: Layout) -> Record:
    """The best record of a pod on a node with this layout."""
    warnings: list[str] = []
    annotations = pod.metadata.annotations
    sources: tuple[tuple[Source, str, str], ...] = (
        ("observed", OBSERVED, GROUPS_OBSERVED),
        ("predicted", PREDICTED, GROUPS_PREDICTED),
    )
    for source, name, groups_name in sources:
        groups = _attempt(annotations.get(groups_name), decode_groups, groups_name, layout, warnings)
        placed = _attempt(annotations.get(name), decode, name, layout, warnings)
        # Memory across zones is in no zone's amounts: a pod that has nothing else is known by its groups alone.
        if placed is not None or groups:
            return Record(source, placed or (), groups, tuple(warnings))
    return Record(warnings=tuple(warnings))


def predicted_placement(pod: Pod, layout: Layout) -> Placement:
    """What the scheduler expected when it bound the pod, whatever was observed since; nothing where that cannot be read."""
    return _attempt(pod.metadata.annotations.get(PREDICTED), decode, PREDICTED, layout, []) or ()


def known_groups(record: Record, memory_units: int, pod_scope: bool) -> Groups:
    """Sets of zones that the pod's memory was drawn from together, as far as its record proves them. What was observed in a
    zone came from that zone alone. What was predicted in several zones comes from one set if the pod is aligned as a whole or
    only one container has memory."""
    if record.groups is not None or record.source == "observed" or len(record.placement) < 2:
        return record.groups or ()
    parts = [(place, tuple(pair for pair in amounts if is_memory(pair[0]))) for place, amounts in record.placement]
    parts = [(place, amounts) for place, amounts in parts if amounts]
    if len(parts) < 2 or not (pod_scope or memory_units == 1):
        return ()
    return ((sum(1 << place for place, _ in parts), ()),)


def _attempt(text: str | None, read: Callable[[str, Layout], T], name: str, layout: Layout, warnings: list[str]) -> T | None:
    if not text:
        return None
    try:
        return read(text, layout)
    except ValueError as error:
        warnings.append(f"annotation {name}: {error}")
        return None


def _read(text: str, type: type[T]) -> T:
    if len(text) > RECORD_MAX:
        raise ValueError(f"longer than {RECORD_MAX} bytes")
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def _position(zone: str, layout: Layout) -> int:
    if zone not in layout.zones:
        raise ValueError(f"zone {zone!r} is not one of the node's ({', '.join(layout.zones[:8])})")
    return layout.zones.index(zone)


def _positive(name: str, value: QuantityValue) -> int:
    try:
        found = amount(name, value)
    except QuantityError as error:
        raise ValueError(f"{name}: {error}") from error
    if found < 0:
        raise ValueError(f"{name}: {value} is negative")
    return found
