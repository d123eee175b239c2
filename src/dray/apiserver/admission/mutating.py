"""MutatingAdmissionPolicies: one policy, compiled, and what it makes of one object."""

from __future__ import annotations

from typing import Any, Final

from dray.apiserver.admission.configurations import Configurations, Misfit, Unlike
from dray.apiserver.admission.evaluation import Conditions, View, compiler_of
from dray.apiserver.errors import ApiError
from dray.apiserver.patch import json_patch
from dray.apiserver.patch_errors import PatchError, Untrue
from dray.apiserver.schema import WRONG_TYPE, KindLike, Schemas
from dray.cel.admission import BUDGET, Activation, Compiled, PolicyError
from dray.cel.errors import Failure
from dray.cel.made import OBJECT, PATCH, configuration, misplaced, operation
from dray.cel.values import Made

Object = dict[str, Any]

JSON_PATCH: Final = "JSONPatch"


class Mutation:
    """One of ``mutations``."""

    def __init__(self, compiled: Compiled, is_patch: bool) -> None:
        self._compiled, self._is_patch = compiled, is_patch

    def made(
        self, values: dict[str, Any], variables: dict[str, Compiled], kind: KindLike, obj: Object, schemas: Schemas
    ) -> Object:
        """The object after it. A PolicyError where it cannot be made."""
        value = Activation(values, variables, BUDGET).evaluate(self._compiled)
        try:
            return _patched(kind, obj, value, schemas) if self._is_patch else _applied(kind, obj, value, schemas)
        except Failure as failure:
            raise PolicyError(failure.message) from None


class MutatingPolicy:
    """Compiled once for each version of a policy."""

    def __init__(self, spec: Object) -> None:
        compiler = compiler_of(spec)
        self._conditions = Conditions(spec.get("matchConditions") or [], compiler)
        self.variables = compiler.variables
        self.mutations: list[Mutation] = []
        for each in spec.get("mutations") or ():
            is_patch = each["patchType"] == JSON_PATCH
            text = each["jsonPatch" if is_patch else "applyConfiguration"].get("expression") or ""
            compiled = compiler.compile(text, (PATCH if is_patch else OBJECT,), patches=True)
            self.mutations.append(Mutation(compiled, is_patch))

    def holds(self, view: View, params: Object | None) -> bool:
        """A PolicyError when that cannot be said."""
        return self._conditions.hold(view.values(params), self.variables)


def _applied(kind: KindLike, obj: Object, made: Made, schemas: Schemas) -> Object:
    _placed(made)
    try:
        found = Configurations(schemas).applied(kind, obj, configuration(made))
    except Misfit as misfit:
        raise PolicyError(f"error applying patch: {misfit}") from None
    except Unlike as unlike:
        raise PolicyError(str(unlike)) from None
    return schemas.normalise(kind, found)[0]


def _patched(kind: KindLike, obj: Object, made: tuple[Made, ...], schemas: Schemas) -> Object:
    for each in made:
        if isinstance(each.fields.get("value"), Made):
            _placed(each.fields["value"])
    try:
        found = json_patch(obj, [operation(each) for each in made])
    except Untrue:
        return obj  # what the patch is for is not so
    except PatchError as error:
        raise PolicyError(f"JSON Patch: {error.message}") from None
    return _decoded(kind, found, schemas)


def _decoded(kind: KindLike, found: Object, schemas: Schemas) -> Object:
    """Whatever the policy says of failures, an object that is none is an error of the server."""
    given = found.get("apiVersion") or kind.api_version, found.get("kind") or kind.kind
    if given != (kind.api_version, kind.kind):
        raise _broken(f"unable to decode {given[0]}, Kind={given[1]} into {kind.api_version}, Kind={kind.kind}")
    made, problems = schemas.normalise(kind, {**found, "apiVersion": kind.api_version, "kind": kind.kind})
    wrong = [problem.message for problem in problems if problem.category == WRONG_TYPE]
    if wrong:
        raise _broken(wrong[0])
    if problems:
        raise _broken(f"strict decoding error: {', '.join(problem.message for problem in problems)}")
    return made


def _placed(made: Made) -> None:
    problems = list(misplaced(made))
    if problems:
        raise PolicyError("type mismatch: " + "\n".join(problems))


def _broken(why: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {why}")
