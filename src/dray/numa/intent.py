"""How a pod itself limits the zones that it may span, on nodes whose kubelet would let it be spread.

A pod says with ``kai.scheduler/max-numa-spread`` or ``dray.dev/numa-span`` over how many zones it may be spread at most, with
``dray.dev/numa-resources`` which of its resources this is about (all, if it does not say), and with ``dray.dev/numa-heal``
that it should be placed anew when the kubelet did otherwise. It only ever narrows what a node's policy allows. On a node that
never refuses this is no guarantee: a refusal here is certain to be right, an acceptance is the best that is known, and
``missed`` tells afterwards.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.reason import Reason
from dray.numa.demand import Amounts, Demand, Unit
from dray.numa.evaluate import EVALUATORS, Evaluators
from dray.numa.layout import State
from dray.numa.masks import width
from dray.numa.placement import Groups, Placement

KAI_SPAN: Final = "kai.scheduler/max-numa-spread"
SPAN: Final = "dray.dev/numa-span"
RESOURCES: Final = "dray.dev/numa-resources"
HEAL: Final = "dray.dev/numa-heal"
SPANS: Final[tuple[str, ...]] = (SPAN, KAI_SPAN)
SAID: Final[tuple[str, ...]] = (*SPANS, RESOURCES, HEAL)


class IntentError(ValueError):
    """An annotation is wrong. Whoever wrote the pod must correct it; the message names it and says how."""


class Intent(msgspec.Struct, frozen=True):
    """``resources`` is None for all that a kubelet would align."""

    span: int
    resources: frozenset[str] | None = None
    heal: bool = False


def intent(pod: Pod) -> Intent | None:
    """What the pod says, or None when it says nothing. Raises IntentError."""
    annotations = pod.metadata.annotations
    spans = [_positive(name, annotations[name]) for name in SPANS if name in annotations]
    if not spans:
        for name in (RESOURCES, HEAL):
            if name in annotations:
                raise IntentError(f'annotation {name} means nothing without {SPAN}: add {SPAN}: "1" or take it away')
        return None
    named = frozenset(filter(None, (part.strip() for part in annotations.get(RESOURCES, "").split(","))))
    if RESOURCES in annotations and not named:
        raise IntentError(f"annotation {RESOURCES} names no resource; list them with commas, or take it away")
    return Intent(min(spans), named or None, _truth(HEAL, annotations.get(HEAL, "false")))


def _positive(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:9]) == 0 or len(text) > 9:
        raise IntentError(f"annotation {name}: {text[:40]!r} is not a positive whole number")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise IntentError(f'annotation {name}: {text[:40]!r} is neither "true" nor "false"')
    return text == "true"


def limited(demand: Demand, intent: Intent) -> Demand:
    """The part of a demand that the intent is about."""
    if intent.resources is None:
        return demand
    wanted = intent.resources

    def only(amounts: Amounts) -> Amounts:
        return tuple(pair for pair in amounts if pair[0] in wanted)

    units = tuple(Unit(unit.role, only(unit.needs)) for unit in demand.units)
    return Demand(tuple(unit for unit in units if unit.needs), only(demand.pod))


def refusal(intent: Intent, state: State, demand: Demand, evaluators: Evaluators, node: str = "") -> Reason | None:
    """Why the pod must not go to a node in this state although its kubelet would take it, or None."""
    layout = state.layout
    asked = evaluators.demands(limited(demand, intent))
    if intent.span >= len(layout.zones):
        return None
    if layout.policy in EVALUATORS:
        # Where all of the pod goes decides where the resources go that this is about.
        needed = _spread(intent, evaluators.admit(state, demand).placement)
    elif layout.policy == "none":
        needed = len(layout.zones) if _divisible(state, asked, evaluators) else 1
    else:
        needed = _least(state, asked)
    if needed <= intent.span:
        return None
    data = {"needed": needed, "allowed": intent.span, "policy": layout.policy}
    return Reason("ZoneSpan", f"node/{node}" if node else "", data | ({"spread": needed} if layout.policy == "none" else {}))


def _divisible(state: State, demand: Demand, evaluators: Evaluators) -> bool:
    """Whether a kubelet that aligns nothing could spread this: more than one unit of anything that zones have."""
    needs = [pair for each in evaluators.plan(state.layout, demand).needs for pair in each.every]
    units = {row: 1000 if state.layout.resources[row] == "cpu" else 1 for row, _ in needs}
    return sum(value // units[row] for row, value in needs) > 1


def _least(state: State, demand: Demand) -> int:
    """No fewer zones than this can do: what each resource needs by itself, over all containers."""
    rows = [(state.layout.row(name), value) for name, value in demand.pod]
    return max((width(state.free[row], value) for row, value in rows if row is not None), default=0)


def missed(intent: Intent, placed: Placement, groups: Groups = ()) -> int:
    """How many zones too many the pod was given, by what was observed of the resources that the intent is about. Memory that
    was drawn from several zones together is in all of them."""
    return max(_spread(intent, placed, groups) - intent.span, 0)


def _spread(intent: Intent, placed: Placement, groups: Groups = ()) -> int:
    mask = 0
    for zones, amounts in (*((1 << place, amounts) for place, amounts in placed), *groups):
        if any(intent.resources is None or name in intent.resources for name, _ in amounts):
            mask |= zones
    return mask.bit_count()
