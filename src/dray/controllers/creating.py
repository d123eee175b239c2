"""Creates that happen once, although answers get lost.

A controller chooses the name itself. As long as it is not known whether a create happened, the same create is sent again:
either it succeeds, or the name is taken and the watch will show whose it is. Until then what was created counts as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

from dray.api.kinds import Kind
from dray.api.names import GENERATED_LETTERS
from dray.cluster.port import Conflict, Outcome, Write

NAME_MAX: Final = 63
# An object that exists, by the API's word, and that the watch does not show for so long, is given up.
EXPECT_SECONDS: Final = 60.0


def suffix(*parts: object, length: int = 5) -> str:
    """A short word that follows from the parts, in the letters of generated names."""
    number = int.from_bytes(blake2b("|".join(map(str, parts)).encode(), digest_size=16).digest(), "big")
    letters = []
    for _ in range(length):
        number, digit = divmod(number, len(GENERATED_LETTERS))
        letters.append(GENERATED_LETTERS[digit])
    return "".join(letters)


def generated(base: str, *parts: object) -> str:
    """``base-xxxxx`` within the length of a name."""
    return f"{base[: NAME_MAX - 6]}-{suffix(*parts)}"


class Creates:
    """The creates of one controller, by the key that they are done for."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._unsure: dict[str, dict[str, Write]] = {}
        self._expected: dict[str, dict[str, float]] = {}

    def send(self, key: str, namespace: str, name: str, body: dict[str, Any]) -> Write:
        write = Write("create", self._kind, namespace, name, body, about=key)
        self._unsure.setdefault(key, {})[name] = write
        return write

    def again(self, key: str, but: Iterable[Write] = ()) -> list[Write]:
        """The creates of which it is not known whether they happened, besides those sent just now."""
        fresh = {write.name for write in but}
        return [write for name, write in self._unsure.get(key, {}).items() if name not in fresh]

    def unseen(self, key: str, known: Callable[[str], bool], now: float) -> int:
        """How many exist, or may, and are not shown yet: they count as there."""
        expected, unsure = self._expected.get(key, {}), self._unsure.get(key, {})
        for name in [name for name, until in expected.items() if until <= now or known(name)]:
            del expected[name]
        for name in [name for name in unsure if known(name)]:
            del unsure[name]
        return len(expected) + len(unsure)

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        """What the answer says: it exists, it does not, or nobody knows."""
        if outcome.error is not None and outcome.error.in_doubt:
            return
        write = outcome.write
        self._unsure.get(key, {}).pop(write.name, None)
        if isinstance(outcome.error, Conflict) and outcome.error.reason == "AlreadyExists":
            self._expected.setdefault(key, {})[write.name] = now + EXPECT_SECONDS

    def forget(self, key: str) -> None:
        self._unsure.pop(key, None)
        self._expected.pop(key, None)
