"""A write as the HTTP request that it is, and what a refusal of it means. The same for every cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dray.cluster.port import Conflict, Invalid, PatchType, Refused, Verb, Write, refused

_METHODS: Final[Mapping[Verb, str]] = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_PATCH_TYPES: Final[Mapping[PatchType, str]] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_encoder: Final = msgspec.json.Encoder()


class HttpRequest(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: bytes


def as_request(write: Write) -> HttpRequest:
    """Preconditions go where the API looks for them: into the metadata of a body, or into the DeleteOptions."""
    named = "" if write.verb == "create" and not write.subresource else write.name
    path = write.kind.path(write.namespace, named, write.subresource)
    content_type = _PATCH_TYPES[write.patch] if write.verb == "patch" else "application/json"
    query = {"fieldManager": write.field_manager} if write.verb != "delete" and write.field_manager else {}
    if write.verb == "patch" and write.patch == "apply":
        query["force"] = "true"
    if write.strict:
        query["fieldValidation"] = "Strict"
    return HttpRequest(_METHODS[write.verb], path, query, content_type, _encoder.encode(_body(write)))


def _body(write: Write) -> Any:
    wanted = {key: value for key, value in (("uid", write.uid), ("resourceVersion", write.resource_version)) if value}
    if write.verb == "delete":
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", **(write.body or {})}
        return {**options, "preconditions": wanted} if wanted else options
    if not wanted or write.verb == "create":
        return write.body
    if write.verb == "patch" and write.patch == "json":
        # Setting them, unlike testing them, gives errors that say which one did not hold.
        return [{"op": "add", "path": f"/metadata/{key}", "value": value} for key, value in wanted.items()] + list(write.body)
    return {**write.body, "metadata": {**(write.body.get("metadata") or {}), **wanted}}


def refusal(answer: bytes, code: int) -> Refused:
    """The error for an answer with a failure code, whoever sent it."""
    try:
        status = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if not isinstance(status, dict):
        status = {"code": code, "message": answer[:500].decode(errors="replace").strip()}
    return refused(status, code)


def write_refusal(write: Write, answer: bytes, code: int) -> Refused:
    """A patch that names another uid is refused as a change of an immutable field; to us it is a failed precondition."""
    error = refusal(answer, code)
    causes = (error.status.get("details") or {}).get("causes") or ()
    if write.uid and isinstance(error, Invalid) and any(cause.get("field") == "metadata.uid" for cause in causes):
        return Conflict(409, "Conflict", error.message, error.status)
    return error
