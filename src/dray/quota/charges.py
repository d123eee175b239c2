"""What one object is charged for, as facts that no longer need the object.

Most objects stand for themselves. A pod and the claims that provide its extended resources are charged together, so that a device
which the pod asked for and a claim provides counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dray.api.core import PersistentVolumeClaim, Pod, Service
from dray.api.meta import Object
from dray.api.quantity import Quantity
from dray.api.quota_names import PLAIN_COUNTS, REQUESTS
from dray.api.requests import add
from dray.api.resource import ResourceClaim
from dray.quota import devices, pods, scopes
from dray.quota.names import COUNT, ONE, ZERO, Amounts
from dray.quota.scopes import OTHER, Subject

_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


class Charge(msgspec.Struct, frozen=True):
    """Amounts, and what scopes ask of the object that they are for."""

    amounts: Amounts
    subject: Subject = OTHER


class PodFacts(msgspec.Struct, frozen=True):
    """``base`` is charged as long as the pod counts; ``count`` always. ``extended`` are its extended resources as spelled;
    ``settled``: it has a node or its special claim, so its devices are chosen."""

    count: Amounts
    base: Amounts
    extended: Amounts
    subject: Subject
    claim: str
    settled: bool
    alive: bool
    until: float | None


class ClaimFacts(msgspec.Struct, frozen=True):
    name: str
    created: str
    count: Amounts
    devices: Amounts


Facts = Charge | PodFacts | ClaimFacts


def unit_of(resource: str, found: Object) -> str:
    """What is charged together: a pod with its special claims; everything else alone."""
    if isinstance(found, Pod):
        return found.uid or found.key
    owner = devices.special_owner(found) if isinstance(found, ResourceClaim) else ""
    return owner or f"{resource} {found.key}"


def facts_of(resource: str, found: Object) -> Facts:
    count: Amounts = {COUNT + resource: ONE}
    if isinstance(found, Pod):
        return _of_pod(found, count)
    if isinstance(found, ResourceClaim):
        created = found.metadata.creation_timestamp or ""
        return ClaimFacts(found.metadata.name, created, count, devices.of_claim(found))
    if isinstance(found, PersistentVolumeClaim):
        return Charge(count | _of_volume(found), scopes.of_volume(found))
    if isinstance(found, Service):
        return Charge(count | _of_service(found))
    return Charge(count | {resource: ONE} if resource in PLAIN_COUNTS else count)


def charges(unit: Iterable[Facts], served: devices.Served, now: float, *, at_once: bool) -> list[Charge]:
    """``at_once``: a pod's devices are charged to every name of their class from its creation. Otherwise, until they are
    chosen, only to the name that the pod spells: another API server's admission will charge the other names itself."""
    facts = list(unit)
    pod = next((found for found in facts if isinstance(found, PodFacts)), None)
    claims = [found for found in facts if isinstance(found, ClaimFacts)]
    made = [found for found in facts if isinstance(found, Charge)]
    covered: Amounts = {}
    if pod is not None:
        counts = pod.alive and (pod.until is None or now <= pod.until)
        amounts = pod.count | (pod.base if counts else {})
        if counts and (at_once or pod.settled or claims):
            covered, rest = served.split(pod.extended)
            add(amounts, rest)
            add(amounts, served.charged(covered))
        elif counts:
            add(amounts, {REQUESTS + name: amount for name, amount in pod.extended.items()})
        made.append(Charge(amounts, pod.subject))
    exempt = _exempt(pod, claims)
    for claim in claims:
        asked = _beyond(claim.devices, covered) if claim is exempt else claim.devices
        made.append(Charge(claim.count | served.charged(asked)))
    return made


def _exempt(pod: PodFacts | None, claims: list[ClaimFacts]) -> ClaimFacts | None:
    """The one claim whose devices are those that the pod is charged for: nobody gets a second one free."""
    if pod is None or not claims:
        return None
    if pod.claim:
        return next((claim for claim in claims if claim.name == pod.claim), None)
    return min(claims, key=lambda claim: (claim.created, claim.name))


def _beyond(asked: Mapping[str, Quantity], covered: Mapping[str, Quantity]) -> Amounts:
    left = {name: amount - covered.get(name, ZERO) for name, amount in asked.items()}
    return {name: amount for name, amount in left.items() if amount > ZERO}


def _of_pod(pod: Pod, count: Amounts) -> PodFacts:
    requests, limits = pods.totals(pod.spec, "requests"), pods.totals(pod.spec, "limits")
    status = pod.status.extended_resource_claim_status
    claim = status.resource_claim_name if status is not None else ""
    return PodFacts(
        count=count,
        base=pods.compute(requests, limits),
        extended=pods.extended(requests),
        subject=scopes.of_pod(pod),
        claim=claim,
        settled=bool(pod.spec.node_name or claim),
        alive=not pod.terminal,
        until=pods.charged_until(pod),
    )


def _of_volume(claim: PersistentVolumeClaim) -> Amounts:
    requested = Quantity.parse(claim.spec.resources.requests.get("storage", 0))
    storage = max(requested, Quantity.parse(claim.status.allocated_resources.get("storage", 0)))
    amounts = {"persistentvolumeclaims": ONE, "requests.storage": storage}
    named = claim.metadata.annotations.get(_STORAGE_CLASS) or claim.spec.storage_class_name
    if named:
        amounts |= {f"{named}.storageclass.storage.k8s.io/{name}": amount for name, amount in amounts.items()}
    return amounts


def _of_service(service: Service) -> Amounts:
    spec = service.spec
    ports = [port for port in spec.get("ports") or () if isinstance(port, dict)]
    balanced = spec.get("type") == "LoadBalancer"
    node_ports = len(ports) if spec.get("type") in ("NodePort", "LoadBalancer") else 0
    if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(bool(port.get("nodePort")) for port in ports)
    return {
        "services": ONE,
        "services.nodeports": Quantity.of(node_ports),
        "services.loadbalancers": Quantity.of(int(balanced)),
    }
