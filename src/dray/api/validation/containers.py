"""The containers of a pod: names, images, ports, resources, and the claims that they use."""

from __future__ import annotations

from typing import Any, Final

from dray.api import names
from dray.api.quantity import Quantity, QuantityError, quantities
from dray.api.requests import is_pod_level
from dray.api.validation.errors import (
    Errors,
    duplicate,
    each,
    forbidden,
    invalid,
    named,
    not_found,
    not_supported,
    one_of,
    required,
    required_name,
)

Object = dict[str, Any]

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULL: Final = ("Always", "IfNotPresent", "Never")
_HANDLERS: Final = ("exec", "grpc", "httpGet", "tcpSocket")
_HUGE_PAGES: Final = "hugepages-"
# Upstream counts in thousandths of 64 bits, and takes what is more for a fraction.
_MOST_NANOS: Final = ((1 << 63) - 1) * 10**6
_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def containers(spec: Object, path: str) -> Errors:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    scope = _Scope(spec)
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            place = f"{path}.{field}[{index}]"
            yield from _container(container, place, scope)
            name = container.get("name") or ""
            if name and name in seen:
                yield duplicate(f"{place}.name", name)
            seen.add(name)
    yield from _of_the_pod(spec.get("resources") or {}, f"{path}.resources")


class _Scope:
    """What containers may refer to: the pod's claims and volumes."""

    def __init__(self, spec: Object) -> None:
        self.claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
        self.volumes: set[str | None] = {volume.get("name") for volume in spec.get("volumes") or ()}

    def expected(self) -> str:
        known = ", ".join(sorted(str(name) for name in self.claims))
        return f"must be one of the names in pod.spec.resourceClaims{f': {known}' if known else ' which is empty'}"


def _container(container: Object, path: str, scope: _Scope) -> Errors:
    yield from required_name(names.label, container.get("name"), f"{path}.name")
    if not container.get("image"):
        yield required(f"{path}.image")
    yield from one_of(container.get("imagePullPolicy"), _PULL, f"{path}.imagePullPolicy", optional=True)
    yield from _ports(container.get("ports"), f"{path}.ports")
    yield from each(container.get("env"), None, f"{path}.env", _variable)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe) is not None:
            yield from _probe(container[probe], f"{path}.{probe}")
    yield from _mounts(container.get("volumeMounts"), f"{path}.volumeMounts", scope)
    yield from resources(container.get("resources") or {}, f"{path}.resources", scope)


def _ports(ports: list[Object] | None, path: str) -> Errors:
    seen: set[str] = set()
    for index, port in enumerate(ports or ()):
        place = f"{path}[{index}]"
        name = port.get("name")
        if name:
            yield from named(names.port_name, name, f"{place}.name")
            if name in seen:
                yield duplicate(f"{place}.name", name)
            seen.add(name)
        yield from _number(port.get("containerPort"), f"{place}.containerPort", needed=True)
        yield from _number(port.get("hostPort"), f"{place}.hostPort", needed=False)
        yield from one_of(port.get("protocol"), _PROTOCOLS, f"{place}.protocol")


def _number(port: int | None, path: str, *, needed: bool) -> Errors:
    if not port:
        if needed:
            yield required(path)
    elif not 1 <= port <= 65535:
        yield invalid(path, port, "must be between 1 and 65535, inclusive")


def _variable(variable: Object, path: str) -> Errors:
    yield from required_name(names.env_name, variable.get("name"), f"{path}.name")
    if variable.get("value") and variable.get("valueFrom") is not None:
        yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")


def _probe(probe: Object, path: str) -> Errors:
    handlers = [handler for handler in _HANDLERS if probe.get(handler) is not None]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield invalid(f"{path}.{extra}", "", "may not specify more than 1 handler type")
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if (probe.get(field) or 0) < 0:
            yield invalid(f"{path}.{field}", probe[field], "must be greater than or equal to 0")


def _mounts(mounts: list[Object] | None, path: str, scope: _Scope) -> Errors:
    seen: set[str] = set()
    for index, mount in enumerate(mounts or ()):
        place = f"{path}[{index}]"
        name, where = mount.get("name"), mount.get("mountPath")
        if not name:
            yield required(f"{place}.name")
        elif name not in scope.volumes:
            yield not_found(f"{place}.name", name)
        if not where:
            yield required(f"{place}.mountPath")
        elif where in seen:
            yield invalid(f"{place}.mountPath", where, "must be unique")
        else:
            seen.add(where)


# resources


def resources(value: Object, path: str, scope: _Scope | None) -> Errors:
    limits = quantities(value.get("limits") or {})
    requests = quantities(value.get("requests") or {})
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _resource(name, amount, f"{path}.{field}[{name}]")
    for name, amount in requests.items():
        yield from _within_limit(name, amount, limits.get(name), f"{path}.requests")
    if any(name.startswith(_HUGE_PAGES) for name in (*limits, *requests)) and not {"cpu", "memory"} & {*limits, *requests}:
        yield forbidden(path, "HugePages require cpu or memory")
    if scope is not None:
        yield from _claims(value.get("claims"), f"{path}.claims", scope)


def _of_the_pod(value: Object, path: str) -> Errors:
    """Resources of the pod as a whole: what devices or plugins provide is asked for by containers."""
    for field in ("limits", "requests"):
        for name in value.get(field) or {}:
            if not is_pod_level(name):
                yield not_supported(f"{path}.{field}[{name}]", name, ("cpu", _HUGE_PAGES, "memory"))
    if value.get("claims"):
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    whole = {
        field: {name: amount for name, amount in (value.get(field) or {}).items() if is_pod_level(name)}
        for field in ("limits", "requests")
    }
    yield from resources(whole, path, None)


def _resource(name: str, amount: Quantity, path: str) -> Errors:
    yield from named(names.qualified_name, name, path)
    if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        yield invalid(path, name, "must be a standard resource type or fully qualified")
    if amount.nanos < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    if name.startswith(_HUGE_PAGES) and not _whole_pages(name, amount):
        yield invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")
    if names.is_extended_resource(name) and (amount != Quantity.of(amount.value) or amount.nanos > _MOST_NANOS):
        yield invalid(path, str(amount), "must be an integer")


def _whole_pages(name: str, amount: Quantity) -> bool:
    """``hugepages-2Mi`` come in multiples of 2Mi; a size that cannot be read is not judged."""
    try:
        size = Quantity.parse(name.removeprefix(_HUGE_PAGES))
    except QuantityError:
        return True
    return size.nanos <= 0 or amount.nanos % size.nanos == 0


def _within_limit(name: str, amount: Quantity, limit: Quantity | None, path: str) -> Errors:
    whole = names.is_extended_resource(name) or name.startswith(_HUGE_PAGES)
    if limit is None:
        if whole:
            yield required(path.replace("requests", "limits"), "Limit must be set for non overcommitable resources")
    elif whole and amount != limit:
        yield invalid(path, str(amount), f"must be equal to {name} limit of {limit}")
    elif amount > limit:
        yield invalid(path, str(amount), f"must be less than or equal to {name} limit of {limit}")


def _claims(claims: list[Object] | None, path: str, scope: _Scope) -> Errors:
    """A claim is used as a whole or by its requests, never both, and each once."""
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims or ()):
        place = f"{path}[{index}]"
        name, request = claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(place)
            continue
        if request:
            yield from named(names.label, request, f"{place}.request")
        if (name, request) in seen or (name, "") in seen or (not request and any(used == name for used, _ in seen)):
            yield duplicate(place, f"{name}/{request}" if request else name)
        elif name not in scope.claims:
            yield not_found(place, name)._replace(detail=scope.expected())
        seen.add((name, request))
