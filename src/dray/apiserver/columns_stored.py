"""Columns of the kinds that are only stored, of addresses behind Services, and of what workload controllers keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dray.apiserver.columns import AGE, NAME, Cell, Column, at, plain, selector_text, since

_SHOWN: Final = 3


def _several(values: Iterable[str], count: int) -> str:
    shown = list(values)[:_SHOWN]
    more = f" + {count - _SHOWN} more..." if count > _SHOWN else ""
    return ",".join(shown) + more or "<none>"


# ------------------------------------------------------------------------------------------------------------- workloads


def _job_template(field: str) -> Cell:
    def cell(obj: dict[str, Any], now: float) -> str:
        return ",".join(str(c.get(field, "")) for c in at(obj, "spec.jobTemplate.spec.template.spec.containers", ()))

    return cell


def _last_schedule(obj: dict[str, Any], now: float) -> str:
    last = at(obj, "status.lastScheduleTime")
    return since(last, now) if last else "<none>"


def _controller(obj: dict[str, Any], now: float) -> str:
    for owner in at(obj, "metadata.ownerReferences", ()):
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return "<none>"


CRON_JOBS: Final = (
    NAME,
    plain("Schedule", "spec.schedule", ""),
    plain("Timezone", "spec.timeZone"),
    Column("Suspend", lambda obj, now: str(bool(at(obj, "spec.suspend"))), "boolean"),
    Column("Active", lambda obj, now: len(at(obj, "status.active", ())), "integer"),
    Column("Last Schedule", _last_schedule),
    AGE,
    Column("Containers", _job_template("name"), wide=True),
    Column("Images", _job_template("image"), wide=True),
    Column("Selector", lambda obj, now: selector_text(at(obj, "spec.jobTemplate.spec.selector")), wide=True),
)
CONTROLLER_REVISIONS: Final = (NAME, Column("Controller", _controller), plain("Revision", "revision", 0), AGE)


# -------------------------------------------------------------------------------------------------------------- addresses


def _endpoints(obj: dict[str, Any], now: float) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [str(address.get("ip", "")) for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        found += [_host_port(ip, port.get("port")) for port in ports for ip in addresses] if ports else addresses
    return _several(found, len(found))


def _host_port(address: str, port: Any) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _slice_ports(obj: dict[str, Any], now: float) -> str:
    ports = obj.get("ports") or ()
    shown = [str(p["port"] if p.get("port") is not None else p.get("name") or "*") for p in ports]
    return _several(shown, len(shown)) if shown else "<unset>"


def _slice_addresses(obj: dict[str, Any], now: float) -> str:
    found = [str(address) for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return _several(found, len(found)) if found else "<unset>"


ENDPOINTS: Final = (NAME, Column("Endpoints", _endpoints), AGE)
ENDPOINT_SLICES: Final = (
    NAME,
    plain("AddressType", "addressType", ""),
    Column("Ports", _slice_ports),
    Column("Endpoints", _slice_addresses),
    AGE,
)


# ------------------------------------------------------------------------------------------------------------- networking


def _hosts(obj: dict[str, Any], now: float) -> str:
    found = [str(rule["host"]) for rule in at(obj, "spec.rules", ()) if rule.get("host")]
    return _several(found, len(found)) if found else "*"


def _ingress_address(obj: dict[str, Any], now: float) -> str:
    found = at(obj, "status.loadBalancer.ingress", ())
    return ",".join(str(each.get("ip") or each.get("hostname") or "") for each in found)


def _ingress_class_parameters(obj: dict[str, Any], now: float) -> str:
    found = at(obj, "spec.parameters")
    if found is None:
        return "<none>"
    group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
    return f"{found.get('kind', '')}{group}/{found.get('name', '')}"


def _parent(obj: dict[str, Any], now: float) -> str:
    found = at(obj, "spec.parentRef", {})
    group = f".{found['group']}" if found.get("group") else ""
    return f"{found.get('resource', '')}{group}/{found.get('namespace', '')}/{found.get('name', '')}" if found else "<none>"


INGRESSES: Final = (
    NAME,
    plain("Class", "spec.ingressClassName"),
    Column("Hosts", _hosts),
    Column("Address", _ingress_address),
    Column("Ports", lambda obj, now: "80, 443" if at(obj, "spec.tls") else "80"),
    AGE,
)
INGRESS_CLASSES: Final = (
    NAME,
    plain("Controller", "spec.controller", ""),
    Column("Parameters", _ingress_class_parameters),
    AGE,
)
NETWORK_POLICIES: Final = (NAME, Column("Pod-Selector", lambda obj, now: selector_text(at(obj, "spec.podSelector"))), AGE)
IP_ADDRESSES: Final = (NAME, Column("ParentRef", _parent), AGE)
SERVICE_CIDRS: Final = (NAME, Column("CIDRs", lambda obj, now: ",".join(map(str, at(obj, "spec.cidrs", ())))), AGE)
RUNTIME_CLASSES: Final = (NAME, plain("Handler", "handler", ""), AGE)


# ----------------------------------------------------------------------------------------------------- the API's own affairs


def _missing_level(obj: dict[str, Any], now: float) -> str:
    for condition in at(obj, "status.conditions", ()):
        if condition.get("type") == "Dangling":
            return str(condition.get("status", "?"))
    return "?"


FLOW_SCHEMAS: Final = (
    NAME,
    plain("PriorityLevel", "spec.priorityLevelConfiguration.name", ""),
    plain("MatchingPrecedence", "spec.matchingPrecedence", 0),
    plain("DistinguisherMethod", "spec.distinguisherMethod.type"),
    AGE,
    Column("MissingPL", _missing_level),
)
PRIORITY_LEVELS: Final = (
    NAME,
    plain("Type", "spec.type", ""),
    plain("NominalConcurrencyShares", "spec.limited.nominalConcurrencyShares"),
    plain("Queues", "spec.limited.limitResponse.queuing.queues"),
    plain("HandSize", "spec.limited.limitResponse.queuing.handSize"),
    plain("QueueLengthLimit", "spec.limited.limitResponse.queuing.queueLengthLimit"),
    AGE,
)
AUTOSCALERS: Final = (
    NAME,
    Column("Reference", lambda obj, now: f"{at(obj, 'spec.scaleTargetRef.kind', '')}/{at(obj, 'spec.scaleTargetRef.name', '')}"),
    plain("MinPods", "spec.minReplicas", "<unset>"),
    plain("MaxPods", "spec.maxReplicas", 0),
    plain("Replicas", "status.currentReplicas", 0),
    AGE,
)


def _host(obj: dict[str, Any], now: float) -> str:
    found = at(obj, "spec.service")
    return f"{found.get('namespace', '')}/{found.get('name', '')}" if found else "Local"


def _available(obj: dict[str, Any], now: float) -> str:
    for condition in at(obj, "status.conditions", ()):
        if condition.get("type") == "Available":
            status = str(condition.get("status", ""))
            reason = condition.get("reason")
            return status if status == "True" or not reason else f"{status} ({reason})"
    return "Unknown"


API_SERVICES: Final = (NAME, Column("Service", _host), Column("Available", _available), AGE)
WEBHOOKS: Final = (NAME, Column("Webhooks", lambda obj, now: len(obj.get("webhooks") or ()), "integer"), AGE)
