"""The numbers of /metrics that matter, over time, for small plots.

Always true: what is kept is bounded, whatever /metrics says; a counter is told as how much it grew in a minute, and one that
began anew grew from nothing. ``Meters`` is told; ``of_registry`` and ``of_pages`` are where from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import aiohttp
import msgspec
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from dray.cluster.numbers import Registry
from dray.cluster.port import ClusterError

Read = Callable[[], Awaitable[Iterable[Metric]]]
Ask = Callable[[str], Awaitable[bytes]]

EVERY_SECONDS: Final = 5.0
# An hour of samples.
SAMPLES_MAX: Final = 720
LINES_MAX: Final = 8
PAGE_MAX: Final = 16 << 20
PATIENCE_SECONDS: Final = 4.0


class Wanted(NamedTuple):
    """``sample`` as /metrics names it; one line for each value of ``label``."""

    title: str
    sample: str
    label: str = ""
    grows: bool = True


WANTED: Final = (
    Wanted("scheduling attempts per minute", "scheduler_schedule_attempts_total", "result"),
    Wanted("unscheduled pods, by queue", "scheduler_pending_pods", "queue", grows=False),
    Wanted("preemption attempts per minute", "scheduler_preemption_attempts_total"),
    Wanted("pods evicted to make room per minute", "scheduler_preemption_victims_sum"),
    Wanted("pods evicted for device taints per minute", "device_taint_eviction_controller_pod_deletions_total"),
    Wanted("write conflicts per minute", "dray_write_conflicts_total"),
)
_PLACES: Final = {wanted.sample: number for number, wanted in enumerate(WANTED)}


class Line(msgspec.Struct):
    """``points``: when, and how much."""

    label: str
    points: list[tuple[float, float]]


class Plot(msgspec.Struct):
    title: str
    lines: list[Line]


class Unreadable(Exception):
    """A page of metrics cannot be read: says which and why."""


class Meters:
    """``trouble``: why the last sample is missing, or nothing."""

    def __init__(self) -> None:
        self.trouble = ""
        self._samples: list[dict[str, deque[tuple[float, float]]]] = [{} for _ in WANTED]

    def add(self, now: float, families: Iterable[Metric]) -> None:
        found: dict[tuple[int, str], float] = {}
        for family in families:
            for sample in family.samples:
                if (place := _PLACES.get(sample.name)) is not None:
                    key = (place, sample.labels.get(WANTED[place].label, ""))
                    found[key] = found.get(key, 0.0) + sample.value
        for (place, label), value in sorted(found.items()):
            lines = self._samples[place]
            if label in lines or len(lines) < LINES_MAX:
                lines.setdefault(label, deque(maxlen=SAMPLES_MAX)).append((now, value))

    def plots(self) -> list[Plot]:
        told = zip(WANTED, self._samples)
        return [Plot(wanted.title, [_line(wanted, *line) for line in lines.items()]) for wanted, lines in told if lines]


def _line(wanted: Wanted, label: str, samples: Sequence[tuple[float, float]]) -> Line:
    if not wanted.grows:
        return Line(label, list(samples))
    steps = pairwise(samples)
    return Line(label, [(at, _grown(before, value) * 60 / max(1e-3, at - then)) for (then, before), (at, value) in steps])


def _grown(before: float, value: float) -> float:
    return value - before if value >= before else value


# ------------------------------------------------------------------------------------------------------------ where from


async def follow(read: Read, meters: Meters, clock: Callable[[], float]) -> None:
    """Samples until it is cancelled."""
    while True:
        try:
            meters.add(clock(), await read())
            meters.trouble = ""
        except Unreadable as error:
            meters.trouble = str(error)
        await asyncio.sleep(EVERY_SECONDS)


def of_registry(registry: Registry) -> Read:
    async def read() -> Iterable[Metric]:
        return families(registry.text())

    return read


def of_pages(urls: Sequence[str], ask: Ask | None = None) -> Read:
    """What these addresses say, together. Those that begin with / are asked for at the cluster's API server, by ``ask``."""

    async def read() -> Iterable[Metric]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_SECONDS)) as session:
            asked = [
                partial(ask, url) if ask is not None and url.startswith("/") else partial(_got, session, url) for url in urls
            ]
            pages = await asyncio.gather(*map(_page, urls, asked))
        return [family for page in pages for family in page]

    return read


async def _page(url: str, ask: Callable[[], Awaitable[bytes]]) -> list[Metric]:
    try:
        text = await asyncio.wait_for(ask(), PATIENCE_SECONDS)
        return families(text[:PAGE_MAX])
    except (aiohttp.ClientError, ClusterError, TimeoutError, ValueError) as error:
        raise Unreadable(f"{url} cannot be read: {error or type(error).__name__}") from error


async def _got(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        answer.raise_for_status()
        text = await answer.content.read(PAGE_MAX)
        while len(text) < PAGE_MAX and (more := await answer.content.read(PAGE_MAX - len(text))):
            text += more
    return text


def families(text: bytes) -> list[Metric]:
    """What a page says. Raises ValueError when it is none."""
    return list(text_string_to_metric_families(text.decode()))
