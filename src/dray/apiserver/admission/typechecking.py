"""``status.typeChecking`` of policies: whether their expressions fit the types of the objects that they are about.

It warns only: a policy is evaluated as it is. In Kubernetes a controller writes it; here it is part of the write that brings the
policy, so that it is never behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dray.apiserver.custom.shape import Shape as Defined
from dray.apiserver.registry import Context, Registry, Resource
from dray.apiserver.schema import Schemas, Struct, Type
from dray.apiserver.schema.text import IMPLIED, OPEN

if TYPE_CHECKING:
    from dray.cel.objects import Shape

Object = dict[str, Any]

POLICIES: Final = "validatingadmissionpolicies.admissionregistration.k8s.io"
_MOST: Final = 10


class TypeChecking:
    """Of the policies of one server."""

    def __init__(self, registry: Registry, schemas: Schemas) -> None:
        self._registry, self._schemas = registry, schemas
        policies = registry.named(POLICIES)
        registry.replace(msgspec.structs.replace(policies, prepare=(*policies.prepare, self._checked)))

    def _checked(self, policy: Object, old: Object | None, context: Context) -> None:
        spec, status = policy.get("spec") or {}, policy.get("status") or {}
        generation = 1
        if old is not None:
            generation = old["metadata"].get("generation", 1) + (spec != old.get("spec"))
        if generation > status.get("observedGeneration", 0):
            found = list(self.warnings(spec))
            checked = {"observedGeneration": generation, "typeChecking": {"expressionWarnings": found} if found else {}}
            policy["status"] = status | checked

    # ---------------------------------------------------------------------------------------------------------- warnings

    def warnings(self, spec: Object) -> Iterator[Object]:
        resources = self._resources(spec)
        for index, validation in enumerate(spec.get("validations") or ()):
            for field in ("expression", "messageExpression"):
                text = validation.get(field)
                problems = [problem for each in resources if (problem := self._problem(spec, each, text))] if text else []
                if problems:
                    yield {"fieldRef": f"spec.validations[{index}].{field}", "warning": "\n".join(problems)}

    def _problem(self, spec: Object, resource: Resource, text: str) -> str:
        from dray.cel.admission import Compiler

        compiler = Compiler(params=self._params(spec.get("paramKind")), object=self._shape(resource))
        for variable in spec.get("variables") or ():
            compiler.variable(variable.get("name") or "", variable.get("expression") or "")
        error = compiler.compile(text).error.removeprefix("compilation failed: ")
        kind = resource.kind
        return f"{kind.group}/{kind.version}, Kind={kind.kind}: {error}\n" if error else ""

    def _resources(self, spec: Object) -> list[Resource]:
        """Those that the rules name, by kind; rules with wildcards say nothing of types."""
        found: dict[tuple[str, str, str], Resource] = {}
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
            groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
            if any("*" in each for each in (*groups, *versions)):
                continue
            plain = [each for each in rule.get("resources") or () if "*" not in each and "/" not in each]
            places = ((g, v, p) for g in sorted(groups) for v in sorted(versions) for p in sorted(plain))
            known = [resource for place in places if (resource := self._registry.find(*place)) is not None]
            for resource in known[:_MOST]:
                kind = resource.kind
                found[kind.group, kind.version, kind.kind] = resource
            if len(known) >= _MOST:
                break
        return [found[key] for key in sorted(found)]

    # ------------------------------------------------------------------------------------------------------------- types

    def _params(self, given: Object | None) -> Shape | None:
        if given is None:
            return None
        resource = self._registry.of_kind(given.get("apiVersion") or "", given.get("kind") or "")
        return self._shape(resource)

    def _shape(self, resource: Resource | None) -> Shape:
        from dray.cel import types
        from dray.cel.objects import Shape

        if resource is not None and isinstance(resource.structure, Defined):
            return self._of_definition(resource.structure)
        struct = self._schemas.kind(resource.kind) if resource is not None else None
        return Shape(types.DYN) if struct is None else self._of_struct(struct, f"{struct.package}.{struct.name}", ())

    def _of_definition(self, defined: Defined) -> Shape:
        from dray.apiserver.custom.rules import shape_of

        made = shape_of(defined.root, defined.kind.kind, root=True)
        assert made is not None
        for field in IMPLIED:
            made.fields[field.name] = self._of(field.type, ())
        return made

    def _of_struct(self, struct: Struct, name: str, within: tuple[str, ...]) -> Shape:
        from dray.cel import types
        from dray.cel.objects import Shape

        if name in within:
            return Shape(types.DYN)  # a type that contains itself
        inner = (*within, name)
        return Shape.of_object(name, {field.name: self._of(field.type, inner) for field in struct.fields.values()})

    def _of(self, given: Type, within: tuple[str, ...]) -> Shape:
        from dray.cel import types
        from dray.cel.objects import Shape

        if given.shape == "struct":
            struct = self._schemas.struct(given.name)
            return Shape(types.DYN) if given == OPEN or struct.open else self._of_struct(struct, given.name, within)
        if given.item is not None:
            item = self._of(given.item, within)
            return Shape.of_list(item, 1) if given.shape == "list" else Shape.of_map(item, 1)
        known = {"string": types.STRING, "bool": types.BOOL, "int32": types.INT, "int64": types.INT}
        known |= {"float": types.DOUBLE, "bytes": types.BYTES, "time": types.TIMESTAMP, "microtime": types.TIMESTAMP}
        return Shape(known.get(given.name, types.DYN))
