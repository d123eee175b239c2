"""Plugins that other packages bring: entry points of the group ``dray.plugins``, by name; loaded when a profile uses them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "dray.plugins"


@lru_cache(maxsize=1)
def installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {found.name: found for found in entry_points(group=GROUP)}
