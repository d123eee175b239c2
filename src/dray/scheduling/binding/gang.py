"""Bindings of a gang: each waits until all can be bound, and one that fails gives all back.

Always true: none is bound before all are ready; when one is lost, none will be whose bind was not sent by then, and one that
somebody else placed is not waited for. What was bound by then cannot be taken back: it is a gang that lacks members, which are
placed again, all or none; if that comes to nothing, the gang is given up after its grace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Generic, TypeVar

T = TypeVar("T")


class Gang(Generic[T]):
    """``T`` is a binding; they are told apart by name."""

    def __init__(self) -> None:
        self._under_way: dict[str, T] = {}
        self._ready: set[str] = set()
        self._released = False
        self._lost = False

    @property
    def awaited(self) -> Iterable[str]:
        """Those without which no other one is bound."""
        return () if self._released else self._under_way.keys() - self._ready

    @property
    def under_way(self) -> Iterable[T]:
        """Those that are not bound yet."""
        return self._under_way.values()

    def join(self, name: str, binding: T) -> None:
        self._under_way[name] = binding

    def ready(self, name: str) -> list[T]:
        """This one could be bound now. Who is to be bound: nobody yet, or all, or one that is late. ``release`` begins it."""
        self._ready.add(name)
        return [self._under_way[name]] if self._released else self._all_ready()

    def before(self, name: str) -> Iterator[T]:
        """Those under way that joined before this one."""
        return (binding for _, binding in takewhile(lambda each: each[0] != name, self._under_way.items()))

    def not_ready(self, name: str) -> None:
        self._ready.discard(name)

    def placed(self, name: str) -> list[T]:
        """This one is bound, by whomever, and is waited for no more. Who is to be bound, therefore."""
        self._under_way.pop(name, None)
        self._ready.discard(name)
        return [] if self._released else self._all_ready()

    def _all_ready(self) -> list[T]:
        return list(self._under_way.values()) if len(self._ready) == len(self._under_way) else []

    def release(self) -> None:
        """From here on each is bound, whatever becomes of another one."""
        self._released = True

    def lost(self, name: str) -> Iterable[T]:
        """This one will not be bound; who else is not, therefore, if its bind can still be held back."""
        self._under_way.pop(name, None)
        self._ready.discard(name)
        if self._lost:
            return ()
        self._released = self._lost = True
        return list(self._under_way.values())
