"""Why a pod is not placed, now: reasons counted over nodes, and what would change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dray.api.reason import Reason
from dray.api.words import Preemption

Reasons = tuple[Reason, ...]

# Amounts and times, as they are written: they are counted again all the time. Whatever else a reason names makes it another one,
# so that nobody is told any longer of what is not in the way any more. What is no text is a number, or a detail.
_AMOUNTS: Final = ("asked", "free", "held", "kept", "limit", "missing", "needed", "share", "total", "used")
_TIMES: Final = ("deadline", "since", "timeout", "until")
_COUNTED_AGAIN: Final = frozenset({*_AMOUNTS, *_TIMES})
_NUMBERED: Final = "port"

# Of devices that failed: which of them it was is told by events, each time.
_OF_FAILURES: Final = ("claim", "driver", "condition")
_FAILED: Final = frozenset({"BindingFailed", "BindingTimeout"})


def told(reason: Reason) -> tuple[object, ...]:
    """What a reason says, but for numbers."""
    if reason.code in _FAILED:
        return (reason.code, *(reason.data.get(name) for name in _OF_FAILURES))
    return (reason.code, reason.object, *sorted(_names(reason.data)))


def _names(data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        if name == _NUMBERED or (isinstance(value, str) and name not in _COUNTED_AGAIN):
            yield name, str(value)


class Refusal(msgspec.Struct, frozen=True):
    """``reasons`` with the number of nodes each was given for (0: it concerns the pod, not nodes). ``claims`` are those of
    the pod that was refused, in its own order: where another pod that asks for the same shares the refusal, it has its own.
    ``preemption``: whether it was seen that evicting others does not help either."""

    reasons: tuple[tuple[Reason, int], ...]
    nodes: int = 0
    claims: tuple[str, ...] = ()
    preemption: Preemption = ""

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(reason.code for reason, _ in self.reasons)

    @staticmethod
    def of(code: str, object: str = "", **data: str | int) -> Refusal:
        """A refusal that concerns the pod as such."""
        return Refusal(((Reason(code, object, dict(data)), 0),))

    def told_to(self, claims: Sequence[str]) -> Refusal:
        """The refusal as it is for a pod with these claims."""
        own = tuple(claims)
        if own == self.claims or not self.claims:
            return self
        names = dict(zip(self.claims, own))
        reasons = tuple((_renamed(reason, names), count) for reason, count in self.reasons)
        return Refusal(reasons, self.nodes, own, self.preemption)

    def says_the_same(self, other: Refusal | None) -> bool:
        """Whether the same reasons are given for the same objects, whatever their numbers."""
        return other is not None and {told(r) for r, _ in self.reasons} == {told(r) for r, _ in other.reasons}


def _renamed(reason: Reason, names: Mapping[str, str]) -> Reason:
    named = reason.data.get("claim")
    if not isinstance(named, str):
        return reason
    own = ", ".join(names.get(name, name) for name in named.split(", "))
    return Reason(reason.code, reason.object, reason.data | {"claim": own})


class Tally:
    """Counts reasons over nodes; what was said most comes first."""

    def __init__(self) -> None:
        # Most nodes share the very same tuple, so that is counted first and told apart by content later.
        self._shared: dict[int, tuple[Reasons, int]] = {}

    def add(self, reasons: Reasons | None, count: int = 1) -> None:
        if reasons and count:
            _, known = self._shared.get(id(reasons), (reasons, 0))
            self._shared[id(reasons)] = (reasons, known + count)

    def counts(self) -> list[tuple[Reason, int]]:
        merged: dict[str, tuple[Reason, int]] = {}
        for reasons, count in self._shared.values():
            for reason in reasons:
                key = _key(reason)
                merged[key] = (reason, count + (merged[key][1] if key in merged else 0))
        return [merged[key] for key in sorted(merged, key=lambda key: (-merged[key][1], key))]


def _key(reason: Reason) -> str:
    return f"{reason.code} {reason.object} {sorted(reason.data.items())}"
