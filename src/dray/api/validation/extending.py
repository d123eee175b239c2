"""What extends an API from outside: other servers (APIService) and webhooks. Dray stores them and calls nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from dray.api.names import label1035, subdomain
from dray.api.validation.errors import Errors, duplicate, invalid, named, not_supported, one_of, required
from dray.api.validation.selectors import label_selector

Object = dict[str, Any]

_REVIEWS: Final = ("v1", "v1beta1")
_HARMLESS: Final = ("None", "NoneOnDryRun")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def api_service(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    group, version = spec.get("group") or "", spec.get("version") or ""
    name = (obj.get("metadata") or {}).get("name")
    if name and name != f"{version}.{group}":
        yield invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{version}.{group}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        yield from named(subdomain, group, "spec.group")
    yield from named(label1035, version, "spec.version")
    for field, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < (spec.get(field) or 0) <= limit:
            yield invalid(f"spec.{field}", spec.get(field) or 0, f"must be positive and less than {limit}")
    yield from _other_server(spec)


def _other_server(spec: Object) -> Errors:
    service, bundle, careless = spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            yield invalid("spec.caBundle", f"{len(bundle)} bytes", "local APIServices may not have a caBundle")
        if careless:
            yield invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
        return
    for field in ("namespace", "name"):
        if not service.get(field):
            yield required(f"spec.service.{field}")
    if not 0 < service.get("port", 443) < 65536:
        told = "port is not valid: must be between 1 and 65535, inclusive"
        yield invalid("spec.service.port", service["port"], told)
    if careless and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")


def webhooks(obj: Object) -> Errors:
    """The rules of both kinds of webhook configurations."""
    seen: set[str] = set()
    for index, hook in enumerate(obj.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", hook.get("name") or ""
        yield from _qualified(name, f"{path}.name")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        yield from _webhook(hook, path)


def _qualified(name: str, path: str) -> Errors:
    if not name:
        yield required(path)
        return
    yield from named(subdomain, name, path)
    if name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _webhook(hook: Object, path: str) -> Errors:
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from rule_with_operations(rule, f"{path}.rules[{index}]")
    yield from one_of(hook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy", optional=True)
    yield from one_of(hook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", optional=True)
    yield from one_of(hook.get("reinvocationPolicy"), ("IfNeeded", "Never"), f"{path}.reinvocationPolicy", optional=True)
    effects = hook.get("sideEffects")
    if effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_HARMLESS)}")
    elif effects not in _HARMLESS:
        yield not_supported(f"{path}.sideEffects", effects, _HARMLESS)
    if not 1 <= hook.get("timeoutSeconds", 10) <= 30:
        told = "the timeout value must be between 1 and 30 seconds"
        yield invalid(f"{path}.timeoutSeconds", hook["timeoutSeconds"], told)
    for field in ("namespaceSelector", "objectSelector"):
        yield from label_selector(hook.get(field), f"{path}.{field}")
    yield from _address(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from _review_versions(hook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions")


def rule_with_operations(rule: Object, path: str) -> Errors:
    """Which requests a webhook or a policy is about."""
    yield from _list(rule.get("operations"), f"{path}.operations", "operations")
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    yield from _list(rule.get("apiGroups"), f"{path}.apiGroups", "API groups")
    yield from _list(rule.get("apiVersions"), f"{path}.apiVersions", "API versions")
    for index, value in enumerate(rule.get("apiVersions") or ()):
        if not value:
            yield required(f"{path}.apiVersions[{index}]")
    yield from _resources(rule.get("resources") or [], f"{path}.resources")
    yield from one_of(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{path}.scope", optional=True)


def _resources(resources: list[str], path: str) -> Errors:
    """No entry says again what another one with a wildcard says."""
    if not resources:
        yield required(path)
    all_of, everywhere = set[str](), set[str]()  # pods/*, */status
    plain = False
    for index, each in enumerate(resources):
        name, slash, sub = each.partition("/")
        if not each:
            yield required(f"{path}[{index}]")
        if not slash:
            plain = plain if not each else each != "*"
            continue
        if name in all_of:
            yield invalid(f"{path}[{index}]", each, f"if '{name}/*' is present, must not specify {each}")
        if sub in everywhere:
            yield invalid(f"{path}[{index}]", each, f"if '*/{sub}' is present, must not specify {each}")
        if sub == "*":
            all_of.add(name)
        if name == "*":
            everywhere.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        yield invalid(path, resources, "if '*' is present, must not specify other resources without subresources")


def _list(values: Sequence[str] | None, path: str, what: str) -> Errors:
    if not values:
        yield required(path)
    elif len(values) > 1 and "*" in values:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {what}")


def _address(config: Object, path: str) -> Errors:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(url, f"{path}.url")
    elif service is not None:
        for field in ("name", "namespace"):
            if not service.get(field):
                yield required(f"{path}.service.{field}", f"service {field} is required")
        if not 0 < service.get("port", 443) < 65536:
            told = "port is not valid: must be between 1 and 65535, inclusive"
            yield invalid(f"{path}.service.port", service["port"], told)


def _url(url: str, path: str) -> Errors:
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{form}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{form}")
    if not parts.netloc:
        yield invalid(path, parts.netloc, f"host must be specified{form}")
    if "@" in parts.netloc:
        yield invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    for name, found in (("fragments", parts.fragment), ("query parameters", parts.query)):
        if found:
            yield invalid(path, found, f"{name} are not permitted in the URL")


def _review_versions(versions: Sequence[str], path: str) -> Errors:
    known = ", ".join(_REVIEWS)
    if not versions:
        yield required(path, f"must specify one of {known}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from named(label1035, version, f"{path}[{index}]")
    if not set(versions) & set(_REVIEWS):
        yield invalid(path, list(versions), f"must include at least one of {known}")
