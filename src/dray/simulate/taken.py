"""Objects as taken from another cluster, put into this one as they are: with their uids, times and status.

Always true: objects keep their uids, so owners and users are who they were, whatever the order of the files. An owner that is
nowhere in the files is left out, or the object would be collected as an orphan. A namespace that the files do not have is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.api.kinds import NAMESPACES, Kind
from dray.runtime.inprocess import InProcess

Plain = dict[str, Any]


class Taken:
    """Knows the uids of everything that is taken, before anything is put."""

    def __init__(self, bodies: Iterable[Plain]) -> None:
        self._uids = {body["metadata"].get("uid") for body in bodies} - {None}

    def put(self, core: InProcess, kind: Kind, body: Plain) -> None:
        metadata = body["metadata"]
        namespace = metadata.get("namespace")
        if namespace and core.get(NAMESPACES, namespace) is None:
            core.plant({"metadata": {"name": namespace}}, NAMESPACES)
        owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("uid") in self._uids]
        kept = {key: value for key, value in metadata.items() if key != "ownerReferences"}
        core.transplant({**body, "metadata": {**kept, "ownerReferences": owners} if owners else kept}, kind)
