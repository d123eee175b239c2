"""What containers run, read and answer: probes and hooks, variables, resize policies, and who they run as."""

from __future__ import annotations

from typing import Any, Final

from dray.api import names
from dray.api.validation.errors import (
    Errors,
    duplicate,
    each,
    forbidden,
    invalid,
    named,
    not_supported,
    one_of,
    required,
    required_name,
)

Object = dict[str, Any]

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("exec", "grpc", "httpGet", "tcpSocket")
_HOOKS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_SECCOMP: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_RESIZED: Final = ("cpu", "memory")
_ON_RESIZE: Final = ("NotRequired", "RestartContainer")
_MOST: Final = 2**31 - 1


def variables(container: Object, path: str) -> Errors:
    yield from each(container.get("env"), None, f"{path}.env", _variable)
    for index, source in enumerate(container.get("envFrom") or ()):
        given = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        if len(given) != 1:
            words = "may not have more than one field specified at a time"
            yield invalid(f"{path}.envFrom", "", words if given else "must specify one of: `configMapRef` or `secretRef`")
        else:
            yield from required_name(names.subdomain, source[given[0]].get("name"), f"{path}.envFrom[{index}].{given[0]}.name")


def _variable(variable: Object, path: str) -> Errors:
    yield from required_name(names.env_name, variable.get("name"), f"{path}.name")
    source = variable.get("valueFrom")
    if source is None:
        return
    if variable.get("value"):
        yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif not any(source.get(field) is not None for field in _SOURCES):
        words = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(f"{path}.valueFrom", "", words)
    if source.get("fieldRef") is not None and not source["fieldRef"].get("fieldPath"):
        yield required(f"{path}.valueFrom.fieldRef.fieldPath")


def probes_and_hooks(container: Object, path: str, *, stays: bool) -> Errors:
    """``stays``: whether the container is one that keeps running, so that there is something to ask."""
    for field in (*_PROBES, "lifecycle"):
        if container.get(field) is None:
            continue
        if not stays:
            yield forbidden(f"{path}.{field}", "may not be set for init containers without restartPolicy=Always")
        elif field == "lifecycle":
            yield from _lifecycle(container["lifecycle"], f"{path}.lifecycle")
        else:
            yield from _probe(container[field], f"{path}.{field}")


def _lifecycle(lifecycle: Object, path: str) -> Errors:
    for hook in ("postStart", "preStop"):
        if lifecycle.get(hook) is not None:
            yield from _handler(lifecycle[hook], _HOOKS, f"{path}.{hook}")


def _probe(probe: Object, path: str) -> Errors:
    yield from _handler(probe, _HANDLERS, path)
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if (probe.get(field) or 0) < 0:
            yield invalid(f"{path}.{field}", probe[field], "must be greater than or equal to 0")


def _handler(given: Object, known: tuple[str, ...], path: str) -> Errors:
    handlers = [handler for handler in known if given.get(handler) is not None]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield invalid(f"{path}.{extra}", "", "may not specify more than 1 handler type")
    if handlers[:1] == ["exec"] and not given["exec"].get("command"):
        yield required(f"{path}.exec.command")
    if handlers[:1] in (["httpGet"], ["tcpSocket"]):
        yield from _port(given[handlers[0]].get("port", 0), f"{path}.{handlers[0]}.port")


def _port(port: int | str, path: str) -> Errors:
    if isinstance(port, str):
        yield from named(names.port_name, port, path)
    elif not 1 <= port <= 65535:
        yield invalid(path, port, "must be between 1 and 65535, inclusive")


def resize_policies(container: Object, path: str) -> Errors:
    seen: set[str] = set()
    for index, policy in enumerate(container.get("resizePolicy") or ()):
        resource = policy.get("resourceName")
        if resource and resource in seen:
            yield duplicate(f"{path}.resizePolicy[{index}]", resource)
        seen.add(resource or "")
        yield from one_of(policy.get("resourceName"), _RESIZED, f"{path}.resizePolicy")
        yield from one_of(policy.get("restartPolicy"), _ON_RESIZE, f"{path}.resizePolicy")


def security(context: Object, path: str) -> Errors:
    """Of a pod or of a container."""
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        number = context.get(field)
        if number is not None and not 0 <= number <= _MOST:
            yield invalid(f"{path}.{field}", number, f"must be between 0 and {_MOST}, inclusive")
    profile = context.get("seccompProfile")
    if profile is None:
        return
    if not profile.get("type"):
        yield required(f"{path}.seccompProfile.type", "type is required when seccompProfile is set")
    elif profile["type"] not in _SECCOMP:
        yield not_supported(f"{path}.seccompProfile.type", profile["type"], _SECCOMP)


def host_ports(containers: list[Object], path: str, *, on_the_host: bool) -> Errors:
    """A port of the node is for one of the containers that run together; in the node's network it is the container's own."""
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            host, place = port.get("hostPort"), f"{path}[{index}].ports[{number}].hostPort"
            if not host:
                continue
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{host}"
            if key in seen:
                yield duplicate(place, key)
            seen.add(key)
            if on_the_host and host != port.get("containerPort"):
                yield invalid(place, host, "must match `containerPort` when `hostNetwork` is true")
