"""Answers as plain data: what ``-o json`` prints and what the page is told, so that both are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dray.api.words import as_json
from dray.devices.explain import RequestFinding
from dray.explain.answer import Why
from dray.explain.nearest import NodeAnswer
from dray.explain.overview import Cause


def plain_why(answer: Why) -> dict[str, Any]:
    return {
        "pod": answer.pod,
        "verdict": answer.verdict,
        "summary": answer.summary,
        "upstream": answer.upstream,
        "reasons": [as_json(reason) for reason in answer.reasons],
        "nodes": [_plain_node(node) for node in answer.nodes],
        "fixes": answer.fixes,
        "fits": answer.fits,
        "awaited": msgspec.to_builtins(answer.awaited),
        "nearest": msgspec.to_builtins(answer.nearest),
        "choice": msgspec.to_builtins(answer.choice),
        "advice": [fix.as_json() for fix in answer.advice],
        "evicts": msgspec.to_builtins(answer.evicts),
        "queued": msgspec.to_builtins(answer.queued),
        "notes": answer.notes,
    }


def _plain_node(node: NodeAnswer) -> dict[str, Any]:
    plain: dict[str, Any] = {"node": node.node, "reasons": [as_json(reason) for reason in node.reasons]}
    if node.devices is not None:
        plain["requests"] = [_plain_request(request) for request in node.devices.requests]
    return plain


def _plain_request(request: RequestFinding) -> dict[str, Any]:
    return {
        "claim": request.claim,
        "request": request.request,
        "class": request.device_class,
        "needed": request.needed,
        "matching": request.matching,
        "usable": request.usable,
        "devices": [
            {"device": device.device, "reason": as_json(device.reason) if device.reason is not None else None}
            for device in request.devices
        ],
    }


def plain_causes(causes: Sequence[Cause], pods: int) -> dict[str, Any]:
    """What ``dray why`` says of many pods."""
    return {
        "pods": pods,
        "waiting": sum(len(cause.pods) for cause in causes),
        "causes": [
            {
                "verdict": cause.verdict,
                "summary": cause.summary,
                "pods": cause.pods,
                "reasons": [as_json(reason) for reason in cause.reasons],
                "fixes": cause.fixes,
                "advice": [fix.as_json() for fix in cause.advice],
            }
            for cause in causes
        ],
    }
