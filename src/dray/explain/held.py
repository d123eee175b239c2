"""The scheduler's own session of queues and gangs, held for nobody: what it would decide, also on a world as it might be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dray.api.gates import Gates
from dray.cluster.world import World
from dray.explain.failures import FailedBinding, resting
from dray.queues.order import Standing
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.workloads.session import Session


class Held(NamedTuple):
    """A session that was held; ``before``: where the queues stood."""

    scheduler: Scheduler
    session: Session
    before: Mapping[str, Standing]


def hold(world: World, config: Config, gates: Gates | None, now: float, failures: Sequence[FailedBinding]) -> Held:
    # In a session that is held for nobody there are no writes under way to wait for.
    scheduler = Scheduler(world, msgspec.structs.replace(config, in_flight=2**31), gates)
    # What a scheduler that runs knows of pods that no session decides on: what failed them, and what they are promised.
    ask = Ask(scheduler, now)
    ask.count_rests(device for device, _ in resting(failures, config.device_rest, now))
    session = ask.survey()
    before = session.standings.frozen()
    scheduler.workloads.rehearse(session)
    return Held(scheduler, session, before)
