"""One simulated node on virtual time, with drivers under control, and words for what tests do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIMS
from dray.cluster.world import World
from dray.nodes.drivers import Answer, ClaimName, Done, Health, NotYet, Operation, PreparedDevice
from dray.nodes.faults import DeviceFaults
from dray.nodes.hardware import hardware
from dray.nodes.kubelet import Kubelets
from dray.runtime.faults import Faults
from tests.simulated import Place

NODE = "gpu8-0"
DRIVER = "gpu.dray.dev"


class Driver:
    """Answers as a test says; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Operation, str, list[str]]] = []
        self.registered = {DRIVER, "nic.dray.dev"}
        self.answer: Callable[[Operation, str, Sequence[ClaimName]], Answer] = prepared
        self.health_of: dict[str, Health] = {}

    def serves(self, node: str, driver: str) -> bool:
        return driver in self.registered

    def call(self, operation: Operation, node: str, driver: str, claims: Sequence[ClaimName], now: float) -> Answer:
        answer = self.answer(operation, driver, claims)
        if not isinstance(answer, NotYet):
            self.calls.append((operation, driver, [claim.name for claim in claims]))
        return answer

    def health(self, node: str, driver: str, pool: str, device: str) -> Health | None:
        return self.health_of.get(device)

    def asked(self, operation: Operation) -> list[tuple[str, list[str]]]:
        return [(driver, names) for done, driver, names in self.calls if done == operation]


def prepared(operation: Operation, driver: str, claims: Sequence[ClaimName]) -> Answer:
    device = PreparedDevice("gpu8-0", "gpu-0", ("gpu",), (f"{driver}/d=0",))
    return {claim.uid: Done((device,) if operation == "prepare" else ()) for claim in claims}


class Laboratory:
    """``gpu8-0`` with its kubelet. Without a driver the simulated ones answer."""

    def __init__(self, driver: Driver | None = None, faults: Faults | None = None, **options: Any) -> None:
        self.place = Place(faults=faults or Faults())
        self.driver = driver
        self._options = options
        made = hardware(["gpu8"])
        self.node = made.nodes[0]
        self.place.start("nodes", Kubelets.kinds, self._deciders)

    def _deciders(self, world: World) -> list[Any]:
        return [Kubelets(world, [self.node], drivers=self.driver, heartbeat=0, **self._options), DeviceFaults(world)]

    @property
    def now(self) -> float:
        return self.place.shell.clock.now

    def run(self, until: float) -> None:
        self.place.shell.run(until)

    def claim(self, name: str, *devices: str, driver: str = DRIVER, annotations: dict[str, str] | None = None) -> None:
        """An allocated claim with a request for each device, ``gpu`` for the first, then ``r1``, ``r2``."""
        names = ["gpu", *(f"r{number}" for number in range(1, len(devices)))]
        requests = [{"name": each, "exactly": {"deviceClassName": "gpu.dray.dev"}} for each in names[: max(len(devices), 1)]]
        body = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"devices": {"requests": requests}}}
        self.place.create(RESOURCE_CLAIMS, body)
        results = [{"request": r, "driver": driver, "pool": NODE, "device": d} for r, d in zip(names, devices or ("gpu-0",))]
        self.status(name, {"allocation": {"devices": {"results": results}}})

    def status(self, name: str, status: dict[str, Any]) -> None:
        self.place.patch(RESOURCE_CLAIMS, name, {"status": status}, subresource="status")

    def pod(self, name: str, *claims: str, annotations: dict[str, str] | None = None, **spec: Any) -> str:
        """A pod bound to the node that uses claims, which are reserved for it beside those that have them. Its uid."""
        container = {"name": "c", "image": "i", "resources": {"claims": [{"name": claim} for claim in claims]}}
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        given = {"nodeName": NODE, "containers": [container], "resourceClaims": entries, **spec}
        made = self.place.create(PODS, {"metadata": {"name": name, "annotations": annotations or {}}, "spec": given})
        uid: str = made["metadata"]["uid"]
        for claim in claims:
            self.reserve(claim, name, uid)
        return uid

    def reserve(self, claim: str, pod: str, uid: str) -> None:
        found = self.place.get(RESOURCE_CLAIMS, claim)
        assert found is not None
        users = found["status"].get("reservedFor", [])
        self.status(claim, {"reservedFor": [*users, {"resource": "pods", "name": pod, "uid": uid}]})

    def shown(self, name: str) -> dict[str, Any]:
        """The status of a pod."""
        found = self.place.get(PODS, name)
        assert found is not None, f"pod {name} is gone"
        status: dict[str, Any] = found["status"]
        return status

    def phase(self, name: str) -> str:
        found = self.place.get(PODS, name)
        return str(found["status"]["phase"]) if found is not None else "gone"

    def events(self) -> list[str]:
        return [f"{event['reason']}: {event['message']}" for event in self.place.all(EVENTS)]
