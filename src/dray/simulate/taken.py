"""Objects as taken from another cluster, made fit for a new one: what its API server wrote into them means nothing here.

Always true: objects that were never on a server are left as they are. Owners and users are named by the uids that they have
here; an owner that is not here is left out, or the object would be collected as an orphan.
"""

from __future__ import annotations

from typing import Any, Final

Plain = dict[str, Any]

_OF_THE_SERVER: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"})


class Taken:
    """Remembers which uid here stands for which uid there."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}

    def renewed(self, body: Plain) -> Plain:
        metadata = body["metadata"]
        if not metadata.get("uid") or not metadata.get("resourceVersion"):
            return body
        kept = {key: value for key, value in metadata.items() if key not in _OF_THE_SERVER}
        owners = [self._owner(owner) for owner in metadata.get("ownerReferences") or () if owner.get("uid") in self._uids]
        made = {**body, "metadata": {**kept, "ownerReferences": owners} if owners or "ownerReferences" in kept else kept}
        users = (body.get("status") or {}).get("reservedFor")
        if users:
            made["status"] = {**body["status"], "reservedFor": [self._owner(user) for user in users]}
        return made

    def created(self, body: Plain, here: Plain) -> None:
        there = body["metadata"].get("uid")
        if there:
            self._uids[str(there)] = str(here["metadata"]["uid"])

    def _owner(self, reference: Plain) -> Plain:
        uid = reference.get("uid")
        return {**reference, "uid": self._uids.get(str(uid), uid)}
