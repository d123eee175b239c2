"""Admission policies and their bindings: what they match, and expressions that must compile.

An expression is compiled as it will be evaluated. Match conditions know no variables, because they are asked first.
"""

from __future__ import annotations

import re
from typing import Any, Final

from dray.api.names import label1035, qualified_name, subdomain
from dray.api.validation.errors import Errors, duplicate, forbidden, invalid, named, not_supported, one_of, required, too_many
from dray.api.validation.extending import rule_with_operations
from dray.api.validation.selectors import conditions, label_selector
from dray.cel import types
from dray.cel.admission import Compiled, Compiler
from dray.cel.made import OBJECT, PATCH
from dray.cel.objects import Shape
from dray.cel.parser import RESERVED

Object = dict[str, Any]

_ACTIONS: Final = ("Audit", "Deny", "Warn")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_CHANGES: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_MUTATIONS: Final = {"ApplyConfiguration": ("applyConfiguration", OBJECT), "JSONPatch": ("jsonPatch", PATCH)}
_CONDITIONS: Final = 64
_ANNOTATIONS: Final = 20
_ANNOTATION_LENGTH: Final = 5 * 1024
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_KEYWORDS: Final = RESERVED | {"true", "false", "null", "in"}
_ANY: Final = Shape(types.DYN)


def validating_policy(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    yield from _common(spec)
    compiler = compiler_of(spec, composed=bool(spec.get("variables")))
    yield from _variables(spec, compiler)
    yield from _decisions(obj["metadata"].get("name") or "", spec, compiler)


def compiler_of(spec: Object, *, composed: bool) -> Compiler:
    return Compiler(params=_ANY if spec.get("paramKind") is not None else None, composed=composed)


def _decisions(name: str, spec: Object, compiler: Compiler) -> Errors:
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        for field in ("validations", "auditAnnotations"):
            yield required(f"spec.{field}", "validations or auditAnnotations must contain at least one item")
    for index, validation in enumerate(validations):
        yield from _validation(validation, compiler, f"spec.validations[{index}]")
    if len(annotations) > _ANNOTATIONS:
        yield invalid("spec.auditAnnotations", annotations, f"must not have more than {_ANNOTATIONS} auditAnnotations")
    seen = set[str]()
    for index, annotation in enumerate(annotations):
        path, key = f"spec.auditAnnotations[{index}]", annotation.get("key") or ""
        yield from _annotation(name, annotation, compiler, path)
        if key in seen:
            yield duplicate(f"{path}.key", key)
        seen.add(key)


def validating_binding(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    yield from _bound(spec)
    actions = spec.get("validationActions") or []
    path = "spec.validationActions"
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"{path}[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(f"{path}[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        told = "repeating the same validation failure information in the API response and headers serves no purpose"
        yield invalid(path, actions, f"must not contain both Deny and Warn ({told})")
    if not actions:
        yield required(path)


# ------------------------------------------------------------------------------------------------ what changes objects


def mutating_policy(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    yield from _common(spec)
    yield from _changeable(spec.get("matchConstraints"), "spec.matchConstraints")
    compiler = compiler_of(spec, composed=True)
    yield from _variables(spec, compiler)
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        yield from _mutation(mutation, compiler, f"spec.mutations[{index}]")
    yield from one_of(spec.get("reinvocationPolicy"), ("IfNeeded", "Never"), "spec.reinvocationPolicy")


def mutating_binding(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    yield from _bound(spec)
    yield from _changeable(spec.get("matchResources"), "spec.matchResources")


def _changeable(given: Object | None, path: str) -> Errors:
    """There is nothing to change of what is deleted."""
    for rule in (given or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in _CHANGES:
                yield not_supported(f"{path}.resourceRules.operations", operation, _CHANGES)


def _mutation(given: Object, compiler: Compiler, path: str) -> Errors:
    sort = given.get("patchType") or ""
    if not sort:
        yield required(f"{path}.patchType")
    elif sort not in _MUTATIONS:
        yield not_supported(f"{path}.patchType", sort, sorted(_MUTATIONS))
    else:
        field, wanted = _MUTATIONS[sort]
        if given.get(field) is None:
            yield required(f"{path}.{field}", f"must be specified when patchType is {sort}")
        else:
            text = (given[field].get("expression") or "").strip()
            if text:
                yield from _compiles(compiler.compile(text, (wanted,), patches=True), f"{path}.{field}.expression")
            else:
                yield required(f"{path}.{field}.expression")
        for other, _ in _MUTATIONS.values():
            if other != field and given.get(other) is not None:
                yield invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {sort}")


def status(obj: Object) -> Errors:
    given = obj.get("status") or {}
    for index, warning in enumerate((given.get("typeChecking") or {}).get("expressionWarnings") or ()):
        path = f"status.typeChecking.expressionWarnings[{index}]"
        for field in ("warning", "fieldRef"):
            if not (warning.get(field) or "").strip():
                yield required(f"{path}.{field}")
    yield from conditions(given.get("conditions"), "status.conditions")


# ---------------------------------------------------------------------------------------------- what all policies have


def _common(spec: Object) -> Errors:
    yield from one_of(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy")
    if spec.get("paramKind") is not None:
        yield from _param_kind(spec["paramKind"], "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from _match_resources(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    yield from _match_conditions(spec)


def _param_kind(given: Object, path: str) -> Errors:
    version, kind = given.get("apiVersion") or "", given.get("kind") or ""
    if not version:
        yield required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, name = version.rpartition("/")
        if group:
            yield from named(subdomain, group, f"{path}.apiVersion")
        if not name:
            yield invalid(f"{path}.apiVersion", version, "version must be specified")
        else:
            yield from named(label1035, name, f"{path}.apiVersion")
    if not kind:
        yield required(f"{path}.kind")
    else:
        for problem in label1035(kind.lower()):
            yield invalid(f"{path}.kind", kind, f"may have mixed case, but should otherwise match: {problem}")


def _match_resources(given: Object, path: str) -> Errors:
    yield from one_of(given.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy")
    for field in ("namespaceSelector", "objectSelector"):
        if given.get(field) is None:
            yield required(f"{path}.{field}")
        yield from label_selector(given.get(field), f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(given.get(field) or ()):
            place = f"{path}.{field}[{index}]"
            names = rule.get("resourceNames") or []
            for number, name in enumerate(names):
                yield from named(_path_segment, name, f"{place}.resourceNames[{number}]")
                if name in names[:number]:
                    yield duplicate(f"{place}.resourceNames[{number}]", name)
            yield from rule_with_operations(rule, place)


def _path_segment(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{each}'" for each in ("/", "%") if each in name]


def _match_conditions(spec: Object) -> Errors:
    given, path = spec.get("matchConditions") or [], "spec.matchConditions"
    if len(given) > _CONDITIONS:
        yield too_many(path, len(given), _CONDITIONS)
    compiler = compiler_of(spec, composed=False)
    seen = set[str]()
    for index, condition in enumerate(given):
        place, name, text = f"{path}[{index}]", condition.get("name") or "", (condition.get("expression") or "").strip()
        if not text:
            yield required(f"{place}.expression")
        else:
            yield from _compiles(compiler.compile(text, (types.BOOL,)), f"{place}.expression")
        if not name:
            yield required(f"{place}.name")
            continue
        yield from named(qualified_name, name, f"{place}.name")
        if name in seen:
            yield duplicate(f"{place}.name", name)
        seen.add(name)


def _variables(spec: Object, compiler: Compiler) -> Errors:
    for index, variable in enumerate(spec.get("variables") or ()):
        path, name, text = f"spec.variables[{index}]", variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            yield required(f"{path}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in _KEYWORDS:
            yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
        if not text.strip():
            yield required(f"{path}.expression", "expression is not specified")
        else:
            yield from _compiles(compiler.variable(name, text), f"{path}.expression")


def _compiles(compiled: Compiled, path: str) -> Errors:
    if compiled.error:
        yield invalid(path, compiled.text, compiled.error)


def _validation(given: Object, compiler: Compiler, path: str) -> Errors:
    text, message, made = given.get("expression") or "", given.get("message") or "", given.get("messageExpression") or ""
    if not text.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from _compiles(compiler.compile(text, (types.BOOL,)), f"{path}.expression")
    if made and not made.strip():
        yield invalid(f"{path}.messageExpression", made, "must be non-empty if specified")
    elif made:
        yield from _compiles(compiler.compile(made, (types.STRING,), authorizer=False), f"{path}.messageExpression")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    if given.get("reason") is not None and given["reason"] not in _REASONS:
        yield not_supported(f"{path}.reason", given["reason"], _REASONS)


def _annotation(name: str, given: Object, compiler: Compiler, path: str) -> Errors:
    key, whole = given.get("key") or "", given.get("valueExpression") or ""
    if name:
        yield from named(qualified_name, f"{name}/{key}", f"{path}.key")
    else:
        yield invalid(f"{path}.key", key, "requires metadata.name be non-empty")
    text = whole.strip()
    if not text:
        yield required(f"{path}.valueExpression", "valueExpression is not specified")
    elif len(text.encode()) > _ANNOTATION_LENGTH:
        yield required(f"{path}.valueExpression", f"must not exceed {_ANNOTATION_LENGTH} bytes in length")
    else:
        compiled = compiler.compile(text, (types.STRING, types.NULL))
        if compiled.error:
            yield invalid(f"{path}.valueExpression", whole, compiled.error)


# ---------------------------------------------------------------------------------------------- what all bindings have


def _bound(spec: Object) -> Errors:
    name = spec.get("policyName") or ""
    if not name:
        yield required("spec.policyName")
    else:
        yield from named(subdomain, name, "spec.policyName")
    if spec.get("paramRef") is not None:
        yield from _param_ref(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        yield from _match_resources(spec["matchResources"], "spec.matchResources")


def _param_ref(given: Object, path: str) -> Errors:
    name, selector = given.get("name") or "", given.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        yield from named(_path_segment, name, f"{path}.name")
        if selector is not None:
            yield forbidden(f"{path}.name", both)
    if selector is not None:
        yield from label_selector(selector, f"{path}.selector")
        if name:
            yield forbidden(f"{path}.selector", both)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    yield from one_of(given.get("parameterNotFoundAction"), ("Deny", "Allow"), f"{path}.parameterNotFoundAction")
