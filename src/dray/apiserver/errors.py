"""Refusals, as the Status objects that clients of Kubernetes understand.

Whatever goes wrong while a request is handled ends as an ``ApiError``; nothing else reaches a client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from dray.api.kinds import Kind
from dray.api.validation.errors import OMITTED, FieldError


class ApiError(Exception):
    """A refusal with its HTTP code and Status."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details, self.metadata = code, reason, message, details, metadata
        self.warnings: list[str] = []  # what the client shall be told besides

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata or {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(details: dict[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code:
        status["code"] = code
    return status


def _about(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        about["group"] = kind.group
    about["kind"] = kind.plural
    return about | more


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', _about(kind, name))


def no_such_path() -> ApiError:
    # kubectl debug looks into the details without asking whether there are any
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def no_container(name: str, wanted: str) -> ApiError:
    lacking = {"portforward": "port to forward", "ephemeralcontainers": "place for ephemeral ones"}.get(wanted, wanted)
    message = f'pod "{name}" is simulated and has no container, so there is no {lacking}; see kubectl describe or dray story'
    return ApiError(400, "BadRequest", message)


def not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(kind, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def modified(kind: Kind, name: str) -> ApiError:
    return conflict(kind, name, MODIFIED)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[dict[str, str]] = ()) -> ApiError:
    more = {"causes": list(causes)} if causes else {}
    subject = f'{kind.resource} "{name}"' if name else kind.resource
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _about(kind, name, **more))


def expired(message: str, token: str = "") -> ApiError:
    return ApiError(410, "Expired", message, metadata={"continue": token} if token else None)


def too_large_resource_version(asked: int, current: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def invalid(kind: Kind, name: str, problems: Iterable[FieldError]) -> ApiError:
    """422 with every problem, worded as apimachinery words it."""
    unique = {(p.path, describe(p)): p for p in problems}
    texts = [f"{path}: {text}" for path, text in unique]
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": _REASON.get(p.type, "FieldValue" + p.type), "message": text, "field": path}
        for (path, text), p in unique.items()
    ]
    shown = kind.kind + (f".{kind.group}" if kind.group else "")
    told = {"name": name, "group": kind.group, "kind": kind.kind}
    details = {field: text for field, text in told.items() if text} | {"causes": causes}
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {message}', details)


_REASON = {
    "TooMany": "FieldValueTooMany",
    "TooLong": "FieldValueTooLong",
    "TypeInvalid": "FieldValueTypeInvalid",
}
_PREFIX = {
    "Required": "Required value",
    "Invalid": "Invalid value",
    "Duplicate": "Duplicate value",
    "NotSupported": "Unsupported value",
    "Forbidden": "Forbidden",
    "TooLong": "Too long",
    "TooMany": "Too many",
    "Internal": "Internal error",
    "NotFound": "Not found",
    "TypeInvalid": "Invalid value",
}
_WITHOUT_VALUE = frozenset({"Required", "Forbidden", "TooLong", "TooMany", "Internal"})


def describe(problem: FieldError) -> str:
    """``Invalid value: "x": must be ...``"""
    prefix = _PREFIX.get(problem.type, problem.type)
    value = "" if problem.type in _WITHOUT_VALUE or problem.value is OMITTED else f": {_shown(problem.value)}"
    return f"{prefix}{value}" + (f": {problem.message}" if problem.message else "")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 1024 else text[:1021] + "..."
