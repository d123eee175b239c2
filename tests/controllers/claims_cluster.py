"""The claims controller between an API of a few lines and a world that lags behind it."""

from __future__ import annotations

import copy
from typing import Any

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Kind
from dray.api.resource import FINALIZER, POD_CLAIM_NAME
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Refused, Write
from dray.cluster.world import World
from dray.controllers.claims import ClaimsController

Plain = dict[str, Any]
MERGE_KEYS = {"reservedFor": "uid", "resourceClaimStatuses": "name"}


class Api:
    """An API server of a few lines: preconditions, patches, finalizers, generated names. ``World`` lags until ``deliver``."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, str], Plain] = {}
        self.version = 0
        self.names = 0

    def put(self, kind: Kind, body: Plain) -> Plain:
        metadata = body.setdefault("metadata", {})
        metadata.setdefault("namespace", "ns")
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.objects[kind, f"{metadata['namespace']}/{metadata['name']}"] = body
        return body

    def write(self, write: Write) -> Plain:
        if write.verb == "create":
            body = copy.deepcopy(write.body)
            if "name" not in body["metadata"]:
                self.names += 1
                body["metadata"]["name"] = f"{body['metadata']['generateName']}{self.names:05d}"
            return self.put(write.kind, body)
        found = self.objects.get((write.kind, write.key))
        if found is None:
            raise NotFound(404, "NotFound", f"{write.key} not found")
        metadata = found["metadata"]
        if write.uid and write.uid != metadata["uid"]:
            raise Conflict(409, "Conflict", "uid")
        if write.resource_version and write.resource_version != metadata["resourceVersion"]:
            raise Conflict(409, "Conflict", "resourceVersion")
        if write.verb == "delete":
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif write.body == {}:
            return found
        else:
            merged(found, write.body, strategic=write.patch == "strategic")
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[write.kind, write.key]
            return found
        return self.put(write.kind, found)

    def all(self, kind: Kind) -> list[Plain]:
        return [body for (found, _), body in sorted(self.objects.items(), key=lambda item: item[0][1]) if found == kind]


def merged(into: Plain, patch: Plain, *, strategic: bool) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merged(into.setdefault(key, {}), value, strategic=strategic)
        elif strategic and key in MERGE_KEYS:
            by = {item[MERGE_KEYS[key]]: item for item in into.get(key, [])}
            for item in value:
                if item.get("$patch") == "delete":
                    by.pop(item[MERGE_KEYS[key]], None)
                else:
                    by[item[MERGE_KEYS[key]]] = item
            into[key] = list(by.values())
        else:
            into[key] = value


class Cluster:
    """The controller on the API, with the World as far behind as a test wants it."""

    def __init__(self, gates: Gates | None = None) -> None:
        self.api, self.gates = Api(), gates
        self.now = 1_000_000.0
        self.written: list[Write] = []
        self.refuse: dict[str, ClusterError] = {}  # verb or subresource -> what the next such write ends in
        self.restart()

    def restart(self) -> None:
        self.world = World(ClaimsController.kinds)
        self.controller = ClaimsController(self.world, self.gates)
        self.delivered: set[tuple[Kind, str]] = set()

    def deliver(self) -> None:
        """The watch catches up."""
        for kind in ClaimsController.kinds:
            listed = [copy.deepcopy(body) for body in self.api.all(kind)]
            for change in self.world.replace(kind, listed):
                self.controller.observe(change, self.now)

    def step(self, *, seen: bool = True) -> list[Write]:
        """One round: act, write, outcomes. ``seen``: answers and watch events reach the World."""
        writes = self.controller.act(self.now)
        for write in writes:
            self.written.append(write)
            outcome = self._attempt(write)
            if seen and outcome.object is not None and write.kind in self.world.kinds and write.verb != "delete":
                for change in self.world.put(write.kind, copy.deepcopy(outcome.object)):
                    self.controller.observe(change, self.now)
            self.controller.observe(outcome, self.now)
        return writes

    def _attempt(self, write: Write) -> Outcome:
        for key in (write.verb, write.subresource):
            if key in self.refuse:
                return Outcome(write, error=self.refuse.pop(key))
        try:
            return Outcome(write, object=self.api.write(write))
        except Refused as error:
            return Outcome(write, error=error)

    def settle(self, limit: int = 50) -> None:
        for _ in range(limit):
            self.deliver()
            if not self.step():
                wake = self.controller.wake()
                if wake is None:
                    return
                self.now = max(self.now, wake)
        raise AssertionError("the controller does not settle")

    # what tests speak of

    def claims(self) -> list[Plain]:
        return self.api.all(RESOURCE_CLAIMS)

    def claim(self, name: str) -> Plain | None:
        return self.api.objects.get((RESOURCE_CLAIMS, f"ns/{name}"))

    def statuses(self, pod: str = "train") -> list[Plain]:
        return self.api.objects[PODS, f"ns/{pod}"].get("status", {}).get("resourceClaimStatuses", [])

    def events(self) -> list[Plain]:
        return self.api.all(EVENTS)

    def pod(self, name: str = "train", *entries: Plain, **fields: Any) -> Plain:
        entries = entries or ({"name": "gpu", "resourceClaimTemplateName": "one-gpu"},)
        spec = {"resourceClaims": list(entries), **fields.pop("spec", {})}
        return self.api.put(PODS, {"metadata": {"name": name, **fields.pop("metadata", {})}, "spec": spec, **fields})

    def template(self, name: str = "one-gpu", **metadata: Any) -> Plain:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "somethingNew": {"a": 1}}}
        spec = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
        return self.api.put(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": spec})

    def given_claim(self, name: str = "shared", *, pods: tuple[str, ...] = (), allocated: bool = True, **metadata: Any) -> Plain:
        consumers = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
        status: Plain = {"reservedFor": consumers}
        if allocated:
            status["allocation"] = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "g0"}]}}
        finalizers = [FINALIZER] if allocated else []
        return self.api.put(
            RESOURCE_CLAIMS, {"metadata": {"name": name, "finalizers": finalizers, **metadata}, "spec": {}, "status": status}
        )


def owned_by(pod: str, entry: str = "gpu") -> Plain:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
    return {"ownerReferences": [owner], "annotations": {POD_CLAIM_NAME: entry}}
