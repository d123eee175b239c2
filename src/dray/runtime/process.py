"""One running part of a control plane: deciders on a cluster, health endpoints and, where asked, leader election.

``run`` returns when ``stop`` is set and what was under way is answered; it raises when leadership is lost or a decider fails,
because then only a new process can be trusted.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.cluster.numbers import tell_features
from dray.cluster.port import Cluster, Decider
from dray.cluster.world import World
from dray.runtime.leader import Elector, Settings
from dray.runtime.live import IN_FLIGHT, Live
from dray.runtime.metrics import Metrics
from dray.runtime.stories import Stories

if TYPE_CHECKING:
    from dray.runtime.health import Health

Build = Callable[[World, Metrics], Sequence[Decider]]
Beside = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)

# Until it is said that not every kind could be listed, and until that is said again.
_PATIENCE: Final = 5.0
_REMINDED: Final = 60.0


class Part(msgspec.Struct, frozen=True):
    """What to run: the kinds to mirror and how the deciders are made from the picture of them.

    ``beside`` is I/O of the deciders' own, such as sockets: it runs as long as they do, after they are made, and calls what it
    is given when they should look again. ``gates`` are told at ``/metrics``: parts may have others than the API server.
    ``checks``: what else must hold for ``/readyz``, each None or why it does not.
    """

    kinds: tuple[Kind, ...]
    build: Build
    serve: str = ""
    election: Settings | None = None
    in_flight: int = IN_FLIGHT
    beside: Beside | None = None
    gates: Gates | None = None
    checks: Mapping[str, Callable[[], str | None]] = {}


async def run(cluster: Cluster, part: Part, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
    """Run a part until ``stop``; ``ready`` is set when every kind is listed."""
    metrics, stories = Metrics(), Stories()
    if part.gates is not None:
        tell_features(metrics.registry, part.gates)
    world = World(part.kinds)
    elector = Elector(cluster, part.election, on_change=lambda: live.stir()) if part.election is not None else None
    if elector is not None:
        metrics.leading.labels(elector.election.settings.name).set_function(lambda: float(elector.leading))
    leading = (lambda: elector.leading) if elector is not None else (lambda: True)
    live = Live(
        cluster, world, part.build(world, metrics), in_flight=part.in_flight, leading=leading, stories=stories, metrics=metrics
    )
    health = _health(live, elector, metrics, stories, part.checks) if part.serve else None
    # What is listed stays: looking through it again and again while it is read would only take time.
    gc.disable()
    try:
        if health is not None:
            log.info("serving health and metrics", extra={"url": await health.serve(part.serve)})
        await _until(stop, live, elector, ready, part.beside)
    finally:
        gc.enable()
        if health is not None:
            await health.close()


async def _until(
    stop: asyncio.Event, live: Live, elector: Elector | None, ready: asyncio.Event | None, beside: Beside | None
) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(live.run(), name="deciders")
        side = [group.create_task(elector.run(), name="election")] if elector is not None else []
        side.append(group.create_task(_announce(live, ready), name="ready"))
        if beside is not None:
            side.append(group.create_task(beside(live.stir), name="beside"))
        waiting = group.create_task(stop.wait(), name="stop")
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            log.info("received a signal, shutting down")
        live.stop()
        await running
        for task in (*side, waiting):
            task.cancel()


async def _announce(live: Live, ready: asyncio.Event | None) -> None:
    pause = _PATIENCE
    while not live.listed.is_set():
        try:
            async with asyncio.timeout(pause):
                await live.listed.wait()
        except TimeoutError:
            pause = _REMINDED
            log.warning("waiting for the initial lists", extra={"missing": ", ".join(live.missing)})
    # What was listed lives long: the collector need not look at it ever again.
    gc.freeze()
    gc.enable()
    log.info("initial lists complete, starting")
    if ready is not None:
        ready.set()


def _health(
    live: Live, elector: Elector | None, metrics: Metrics, stories: Stories, checks: Mapping[str, Callable[[], str | None]]
) -> Health:
    # The web server takes time to load, and not every part serves.
    from dray.runtime.health import Health, ping

    def synced() -> str | None:
        return None if live.synced else f"initial list not complete: {', '.join(live.missing)}"

    election = {"leaderElection": elector.health} if elector is not None else {}
    return Health(
        health={"ping": ping, **election},
        live={"ping": ping},
        ready={"informer-sync": synced, **election, **checks},
        metrics=metrics,
        stories=stories,
    )


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
