"""Where writes ask for admission: first what changes them, then what judges them. Without policies that could be about a
resource nothing is made, and nothing costs anything.

Policies are never about the kinds of admission itself, so that nobody can lock themselves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from dray.api.kinds import Kind
from dray.apiserver.admission.params import ConfigurationError, collect, kind_of
from dray.apiserver.admission.policies import Policies
from dray.apiserver.admission.request import AdmissionRequest
from dray.apiserver.errors import ApiError, forbidden
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.schema import Schemas
from dray.apiserver.store import Store

if TYPE_CHECKING:
    from dray.apiserver.admission.evaluation import View
    from dray.apiserver.admission.mutating import MutatingPolicy
    from dray.apiserver.admission.policies import Binding, Stored
    from dray.apiserver.admission.validating import Denial, ValidatingPolicy
    from dray.apiserver.authorization.policy import Policy as Access

Object = dict[str, Any]

EXEMPT: Final = "admissionregistration.k8s.io"
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


P = TypeVar("P")
Complete = Callable[[Object], None]


class Call(NamedTuple, Generic[P]):
    """A policy that is asked about a request, with one of its params."""

    policy: Stored[P]
    binding: Binding
    matched: Resource
    params: Object | None

    @property
    def place(self) -> tuple[str, ...]:
        metadata = (self.params or {}).get("metadata") or {}
        return self.policy.name, self.binding.name, metadata.get("namespace", ""), metadata.get("name", "")


class Unusable(NamedTuple):
    """A policy, or one of its bindings, that cannot be used as it is."""

    policy: Stored[Any]
    binding: Binding | None
    words: str


class Gate:
    def __init__(self, registry: Registry, store: Store, schemas: Schemas, access: Access) -> None:
        self._registry, self._store, self._schemas, self._access = registry, store, schemas, access
        self._validating: Policies[ValidatingPolicy] = Policies(store, registry, *_kinds("validating"), _validating)
        self._mutating: Policies[MutatingPolicy] = Policies(store, registry, *_kinds("mutating"), _mutating)

    def validates(self, resource: Resource) -> bool:
        """Whether there may be something to ask about writes of a resource."""
        return resource.kind.group != EXEMPT and bool(self._validating.about(resource.kind.plural))

    def mutates(self, resource: Resource) -> bool:
        """Whether there may be something that changes what is written of a resource."""
        return resource.kind.group != EXEMPT and bool(self._mutating.about(resource.kind.plural))

    def validate(self, request: AdmissionRequest) -> None:
        """Raises the ApiError of the first policy that denies the request; adds the warnings of those that warn."""
        denied: list[tuple[str, str]] = []
        views: dict[Kind, View] = {}
        for call in self._calls(self._validating, request):
            head = f"ValidatingAdmissionPolicy '{call.policy.name}'"
            if call.binding is not None:
                head += f" with binding '{call.binding.name}'"
            if isinstance(call, Unusable):
                if call.policy.fails:
                    denied.append((f"{head} denied request: {call.words}", ""))
                continue
            actions = call.binding.spec.get("validationActions") or ()
            view = views.get(call.matched.kind) or views.setdefault(call.matched.kind, self._view(call.matched, request))
            for denial in call.policy.compiled.denials(view, call.params):
                if denial.always or "Deny" in actions:
                    denied.append((f"{head} denied request: {denial.message}", denial.reason))
                elif "Warn" in actions:
                    request.warnings.append(_warning(call.policy, call.binding, denial))
        if denied:
            raise _refusal(request, *denied[0])

    def mutate(self, request: AdmissionRequest, default: Complete, fill: Complete) -> None:
        """Makes the object of the request what the policies make of it; raises the ApiError of what cannot be made.

        ``default`` completes an object that was changed, ``fill`` is what else sets fields before the policies see them. Once
        something was changed it is done again, and policies that ask for it are, too.
        """
        again = self._round(request, default, None)
        if again is not None:
            fill(request.object or {})
            self._round(request, default, again)

    def _round(
        self, request: AdmissionRequest, default: Complete, only: set[tuple[str, ...]] | None
    ) -> set[tuple[str, ...]] | None:
        """The places of the calls that are made again, if anything was changed at all."""
        denied: list[tuple[str, str]] = []
        calls: list[Call[MutatingPolicy]] = []
        for call in self._calls(self._mutating, request):
            if isinstance(call, Call):
                calls.append(call)
            elif call.policy.fails:
                name = f"'{call.policy.name}' with binding '{call.binding.name}'" if call.binding else f'"{call.policy.name}"'
                denied.append((f"policy {name} denied request: {call.words}", ""))
        again: set[tuple[str, ...]] = set()
        changed = False
        for call in calls:
            wrong: list[str] = []
            if self._changed(call, request, default, only, wrong):
                changed = True
                if call.policy.spec.get("reinvocationPolicy") == "IfNeeded":
                    again.add(call.place)
            head = f"policy '{call.policy.name}' with binding '{call.binding.name}' denied request: "
            denied += [(head + words, "Invalid") for words in wrong if call.policy.fails]
        if denied:
            raise _denial(request, denied)
        return again if changed else None

    def _changed(
        self,
        call: Call[MutatingPolicy],
        request: AdmissionRequest,
        default: Complete,
        only: set[tuple[str, ...]] | None,
        wrong: list[str],
    ) -> bool:
        """Whether the policy was about the request. What goes ``wrong`` with one of its mutations is no matter to the others."""
        from dray.cel.admission import PolicyError

        policy, matched = call.policy.compiled, call.matched
        try:
            if not policy.holds(self._view(matched, request), call.params) or (only is not None and call.place not in only):
                return False
        except PolicyError as error:
            wrong.append(str(error))
            return False
        for mutation in policy.mutations:
            values = self._view(matched, request).values(call.params)
            kind, shown = request.kind_in(matched), request.seen(request.object, matched)
            try:
                made = mutation.made(values, policy.variables, kind, shown or {}, self._schemas)
            except PolicyError as error:
                wrong.append(str(error))
                continue
            if request.kind is None and matched.to_stored is not None:
                made = matched.to_stored(made)
            default(made)
            request.object = made
        return True

    def _calls(self, policies: Policies[P], request: AdmissionRequest) -> Iterator[Call[P] | Unusable]:
        for policy, matched in policies.matching(request):
            try:
                params_of = kind_of(self._registry, policy.spec.get("paramKind"))
            except ConfigurationError as error:
                yield Unusable(policy, None, f"failed to configure policy: {error}")
                continue
            for binding in policy.bindings:
                if not binding.matches(request):
                    continue
                try:
                    found = collect(self._store, params_of, binding.spec.get("paramRef"), request.namespace)
                except ConfigurationError as error:
                    yield Unusable(policy, binding, f"failed to configure binding: {error}")
                    continue
                for params in found:
                    yield Call(policy, binding, matched, params)

    def _view(self, matched: Resource, request: AdmissionRequest) -> View:
        from dray.apiserver.admission.evaluation import View

        itself = request.resource.kind.resource == "namespaces"
        namespace = None if itself or not request.namespace else self._validating.namespace(request.namespace)
        return View(request, matched, namespace, self._access)


def _kinds(sort: str) -> tuple[str, str]:
    return f"{sort}admissionpolicies.{EXEMPT}", f"{sort}admissionpolicybindings.{EXEMPT}"


def _mutating(spec: Object) -> MutatingPolicy:
    """The compiler is loaded with the first policy that is asked."""
    from dray.apiserver.admission.mutating import MutatingPolicy

    return MutatingPolicy(spec)


def _validating(spec: Object) -> ValidatingPolicy:
    """The compiler is loaded with the first policy that is asked."""
    from dray.apiserver.admission.validating import ValidatingPolicy

    return ValidatingPolicy(spec)


def _warning(policy: Stored[ValidatingPolicy], binding: Binding, denial: Denial) -> str:
    return f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': {denial.message}"


def _refusal(request: AdmissionRequest, message: str, reason: str) -> ApiError:
    """403 in the words of Kubernetes, with the reason and the code that the policy names."""
    refused = forbidden(request.resource.kind, _name(request) or "Unknown", message, [{"message": message}])
    refused.reason = reason or "Invalid"
    refused.code = _CODES.get(refused.reason, 422)
    return refused


def _denial(request: AdmissionRequest, denied: list[tuple[str, str]]) -> ApiError:
    """Of what could not be changed: the first message as it is, and all of them as causes. The code is always that of 403."""
    message, reason = denied[0]
    refused = forbidden(request.resource.kind, _name(request) or "Unknown", message, [{"message": words} for words, _ in denied])
    refused.message, refused.reason = message, reason or "Forbidden"
    return refused


def _name(request: AdmissionRequest) -> str:
    metadata = (request.object or {}).get("metadata") or {}
    return request.name or metadata.get("name") or metadata.get("generateName") or ""
