"""The account of volumes: which persistent volume is on its way to which claim, decided for a pod and not shown yet.

Always true: a volume is promised to one claim at most; what the API shows as bound is not kept here.
"""

from __future__ import annotations

from collections import Counter

from dray.books.journal import Books

Chosen = tuple[tuple[str, str], ...]
"""Volume claims of a pod, by key, each with the name of the volume that it is to have."""


class VolumeAccount:
    """By the pod's uid. Pods that share a claim share what it is to have."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._entries: dict[str, Chosen] = {}
        # Both ways, each with how many pods it was decided for.
        self._claims: dict[str, Counter[str]] = {}
        self._volumes: dict[str, Counter[str]] = {}

    def take(self, uid: str, chosen: Chosen) -> None:
        if chosen:
            self._books.post(self, uid, chosen)

    def give_back(self, uid: str) -> None:
        if uid in self._entries:
            self._books.post(self, uid, None)

    def claim_of(self, volume: str) -> str:
        """The claim that is to have the volume, or ''."""
        return next(iter(self._claims.get(volume, ())), "")

    def volume_of(self, claim: str) -> str:
        """The volume that the claim is to have, or ''."""
        return next(iter(self._volumes.get(claim, ())), "")

    def entry(self, holder: str) -> Chosen | None:
        return self._entries.get(holder)

    def post(self, holder: str, entry: Chosen | None) -> Chosen | None:
        before = self._entries.pop(holder, None)
        for claim, volume in before or ():
            _count(self._claims, volume, claim, -1)
            _count(self._volumes, claim, volume, -1)
        if entry is not None:
            self._entries[holder] = entry
            for claim, volume in entry:
                _count(self._claims, volume, claim, 1)
                _count(self._volumes, claim, volume, 1)
        return before

    def snapshot(self) -> dict[str, object]:
        taken = {volume: dict(claims) for volume, claims in self._claims.items()}
        return {"entries": dict(self._entries), "taken": taken}


def _count(index: dict[str, Counter[str]], key: str, of: str, by: int) -> None:
    counts = index.setdefault(key, Counter())
    counts[of] += by
    if not counts[of]:
        del counts[of]
    if not counts:
        del index[key]
