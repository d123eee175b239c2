"""The tree of ``dray why``: from claim and request to nodes and devices, in words.

Lines say what is equal once: nodes with the same answer are one branch, devices that fail alike are one line. Nothing in a line
is markup; whoever shows it escapes it for where it goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from dray.api.codes import CODES
from dray.api.reason import Reason
from dray.api.resource import UNMADE
from dray.api.words import predicate, words
from dray.devices.explain import RequestFinding
from dray.explain.answer import Why
from dray.explain.nearest import Nearest, NodeAnswer, asked_by

_SHOWN_NODES: Final = 5
_NAMED: Final = 4
_TAKEN: Final = "allocated to "


class Branch(msgspec.Struct, omit_defaults=True):
    """One line, and the lines below it."""

    text: str
    branches: list[Branch] = []

    def add(self, text: str) -> Branch:
        found = Branch(text)
        self.branches.append(found)
        return found


def tree(answer: Why, *, wide: bool) -> Branch:
    """Claim and request first, then nodes with equal answers together; nodes that refuse for other reasons at the end."""
    top = Branch(f"pod {answer.pod}")
    claims: dict[str, Branch] = {}
    for claim, request in _requests(answer.nodes):
        if claim not in claims:
            claims[claim] = top.add("claim for extended resources" if claim.endswith(f"/{UNMADE}") else f"claim {claim}")
        asked = next((text for node in answer.nodes if (text := asked_by(node.reasons, claim, request))), f"request {request}")
        _add_request(claims[claim], asked, _findings(answer.nodes, claim, request), wide=wide)
    others = [node for node in answer.nodes if node.devices is None or not node.devices.requests]
    groups = _alike([(node.node, "; ".join(_about_node(reason) for reason in node.reasons)) for node in others])
    said = {node.node: node.reasons for node in others}
    for _, names in groups[: None if wide else _SHOWN_NODES]:
        text = "; ".join(_about_node(reason, plural=len(names) > 1) for reason in said[names[0]])
        top.add(f"{_node_names(names)}: {text}")
    _more(top, groups, wide)
    return top


def _add_request(claim: Branch, asked: str, findings: dict[str, RequestFinding], *, wide: bool) -> None:
    first = next(iter(findings.values()))
    wanted = "all" if first.everything else first.needed
    branch = claim.add(f"{asked}: {wanted} of class {first.device_class}")
    groups = _by_relevance(findings)
    for text, names in groups[: None if wide else _SHOWN_NODES]:
        leaf = branch.add(f"{_node_names(names)}: {text}")
        for line in _device_lines([findings[name] for name in names], wide=wide):
            leaf.add(line)
    _more(branch, groups, wide)


def _by_relevance(findings: dict[str, RequestFinding]) -> list[tuple[str, list[str]]]:
    """Nodes that say the same, those that come nearest first: a node without a device that matches tells little."""
    groups: dict[str, list[str]] = {}
    for name, found in findings.items():
        groups.setdefault(f"{_counts(found)}\n{_kinds(found)}", []).append(name)

    def distance(names: list[str]) -> tuple[bool, bool, int, int]:
        found = findings[names[0]]
        return not found.matching, not found.refused_by_itself(), found.missing, -len(names)

    return [(text.partition("\n")[0], names) for text, names in sorted(groups.items(), key=lambda group: distance(group[1]))]


def _kinds(found: RequestFinding) -> str:
    """How many devices fail how, whoever holds them: nodes that differ only in names are one line."""
    if not found.matching:
        return str(sorted({_about_device(device.reason, plural=True) for device in found.devices}))
    return str(sorted(_about_device(device.reason, plural=True) for device in found.devices))


def _requests(nodes: Sequence[NodeAnswer]) -> list[tuple[str, str]]:
    found = {
        (request.claim, request.request): None for node in nodes if node.devices is not None for request in node.devices.requests
    }
    return list(found)


def _findings(nodes: Sequence[NodeAnswer], claim: str, request: str) -> dict[str, RequestFinding]:
    """By node: what it says about this request."""
    return {
        node.node: found
        for node in nodes
        if node.devices is not None
        for found in node.devices.requests
        if (found.claim, found.request) == (claim, request)
    }


def _counts(found: RequestFinding) -> str:
    if not found.devices:
        return "has no devices"
    if not found.matching:
        return "no device matches"
    enough = "enough" if found.usable >= found.needed else f"needs {found.needed}"
    return f"{enough}: {found.usable} usable of {found.matching} that match"


def _about_node(reason: Reason, *, plural: bool = False) -> str:
    if not reason.object.startswith("node/"):
        return words(reason)
    if CODES[reason.code].subject == "pod":  # the same on every node, and not the node's fault
        return words(Reason(reason.code, "", reason.data))
    return predicate(reason, plural=plural)


def _alike(said: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Nodes that say the same, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for name, text in said:
        groups.setdefault(text, []).append(name)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _node_names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"node {names[0]}"
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} nodes ({shown})"


def _device_lines(findings: Sequence[RequestFinding], *, wide: bool) -> list[str]:
    """Each device with its first failing check; without ``wide``, devices that fail alike are one line, of all these nodes."""
    devices = [device for found in findings for device in found.devices]
    if wide:
        told = (f"{device.device}: {words(device.reason) if device.reason is not None else 'usable'}" for device in devices)
        return list(dict.fromkeys(told))
    seen = Counter(device.device for device in devices)
    groups: dict[tuple[str, int], tuple[Reason | None, list[str]]] = {}
    for device in devices:
        said = _about_device(device.reason, plural=False)
        groups.setdefault((said, min(seen[device.device], 2)), (device.reason, []))[1].append(device.device)
    taken = [device.reason for device in devices if device.reason is not None and device.reason.code == "DeviceTaken"]
    holders = list(dict.fromkeys(str(reason.data.get("claim") or "another claim") for reason in taken))
    ordered = sorted(groups.values(), key=lambda group: -len(group[1]))
    lines = []
    for reason, names in ordered[:_NAMED]:
        text = _about_device(reason, plural=len(set(names)) > 1)
        lines.append(f"{_devices(names, len(findings))}: {text}{some(holders) if text == _TAKEN else ''}")
    return lines + ([f"… {len(ordered) - _NAMED} more kinds of refusal"] if len(ordered) > _NAMED else [])


def _about_device(reason: Reason | None, *, plural: bool) -> str:
    if reason is None:
        return "usable"
    if reason.code == "DeviceTaken":
        return _TAKEN  # by whom is told once for all
    if reason.code == "SelectorError":
        fails = f"a CEL {reason.data.get('stage', 'runtime')} error: {reason.data.get('error')}"
        return f"cannot be judged, the selector {reason.data.get('expression')} fails with {fails}"
    same = {name: value for name, value in reason.data.items() if name != "device"}  # which ones stands before it
    return predicate(Reason(reason.code, reason.object, same), plural=plural)


def _devices(names: Sequence[str], nodes: int) -> str:
    """By name where they are of one node, or have the same names on all; else how many. Devices that several of the nodes see,
    of a fabric, are named with their pool, and counted once."""
    apart = list(dict.fromkeys(names))
    if len(apart) < len(names):
        of = "these nodes" if len(names) == len(apart) * nodes else "some of these nodes"
        return f"device{'s' if len(apart) > 1 else ''} {some([name.partition('/')[2] for name in apart])}, which {of} share"
    short = list(dict.fromkeys(name.rpartition("/")[2] for name in names))
    if len(names) not in (len(short), len(short) * nodes):
        return f"{len(names)} devices"
    if len(names) == 1:
        return f"device {short[0]}"
    return f"devices {some(short)}" + (" on each" if nodes > 1 and len(names) > len(short) else "")


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _more(branch: Branch, groups: Sequence[object], wide: bool) -> None:
    if not wide and len(groups) > _SHOWN_NODES:
        branch.add(f"… {len(groups) - _SHOWN_NODES} more, see -o wide")


def nearest(near: Nearest) -> str:
    """The node that lacks least, in a sentence."""
    devices = "device" if near.missing == 1 else "devices"
    lacks = f"lacks {near.missing} {devices} for {near.asked or f'request {near.request} of {near.claim}'}"
    lacks = f"has enough devices for {near.claim}, but they do not {near.constraint}" if near.constraint else lacks
    return f"Nearest: node {near.node} {lacks}."
