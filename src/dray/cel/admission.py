"""Expressions of admission policies: what they may speak of, what they may give, and what they may cost.

A ``Compiler`` compiles the expressions of one policy in their order, since a variable is known to those that come after it. An
``Activation`` is one evaluation of several of them on one request: variables are made when first asked for, and everything
together keeps to one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dray.cel import types
from dray.cel.errors import CompileError, EvaluationError, Failure
from dray.cel.meter import Meter
from dray.cel.objects import Expression, Shape
from dray.cel.types import Type, list_of, map_of
from dray.cel.values import Lazy

PER_CALL: Final = 1_000_000
BUDGET: Final = 10_000_000
CONDITIONS_BUDGET: Final = 2_500_000
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


class PolicyError(Exception):
    """An expression gave no value; the message is the one that the client gets."""


class OutOfBudget(PolicyError):
    """Nothing more is evaluated."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


# --------------------------------------------------------------------------------------------------------------- variables


def _struct(name: str, fields: Mapping[str, Shape]) -> Shape:
    """Fields are called by their names as they are."""
    made = Shape(Type("struct", name))
    made.fields = dict(fields)
    return made


def _strings(*names: str) -> dict[str, Shape]:
    return dict.fromkeys(names, _STRING)


_STRING: Final = Shape(types.STRING)
_TIME: Final = Shape(types.TIMESTAMP)
_INT: Final = Shape(types.INT)
_DYN: Final = Shape(types.DYN)
_TEXTS: Final = Shape.of_list(_STRING, 1)
_LABELS: Final = Shape.of_map(_STRING, 1)


def _request() -> Shape:
    kind = _struct("kubernetes.GroupVersionKind", _strings("group", "version", "kind"))
    resource = _struct("kubernetes.GroupVersionResource", _strings("group", "version", "resource"))
    user = _struct("kubernetes.UserInfo", _strings("username", "uid") | {"groups": _TEXTS, "extra": Shape.of_map(_TEXTS, 1)})
    texts = _strings("subResource", "requestSubResource", "name", "namespace", "operation")
    structs = {"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "userInfo": user}
    return _struct("kubernetes.AdmissionRequest", texts | structs | {"dryRun": Shape(types.BOOL), "options": _DYN})


def _namespace() -> Shape:
    metadata = _strings("name", "generateName", "namespace", "UID", "resourceVersion") | {
        "labels": _LABELS,
        "annotations": _LABELS,
        "finalizers": _TEXTS,
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "deletionGracePeriodSeconds": _INT,
        "generation": _INT,
    }
    condition = _strings("status", "type", "message", "reason") | {"lastTransitionTime": _TIME}
    conditions = Shape.of_list(_struct("kubernetes.NamespaceCondition", condition), 1)
    return _struct(
        "kubernetes.Namespace",
        {
            "metadata": _struct("kubernetes.NamespaceMetadata", metadata),
            "spec": _struct("kubernetes.NamespaceSpec", {"finalizers": _TEXTS}),
            "status": _struct("kubernetes.NamespaceStatus", {"conditions": conditions} | _strings("phase")),
        },
    )


REQUEST: Final = _request()
NAMESPACE: Final = _namespace()
_AUTHORIZERS: Final = {
    "authorizer": Shape(types.AUTHORIZER),
    "authorizer.requestResource": Shape(types.RESOURCE_CHECK),
}


# --------------------------------------------------------------------------------------------------------------- compiling


class Compiled:
    """One expression, or what is wrong with it."""

    __slots__ = ("error", "expression", "text")

    def __init__(self, text: str, expression: Expression | None, error: str = "") -> None:
        self.text, self.expression, self.error = text, expression, error


class Compiler:
    """Of one policy. ``composed``: it has variables, or could have some. ``object``, ``params``: their types, where they are
    known; ``params`` is None for a policy without."""

    def __init__(self, *, params: Shape | None, composed: bool = True, object: Shape = _DYN) -> None:
        self._known = {"object": object, "oldObject": object, "namespaceObject": NAMESPACE, "request": REQUEST}
        if params is not None:
            self._known["params"] = params
        self._variables: dict[str, Shape] | None = {} if composed else None
        self.variables: dict[str, Compiled] = {}

    def variable(self, name: str, text: str) -> Compiled:
        """A variable may have any type; one that does not compile has an unknown one."""
        made = self.compile(text)
        assert self._variables is not None
        self._variables[name] = _declared(made.expression.type) if made.expression is not None else _DYN
        self.variables[name] = made
        return made

    def compile(self, text: str, returns: Iterable[Type] = (), *, authorizer: bool = True, patches: bool = False) -> Compiled:
        """``returns`` are the types that it may have; none named, it may have any. ``patches``: it may make some."""
        known = self._known | (_AUTHORIZERS if authorizer else {})
        if self._variables is not None:
            known = known | {"variables": _struct("kubernetes.variables", self._variables)}
        try:
            expression = Expression(text, known, patches=patches)
        except CompileError as error:
            return Compiled(text, None, f"compilation failed: {error.report()}")
        wanted = tuple(returns)
        if wanted and expression.type not in wanted:
            names = f"one of [{' '.join(map(_named, wanted))}]" if len(wanted) > 1 else _named(wanted[0])
            return Compiled(text, None, f"must evaluate to {names} but got {_named(expression.type)}")
        return Compiled(text, expression)


_KEPT: Final = frozenset(
    {types.ANY, types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL}
    | {types.STRING, types.TIMESTAMP, types.UINT}
)


def _declared(kind: Type) -> Shape:
    """The type that other expressions know of a variable: that of a struct they do not."""
    if kind in _KEPT:
        return Shape(kind)
    if kind.kind == "list":
        return Shape(list_of(_declared(kind.parameters[0]).type))
    if kind.kind == "map":
        return Shape(map_of(*(_declared(each).type for each in kind.parameters)))
    return _DYN


def _named(kind: Type) -> str:
    return f"{kind.name}({', '.join(map(_named, kind.parameters))})" if kind.parameters else kind.name


# -------------------------------------------------------------------------------------------------------------- evaluating


class Activation:
    """One evaluation. ``values`` by name; what a policy does not have is left out."""

    def __init__(self, values: Mapping[str, Any], variables: Mapping[str, Compiled], budget: int) -> None:
        self.left = budget
        self._of_variables = 0
        makers = {name: self._maker(name, compiled) for name, compiled in variables.items()}
        self._values = {**values, "variables": Lazy(makers)}

    def evaluate(self, compiled: Compiled) -> Any:
        """The value, or a PolicyError that says why there is none."""
        if compiled.expression is None:
            raise PolicyError(f"compilation error: {compiled.error}")
        meter, self._of_variables = Meter(PER_CALL), 0
        failed = ""
        try:
            value = self._value(compiled.expression, meter)
        except EvaluationError as error:
            failed = error.message
        self._spend(self._of_variables + meter.cost)
        if failed:
            raise PolicyError(f"expression '{compiled.text}' resulted in error: {failed}")
        return value

    def _value(self, expression: Expression, meter: Meter) -> Any:
        values = self._values
        for name in expression.uses:
            if name in _AUTHORIZERS and name not in values:
                raise EvaluationError(f"no such attribute(s): {name}", 0, expression.text)
        return expression.evaluate(tuple([values.get(name) for name in expression.variables]), meter)

    def _spend(self, cost: int) -> None:
        if cost > self.left:
            raise OutOfBudget
        self.left -= cost

    def _maker(self, name: str, compiled: Compiled) -> Callable[[], Any]:
        def make() -> Any:
            if compiled.expression is None:
                raise Failure(f'composited variable "{name}" fails to compile: {compiled.error}')
            meter = Meter(PER_CALL)
            try:
                return self._value(compiled.expression, meter)
            except EvaluationError as error:
                raise Failure(f'composited variable "{name}" fails to evaluate: {error.message}') from None
            finally:
                self._of_variables += meter.cost
                if self._of_variables > self.left:
                    # However many variables one expression asks for, they cost no more than what is left.
                    raise OutOfBudget

        return make
