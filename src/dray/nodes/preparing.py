"""The claims that are prepared on simulated nodes, and for whom: what a kubelet's DRA part keeps.

Always true: what is about to be prepared is in the checkpoint before a driver is called; a claim that several pods of a node
share is prepared once, and unprepared when the last of them has ended; a claim that is being unprepared is not given to a new
pod; after a restart nothing counts as prepared, so drivers are asked again, and what has to be unprepared is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from dray.api.core import Pod
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dray.cluster.metrics import Meter
from dray.nodes.drivers import Answer, ClaimName, Done, Drivers, Failed, NotYet, Operation, PreparedDevice
from dray.nodes.numbers import ANY_DRIVER

# After a failure the kubelet tries again when it next looks at the pod.
RETRY_SECONDS: Final = 10.0
# How long a pod rests that shares a claim with one that is just preparing it.
SHARED_SECONDS: Final = 0.2
_CALLS: Final[dict[Operation, str]] = {"prepare": "NodePrepareResources", "unprepare": "NodeUnprepareResources"}

Answers = dict[str, Mapping[str, Done]]  # by driver


class DriverState(msgspec.Struct):
    """What a driver has to do with a claim on a node, also where it prepares no device for it."""

    devices: tuple[PreparedDevice, ...] = ()
    skips: tuple[str, ...] = ()

    def called_to(self, operation: Operation) -> bool:
        return "*" not in self.skips and _CALLS[operation] not in self.skips


class Entry(msgspec.Struct):
    """A claim on a node. ``by`` is the pod that is preparing it just now."""

    claim: ClaimName
    pods: set[str]
    drivers: dict[str, DriverState]
    prepared: bool = False
    leaving: bool = False
    by: str = ""

    @classmethod
    def of(cls, claim: ResourceClaim) -> Entry:
        return cls(ClaimName.of(claim), set(), drivers_of(claim))


class Refused(msgspec.Struct, frozen=True):
    """It did not work: why, as an event says it. It is tried again."""

    why: str


class Checkpoint(Protocol):
    """Where entries outlive the kubelet."""

    def load(self, node: str) -> list[Entry]: ...

    def save(self, node: str, entries: Iterable[Entry]) -> None: ...


class Nowhere:
    """Nothing outlives the kubelet: what to unprepare is then read from the pod."""

    def load(self, node: str) -> list[Entry]:
        return []

    def save(self, node: str, entries: Iterable[Entry]) -> None:
        pass


class _Round:
    """One call to each driver that is concerned; who answered is not asked again before the round is over."""

    def __init__(self, operation: Operation, entries: Sequence[Entry], now: float) -> None:
        self.operation, self.began = operation, now
        self.claims = {entry.claim for entry in entries}
        self.wanted: dict[str, list[ClaimName]] = {}  # by driver
        self.answers: dict[str, Mapping[str, Done] | Failed] = {}
        for entry in entries:
            for driver, state in entry.drivers.items():
                if state.called_to(operation):
                    self.wanted.setdefault(driver, []).append(entry.claim)


class Preparing:
    def __init__(self, drivers: Drivers, checkpoint: Checkpoint | None, meter: Meter) -> None:
        self._drivers = drivers
        self._checkpoint = checkpoint or Nowhere()
        self._meter = meter
        self._in_use: Counter[str] = Counter()  # claims by driver, on all nodes
        self._nodes: dict[str, dict[str, Entry]] = {}
        self._rounds: dict[tuple[str, str], _Round] = {}  # by node and pod

    def on(self, node: str) -> dict[str, Entry]:
        """The entries of a node by ``namespace/name`` of the claim."""
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = {}
            for entry in self._checkpoint.load(node):
                self._enter(found, entry)
        return found

    def _enter(self, entries: dict[str, Entry], entry: Entry) -> Entry:
        entries[entry.claim.key] = entry
        self._count(entry, 1)
        return entry

    def _count(self, entry: Entry, by: int) -> None:
        for driver in (ANY_DRIVER, *entry.drivers):
            self._in_use[driver] += by
            self._meter.gauge("dra_resource_claims_in_use", self._in_use[driver], (driver,))

    def of(self, node: str, uid: str) -> list[Entry]:
        """The entries that a pod holds."""
        return [entry for entry in self.on(node).values() if uid in entry.pods]

    def restarted(self, node: str) -> None:
        """The kubelet of the node starts again: with what it knows, but nothing of it counts as prepared."""
        for entry in self.on(node).values():
            entry.prepared, entry.leaving, entry.by = False, False, ""
        self._rounds = {mark: round_ for mark, round_ in self._rounds.items() if mark[0] != node}

    # ------------------------------------------------------------------------------------------------------ prepare

    def prepare(self, node: str, pod: Pod, claims: Sequence[ResourceClaim], now: float) -> NotYet | Refused | None:
        """Make a pod's claims ready: None when all are."""
        entries = self.on(node)
        if (why := self._hindrance(node, entries, claims)) is not None:
            self._took("prepare", 0.0, error=True)
            return Refused(why)
        mine = [entries.get(claim.key) or self._enter(entries, Entry.of(claim)) for claim in claims]
        if any(entry.by not in ("", pod.uid) for entry in mine):
            return NotYet(now + SHARED_SECONDS)
        if any(pod.uid not in entry.pods for entry in mine):
            for entry in mine:
                entry.pods.add(pod.uid)
            self._save(node)
        fresh = [entry for entry in mine if not entry.prepared]
        if not fresh:
            return None
        for entry in fresh:
            entry.by = pod.uid
        answers = self._call(self._round("prepare", node, pod.uid, fresh, now), node, pod.uid, now)
        if isinstance(answers, NotYet):
            return answers
        for entry in fresh:
            entry.by = ""
        if isinstance(answers, Refused):
            return answers
        for entry in fresh:
            self._prepared(entry, answers)
        self._save(node)
        return None

    @staticmethod
    def _prepared(entry: Entry, answers: Answers) -> None:
        for driver, done in answers.items():
            if entry.claim.uid in done:
                entry.drivers[driver].devices = done[entry.claim.uid].devices
        entry.prepared = True

    def _hindrance(self, node: str, entries: Mapping[str, Entry], claims: Sequence[ResourceClaim]) -> str | None:
        for claim in claims:
            for driver, state in drivers_of(claim).items():
                if state.called_to("prepare") and not self._drivers.serves(node, driver):
                    return _unregistered(driver)
            entry, name = entries.get(claim.key), claim.metadata.name
            if entry is not None and entry.claim.uid != claim.uid:
                return (
                    f"old ResourceClaim with same name {name} and different UID {entry.claim.uid} still exists "
                    "(previous pod force-deleted?!)"
                )
            if entry is not None and entry.leaving:
                return f"ResourceClaim {name} is being unprepared"
        return None

    # ---------------------------------------------------------------------------------------------------- unprepare

    def unprepare(self, node: str, uid: str, claims: Sequence[ResourceClaim], now: float) -> NotYet | Refused | None:
        """A pod has ended: None when nothing of it is prepared any more. ``claims`` are the pod's, for when nothing is known."""
        if (waiting := self._interrupted(node, uid, now)) is not None:
            return waiting
        held = self.of(node, uid) or self._from_api(node, uid, claims)
        if not held:
            return None
        last = [entry for entry in held if entry.pods == {uid}]
        for entry in last:
            entry.leaving = True
        round_ = self._round("unprepare", node, uid, last, now)
        answers = self._call(round_, node, uid, now)
        if not isinstance(answers, dict):
            return answers
        for entry in held:
            if entry not in last or entry.claim in round_.claims:
                entry.pods.discard(uid)
            if not entry.pods:
                del self.on(node)[entry.claim.key]
                self._count(entry, -1)
        self._save(node)
        # Whoever shared a claim may have left it to this pod while drivers answered.
        return self.unprepare(node, uid, (), now) if self.of(node, uid) else None

    def _interrupted(self, node: str, uid: str, now: float) -> NotYet | None:
        """A pod that ends while it is prepared: drivers finish what they began before they are asked to undo it."""
        began = self._rounds.get((node, uid))
        if began is None or began.operation != "prepare":
            return None
        answers = self._call(began, node, uid, now)
        if isinstance(answers, NotYet):
            return answers
        for entry in self.of(node, uid):
            entry.by = "" if entry.by == uid else entry.by
        return None

    def _from_api(self, node: str, uid: str, claims: Sequence[ResourceClaim]) -> list[Entry]:
        entries = self.on(node)
        lost = [Entry.of(claim) for claim in claims if claim.key not in entries and claim.status.allocation is not None]
        for entry in lost:
            entry.pods.add(uid)
            self._enter(entries, entry)
        return lost

    # -------------------------------------------------------------------------------------------------------- calls

    def _round(self, operation: Operation, node: str, uid: str, entries: Sequence[Entry], now: float) -> _Round:
        """The round of calls for these claims: a new one, or the one that is under way."""
        under_way = self._rounds.get((node, uid))
        if under_way is None or under_way.operation != operation:
            under_way = self._rounds[(node, uid)] = _Round(operation, entries, now)
            for entry in entries:
                for driver, state in entry.drivers.items():
                    if not state.called_to(operation):
                        self._meter.count(f"dra_node_{operation}_skips_total", (driver,))
        return under_way

    def _call(self, round_: _Round, node: str, uid: str, now: float) -> Answers | NotYet | Refused:
        waits: list[float | None] = []
        for driver, claims in round_.wanted.items():
            if driver in round_.answers:
                continue
            answer: Answer = Failed(_unregistered(driver))
            if self._drivers.serves(node, driver):
                answer = self._drivers.call(round_.operation, node, driver, claims, now)
            if isinstance(answer, NotYet):
                waits.append(answer.until)
                continue
            round_.answers[driver] = answer
            code = answer.code if isinstance(answer, Failed) else "OK"
            labels = (driver, _CALLS[round_.operation], code)
            self._meter.observe("dra_grpc_operations_duration_seconds", now - round_.began, labels)
        if waits:
            return NotYet(min((at for at in waits if at is not None), default=None))
        del self._rounds[(node, uid)]
        found = _together(round_)
        self._took(round_.operation, now - round_.began, error=isinstance(found, Refused))
        return found

    def _took(self, operation: Operation, seconds: float, *, error: bool) -> None:
        labels = (f"{operation.capitalize()}Resources", "true" if error else "false")
        self._meter.observe("dra_operations_duration_seconds", seconds, labels)

    def _save(self, node: str) -> None:
        self._checkpoint.save(node, self.on(node).values())


def drivers_of(claim: ResourceClaim) -> dict[str, DriverState]:
    """The drivers whose devices were allocated for a claim. A call is skipped where all of a driver's results allow that."""
    allocation = claim.status.allocation
    results: dict[str, list[DeviceRequestAllocationResult]] = {}
    for result in allocation.devices.results if allocation is not None else ():
        results.setdefault(result.driver, []).append(result)
    return {driver: DriverState(skips=_skips(each)) for driver, each in results.items()}


def _skips(results: Sequence[DeviceRequestAllocationResult]) -> tuple[str, ...]:
    allowed = [set(_CALLS.values()) if "*" in r.skip_node_operations else set(r.skip_node_operations) for r in results]
    return tuple(sorted(set.intersection(*allowed)))


def _unregistered(driver: str) -> str:
    return f"DRA driver {driver} is not registered"


def _together(round_: _Round) -> Answers | Refused:
    """What all drivers answered, or the first failure."""
    good: Answers = {}
    for driver, claims in round_.wanted.items():
        checked = _checked(_CALLS[round_.operation], claims, round_.answers[driver])
        if isinstance(checked, Refused):
            return checked
        good[driver] = checked
    return good


def _checked(call: str, claims: Sequence[ClaimName], answer: Mapping[str, Done] | Failed) -> Mapping[str, Done] | Refused:
    """The answer, if it is about exactly these claims and all went well."""
    if isinstance(answer, Failed):
        return Refused(f"{call}: {answer.error}")
    names = {claim.uid: claim.name for claim in claims}
    for uid, done in answer.items():
        if uid not in names:
            return Refused(f"{call} returned result for unknown claim UID {uid}")
        if done.error:
            return Refused(f"{call} failed for ResourceClaim {names[uid]}: {done.error}")
    if missing := len(names) - len(answer):
        return Refused(f"{call} skipped {missing} ResourceClaims")
    return answer
