"""One decider and the API server in lockstep: every write is made when the decider wants it, every change is seen at once.

For tests that say what a decider does, write by write. ``fault`` sees each write first and may answer instead of the server.

Always true: the decider is treated as a shell treats it: changes first, then the outcome of its own write, then ``act`` again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.cluster.port import Change, ClusterError, Decider, Outcome, WatchEvent, Write
from dray.cluster.world import World
from dray.runtime.virtual import Clock
from dray.testing.server import Plain, Server

Fault = Callable[[Write], ClusterError | None]


class NotAtRest(AssertionError):
    """The decider wants more and more: what it wrote last is in ``writes``."""

    def __init__(self, name: str, writes: Sequence[Write]) -> None:
        told = ", ".join(f"{write.verb} {write.kind.resource} {write.key} {write.subresource}".strip() for write in writes[-4:])
        super().__init__(f"{name} does not come to rest; its last writes: {told or 'none, but it wants to act again'}")
        self.writes = list(writes)


class Lockstep:
    """``make`` gets a World of ``kinds`` and gives the decider; ``restart`` makes another, which knows nothing but the API."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        make: Callable[[World], Decider],
        *,
        clock: Clock | None = None,
        gates: Gates | None = None,
        seed: int = 0,
    ) -> None:
        self.kinds, self._make = tuple(dict.fromkeys(kinds)), make
        self.clock = clock or Clock()
        self.server = Server(self.clock, watched=self.kinds, seed=seed, gates=gates)
        self.server.watchers.append(self.see)
        self.log: list[Write] = []
        self.fault: Fault | None = None
        self.restart()

    @property
    def now(self) -> float:
        return self.clock.now

    @now.setter
    def now(self, time: float) -> None:
        self.clock.now = time

    def restart(self) -> None:
        """The process is started again: everything is listed."""
        self.world = World(self.kinds)
        self.decider = self._make(self.world)
        self.relist()

    def relist(self, *kinds: Kind) -> None:
        """The watches of these kinds, or all, are lost and begin anew with a list."""
        for kind in kinds or self.kinds:
            raws, version = self.server.list(kind)
            self.observe(self.world.replace(kind, raws, version))

    def see(self, kind: Kind, event: WatchEvent) -> None:
        """A change reaches the decider. Take it out of ``server.watchers`` to hold changes back."""
        self.observe(self.world.remove(kind, event.raw) if event.type == "DELETED" else self.world.put(kind, event.raw))

    def observe(self, changes: Sequence[Change]) -> None:
        """Changes of the World that the decider is told of, if it asked for their kinds."""
        for change in changes:
            if change.kind in self.decider.kinds:
                self.decider.observe(change, self.now)

    # -------------------------------------------------------------------------------------------------------- running

    def step(self) -> list[Write]:
        """One call of ``act``, and its writes."""
        writes = self.decider.act(self.now)
        self.carry_out(writes)
        return writes

    def carry_out(self, writes: Sequence[Write]) -> None:
        """One after the other, each with its outcome told."""
        for write in writes:
            self.log.append(write)
            self.decider.observe(self.attempt(write), self.now)

    def attempt(self, write: Write) -> Outcome:
        """The write meets the test's fault, or the server."""
        error = self.fault(write) if self.fault is not None else None
        if error is not None:
            return Outcome(write, None, error)
        try:
            return Outcome(write, self.send(write), None)
        except ClusterError as refused:
            return Outcome(write, None, refused)

    def send(self, write: Write) -> Plain:
        """To the server; to be changed where a test has something of its own between the two."""
        return self.server.write(write)

    def settle(self, seconds: float = 0.0, most: int = 2000) -> None:
        """Until nothing is left to do, then until the time given has passed; raises ``NotAtRest``."""
        until = self.now + seconds
        for _ in range(most):
            if self.step():
                continue
            wake = self.decider.wake()
            if wake is not None and wake <= self.now:
                continue
            if wake is None or wake > until:
                self.now = until
                return
            self.now = wake
        raise NotAtRest(self.decider.name, self.log)

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, kind: Kind, name: str, namespace: str = "default") -> Plain | None:
        return self.server.get(kind, f"{namespace}/{name}" if kind.namespaced else name)
