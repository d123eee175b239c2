"""The same cluster twice on virtual time, without something and with it, and how the two ends differ.

Always true: both runs begin with what was read, at the time it was read, with the same seed; what is added comes when the cluster
has had time to come to rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dray.api.kinds import EVENTS
from dray.explain.snapshot import Snapshot
from dray.simulate.run import Eviction, Report, simulate
from dray.simulate.scenario import Action, Scenario, ScenarioError, made_of

Plain = dict[str, Any]

# When something is added, in seconds from the start.
ADDED_AT: Final = 10.0


class PodChange(msgspec.Struct):
    """A pod that ends otherwise: phase and node, without the addition and with it."""

    pod: str
    before: Plain
    after: Plain


class Difference(msgspec.Struct, rename="camel"):
    """``added``: pods that are there only with the addition; ``gone``: only without it; ``evictions``: only with it."""

    added: list[Plain]
    gone: list[str]
    changed: list[PodChange]
    evictions: list[Eviction]


class WhatIf(msgspec.Struct):
    before: Report
    after: Report
    difference: Difference


def from_snapshot(found: Snapshot, now: float, also: Sequence[tuple[str, Plain]], **how: Any) -> Scenario:
    """The cluster as it was read, and objects of files besides; ``how`` as in ``scenario.made_of``."""
    scenario = made_of(also, **how)
    kept = [(kind, body) for (kind, _), body in sorted(found.objects.items(), key=lambda item: str(item[0])) if kind != EVENTS]
    scenario.actions = [*(Action(0.0, "apply", kind, body, "the cluster") for kind, body in kept), *scenario.actions]
    scenario.start = now
    return scenario


def what_if(scenario: Scenario, add: Sequence[tuple[str, Plain]]) -> WhatIf:
    if scenario.until <= ADDED_AT:
        raise ScenarioError(
            f"nothing would be added: that is done after {ADDED_AT:g} s, and the simulation ends then; extend --until"
        )
    added = [msgspec.structs.replace(action, at=ADDED_AT) for action in made_of(add).actions]
    with_it = msgspec.structs.replace(scenario, actions=sorted([*scenario.actions, *added], key=lambda action: action.at))
    before, after = simulate(scenario), simulate(with_it)
    return WhatIf(before, after, difference(before, after))


def difference(before: Report, after: Report) -> Difference:
    was, will = ({_key(pod): pod for pod in report.pods} for report in (before, after))
    changed = [
        PodChange(key, _end(was[key]), _end(pod)) for key, pod in will.items() if key in was and _end(was[key]) != _end(pod)
    ]
    known = {(each.namespace, each.name) for each in before.evictions}
    evictions = [each for each in after.evictions if (each.namespace, each.name) not in known]
    return Difference([pod for key, pod in will.items() if key not in was], sorted(was.keys() - will), changed, evictions)


def _key(pod: Plain) -> str:
    return f"{pod['namespace']}/{pod['name']}"


def _end(pod: Plain) -> Plain:
    return {"phase": pod["phase"], "node": pod["node"]}
