"""Revisions: the templates that a DaemonSet or StatefulSet had, kept as ControllerRevisions for going back to.

Always true: equal templates are one revision; the newest has the highest number, so going back to an old template gives its
revision a new number; revisions that pods still have are never removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from dray.api.kinds import CONTROLLER_REVISIONS, Kind
from dray.api.workloads import ControllerRevision
from dray.cluster.port import Write
from dray.controllers import owning
from dray.controllers.creating import suffix

HASH: Final = "controller-revision-hash"
KEPT: Final = 10
NAME_MAX: Final = 52


class History:
    """The revisions of one owner as they should be: ``current`` is the name of the one with the template of now."""

    def __init__(self, owner: Any, kind: Kind, known: Iterable[ControllerRevision]) -> None:
        self._owner, self._kind = owner, kind
        self._known = sorted(known, key=lambda each: (each.revision, each.metadata.name))
        data = {"spec": {"template": {**msgspec.to_builtins(owner.spec.template), "$patch": "replace"}}}
        # In the order in which Go writes maps: kubectl and tests compare the bytes.
        self._data = msgspec.json.decode(msgspec.json.encode(data, order="sorted"))
        self._same = next((each for each in reversed(self._known) if each.data == self._data), None)
        word = suffix(msgspec.json.encode(self._data, order="sorted"), length=10)
        self.current = self._same.metadata.name if self._same is not None else f"{owner.metadata.name[:NAME_MAX]}-{word}"

    def template(self, name: str) -> Any:
        """The template of a revision; of one that is not there, the one of now."""
        found = next((each for each in self._known if each.metadata.name == name), None)
        if found is None or name == self.current:
            return self._owner.spec.template
        plain = {key: value for key, value in found.data["spec"]["template"].items() if key != "$patch"}
        return msgspec.convert(plain, type(self._owner.spec.template))

    def hash_of(self, name: str) -> str:
        return name[len(self._owner.metadata.name[:NAME_MAX]) + 1 :]

    def writes(self, limit: int | None, used: Callable[[str], bool]) -> list[Write]:
        """What brings the revisions up to date. ``used`` says whether something still has the revision of a name."""
        latest = max((each.revision for each in self._known), default=0)
        made: list[Write] = []
        if self._same is None:
            made.append(self._create(latest + 1))
        elif self._same.revision < latest:
            metadata = self._same.metadata
            body = {"revision": latest + 1}
            made.append(Write("patch", CONTROLLER_REVISIONS, metadata.namespace, metadata.name, body, uid=self._same.uid))
        old = [each for each in self._known if each is not self._same and not used(each.metadata.name)]
        surplus = len(old) - (limit if limit is not None else KEPT)
        return made + [owning.delete(CONTROLLER_REVISIONS, each) for each in old[: max(0, surplus)]]

    def _create(self, number: int) -> Write:
        owner = self._owner
        labels = {**owner.spec.template.metadata.labels, HASH: self.hash_of(self.current)}
        metadata = {
            "name": self.current,
            "namespace": owner.metadata.namespace,
            "labels": labels,
            "annotations": owner.metadata.annotations,
            "ownerReferences": [owning.reference(self._kind, owner)],
        }
        kind = CONTROLLER_REVISIONS
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "data": self._data, "revision": number}
        return Write("create", kind, owner.metadata.namespace, self.current, body)
