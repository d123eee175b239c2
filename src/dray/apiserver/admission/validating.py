"""ValidatingAdmissionPolicies: one policy, compiled, and what it says of one request."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dray.apiserver.admission.evaluation import Conditions, View, compiler_of
from dray.cel import types
from dray.cel.admission import BUDGET, Activation, Compiled, Compiler, OutOfBudget, PolicyError
from dray.cel.values import type_name

Object = dict[str, Any]

_MAX_MESSAGE: Final = 5 * 1024
_RESULTS: Final = {"string": "string", "null_type": "null_type"}


class Denial(NamedTuple):
    """``always``: whatever the binding wants to be done with what does not hold."""

    message: str
    reason: str = ""
    always: bool = False


class _Validation:
    __slots__ = ("compiled", "given", "message")

    def __init__(self, given: Object, compiler: Compiler) -> None:
        self.given = given
        self.compiled = compiler.compile(given["expression"], (types.BOOL,))
        made = given.get("messageExpression")
        self.message = compiler.compile(made, (types.STRING,), authorizer=False) if made else None


class ValidatingPolicy:
    """Compiled once for each version of a policy."""

    def __init__(self, spec: Object) -> None:
        self.fails = spec.get("failurePolicy") != "Ignore"
        compiler = compiler_of(spec)
        self._variables = compiler.variables
        self._conditions = Conditions(spec.get("matchConditions") or [], compiler)
        self._validations = [_Validation(each, compiler) for each in spec.get("validations") or ()]
        self._annotations = [
            compiler.compile(each["valueExpression"], (types.STRING, types.NULL)) for each in spec.get("auditAnnotations") or ()
        ]

    def denials(self, view: View, params: Object | None) -> list[Denial]:
        """What is wrong with the request. An expression that fails counts as the failure policy says."""
        values = view.values(params)
        try:
            if not self._conditions.hold(values, self._variables):
                return []
        except PolicyError as error:
            # What cannot be said of conditions counts as an error of the policy, or as a policy that is not about the request.
            return self._failed(str(error))
        try:
            found = self._validated(values)
            return found + self._annotated(values)
        except OutOfBudget as error:
            return self._failed(str(error))

    def _failed(self, message: str) -> list[Denial]:
        return [Denial(message)] if self.fails else []

    def _validated(self, values: dict[str, Any]) -> list[Denial]:
        activation = Activation(values, self._variables, BUDGET)
        results: list[object] = []
        for validation in self._validations:
            try:
                results.append(activation.evaluate(validation.compiled))
            except OutOfBudget:
                raise
            except PolicyError as error:
                results.append(error)
        told = _Messages({**values}, self._variables, activation.left)
        found: list[Denial] = []
        for validation, result in zip(self._validations, results, strict=True):
            if isinstance(result, PolicyError):
                found += self._failed(str(result))
            elif told.exhausted(self._validations):
                found += self._failed(f"failed messageExpression: {told.error}")
            elif result is not True:
                reason = validation.given.get("reason") or "Invalid"
                found.append(Denial(told.of(validation), reason))
        return found

    def _annotated(self, values: dict[str, Any]) -> list[Denial]:
        """There is no audit log to write to, but an annotation that cannot be made is an error all the same."""
        activation = Activation(values, self._variables, BUDGET)
        found: list[Denial] = []
        for compiled in self._annotations:
            try:
                value = activation.evaluate(compiled)
            except OutOfBudget:
                raise
            except PolicyError as error:
                found += [Denial(str(error), always=True)] if self.fails else []
                continue
            if type_name(value) not in _RESULTS:
                words = f"valueExpression '{compiled.text}' resulted in unsupported return type: {type_name(value)}. "
                found.append(Denial(words + "Return type must be either string or null.", always=True))
        return found


class _Messages:
    """The messages that expressions make, all of them made before the first is needed, as far as the budget goes."""

    def __init__(self, values: dict[str, Any], variables: dict[str, Compiled], budget: int) -> None:
        for name in ("authorizer", "authorizer.requestResource"):
            values.pop(name, None)
        self._activation = Activation(values, variables, budget)
        self._made: dict[int, str] | None = None
        self.error = ""

    def exhausted(self, validations: list[_Validation]) -> bool:
        if self._made is None:
            self._made = {}
            for validation in validations:
                if validation.message is not None and not self.error:
                    self._make(validation, validation.message)
        return bool(self.error)

    def _make(self, validation: _Validation, compiled: Compiled) -> None:
        assert self._made is not None
        try:
            value = self._activation.evaluate(compiled)
        except OutOfBudget as error:
            self.error = str(error)
        except PolicyError:
            return
        else:
            text = value.strip() if isinstance(value, str) else ""
            if text and len(text.encode()) <= _MAX_MESSAGE and "\n" not in text:
                self._made[id(validation)] = text

    def of(self, validation: _Validation) -> str:
        given = validation.given
        made = (self._made or {}).get(id(validation)) or (given.get("message") or "").strip()
        return made or f"failed expression: {given['expression'].strip()}"
