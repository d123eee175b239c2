"""What the expressions of a policy see of one request, and the conditions that they are asked before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.apiserver.admission.request import AdmissionRequest
from dray.apiserver.authentication.users import User, account_groups, account_name
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.authorization.policy import Policy as Access
from dray.apiserver.registry import Resource
from dray.cel import types
from dray.cel.admission import CONDITIONS_BUDGET, Activation, Compiled, Compiler, OutOfBudget, PolicyError
from dray.cel.library.authorization import Authorizer, Decision, PathCheck, ResourceCheck
from dray.cel.objects import Shape, plain

Object = dict[str, Any]

ANY: Final = Shape(types.DYN)
# What of a namespace's metadata expressions see.
_OF_NAMESPACE: Final = frozenset(
    {"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}
    | {"deletionGracePeriodSeconds", "labels", "annotations", "finalizers"}
)


class View:
    """One request for the policies that match it by one resource. Nothing is made twice."""

    def __init__(self, request: AdmissionRequest, matched: Resource, namespace: Object | None, access: Access) -> None:
        self.request = request
        self._request, self._matched, self._namespace, self._access = request, matched, namespace, access
        self._values: dict[str, Any] | None = None

    def values(self, params: Object | None) -> dict[str, Any]:
        """All values by the names of the variables."""
        if self._values is None:
            self._values = self._made()
        return self._values | {"params": plain(params)}

    def _made(self) -> dict[str, Any]:
        request = self._request
        authorizer = Authorizer(request.user, self._decide, _account)
        kind = request.resource.kind
        question = ResourceCheck(authorizer, kind.group, kind.plural, request.subresource, request.namespace, request.name)
        return {
            "object": plain(request.seen(request.object, self._matched)),
            "oldObject": plain(request.seen(request.old, self._matched)),
            "request": plain(request.described(self._matched)),
            "namespaceObject": plain(_shown(self._namespace)),
            "authorizer": authorizer,
            "authorizer.requestResource": question,
        }

    def _decide(self, who: User, verb: str, check: PathCheck | ResourceCheck) -> Decision:
        if isinstance(check, PathCheck):
            wanted = Attributes(verb, path=check.path)
        else:
            wanted = Attributes(verb, check.group, check.resource, check.subresource, check.namespace, check.name)
        return Decision(*self._access.allowed(who, wanted))


def _account(namespace: str, name: str) -> User:
    return User(account_name(namespace, name), account_groups(namespace))


def _shown(namespace: Object | None) -> Object | None:
    if namespace is None:
        return None
    metadata = {field: value for field, value in namespace["metadata"].items() if field in _OF_NAMESPACE}
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": namespace.get("status") or {}}


class Conditions:
    """``matchConditions``: all must hold. One that does not hold decides, whatever is wrong with the others."""

    def __init__(self, given: list[Object], compiler: Compiler) -> None:
        self._compiled = [compiler.compile((each.get("expression") or "").strip(), (types.BOOL,)) for each in given]

    def hold(self, values: Mapping[str, Any], variables: Mapping[str, Compiled]) -> bool:
        """A PolicyError when that cannot be said."""
        if not self._compiled:
            return True
        # The namespace is not known to conditions.
        activation = Activation({**values, "namespaceObject": None}, variables, CONDITIONS_BUDGET)
        errors: list[str] = []
        results: list[bool] = []
        for compiled in self._compiled:
            try:
                results.append(activation.evaluate(compiled))
            except OutOfBudget:
                raise
            except PolicyError as error:
                errors.append(str(error))
        if False in results:
            return False
        if errors:
            raise PolicyError(_aggregate(errors))
        return True


def _aggregate(errors: list[str]) -> str:
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def compiler_of(spec: Object) -> Compiler:
    """With the variables of a policy."""
    compiler = Compiler(params=ANY if spec.get("paramKind") is not None else None)
    for variable in spec.get("variables") or ():
        compiler.variable(variable["name"], variable["expression"])
    return compiler
