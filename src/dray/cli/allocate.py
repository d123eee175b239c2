"""``dray allocate``: the allocator alone, JSON lines in, one JSON line out for each, in the same order.

A line that cannot be answered is answered with what is wrong with it and the rest still run. The shape of lines and answers is
a fixed contract (docs/allocate.md); the same lines give the same bytes, apart from the time that a batch took.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click
import msgspec

from dray.api import kinds
from dray.api.core import Node
from dray.api.defaults import apply_defaults
from dray.api.gates import GateError, Gates
from dray.api.kinds import Kind
from dray.api.meta import DecodeError, Object, decode, without_nulls
from dray.api.reason import Reason
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.validation import validate_create
from dray.api.words import Counted, as_json, message
from dray.cli.lines import LINE_MAX, answer_lines, unreadable
from dray.cli.output import output_option
from dray.devices import Devices, RequestFinding, Verdict

# Of a pod that fits on no node of a batch, so many states of nodes are looked into; the others are counted.
STATES_TOLD: Final = 8
# Objects are defaulted at one fixed moment: no answer depends on it.
_THEN: Final = 0.0

Json = dict[str, Any]
T = TypeVar("T", bound=Object)


class Line(msgspec.Struct, rename="camel"):
    """One question. Objects stay undecoded until it is known what kind of line it is."""

    id: Any = None
    features: dict[str, bool] = {}
    node: msgspec.Raw = msgspec.Raw()
    nodes: list[msgspec.Raw] | None = None
    classes: list[msgspec.Raw] | None = None
    slices: list[msgspec.Raw] | None = None
    taint_rules: list[msgspec.Raw] | None = None
    allocated_claims: list[msgspec.Raw] | None = None
    claims: list[msgspec.Raw] | None = None
    pods: list[list[msgspec.Raw]] | None = None
    raw: bool = False
    validate: bool = False
    rotate: bool = False
    upstream_order: bool = False


_KEYS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Line))


class Invalid(ValueError):
    """The line is not of the form that this command answers. ``problems`` says what is wrong, one entry each."""

    def __init__(self, *problems: str, answered: bool = False) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        # True when the line itself is fine and its objects are what is wrong: that is an answer.
        self.answered = answered


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "-f",
    "--filename",
    "manifests",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Manifests (YAML, JSON or a directory) instead of FILE. Repeatable.",
)
@output_option
def allocate(file: BinaryIO, manifests: tuple[Path, ...], output: str) -> None:
    """Run only the device allocator: which devices would these claims get on this node, or why none?

    With -f, plain manifests: ResourceSlices, DeviceClasses, ResourceClaims or templates, DeviceTaintRules, Pods and Nodes
    (without Nodes, the nodes that the slices name). Exit code 1 when a claim gets no devices, 2 when a manifest is invalid.

    Otherwise FILE contains JSON questions, one per line or pretty-printed; - reads standard input. Each question has a node (or
    nodes), device classes, resource slices, allocated claims and the claims of one pod (or of many), and is answered with one
    line. Exit code 2 when a line is not JSON or not a valid question; the others are still answered.

    \b
    Examples:
      dray allocate -f slices.yaml -f claim.yaml
      dray allocate questions.jsonl
      jq . question.json | dray allocate -

    \b
    A line:
      {"node": {"metadata": {"name": "n1"}}, "classes": [...], "slices": [...], "claims": [...]}
    """
    if manifests:
        from dray.cli.allocate_manifests import answer_manifests

        sys.exit(answer_manifests(manifests, output))
    sys.exit(0 if answer_lines(file, _answer) else 2)


def _answer(text: bytes) -> tuple[Json, bool]:
    """The answer, and whether the line could be answered."""
    identity: Any = None
    try:
        if len(text) > LINE_MAX:
            raise Invalid(f"the line is longer than {LINE_MAX} bytes; split it")
        line = _parse(text)
        identity = line.id
        answer = _run(line)
        if unknown := _unknown(text):
            answer["unknown"] = unknown
    except (Invalid, GateError, DecodeError) as error:
        problems = list(error.problems) if isinstance(error, Invalid) else [str(error)]
        answer = {"ok": False, "invalid": problems}
        return _named(identity, answer), isinstance(error, Invalid) and error.answered
    except RecursionError:
        return _named(identity, {"ok": False, "invalid": ["an object is nested too deeply"]}), False
    return _named(identity, answer), True


def _unknown(text: bytes) -> list[str]:
    """Keys that no question has: most likely somebody meant another one."""
    return sorted(msgspec.json.decode(text, type=dict[str, msgspec.Raw]).keys() - _KEYS)


def _named(identity: Any, answer: Json) -> Json:
    return answer if identity is None else {"id": identity, **answer}


def _parse(text: bytes) -> Line:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(unreadable(error)) from None
    except RecursionError:
        raise Invalid("the line is nested too deeply") from None


def _decode(text: bytes) -> Line:
    try:
        return msgspec.json.decode(text, type=Line)
    except msgspec.ValidationError as error:
        return _parse_without_nulls(text, error)


def _parse_without_nulls(text: bytes, error: msgspec.ValidationError) -> Line:
    """``null`` counts as absent, as it does for Go."""
    plain = msgspec.json.decode(text)
    if not isinstance(plain, dict):
        raise Invalid(f"not a JSON object: {error}")
    kept = {key: value for key, value in plain.items() if value is not None}
    try:
        return msgspec.json.decode(msgspec.json.encode(kept), type=Line)
    except msgspec.ValidationError as again:
        raise Invalid(str(again)) from None


# ----------------------------------------------------------------------------------------------------------- one line


class Session:
    """The objects of one line, in an engine of their own."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.gates = Gates.dray().updated(line.features)
        shares = itertools.count(1)
        self.engine = Devices(
            self.gates, new_share=lambda: f"00000000-0000-4000-8000-{next(shares):012d}", by_pool=line.upstream_order
        )
        self.problems: list[str] = []
        self._load()

    def _load(self) -> None:
        line, engine = self.line, self.engine
        self._each(kinds.DEVICE_CLASSES, DeviceClass, line.classes, engine.put_class)
        numbers = itertools.count()
        self._each(kinds.RESOURCE_SLICES, ResourceSlice, line.slices, lambda slice: engine.put_slice(slice, f"{next(numbers)}"))
        self._each(kinds.DEVICE_TAINT_RULES, DeviceTaintRule, line.taint_rules, engine.put_rule)
        for text in line.allocated_claims or ():
            self._charge(decode(ResourceClaim, text))

    def _charge(self, claim: ResourceClaim) -> None:
        if not claim.metadata.uid:
            claim.metadata.uid = f"allocated/{claim.key}"
        if self.engine.ledger.entry(claim.uid) is not None:
            claim.metadata.uid += "/again"
        self.engine.put_claim(claim)

    def _each(self, kind: Kind, type: type[T], raw: list[msgspec.Raw] | None, put: Callable[[T], None]) -> None:
        for text in raw or ():
            put(self.object(kind, type, text))

    def object(self, kind: Kind, type: type[T], text: msgspec.Raw) -> T:
        """One object, with API defaults, and with its problems noted where the line asks for validation."""
        # Only claims have defaults that matter here; the rest is decoded without a detour.
        if not self.line.validate and (self.line.raw or kind is not kinds.RESOURCE_CLAIMS):
            return decode(type, text)
        # Decoding first: it says in words which field has the wrong type, and defaults can rely on the rest.
        decode(type, text)
        plain: Json = without_nulls(msgspec.json.decode(text))
        if self.line.validate:
            plain = self._typed(kind, plain)
        if not self.line.raw:
            apply_defaults(kind.plural, plain, _THEN)
        if self.line.validate:
            self.problems.extend(f"{error.path}: {error.words}" for error in validate_create(kind.plural, plain, self.gates))
        return decode(type, plain)

    def _typed(self, kind: Kind, plain: Json) -> Json:
        """The object as an API server would read it; a field of the wrong type ends validation there."""
        from dray.apiserver.schema import WRONG_TYPE, load

        made, problems = load().normalise(kind, plain)
        wrong = [f"{problem.path}: {problem.message}" for problem in problems if problem.category == WRONG_TYPE]
        if wrong:
            raise Invalid(*self.problems, *wrong, answered=True)
        return made

    def node(self, text: msgspec.Raw) -> str:
        node = decode(Node, text)
        if not node.metadata.name:
            raise Invalid("node: metadata.name: required")
        self.engine.put_node(node)
        return node.metadata.name

    def claims(self, texts: list[msgspec.Raw]) -> list[ResourceClaim]:
        claims = [self.object(kinds.RESOURCE_CLAIMS, ResourceClaim, text) for text in texts]
        for number, claim in enumerate(claims):
            if not claim.metadata.uid:
                claim.metadata.uid = f"claim/{claim.key}/{number}"
        return claims

    def check(self) -> None:
        if self.problems:
            raise Invalid(*self.problems, answered=True)

    def told(self, node: str, claims: list[ResourceClaim], verdict: Verdict) -> Json:
        if verdict.ok:
            return {"ok": True, "results": verdict.results, "steps": verdict.steps}
        answer: Json = {"ok": False}
        if verdict.error:
            answer["error"] = verdict.error
        if verdict.node_error:
            answer["nodeError"] = True
        answer["reasons"] = [as_json(reason) for reason in verdict.reasons]
        if not verdict.error and node:
            found = self.engine.explain(node, claims)
            answer["reasons"] = [as_json(reason) for reason in found.reasons]
            answer["requests"] = [_request(finding) for finding in found.requests]
            answer["changes"] = found.changes
        answer["steps"] = verdict.steps
        return answer


def _request(finding: RequestFinding) -> Json:
    """One request in words and numbers; a device without a reason can be used."""
    devices = [
        {"device": each.device} if each.reason is None else {"device": each.device, "reason": as_json(each.reason)}
        for each in finding.devices
    ]
    return {**msgspec.to_builtins(finding), "devices": devices}


def _run(line: Line) -> Json:
    session = Session(line)
    if line.pods is not None:
        return _batch(session, line)
    if line.claims is None:
        raise Invalid('the line has neither "claims" nor "pods"')
    if not line.node and not line.nodes:
        raise Invalid('the line has neither "node" nor "nodes"')
    nodes = [session.node(text) for text in ([line.node] if line.node else line.nodes or ())]
    claims = session.claims(line.claims)
    session.check()
    answers = [session.told(node, claims, session.engine.allocate(node, claims)) for node in nodes]
    if line.node:
        return answers[0]
    return {"perNode": [{"node": node, **answer} for node, answer in zip(nodes, answers)]}


# What a pod asks for, and the names of its claims, which reasons mention.
Asked = tuple[object, ...]


class Refusals:
    """Why pods of a batch fit on no node: nodes in one state say the same, so one of each is asked."""

    def __init__(self, session: Session, nodes: list[str]) -> None:
        self._session, self._nodes = session, nodes
        self._told: dict[Asked, Json] = {}
        self._placed = 0
        # By what is asked and state: the node that was asked, and what it said.
        self._known: dict[tuple[Asked, int], tuple[str, tuple[Reason, ...]]] = {}

    def told(self, claims: list[ResourceClaim], verdict: Verdict, placed: int) -> Json:
        """``placed``: how many pods were, before this one. Until that changes, equal pods get equal answers."""
        answer = self._session.told("", claims, verdict)
        if verdict.error:
            return answer
        if placed != self._placed:
            self._told.clear()
            self._placed = placed
        asked = (self._session.engine.compiler.demand(tuple(claims)), *(claim.key for claim in claims))
        if asked not in self._told:
            self._told[asked] = self._summary(asked, claims)
        return {**answer, **self._told[asked]}

    def _summary(self, asked: Asked, claims: list[ResourceClaim]) -> Json:
        if not self._nodes:
            return {"reasons": [as_json(Reason("NoNodes", ""))]}
        groups = sorted(self._states().items(), key=lambda group: -len(group[1]))
        counts: list[Counted] = []
        for state, names in groups[:STATES_TOLD]:
            counts += [(reason, len(names)) for reason in self._reasons(asked, claims, state, names)]
        untold = sum(len(names) for _, names in groups[STATES_TOLD:])
        if untold:
            counts.append((Reason("NotEnoughDevices", ""), untold))
        return {"reasons": [as_json(reason) for reason, _ in counts], "summary": message(counts, len(self._nodes))}

    def _reasons(self, asked: Asked, claims: list[ResourceClaim], state: int, names: list[str]) -> tuple[Reason, ...]:
        node, reasons = self._known.get((asked, state), ("", ()))
        # A node that has changed since is not named for what it was.
        if node not in names:
            node, reasons = names[0], self._session.engine.explain(names[0], claims).reasons
            self._known[asked, state] = (node, reasons)
        return reasons

    def _states(self) -> dict[int, list[str]]:
        inventory = self._session.engine.inventory
        states: dict[int, list[str]] = {}
        for name in self._nodes:
            view = inventory.view(name)
            if view is not None:
                states.setdefault(inventory.state(view), []).append(name)
        return states


def _batch(session: Session, line: Line) -> Json:
    """Pods one after another; each allocation is carried on to the next."""
    nodes = [session.node(text) for text in line.nodes or ()]
    pods = [session.claims(texts) for texts in line.pods or ()]
    session.check()
    for number, claims in enumerate(pods):
        for claim in claims:
            # Pods of one template come with equal names; each still has claims of its own.
            claim.metadata.uid = f"{claim.metadata.uid}/{number}"
    answers: list[Json] = []
    start = 0
    session.engine.prepare()
    # What was read stays: without this the collector would walk all of it again and again.
    gc.freeze()
    began = time.perf_counter_ns()
    index = {name: number for number, name in enumerate(nodes)}
    refusals = Refusals(session, nodes)
    scheduled = 0
    for claims in pods:
        node, verdict = session.engine.first_fit(nodes, claims, start)
        if verdict.ok:
            for claim, result in zip(claims, verdict.results):
                session.engine.hold(claim, result)
            scheduled += 1
            answers.append({"node": node, "ok": True, "results": verdict.results})
            if line.rotate:
                start = (index[node] + 1) % len(nodes)
        else:
            answers.append(refusals.told(claims, verdict, scheduled))
    micros = (time.perf_counter_ns() - began) // 1000
    return {"pods": answers, "scheduled": scheduled, "unschedulable": len(answers) - scheduled, "micros": micros}
