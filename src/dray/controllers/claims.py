"""The controller of resource claims: makes them from templates, and lets go of them when their pods are done.

For a pod that asks for devices through a template it creates the claim and records its name in the pod's status. For a pod that
was put on a node past the scheduler it reserves the allocated claims. When pods end it takes them out of ``reservedFor``; a
claim that loses its last consumer is deallocated, its finalizer goes, and a generated claim is deleted.

Always true: a claim is never allocated here; a consumer is removed only when it is known to be done or gone; nothing is kept
that the API cannot give back except what saves a duplicate create. A consumer or a recorded claim that the World does not show
is asked for with an empty patch, which changes nothing and proves existence, before anything is concluded from its absence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api.consumers import claims_of, is_pod, reserves
from dray.api.core import Pod, PodResourceClaim
from dray.api.events import event_body
from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_QUOTAS, Kind
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    POD_CLAIM_NAME,
    RESERVED_FOR_MAX,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from dray.cluster.metrics import Declared, Labels, Meter, Silent
from dray.cluster.port import Change, Event, Forbidden, Invalid, NotFound, Outcome, Write
from dray.cluster.world import World
from dray.controllers.claim_templates import (
    TemplateError,
    check_gates,
    generated_claim,
    made_for,
    needs_none,
    recorded,
)
from dray.controllers.owning import controller_of
from dray.controllers.room import over_quota, room_in
from dray.controllers.work import Work

FIELD_MANAGER: Final = "dray-claims"
EVENT_AGAIN: Final = 600.0
GONE_MAX: Final = 10_000
# A create without an answer may have happened: its claim is looked out for this long before another is made.
UNSURE_REST: Final = 5.0
COUNT_SECONDS: Final = 10.0


METRICS: Final[Declared] = {
    "dynamic_resource_allocation_resourceclaim_creates_total": (
        "counter",
        ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        "Claims created for pods, by how the create ended",
    ),
    "dynamic_resource_allocation_resource_claims": (
        "gauge",
        ("allocated", "admin_access", "source"),
        "Claims that exist; source says what made them",
    ),
}


class ClaimsController:
    """The decider. Work keys are ``pod:ns/name``, ``claim:ns/name`` and ``consumer:ns/name``."""

    name = "claims"
    kinds: Sequence[Kind] = (PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_QUOTAS)

    def __init__(self, world: World, gates: Gates | None = None, meter: Meter | None = None) -> None:
        self._world = world
        self._gates = gates or Gates.dray()
        self._meter = meter or Silent()
        self._work = Work()
        self._started = False
        self._pods_by_claim = world.index(PODS, claims_of)
        self._pods_by_template = world.index(PODS, _templates_named_by)
        self._pods_by_uid = world.index(PODS, lambda pod: (pod.uid,))
        self._claims_by_consumer = world.index(RESOURCE_CLAIMS, _consumers)
        self._claims_by_owner = world.index(RESOURCE_CLAIMS, controller_of)
        self._made: dict[tuple[str, str], str] = {}  # (pod uid, entry) -> claim that was created, until the pod records it
        self._absent: set[str] = set()  # recorded claims that the API server does not have
        self._gone: dict[str, None] = {}  # uids of pods that are known not to exist any more
        self._alive: set[str] = set()  # uids of pods that exist although the World does not show them yet
        self._asked: dict[str, dict[str, None]] = {}  # pod -> uids of consumers of that name that may not exist any more
        self._unused: set[str] = set()  # uids of claims that were deallocated here and may lose their finalizer
        self._counted: Counter[Labels] = Counter()  # the census that was last told
        self._uncounted, self._count_at = True, 0.0  # whether claims changed since, and when it may be told again
        self._told: dict[str, tuple[str, float]] = {}  # pod uid -> last failure that was told, and when
        self._refused: list[tuple[str, str]] = []  # pod, and why its claim was not created

    # ------------------------------------------------------------------------------------------------------- observe

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Outcome):
            self._ended(event, now)
        elif event.kind == PODS:
            self._pod_changed(event)
        elif event.kind == RESOURCE_CLAIMS:
            self._claim_changed(event)
        elif event.kind == RESOURCE_QUOTAS:
            self._work.room(room_in(event))
        else:
            self._work.add(f"pod:{key}" for key in self._pods_by_template[event.object.key])

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        assert isinstance(pod, Pod)
        if change.new is None:
            self._remember_gone(pod.uid)
            self._forget_pod(pod)
        self._alive.discard(pod.uid)
        if change.new is None or _done(pod):
            self._touch_claims_of(pod.uid)
            return
        if pod.spec.node_name:
            self._work.add(f"claim:{key}" for key in claims_of(pod))
        if pod.spec.resource_claims:
            self._work.add([f"pod:{pod.key}"])
            if isinstance(change.old, Pod) and change.old.status.resource_claim_statuses != pod.status.resource_claim_statuses:
                self._work.add(f"claim:{key}" for key in self._claims_by_owner[pod.uid])

    def _claim_changed(self, change: Change) -> None:
        claim = change.object
        assert isinstance(claim, ResourceClaim)
        self._uncounted = True
        if change.new is None:
            self._unused.discard(claim.uid)
            self._work.forget(f"claim:{claim.key}")
        else:
            self._absent.discard(claim.key)
            self._work.add([f"claim:{claim.key}"])
            if claim.status.allocation is not None:
                self._unused.discard(claim.uid)
        self._work.add(f"pod:{key}" for key in self._pods_by_claim[claim.key])
        for key in (key for uid in controller_of(claim) for key in self._pods_by_uid[uid]):
            if change.old is None:
                self._work.forget(f"pod:{key}")  # what it rests for is here
            self._work.add([f"pod:{key}"])

    def _touch_claims_of(self, uid: str) -> None:
        self._work.add(f"claim:{key}" for key in (*self._claims_by_consumer[uid], *self._claims_by_owner[uid]))

    def _remember_gone(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]

    def _forget_pod(self, pod: Pod) -> None:
        self._told.pop(pod.uid, None)
        for entry in pod.spec.resource_claims:
            self._made.pop((pod.uid, entry.name), None)
        self._work.forget(f"pod:{pod.key}")

    # ------------------------------------------------------------------------------------------------------ outcomes

    def _ended(self, outcome: Outcome, now: float) -> None:
        write = outcome.write
        if write.kind == EVENTS:
            return  # an event that is lost is told again with the next failure
        key, answered = _work_key(write), False
        if write.verb == "create":
            self._create_ended(outcome)
            if isinstance(outcome.error, Forbidden | Invalid):
                entry = write.body["metadata"]["annotations"][POD_CLAIM_NAME]
                self._refused.append((write.about, f"PodResourceClaim {entry}: {outcome.steady(outcome.error.message)}"))
        elif _is_question(write):
            answered = self._answered(outcome)
        elif outcome.ok and _deallocates(write):
            self._unused.add(write.uid)
        if answered or outcome.ok or isinstance(outcome.error, NotFound):
            self._work.succeeded(key)
        else:
            unsure = write.verb == "create" and outcome.error is not None and outcome.error.in_doubt
            self._work.failed(key, now, UNSURE_REST if unsure else 0.0, over_quota(outcome))

    def _create_ended(self, outcome: Outcome) -> None:
        body = outcome.write.body
        ended = "success" if outcome.ok else "failure"
        admin = _truth(_plain_admin_access(body["spec"]))
        self._meter.count("dynamic_resource_allocation_resourceclaim_creates_total", (ended, admin, "", "Pod"))
        if outcome.object is not None:
            owner, entry = body["metadata"]["ownerReferences"][0]["uid"], body["metadata"]["annotations"][POD_CLAIM_NAME]
            self._made[(owner, entry)] = outcome.object["metadata"]["name"]

    def _answered(self, outcome: Outcome) -> bool:
        """Take in whether something exists. False when there was no answer and it must be asked again."""
        write, error = outcome.write, outcome.error
        missing = isinstance(error, NotFound)
        if write.kind == RESOURCE_CLAIMS and missing:
            self._absent.add(write.key)
        elif write.kind == PODS and (missing or outcome.object is not None):
            found = outcome.object["metadata"]["uid"] if outcome.object is not None else ""
            for uid in self._asked.get(write.key, ()):
                if uid != found:
                    self._remember_gone(uid)
                elif not self._pods_by_uid[uid]:
                    self._alive.add(uid)
        return outcome.ok or missing

    # ----------------------------------------------------------------------------------------------------------- act

    def act(self, now: float) -> list[Write]:
        if not self._started:
            self._started = True
            self._work.add(f"pod:{key}" for key, pod in self._world.all(PODS).items() if pod.spec.resource_claims)
            self._work.add(f"claim:{key}" for key in self._world.all(RESOURCE_CLAIMS))
        if self._uncounted and now >= self._count_at:
            self._uncounted, self._count_at = False, now + COUNT_SECONDS
            self._tell_census()
        writes = [
            event for key, why in self._refused if (pod := self._world.get(PODS, key)) for event in self._tell(pod, why, now)
        ]
        self._refused.clear()
        while keys := self._work.take(now):
            for key in keys:
                made = self._look_at(key, now)
                decided = [write for write in made if write.kind != EVENTS]
                for write in decided:
                    self._work.started(_work_key(write))
                if not decided:
                    self._work.started(key, 0)
                writes += made
        return writes

    def _look_at(self, key: str, now: float) -> list[Write]:
        part, _, name = key.partition(":")
        if part == "pod":
            return self._pod(name, now)
        if part == "claim":
            return self._claim(name)
        for uid in self._asked.pop(name, ()):  # a question about consumers was answered, or must be asked again
            self._touch_claims_of(uid)
        return []

    def wake(self) -> float | None:
        due = self._work.wake()
        if not self._uncounted or isinstance(self._meter, Silent):
            return due
        return self._count_at if due is None else min(due, self._count_at)

    # ---------------------------------------------------------------------------------------- claims that a pod needs

    def _pod(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self._world.get(PODS, key)
        if pod is None or pod.metadata.deletion_timestamp or pod.terminal:
            return []
        names: dict[str, str] = {}
        writes: list[Write] = []
        for entry in pod.spec.resource_claims:
            if not entry.resource_claim_template_name or needs_none(pod, entry):
                continue
            found = self._generated(pod, entry)
            if isinstance(found, ResourceClaim):
                names[entry.name] = found.metadata.name
            elif found is not None:
                writes.append(found)
            else:
                try:
                    writes.append(self._create(pod, entry))
                except TemplateError as error:
                    writes += self._tell(pod, f"PodResourceClaim {entry.name}: {error}", now)
        if any(write.kind != EVENTS for write in writes):
            return writes  # the names are recorded at once when all claims are there
        return writes + self._record(pod, names)

    def _generated(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | Write | None:
        """The claim that was generated for the entry, a question whether it exists, or None: it must be created."""
        known = recorded(pod, entry) or self._made.get((pod.uid, entry.name))
        if known:
            key = f"{pod.metadata.namespace}/{known}"
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is not None and pod.uid in controller_of(claim):
                return claim
            if claim is None and key not in self._absent:
                return _question(RESOURCE_CLAIMS, pod.metadata.namespace, known, about=pod.key)
            self._made.pop((pod.uid, entry.name), None)
        return self._orphan(pod, entry)

    def _orphan(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | None:
        """A claim that was created for the entry and never recorded."""
        owned = sorted(self._claims_by_owner[pod.uid])
        claims: list[ResourceClaim] = [self._world.get(RESOURCE_CLAIMS, key) for key in owned]
        return next((claim for claim in claims if made_for(claim, entry)), None)

    def _create(self, pod: Pod, entry: PodResourceClaim) -> Write:
        key = f"{pod.metadata.namespace}/{entry.resource_claim_template_name}"
        template: ResourceClaimTemplate | None = self._world.get(RESOURCE_CLAIM_TEMPLATES, key)
        if template is None:
            raise TemplateError(f'resourceclaimtemplate.resource.k8s.io "{entry.resource_claim_template_name}" not found')
        check_gates(template, self._gates)
        body = generated_claim(pod, entry, template)
        return Write("create", RESOURCE_CLAIMS, pod.metadata.namespace, body=body, field_manager=FIELD_MANAGER, about=pod.key)

    def _tell(self, pod: Pod, note: str, now: float) -> list[Write]:
        before, at = self._told.get(pod.uid, ("", 0.0))
        if before == note and now - at < EVENT_AGAIN:
            return []
        self._told[pod.uid] = (note, now)
        body = event_body(
            PODS,
            pod,
            now=now,
            type="Warning",
            reason="FailedResourceClaimCreation",
            note=note,
            action="CreateResourceClaim",
            controller="resource_claim",
        )
        return [Write("create", EVENTS, pod.metadata.namespace, body["metadata"]["name"], body, about=pod.key)]

    def _record(self, pod: Pod, names: Mapping[str, str]) -> list[Write]:
        """Names in the pod's status: all that are known, so that the list is whole whoever merges it."""
        known = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        if all(known.get(entry) == name for entry, name in names.items()):
            for entry in names:
                self._made.pop((pod.uid, entry), None)
            return []
        merged = {name: claim for name, claim in known.items() if claim} | dict(names)
        statuses = [{"name": name, "resourceClaimName": claim} for name, claim in sorted(merged.items())]
        return [
            Write(
                "patch",
                PODS,
                pod.metadata.namespace,
                pod.metadata.name,
                {"status": {"resourceClaimStatuses": statuses}},
                subresource="status",
                patch="strategic",
                uid=pod.uid,
                field_manager=FIELD_MANAGER,
                about=pod.key,
            )
        ]

    # ----------------------------------------------------------------------------------------- claims that were used

    def _claim(self, key: str) -> list[Write]:
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
        if claim is None:
            return []
        removed, unknown = self._finished_consumers(claim)
        writes = [self._ask(claim, who) for who in unknown]
        added = self._bypassed(claim, removed)
        if removed or added:
            return [*writes, _reserve(claim, removed, added)]
        return writes if claim.status.reserved_for else self._let_go(claim)

    def _finished_consumers(
        self, claim: ResourceClaim
    ) -> tuple[list[ResourceClaimConsumerReference], list[ResourceClaimConsumerReference]]:
        """The pods that no longer use the claim, and those of which it must be asked whether they exist."""
        removed, unknown = [], []
        for consumer in claim.status.reserved_for:
            if not is_pod(consumer):
                continue
            pod: Pod | None = self._world.get(PODS, f"{claim.metadata.namespace}/{consumer.name}")
            if consumer.uid in self._gone or (pod is not None and (pod.uid != consumer.uid or _done(pod))):
                removed.append(consumer)
            elif pod is None and consumer.uid not in self._alive and not self._asking(claim, consumer):
                unknown.append(consumer)
        return removed, unknown

    def _asking(self, claim: ResourceClaim, who: ResourceClaimConsumerReference) -> bool:
        key = f"{claim.metadata.namespace}/{who.name}"
        return self._work.writing(f"consumer:{key}") and who.uid in self._asked.get(key, ())

    def _ask(self, claim: ResourceClaim, who: ResourceClaimConsumerReference) -> Write:
        """Whether the pod exists. Its uid is no precondition: a conflict can have other causes and proves nothing."""
        question = _question(PODS, claim.metadata.namespace, who.name, about=claim.key)
        self._asked.setdefault(question.key, {})[who.uid] = None
        return question

    def _bypassed(self, claim: ResourceClaim, removed: Sequence[ResourceClaimConsumerReference]) -> list[Pod]:
        """Pods that are on a node and use the allocated claim although nobody reserved it for them."""
        if claim.status.allocation is None or claim.metadata.deletion_timestamp:
            return []
        room = RESERVED_FOR_MAX - len(claim.status.reserved_for) + len(removed)
        pods: list[Pod] = [self._world.get(PODS, key) for key in sorted(self._pods_by_claim[claim.key])]
        return [pod for pod in pods if not reserves(claim, pod) and _runs_with(pod, claim)][:room]

    def _let_go(self, claim: ResourceClaim) -> list[Write]:
        """A claim without consumers: free its devices, drop the finalizer, delete it; one write at a time."""
        protected = FINALIZER in claim.metadata.finalizers
        if protected and claim.metadata.deletion_timestamp and claim.status.allocation is not None:
            return [_status(claim, {"allocation": None})]
        if protected and claim.status.allocation is None and (claim.metadata.deletion_timestamp or claim.uid in self._unused):
            others = [name for name in claim.metadata.finalizers if name != FINALIZER]
            return [_patch(claim, {"metadata": {"finalizers": others or None}})]
        if not claim.metadata.deletion_timestamp and (self._outlived(claim) or self._surplus(claim)):
            return [
                Write(
                    "delete",
                    RESOURCE_CLAIMS,
                    claim.metadata.namespace,
                    claim.metadata.name,
                    uid=claim.uid,
                    resource_version=claim.metadata.resource_version,
                    field_manager=FIELD_MANAGER,
                    about=claim.key,
                )
            ]
        return []

    def _outlived(self, claim: ResourceClaim) -> bool:
        """Its pod is done. A pod that is unknown is left to the garbage collector."""
        owner = claim.metadata.controller
        if owner is None or owner.kind != "Pod" or owner.api_version != "v1":
            return False
        pod: Pod | None = self._world.get(PODS, f"{claim.metadata.namespace}/{owner.name}")
        return pod is not None and (pod.uid != owner.uid or _done(pod))

    def _surplus(self, claim: ResourceClaim) -> bool:
        """Its pod has another one for the entry that it was made for: a create that nobody answered came true too late."""
        key = next((key for uid in controller_of(claim) for key in self._pods_by_uid[uid]), "")
        pod: Pod | None = self._world.get(PODS, key) if claim.status.allocation is None else None
        for entry in pod.spec.resource_claims if pod is not None else ():
            if pod is not None and made_for(claim, entry) and recorded(pod, entry) not in ("", claim.metadata.name):
                other = self._world.get(RESOURCE_CLAIMS, f"{claim.metadata.namespace}/{recorded(pod, entry)}")
                return other is not None and pod.uid in controller_of(other) and made_for(other, entry)
        return False

    # -------------------------------------------------------------------------------------------------------- numbers

    def _tell_census(self) -> None:
        """The gauge is set soon after claims changed, and not with each change: all of them are counted."""
        if isinstance(self._meter, Silent):
            return
        census = self.census()
        for labels in {**self._counted, **census}:
            self._meter.gauge("dynamic_resource_allocation_resource_claims", census[labels], labels)
        self._counted = census

    def census(self) -> Counter[Labels]:
        """Claims by (allocated, admin access, source)."""
        return Counter(
            (
                _truth(claim.status.allocation is not None),
                _truth(_admin_access(claim.spec)),
                _source(claim),
            )
            for claim in self._world.all(RESOURCE_CLAIMS).values()
        )


# --------------------------------------------------------------------------------------------------- indexes and tests


def _done(pod: Pod) -> bool:
    """It will not use its devices (again): ended, or deleted before it had a node."""
    return pod.terminal or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def _templates_named_by(pod: Pod) -> list[str]:
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [f"{pod.metadata.namespace}/{name}" for name in names if name]


def _consumers(claim: ResourceClaim) -> list[str]:
    return [consumer.uid for consumer in claim.status.reserved_for]


def _runs_with(pod: Pod, claim: ResourceClaim) -> bool:
    """It is on a node, alive, and the claim is one that it may use: its own, or one that it names."""
    if not pod.spec.node_name or pod.terminal or pod.metadata.deletion_timestamp:
        return False
    named = any(entry.resource_claim_name == claim.metadata.name for entry in pod.spec.resource_claims)
    return named or pod.uid in controller_of(claim)


def _plain_admin_access(spec: Mapping[str, Any]) -> bool:
    return _admin_access(msgspec.convert(spec, ResourceClaimSpec))


def _admin_access(spec: ResourceClaimSpec) -> bool:
    return any(request.exactly is not None and request.exactly.admin_access for request in spec.devices.requests)


def _source(claim: ResourceClaim) -> str:
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
        return "extended_resource"
    return "resource_claim_template" if POD_CLAIM_NAME in claim.metadata.annotations else ""


def _truth(value: bool) -> str:
    return "true" if value else "false"


# ------------------------------------------------------------------------------------------------------------- writes


def _work_key(write: Write) -> str:
    """The key that a write belongs to."""
    if _is_question(write) and write.kind == PODS:
        return f"consumer:{write.key}"
    if write.kind == PODS or write.verb == "create" or _is_question(write):
        return f"pod:{write.about}"
    return f"claim:{write.key}"


def _question(kind: Kind, namespace: str, name: str, *, about: str) -> Write:
    """Does it exist? A patch of nothing, which the API server answers with the object or 404."""
    subresource = "status" if kind == PODS else ""
    return Write("patch", kind, namespace, name, {}, subresource=subresource, field_manager=FIELD_MANAGER, about=about)


def _is_question(write: Write) -> bool:
    return write.verb == "patch" and write.body == {}


def _deallocates(write: Write) -> bool:
    return write.kind == RESOURCE_CLAIMS and write.verb == "patch" and "allocation" in write.body.get("status", {})


def _reserve(claim: ResourceClaim, removed: Sequence[ResourceClaimConsumerReference], added: Sequence[Pod]) -> Write:
    """Consumers out and in. The last one out of a protected claim frees its devices in the same write."""
    changes: list[dict[str, Any]] = [{"$patch": "delete", "uid": consumer.uid} for consumer in removed]
    changes += [{"resource": "pods", "name": pod.metadata.name, "uid": pod.uid} for pod in added]
    status: dict[str, Any] = {"reservedFor": changes}
    if len(removed) == len(claim.status.reserved_for) and not added and FINALIZER in claim.metadata.finalizers:
        status["allocation"] = None
    return _status(claim, status)


def _status(claim: ResourceClaim, status: dict[str, Any]) -> Write:
    return _patch(claim, {"status": status}, subresource="status", patch="strategic")


def _patch(claim: ResourceClaim, body: dict[str, Any], *, subresource: str = "", patch: Any = "merge") -> Write:
    """A patch that happens only to the state that was decided on."""
    return Write(
        "patch",
        RESOURCE_CLAIMS,
        claim.metadata.namespace,
        claim.metadata.name,
        body,
        subresource=subresource,
        patch=patch,
        uid=claim.uid,
        resource_version=claim.metadata.resource_version,
        field_manager=FIELD_MANAGER,
        about=claim.key,
    )
