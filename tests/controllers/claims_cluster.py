"""The claims controller on the embedded API server, with a World that lags behind it for as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, NAMESPACES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Kind
from dray.api.resource import ADMIN_ACCESS_LABEL, FINALIZER, POD_CLAIM_NAME
from dray.cluster.port import ClusterError, Write
from dray.controllers.claims import ClaimsController
from dray.runtime.picture import apply_answer
from dray.testing import Lockstep, Server

Plain = dict[str, Any]


class Api:
    """What there is, by kind and key. What tests put is there as they give it; the uid of ``name`` is ``uid-name``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.objects = Objects(server)

    def put(self, kind: Kind, body: Plain) -> Plain:
        metadata = {"namespace": "ns", "uid": f"uid-{body['metadata']['name']}", **body["metadata"]}
        return self._server.plant({**body, "metadata": metadata}, kind)

    def all(self, kind: Kind) -> list[Plain]:
        return [self.objects[kind, key] for key in self._server.keys(kind)]


class Objects(MutableMapping[tuple[Kind, str], Plain]):
    def __init__(self, server: Server) -> None:
        self._server = server

    def __getitem__(self, key: tuple[Kind, str]) -> Plain:
        found = self._server.read(*key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: tuple[Kind, str], body: Plain) -> None:
        self._server.plant(body, key[0])

    def __delitem__(self, key: tuple[Kind, str]) -> None:
        self._server.uproot(*key)

    def __iter__(self) -> Iterator[tuple[Kind, str]]:
        return ((kind, key) for kind in ClaimsController.kinds for key in self._server.keys(kind))

    def __len__(self) -> int:
        return sum(len(self._server.keys(kind)) for kind in ClaimsController.kinds)


class Cluster(Lockstep):
    """Nothing reaches the controller but the answers to its own writes, until ``deliver``."""

    def __init__(self, gates: Gates | None = None) -> None:
        super().__init__(ClaimsController.kinds, lambda world: ClaimsController(world, gates), gates=gates)
        self.server.watchers.clear()
        self.server.plant({"metadata": {"name": "ns", "labels": {ADMIN_ACCESS_LABEL: "true"}}}, NAMESPACES)
        self.api = Api(self.server)
        self.refuse: dict[str, ClusterError] = {}  # verb or subresource -> what the next such write ends in
        self.fault = self._refusal

    @property
    def controller(self) -> ClaimsController:
        assert isinstance(self.decider, ClaimsController)
        return self.decider

    @controller.setter
    def controller(self, controller: ClaimsController) -> None:
        self.decider = controller

    @property
    def written(self) -> list[Write]:
        return self.log

    def relist(self, *kinds: Kind) -> None:
        """A restart lists nothing by itself: tests say when."""
        if kinds:
            super().relist(*kinds)

    def deliver(self) -> None:
        """The watch catches up."""
        self.relist(*self.kinds)

    def step(self, *, seen: bool = True) -> list[Write]:
        """One round: act, write, outcomes. ``seen``: answers reach the World."""
        writes = self.controller.act(self.now)
        for write in writes:
            self.log.append(write)
            outcome = self.attempt(write)
            if seen and outcome.object is not None and write.verb != "delete":
                self.observe(apply_answer(self.world, write, outcome.object))
            self.controller.observe(outcome, self.now)
        return writes

    def _refusal(self, write: Write) -> ClusterError | None:
        for key in (write.verb, write.subresource):
            if key in self.refuse:
                return self.refuse.pop(key)
        return None

    def settle(self, seconds: float = 0.0, most: int = 50) -> None:
        for _ in range(most):
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
        return self.server.read(RESOURCE_CLAIMS, f"ns/{name}")

    def statuses(self, pod: str = "train") -> list[Plain]:
        return self.api.objects[PODS, f"ns/{pod}"].get("status", {}).get("resourceClaimStatuses", [])

    def events(self) -> list[Plain]:
        return self.api.all(EVENTS)

    def pod(self, name: str = "train", *entries: Plain, **fields: Any) -> Plain:
        entries = entries or ({"name": "gpu", "resourceClaimTemplateName": "one-gpu"},)
        spec = {"resourceClaims": list(entries), **fields.pop("spec", {})}
        return self.api.put(PODS, {"metadata": {"name": name, **fields.pop("metadata", {})}, "spec": spec, **fields})

    def template(self, name: str = "one-gpu", request: Plain | None = None, **metadata: Any) -> Plain:
        request = request or {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
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
