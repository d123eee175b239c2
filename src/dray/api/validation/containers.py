"""The containers of a pod: names, images, ports, resources, and the claims that they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.api import names
from dray.api.quantity import Quantity, QuantityError, quantities
from dray.api.requests import is_huge_pages, is_pod_level, together_in
from dray.api.validation.container_parts import host_ports, probes_and_hooks, resize_policies, security, variables
from dray.api.validation.errors import (
    Errors,
    duplicate,
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
            stays = field == "containers" or container.get("restartPolicy") == "Always"
            yield from probes_and_hooks(container, place, stays=stays)
            name = container.get("name") or ""
            if name and name in seen:
                yield duplicate(f"{place}.name", name)
            seen.add(name)
    on_the_host = bool(spec.get("hostNetwork"))
    yield from host_ports(spec.get("containers") or [], f"{path}.containers", on_the_host=on_the_host)
    if spec.get("resources") is not None:
        yield from _of_the_pod(spec, f"{path}.resources", scope)


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
    yield from variables(container, path)
    yield from resize_policies(container, path)
    yield from security(container.get("securityContext") or {}, f"{path}.securityContext")
    yield from _mounts(container.get("volumeMounts"), f"{path}.volumeMounts", scope)
    yield from _resources(container.get("resources") or {}, f"{path}.resources", _name, scope)


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


def _resources(value: Object, path: str, name_rule: Callable[[str, str], Errors], scope: _Scope) -> Errors:
    limits = quantities(value.get("limits") or {})
    requests = quantities(value.get("requests") or {})
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            place = f"{path}.{field}[{name}]"
            yield from name_rule(name, place)
            yield from _amount(name, amount, place)
    for name, amount in requests.items():
        yield from _within_limit(name, amount, limits.get(name), f"{path}.requests")
    if any(map(is_huge_pages, (*limits, *requests))) and not {"cpu", "memory"} & {*limits, *requests}:
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claims(value.get("claims"), f"{path}.claims", scope)


def _name(name: str, path: str) -> Errors:
    yield from named(names.qualified_name, name, path)
    if "/" not in name and name not in _STANDARD and not is_huge_pages(name):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def _amount(name: str, amount: Quantity, path: str) -> Errors:
    if amount.nanos < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    if is_huge_pages(name) and not _whole_pages(name, amount):
        yield invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")
    if names.is_extended_resource(name) and (amount != Quantity.of(amount.value) or amount.nanos > _MOST_NANOS):
        yield invalid(path, str(amount), "must be an integer")


def _whole_pages(name: str, amount: Quantity) -> bool:
    """``hugepages-2Mi`` come in multiples of 2Mi."""
    try:
        size = Quantity.parse(name.removeprefix(_HUGE_PAGES))
    except QuantityError:
        return False
    return size.nanos > 0 and size == Quantity.of(size.value) and amount.value % size.value == 0


def _within_limit(name: str, amount: Quantity, limit: Quantity | None, path: str) -> Errors:
    whole = names.is_extended_resource(name) or is_huge_pages(name)
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


# resources of the pod as a whole


def _of_the_pod(spec: Object, path: str, scope: _Scope) -> Errors:
    value = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    if value.get("claims") is not None:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from _resources(value, path, _pod_level_name, scope)
    yield from _covers_containers(spec, path)


def _pod_level_name(name: str, path: str) -> Errors:
    """What devices or plugins provide is asked for by containers."""
    problems = list(_name(name, path))
    yield from problems
    if not problems and not is_pod_level(name):
        yield not_supported(path, name, ("cpu", _HUGE_PAGES, "memory"))


def _covers_containers(spec: Object, path: str) -> Errors:
    """The pod requests what its containers do together, has room for each one's limit, and for all their huge pages."""
    requests = quantities(spec["resources"].get("requests") or {})
    for name, needed in together_in(spec, "requests").items():
        if name in requests and needed > requests[name]:
            words = f"must be greater than or equal to aggregate container requests of {needed}"
            yield invalid(f"{path}.requests[{name}]", str(requests[name]), words)
    limits = quantities(spec["resources"].get("limits") or {})
    for name, needed in together_in(spec, "limits").items():
        if is_huge_pages(name) and name in limits and needed > limits[name]:
            words = f"must be greater than or equal to aggregate container limits of {needed}"
            yield invalid(f"{path}.limits[{name}]", str(limits[name]), words)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in quantities((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and limit > limits[name]:
                # This is where Kubernetes finds it.
                place = f"{path}.containers[{index}][{name}].limits"
                yield invalid(place, str(limit), f"must be less than or equal to pod limits of {limits[name]}")
