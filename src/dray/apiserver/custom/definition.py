"""Whether a CustomResourceDefinition can be served: names, versions, what may not change, and the schema of each version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from dray.api.names import subdomain
from dray.api.validation.errors import FieldError, forbidden, not_supported, required
from dray.apiserver.custom import paths, structural
from dray.apiserver.metadata import name_problem

Object = dict[str, Any]
Errors = Iterator[FieldError]

APPROVED: Final = "api-approved.kubernetes.io"
MAX_SELECTABLE: Final = 8
_PROTECTED: Final = re.compile(r"(?:.*\.)?(?:k8s\.io|kubernetes\.io)", re.ASCII)
_SEE: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
_SCALE_PATHS: Final = {
    "specReplicasPath": (".spec.",),
    "statusReplicasPath": (".status.",),
    "labelSelectorPath": (".spec.", ".status."),
}
_COLUMN_TYPES: Final = ("integer", "number", "string", "boolean", "date")
_COLUMN_FORMATS: Final = ("int32", "int64", "float", "double", "byte", "date", "date-time", "password")


def problems(definition: Object, old: Object | None) -> Errors:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    wanted = f"{names.get('plural') or ''}.{spec.get('group') or ''}"
    if definition["metadata"].get("name") != wanted:
        message = 'must be spec.names.plural+"."+spec.group'
        yield FieldError("metadata.name", "Invalid", definition["metadata"].get("name"), message)
    yield from _group(spec.get("group") or "")
    yield from _approval(definition, spec.get("group") or "")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield _one_of("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced"))
    yield from _names(names)
    if spec.get("preserveUnknownFields"):
        message = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield FieldError("spec.preserveUnknownFields", "Invalid", True, message)
    yield from _conversion(spec.get("conversion") or {})
    yield from _versions(spec, ((old or {}).get("spec") or {}).get("versions") or ())
    if old is not None:
        yield from _kept(spec, old)


def _group(group: str) -> Errors:
    if not group:
        yield required("spec.group")
    elif wrong := subdomain(group):
        yield FieldError("spec.group", "Invalid", group, wrong[0])
    elif "." not in group:
        yield FieldError("spec.group", "Invalid", group, "should be a domain with at least one dot")


def _approval(definition: Object, group: str) -> Errors:
    if not _PROTECTED.fullmatch(group):
        return
    given = (definition["metadata"].get("annotations") or {}).get(APPROVED) or ""
    path, words = f"metadata.annotations[{APPROVED}]", f'protected groups must have approval annotation "{APPROVED}"'
    if not given:
        yield required(path, f"{words}, {_SEE}")
    elif not given.startswith(("http://", "https://", "unapproved")):
        yield FieldError(path, "Invalid", given, f'{words} with either a URL or a reason starting with "unapproved", {_SEE}')


def _one_of(path: str, given: str, known: tuple[str, ...]) -> FieldError:
    return not_supported(path, given, known) if given else required(path)


def _names(names: Object) -> Errors:
    for field in ("plural", "singular", "kind", "listKind"):
        given, path = names.get(field) or "", f"spec.names.{field}"
        if not given:
            yield required(path)
        elif field in ("kind", "listKind"):
            if wrong := name_problem(given.lower(), "label1035"):
                yield FieldError(path, "Invalid", given, f"may have mixed case, but should otherwise match: {wrong}")
        elif wrong := name_problem(given, "label1035"):
            yield FieldError(path, "Invalid", given, wrong)
    for field in ("shortNames", "categories"):
        for index, given in enumerate(names.get(field) or ()):
            if wrong := name_problem(given, "label1035"):
                yield FieldError(f"spec.names.{field}[{index}]", "Invalid", given, wrong)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield FieldError("spec.names.listKind", "Invalid", names["listKind"], "kind and listKind may not be the same")


def _conversion(conversion: Object) -> Errors:
    strategy = conversion.get("strategy") or ""
    if strategy not in ("None", "Webhook"):
        yield _one_of("spec.conversion.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook")
    if strategy == "None" and webhook is not None:
        yield forbidden("spec.conversion.webhook", "should not be set when strategy is not set to Webhook")
    if strategy == "Webhook":
        if not (webhook or {}).get("clientConfig"):
            yield required("spec.conversion.webhook.clientConfig", "required when strategy is set to Webhook")
        if not (webhook or {}).get("conversionReviewVersions"):
            yield required("spec.conversion.webhook.conversionReviewVersions")


# --------------------------------------------------------------------------------------------------------------- versions


def _versions(spec: Object, before: Any) -> Errors:
    versions = spec.get("versions") or []
    known = {version.get("name"): version for version in before}
    if not versions:
        yield required("spec.versions", "must have at least one version")
        return
    names = [version.get("name") or "" for version in versions]
    if len(set(names)) != len(names):
        yield FieldError("spec.versions", "Invalid", names, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield FieldError("spec.versions", "Invalid", names, "must have exactly one version marked as storage version")
    if not any(version.get("storage") for version in versions):
        yield FieldError("status.storedVersions", "Invalid", [], "must have at least one stored version")
    for index, version in enumerate(versions):
        yield from _version(version, known.get(version.get("name")), f"spec.versions[{index}]")


def _version(version: Object, before: Object | None, path: str) -> Errors:
    if wrong := name_problem(version.get("name") or "", "label1035"):
        yield FieldError(f"{path}.name", "Invalid", version.get("name") or "", wrong)
    warning, place = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is not None and not version.get("deprecated"):
        yield FieldError(place, "Invalid", warning, "can only be set for deprecated versions")
    elif warning is not None and len(warning) > 256:
        yield FieldError(place, "TooLong", "", "may not be more than 256 bytes")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    place = f"{path}.schema.openAPIV3Schema"
    if schema is None:
        yield required(place, "schemas are required")
    elif before is None or (before.get("schema") or {}).get("openAPIV3Schema") != schema:
        # One that was accepted before may stay as it is.
        yield from structural.problems(schema, place)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _column(column, f"{path}.additionalPrinterColumns[{index}]")
    yield from _subresources(version.get("subresources") or {}, f"{path}.subresources")
    yield from _selectable(version.get("selectableFields") or (), schema or {}, f"{path}.selectableFields")


def _column(column: Object, path: str) -> Errors:
    if not column.get("name"):
        yield required(f"{path}.name")
    if column.get("type") not in _COLUMN_TYPES:
        yield FieldError(f"{path}.type", "Invalid", column.get("type") or "", f"must be one of {','.join(sorted(_COLUMN_TYPES))}")
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield FieldError(f"{path}.format", "Invalid", column["format"], f"must be one of {','.join(sorted(_COLUMN_FORMATS))}")
    if not column.get("jsonPath"):
        yield required(f"{path}.jsonPath")


def _path(given: str, path: str, read: Any) -> Errors:
    if not given:
        yield required(path)
        return
    try:
        read(given)
    except paths.PathError as error:
        yield FieldError(path, "Invalid", given, str(error))


def _subresources(given: Object, path: str) -> Errors:
    scale = given.get("scale")
    if scale is None:
        return
    for field, roots in _SCALE_PATHS.items():
        value = scale.get(field) or ""
        if not value and field == "labelSelectorPath":
            continue
        yield from _path(value, f"{path}.scale.{field}", paths.fields)
        if value and not value.startswith(roots):
            where = " or ".join(root.removesuffix(".") for root in roots)
            yield FieldError(f"{path}.scale.{field}", "Invalid", value, f"should be a json path under {where}")


def _selectable(given: Any, schema: Object, path: str) -> Errors:
    if len(given) > MAX_SELECTABLE:
        yield FieldError(path, "TooMany", len(given), f"{len(given)}: must have at most {MAX_SELECTABLE} items")
    seen = set()
    for index, field in enumerate(given):
        place, value = f"{path}[{index}].jsonPath", field.get("jsonPath") or ""
        wrong = list(_path(value, place, paths.fields))
        yield from wrong
        if wrong:
            continue
        if value in seen:
            yield FieldError(place, "Duplicate", value)
        seen.add(value)
        yield from _selected(paths.fields(value), schema, value, place)


def _selected(names: tuple[str, ...], schema: Object, value: str, path: str) -> Errors:
    if names[0] == "metadata":
        yield FieldError(path, "Invalid", value, "must not point to fields in metadata")
        return
    for name in names:
        schema = (schema.get("properties") or {}).get(name) or {}
    if schema.get("type") not in ("boolean", "integer", "string"):
        message = "must point to a field of type string, boolean or integer"
        yield FieldError(path, "Invalid", value, message if schema else f"{message} in the schema; it does not exist there")


def _kept(spec: Object, old: Object) -> Errors:
    before, status = old["spec"], old.get("status") or {}
    established = any(c.get("type") == "Established" and c.get("status") == "True" for c in status.get("conditions") or ())
    fixed = [("spec.group", spec.get("group"), before.get("group"))]
    names, were = spec.get("names") or {}, before.get("names") or {}
    fixed.append(("spec.names.plural", names.get("plural"), were.get("plural")))
    if established:
        fixed.append(("spec.scope", spec.get("scope"), before.get("scope")))
        fixed.append(("spec.names.kind", names.get("kind"), were.get("kind")))
    for path, now, then in fixed:
        if now != then:
            yield FieldError(path, "Invalid", now, "field is immutable")
    present = {version.get("name") for version in spec.get("versions") or ()}
    for index, stored in enumerate(status.get("storedVersions") or ()):
        if stored not in present:
            message = "missing from spec.versions; objects may be stored in it. Remove it from status.storedVersions once none is"
            yield FieldError(f"status.storedVersions[{index}]", "Invalid", stored, message)
