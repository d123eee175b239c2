"""Whether claims would fit beside some holders is answered as if all others had let go, without anybody doing so."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api.resource import ResourceClaim
from dray.cli.allocate import Line, Session
from dray.devices import Devices
from tests.solver.strategies import lines

Json = dict[str, Any]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines(), st.sets(st.integers(0, 2)))
def test_as_if_all_others_had_let_go(line: Json, staying: set[int]) -> None:
    """Asked for what is asked for anyhow, and for what each holder has as often as three times."""
    asked = msgspec.json.decode(json.dumps(line), type=Line)
    session = Session(asked)
    engine, node = session.engine, session.node(asked.node)
    holders = [uid for uid, _ in engine.ledger.entries()]
    stay = {holder for number, holder in enumerate(holders) if number in staying}
    again = [[{**each, "status": {}}] * often for each in line["allocatedClaims"] for often in (1, 2, 3)]
    for claims in ([json.dumps(each) for each in question] for question in (line["claims"], *again)):
        same_as_let_go(engine, node, session.claims([msgspec.Raw(text.encode()) for text in claims]), set(holders), stay)


def same_as_let_go(engine: Devices, node: str, claims: list[ResourceClaim], holders: set[str], stay: set[str]) -> None:
    before = engine.ledger.snapshot()
    could = engine.could(node, claims, sorted(stay))
    assert engine.ledger.snapshot() == before
    with engine.books.trial():
        for holder in holders - stay:
            engine.release(holder)
        verdict = engine.allocate(node, claims)
    assert could == verdict.ok or any(reason.code == "SearchBudget" for reason in verdict.reasons)
