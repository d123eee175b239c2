"""The port between deciders and a cluster: what comes in, what goes out, and what can go wrong.

A decider is a state machine without I/O: changes and outcomes go in through ``observe``, writes come out of ``act``.
``Cluster`` is the seam that a shell drives: ``Remote`` speaks HTTPS to any API server, ``Embedded`` calls our own in
process. Neither interprets objects.

Errors::

    ClusterError
    ├── Refused            the API answered with a Status (code, reason, message)
    │   ├── NotFound       404
    │   ├── Conflict       409: resourceVersion, uid or name; read again and decide again
    │   ├── Invalid        400 and 422: the write itself is wrong and will not succeed unchanged
    │   ├── Forbidden      401 and 403: an administrator must grant something
    │   └── Expired        410: the watch or list position is compacted; list again
    └── Unreachable        no answer: the write may or may not have happened

An error is ``in_doubt`` where the write may have happened all the same, or may yet: without an answer, and with one that tells
of a failure of the server (5xx: its storage did not answer in time, or something between it and us gave up).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from dray.api.kinds import Kind
from dray.api.meta import Object

# So much of ``generateName`` is kept.
_GENERATED_FROM: Final = 58

Verb = Literal["create", "update", "patch", "delete"]
PatchType = Literal["merge", "strategic", "json", "apply"]


class Write(msgspec.Struct, frozen=True):
    """One write with its preconditions. ``about`` is the key of what it is done for, so that it can be told as a story.

    ``uid`` and ``resource_version``, where set, must hold for the write to happen; otherwise it ends in ``Conflict``.
    A binding is a create on ``pods`` with ``subresource="binding"``; an eviction likewise. One that ``goes_on`` with what an
    earlier write began is sent before those that begin something, so that what is begun is ended before there is more of it.
    ``strict``: what a person wrote, so a field that the server does not know is refused instead of dropped, as kubectl does.
    """

    verb: Verb
    kind: Kind
    namespace: str = ""
    name: str = ""
    body: Any = None
    subresource: str = ""
    patch: PatchType = "merge"
    uid: str = ""
    resource_version: str = ""
    field_manager: str = "dray"
    about: str = ""
    goes_on: bool = False
    strict: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Change(msgspec.Struct, frozen=True):
    """An object appeared (``old`` is None), changed, or went (``new`` is None). At least one is set."""

    kind: Kind
    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


class Outcome(msgspec.Struct, frozen=True):
    """How a write ended: ``object`` as the API returned it (plain), or ``error``."""

    write: Write
    object: dict[str, Any] | None = None
    error: ClusterError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def steady(self, words: str) -> str:
        """The words of a refusal as they are each time: without what the server made up for a name that it was to complete."""
        base = str(((self.write.body or {}).get("metadata") or {}).get("generateName") or "")[:_GENERATED_FROM]
        return re.sub(f"{re.escape(base)}[a-z0-9]{{5}}\\b", base, words) if base else words


Event = Change | Outcome


class Decider(Protocol):
    """What the scheduler, every controller and every simulated node is. Pure: the time is given, never asked for.

    A shell applies each watch event to the World first, then calls ``observe`` on every decider that lists the kind;
    outcomes go to the decider whose write it was. ``act`` is first called when all kinds are listed completely, then
    after every batch of events and whenever ``wake`` is due. Each write that ``act`` returns is attempted once.
    """

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> Sequence[Kind]: ...

    def observe(self, event: Event, now: float) -> None: ...

    def act(self, now: float) -> list[Write]: ...

    def wake(self) -> float | None: ...


class WatchEvent(msgspec.Struct, frozen=True):
    """One raw event of a watch. For BOOKMARK only the resourceVersion counts; the first one after the initial
    list has ``synced`` set."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    raw: bytes
    resource_version: str
    synced: bool = False


class Cluster(Protocol):
    """List, watch and write. Objects cross it as raw JSON; the World decodes them."""

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[bytes], str]: ...

    def watch(
        self, kind: Kind, resource_version: str, *, namespace: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]: ...

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]: ...

    async def write(self, write: Write) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class ClusterError(Exception):
    """A cluster did not do what was asked, as far as is known."""

    @property
    def in_doubt(self) -> bool:
        """Whether what was asked may have happened all the same, or may yet."""
        return False


class Unreachable(ClusterError):
    """No answer from the API server; what was asked may or may not have happened."""

    @property
    def in_doubt(self) -> bool:
        return True


class Refused(ClusterError):
    """The API server answered with a failure Status."""

    def __init__(self, code: int, reason: str, message: str, status: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message, self.status = code, reason, message, status or {}

    @property
    def in_doubt(self) -> bool:
        return self.code >= 500


class NotFound(Refused):
    pass


class Conflict(Refused):
    pass


class Invalid(Refused):
    pass


class Forbidden(Refused):
    pass


class Expired(Refused):
    pass


_BY_CODE: dict[int, type[Refused]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
}


def refused(status: dict[str, Any], code: int = 0) -> Refused:
    """The error for a failure Status."""
    code = int(status.get("code") or code or 500)
    kind = _BY_CODE.get(code, Refused)
    return kind(code, str(status.get("reason") or "Unknown"), str(status.get("message") or ""), status)
