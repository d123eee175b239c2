"""``dray numa``: the kubelet's Topology Manager alone, JSON lines in, one JSON line out for each, in the same order.

A line that cannot be answered is answered with what is wrong with it, and the rest still run. The shape of lines and answers is
a fixed contract (docs/numa.md); the same lines give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

import click
import msgspec

from dray.api.core import Pod, QuantityValue
from dray.api.digits import whole
from dray.api.meta import DecodeError, decode
from dray.api.quantity import QuantityError
from dray.api.topology import POLICIES, NodeResourceTopology
from dray.api.words import as_json
from dray.cli.lines import LINE_MAX, answer_lines, unreadable
from dray.numa.available import reconstructed
from dray.numa.demand import demand, is_memory
from dray.numa.evaluate import Evaluators, Verdict, reason
from dray.numa.hints import Hint, TooManyHints, merge
from dray.numa.layout import Layout, Settings, State, amount, layout_of, published_state, spelt
from dray.numa.masks import UNKNOWN_DISTANCE, bits
from dray.numa.placement import Groups, Placement
from dray.numa.tally import Usage

ZONE_MAX: Final = 1024
# Policies of a kubelet's managers of CPUs and of memory, however they are written.
_MANAGERS: Final = ("none", "static")
Json = dict[str, Any]


class Invalid(ValueError):
    """The line is not of the form that this command answers."""


@click.group()
def numa() -> None:
    """Check what a kubelet's Topology Manager would decide, without a kubelet.

    \b
    Examples:
      dray numa check questions.jsonl
      echo '{"topology": {...}, "pod": {...}}' | dray numa check
    """


@numa.command()
@click.argument("file", type=click.File("rb"), default="-")
def check(file: BinaryIO) -> None:
    """Check whether the kubelet admits a pod, and in which zones.

    FILE contains JSON questions, one per line or pretty-printed; - reads standard input.
    A question has a NodeResourceTopology and a Pod, and
    optionally "placed" (what the pods on the node use, by zone; what is free is computed from it), "ignore" (resources that are
    not aligned) and "kubelet" (its settings). Exit code 2 when a line is not JSON or not a valid question.

    \b
    Examples:
      dray numa check questions.jsonl
      jq -c . question.json | dray numa check -

    \b
    A line and its answer:
      {"id": "a", "topology": {...}, "pod": {...}, "placed": [{"0": {"cpu": "4"}}], "ignore": ["memory"]}
      {"id": "a", "handled": true, "admit": true, "placement": {"1": {"cpu": "4"}}, "span": 1}
    """
    evaluators = Evaluators()
    _answer_all(file, lambda text: _checked(text, evaluators))


@numa.command("merge")
@click.argument("file", type=click.File("rb"), default="-")
def merge_command(file: BinaryIO) -> None:
    """Merge topology hints as a kubelet does.

    FILE contains JSON questions, one per line or pretty-printed; - reads standard input.
    Exit code 2 when a line is not JSON or not a valid question.

    \b
    Example:
      dray numa merge hints.jsonl

    \b
    A line and its answer:
      {"id": "z", "policy": "restricted", "numaNodes": [0, 1],
       "providersHints": [null, {"cpu": [{"numaNodes": [0], "preferred": true}]}]}    (on one line)
      {"id": "z", "hint": {"numaNodes": [0], "preferred": true}, "admit": true}
    """
    _answer_all(file, _merged)


def _answer_all(file: BinaryIO, answer: Callable[[bytes], Json]) -> None:
    def of_line(text: bytes) -> tuple[Json, bool]:
        try:
            if len(text) > LINE_MAX:
                raise Invalid(f"the line is longer than {LINE_MAX} bytes; split it")
            return answer(text), True
        except RecursionError:
            return {"id": _id(text), "invalid": ["nested too deeply"]}, False
        except (Invalid, DecodeError, QuantityError, TooManyHints, msgspec.DecodeError, UnicodeDecodeError) as error:
            return {"id": _id(text), "invalid": [unreadable(error)]}, False

    sys.exit(0 if answer_lines(file, of_line) else 2)


def _id(text: bytes) -> Any:
    """The line's id, so that its owner finds the answer; nothing where the line is too broken to say."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.get("id") if isinstance(found, dict) else None


# ------------------------------------------------------------------------------------------------------------------ check


class CheckLine(msgspec.Struct, rename="camel"):
    topology: msgspec.Raw
    pod: msgspec.Raw
    id: Any = None
    placed: list[dict[str, dict[str, QuantityValue]]] | None = None
    ignore: list[str] = []
    kubelet: Settings = Settings()


def _checked(text: bytes, evaluators: Evaluators) -> Json:
    line = msgspec.json.decode(text, type=CheckLine)
    _refuse_unknown_policies(line.kubelet)
    topology, pod = decode(NodeResourceTopology, line.topology), decode(Pod, line.pod)
    layout = layout_of(topology, line.kubelet, line.ignore)
    asked = evaluators.demands(demand(pod))
    if layout is None:
        warnings = [*topology.not_understood, "no NUMA zones"]
        return {"id": line.id, "handled": False, "admit": True, "placement": None, "span": 0, "warnings": warnings}
    layout = evaluators.layouts(layout)
    found = published_state(layout, topology) if line.placed is None else reconstructed(layout, _usages(line.placed, layout))
    state = evaluators.states(found)
    verdict = evaluators.admit(state, asked)
    answer = {"id": line.id, **_told(verdict, state, topology.metadata.name)}
    if layout.policy == "best-effort" and (expected := evaluators.predict(state, asked)).placement:
        masks = [list(layout.named(mask)) for mask in expected.masks]
        answer["predicted"] = {"placement": _by_label(expected.placement, layout), "masks": masks, "aligned": expected.admit}
    if warnings := topology.not_understood + _warnings(verdict, layout, line.kubelet):
        answer["warnings"] = warnings
    return answer


def _refuse_unknown_policies(kubelet: Settings) -> None:
    """A policy that no kubelet has would count as one that aligns."""
    said = {"cpuManagerPolicy": kubelet.cpu_manager_policy, "memoryManagerPolicy": kubelet.memory_manager_policy}
    for name, policy in said.items():
        if policy is not None and policy.lower() not in _MANAGERS:
            raise Invalid(f"kubelet.{name}: {policy!r} is not one of {', '.join(_MANAGERS)}")


def _told(verdict: Verdict, state: State, node: str) -> Json:
    told: Json = {"handled": verdict.handled, "admit": verdict.admit, "placement": None, "span": verdict.span}
    refused = reason(verdict, state, node)
    if refused is not None:
        told["reason"] = as_json(refused)
    elif verdict.handled:
        told["placement"] = _by_label(_without(verdict.placement, verdict.idle), state.layout)
        told["masks"] = [list(state.layout.named(mask)) for mask in verdict.masks]
        if verdict.idle:
            told["held"] = _by_label(verdict.placement, state.layout)
        if verdict.peak != verdict.placement or verdict.idle:
            told["peak"] = _by_label(verdict.peak, state.layout)
    return told


def _without(placed: Placement, idle: Placement) -> Placement:
    """What containers use that run on, of what the pod keeps."""
    left = {place: dict(amounts) for place, amounts in placed}
    for place, amounts in idle:
        for name, value in amounts:
            left[place][name] -= value
    used = ((place, tuple((name, value) for name, value in amounts.items() if value)) for place, amounts in left.items())
    return tuple((place, amounts) for place, amounts in used if amounts)


def _by_label(placed: Placement, layout: Layout) -> Json:
    return {layout.labels[place]: {name: spelt(name, value) for name, value in amounts} for place, amounts in placed}


def _warnings(verdict: Verdict, layout: Layout, kubelet: Settings) -> list[str]:
    found = [f"the zones do not report {name}: taken as not aligned" for name in verdict.unknown]
    limit = kubelet.max_numa_nodes
    if limit is not None and len(layout.zones) > limit and layout.policy != "none":
        found.append(f"a kubelet that allows {limit} NUMA nodes does not start on {len(layout.zones)}")
    return found


def _usages(placed: list[dict[str, dict[str, QuantityValue]]], layout: Layout) -> list[Usage]:
    found = [_placement(f"placed[{number}]", of_pod, layout) for number, of_pod in enumerate(placed)]
    left = reconstructed(layout, [Usage(each) for each in found])
    return [Usage(each, _groups(each, left)) for each in found]


def _placement(path: str, of_pod: dict[str, dict[str, QuantityValue]], layout: Layout) -> Placement:
    found: dict[int, dict[str, int]] = {}
    for zone, amounts in of_pod.items():
        names = layout.labels if zone in layout.labels else layout.zones
        if zone not in names:
            raise Invalid(f"{path}: zone {zone!r} is not one of the topology's ({', '.join(layout.labels[:16])})")
        here = found[names.index(zone)] = {name: amount(name, value) for name, value in amounts.items()}
        if negative := [name for name, value in here.items() if value < 0]:
            raise Invalid(f"{path}: zone {zone!r}: {negative[0]} is negative")
    return tuple((place, tuple(sorted(found[place].items()))) for place in sorted(found))


def _groups(placed: Placement, left: State) -> Groups:
    """The set of zones that a pod's memory came from together, where it must have. A pod that was aligned as a whole has all its
    memory from one set. Of containers that were aligned one by one only this is known: memory of a set is drawn from its lowest
    zones first, so where one of these has some left of what a later one gave too, each zone served a container of its own."""
    index = {name: row for row, name in enumerate(left.layout.resources)}
    parts = [(place, {index[n] for n, value in amounts if is_memory(n) and value and n in index}) for place, amounts in placed]
    parts = [(place, rows) for place, rows in parts if rows]
    if len(parts) < 2:
        return ()
    drained, later = True, set[int]()
    for place, rows in reversed(parts):
        drained = drained and all(left.free[row][place] == 0 for row in rows & later)
        later |= rows
    if left.layout.scope == "pod" or (drained and left.layout.policy != "single-numa-node"):
        return ((sum(1 << place for place, _ in parts), ()),)
    return ()


# ------------------------------------------------------------------------------------------------------------------ merge


class HintLine(msgspec.Struct, rename="camel"):
    numa_nodes: list[int] | None = None
    preferred: bool = False


class MergeLine(msgspec.Struct, rename="camel"):
    policy: str
    id: Any = None
    prefer_closest: bool = msgspec.field(default=False, name="preferClosestNUMA")
    numa_nodes: list[int] | None = None
    numa_distances: dict[str, list[int]] | None = None
    providers_hints: list[dict[str, list[HintLine] | None] | None] | None = None


def _merged(text: bytes) -> Json:
    line = msgspec.json.decode(text, type=MergeLine)
    policy = POLICIES.get(line.policy)
    if policy is None:
        raise Invalid(f"policy: {line.policy!r} is not one of {', '.join(POLICIES)}")
    zones = _mask(line.numa_nodes or [], "numaNodes")
    provided = [
        None if hints is None else {name: None if of is None else [_hint(h) for h in of] for name, of in hints.items()}
        for hints in line.providers_hints or ()
    ]
    hint, admit = merge(policy, zones, provided, _distances(line, zones) if line.prefer_closest else None)
    numbers = None if hint.mask is None else list(bits(hint.mask))
    return {"id": line.id, "hint": {"numaNodes": numbers, "preferred": hint.preferred}, "admit": admit}


def _hint(line: HintLine) -> Hint:
    return Hint(None if line.numa_nodes is None else _mask(line.numa_nodes, "providersHints: numaNodes"), line.preferred)


def _mask(numbers: list[int], path: str) -> int:
    mask = 0
    for number in numbers:
        if not 0 <= number < ZONE_MAX:
            raise Invalid(f"{path}: {number} is not between 0 and {ZONE_MAX - 1}")
        mask |= 1 << number
    return mask


def _distances(line: MergeLine, zones: int) -> list[list[int]]:
    """By number of zone. A kubelet looks into a row by number; rows that are too short for that list the zones in order."""
    present = bits(zones)
    rows = {whole(zone): row for zone, row in (line.numa_distances or {}).items()}
    size = zones.bit_length()
    table = [[UNKNOWN_DISTANCE] * size for _ in range(size)]
    for one in present:
        row = rows.get(one, [])
        for position, other in enumerate(present):
            index = other if len(row) >= size else position
            if index < len(row):
                table[one][other] = row[index]
    return table
