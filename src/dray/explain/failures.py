"""What schedulers and kubelets said of pods, read from what the API keeps of it: bindings and starts that failed, and how the
scheduler is set up as far as that shows in its words. Events and the pod's condition have it.

Always true: only sentences that ``words`` makes are recognised; the latest failure of a device wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Pod
from dray.api.gates import GATES
from dray.api.reason import Reason
from dray.api.times import parse_time
from dray.api.words import UPSTREAM

# As the texts of BindingFailed and BindingTimeout begin when they speak of a device.
_SAID: Final = re.compile(r"device (?P<device>[^\s/]+/\S+/[^\s/]+) (?:(?P<failed>could not be bound)|did not become ready)")
_WAITED: Final = re.compile(r" within (?P<seconds>[\d.]+) seconds\b")
_UNPREPARED: Final = "FailedPrepareDynamicResources"
# As the text of WriteFailed continues in an API server's words.
_LACKED: Final = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)'
)


class FailedBinding(msgspec.Struct, frozen=True):
    """A device (``driver/pool/name``) that could not be bound for a pod; ``at`` is None where nobody wrote the time down."""

    device: str
    pod: str
    message: str
    at: float | None = None
    timeout: bool = False
    uid: str = ""

    def of(self, pod: Pod) -> bool:
        """Whether it was this pod's: a namesake that is gone had its own."""
        return self.pod == pod.key and self.uid in ("", pod.uid)

    @property
    def driver(self) -> str:
        return self.device.partition("/")[0]

    @property
    def waited(self) -> float | None:
        """How many seconds were given to the device."""
        found = _WAITED.search(self.message) if self.timeout else None
        return float(found["seconds"]) if found is not None else None

    @property
    def reason(self) -> Reason:
        return Reason("BindingTimeout" if self.timeout else "BindingFailed", f"device/{self.device}")


def failed_bindings(events: Iterable[Mapping[str, Any]]) -> list[FailedBinding]:
    """One for each device and pod, the oldest first. Events are plain objects of either API."""
    found: dict[tuple[str, str], FailedBinding] = {}
    for event in events:
        failure = _of_event(event) if event.get("reason") == "FailedScheduling" else None
        if failure is not None:
            key = (failure.device, failure.pod)
            found[key] = max(failure, found.get(key, failure), key=_time)
    return sorted(found.values(), key=lambda failure: (_time(failure), failure.device, failure.pod))


def not_started(pod: Pod, events: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a kubelet says of a pod that has its node and does not start; the last that it said."""
    if not pod.spec.node_name or pod.status.phase != "Pending":
        return []
    about = [each for each in events if each.get("reason") == _UNPREPARED and _uid(each) == pod.uid]
    last = max(about, key=_when, default=None)
    return [f"Its kubelet cannot start it: {_text(last).rstrip('.')}."] if last is not None else []


def of_condition(pod: Pod) -> FailedBinding | None:
    """The failure that the pod's own condition tells of; when it was is not written there."""
    return _recognised(_said(pod), pod.key, pod.uid, None)


def switched_off(pod: Pod) -> list[str]:
    """The features that are off in the scheduler of a pod: it names them where it refuses the pod for that."""
    return sorted({name for name in re.findall(r"\w+", refusal_of(pod)) if name in GATES})


def refusal_of(pod: Pod) -> str:
    """Why its scheduler refused the pod when it last looked at it."""
    return _said(pod).partition(UPSTREAM)[0]


def lacked_right(pod: Pod) -> str:
    """What its scheduler lacks to write down where it is placed, as advice; '' where it was not that."""
    found = _LACKED.search(refusal_of(pod))
    if found is None:
        return ""
    right = f"{found['verb']} {found['resource']}" + (f" ({found['group']})" if found["group"] else "")
    return (
        f"let {found['user']} {right}: the scheduler lacks this right, and deploy/base/scheduler-rbac.yaml has all that it needs"
    )


def _said(pod: Pod) -> str:
    return next((c.message for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"), "") or ""


def resting(failures: Sequence[FailedBinding], rest: float, now: float) -> Iterator[tuple[str, float]]:
    """The devices that a scheduler leaves alone after a failure, and until when."""
    for failure in failures:
        if failure.at is not None and failure.at <= now < failure.at + rest:
            yield failure.device, failure.at + rest


def _time(failure: FailedBinding) -> float:
    return failure.at or 0.0


def _of_event(event: Mapping[str, Any]) -> FailedBinding | None:
    about, at = _about(event), _when(event)
    pod = f"{about.get('namespace')}/{about.get('name')}"
    return _recognised(_text(event), pod, _uid(event), parse_time(at) if at else None)


def _about(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("regarding") or event.get("involvedObject")
    return found if isinstance(found, Mapping) else {}


def _uid(event: Mapping[str, Any]) -> str:
    return str(_about(event).get("uid") or "")


def _when(event: Mapping[str, Any]) -> str:
    series = event.get("series")
    told_again = series.get("lastObservedTime") if isinstance(series, Mapping) else None
    first = event.get("eventTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    return str(told_again or first or "")


def _text(event: Mapping[str, Any]) -> str:
    return str(event.get("note") or event.get("message") or "")


def _recognised(said: str, pod: str, uid: str, at: float | None) -> FailedBinding | None:
    match = _SAID.match(said)
    ours = said.partition(UPSTREAM)[0].rstrip(".")
    return None if match is None else FailedBinding(match["device"], pod, ours, at, not match["failed"], uid)
