"""Where writes ask for admission. Without policies that could be about a resource nothing is made, and nothing costs anything.

Policies are never about the kinds of admission itself, so that nobody can lock themselves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dray.api.kinds import Kind
from dray.apiserver.admission.params import ConfigurationError, collect, kind_of
from dray.apiserver.admission.policies import Policies
from dray.apiserver.admission.request import AdmissionRequest
from dray.apiserver.errors import ApiError, forbidden
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.store import Store

if TYPE_CHECKING:
    from dray.apiserver.admission.evaluation import View
    from dray.apiserver.admission.policies import Binding, Stored
    from dray.apiserver.admission.validating import Denial, ValidatingPolicy
    from dray.apiserver.authorization.policy import Policy as Access

Object = dict[str, Any]

EXEMPT: Final = "admissionregistration.k8s.io"
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


class Gate:
    def __init__(self, registry: Registry, store: Store, access: Access) -> None:
        self._registry, self._store, self._access = registry, store, access
        kinds = f"validatingadmissionpolicies.{EXEMPT}", f"validatingadmissionpolicybindings.{EXEMPT}"
        self._validating: Policies[ValidatingPolicy] = Policies(store, registry, *kinds, _validating)

    def validates(self, resource: Resource) -> bool:
        """Whether there may be something to ask about writes of a resource."""
        return resource.kind.group != EXEMPT and bool(self._validating.about(resource.kind.plural))

    def validate(self, request: AdmissionRequest) -> None:
        """Raises the ApiError of the first policy that denies the request; adds the warnings of those that warn."""
        denied: list[tuple[str, str]] = []
        views: dict[Kind, View] = {}
        for policy, matched in self._validating.matching(request):
            for words, reason in self._asked(policy, matched, request, views):
                denied.append((f"ValidatingAdmissionPolicy '{policy.name}'{words}", reason))
        if denied:
            raise _refusal(request, *denied[0])

    def _asked(
        self, policy: Stored[ValidatingPolicy], matched: Resource, request: AdmissionRequest, views: dict[Kind, View]
    ) -> Iterator[tuple[str, str]]:
        """The words and reasons of what denies the request."""
        try:
            params_of = kind_of(self._registry, policy.spec.get("paramKind"))
        except ConfigurationError as error:
            if policy.fails:
                yield f" denied request: failed to configure policy: {error}", ""
            return
        for binding in policy.bindings:
            if not binding.matches(request):
                continue
            head = f" with binding '{binding.name}' denied request: "
            try:
                found = collect(self._store, params_of, binding.spec.get("paramRef"), request.namespace)
            except ConfigurationError as error:
                if policy.fails:
                    yield f"{head}failed to configure binding: {error}", ""
                continue
            for params in found:
                for denial in policy.compiled.denials(self._view(views, matched, request), params):
                    if denial.always or "Deny" in (binding.spec.get("validationActions") or ()):
                        yield head + denial.message, denial.reason
                    elif "Warn" in binding.spec["validationActions"]:
                        request.warnings.append(_warning(policy, binding, denial))

    def _view(self, views: dict[Kind, View], matched: Resource, request: AdmissionRequest) -> View:
        from dray.apiserver.admission.evaluation import View

        found = views.get(matched.kind)
        if found is None:
            itself = request.resource.kind.resource == "namespaces"
            namespace = None if itself or not request.namespace else self._validating.namespace(request.namespace)
            found = views[matched.kind] = View(request, matched, namespace, self._access)
        return found


def _validating(spec: Object) -> ValidatingPolicy:
    """The compiler is loaded with the first policy that is asked."""
    from dray.apiserver.admission.validating import ValidatingPolicy

    return ValidatingPolicy(spec)


def _warning(policy: Stored[ValidatingPolicy], binding: Binding, denial: Denial) -> str:
    return f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': {denial.message}"


def _refusal(request: AdmissionRequest, message: str, reason: str) -> ApiError:
    """403 in the words of Kubernetes, with the reason and the code that the policy names."""
    metadata = (request.object or {}).get("metadata") or {}
    name = request.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    refused = forbidden(request.resource.kind, name, message, [{"message": message}])
    refused.reason = reason or "Invalid"
    refused.code = _CODES.get(refused.reason, 422)
    return refused
