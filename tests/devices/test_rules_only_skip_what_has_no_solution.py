"""Bounds, symmetry, memory and components change how long a search takes, never what it finds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from dray.cli.allocate import _answer
from dray.devices import search
from tests.solver.strategies import lines

Json = dict[str, Any]


def ask(line: Json, patience: int) -> Json:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search, "PATIENCE", patience)
        answer, _ = _answer(json.dumps(line).encode())
    plain: Json = json.loads(msgspec.json.encode(answer))
    return {key: plain.get(key) for key in ("ok", "results", "error", "nodeError")}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines())
def test_the_careful_search_finds_what_the_plain_one_finds(line: Json) -> None:
    # Without patience every dead end starts the careful search; with endless patience there is only the plain one.
    plain = ask(line, 10**9)
    if "given up" not in (plain["error"] or ""):
        assert ask(line, -1) == plain
