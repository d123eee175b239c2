"""Pods and pod templates: what users can get wrong in the fields that scheduling and devices depend on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from dray.api import names
from dray.api.validation.container_parts import security
from dray.api.validation.containers import containers
from dray.api.validation.errors import (
    Errors,
    FieldError,
    duplicate,
    each,
    forbidden,
    invalid,
    named,
    not_supported,
    one_of,
    required,
    required_name,
    unique,
)
from dray.api.validation.selectors import annotation_keys, label_selector, labels, node_selector, node_selector_term

Object = dict[str, Any]
_encode: Final = msgspec.json.Encoder().encode

MAX_SECONDS: Final = 2**31 - 1
REMEMBERED_BYTES: Final = 8 * 1024
_SYSCTL: Final = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?", re.ASCII)
_RESTART: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HONORED: Final = ("Honor", "Ignore")
_SYSTEMS: Final = ("linux", "windows")
_ZEROS: Final = re.compile(r"\b0+(?=\d+\b)(?!.*:)")
_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_PREEMPTION: Final = ("Never", "PreemptLowerPriority")


def pod(obj: Object) -> Iterable[FieldError]:
    encoded = _encode(obj.get("spec") or {})
    return _remembered(encoded) if len(encoded) <= REMEMBERED_BYTES else _problems(encoded)


@lru_cache(maxsize=256)
def _remembered(encoded: bytes) -> tuple[FieldError, ...]:
    """The pods of a workload have the same spec. Large ones are not kept: they could fill the memory."""
    return tuple(_problems(encoded))


def _problems(encoded: bytes) -> Errors:
    spec = msgspec.json.decode(encoded)
    yield from pod_spec(spec, "spec")
    yield from images(spec)
    yield from sysctls(spec)
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def sysctls(spec: Object) -> Errors:
    seen: set[str] = set()
    for index, sysctl in enumerate((spec.get("securityContext") or {}).get("sysctls") or ()):
        name, path = sysctl.get("name") or "", f"spec.securityContext.sysctls[{index}].name"
        if not name:
            yield required(path)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield invalid(path, name, f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$")
        elif name in seen:
            yield duplicate(path, name)
        seen.add(name)


def images(spec: Object) -> Errors:
    """Spaces around an image are refused in pods; in templates they were accepted for too long."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            image = container.get("image") or ""
            if image != image.strip():
                yield invalid(f"spec.{field}[{index}].image", image, "must not have leading or trailing whitespace")


def pod_template(template: Object | None, path: str, *, restart: tuple[str, ...]) -> Errors:
    """A workload's template; ``restart`` are the restart policies that it may have."""
    if template is None:
        yield required(path)
        return
    metadata = template.get("metadata") or {}
    yield from labels(metadata.get("labels"), f"{path}.metadata.labels")
    yield from annotation_keys(metadata.get("annotations"), f"{path}.metadata.annotations")
    spec = template.get("spec") or {}
    yield from pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        yield forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
    policy = spec.get("restartPolicy")
    if policy in _RESTART and policy not in restart:
        yield not_supported(f"{path}.spec.restartPolicy", policy, restart)


def pod_spec(spec: Object, path: str) -> Errors:
    yield from _volumes(spec.get("volumes"), f"{path}.volumes")
    yield from _pod_claims(spec.get("resourceClaims"), f"{path}.resourceClaims")
    yield from containers(spec, path)
    yield from one_of(spec.get("restartPolicy"), _RESTART, f"{path}.restartPolicy")
    yield from one_of(spec.get("dnsPolicy"), _DNS, f"{path}.dnsPolicy")
    yield from one_of(spec.get("preemptionPolicy"), _PREEMPTION, f"{path}.preemptionPolicy", optional=True)
    yield from _seconds(spec, path)
    yield from security(spec.get("securityContext") or {}, f"{path}.securityContext")
    yield from each(spec.get("hostAliases"), None, f"{path}.hostAliases", _host_alias)
    if spec.get("os") is not None:
        yield from one_of(spec["os"].get("name"), _SYSTEMS, f"{path}.os.name")
    yield from labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    yield from _names(spec, path)
    yield from each(spec.get("tolerations"), None, f"{path}.tolerations", _toleration)
    yield from _affinity(spec.get("affinity") or {}, f"{path}.affinity")
    yield from _spreads(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    gates = spec.get("schedulingGates")
    yield from each(gates, None, f"{path}.schedulingGates", _gate)
    yield from unique(gates, f"{path}.schedulingGates", lambda gate: gate.get("name"))


def _host_alias(alias: Object, path: str) -> Errors:
    address = alias.get("ip") or ""
    try:
        ip_address(_ZEROS.sub("", address))  # which Go's reader of such old fields skips
    except ValueError:
        yield invalid(f"{path}.ip", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
    for index, name in enumerate(alias.get("hostnames") or ()):
        yield from named(names.subdomain, name, f"{path}.hostnames[{index}]")


def _seconds(spec: Object, path: str) -> Errors:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_SECONDS:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {MAX_SECONDS}, inclusive")


def _names(spec: Object, path: str) -> Errors:
    for field in ("nodeName", "serviceAccountName", "priorityClassName", "runtimeClassName"):
        if spec.get(field):
            yield from named(names.subdomain, spec[field], f"{path}.{field}")
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from named(names.label, spec[field], f"{path}.{field}")


# claims


def _pod_claims(claims: list[Object] | None, path: str) -> Errors:
    yield from each(claims, None, path, _pod_claim)
    for error in unique(claims, path, lambda claim: claim.get("name")):
        yield error._replace(path=f"{error.path}.name")


def _pod_claim(claim: Object, path: str) -> Errors:
    yield from required_name(names.label, claim.get("name"), f"{path}.name")
    name, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
    words = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
    if name is not None and template is not None:
        yield invalid(path, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
    elif name is None and template is None:
        yield invalid(path, claim, words)
    for field, value in (("resourceClaimName", name), ("resourceClaimTemplateName", template)):
        if value is not None:
            yield from named(names.subdomain, value, f"{path}.{field}")


# volumes


def _volumes(volumes: list[Object] | None, path: str) -> Errors:
    yield from each(volumes, None, path, _volume)
    for error in unique(volumes, path, lambda volume: volume.get("name")):
        yield error._replace(path=f"{error.path}.name")


def _volume(volume: Object, path: str) -> Errors:
    yield from required_name(names.label, volume.get("name"), f"{path}.name")
    sources = [source for source, value in volume.items() if source != "name" and value is not None]
    if not sources:
        yield required(path, "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
    if len(sources) > 1:
        return
    claim = volume.get("persistentVolumeClaim")
    if claim is not None and not claim.get("claimName"):
        yield required(f"{path}.persistentVolumeClaim.claimName")
    if volume.get("hostPath") is not None and not volume["hostPath"].get("path"):
        yield required(f"{path}.hostPath.path")
    for source, field in (("secret", "secretName"), ("configMap", "name")):
        if volume.get(source) is not None:
            if not volume[source].get(field):
                yield required(f"{path}.{source}.{field}")
            yield from each(volume[source].get("items"), None, f"{path}.{source}.items", _item)
    if str((volume.get("emptyDir") or {}).get("sizeLimit") or "").startswith("-"):
        yield forbidden(f"{path}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _item(item: Object, path: str) -> Errors:
    for field in ("key", "path"):
        if not item.get(field):
            yield required(f"{path}.{field}")


# where it may run


def _toleration(toleration: Object, path: str) -> Errors:
    key, operator, effect = toleration.get("key"), toleration.get("operator") or "Equal", toleration.get("effect")
    if key:
        yield from named(names.qualified_name, key, f"{path}.key")
    elif operator != "Exists":
        words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{path}.operator", operator, words)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid(f"{path}.effect", effect or "", "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator == "Exists":
        if toleration.get("value"):
            yield invalid(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    elif operator in ("Equal", "Lt", "Gt"):
        yield from named(names.label_value, toleration.get("value") or "", f"{path}.operator")
    else:
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    yield from one_of(effect, _EFFECTS, f"{path}.effect", optional=True)


def _affinity(affinity: Object, path: str) -> Errors:
    node = affinity.get("nodeAffinity") or {}
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    if node.get(needed) is not None:
        yield from node_selector(node[needed], f"{path}.nodeAffinity.{needed}")
    for index, term in enumerate(node.get(preferred) or ()):
        place = f"{path}.nodeAffinity.{preferred}[{index}]"
        yield from _weight(term, place)
        yield from node_selector_term(term.get("preference") or {}, f"{place}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        yield from each(terms.get(needed), None, f"{path}.{kind}.{needed}", _pod_affinity_term)
        for index, term in enumerate(terms.get(preferred) or ()):
            place = f"{path}.{kind}.{preferred}[{index}]"
            yield from _weight(term, place)
            yield from _pod_affinity_term(term.get("podAffinityTerm") or {}, f"{place}.podAffinityTerm")


def _weight(term: Object, path: str) -> Errors:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _pod_affinity_term(term: Object, path: str) -> Errors:
    yield from label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    yield from label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        yield from named(names.label, namespace, f"{path}.namespace")
    if not term.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    else:
        yield from named(names.qualified_name, term["topologyKey"], f"{path}.topologyKey")


def _spreads(constraints: list[Object], path: str) -> Errors:
    yield from each(constraints, None, path, _spread)
    last: dict[tuple[str, str], int] = {}
    for index, constraint in enumerate(constraints):
        key = constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""
        if key in last:
            yield duplicate(f"{path}[{last[key]}].{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}")
        last[key] = index


def _spread(constraint: Object, path: str) -> Errors:
    if (constraint.get("maxSkew") or 0) <= 0:
        yield invalid(f"{path}.maxSkew", constraint.get("maxSkew") or 0, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from one_of(constraint.get("whenUnsatisfiable"), _UNSATISFIABLE, f"{path}.whenUnsatisfiable")
    domains = constraint.get("minDomains")
    if domains is not None and domains <= 0:
        yield invalid(f"{path}.minDomains", domains, "must be greater than zero")
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.get(field)
        if policy is not None and policy not in _HONORED:
            yield not_supported(f"{path}.{field}", policy, _HONORED)
    yield from label_selector(constraint.get("labelSelector"), f"{path}.labelSelector")


def _gate(gate: Object, path: str) -> Errors:
    yield from named(names.qualified_name, gate.get("name") or "", path)
