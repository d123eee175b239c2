"""Reasons in words: one sentence for one reason, one line for a whole refusal, and what would help.

``words`` speaks of one object; ``message`` counts nodes and is what a FailedScheduling event carries, the dominant reason first
and never longer than an event may be; ``notice`` adds kube-scheduler's words for the same, which people and their alerts search
for; ``fixes`` says the smallest changes that help; ``as_json`` is a reason as scripts read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from dray.api.amounts import amount, in_one_unit
from dray.api.codes import CODES, CURABLE
from dray.api.quantity import Quantity
from dray.api.reason import Reason
from dray.api.resource import UNMADE

MESSAGE_MAX: Final = 1024
# Numbers that differ from node to node without making another reason: the best of them is told.
BEST: Final = ("free", "total")
# Worked out from others when the words are made: the total, where even that is too little; the zone, where it is one.
_DERIVED: Final = frozenset({"most", "besides", "sole"})
# Names and details of one node: told of several only where all of them agree.
_OF_ONE: Final = frozenset(
    {"device", "pool", "value", "steps", "pod", "until", "refused", "features", "alternatives", "nearest", "lacks"}
)
_PER_NODE: Final = frozenset({*BEST, *_OF_ONE, "missing"})

# Told in one unit.
_AMOUNTS: Final = ("needed", "free", "total", "missing", "most", "kept")
# Amounts by resource.
_AMOUNTS_OF: Final = ("lacks", "requests")

# What else than being in use keeps devices of a request from it, in a word or two after their number.
BESIDES: Final = {
    "DeviceTainted": "tainted",
    "CountersExhausted": "out of counters",
    "CapacityExhausted": "out of capacity",
    "CapacityMissing": "without the capacity",
    "CapacityPolicy": "not shared this way",
    "GroupIncompatible": "incompatible with devices in use",
    "DeviceCoolingDown": "at rest after a failure",
    "AttributeMissing": "without the attribute of a constraint",
    "FeatureOff": "of a feature that is off",
    "BindingConditionsOff": "with binding conditions, which are off",
    "NodeOperationsUnsupported": "with operations that the node lacks",
}

# Of these it depends on the holder which one it is.
_BY_HOLDER: Final = frozenset({"DeviceTaken", "DeviceCoolingDown"})

Counted = tuple[Reason, int]
Preemption = Literal["", "never", "tried"]
"""Whether evicting others was thought of for a pod that no node takes, or is not allowed to it."""

UPSTREAM: Final = " In kube-scheduler's words: "
# What kube-scheduler's words may take of a message, so that there is room for the rest.
_UPSTREAM_MAX: Final = 400
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


def words(reason: Reason) -> str:
    """The reason as a sentence without its full stop: ``claim ns/a does not exist``."""
    return f"{_subject(reason.object, CODES[reason.code].subject)} {predicate(reason)}"


def predicate(reason: Reason, *, plural: bool = False) -> str:
    """What is said of the object, or of several alike: ``does not exist``, ``do not exist``."""
    text = CODES[reason.code]
    says = text.nodes if text.nodes and reason.object.startswith("node/") else text.says
    return _fill(says, _data(reason), plural=plural)


def as_json(reason: Reason) -> dict[str, Any]:
    """The fixed shape that scripts rely on."""
    return {"code": reason.code, "message": words(reason), "object": reason.object, "data": reason.data}


def counted(reasons_by_node: Mapping[str, Sequence[Reason]]) -> list[Counted]:
    """Equal reasons with the number of nodes that give them, the most frequent first."""
    groups: dict[str, _Counting] = {}
    for reasons in reasons_by_node.values():
        for reason in of_one_node(reasons):
            groups.setdefault(_group(reason), _Counting(reason)).add(reason)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].count, item[0]))
    return [(group.common(), group.count) for _, group in ordered]


def of_one_node(reasons: Sequence[Reason]) -> list[Reason]:
    """What is told of one node: once, although several claims of the pod lack it there."""
    return list({_group(reason): reason for reason in reversed(reasons)}.values())


def message(counts: Sequence[Counted], total: int, limit: int = MESSAGE_MAX) -> str:
    """Why no node takes the pod: ``0/12 nodes are available: 8 nodes have …, 4 nodes have ….`` A count of 0 marks a reason that
    concerns the pod itself."""
    general = [words(reason) for reason, count in counts if not count]
    nodes = [_of_nodes(reason, count) for reason, count in _merged(counts)]
    if general and not nodes:
        return _joined("", general, limit, "; ")
    head = f"0/{total} nodes are available: "
    return _joined(head, [*nodes, *general], limit, ", ")


def notice(counts: Sequence[Counted], total: int, preemption: Preemption = "") -> str:
    """What an event and the pod's condition say: the message, and what kube-scheduler would say in its place."""
    upstream = in_upstream_words(counts, total, preemption)
    if not upstream:
        return message(counts, total)
    told = UPSTREAM + upstream
    return message(counts, total, MESSAGE_MAX - len(told.encode())) + told


def in_upstream_words(counts: Sequence[Counted], total: int, preemption: Preemption = "") -> str:
    """The phrases of kube-scheduler for the same reasons, counted over nodes as it does; empty where it has none."""
    phrases: dict[str, int] = {}
    for reason, count in counts:
        if phrase := _fill(CODES[reason.code].upstream, _data(reason), plural=False):
            phrases[phrase] = min(phrases.get(phrase, 0) + count, total)
    ordered = sorted(phrases, key=lambda phrase: (-phrases[phrase], phrase))
    parts = [f"{phrases[phrase]} {phrase}" if phrases[phrase] else phrase for phrase in ordered]
    told = _joined("", parts, _UPSTREAM_MAX, ", ") if parts else ""
    after = _of_preemption(counts, total, preemption)
    return " ".join(part for part in (told, after) if part)


def _of_preemption(counts: Sequence[Counted], total: int, preemption: Preemption) -> str:
    if not preemption or not total:
        return ""
    if preemption == "never":
        return "preemption: not eligible due to preemptionPolicy=Never."
    curable = sum(count for reason, count in counts if reason.code in CURABLE)
    others = sum(count for reason, count in counts) - curable
    if curable and others and curable + others != total:
        # A node that gives several reasons is not told apart here, so nothing is counted.
        return f"preemption: 0/{total} nodes are available: {_NO_VICTIMS}, {_NOT_HELPFUL}."
    parts = [f"{min(n, total)} {phrase}" for n, phrase in ((curable, _NO_VICTIMS), (others, _NOT_HELPFUL)) if n]
    return f"preemption: 0/{total} nodes are available: {', '.join(parts)}."


def fixes(counts: Iterable[Counted], limit: int = 4) -> list[str]:
    """The smallest changes that help, the one that helps on most nodes first."""
    told: dict[str, None] = {}
    merged = _merged(counts, keep_general=True)
    too_few = {_wanted(reason) for reason, _ in merged if reason.code == "NotEnoughDevices"}
    for reason, _ in sorted(merged, key=lambda counted: -counted[1]):
        cure = CODES[reason.code].cure
        # That other nodes have none at all adds nothing to what is said of those that have too few.
        if cure and not (reason.code == "NoDevices" and _wanted(reason) in too_few):
            told[_fill(cure, _data(reason), plural=False)] = None
    return list(told)[:limit]


def _wanted(reason: Reason) -> tuple[object, ...]:
    return tuple(reason.data.get(key) for key in ("claim", "class", "request"))


# ---------------------------------------------------------------------------------------------------------- grouping


def _group(reason: Reason) -> str:
    told = _told_keys(reason.code)
    data = sorted((key, str(value)) for key, value in reason.data.items() if key in told)
    scope = reason.object if reason.object.startswith("claim/") else ""
    return f"{reason.code} {scope} {data}"


@lru_cache(maxsize=256)
def _told_keys(code: str) -> frozenset[str]:
    """The data that make a reason another one: what the texts use, less the numbers that differ from node to node."""
    return frozenset(data_keys(code)) - _PER_NODE


def _merged(counts: Iterable[Counted], *, keep_general: bool = False) -> list[Counted]:
    """Counts of reasons that differ only in numbers, added up; the most frequent first."""
    groups: dict[str, Counted] = {}
    for reason, count in counts:
        if count or keep_general:
            before, known = groups.get(_group(reason), (reason, 0))
            groups[_group(reason)] = (_common(before, reason), known + count)
    return [groups[key] for key in sorted(groups, key=lambda key: (-groups[key][1], key))]


class _Counting:
    """A reason that several nodes give. Who holds what they lack is collected and put in order once: it can be thousands."""

    def __init__(self, first: Reason) -> None:
        self._reason, self.count = first, 0
        self._holders: set[str] = set()

    def add(self, reason: Reason) -> None:
        self.count += 1
        self._reason = _best(self._reason, reason)
        if "holders" in self._reason.data:
            self._holders.update(reason.data.get("holders", ()))
        else:
            self._holders.clear()

    def common(self) -> Reason:
        return _held_by(self._reason, self._holders)


def _common(one: Reason, other: Reason) -> Reason:
    """What two equal reasons have in common."""
    return _held_by(_best(one, other), {*one.data.get("holders", ()), *other.data.get("holders", ())})


def _best(one: Reason, other: Reason) -> Reason:
    """Of two equal reasons the numbers of the one that misses less, and no detail that only one has."""
    if one is other:
        return one
    best = other if _number(other.data.get("free")) > _number(one.data.get("free")) else one
    data = {key: value for key, value in best.data.items() if key not in _OF_ONE or one.data.get(key) == other.data.get(key)}
    if off := set(one.data.get("features", ())) & set(other.data.get("features", ())):
        data["features"] = sorted(off)
    if (refused := _most_refused(one.data.get("refused"), other.data.get("refused"))) is not None:
        data["refused"] = refused
    return Reason(best.code, one.object if one.object == other.object else "", data)


def _most_refused(one: Any, other: Any) -> dict[str, int] | None:
    """What keeps devices from a request on either of two nodes, and how many at most: where some are in use here and none
    there, that all the others are tainted must still be told."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return None
    return {code: max(one.get(code, 0), other.get(code, 0)) for code in sorted({*one, *other})}


def _held_by(reason: Reason, holders: set[str]) -> Reason:
    if not isinstance(reason.data.get("holders"), list):
        return reason  # none, or those of zones, which are told as they are
    return Reason(reason.code, reason.object, {**reason.data, "holders": sorted(holders)})


def of_several(reason: Reason) -> Reason:
    """The reason as it can be told of several nodes in one state of which only one was looked at: without what only that one
    has. What is said of alternatives, and what keeps how many devices from a request, are names and numbers of the state, the
    same on all of them; but for who has a device."""
    own = {*_OF_ONE, "holders"} - {"alternatives", "features", "refused"}
    data = {key: value for key, value in reason.data.items() if key not in own}
    if "refused" in data:
        data["refused"] = {code: number for code, number in data["refused"].items() if code not in _BY_HOLDER}
    return Reason(reason.code, "", data)


def _number(value: Any) -> float:
    try:
        return amount(value)
    except (TypeError, ValueError):
        return -1.0


def _of_nodes(reason: Reason, count: int) -> str:
    text = CODES[reason.code]
    data = _data(reason)
    if count > 1 and "free" in data:
        data["free"] = f"at most {data['free']}"
    if count > 1 and "besides" in data:
        data["besides"] = _besides(reason, "up to ")
    if text.subject != "node" and not text.nodes:
        return f"{_nodes(count)} {'are' if count > 1 else 'is'} refused because {words(reason)}"
    return f"{_nodes(count)} {_fill(text.nodes or text.says, data, plural=count > 1)}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _joined(head: str, parts: Sequence[str], limit: int, separator: str) -> str:
    """As many parts as fit; what is left out is counted."""
    if not parts:
        return (head.rstrip(": ") or "no reason is known") + "."
    taken: list[str] = []
    for index, part in enumerate(parts):
        left = len(parts) - index - 1
        rest = f"{separator}and {left} more reasons" if left else ""
        if len((head + separator.join([*taken, part]) + rest + ".").encode()) > limit:
            break
        taken.append(part)
    left = len(parts) - len(taken)
    if not taken:
        return (head + parts[0]).encode()[: limit - 4].decode(errors="ignore") + "…"
    more = f"{separator}and {left} more reason{'s' if left > 1 else ''}" if left else ""
    return head + separator.join(taken) + more + "."


# -------------------------------------------------------------------------------------------------------------- texts


def _subject(object: str, default: str) -> str:
    kind, slash, name = object.partition("/")
    if kind == "pod" and default == "claim":
        return f"pod {name} has a claim that"
    if kind == "claim" and name.endswith(f"/{UNMADE}"):
        return "the claim for its extended resources"
    return f"{kind} {name}" if slash else object or f"the {default}"


def _data(reason: Reason) -> dict[str, Any]:
    """The data of a reason as texts need them: lists joined, and what follows from others."""
    data = {key: _shown(value) for key, value in reason.data.items() if value not in (None, "", [], ())}
    needed, free, total = (_number(reason.data.get(key)) for key in ("needed", "free", "total"))
    if "missing" not in data and needed > free >= 0:
        data["missing"] = str(Quantity.parse(reason.data["needed"]) - Quantity.parse(reason.data["free"]))
    if 0 <= total < needed:
        data["most"] = _shown(reason.data["total"])
    data |= in_one_unit({key: data[key] for key in _AMOUNTS if key in data})
    for key in _AMOUNTS_OF:
        if isinstance(found := reason.data.get(key), Mapping):
            data[key] = _shown({name: _readable(name, _shown(value)) for name, value in found.items()})
    nearest = reason.data.get("nearest")
    if isinstance(nearest, list | tuple) and len(nearest) == 1:
        data["sole"] = _shown(nearest)
    if besides := _besides(reason):
        data["besides"] = besides
    if data.get("claim", "").endswith(f"/{UNMADE}"):
        data["claim"] = "the pod's extended resources"
    return data


def _besides(reason: Reason, before: str = "") -> str:
    refused = reason.data.get("refused")
    told = sorted(refused.items()) if isinstance(refused, Mapping) else ()
    return ", ".join(f"{before}{number} {BESIDES[code]}" for code, number in told if code in BESIDES)


def _readable(resource: str, value: str) -> str:
    in_bytes = resource == "memory" or resource.startswith("hugepages-")
    return in_one_unit({resource: value})[resource] if in_bytes else value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(item)}" for key, item in sorted(value.items()))
    if isinstance(value, Iterable):
        return ", ".join(_shown(item) for item in value)
    return str(value)


_TOKEN: Final = re.compile(r"\{\{|\}\}|\{(\w+)\}|<(\w+)>|\[|\]|\|\|")
_VERBS: Final = {"has": ("has", "have"), "is": ("is", "are"), "does": ("does", "do"), "was": ("was", "were")}
# A part is literal text, a datum, a verb, or a list of alternatives, each a list of parts.
Part = tuple[str, Any]


@lru_cache(maxsize=512)
def _parsed(text: str) -> list[Part]:
    stack: list[list[list[Part]]] = [[[]]]
    position = 0
    for token in _TOKEN.finditer(text):
        if token.start() > position:
            stack[-1][-1].append(("text", text[position : token.start()]))
        position = token.end()
        _take(token, stack)
    stack[-1][-1].append(("text", text[position:]))
    return stack[0][0]


def _take(token: re.Match[str], stack: list[list[list[Part]]]) -> None:
    match token[0]:
        case "[":
            stack.append([[]])
        case "]":
            alternatives = stack.pop()
            stack[-1][-1].append(("either", alternatives))
        case "||":
            stack[-1].append([])
        case "{{" | "}}":
            stack[-1][-1].append(("text", token[0][0]))
        case _:
            stack[-1][-1].append(("datum", token[1]) if token[1] else ("verb", token[2]))


def _fill(text: str, data: Mapping[str, str], *, plural: bool) -> str:
    return _written(_parsed(text), data, plural) or ""


def _written(parts: Sequence[Part], data: Mapping[str, str], plural: bool) -> str | None:
    """The parts as text; None when a datum is missing."""
    made = []
    for kind, value in parts:
        if kind == "text":
            made.append(value)
        elif kind == "verb":
            made.append(_VERBS.get(value, (f"{value}s", value))[plural])
        elif kind == "either":
            made.append(next((t for t in (_written(option, data, plural) for option in value) if t is not None), ""))
        elif value in data:
            made.append(data[value])
        else:
            return None
    return "".join(made)


def data_keys(code: str) -> list[str]:
    """The data that a reason of this code may carry, in the order in which its texts use them."""
    text = CODES[code]
    keys: dict[str, None] = {}
    for part in (text.says, text.nodes, text.cure):
        _collect(_parsed(part), keys)
    return [key for key in keys if key not in _DERIVED]


def _collect(parts: Sequence[Part], keys: dict[str, None]) -> None:
    for kind, value in parts:
        if kind == "datum":
            keys[value] = None
        elif kind == "either":
            for option in value:
                _collect(option, keys)
