"""How much a decider remembers: the entries of every container that can be reached from it, by the attribute that holds them."""

from __future__ import annotations

import types
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any, Final

_LEAVES: Final = (str, bytes, int, float, type(None), type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def held(*roots: Any, caches: Collection[str] = ()) -> Counter[str]:
    """Entries by ``Class.attribute``; whatever is reached through one of the ``caches`` counts for that cache. What is reached
    twice counts where it is met first, and outside of caches if it is anywhere else."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    left: deque[tuple[Any, str]] = deque((root, type(root).__name__) for root in roots)
    later: deque[tuple[Any, str]] = deque()
    while left or later:
        # Caches last: what others hold as well is not theirs.
        value, path = (left or later).popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.MethodType):
            inner = [(value.__self__, path)]
        elif isinstance(value, Mapping):
            found[path] += len(value)
            inner = [(each, path) for pair in list(value.items()) for each in pair]
        elif isinstance(value, (list, tuple, deque, Set)):
            found[path] += len(value)
            inner = [(each, path) for each in value]
        elif path in caches:
            inner = [(each, path) for _, each in _attributes(value)]
        else:
            inner = [(each, f"{type(value).__name__}.{name}") for name, each in _attributes(value)]
        for each in inner:
            (later if each[1] in caches else left).append(each)
    return found


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    names = [*getattr(value, "__dict__", ())]
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    names += getattr(type(value), "__struct_fields__", ())
    for name in dict.fromkeys(names):
        if not name.startswith("__") and hasattr(value, name):
            yield name, getattr(value, name)
