"""Traffic rules: what users can get wrong in a NetworkPolicy."""

from __future__ import annotations

from typing import Any

from dray.api.validation.errors import Errors, invalid, one_of, required
from dray.api.validation.selectors import label_selector

Object = dict[str, Any]


def network_policy(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    yield from label_selector(spec.get("podSelector"), "spec.podSelector")
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        yield from one_of(kind, ("Egress", "Ingress"), f"spec.policyTypes[{index}]")
    for direction in ("ingress", "egress"):
        for index, rule in enumerate(spec.get(direction) or ()):
            for number, port in enumerate(rule.get("ports") or ()):
                yield from _port(port, f"spec.{direction}[{index}].ports[{number}]")


def _port(port: Object, path: str) -> Errors:
    yield from one_of(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{path}.protocol", optional=True)
    first, last = port.get("port"), port.get("endPort")
    if isinstance(first, int) and not 1 <= first <= 65535:
        yield invalid(f"{path}.port", first, "must be between 1 and 65535, inclusive")
    if last is None:
        return
    if first is None:
        yield required(f"{path}.port", "must be specified when endPort is specified")
    elif isinstance(first, str):
        yield invalid(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
    elif last < first:
        yield invalid(f"{path}.endPort", last, "must be greater than or equal to `port`")
    if not 1 <= last <= 65535:
        yield invalid(f"{path}.endPort", last, "must be between 1 and 65535, inclusive")
