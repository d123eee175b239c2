"""Devices and taints as people write them, ``DRIVER/POOL/DEVICE`` with ``*`` for any, and ``key=value:Effect``; and the rule
that they become."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import msgspec

from dray.api.core import Taint
from dray.api.kinds import DEVICE_TAINT_RULES
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector, ResourceSlice
from dray.api.times import format_time
from dray.cluster.port import Write
from dray.controllers.eviction import EXPIRES_AT
from dray.explain.missing import nearest

EFFECTS: Final = ("None", "NoSchedule", "NoExecute")
NODE_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NAME_MAX: Final = 253
MANAGER: Final = "dray-taint"


class TargetError(ValueError):
    """What was written is not a target or a taint: says what to write."""


def selector(text: str) -> DeviceTaintSelector:
    """``*`` alone is every device; a driver alone is all its devices. Raises TargetError."""
    parts = text.strip().split("/")
    if parts == ["*"]:
        return DeviceTaintSelector()
    if len(parts) == 1:
        return DeviceTaintSelector(driver=_part(parts[0], text))
    if len(parts) == 2:
        raise _wrong(text, "it has a driver and one name more; give driver, pool and device")
    return DeviceTaintSelector(_part(parts[0], text), _part("/".join(parts[1:-1]), text), _part(parts[-1], text))


def _part(part: str, text: str) -> str | None:
    if part == "*":
        return None
    if not part or "*" in part or "?" in part:
        raise _wrong(text, f"{part!r} is neither a whole name nor *; a rule selects by whole names")
    return part


def _wrong(text: str, why: str) -> TargetError:
    return TargetError(f"{text!r}: {why}. Write DRIVER/POOL/DEVICE, with * for any, for example gpu.example.com/node-7/gpu-3")


def taint(text: str) -> DeviceTaint:
    """``key=value:Effect`` or ``key:Effect``. Raises TargetError."""
    said, colon, effect = text.rpartition(":")
    key, _, value = said.partition("=")
    if not colon or not key:
        raise TargetError(f"{text!r} is not a taint: write key=value:Effect, for example example.com/broken=yes:NoExecute")
    if effect not in EFFECTS:
        near = get_close_matches(effect.lower(), [known.lower() for known in EFFECTS], 1)
        meant = next((known for known in EFFECTS if near and known.lower() == near[0]), "")
        hint = f"; did you mean {meant}?" if meant else ""
        raise TargetError(f"{text!r}: effect {effect!r} is not one of {', '.join(EFFECTS)}{hint}")
    return DeviceTaint(key, value, effect)


def node_taint(text: str) -> Taint:
    """A taint of a node, ``key=value:Effect``. Raises TargetError."""
    said, colon, effect = text.rpartition(":")
    key, _, value = said.partition("=")
    if not colon or not key or effect not in NODE_EFFECTS:
        raise TargetError(f"{text!r} is not a taint: write key=value:Effect, where Effect is one of {', '.join(NODE_EFFECTS)}")
    return Taint(key=key, value=value, effect=effect)


def unpublished(chosen: DeviceTaintSelector, slices: Iterable[ResourceSlice]) -> str:
    """Which part of the target nobody publishes, and what was probably meant; empty where there are such devices."""
    left = [
        {"driver": each.spec.driver, "pool": each.spec.pool.name, "device": device.name}
        for each in slices
        for device in each.spec.devices
    ]
    of = ""
    for part in ("driver", "pool", "device"):
        wanted = getattr(chosen, part)
        if wanted is None:
            continue
        names = sorted({each[part] for each in left})
        left = [each for each in left if each[part] == wanted]
        if not left:
            meant = nearest(wanted, names)
            return f"no {part} {wanted}{of} is published" + (f"; did you mean {meant}?" if meant else "")
        of = f" of {part} {wanted}"
    return ""


def rule_name(chosen: DeviceTaintSelector, key: str) -> str:
    """A name that follows from what is tainted with what, so that tainting again changes the same rule."""
    parts = [part for part in (chosen.driver, chosen.pool, chosen.device) if part is not None] or ["all-devices"]
    name = re.sub(r"[^a-z0-9.-]+", "-", "-".join([*parts, key]).lower())
    return re.sub(r"[.-]*\.[.-]*", ".", name[:NAME_MAX]).strip(".-")


def rule_of(
    chosen: DeviceTaintSelector, wanted: DeviceTaint, *, name: str | None = None, expires_at: float | None = None
) -> DeviceTaintRule:
    annotations = {EXPIRES_AT: format_time(expires_at)} if expires_at is not None else {}
    metadata = ObjectMeta(name=name or rule_name(chosen, wanted.key), uid="new", annotations=annotations)
    return DeviceTaintRule(metadata, DeviceTaintRuleSpec(chosen, wanted))


def writes(rule: DeviceTaintRule, api_version: str) -> tuple[Write, Write]:
    """Creates the rule; and, where it exists, changes its taint. The time of the taint is the server's to say."""
    spec, name = rule.spec.taint, rule.metadata.name
    taint = {"key": spec.key, "value": spec.value, "effect": spec.effect}
    body = {
        "apiVersion": api_version,
        "kind": DEVICE_TAINT_RULES.kind,
        "metadata": {"name": name, "annotations": rule.metadata.annotations},
        "spec": {"deviceSelector": msgspec.to_builtins(rule.spec.device_selector), "taint": taint},
    }
    change = {"metadata": {"annotations": {EXPIRES_AT: None, **rule.metadata.annotations}}, "spec": {"taint": taint}}
    create = Write("create", DEVICE_TAINT_RULES, name=name, body=body, field_manager=MANAGER)
    return create, Write("patch", DEVICE_TAINT_RULES, name=name, body=change, field_manager=MANAGER)
