"""Claims that JSON cannot write, written in protobuf: the same bytes with only what is to change exchanged.

kube-apiserver keeps the opaque parameters of a claim as they were sent, white space included, and takes them in JSON without it.
So every JSON write of a claim that was made with white space ends in ``422: field is immutable``: of its main resource because of
its spec, and of its status where a program that speaks protobuf copied the parameters into the allocation. In protobuf they stay
as they are. What is written so is what Dray writes of such claims: finalizers, and reservations.

Always true: every field that is not to change stays byte for byte; nothing is interpreted but the numbers named here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.wire import BYTES, VARINT, parts, varint
from dray.cluster.port import Conflict, Invalid, Refused, Write

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
# What kube-apiserver says of a field that must stay as it is.
_KEPT: Final = ("field is immutable", "field cannot be modified once set")
_MAGIC: Final = b"k8s\x00"
# runtime.Unknown, ResourceClaim, ObjectMeta, ResourceClaimStatus, ResourceClaimConsumerReference
_RAW: Final = 2
_METADATA, _STATUS = 1, 3
_UID, _RESOURCE_VERSION, _FINALIZERS = 5, 6, 14
_RESERVED_FOR: Final = 2
_REFERENCE: Final = {"apiGroup": 1, "resource": 3, "name": 4, "uid": 5}

Field = tuple[int, int, Any]  # number, wire type, value: an int for a varint, bytes for everything else


def helps(write: Write, error: Refused) -> bool:
    """Whether a write that was refused for what it does not change can be made in protobuf."""
    if write.kind.resource != RESOURCE_CLAIMS.resource or write.verb != "patch" or not isinstance(error, Invalid):
        return False
    causes = (error.status.get("details") or {}).get("causes") or ()
    immutable = {str(cause.get("field")) for cause in causes if str(cause.get("message")).endswith(_KEPT)}
    changed = {f"{part}.{field}" for part, fields in write.body.items() for field in fields or {}}
    if write.subresource == "status":
        return immutable == {"status.allocation"} and changed == {"status.reservedFor"}
    return immutable == {"spec"} and not write.subresource and write.patch == "merge" and changed <= {"metadata.finalizers"}


def rewritten(write: Write, stored: bytes) -> bytes:
    """The object as it is stored, with what the write changes. Raises Conflict where its preconditions do not hold."""
    if not stored.startswith(_MAGIC):
        raise ValueError("the API server did not answer in protobuf")
    envelope = list(parts(stored[len(_MAGIC) :]))
    claim = list(parts(_only(envelope, _RAW)))
    _check(write, list(parts(_only(claim, _METADATA))))
    if write.subresource:
        status = _reserve(list(parts(_only(claim, _STATUS))), write)
        claim = _exchanged(claim, _STATUS, [_message(status)])
    elif write.body.get("metadata"):
        finalizers = [name.encode() for name in write.body["metadata"]["finalizers"] or ()]
        metadata = _exchanged(list(parts(_only(claim, _METADATA))), _FINALIZERS, finalizers)
        claim = _exchanged(claim, _METADATA, [_message(metadata)])
    return _MAGIC + _message(_exchanged(envelope, _RAW, [_message(claim)]))


def _check(write: Write, metadata: list[Field]) -> None:
    for wanted, number in ((write.uid, _UID), (write.resource_version, _RESOURCE_VERSION)):
        found = _only(metadata, number).decode()
        if wanted and wanted != found:
            raise Conflict(409, "Conflict", f"the claim {write.key} has changed: {found} instead of {wanted}")


def _reserve(status: list[Field], write: Write) -> list[Field]:
    known = {_only(list(parts(value)), _REFERENCE["uid"]).decode(): value for n, _, value in status if n == _RESERVED_FOR}
    if write.patch == "merge":
        known = {}
    for user in write.body["status"]["reservedFor"] or ():
        if user.get("$patch") == "delete":
            known.pop(user["uid"], None)
        else:
            known[user["uid"]] = _message([(n, BYTES, user.get(name, "").encode()) for name, n in _REFERENCE.items()])
    return _exchanged(status, _RESERVED_FOR, known.values())


# ------------------------------------------------------------------------------------------------------------ messages


def _only(fields: list[Field], number: int) -> bytes:
    return next((bytes(value) for found, _, value in fields if found == number), b"")


def _exchanged(fields: list[Field], number: int, values: Iterable[bytes]) -> list[Field]:
    """The fields with those of one number exchanged."""
    return [*(field for field in fields if field[0] != number), *((number, BYTES, value) for value in values)]


def _message(fields: Iterable[Field]) -> bytes:
    return b"".join(_encoded(*field) for field in fields)


def _encoded(number: int, wire: int, value: Any) -> bytes:
    tag = varint(number << 3 | wire)
    if wire == VARINT:
        return tag + varint(value)
    return tag + (varint(len(value)) if wire == BYTES else b"") + bytes(value)
