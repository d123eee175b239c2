"""What can go wrong between a decider and its API server, as numbers that the virtual-time shell draws from its seed."""

from __future__ import annotations

import msgspec

Range = tuple[float, float]


class Crash(msgspec.Struct, frozen=True):
    """The host stops dead at ``at``; it starts again, knowing nothing, ``down`` seconds later."""

    at: float
    host: str
    down: float = 1.0


class Faults(msgspec.Struct, frozen=True):
    """Probabilities are per write or per delivery; ranges are seconds. ``away`` are times at which nothing is answered.

    conflict: the write is refused although nothing stood against it, as when somebody else wrote in between.
    lost_answer: the write happens, and whoever sent it is told that nobody answered.
    late_write: nobody answers, and the write happens only ``late_by`` seconds later, if its sender lives on. Not of hosts
        that are ``in_time``: what kubelets say of pods holds on to no version, so nothing could keep it from being outdated.
    failed_answer: the server says that it failed; the write happened all the same, or did not.
    crossed_answer: the write happens and is answered with a conflict, as when something on the way sent it twice.
    lost_watch: the events of a delivery are lost; after ``gap`` seconds the kind is listed again.
    """

    event_delay: Range = (0.001, 0.01)
    write_delay: Range = (0.001, 0.01)
    gap: Range = (0.1, 3.0)
    conflict: float = 0.0
    lost_answer: float = 0.0
    late_write: float = 0.0
    late_by: Range = (0.5, 30.0)
    in_time: tuple[str, ...] = ("nodes",)
    failed_answer: float = 0.0
    crossed_answer: float = 0.0
    lost_watch: float = 0.0
    away: tuple[Range, ...] = ()
    crashes: tuple[Crash, ...] = ()
    crash_per_write: float = 0.0
    until: float = float("inf")

    def gone(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.away)

    def back_at(self, now: float) -> float:
        """When the API server answers again."""
        return max((end for start, end in self.away if start <= now < end), default=now)


NONE = Faults()
EVERY = {
    "slow": Faults(event_delay=(0.01, 5.0), write_delay=(0.01, 2.0)),
    "conflicts": Faults(conflict=0.3),
    "lost answers": Faults(lost_answer=0.3),
    "doubtful answers": Faults(late_write=0.1, failed_answer=0.15, crossed_answer=0.1),
    "lost watches": Faults(lost_watch=0.2),
    "away": Faults(away=((1.0, 60.0),)),
    "crashes": Faults(crash_per_write=0.05),
    "everything": Faults(
        event_delay=(0.001, 2.0), write_delay=(0.001, 1.0), conflict=0.1, lost_answer=0.1, lost_watch=0.05, crash_per_write=0.02,
        away=((5.0, 20.0),),
    ),
}  # fmt: skip
