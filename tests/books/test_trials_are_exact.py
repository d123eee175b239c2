"""A trial that is not kept leaves every account as it was and tells nobody; one that is kept tells once what changed."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.core import Node, Pod
from dray.api.meta import decode
from dray.api.resource import DeviceKey
from dray.books.demand import Demands
from dray.books.journal import Books, Delta
from dray.books.nodes import Nodes, Placed
from dray.books.volumes import VolumeAccount
from dray.devices.ledger import Charge, Ledger

DEVICES = [DeviceKey("gpu.example.com", f"pool-{pool}", f"gpu-{number}") for pool in range(2) for number in range(3)]


class Everything:
    """All accounts on one journal."""

    def __init__(self) -> None:
        self.books = Books()
        self.told: list[Delta] = []
        self.books.subscribe(self.told.append)
        self.nodes = Nodes(self.books)
        self.devices = Ledger(lambda key, holding: None, self.books)
        self.volumes = VolumeAccount(self.books)
        self._demands = Demands()
        for name in ("n1", "n2"):
            status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
            self.nodes.put(decode(Node, {"metadata": {"name": name}, "status": status}))

    def pod(self, number: int, pick: random.Random) -> Placed:
        ports = [{"containerPort": 80, "hostPort": 8000 + pick.randrange(2)}] if pick.random() < 0.4 else []
        requests = {"cpu": str(pick.randrange(1, 3))} if pick.random() < 0.7 else {}
        container = {"name": "c", "image": "x", "resources": {"requests": requests}, "ports": ports}
        body = {"metadata": {"name": f"p{number}", "namespace": "d", "uid": f"u{number}"}, "spec": {"containers": [container]}}
        pod = decode(Pod, body)
        node = pick.choice(("n1", "n2", "unknown"))
        return Placed(pod, self._demands.of(pod), node, pick.choice(("promised", "decided", "shown")))

    def do(self, what: str, pick: random.Random) -> None:
        number = pick.randrange(4)
        match what:
            case "place":
                self.nodes.place(self.pod(number, pick))
            case "displace":
                self.nodes.displace(f"u{number}")
            case "charge":
                mode: Any = pick.choice(("exclusive", "share", "rest"))
                consumed = (("memory", pick.randrange(1, 5)),) if mode == "share" else ()
                groups = ((("set", ("a",)),)) if pick.random() < 0.3 else None
                charges = tuple(Charge(device, mode, consumed, groups) for device in pick.sample(DEVICES, 2))
                self.devices.charge(f"c{number}", charges, pick.choice(("decided", "writing", "shown")), f"d/c{number}")
            case "release":
                self.devices.release(f"c{number}")
            case "hand over":
                to = pick.choice([f"c{other}" for other in range(4, 8)])
                if self.devices.entry(to) is None:
                    self.devices.hand_over(f"c{number}", to, f"d/{to}")
            case "take":
                self.volumes.take(f"u{number}", ((f"d/v{number % 3}", f"pv-{pick.randrange(2)}-{number % 3}"),))
            case _:
                self.volumes.give_back(f"u{number}")

    def settled(self) -> list[Any]:
        """What pods have on nodes, whatever is tried."""
        return [self.books.settled(self.nodes, f"u{number}") for number in range(8)]

    def snapshot(self) -> tuple[Any, ...]:
        numbers = {info.name: self.nodes.state_of(info) for info in self.nodes}
        entries = dict(self.devices.entries()), {device: sorted(self.devices.owners(device)) for device in DEVICES}
        entries = *entries, self.devices.on_the_way()
        return self.nodes.snapshot(), self.devices.snapshot(), entries, self.volumes.snapshot(), numbers


WORK = st.lists(st.sampled_from(["place", "displace", "charge", "release", "hand over", "take", "give back"]), max_size=14)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), WORK, WORK, WORK)
def test_what_is_not_kept_never_was(seed: int, before: list[str], outer: list[str], inner: list[str]) -> None:
    pick = random.Random(seed)
    made = Everything()
    for what in before:
        made.do(what, pick)
    was, heard, settled = made.snapshot(), len(made.told), made.settled()
    with made.books.trial():
        for what in outer:
            made.do(what, pick)
        between = made.snapshot()
        with made.books.trial():
            for what in inner:
                made.do(what, pick)
            assert made.settled() == settled
        assert made.snapshot() == between
        assert made.settled() == settled
        with made.books.trial() as kept:
            for what in inner:
                made.do(what, pick)
            kept.keep()
    assert made.snapshot() == was
    assert len(made.told) == heard


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), WORK, WORK)
def test_what_is_kept_is_as_if_it_had_been_done_at_once_and_is_told_once(seed: int, before: list[str], work: list[str]) -> None:
    tried, done = Everything(), Everything()
    picks = random.Random(seed), random.Random(seed)
    for made, pick in zip((tried, done), picks):
        for what in before:
            made.do(what, pick)
    was, heard = tried.snapshot(), len(tried.told)
    with tried.books.trial() as trial:
        for what in work:
            tried.do(what, picks[0])
        trial.keep()
    for what in work:
        done.do(what, picks[1])
    assert _content(tried) == _content(done)
    told = tried.told[heard:]
    assert len(told) <= 1
    assert bool(told) == (_content_of(was) != _content_of(tried.snapshot()))
    for account, holder, had, has in told[0] if told else ():
        assert account.entry(holder) == has != had


def _content(made: Everything) -> tuple[Any, ...]:
    return _content_of(made.snapshot())


def _content_of(snapshot: tuple[Any, ...]) -> tuple[Any, ...]:
    """What holders have, without numbers of states and identities of pods."""
    nodes, devices, entries, volumes, _ = snapshot
    return {(repr(placed), placed.demand.id) for _, placed in nodes[""]}, devices, entries, volumes


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), WORK)
def test_who_holds_a_device_is_who_has_a_charge_of_it(seed: int, work: list[str]) -> None:
    pick, made = random.Random(seed), Everything()
    for what in work:
        made.do(what, pick)
    entries = made.devices.entries()
    for device in DEVICES:
        holders = sorted(holder for holder, entry in entries if any(charge.device == device for charge in entry.charges))
        assert sorted(made.devices.owners(device)) == holders
    assert made.devices.on_the_way() == {holder for holder, entry in entries if entry.standing in ("decided", "writing")}
    for holder, _ in entries:
        made.devices.release(holder)
    assert made.devices.snapshot() == {}
    assert not any(made.devices.owners(device) for device in DEVICES)


def test_what_changes_hands_is_told_to_nobody() -> None:
    made = Everything()
    made.devices.charge("c0", (Charge(DEVICES[0], "exclusive", (), None),), "decided", "d/c0")
    heard = len(made.told)
    made.devices.hand_over("c0", "c1", "d/c1")
    assert len(made.told) == heard
    assert made.devices.owners(DEVICES[0]) == ("c1",)
    assert made.devices.name_of("c1") == "d/c1"


def test_a_node_that_a_pod_came_to_and_left_is_in_the_state_that_it_was_in() -> None:
    made = Everything()
    info = made.nodes.get("n1")
    assert info is not None
    state = made.nodes.state_of(info)
    placed = made.pod(1, random.Random(5))
    made.nodes.place(Placed(placed.pod, placed.demand, "n1"))
    made.nodes.displace(placed.pod.uid)
    assert info.requested == {}
    assert made.nodes.state_of(info) == state
