"""Hands that edit objects while everything runs, drawn from a seed: claims cleared, unreserved, reserved for nobody, deleted or
made anew under their names; pods, nodes and queues made anew under theirs; slices whose generation goes backwards; classes,
groups and what pods are told changed in flight.

What hands do hangs on what is there when they do it, and names are completed by the server: so the scenario runs once with
hands in it, and what they did becomes steps of it.

Always true: the same documents and seed make the same documents, in which every edit is a step that `dray simulate` takes, and
which run as they did with hands. A claim is cleared, unreserved or made anew only while the API shows no pod that is bound and
uses it: a bind that is on its way meets the edit. Nothing is edited more than
a few seconds after ``UNTIL``.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dray.api.kinds import DEVICE_CLASSES, NODES, POD_GROUPS, PODS, QUEUES, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.numa.placement import RECORDS
from dray.simulate.run import Simulation
from dray.simulate.scenario import Action, Scenario, Verb, made_of

Document = dict[str, Any]
Edit = tuple[Verb, Kind, Document]

UNTIL: Final = 160
# What a server says of an object, and nobody who makes it.
_OF_THE_SERVER: Final = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp",
    "deletionGracePeriodSeconds", "ownerReferences", "finalizers",
)  # fmt: skip
_EMPTY: Final[Document] = {"allocation": None, "reservedFor": None, "devices": None}
_MARK: Final = " || 'by hand' == ''"


def with_hands(documents: list[Document], seed: int) -> list[Document]:
    """The documents with the steps that hands take in them; where the run ends in an error, those until then."""
    made = copy.deepcopy(documents)
    run = Handled(made_of((f"object {number}", each) for number, each in enumerate(made, 1)), seed)
    try:
        run.play()
    except Exception:
        if run.hands.busy:
            raise
        # It ends in it again where the documents are judged.
    steps = next(each for each in made if each["kind"] == "Scenario")["spec"]["steps"]
    steps += run.hands.steps
    steps.sort(key=lambda step: float(str(step["at"]).removesuffix("s")))
    return made


class Handled(Simulation):
    """A simulation with hands in it."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.hands = Hands(self, seed)
        super().__init__(scenario, check_every=scenario.until)  # what goes wrong is looked for when it runs again

    def play(self) -> None:
        self.run(self._scenario.until)

    def _begin(self) -> None:
        super()._begin()
        for at in self.hands.times:
            self._virtual.at(at, lambda at=at: self._edit(at))  # type: ignore[misc]
        self.follow(self._followed)

    def _followed(self, table: str, key: str, raw: bytes | None) -> None:
        if table == RESOURCE_CLAIMS.resource and raw is not None:
            for at in self.hands.allocated(key, msgspec.json.decode(raw), self.elapsed):
                self._virtual.at(at, lambda at=at: self._edit(at))  # type: ignore[misc]

    def _edit(self, at: float) -> None:
        """Each edit as the step that it becomes: everybody is told of one before the next."""
        for verb, kind, body in self.hands.edit(at):
            action = Action(at, verb, kind, body)
            self._virtual.at(at, lambda action=action: self._do(action))  # type: ignore[misc]


class Hands:
    """``steps``: what they did. They know a few things to do, and do them now and then, and some right after a claim got its
    devices, while a bind is under way."""

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self._simulation, self._rng = simulation, random.Random(f"hands {seed}")
        self._known = self._rng.sample(list(EDITS), self._rng.randint(2, 5))
        # At no time at which something else happens, so that steps and what they meet are in one order.
        self.times = sorted({self._rng.randrange(1_000, 1_000 * UNTIL) + 0.5 for _ in range(self._rng.randint(3, 25))})
        self.times = [at / 1_000 for at in self.times]
        self.steps: list[Document] = []
        self._fresh: dict[Kind, str] = {}  # what was given devices last
        self._hurries = self._rng.choice((0, 0, 4, 8))
        self.busy = False  # with an edit: an error now is of the hands

    def allocated(self, key: str, claim: Document, now: float) -> list[float]:
        """When somebody edits something because this claim just got its devices."""
        if not _users(claim) or key == self._fresh.get(RESOURCE_CLAIMS) or now > UNTIL or not self._hurries:
            return []
        self._fresh[RESOURCE_CLAIMS] = key
        self._fresh[PODS] = f"{claim['metadata']['namespace']}/{claim['status']['reservedFor'][-1]['name']}"
        if self._rng.random() < 0.5:
            return []
        self._hurries -= 1
        return [round(now + 10 ** self._rng.uniform(-3, 0.5), 6)]

    def edit(self, at: float) -> list[Edit]:
        self.busy = True
        tried = self._rng.sample(self._known, len(self._known))
        found = next((edits for name in tried if (edits := EDITS[name](self))), [])
        self.busy = False
        self.steps += [{"at": f"{at}s", verb: copy.deepcopy(body)} for verb, _, body in found]
        return found

    # --------------------------------------------------------------------------------------------------------- claims

    def clear(self) -> list[Edit]:
        claim = self._claim(lambda claim: "allocation" in claim.get("status", {}))
        return [_patch(RESOURCE_CLAIMS, claim, status=_EMPTY)] if claim else []

    def unreserve(self) -> list[Edit]:
        claim = self._claim(lambda claim: bool(_users(claim)))
        return [_patch(RESOURCE_CLAIMS, claim, status={"reservedFor": None})] if claim else []

    def reserve(self) -> list[Edit]:
        """For a pod that does not exist."""
        claim = self._claim(lambda claim: "allocation" in claim.get("status", {}) and not _owners(claim))
        if claim is None:
            return []
        nobody = {"resource": "pods", "name": "nobody", "uid": f"nobody-{self._rng.randrange(10**6)}"}
        return [_patch(RESOURCE_CLAIMS, claim, status={"reservedFor": [*claim["status"].get("reservedFor", ()), nobody]})]

    def claim_again(self) -> list[Edit]:
        claim = self._claim(lambda claim: not _owners(claim))
        if claim is None:
            return []
        gone = [_patch(RESOURCE_CLAIMS, claim, status=_EMPTY), _delete(RESOURCE_CLAIMS, claim)]
        return [*gone, _patch(RESOURCE_CLAIMS, claim, metadata={"finalizers": None}), _apply(RESOURCE_CLAIMS, claim)]

    def delete_claim(self) -> list[Edit]:
        """One that was made for a pod, whatever the pod does."""
        claim = self._one_of(RESOURCE_CLAIMS, lambda claim: bool(_owners(claim)))
        return [_delete(RESOURCE_CLAIMS, claim)] if claim else []

    def _claim(self, wanted: Callable[[Document], bool]) -> Document | None:
        return self._one_of(RESOURCE_CLAIMS, lambda claim: wanted(claim) and not self._runs(claim))

    def _runs(self, claim: Document) -> bool:
        """Whether a pod that uses the claim is bound."""
        uids = _users(claim) | {owner["uid"] for owner in _owners(claim)}
        pods = self._simulation.objects(PODS).values()
        return any(pod["metadata"]["uid"] in uids and pod["spec"].get("nodeName") for pod in pods)

    # ----------------------------------------------------------------------------------------------------------- pods

    def delete_pod(self) -> list[Edit]:
        pod = self._one_of(PODS)
        return [_delete(PODS, pod)] if pod else []

    def pod_again(self) -> list[Edit]:
        """One that is gone as soon as it is deleted: nobody runs it, or nobody waits for it to end."""

        def at_once(pod: Document) -> bool:
            return not pod["spec"].get("nodeName") or pod["spec"].get("terminationGracePeriodSeconds") == 0

        pod = self._one_of(PODS, lambda pod: not _owners(pod) and "deletionTimestamp" not in pod["metadata"] and at_once(pod))
        return [_delete(PODS, pod), _apply(PODS, pod)] if pod else []

    def label(self) -> list[Edit]:
        pod = self._one_of(PODS)
        return [_patch(PODS, pod, metadata={"labels": {"app": self._rng.choice("abc")}})] if pod else []

    def tell(self) -> list[Edit]:
        """Somebody else says why a pod waits, and where it is to go."""
        pod, node = self._one_of(PODS, lambda pod: not pod["spec"].get("nodeName")), self._one_of(NODES)
        if pod is None:
            return []
        said = {"type": "PodScheduled", "status": "False", "reason": "ByHand", "message": "somebody wrote this"}
        where = self._rng.choice(["nowhere", node["metadata"]["name"] if node else "nowhere"])
        return [_patch(PODS, pod, status={"conditions": [said], "nominatedNodeName": where})]

    # -------------------------------------------------------------------------------------------------- everything else

    def node_again(self) -> list[Edit]:
        node = self._one_of(NODES)
        return [_delete(NODES, node), _apply(NODES, node, status=node["status"])] if node else []

    def queue_again(self) -> list[Edit]:
        queue = self._one_of(QUEUES)
        return [_delete(QUEUES, queue), _apply(QUEUES, queue)] if queue else []

    def group(self) -> list[Edit]:
        group = self._one_of(POD_GROUPS)
        return [_patch(POD_GROUPS, group, spec={"minMember": self._rng.randint(1, 5)})] if group else []

    def device_class(self) -> list[Edit]:
        """It selects more narrowly, or as it did."""
        found = self._one_of(DEVICE_CLASSES)
        if found is None:
            return []
        selectors = [each for each in found["spec"].get("selectors", ()) if _MARK not in each["cel"]["expression"]]
        if self._rng.random() < 0.5:
            said = self._rng.choice(("true", "false", "device.driver == 'x'", "device.allowMultipleAllocations"))
            selectors.append({"cel": {"expression": f"({said}){_MARK}"}})
        return [_patch(DEVICE_CLASSES, found, spec={"selectors": selectors})]

    def generation(self) -> list[Edit]:
        found = self._one_of(RESOURCE_SLICES)
        if found is None:
            return []
        pool = found["spec"]["pool"]
        generation = max(1, pool["generation"] + self._rng.choice((-3, -1, 1)))
        return [_patch(RESOURCE_SLICES, found, spec={"pool": {**pool, "generation": generation}})]

    def _one_of(self, kind: Kind, wanted: Callable[[Document], bool] = lambda found: True) -> Document | None:
        found = {key: each for key, each in sorted(self._simulation.objects(kind).items()) if wanted(each)}
        fresh = found.get(self._fresh.get(kind, ""))
        if fresh is not None and self._rng.random() < 0.6:
            return copy.deepcopy(fresh)
        return copy.deepcopy(self._rng.choice(list(found.values()))) if found else None


EDITS: Final[dict[str, Callable[[Hands], list[Edit]]]] = {
    name: getattr(Hands, name)
    for name in (
        "clear", "unreserve", "reserve", "claim_again", "delete_claim", "delete_pod", "pod_again", "label", "tell", "node_again",
        "queue_again", "group", "device_class", "generation",
    )
}  # fmt: skip


def _users(claim: Document) -> set[str]:
    return {each["uid"] for each in claim.get("status", {}).get("reservedFor", ())}


def _owners(found: Document) -> list[Document]:
    return found["metadata"].get("ownerReferences", [])  # type: ignore[no-any-return]


def _reference(kind: Kind, found: Document) -> Document:
    metadata = {name: found["metadata"][name] for name in ("name", "namespace") if name in found["metadata"]}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def _patch(kind: Kind, found: Document, *, metadata: Document | None = None, **what: Any) -> Edit:
    reference = _reference(kind, found)
    return "patch", kind, {**reference, "metadata": reference["metadata"] | (metadata or {}), **what}


def _delete(kind: Kind, found: Document) -> Edit:
    return "delete", kind, _reference(kind, found)


def _apply(kind: Kind, found: Document, **what: Any) -> Edit:
    """The object as somebody makes it who has its file."""
    metadata = {name: value for name, value in found["metadata"].items() if name not in _OF_THE_SERVER}
    if "annotations" in metadata:
        metadata["annotations"] = {name: said for name, said in metadata["annotations"].items() if name not in RECORDS}
    spec = {name: value for name, value in found.get("spec", {}).items() if (kind, name) != (PODS, "nodeName")}
    return "apply", kind, {**_reference(kind, found), "metadata": metadata, "spec": spec, **what}
