"""Kinds that clients can store and that nothing acts on are named on the page of the API server."""

from __future__ import annotations

from pathlib import Path

from dray.api import kinds
from dray.api.kinds import Kind
from dray.apiserver.catalog import REVIEW, SERVED

PAGE = Path(__file__).parents[2] / "docs" / "api-server.md"
# Read as plain objects by the parts of the server and the controllers that act on them.
ACTED_ON = {
    "Event",
    "LimitRange",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "RuntimeClass",
    "Secret",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def test_every_kind_that_nothing_acts_on_is_named() -> None:
    known = {value.kind for value in vars(kinds).values() if isinstance(value, Kind)}
    idle = {found.kind.kind for found in SERVED if found.verbs != REVIEW} - known - ACTED_ON
    told = PAGE.read_text().partition("### Kinds that are stored and do nothing")[2].partition("\n### ")[0]
    named = set(told.replace("`", "").replace(",", " ").replace(";", " ").replace(":", " ").replace("|", " ").split())
    assert idle - named == set()
