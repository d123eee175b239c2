"""Keeps one kind mirrored: list, watch, and list again when the watch position is lost.

``Reflector.run`` feeds a sink with an ordered stream for its kind: first ``Listed`` (everything there is), then single
watch events, and ``Listed`` again after a gap. It never ends by itself: an API server that is away is waited for, with
growing, jittered pauses. A kind that is not served, because nobody has defined it yet or any more, counts as empty, and is
noticed within seconds when it is. So does a kind of ``ADVISORY`` that may not be read: it only ever tells more about others, and
whoever is not shown it goes on without, and says so. It works on any ``Cluster``.

Always true: what every API server has does not count as gone because somebody says "not found". That is what load balancers and
gateways say of a server that is away, and to believe it would be to release all claims of pods that run.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

import msgspec

from dray.api.kinds import CORE_POD_GROUPS, DEVICE_TAINT_RULES, NODE_RESOURCE_TOPOLOGIES, POD_GROUPS, QUEUES, TOPOLOGIES, Kind
from dray.cluster.port import Cluster, ClusterError, Expired, Forbidden, NotFound, Refused, Unreachable, WatchEvent

BACKOFF_SECONDS: Final = (0.5, 30.0)
# How often is asked for a kind that is not served.
APPEARS_SECONDS: Final = 3.0
# Clusters do well without these. That any other kind is not served is worth a warning.
OPTIONAL: Final = frozenset({CORE_POD_GROUPS, DEVICE_TAINT_RULES, NODE_RESOURCE_TOPOLOGIES, POD_GROUPS, QUEUES, TOPOLOGIES})
ADVISORY: Final = frozenset({NODE_RESOURCE_TOPOLOGIES})
# Who asks is not known at all: another request, or another right, would not help.
_UNAUTHORIZED: Final = 401
# The server has too much to do, or is just starting: the position of a watch is as good as before, and a list is what it can do
# least now.
_BUSY: Final = (429, 503)

log = logging.getLogger(__name__)


class Listed(msgspec.Struct, frozen=True):
    """The kind holds exactly these objects at this version; ``forbidden``: it may not be read, and counts as empty."""

    raws: list[bytes]
    resource_version: str
    forbidden: bool = False


Sink = Callable[[Kind, "Listed | WatchEvent"], None]


class Backoff:
    """Pauses that double from the first to the longest, each with jitter; ``reset`` after a success."""

    def __init__(self, shortest: float, longest: float, rng: random.Random | None = None) -> None:
        self._shortest, self._longest = shortest, longest
        self._rng = rng or random.Random()
        self._failures = 0

    def next(self) -> float:
        pause = min(self._shortest * 2.0**self._failures, self._longest)
        self._failures = min(self._failures + 1, 32)
        return pause * self._rng.uniform(0.8, 1.2)

    def reset(self) -> None:
        self._failures = 0


class Reflector:
    """One kind of one cluster. ``relists`` counts how often it had to start over."""

    def __init__(
        self, cluster: Cluster, kind: Kind, sink: Sink, *, backoff: Backoff | None = None, appears: float = APPEARS_SECONDS
    ) -> None:
        self._cluster, self.kind, self._sink, self._appears = cluster, kind, sink, appears
        self._backoff = backoff or Backoff(*BACKOFF_SECONDS)
        self.relists = -1
        # Why it counts as empty, while it does.
        self._absent: type[ClusterError] | None = None
        # What was said last of why it cannot be read, while it cannot.
        self._said = ""

    async def run(self) -> None:
        while True:
            try:
                await self._list_and_watch()
            except Expired as error:
                log.info("watch expired, listing again", extra={"kind": self.kind.resource, "error": str(error)})
                # Where every position is too old at once, listing without a pause is all that the server would still do.
                await asyncio.sleep(self._backoff.next())
            except NotFound as error:
                if self._may_go:
                    await self._wait_for_it(error)
                else:
                    await self._pause(error)
            except Forbidden as error:
                if self.kind in ADVISORY and error.code != _UNAUTHORIZED:
                    await self._wait_for_it(error)
                else:
                    await self._pause(error)
            except ClusterError as error:
                await self._pause(error)

    @property
    def _may_go(self) -> bool:
        """Whether "not found" can be true: of what definitions bring, and of what this server never had."""
        group = self.kind.group
        built_in = "." not in group or group.endswith(".k8s.io")
        return self.kind in OPTIONAL or not built_in or (self.relists < 0 and bool(group))

    async def _list_and_watch(self) -> None:
        raws, version = await self._cluster.list(self.kind)
        self._heard()
        self.relists += 1
        self._sink(self.kind, Listed(raws, version))
        while True:
            version = await self._watch(version)

    async def _watch(self, version: str) -> str:
        """Follow one watch to its end and return where to go on."""
        try:
            async for event in self._cluster.watch(self.kind, version):
                self._heard()
                self._backoff.reset()
                version = event.resource_version or version
                if event.type != "BOOKMARK":
                    self._sink(self.kind, event)
        except (Unreachable, Refused) as error:
            if isinstance(error, Refused) and error.code not in _BUSY:
                raise
            # What was received is not lost: go on from there once the server is back.
            await self._pause(error)
        else:
            # A server that ends every watch at once must not be asked in a tight loop.
            await asyncio.sleep(0.05)
        return version

    async def _wait_for_it(self, error: NotFound | Forbidden) -> None:
        if self._absent is not type(error):
            self._absent = type(error)
            about, forbidden = {"kind": self.kind.resource, "error": str(error)}, isinstance(error, Forbidden)
            if forbidden:
                log.warning("no permission to list or watch this kind; it counts as empty until granted", extra=about)
            else:
                level = logging.INFO if self.kind in OPTIONAL else logging.WARNING
                log.log(level, "this kind is not served; it counts as empty until it is", extra=about)
            self._sink(self.kind, Listed([], "0", forbidden))
        await asyncio.sleep(self._appears)

    def _heard(self) -> None:
        if self._absent or self._said:
            log.info("this kind can be read now", extra={"kind": self.kind.resource})
            self._absent, self._said = None, ""

    async def _pause(self, error: ClusterError) -> None:
        """The same trouble is told once: there are many kinds, and they tend to have it together."""
        pause = self._backoff.next()
        details = {"kind": self.kind.resource, "error": str(error), "pause": round(pause, 2)}
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        log.log(level, "cannot list or watch, trying again", extra=details)
        self._said = str(error)
        await asyncio.sleep(pause)
