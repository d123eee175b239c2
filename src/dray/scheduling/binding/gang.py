"""Bindings of a gang: each waits until all can be bound, and one that fails gives all back.

Always true: none is bound before all are ready; when one is lost before that, none will be. Once all were ready they go on by
themselves: a bind that fails then leaves a gang that lacks a member, which is placed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Gang(Generic[T]):
    """``T`` is a binding; they are told apart by name."""

    def __init__(self) -> None:
        self._under_way: dict[str, T] = {}
        self._ready: set[str] = set()
        self._released = False

    def join(self, name: str, binding: T) -> None:
        self._under_way[name] = binding

    def ready(self, name: str) -> list[T]:
        """This one could be bound now. Who is to be bound: nobody yet, or all, or one that is late."""
        self._ready.add(name)
        if self._released:
            return [self._under_way[name]]
        if len(self._ready) < len(self._under_way):
            return []
        self._released = True
        return list(self._under_way.values())

    def not_ready(self, name: str) -> None:
        self._ready.discard(name)

    def lost(self, name: str) -> Iterable[T]:
        """This one will not be bound; who else is not, therefore."""
        self._under_way.pop(name, None)
        self._ready.discard(name)
        if self._released:
            return ()
        self._released = True
        others = list(self._under_way.values())
        self._under_way.clear()
        return others
