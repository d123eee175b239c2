"""What each node answers to a pod, and which of them came closest to taking it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dray.api.reason import Reason
from dray.devices.explain import Explanation, RequestFinding


class NodeAnswer(msgspec.Struct):
    """Why one node does not take the pod; ``devices`` has the details where devices decide."""

    node: str
    reasons: list[Reason]
    devices: Explanation | None = None


class Nearest(msgspec.Struct, omit_defaults=True):
    """The node that lacks least; ``constraint``: what its devices do not, where there are enough of them; ``asked``: the extended
    resource and the container, where these ask and no request of a claim."""

    node: str
    claim: str
    request: str
    missing: int
    constraint: str = ""
    asked: str = ""


def distance(node: NodeAnswer) -> tuple[object, ...]:
    """Nodes that lack least first: those where devices decide, then those with fewer reasons."""
    if node.devices is None or not node.devices.requests:
        return (1, len(node.reasons), 0, 0, node.node)
    missing = sum(finding.missing for finding in node.devices.requests)
    matching = sum(finding.matching for finding in node.devices.requests)
    return (0 if matching else 2, missing, -matching, 0, node.node)


def nearest(nodes: list[NodeAnswer]) -> Nearest | None:
    """Of nodes that lack something for equally many requests, and equally many for one, the one with most devices that can be
    used, then with most that match, then with most that only a selector of the request refuses."""
    found = []
    for node in nodes:
        if node.devices is None:
            continue
        bound = next((r for r in node.reasons if r.code == "NoCombination" and r.data.get("constraint")), None)
        if bound is not None:
            near = Nearest(node.node, str(bound.data["claim"]), "", 0, str(bound.data["constraint"]))
            lacks = int(bound.data["needed"]) - int(bound.data.get("free", 1))
            found.append(((1, 0, lacks, 0, 0, node.node), near))
        elif node.devices.nearest is not None:
            request = node.devices.requests[node.devices.nearest]
            asked = asked_by(node.reasons, request.claim, request.request)
            near = Nearest(node.node, request.claim, request.request, request.missing, asked=asked)
            if lacking := _lacking_an_attribute(request):
                near = Nearest(node.node, request.claim, request.request, 0, f"have attribute {lacking}")
            beside = -len(request.refused_by_itself())
            found.append(((len(node.reasons), request.missing, -request.usable, -request.matching, beside, node.node), near))
    return min(found, key=lambda ranked: ranked[0])[1] if found else None


def asked_by(reasons: Sequence[Reason], claim: str, request: str) -> str:
    """The extended resource and the container that a request of the claim for these stands for; nothing of another claim."""
    for reason in reasons:
        if (reason.data.get("claim"), reason.data.get("request")) == (claim, request) and "container" in reason.data:
            return f"{reason.data['resource']} of container {reason.data['container']}"
    return ""


def _lacking_an_attribute(request: RequestFinding) -> str:
    """The attribute that keeps devices from a request for which there are enough of them."""
    reasons = [device.reason for device in request.devices if device.reason is not None]
    named = [str(reason.data.get("attribute", "")) for reason in reasons if reason.code == "AttributeMissing"]
    return named[0] if named and request.usable + len(named) >= request.needed else ""
