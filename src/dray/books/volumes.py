"""The account of volumes: which persistent volume is on its way to which claim, decided for a pod and not shown yet.

Always true: a volume is promised to one claim at most; what the API shows as bound is not kept here.
"""

from __future__ import annotations

from dray.books.journal import Books

Chosen = tuple[tuple[str, str], ...]
"""Volume claims of a pod, by key, each with the name of the volume that it is to have."""


class VolumeAccount:
    """By the pod's uid."""

    def __init__(self, books: Books | None = None) -> None:
        self._books = books if books is not None else Books()
        self._entries: dict[str, Chosen] = {}
        self._taken: dict[str, str] = {}

    def take(self, uid: str, chosen: Chosen) -> None:
        if chosen:
            self._books.post(self, uid, chosen)

    def give_back(self, uid: str) -> None:
        if uid in self._entries:
            self._books.post(self, uid, None)

    def claim_of(self, volume: str) -> str:
        """The claim that is to have the volume, or ''."""
        return self._taken.get(volume, "")

    def entry(self, holder: str) -> Chosen | None:
        return self._entries.get(holder)

    def post(self, holder: str, entry: Chosen | None) -> Chosen | None:
        before = self._entries.pop(holder, None)
        for _, volume in before or ():
            self._taken.pop(volume, None)
        if entry is not None:
            self._entries[holder] = entry
            self._taken.update({volume: claim for claim, volume in entry})
        return before

    def snapshot(self) -> dict[str, object]:
        return {"entries": dict(self._entries), "taken": dict(self._taken)}
