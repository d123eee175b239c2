"""Queues as the API's objects tell them: whose a pod is, whether any has more devices than it may have, and whether all that
tell of queues say the same.

Always true: only queues and pod groups that never changed say anything; of others nobody knows what was so when it was decided.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from dray.api.gates import Gates
from dray.api.kinds import NODES, POD_GROUPS, PODS, QUEUES, RESOURCE_CLAIMS, Kind
from dray.api.queues import GPU, GPU_RESOURCE, RESOURCES_ANNOTATION
from dray.explain.queues import QueueTree
from tests.simulate import judging_evictions, settled
from tests.simulate.settled import Settled

Plain = dict[str, Any]
_CLASS = "deviceclass/"


class Run(judging_evictions.Run, settled.Run, Protocol):
    """A simulation, as far as what it decides can be looked at."""

    gates: Gates

    def objects(self, kind: Kind) -> dict[str, Plain]: ...

    def queues(self) -> QueueTree: ...


class Queues:
    def __init__(self, simulation: Run, settled: Settled) -> None:
        self._simulation, self._settled = simulation, settled

    @property
    def never_changed(self) -> bool:
        return all(self._settled.from_the_start(QUEUES.resource, each) for each in self._simulation.objects(QUEUES))

    def group(self, pod: Plain) -> Plain:
        """What the pod group says that the pod names."""
        found: Plain = self._simulation.objects(POD_GROUPS).get(group_of(pod), {}).get("spec", {})
        return found

    def of(self, pod: Plain) -> str:
        named = self.group(pod).get("queue") or pod["metadata"].get("labels", {}).get("kai.scheduler/queue", "")
        return named if named in self._simulation.objects(QUEUES) else ""

    def upwards(self, queue: str) -> list[str]:
        queues, found = self._simulation.objects(QUEUES), list[str]()
        while queue in queues and queue not in found:
            found.append(queue)
            queue = queues[queue]["spec"].get("parentQueue", "")
        return found

    def first(self, field: str, queues: list[str]) -> float:
        """Of these queues the first that says for how long, in seconds."""
        specs = (self._simulation.objects(QUEUES)[each]["spec"] for each in queues)
        return next((float(spec[field].removesuffix("s")) for spec in specs if field in spec), 0.0)

    # ---------------------------------------------------------------------------------------------------------- limits

    def beyond(self) -> Iterator[tuple[str, str]]:
        """Queues whose pods have more devices of a class than the queue may have."""
        held: dict[tuple[str, str], dict[str, int]] = {}
        for pod in self._simulation.objects(PODS).values() if self.never_changed else ():
            if self._holds(pod):
                for claim, device_class, count in self._devices(pod):
                    for queue in self.upwards(self.of(pod)):
                        held.setdefault((queue, device_class), {})[claim] = count
        for (queue, device_class), claims in sorted(held.items()):
            said = self._simulation.objects(QUEUES)[queue]["metadata"].get("annotations", {}).get(RESOURCES_ANNOTATION, "{}")
            limit = json.loads(said).get(_CLASS + device_class, {}).get("limit", -1)
            if 0 <= limit < sum(claims.values()):
                yield f"queue/{queue}", f"has {sum(claims.values())} devices of {device_class}, and may have {limit}"

    def told_otherwise(self) -> Iterator[tuple[str, str]]:
        """Queues of which `dray queues` says something else than the scheduler does in their status."""
        simulation = self._simulation
        for row in simulation.queues().queues:
            status = simulation.objects(QUEUES)[row.name].get("status", {})
            for field, shown in (("allocated", row.allocated), ("fairShare", row.fair_share), ("requested", row.requested)):
                told = {name.replace(GPU_RESOURCE, GPU): value for name, value in status.get(field, {}).items()}
                if (said := {name: value for name, value in shown.items() if value != "0"}) != told:
                    yield f"queue/{row.name}", f"{field} is {told} in its status, and dray queues says {said}"
            if row.waiting_pods != status.get("waitingPods", 0):
                yield f"queue/{row.name}", f"{status.get('waitingPods', 0)} pods wait, and dray queues says {row.waiting_pods}"

    def _holds(self, pod: Plain) -> bool:
        """Whether the pod counts for its queue, and for the same one from its first day on. While a node is gone its pods count
        for nobody; it may come back with them before they are cleared away."""
        group = group_of(pod)
        known = self._settled.from_the_start(POD_GROUPS.resource, group) if group else not of_kubernetes(pod)
        there = self._settled.was_never_gone(NODES.resource, pod["spec"].get("nodeName", ""))
        return (
            known
            and there
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        )

    def _devices(self, pod: Plain) -> Iterator[tuple[str, str, int]]:
        """What a pod has: of which claim and class, and how many. Of a claim that pods of several queues use one of them pays."""
        pods, own = self._simulation.objects(PODS), self.of(pod)
        for name, claim in claims_of(self._simulation, pod):
            users = [
                pods.get(f"{pod['metadata']['namespace']}/{each['name']}") for each in claim["status"].get("reservedFor", ())
            ]
            if any(user is None or self.of(user) != own for user in users):
                continue
            asked = {request["name"]: request.get("exactly", {}) for request in claim["spec"]["devices"]["requests"]}
            results = claim["status"]["allocation"]["devices"]["results"]
            for request, exactly in asked.items():
                count = sum(each["request"] == request and not each.get("adminAccess") for each in results)
                if count:
                    yield f"{name} {request}", exactly["deviceClassName"], count


def claims_of(simulation: Run, pod: Plain) -> Iterator[tuple[str, Plain]]:
    """The claims of a pod that have devices, by their names."""
    status = pod.get("status", {})
    named = [*pod["spec"].get("resourceClaims", ()), *status.get("resourceClaimStatuses", ())]
    named += [found] if (found := status.get("extendedResourceClaimStatus")) else []
    claims = simulation.objects(RESOURCE_CLAIMS)
    for name in filter(None, (each.get("resourceClaimName") for each in named)):
        claim = claims.get(f"{pod['metadata']['namespace']}/{name}", {})
        if claim.get("status", {}).get("allocation"):
            yield name, claim


def group_of(pod: Plain) -> str:
    name = pod["metadata"].get("annotations", {}).get("pod-group-name", "")
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def of_kubernetes(pod: Plain) -> bool:
    return bool(pod["spec"].get("schedulingGroup"))
