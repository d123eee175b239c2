"""One journal over all accounts: post, try, keep or undo.

Always true: a trial that is not kept leaves every account as it was and tells nobody; one that is kept publishes one delta,
with what each holder had before and has now, and nothing for a holder who has again what it had. Trials nest: what an inner
one keeps is still the outer one's to undo. Without an open trial nothing is recorded and a posting is published at once.
What trying and undoing costs is in proportion to what was posted. Caches that are read in a trial follow its postings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

Standing = Literal["promised", "decided", "writing", "shown"]
"""How sure a posting is: kept for a pod that waits for victims to leave; decided here; on its way to the API, or perhaps
there; shown by the API."""


class Account(Protocol):
    def post(self, holder: str, entry: Any) -> Any:
        """The holder has this now (None: nothing), instead of what it had; answers what that was. What an account makes of
        its postings depends on them alone, so that posting the answer again undoes it."""
        ...

    def entry(self, holder: str) -> Any:
        """What the holder has, or None."""
        ...


Posting = tuple[Account, str, Any, Any]
"""The account, the holder, what it had and what it has."""
Delta = Sequence[Posting]
"""What changed in the books, for good."""
Listener = Callable[[Delta], None]
Follower = Callable[[Account, Any, Any], None]
"""The account, what its holder had and what it has: what is told in a trial may be undone a moment later, and told again."""


class Trial:
    """Made by ``Books.trial``, for a ``with`` statement."""

    __slots__ = ("_books", "_kept", "_mark")

    def __init__(self, books: Books) -> None:
        self._books = books
        self._kept = False
        self._mark = 0

    def __enter__(self) -> Trial:
        self._mark = self._books._open()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._books._close(self._mark, kept=self._kept and error is None)

    def keep(self) -> None:
        """What was posted stays posted when the trial ends."""
        self._kept = True


class Books:
    def __init__(self) -> None:
        self._journal: list[tuple[Account, str, Any]] = []
        # By account and holder, of whoever was posted since the outermost trial began: what it had then.
        self._settled: dict[tuple[int, str], Any] = {}
        self._depth = 0
        self._listeners: list[Listener] = []
        # Told of every posting of a trial and of every undoing, for caches that are to be true in a trial too.
        self.follower: Follower | None = None

    def subscribe(self, listener: Listener) -> None:
        """Told of every delta, after it is true."""
        self._listeners.append(listener)

    def post(self, account: Account, holder: str, entry: Any) -> None:
        before = account.post(holder, entry)
        if before is entry:
            return
        if self._depth:
            self._journal.append((account, holder, before))
            self._settled.setdefault((id(account), holder), before)
            if self.follower is not None:
                self.follower(account, before, entry)
            return
        for listener in self._listeners:
            listener(((account, holder, before, entry),))

    def trial(self) -> Trial:
        return Trial(self)

    @property
    def trying(self) -> bool:
        """Whether a trial is open: then what is read may not come true."""
        return self._depth > 0

    def settled(self, account: Account, holder: str) -> Any:
        """What the holder has, or None, whatever is tried."""
        if self._settled and (key := (id(account), holder)) in self._settled:
            return self._settled[key]
        return account.entry(holder)

    def tried(self, account: Account, holder: str) -> bool:
        """Whether the holder may have something else in the trial that is open."""
        return (id(account), holder) in self._settled

    def _open(self) -> int:
        self._depth += 1
        return len(self._journal)

    def _close(self, mark: int, *, kept: bool) -> None:
        journal = self._journal
        if not kept:
            while len(journal) > mark:
                account, holder, before = journal.pop()
                undone = account.post(holder, before)
                if self.follower is not None:
                    self.follower(account, undone, before)
        self._depth -= 1
        if self._depth:
            return
        self._settled.clear()
        if not journal:
            return
        delta = self._net()
        journal.clear()
        if delta:
            for listener in self._listeners:
                listener(delta)

    def _net(self) -> Delta:
        """By account and holder: what it had at first, and has now."""
        first: dict[tuple[int, str], tuple[Account, Any]] = {}
        for account, holder, before in self._journal:
            first.setdefault((id(account), holder), (account, before))
        found: list[Posting] = []
        for (_, holder), (account, before) in first.items():
            after = account.entry(holder)
            if after != before:
                found.append((account, holder, before, after))
        return found
