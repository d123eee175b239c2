"""The controller of device taints (KEP-5055): evicts pods that use tainted devices without a toleration, and says how far it is.

What must leave is worked out for every pod that a change concerns before anything is written, so that the status of a rule counts
all of them; the evictions themselves follow at a limited rate. An eviction is two writes: the condition ``DisruptionTarget``,
whose answer is also the live look at the pod, and then the delete of exactly that pod.

Always true: nothing is deleted before every kind is listed; no pod is deleted that does not have to leave now, by what is known
after the live look (what changes while the delete is on its way comes too late, as upstream: no precondition is about a taint
or a claim); a pod of the same name with another uid is never touched; deadlines come from the API, so a restart keeps them.
A rule with the annotation ``dray.dev/expires-at`` is removed at that time; one that is over when it is first seen evicts nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dray.api import disruption
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.meta import Condition
from dray.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.times import parse_time
from dray.api.tolerations import evicts
from dray.cluster.metrics import Declared, Meter, Silent
from dray.cluster.port import Change, Conflict, Event, NotFound, Outcome, Write
from dray.cluster.world import World
from dray.controllers import eviction_status as status
from dray.controllers.keyed import Keyed
from dray.controllers.pace import Pace
from dray.controllers.taints import Eviction, Taints, Users, eviction_of, leavable, tainted

CONTROLLER: Final = "device-taint-eviction-controller"
FIELD_MANAGER: Final = "dray-eviction"
EXPIRES_AT: Final = "dray.dev/expires-at"
RATE: Final = 20.0
PARALLEL: Final = 8
# Between two writes of one rule's status for one generation of it.
STATUS_SECONDS: Final = 10.0
# A scheduler may not know yet of a rule that is so young, and place another pod.
GRACE_SECONDS: Final = 7.0
# A rule for everything that is taken back at once must not keep evictions waiting behind as many events.
CANCELS_TOLD: Final = 200
# What happened just before a rule was made may be seen just after it: the watches of different kinds are not in step.
PREVIEW_SECONDS: Final = 1.0

BY_NAMES_ONLY: Final = (
    "the selector has deviceClassName or selectors, which cannot be evaluated for devices in use, so the rule taints nothing; "
    "select by driver, pool and device instead"
)

METRICS: Final[Declared] = {
    "device_taint_eviction_controller_pod_deletions_total": ("counter", (), "Pods that were evicted because of device taints"),
    "device_taint_eviction_controller_pod_deletion_duration_seconds": (
        "evictions",
        (),
        "Time from when a pod had to be evicted until it was deleted",
    ),
    "workqueue_depth": ("gauge", ("name",), "Items that wait for their time or their turn"),
    "workqueue_adds_total": ("counter", ("name",), "Items added to the queue"),
    "workqueue_retries_total": ("counter", ("name",), "Failed writes that are retried"),
    "workqueue_queue_duration_seconds": (
        "evictions",
        ("name",),
        "How long an item waited for its turn after it was due",
    ),
    "workqueue_work_duration_seconds": ("evictions", ("name",), "From its turn until a pod was on its way or need not leave"),
    "workqueue_unfinished_work_seconds": ("gauge", ("name",), "How long the evictions that are under way have taken, together"),
    "workqueue_longest_running_processor_seconds": ("gauge", ("name",), "How long the slowest of them has taken"),
}


class TaintEviction(Keyed):
    """The decider. Keys are ``namespace/name`` of pods, and names of rules."""

    name = "eviction"
    source = CONTROLLER
    kinds: Sequence[Kind] = (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_TAINT_RULES)

    def __init__(
        self,
        world: World,
        gates: Gates | None = None,
        meter: Meter | None = None,
        *,
        rate: float = RATE,
        burst: int = 0,
        parallel: int = PARALLEL,
    ) -> None:
        super().__init__(world)
        gates = gates or Gates.dray()
        self._on = gates("DRADeviceTaints")
        self._with_rules = self._on and gates("DRADeviceTaintRules")
        self._meter = meter or Silent()
        self._taints, self._users = Taints(), Users(world)
        self._pace, self._parallel = Pace(rate, burst or max(1, int(rate))), parallel
        self._dirty: dict[str, None] = {}  # pods to be judged again
        self._pending: dict[str, Eviction] = {}  # pods that must leave, now or later
        self._by_rule: dict[str, dict[str, None]] = {}  # uid of a rule -> the pods that must leave because of it
        self._leaving: dict[str, float] = {}  # pods whose turn has come, and since when
        self._resting: set[str] = set()  # of these, the ones whose last write failed
        self._marked: set[str] = set()  # uids of pods that were looked at live and carry the condition
        self._deleting: dict[str, tuple[str, Eviction]] = {}  # uid -> the delete that was sent and not answered
        self._evicted: dict[str, int] = {}  # uid of a rule -> pods evicted since this process started
        self._seen: dict[str, float] = {}  # uid of a rule -> when its spec was first seen here
        self._told: dict[str, tuple[int, float]] = {}  # uid of a rule -> generation and time of the last status
        self._cancels = 0  # told in this act
        self._now = 0.0

    # ------------------------------------------------------------------------------------------------------- observe

    def observe(self, event: Event, now: float) -> None:
        self._now = now
        super().observe(event, now)

    def concerned(self, change: Change) -> Iterable[str]:
        if not self._on:
            return ()
        if change.kind == PODS:
            self._pod_changed(change)
        elif change.kind == RESOURCE_CLAIMS:
            self._claim_changed(change)
        elif change.kind == RESOURCE_SLICES:
            self._slice_changed(change)
        elif self._with_rules:
            return self._rule_changed(change)
        return ()

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        assert isinstance(pod, Pod)
        if change.new is None or pod.metadata.deletion_timestamp is not None:
            self._settle_unanswered(pod.uid)
        if change.new is None:
            self._marked.discard(pod.uid)
            self._stays(pod.key)
        elif _uses_claims(pod) and (change.old is None or _relevant(change.old) != _relevant(pod)):
            self._dirty[pod.key] = None

    def _claim_changed(self, change: Change) -> None:
        """Its users are judged again if it is tainted, or if they were to leave until now."""
        new = change.new
        now_tainted = isinstance(new, ResourceClaim) and bool(self._taints) and tainted(self._taints, new)
        for claim in (change.old, new):
            for key in self._users.of_claim(claim) if isinstance(claim, ResourceClaim) else ():
                if now_tainted or key in self._pending:
                    self._dirty[key] = None

    def _slice_changed(self, change: Change) -> None:
        old, new = change.old, change.new
        assert old is None or isinstance(old, ResourceSlice)
        assert new is None or isinstance(new, ResourceSlice)
        self._dirty |= self._users.pods_on(self._taints.change_slice(old, new))

    def _rule_changed(self, change: Change) -> Iterable[str]:
        old, new = change.old, change.new
        assert old is None or isinstance(old, DeviceTaintRule)
        assert new is None or isinstance(new, DeviceTaintRule)
        if old is not None and new is not None and old.spec == new.spec and _expiry(old) == _expiry(new):
            lost = status.shown(old) is not None and status.shown(new) is None  # whoever waits for it would wait for ever
            return [new.metadata.name] if lost else ()
        touched: dict[str, None] = {}
        for rule in (old, new):
            if rule is not None and evicts(rule.spec.taint):
                touched |= dict.fromkeys(self._users.selected(rule.spec.device_selector))
        if new is not None and new.spec.device_selector is not None and not new.spec.device_selector.by_names:
            self.say(
                self._recorder.warning(DEVICE_TAINT_RULES, new, "SelectsNothing", BY_NAMES_ONLY, action="Evicting", now=self._now)
            )
        if old is not None:
            self._taints.drop_rule(old)
        if new is not None:
            if not _is_over(new, self._now):
                self._taints.put_rule(new)
            self._seen[new.uid] = self._now
        elif old is not None:
            self._seen.pop(old.uid, None)
            self._told.pop(old.uid, None)
            self._evicted.pop(old.uid, None)
        self._dirty |= self._users.pods_on(touched)
        return [change.object.metadata.name]

    # ----------------------------------------------------------------------------------------------------------- act

    def act(self, now: float) -> list[Write]:
        dirty, self._dirty, self._cancels = self._dirty, {}, 0
        for key in dirty:
            self._judge(key, now)
        for key, since in self._pace.due(now, self._places):
            self._leaving[key] = now
            self._work.add([key])
            self._meter.observe("workqueue_queue_duration_seconds", now - since, (CONTROLLER,))
        writes = super().act(now)
        taking = [now - since for since in self._leaving.values()]
        self._meter.gauge("workqueue_depth", len(self._pace), (CONTROLLER,))
        self._meter.gauge("workqueue_unfinished_work_seconds", sum(taking), (CONTROLLER,))
        self._meter.gauge("workqueue_longest_running_processor_seconds", max(taking, default=0.0), (CONTROLLER,))
        return writes

    def wake(self) -> float | None:
        # Without a place the next answer brings it up again.
        turn = self._pace.wake() if self._places > 0 else None
        wakes = [time for time in (super().wake(), turn) if time is not None]
        return min(wakes, default=None)

    @property
    def _places(self) -> int:
        """How many more may be evicted at the same time; those that rest after a failure keep nobody waiting."""
        return self._parallel - len(self._leaving) + len(self._resting)

    def decide(self, key: str, now: float) -> list[Write]:
        return self._leave(key, now) if "/" in key else self._rule(key, now)

    # ------------------------------------------------------------------------------------------------ who must leave

    def _judge(self, key: str, now: float) -> None:
        pod: Pod | None = self.world.get(PODS, key)
        before = self._pending.get(key)
        after = eviction_of(self.world, self._taints, pod) if pod is not None and (self._taints or before) else None
        if after == before:
            return
        self._stays(key)
        if after is not None:
            self._pending[key] = after
            self._pace.put(key, after.when)
            self._meter.count("workqueue_adds_total", (CONTROLLER,))
            self._count_in(key, after)
        elif pod is not None and leavable(pod):
            self._marked.discard(pod.uid)
            self._deleting.pop(pod.uid, None)
            self._cancels += 1
            if self._cancels <= CANCELS_TOLD:
                self.say(self._event(pod, "Cancelling deletion", now))

    def _stays(self, key: str) -> None:
        """The pod need not leave any more, or need not be told to."""
        before = self._pending.pop(key, None)
        if before is None:
            return
        self._pace.drop(key)
        if (since := self._leaving.pop(key, None)) is not None:
            self._meter.observe("workqueue_work_duration_seconds", max(0.0, self._now - since), (CONTROLLER,))
        self._resting.discard(key)
        for cause in before.causes:
            if cause.rule_uid in self._by_rule:
                self._by_rule[cause.rule_uid].pop(key, None)
                if not self._by_rule[cause.rule_uid]:
                    del self._by_rule[cause.rule_uid]
        self._work.add(_rules(before))

    def _count_in(self, key: str, eviction: Eviction) -> None:
        for cause in eviction.causes:
            if not cause.published:
                self._by_rule.setdefault(cause.rule_uid, {})[key] = None
        self._work.add(_rules(eviction))

    # ------------------------------------------------------------------------------------------------------ evictions

    def _leave(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        eviction = self._pending.get(key)
        if pod is None or eviction is None or key not in self._leaving:
            return []
        self._resting.discard(key)
        namespace, name = pod.metadata.namespace, pod.metadata.name
        if pod.uid in self._marked:
            self._deleting[pod.uid] = (key, eviction)
            self.say(self._event(pod, f"Marking for deletion: {_told(eviction)}", now))
            # Nothing takes it back once it is decided, so it must not wait behind the writes of others until its reason is gone.
            return [Write("delete", PODS, namespace, name, uid=pod.uid, field_manager=FIELD_MANAGER, goes_on=True)]
        told = disruption.target("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint", now)
        body = {} if disruption.is_target(pod) else {"status": {"conditions": [told]}}
        return [
            Write(
                "patch", PODS, namespace, name, body, subresource="status", patch="strategic", uid=pod.uid,
                field_manager=FIELD_MANAGER,
            )
        ]  # fmt: skip

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        write, error = outcome.write, outcome.error
        if write.kind == DEVICE_TAINT_RULES:
            if error is not None and write.subresource:
                self._told.pop(write.uid, None)
            return
        if error is None:
            self._succeeded(write)
        elif isinstance(error, NotFound | Conflict):
            self._deleting.pop(write.uid, None)
            self._stays(key)  # it is gone, and whoever has its name now is judged for itself
            self._dirty[key] = None
        else:
            pod: Pod | None = self.world.get(PODS, key)
            if not error.in_doubt:
                self._deleting.pop(write.uid, None)
            elif pod is None or pod.uid != write.uid or pod.metadata.deletion_timestamp is not None:
                self._happened(write.uid)
            if key in self._leaving:
                self._resting.add(key)
            self._meter.count("workqueue_retries_total", (CONTROLLER,))

    def _succeeded(self, write: Write) -> None:
        if write.verb == "patch":
            self._marked.add(write.uid)
        else:
            self._happened(write.uid)

    def _settle_unanswered(self, uid: str) -> None:
        """The pod is on its way: a delete of it that was never answered did happen."""
        if uid in self._deleting and not self._work.writing(self._deleting[uid][0]):
            self._happened(uid)

    def _happened(self, uid: str) -> None:
        sent = self._deleting.pop(uid, None)
        if sent is not None:
            self._count(sent[1], self._now)

    def _count(self, eviction: Eviction, now: float) -> None:
        self._meter.count("device_taint_eviction_controller_pod_deletions_total")
        self._meter.observe("device_taint_eviction_controller_pod_deletion_duration_seconds", max(0.0, now - eviction.when))
        for uid in {cause.rule_uid for cause in eviction.causes if not cause.published and cause.rule_uid in self._seen}:
            self._evicted[uid] = self._evicted.get(uid, 0) + 1
        self._work.add(_rules(eviction))

    def _event(self, pod: Pod, note: str, now: float) -> list[Write]:
        return self._recorder.normal(PODS, pod, "DeviceTaintManagerEviction", note, action="Evicting", now=now)

    # ---------------------------------------------------------------------------------------------------------- rules

    def _rule(self, name: str, now: float) -> list[Write]:
        rule: DeviceTaintRule | None = self.world.get(DEVICE_TAINT_RULES, name)
        if rule is None:
            self.forget(name)
            return []
        expiry = _expiry(rule)
        if _is_over(rule, now):
            version = rule.metadata.resource_version
            return [Write("delete", DEVICE_TAINT_RULES, name=name, uid=rule.uid, resource_version=version)]
        if expiry is not None:
            self.look_at(name, expiry)
        write = self._status(rule, now)
        if write is None:
            return []
        self._told[rule.uid] = (rule.metadata.generation, now)
        return [write]

    def _status(self, rule: DeviceTaintRule, now: float) -> Write | None:
        generation = rule.metadata.generation
        last, at = self._told.get(rule.uid, (0, 0.0))
        if last == generation and now < at + STATUS_SECONDS:
            self.look_at(rule.metadata.name, at + STATUS_SECONDS)
            return None
        wanted = self._condition(rule, now)
        return status.write(rule, wanted, now, FIELD_MANAGER) if wanted is not None and status.has_room(rule) else None

    def _condition(self, rule: DeviceTaintRule, now: float) -> Condition | None:
        """What the status should say; None while it stays as it is."""
        known, evicted = status.shown(rule), self._evicted.get(rule.uid, 0)
        said = known is not None and known.observed_generation == rule.metadata.generation
        seen = self._seen[rule.uid]
        if rule.spec.taint.effect == "None":
            if said or self._too_early(rule, seen + PREVIEW_SECONDS, now):
                return None
            published = self._taints.count_published(rule.spec.device_selector)
            return status.preview(rule, published, self._users.affected(rule), evicted)
        if not evicts(rule.spec.taint):
            return status.other_effect(rule, evicted)
        pending = self._by_rule.get(rule.uid, {})
        if not pending and not said and self._too_early(rule, seen + GRACE_SECONDS, now):
            return None
        return status.progress(rule, pending, evicted)

    def _too_early(self, rule: DeviceTaintRule, at: float, now: float) -> bool:
        if now < at:
            self.look_at(rule.metadata.name, at)
        return now < at


def _uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _relevant(pod: object) -> tuple[object, ...]:
    """What of a pod decides whether it must leave."""
    assert isinstance(pod, Pod)
    return (
        leavable(pod),
        pod.status.resource_claim_statuses,
        pod.status.extended_resource_claim_status,
    )


def _rules(eviction: Eviction) -> list[str]:
    return [cause.rule for cause in eviction.causes if not cause.published]


def _told(eviction: Eviction) -> str:
    told = [cause.text for cause in eviction.causes[:3]]
    more = len(eviction.causes) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _expiry(rule: DeviceTaintRule) -> float | None:
    """When the rule ends; a time that cannot be read is none."""
    try:
        return parse_time(rule.metadata.annotations[EXPIRES_AT])
    except (KeyError, ValueError):
        return None


def _is_over(rule: DeviceTaintRule, now: float) -> bool:
    expiry = _expiry(rule)
    return expiry is not None and expiry <= now
