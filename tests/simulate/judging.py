"""What must be true of any scenario, whatever happened in it.

While it runs: every rule of ``dray verify``, and of every decision those of ``judging_placements``,
``judging_takings``, ``judging_starts`` and ``judging_admissions``. At the quiet end, looked at
several times so that what is merely under way at one instant is not held against anybody: no pod waits that would fit; every
waiting pod has a reason that the API shows and that is still so; nothing that is bound fails to start, nothing that is deleted
stays, nothing is left over; ``dray queues`` says of queues what their status says; no pod was placed only because the sweep
tried it again. What nobody can help where people edit claims is in ``judging_hands``.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from dray.api.consumers import claims_of
from dray.api.core import Condition, Pod
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS
from dray.api.words import UPSTREAM
from dray.cluster.metrics import Recorder
from dray.cluster.world import World
from dray.explain.verify import verify
from dray.explain.why import Why
from dray.nodes.fabric import HOW, PERCENT
from dray.nodes.faults import FAULT, SIMULATED
from dray.nodes.hardware import hardware
from dray.simulate.run import Simulation
from dray.simulate.scenario import made_of
from tests.simulate.judging_admissions import Admissions, foreseeable
from tests.simulate.judging_evictions import Evictions, partial_gangs
from tests.simulate.judging_hands import NEVER_STARTS, Hands, Observed
from tests.simulate.judging_placements import Placements
from tests.simulate.judging_queues import Queues
from tests.simulate.judging_starts import Starts
from tests.simulate.judging_takings import Takings
from tests.simulate.random_scenarios import BINDING_TIMEOUT, Document
from tests.simulate.settled import Settled

# How long after the end it is looked at again; longer than a pod backs off, and at no even distance.
AGAIN: Final = (17.0, 41.0, 74.0, 112.0)
CHECK_EVERY: Final = 0.5
# Longer than any pod backs off whose devices failed, and has its next attempt.
BACKS_OFF: Final = 15.0
# After the last thing that happens: by then faults are over too, and what they led to.
LATE: Final = 120.0
# How nodes are refused, in the order of the checks; devices and other pods come after all of these.
_CHECKS: Final = (
    "an already allocated claim", "is cordoned", "taint", "node selector or affinity", "host port", "not enough cpu",
    "not enough memory",
)  # fmt: skip
# Said of nodes of which it is not looked into what they lack.
_LACKING: Final = "has not enough devices"
# Found only where each request alone could have its devices.
_TOGETHER: Final = "no combination that satisfies"
# Between what is said of some nodes, of others, of the pod, and of what it belongs to; what is said may have commas of its own.
_NEXT: Final = re.compile(r", (?=\d+ nodes? |and \d+ more reasons?$|(?:it|pod|podgroup|job|queue) )")
# What only the scheduler knows: how often devices failed a pod for which others had left.
_PAUSED: Final = re.compile(r", (?:pod \S+|it) evicts nobody before [^,]*: [^,]*, \d+ times?")
# How the last attempt ended is so whatever is found out since, until the next one.
_OF_THE_LAST_ATTEMPT: Final = ("could not be bound to node", "did not become ready within")
_NUMBER: Final = re.compile(r"(?<!\S)\d+(?:\.\d+)?(?:m|[kMGTPE]i?)?(?![\w/])")  # not of a name or a port
_SECONDS_TO_ATTACH: Final = re.compile(r'"fabric\.dray\.dev/attach-seconds": "(\d+)s"')
_SINGULAR: Final = {"have": "has", "are": "is", "do": "does", "require": "requires"}


class Failure(msgspec.Struct, frozen=True, order=True):
    """``kind`` is the same for failures of one sort; ``about`` names the objects."""

    kind: str
    about: str
    detail: str

    def __str__(self) -> str:
        return f"{self.about}: {self.detail}"


class Outcome(msgspec.Struct):
    failures: list[Failure]
    digest: str = ""

    @property
    def kinds(self) -> list[str]:
        return sorted({failure.kind for failure in self.failures})


def judge(documents: list[Document], *, seed: int | None = None) -> Outcome:
    """Run the scenario and say what is wrong with it."""
    try:
        return _judged(documents, seed)
    except Exception as error:  # whatever goes wrong inside is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return Outcome([Failure(f"exception {type(error).__name__}", where, repr(error))])


def _judged(documents: list[Document], seed: int | None) -> Outcome:
    scenario = made_of(((f"object {number}", each) for number, each in enumerate(documents, 1)), seed=seed)
    meter = Recorder()
    simulation = Observed(scenario, meter, CHECK_EVERY)
    hands = Hands(simulation)
    evictions = Evictions(simulation, quiet_from=max((action.at for action in scenario.actions), default=0.0) + LATE)
    settled = Settled(simulation, scenario.faults)
    queues = Queues(simulation, settled)
    crashes = [action.at for action in scenario.actions if action.verb == "crash" and action.body["host"] == "scheduler"]
    decisions = (
        Placements(simulation, settled),
        Takings(simulation, settled, queues),
        Starts(simulation, settled, crashes),
        Admissions(simulation, settled, foreseeable(documents) and not any(map(_overfills, documents))),
    )
    simulation.run(scenario.until)
    wrong = set(_wrong_now(simulation, queues))
    for wait in AGAIN if wrong else ():
        simulation.run(scenario.until + wait)
        wrong &= set(_wrong_now(simulation, queues, {failure.about for failure in wrong}))
    excused = {"node-resources"} if any(map(_overfills, documents)) else set()
    unplugged = {name for document in documents for name in _unplugs(document)}
    failures = [
        Failure(found["rule"], " ".join(found["objects"]), f"{found['detail']} at {found['at']:g} s")
        for found in simulation.invariants.violated
        if found["rule"] not in excused
        and not (found["rule"] == "counters" and unplugged & {each.rpartition("/")[2] for each in found["objects"]})
        and not hands.excuses(found["rule"], found["objects"], found["at"])
    ]
    failures += sorted(each for each in wrong if not hands.excuses(each.kind, (each.about,), simulation.elapsed))
    failures += [Failure(*found) for judged in decisions for found in judged.wrong]
    failures += _of_evictions(documents, evictions, simulation.world())
    missed = meter.counters.get(("dray_missed_wakeups_total", ()), 0)
    if missed:
        failures.append(Failure("missed wake-up", "scheduler", f"{missed} pods were placed by the sweep"))
    return Outcome(failures, simulation.digest)


def _of_evictions(documents: list[Document], evictions: Evictions, world: World) -> Iterator[Failure]:
    if not any(map(fails, documents)):  # whom devices fail others have left for in vain
        yield from (Failure("evicted in vain", about, detail) for about, detail in evictions.in_vain(world))
    yield from (Failure("evict in turn", about, detail) for about, detail in evictions.in_turn())


def fails(document: Document) -> bool:
    """Whether some device is never ready: it fails, for all claims or for some, is silent, or slower than schedulers wait."""
    drawn = document["spec"].get("hardware", ()) if document["kind"] == "Scenario" else ()
    text = json.dumps([document, *hardware(drawn).objects])
    slow = (int(seconds) >= BINDING_TIMEOUT for seconds in _SECONDS_TO_ATTACH.findall(text))
    return f'"{HOW}": ' in text or f'"{PERCENT}": ' in text or any(slow)


def _overfills(document: Document) -> bool:
    """Whether somebody puts more on a node than it has: binds pods by hand, or makes the node smaller."""
    steps = document["spec"].get("steps", ()) if document["kind"] == "Scenario" else ()
    by_hand = (step["apply"]["spec"].get("nodeName") for step in steps if step.get("apply", {}).get("kind") == "Pod")
    smaller = ("allocatable" in step["patch"].get("status", {}) for step in steps if "patch" in step)
    return any(by_hand) or any(smaller)


def _unplugs(document: Document) -> Iterator[str]:
    """Devices that somebody unplugs, in use or not: until they are back nobody can know what they draw from counters."""
    for step in document["spec"].get("steps", ()) if document["kind"] == "Scenario" else ():
        faults = step.get("patch", {}).get("metadata", {}).get("annotations") or {}
        yield from (name.removeprefix(FAULT) for name, said in faults.items() if said == "unplugged")


def _wrong_now(simulation: Simulation, queues: Queues, only: set[str] | None = None) -> Iterator[Failure]:
    """What is wrong at this instant; ``only`` about these objects, since asking about all takes its time."""
    world = simulation.world()
    failures = simulation.failures()
    outlooks = simulation.outlooks(world, failures)
    for pod in world.all(PODS).values():
        if only is None or _of(pod) in only:
            yield from _pod(simulation, world, pod, lambda pod: simulation.why(world, pod, failures, outlooks))
    for found in verify(world).leftovers:
        if not found.rule.endswith("-vanished"):  # that is the driver's doing
            yield Failure(f"left over: {found.rule}", " ".join(found.objects), found.detail)
    for about, detail in partial_gangs(world):
        yield Failure("runs in part", about, detail)
    for about, detail in queues.beyond():
        yield Failure("beyond its limit", about, detail)
    for about, detail in queues.told_otherwise():
        yield Failure("queues disagree", about, detail)
    tries = {each.uid for each in failures if each.at is not None and each.at + BACKS_OFF > simulation.clock.now}
    held_up = {key for pod in world.all(PODS).values() if _keeps(pod, tries) for key in claims_of(pod)}
    for claim in world.all(RESOURCE_CLAIMS).values():
        owner = claim.metadata.controller
        if owner is not None and owner.kind == "Pod" and not _is_there(world, claim.metadata.namespace, owner.name, owner.uid):
            yield Failure("left over: claim", f"claim/{claim.key}", f"its pod {owner.name} is gone")
        elif claim.status.allocation is not None and not claim.status.reserved_for and claim.key not in held_up:
            yield Failure("left over: allocation", f"claim/{claim.key}", "has devices and nobody uses it")


def _keeps(pod: Pod, tries: set[str]) -> bool:
    """Whether the pod may keep devices while it waits: until its next attempt, after one for which others of them failed."""
    return _over_quota(_scheduled(pod)) or (pod.uid in tries and not pod.spec.node_name and not pod.terminal)


def _of(pod: Pod) -> str:
    return f"pod/{pod.key}"


def _pod(simulation: Simulation, world: World, pod: Pod, ask: Callable[[Pod], Why]) -> Iterator[Failure]:
    if pod.metadata.deletion_timestamp is not None:
        if not pod.spec.node_name or _tended(world, pod):
            yield Failure("never goes", _of(pod), "is deleted and stays")
    elif pod.spec.node_name:
        if pod.status.phase == "Pending" and _tended(world, pod) and not _excluded(simulation, pod):
            yield Failure(NEVER_STARTS, _of(pod), f"is bound to {pod.spec.node_name} and does not start")
    elif not pod.terminal:
        yield from _waiting(pod, ask(pod))


def _excluded(simulation: Simulation, pod: Pod) -> bool:
    """Whether the pod may wait for a driver: without compatibility groups schedulers give out what hardware cannot do."""
    return not simulation.gates("DRADeviceCompatibilityGroups") and bool(
        pod.spec.resource_claims or pod.status.extended_resource_claim_status
    )


def _tended(world: World, pod: Pod) -> bool:
    """Whether a kubelet looks after the pod."""
    node = world.get(NODES, pod.spec.node_name)
    return node is not None and node.metadata.labels.get(SIMULATED) == "true"


def _is_there(world: World, namespace: str, name: str, uid: str) -> bool:
    pod = world.get(PODS, f"{namespace}/{name}")
    return pod is not None and pod.uid == uid


def _waiting(pod: Pod, answer: Why) -> Iterator[Failure]:
    condition = _scheduled(pod)
    if answer.fits and not answer.reasons and not _over_quota(condition):
        rests = condition is not None and "at rest after a failure" in (condition.message or "")
        kind = "why disagrees about rests" if rests else "would fit"
        yield Failure(kind, _of(pod), f"waits although it fits on {', '.join(answer.fits)}")
    if condition is None or condition.status != "False" or not condition.message:
        yield Failure("no reason", _of(pod), "waits and its status does not say why")
    elif not answer.reasons and not answer.fits:
        yield Failure("no reason", _of(pod), "waits and `dray why` gives no reason")
    elif answer.verdict == "unschedulable" and (
        # Of a reason that is about the pod itself `dray why` says "it", but where it is about its gang, too.
        wrong := untrue(*(told.replace(f"pod {pod.key} ", "it ") for told in (condition.message, answer.summary)))
    ):
        yield Failure("wrong reason", _of(pod), f"is told what is not so: {wrong}")
    if answer.verdict == "unschedulable" and pod.status.nominated_node_name:
        yield Failure("nominated for nothing", _of(pod), f"is to go to {pod.status.nominated_node_name}, and fits nowhere")
    if condition is not None and more_than_all(told := condition.message or ""):
        yield Failure("wrong reason", _of(pod), f"is told of more nodes than there are: {told}")


def more_than_all(told: str) -> bool:
    """Whether a message says something of more nodes than it is about."""
    total = re.match(r"0/(\d+) nodes are available", told)
    return total is not None and any(int(number) > int(total[1]) for number in re.findall(r"(?<!\S)(\d+) nodes? ", told))


def _scheduled(pod: Pod) -> Condition | None:
    return next((found for found in pod.status.conditions if found.type == "PodScheduled"), None)


def _over_quota(condition: Condition | None) -> bool:
    """Whether the API refuses the claim for the pod's extended resources: it is asked again and again, whatever nodes have."""
    return condition is not None and "exceeded quota" in (condition.message or "")


def untrue(told: str, summary: str) -> str:
    """What a pod is told of nodes, or at all, and what `dray why` does not say; numbers do not matter, nor details that only
    `dray why` gives. A node is refused for
    the first check that fails: what a later one had found may still be so, where an earlier one speaks now."""
    told = told.partition(" In kube-scheduler's words:")[0]
    if _NUMBER.sub("0", summary).endswith(_NUMBER.sub("0", told)) or any(words in told for words in _OF_THE_LAST_ATTEMPT):
        return ""
    said = _phrases(summary)
    first = min(map(_turn, said))
    known = said | {_LACKING} if any("device" in each for each in said) else said
    whole = _NUMBER.sub("0", summary)  # of a claim that nobody can satisfy no node is named
    untrue = (phrase for phrase in _phrases(told) if phrase not in whole and not any(_says(each, phrase) for each in known))
    return "; ".join(sorted(phrase for phrase in untrue if _turn(phrase) <= first))


def _says(said: str, phrase: str) -> bool:
    """Whether this has been said, perhaps of more alternatives: those that a queue has no room for are passed over."""
    if said.startswith(phrase):
        return True
    (head, _, names), (known, _, more) = phrase.partition(" nor for "), said.partition(" nor for ")
    return bool(names) and head == known and set(names.split(", ")) <= set(more.split(", "))


def _turn(phrase: str) -> int:
    """Of the check that found this, among those that a node has to pass; what is not about nodes comes before them."""
    if not phrase.startswith(("is ", "has ", "does ", "cannot ")):
        return -1
    if _TOGETHER in phrase:
        return len(_CHECKS) + 1
    return next((turn for turn, words in enumerate(_CHECKS) if words in phrase), len(_CHECKS))


def _phrases(message: str) -> set[str]:
    """What a message says of nodes, without how many of them and without numbers; else the message itself."""
    before, found, listed = message.partition(UPSTREAM)[0].partition(" nodes are available: ")
    if not found:
        return {before}
    listed = _PAUSED.sub("", listed)
    listed = re.sub(r" (incomplete|invalid) pool \S+ of ", r" \1 pool of ", listed)  # of several nodes, none is named
    listed = re.sub(r" \([^()]*\)", "", listed)
    listed = re.sub(r"(?<!,) nor for ", ", ", listed)  # of nodes that have different numbers, alternatives are only named
    whole = _NEXT.split(listed.removesuffix("."))
    kept = whole[:-1] if message.endswith("…") or re.match(r"and \d+ more reasons?$", whole[-1]) else whole
    singular = (re.sub(r"^\d+ nodes? (\w+)", lambda m: _SINGULAR.get(m[1], m[1]), each) for each in kept)
    return {_NUMBER.sub("0", each) for each in singular if each}
