"""What ``kubectl get`` shows of each kind: one list of columns per kind, each cell a function of the object and the time.

Cells never fail: an object that lacks what a column shows gives ``<none>`` or ``<unknown>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.times import parse_time

Cell = Callable[[dict[str, Any], float], Any]


class Column(msgspec.Struct, frozen=True):
    """``wide`` columns are shown with ``-o wide`` only."""

    name: str
    cell: Cell
    type: str = "string"
    wide: bool = False
    format: str = ""
    description: str = ""


def at(obj: Any, path: str, absent: Any = None) -> Any:
    """The value at a dotted path, or ``absent``."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return absent if obj is None else obj


def human_duration(seconds: float) -> str:
    """``5s``, ``3m20s``, ``2h5m``, ``3d4h``, as apimachinery shortens it."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


def since(time: str | None, now: float) -> str:
    if not time:
        return "<unknown>"
    try:
        return human_duration(now - parse_time(time))
    except ValueError:
        return "<invalid>"


def plain(name: str, path: str, absent: Any = "<none>", *, type: str = "string", wide: bool = False) -> Column:
    return Column(name, lambda obj, now: at(obj, path, absent), type, wide)


def _count(name: str, path: str) -> Column:
    return Column(name, lambda obj, now: len(at(obj, path, ())), "integer")


def _elapsed(name: str, path: str) -> Column:
    return Column(name, lambda obj, now: since(at(obj, path), now))


NAME: Final = Column("Name", lambda obj, now: obj["metadata"].get("name", ""), format="name")
AGE: Final = _elapsed("Age", "metadata.creationTimestamp")
DEFAULT: Final = (NAME, AGE)


def selector_text(selector: Any) -> str:
    """A label selector as ``a=b,c in (d,e)``."""
    if not isinstance(selector, dict) or not selector:
        return "<none>"
    labels = selector.get("matchLabels", {}) if {"matchLabels", "matchExpressions"} & selector.keys() else selector
    parts = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    parts += [_expression(e) for e in selector.get("matchExpressions") or () if isinstance(e, dict)]
    return ",".join(parts) or "<none>"


def _expression(expression: dict[str, Any]) -> str:
    key, values = expression.get("key", ""), ",".join(map(str, expression.get("values") or ()))
    match expression.get("operator"):
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            return f"{key} {str(operator).lower()} ({values})"


CUSTOM_RESOURCE_DEFINITIONS: Final = (NAME, plain("Created At", "metadata.creationTimestamp", type="date"))

# ------------------------------------------------------------------------------------------------------------------ pods


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(at(pod, "status.containerStatuses", ()))


def _ready(pod: dict[str, Any], now: float) -> str:
    ready = sum(bool(status.get("ready")) for status in _containers(pod))
    return f"{ready}/{len(at(pod, 'spec.containers', ()))}"


def _pod_status(pod: dict[str, Any], now: float) -> str:
    reason = str(at(pod, "status.reason") or at(pod, "status.phase", "Unknown"))
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in at(pod, "status.conditions", ())):
        reason = "SchedulingGated"
    init = _init_reason(pod)
    if init:
        reason = init
    else:
        for status in reversed(_containers(pod)):
            reason = _state_reason(status.get("state") or {}) or reason
        running = any(status.get("ready") and at(status, "state.running") is not None for status in _containers(pod))
        if reason == "Completed" and running:
            reason = "Running" if _condition(pod, "Ready") == "True" else "NotReady"
    if at(pod, "metadata.deletionTimestamp"):
        if at(pod, "status.reason") == "NodeLost":
            return "Unknown"
        if at(pod, "status.phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _init_reason(pod: dict[str, Any]) -> str:
    statuses = at(pod, "status.initContainerStatuses", ())
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        if at(state, "terminated.exitCode") == 0 or status.get("started"):
            continue
        if "terminated" in state:
            return "Init:" + (_state_reason(state) or "Error")
        if at(state, "waiting.reason", "PodInitializing") != "PodInitializing":
            return f"Init:{at(state, 'waiting.reason')}"
        return f"Init:{index}/{len(at(pod, 'spec.initContainers', ()))}"
    return ""


def _state_reason(state: dict[str, Any]) -> str:
    if reason := at(state, "waiting.reason"):
        return str(reason)
    ended = state.get("terminated")
    if not isinstance(ended, dict):
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _condition(obj: dict[str, Any], type: str) -> str:
    return next((str(c.get("status")) for c in at(obj, "status.conditions", ()) if c.get("type") == type), "")


def _restarts(pod: dict[str, Any], now: float) -> str:
    count = sum(int(status.get("restartCount") or 0) for status in _containers(pod))
    last = [at(status, "lastState.terminated.finishedAt") for status in _containers(pod)]
    moments = [parse_time(moment) for moment in last if moment]
    return f"{count} ({human_duration(now - max(moments))} ago)" if count and moments else str(count)


def _readiness_gates(pod: dict[str, Any], now: float) -> str:
    gates = at(pod, "spec.readinessGates", ())
    if not gates:
        return "<none>"
    return f"{sum(_condition(pod, g.get('conditionType', '')) == 'True' for g in gates)}/{len(gates)}"


PODS: Final = (
    NAME,
    Column("Ready", _ready),
    Column("Status", _pod_status),
    Column("Restarts", _restarts),
    AGE,
    plain("IP", "status.podIP", wide=True),
    plain("Node", "spec.nodeName", wide=True),
    plain("Nominated Node", "status.nominatedNodeName", wide=True),
    Column("Readiness Gates", _readiness_gates, wide=True),
)

# ----------------------------------------------------------------------------------------------------------------- nodes


def _node_status(node: dict[str, Any], now: float) -> str:
    ready = {"True": "Ready", "": "Unknown"}.get(_condition(node, "Ready"), "NotReady")
    return ready + (",SchedulingDisabled" if at(node, "spec.unschedulable") else "")


def _roles(node: dict[str, Any], now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = at(node, "metadata.labels", {})
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} - {""}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or "<none>"


def _address(type: str) -> Cell:
    def cell(node: dict[str, Any], now: float) -> str:
        return next((str(a.get("address")) for a in at(node, "status.addresses", ()) if a.get("type") == type), "<none>")

    return cell


NODES: Final = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _roles),
    AGE,
    plain("Version", "status.nodeInfo.kubeletVersion", ""),
    Column("Internal-IP", _address("InternalIP"), wide=True),
    Column("External-IP", _address("ExternalIP"), wide=True),
    plain("OS-Image", "status.nodeInfo.osImage", "<unknown>", wide=True),
    plain("Kernel-Version", "status.nodeInfo.kernelVersion", "<unknown>", wide=True),
    plain("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", "<unknown>", wide=True),
)

# ------------------------------------------------------------------------------------------------------------- workloads


def _template(field: str) -> Cell:
    def cell(obj: dict[str, Any], now: float) -> str:
        return ",".join(str(c.get(field, "")) for c in at(obj, "spec.template.spec.containers", ()))

    return cell


_WORKLOAD: Final = (Column("Containers", _template("name"), wide=True), Column("Images", _template("image"), wide=True))
_SELECTOR: Final = Column("Selector", lambda obj, now: selector_text(at(obj, "spec.selector")), wide=True)
_OF_DESIRED: Final = Column("Ready", lambda obj, now: f"{at(obj, 'status.readyReplicas', 0)}/{at(obj, 'spec.replicas', 0)}")

DEPLOYMENTS: Final = (
    NAME,
    _OF_DESIRED,
    plain("Up-to-date", "status.updatedReplicas", 0, type="integer"),
    plain("Available", "status.availableReplicas", 0, type="integer"),
    AGE,
    *_WORKLOAD,
    _SELECTOR,
)
REPLICA_SETS: Final = (
    NAME,
    plain("Desired", "spec.replicas", 0, type="integer"),
    plain("Current", "status.replicas", 0, type="integer"),
    plain("Ready", "status.readyReplicas", 0, type="integer"),
    AGE,
    *_WORKLOAD,
    _SELECTOR,
)
STATEFUL_SETS: Final = (NAME, _OF_DESIRED, AGE, *_WORKLOAD)
DAEMON_SETS: Final = (
    NAME,
    plain("Desired", "status.desiredNumberScheduled", 0, type="integer"),
    plain("Current", "status.currentNumberScheduled", 0, type="integer"),
    plain("Ready", "status.numberReady", 0, type="integer"),
    plain("Up-to-date", "status.updatedNumberScheduled", 0, type="integer"),
    plain("Available", "status.numberAvailable", 0, type="integer"),
    Column("Node Selector", lambda obj, now: selector_text(at(obj, "spec.template.spec.nodeSelector"))),
    AGE,
    *_WORKLOAD,
    _SELECTOR,
)


def _job_status(job: dict[str, Any], now: float) -> str:
    for type, shown in (("Complete", "Complete"), ("Failed", "Failed"), ("SuccessCriteriaMet", "SuccessCriteriaMet")):
        if _condition(job, type) == "True":
            return shown
    if at(job, "metadata.deletionTimestamp"):
        return "Terminating"
    return "Suspended" if at(job, "spec.suspend") else "Running"


def _completions(job: dict[str, Any], now: float) -> str:
    done, wanted = at(job, "status.succeeded", 0), at(job, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(job, "spec.parallelism", 1)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: dict[str, Any], now: float) -> str:
    start, end = at(job, "status.startTime"), at(job, "status.completionTime")
    if not start:
        return ""
    return human_duration((parse_time(end) if end else now) - parse_time(start))


JOBS: Final = (
    NAME,
    Column("Status", _job_status),
    Column("Completions", _completions),
    Column("Duration", _job_duration),
    AGE,
    *_WORKLOAD,
    _SELECTOR,
)
POD_DISRUPTION_BUDGETS: Final = (
    NAME,
    plain("Min Available", "spec.minAvailable", "N/A"),
    plain("Max Unavailable", "spec.maxUnavailable", "N/A"),
    plain("Allowed Disruptions", "status.disruptionsAllowed", 0, type="integer"),
    AGE,
)

# ---------------------------------------------------------------------------------------------------- the rest of core


def _ports(service: dict[str, Any], now: float) -> str:
    def one(port: dict[str, Any]) -> str:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"

    return ",".join(one(port) for port in at(service, "spec.ports", ())) or "<none>"


def _quota(prefixes: Sequence[str], other: bool) -> Cell:
    def cell(quota: dict[str, Any], now: float) -> str:
        used, hard = at(quota, "status.used", {}), at(quota, "status.hard", {})
        names = [name for name in sorted(hard) if name.startswith(tuple(prefixes)) != other]
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return cell


def _storage(path: str) -> Cell:
    return lambda obj, now: at(obj, path, {}).get("storage", "")


def _modes(obj: dict[str, Any], now: float) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in at(obj, "spec.accessModes", ()))


def _bound_claim(volume: dict[str, Any], now: float) -> str:
    claim = at(volume, "spec.claimRef", {})
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


NAMESPACES: Final = (NAME, plain("Status", "status.phase", "Active"), AGE)
CONFIG_MAPS: Final = (
    NAME,
    Column("Data", lambda obj, now: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), "string"),
    AGE,
)
SECRETS: Final = (NAME, plain("Type", "type", "Opaque"), _count("Data", "data"), AGE)
SERVICE_ACCOUNTS: Final = (NAME, _count("Secrets", "secrets"), AGE)
SERVICES: Final = (
    NAME,
    plain("Type", "spec.type", "ClusterIP"),
    plain("Cluster-IP", "spec.clusterIP"),
    Column("External-IP", lambda obj, now: ",".join(at(obj, "spec.externalIPs", ())) or "<none>"),
    Column("Port(s)", _ports),
    AGE,
    _SELECTOR,
)
RESOURCE_QUOTAS: Final = (
    NAME,
    Column("Request", _quota(("limits.",), other=True)),
    Column("Limit", _quota(("limits.",), other=False)),
    AGE,
)
PERSISTENT_VOLUMES: Final = (
    NAME,
    Column("Capacity", _storage("spec.capacity")),
    Column("Access Modes", _modes),
    plain("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", ""),
    plain("Status", "status.phase", ""),
    Column("Claim", _bound_claim),
    plain("StorageClass", "spec.storageClassName", ""),
    plain("Reason", "status.reason", ""),
    AGE,
)
PERSISTENT_VOLUME_CLAIMS: Final = (
    NAME,
    plain("Status", "status.phase", ""),
    plain("Volume", "spec.volumeName", ""),
    Column("Capacity", _storage("status.capacity")),
    Column("Access Modes", _modes),
    plain("StorageClass", "spec.storageClassName", ""),
    AGE,
)


def _last_seen(event: dict[str, Any], now: float) -> str:
    first = event.get("firstTimestamp") or event.get("eventTime")
    count = at(event, "series.count") or event.get("count") or 1
    last = at(event, "series.lastObservedTime") or event.get("lastTimestamp") or first
    if count > 1 and event.get("firstTimestamp"):
        return f"{since(last, now)} (x{count} over {since(first, now)})"
    return since(last, now)


def _event_object(event: dict[str, Any], now: float) -> str:
    about = event.get("involvedObject") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name", "")
    return f"{kind}/{name}" if name else kind


def _event_source(event: dict[str, Any], now: float) -> str:
    component = at(event, "source.component") or event.get("reportingComponent") or ""
    host = at(event, "source.host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


EVENTS: Final = (
    Column("Last Seen", _last_seen),
    plain("Type", "type", ""),
    plain("Reason", "reason", ""),
    Column("Object", _event_object),
    plain("Subobject", "involvedObject.fieldPath", "", wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", lambda event, now: str(event.get("message") or "").strip()),
    Column("First Seen", lambda event, now: since(event.get("firstTimestamp") or event.get("eventTime"), now), wide=True),
    plain("Count", "count", 1, wide=True),
    Column("Name", NAME.cell, wide=True),
)

# ------------------------------------------------------------------------------------------------------- other groups

LEASES: Final = (NAME, plain("Holder", "spec.holderIdentity", ""), AGE)
PRIORITY_CLASSES: Final = (
    NAME,
    plain("Value", "value", 0, type="integer"),
    plain("Global-Default", "globalDefault", False, type="boolean"),
    plain("Preemption Policy", "preemptionPolicy", ""),
    AGE,
)
STORAGE_CLASSES: Final = (
    NAME,
    plain("Provisioner", "provisioner", ""),
    plain("ReclaimPolicy", "reclaimPolicy", ""),
    plain("VolumeBindingMode", "volumeBindingMode", ""),
    plain("AllowVolumeExpansion", "allowVolumeExpansion", False),
    AGE,
)
CSI_NODES: Final = (NAME, _count("Drivers", "spec.drivers"), AGE)
CSI_DRIVERS: Final = (
    NAME,
    plain("AttachRequired", "spec.attachRequired", True),
    plain("PodInfoOnMount", "spec.podInfoOnMount", False),
    plain("StorageCapacity", "spec.storageCapacity", False),
    AGE,
)
CSI_STORAGE_CAPACITIES: Final = (
    NAME,
    plain("StorageClassName", "storageClassName", ""),
    plain("Capacity", "capacity", "<unset>"),
    AGE,
)
VOLUME_ATTACHMENTS: Final = (
    NAME,
    plain("Attacher", "spec.attacher", ""),
    plain("PV", "spec.source.persistentVolumeName", ""),
    plain("Node", "spec.nodeName", ""),
    plain("Attached", "status.attached", False),
    AGE,
)


# ------------------------------------------------------------------------------------------------------ resource.k8s.io


def _claim_state(claim: dict[str, Any], now: float) -> str:
    states = ["deleted"] if at(claim, "metadata.deletionTimestamp") else []
    if at(claim, "status.allocation") is None:
        states.append("pending")
    else:
        states.append("allocated")
        if at(claim, "status.reservedFor"):
            states.append("reserved")
    return ",".join(states)


# Of a claim so many devices and pods are named.
_SHOWN: Final = 4


def _joined(values: Iterable[str]) -> str:
    unique = list(dict.fromkeys(values))
    more = f" +{len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
    return ",".join(unique[:_SHOWN]) + more or "<none>"


def _claim_devices(claim: dict[str, Any], now: float) -> str:
    results = at(claim, "status.allocation.devices.results", ())
    return _joined(f"{r.get('pool', '')}/{r.get('device', '')}" for r in results)


def _claim_users(claim: dict[str, Any], now: float) -> str:
    return _joined(str(user.get("name", "")) for user in at(claim, "status.reservedFor", ()))


def _slice_node(slice: dict[str, Any], now: float) -> str:
    spec = slice.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    if spec.get("allNodes"):
        return "<all>"
    return "<per device>" if spec.get("perDeviceNodeSelection") else "<selector>" if spec.get("nodeSelector") else "<none>"


def _rule_selector(rule: dict[str, Any], now: float) -> str:
    selector = at(rule, "spec.deviceSelector")
    if selector is None:
        return "<none>"
    return "/".join(str(selector.get(part) or "*") for part in ("driver", "pool", "device"))


def _rule_progress(rule: dict[str, Any], now: float) -> str:
    found = [c for c in at(rule, "status.conditions", ()) if c.get("type") == "EvictionInProgress"]
    return str(found[0].get("reason", "")) if found else "<none>"


RESOURCE_CLAIMS: Final = (
    NAME,
    Column("State", _claim_state),
    Column("Devices", _claim_devices),
    AGE,
    Column("Reserved For", _claim_users, wide=True),
)
RESOURCE_SLICES: Final = (
    NAME,
    Column("Node", _slice_node),
    plain("Driver", "spec.driver", ""),
    plain("Pool", "spec.pool.name", ""),
    _count("Devices", "spec.devices"),
    AGE,
    plain("Generation", "spec.pool.generation", 0, wide=True),
)
DEVICE_CLASSES: Final = (NAME, plain("Extended Resource", "spec.extendedResourceName"), AGE)
RESOURCE_CLAIM_TEMPLATES: Final = (NAME, _count("Requests", "spec.spec.devices.requests"), AGE)
DEVICE_TAINT_RULES: Final = (
    NAME,
    Column("Selector", _rule_selector),
    plain("Key", "spec.taint.key", ""),
    plain("Value", "spec.taint.value", ""),
    plain("Effect", "spec.taint.effect", ""),
    _elapsed("Added", "spec.taint.timeAdded"),
    Column("Eviction", _rule_progress),
    AGE,
)
