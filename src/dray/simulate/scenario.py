"""What is simulated: objects at the start, steps at later times, faults, and how long.

A scenario is one or more files of Kubernetes objects, of which any may be

- a ``Scenario`` (``dray.dev/v1alpha1``): ``until``, ``seed``, ``hardware``, ``heartbeat``, ``faults`` and ``steps``,
- a ``KubeSchedulerConfiguration``: how the scheduler is set up,
- anything else: created at time 0, in the order given.

Always true: what cannot be understood is refused with the file and the field, before anything runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from dray.api.durations import seconds
from dray.api.gates import Gates
from dray.api.kinds import NODES, Kind
from dray.explain.snapshot import documents, files_of
from dray.nodes.hardware import UnknownHardware, hardware
from dray.runtime.faults import EVERY, NONE, Faults
from dray.runtime.hand import is_named
from dray.runtime.local import Unappliable, served_kind
from dray.runtime.virtual import START
from dray.scheduling.config import EMBEDDED, Config
from dray.scheduling.configuration import ConfigError, parse

API_VERSION: Final = "dray.dev/v1alpha1"
HOSTS: Final = ("scheduler", "controllers", "nodes")
UNTIL: Final = 600.0
COUNT_MAX: Final = 100_000

Plain = dict[str, Any]
Time = str | int | float  # ``90s``, or seconds
Verb = Literal["apply", "delete", "patch", "crash", "drain"]


class ScenarioError(Exception):
    """The scenario is wrong: names file and field. Its author must act."""


class Action(msgspec.Struct, frozen=True):
    """One thing that a user does, or that happens to a host, at a time counted from the start."""

    at: float
    verb: Verb
    kind: Kind | None = None
    body: Plain = {}
    where: str = ""


class Scenario(msgspec.Struct):
    until: float
    seed: int
    actions: list[Action]
    faults: Faults
    config: Config
    gates: Gates
    heartbeat: float = 0.0  # how often nodes renew their leases; 0: never, and none is missed
    start: float = START
    """The time at which it begins."""


# ------------------------------------------------------------------------------------------------------------ the files


class _Crash(msgspec.Struct, forbid_unknown_fields=True):
    host: str
    down: Time = "1s"


class _Drain(msgspec.Struct, forbid_unknown_fields=True):
    node: str


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    at: Time
    apply: Plain | list[Plain] | None = None
    delete: Plain | list[Plain] | None = None
    patch: Plain | list[Plain] | None = None
    crash: _Crash | None = None
    drain: _Drain | None = None
    count: int = 1


# The faults that have a probability.
_CHANCES: Final = (
    "conflict", "lost_answer", "late_write", "failed_answer", "crossed_answer", "lost_watch", "crash_per_write",
)  # fmt: skip


class _Faults(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kind: str = ""
    event_delay: tuple[Time, Time] | None = None
    write_delay: tuple[Time, Time] | None = None
    gap: tuple[Time, Time] | None = None
    conflict: float = 0.0
    lost_answer: float = 0.0
    late_write: float = 0.0
    failed_answer: float = 0.0
    crossed_answer: float = 0.0
    lost_watch: float = 0.0
    crash_per_write: float = 0.0
    away: list[tuple[Time, Time]] = []
    until: Time = ""


class _Spec(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    until: Time = ""
    seed: int | None = None
    hardware: list[str] = []
    heartbeat: Time = ""
    faults: _Faults | str | None = None
    steps: list[_Step] = []
    feature_gates: dict[str, bool] = {}


def read(paths: Sequence[Path], *, seed: int | None = None, until: float | None = None) -> Scenario:
    """The scenario that the files make together; ``seed`` and ``until`` win over what they say."""
    placed = ((f"{file}: object {n}", each) for file in files_of(paths) for n, each in enumerate(documents(file), 1))
    return made_of(placed, seed=seed, until=until)


def made_of(placed: Iterable[tuple[str, Plain]], *, seed: int | None = None, until: float | None = None) -> Scenario:
    """The scenario of objects, each with where it is from."""
    found = Scenario(UNTIL, 0, [], NONE, EMBEDDED, Gates.dray())
    for where, document in placed:
        _add(found, document, where)
    if seed is not None:
        found.seed = seed
    if until is not None:
        found.until = until
    found.actions.sort(key=lambda action: action.at)
    return found


def _add(found: Scenario, document: Plain, where: str) -> None:
    match document.get("apiVersion"), document["kind"]:
        case (version, "Scenario") if version == API_VERSION:
            _add_spec(found, document, where)
        case (_, "KubeSchedulerConfiguration"):
            try:
                found.config = parse(document, found.gates)
            except ConfigError as error:
                raise ScenarioError(f"{where}: {error}") from error
        case _:
            found.actions.append(_apply(0.0, document, where))


def _add_spec(found: Scenario, document: Plain, where: str) -> None:
    try:
        spec = msgspec.convert(document.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: spec: {error}") from error
    found.until = _time(spec.until, f"{where}: spec.until") if spec.until else found.until
    found.heartbeat = _time(spec.heartbeat, f"{where}: spec.heartbeat") if spec.heartbeat else found.heartbeat
    found.seed = spec.seed if spec.seed is not None else found.seed
    found.gates = found.gates.updated(spec.feature_gates) if spec.feature_gates else found.gates
    found.faults = _faults(spec.faults, found.faults, where)
    try:
        made = hardware(spec.hardware)
    except UnknownHardware as error:
        raise ScenarioError(f"{where}: spec.hardware: {error}") from error
    found.actions += [_apply(0.0, each, f"{where}: spec.hardware") for each in (*made.objects, *made.nodes)]
    for number, step in enumerate(spec.steps):
        found.actions += _actions(step, f"{where}: spec.steps[{number}]")


def _actions(step: _Step, where: str) -> Iterator[Action]:
    at = _time(step.at, f"{where}.at")
    if not 1 <= step.count <= COUNT_MAX:
        raise ScenarioError(f"{where}.count: must be from 1 to {COUNT_MAX}")
    if step.crash is not None:
        if step.crash.host not in HOSTS:
            raise ScenarioError(f"{where}.crash.host: {step.crash.host!r} is not one of {', '.join(HOSTS)}")
        body = {"host": step.crash.host, "down": _time(step.crash.down, f"{where}.crash.down")}
        yield Action(at, "crash", body=body, where=where)
    if step.drain is not None:
        yield Action(at, "drain", NODES, {"metadata": {"name": step.drain.node}}, f"{where}.drain")
    for body in _many(step.apply):
        yield from (_apply(at, each, f"{where}.apply") for each in _counted(body, step.count))
    for body in _many(step.patch):
        yield from (_change(at, "patch", each, f"{where}.patch") for each in _counted(body, step.count))
    for body in _many(step.delete):
        yield from (_change(at, "delete", each, f"{where}.delete") for each in _counted(body, step.count))


def _many(given: Plain | list[Plain] | None) -> list[Plain]:
    return [] if given is None else given if isinstance(given, list) else [given]


def _counted(body: Plain, count: int) -> Iterator[Plain]:
    """The object ``count`` times, with ``-0``, ``-1`` … after its name."""
    if count == 1:
        yield body
        return
    if not isinstance(body.get("metadata"), dict):
        yield body  # what is wrong with it is told by whoever applies it
        return
    for number in range(count):
        made = copy.deepcopy(body)
        if name := made["metadata"].get("name"):
            made["metadata"]["name"] = f"{name}-{number}"
        yield made


def _apply(at: float, body: Plain, where: str) -> Action:
    return _change(at, "apply", body, where)


def _change(at: float, verb: Verb, body: Plain, where: str) -> Action:
    try:
        kind = served_kind(body)
    except Unappliable as error:
        raise ScenarioError(f"{where}: {error}") from error
    if not is_named(kind, body) or (verb != "apply" and not body["metadata"].get("name")):
        raise ScenarioError(f"{where}: {kind.kind} without metadata.name")
    return Action(at, verb, kind, body, where)


def _faults(given: _Faults | str | None, before: Faults, where: str) -> Faults:
    if given is None:
        return before
    if isinstance(given, str):
        given = _Faults(kind=given)
    if given.kind and given.kind not in EVERY:
        raise ScenarioError(f"{where}: spec.faults: unknown fault {given.kind!r}; known: {', '.join(EVERY)}")
    base = EVERY.get(given.kind, before)
    changed: Plain = {
        name: _range(value, where) for name in ("event_delay", "write_delay", "gap") if (value := getattr(given, name))
    }
    changed |= {name: value for name in _CHANCES if (value := getattr(given, name))}
    if given.away:
        changed["away"] = tuple(_range(span, where) for span in given.away)
    if given.until:
        changed["until"] = _time(given.until, f"{where}: spec.faults.until")
    return msgspec.structs.replace(base, **changed)


def _range(given: tuple[Time, Time], where: str) -> tuple[float, float]:
    return _time(given[0], f"{where}: spec.faults"), _time(given[1], f"{where}: spec.faults")


def _time(text: Time, where: str) -> float:
    try:
        return seconds(str(text))
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error
