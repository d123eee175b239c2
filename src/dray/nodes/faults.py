"""Faults of simulated devices: what an annotation on a ResourceSlice says of a device is what its driver would publish of it.

``fault.dray.dev/DEVICE`` on a slice of the pool is one of

- ``MESSAGE``, ``NoExecute MESSAGE``, ``NoSchedule MESSAGE`` or ``None MESSAGE``: the device is unhealthy. It gets the taint
  ``dray.dev/unhealthy`` with that effect (NoExecute where none is named), and pods that have it show it in their status;
- ``unplugged``: the device leaves the pool, and comes back when the annotation goes.

Always true: taints of others stay; a device that left is described in the annotation ``unplugged.dray.dev/DEVICE``, so a
restart forgets nothing; devices change under a new generation that every slice of the pool gets, taints do not need one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.kinds import RESOURCE_SLICES, Kind
from dray.api.meta import decode
from dray.api.resource import Device, DeviceTaint, ResourceSlice
from dray.api.times import format_time
from dray.cluster.port import Change, Outcome, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

FAULT: Final = "fault.dray.dev/"
UNPLUGGED: Final = "unplugged.dray.dev/"
UNHEALTHY: Final = "dray.dev/unhealthy"
# When taints that were accepted and are not shown are written again, in seconds.
TAINTS_AGAIN: Final = 60.0
SIMULATED: Final = "dray.dev/simulated"
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")

Step = dict[str, Any]


class Fault(msgspec.Struct, frozen=True):
    message: str
    effect: str = "NoExecute"
    unplugged: bool = False

    @classmethod
    def parse(cls, text: str) -> Fault:
        if text.strip() == "unplugged":
            return cls("the device is unplugged", unplugged=True)
        effect, _, message = text.strip().partition(" ")
        if effect in _EFFECTS:
            return cls(message.strip() or "the device is unhealthy", effect)
        return cls(text.strip() or "the device is unhealthy")


def fault_of(slice_: ResourceSlice, device: str) -> Fault | None:
    """What an annotation of the slice says of a device."""
    text = slice_.metadata.annotations.get(FAULT + device)
    return Fault.parse(text) if text is not None else None


class DeviceFaults(Keyed):
    """The decider. Keys are ``driver pool``."""

    name = "device-faults"
    kinds: Sequence[Kind] = (RESOURCE_SLICES,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pools = world.index(RESOURCE_SLICES, lambda slice_: (_pool(slice_),))
        # By slice: its devices and faults when taints were written that it does not show, and when that was.
        self._asked: dict[str, tuple[bytes, float]] = {}

    def concerned(self, change: Change) -> Iterable[str]:
        if change.new is None:
            self._asked.pop(change.object.metadata.name, None)
        return [_pool(each) for each in (change.old, change.new) if isinstance(each, ResourceSlice) and _marked(each)]

    def decide(self, key: str, now: float) -> list[Write]:
        slices = [self.world.get(RESOURCE_SLICES, name) for name in sorted(self._pools[key])]
        newest = max((each.spec.pool.generation for each in slices), default=0)
        faults = {
            name[len(FAULT) :]: Fault.parse(text)
            for each in slices
            for name, text in each.metadata.annotations.items()
            if name.startswith(FAULT)
        }
        self._doubt(slices, faults, now)
        changes = [_plugged(each, faults) for each in slices]
        if any(changes):
            return [_write(each, [*steps, _generation(newest + 1)]) for each, steps in zip(slices, changes)]
        behind = [_write(each, [_generation(newest)]) for each in slices if each.spec.pool.generation < newest]
        return behind or [_write(each, steps) for each in slices if (steps := self._taints(key, each, faults, now))]

    def _taints(self, key: str, slice_: ResourceSlice, faults: dict[str, Fault], now: float) -> list[Step]:
        """A server without the feature takes the taints and drops them: it is not asked again and again."""
        name, steps = slice_.metadata.name, _tainted(slice_, faults, now)
        if not steps:
            self._asked.pop(name, None)
            return steps
        found, (asked, at) = msgspec.json.encode((slice_.spec.devices, faults)), self._asked.get(name, (b"", now))
        if found == asked and now < at + TAINTS_AGAIN:
            self.look_at(key, at + TAINTS_AGAIN)
            return []
        self._asked[name] = found, now
        return steps

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if not outcome.ok:
            self._asked.pop(outcome.write.name, None)

    def _doubt(self, slices: Sequence[ResourceSlice], faults: Iterable[str], now: float) -> None:
        """A fault of a device that the pool does not have would otherwise be waited for in vain."""
        there = {device.name for each in slices for device in each.spec.devices}
        there |= {name[len(UNPLUGGED) :] for each in slices for name in each.metadata.annotations if name.startswith(UNPLUGGED)}
        for name in faults:
            if name in there:
                continue
            said = next(each for each in slices if FAULT + name in each.metadata.annotations)
            why = f"annotation {FAULT}{name}: the pool has no device {name}"
            self.say(self._recorder.warning(RESOURCE_SLICES, said, "UnknownDevice", why, action="Publish", now=now))


def _pool(slice_: ResourceSlice) -> str:
    return f"{slice_.spec.driver} {slice_.spec.pool.name}"


def _marked(slice_: ResourceSlice) -> bool:
    """It is of simulated hardware, or somebody said something of its devices, or we published it because somebody did."""
    if slice_.metadata.labels.get(SIMULATED) == "true":
        return True
    if any(name.startswith((FAULT, UNPLUGGED)) for name in slice_.metadata.annotations):
        return True
    return any(taint.key == UNHEALTHY for device in slice_.spec.devices for taint in device.taints)


def _plugged(slice_: ResourceSlice, faults: dict[str, Fault]) -> list[Step]:
    """The devices that leave this slice, and those that come back to it."""
    steps: list[Step] = []
    leaving = [place for place, device in enumerate(slice_.spec.devices) if _out(faults, device.name)]
    if leaving and not slice_.metadata.annotations:
        steps.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    for place in reversed(leaving):
        device = slice_.spec.devices[place]
        described = msgspec.json.encode(device).decode()
        steps.append({"op": "add", "path": f"/metadata/annotations/{_pointer(UNPLUGGED + device.name)}", "value": described})
        steps.append({"op": "remove", "path": f"/spec/devices/{place}"})
    for name, text in slice_.metadata.annotations.items():
        if name.startswith(UNPLUGGED) and not _out(faults, name[len(UNPLUGGED) :]):
            steps.append({"op": "remove", "path": f"/metadata/annotations/{_pointer(name)}"})
            if not slice_.spec.devices:
                steps.append({"op": "add", "path": "/spec/devices", "value": []})
            steps.append({"op": "add", "path": "/spec/devices/-", "value": _described(text)})
    return steps


def _described(text: str) -> Step:
    """The device that an annotation describes; whoever edits it may plug in another."""
    return msgspec.to_builtins(decode(Device, text.encode()))  # type: ignore[no-any-return]


def _out(faults: dict[str, Fault], device: str) -> bool:
    return device in faults and faults[device].unplugged


def _tainted(slice_: ResourceSlice, faults: dict[str, Fault], now: float) -> list[Step]:
    steps: list[Step] = []
    for place, device in enumerate(slice_.spec.devices):
        fault = faults.get(device.name)
        ours = [taint for taint in device.taints if taint.key == UNHEALTHY]
        wanted = [(_value(fault.message), fault.effect)] if fault is not None else []
        if [(taint.value, taint.effect) for taint in ours] == wanted:
            continue
        kept = [taint for taint in device.taints if taint.key != UNHEALTHY]
        kept += [DeviceTaint(UNHEALTHY, value, effect, format_time(now)) for value, effect in wanted]
        steps.append({"op": "add", "path": f"/spec/devices/{place}/taints", "value": msgspec.to_builtins(kept)})
    return steps


def _value(message: str) -> str:
    """The message as the value of a taint can hold it."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", message)[:63].strip("-.")


def _generation(number: int) -> Step:
    return {"op": "replace", "path": "/spec/pool/generation", "value": number}


def _pointer(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _write(slice_: ResourceSlice, steps: list[Step]) -> Write:
    metadata = slice_.metadata
    return Write(
        "patch", RESOURCE_SLICES, name=metadata.name, body=steps, patch="json", uid=slice_.uid,
        resource_version=metadata.resource_version,
    )  # fmt: skip
