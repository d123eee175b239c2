"""Questions in line: one at a time, beside the loop, equal ones once.

Always true: whatever is asked, one thread works on it and a bounded number wait; an answer that is kept is of the moment that was
asked about.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")

WAITING_MAX: Final = 64
KEPT: Final = 64


class TooMuch(Exception):
    """So many questions wait that one more is not taken."""


class Asking:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "page")
        self._answers: OrderedDict[Hashable, asyncio.Future[Any]] = OrderedDict()
        self._waiting = 0

    async def once(self, key: Hashable, question: Callable[[], T]) -> T:
        """The answer to ``question``; asked again with the same key, the same answer."""
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = asyncio.ensure_future(self.now(question))
            found.add_done_callback(lambda done: self._ended(key, done))
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(key)
        answer: T = await asyncio.shield(found)
        return answer

    def _ended(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._answers.pop(key, None)

    async def now(self, question: Callable[[], T]) -> T:
        if self._waiting >= WAITING_MAX:
            raise TooMuch
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
