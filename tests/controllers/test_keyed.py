"""What every controller that works key by key does: it looks again when its writes were answered; events do not hold it up."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.kinds import EVENTS, PODS, Kind
from dray.api.meta import ObjectMeta
from dray.cluster.port import Change, Outcome, Refused, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

POD = Pod(metadata=ObjectMeta(name="p", namespace="n", uid="u"))
SOMEBODYS_EVENTS = Kind("example.com", "v1", "events", "Event", True)


class Teller(Keyed):
    """Tells of every pod each time, and deletes what it has of a kind."""

    name = "teller"
    source = "teller-controller"

    def __init__(self, deletes: Kind | None = None) -> None:
        super().__init__(World((PODS,)))
        self.deletes = deletes
        self.looked = 0

    def concerned(self, change: Change) -> Iterable[str]:
        return (change.object.key,)

    def decide(self, key: str, now: float) -> list[Write]:
        self.looked += 1
        self.say(self._recorder.warning(PODS, POD, "Odd", "it is odd", action="Look", now=now))
        return [Write("delete", self.deletes, "n", f"x{self.looked}")] if self.deletes is not None else []

    def told(self, now: float) -> list[Write]:
        self.observe(Change(PODS, None, POD), now)
        return self.act(now)


def test_what_is_said_again_is_a_series_of_one_event() -> None:
    teller = Teller()
    (first,) = teller.told(1000.0)
    (again,) = teller.told(1001.0)
    assert (first.verb, first.body["reportingController"]) == ("create", "teller-controller")
    assert (again.verb, again.name, again.body["series"]["count"]) == ("patch", first.name, 2)


def test_an_event_that_could_not_be_written_is_made_anew() -> None:
    teller = Teller()
    (first,) = teller.told(1000.0)
    teller.observe(Outcome(first, error=Refused(403, "Forbidden", "namespace n is being terminated")), 1000.5)
    (again,) = teller.told(1001.0)
    assert (again.verb, again.kind) == ("create", EVENTS)


def test_objects_of_somebody_that_are_called_events_are_waited_for() -> None:
    teller = Teller(deletes=SOMEBODYS_EVENTS)
    deletion = teller.told(1000.0)[0]
    assert teller.told(1000.5) == []
    assert teller.looked == 1
    teller.observe(Outcome(deletion, object={}), 1001.0)
    teller.act(1001.0)
    assert teller.looked == 2
