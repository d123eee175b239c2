"""Who may write which part of a claim's status (gate DRAResourceClaimGranularStatusAuthorization).

The right to write the status is not enough: allocation and reservations need ``resourceclaims/binding``, and the devices of a
driver need ``resourceclaims/driver`` with the driver's name. Neither is a path; they exist in roles only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.names import subdomain
from dray.api.validation.errors import FieldError
from dray.apiserver.authentication.users import User, account_of
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.authorization.caller import Caller
from dray.apiserver.errors import ApiError
from dray.apiserver.registry import Context

Object = dict[str, Any]

GATE: Final = "DRAResourceClaimGranularStatusAuthorization"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"


def parts_of_the_status(claim: Object, old: Object | None, context: Context) -> Iterator[FieldError]:
    """A check of claims: what the caller changes in the status and may not."""
    caller = context.caller
    if caller is None or old is None or context.subresource != "status" or not context.gates(GATE):
        return
    new, before = claim.get("status") or {}, old.get("status") or {}
    yield from _binding(caller, new, before)
    if new.get("allocation") is not None:
        yield from _devices(caller, new, before)


def _binding(caller: Caller, new: Object, old: Object) -> Iterator[FieldError]:
    if all((new.get(field) or None) == (old.get(field) or None) for field in ("allocation", "reservedFor")):
        return
    verb = caller.asked.verb
    why = _refusal(caller, Attributes(verb, RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.plural, "binding"))
    if why:
        needed = f'requires resource="resourceclaims/binding", verb="{verb}" permission: {why}'
        yield FieldError("status.allocation", "Forbidden", "", f"changing status.allocation or status.reservedFor {needed}")


def _devices(caller: Caller, new: Object, old: Object) -> Iterator[FieldError]:
    changed = _changed_drivers(new, old)
    if not changed:
        return
    verbs = [f"arbitrary-node:{caller.asked.verb}"]
    if _on_the_node(caller.user, _allocated_node(new)):
        verbs.insert(0, f"associated-node:{caller.asked.verb}")
    for driver in sorted(changed):
        refusals = [_refusal(caller, _to_driver(verb, caller.asked.namespace, driver)) for verb in verbs]
        if all(refusals):
            needed = f'requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
            yield FieldError("status.devices", "Forbidden", "", f"changing status.devices {needed}")


def _to_driver(verb: str, namespace: str, driver: str) -> Attributes:
    return Attributes(verb, RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.plural, "driver", namespace, driver)


def _refusal(caller: Caller, wanted: Attributes) -> str:
    try:
        caller.require(wanted)
    except ApiError as error:
        return error.message
    return ""


def _changed_drivers(new: Object, old: Object) -> set[str]:
    after, before = _by_device(new), _by_device(old)
    return {key[0] for key in after.keys() | before.keys() if after.get(key) != before.get(key)}


def _by_device(status: Object) -> dict[tuple[str, ...], Object]:
    fields = ("driver", "pool", "device", "shareID")
    return {tuple(found.get(field) or "" for field in fields): found for found in status.get("devices") or ()}


def _allocated_node(status: Object) -> str:
    """The one node that an allocation is for, if it is for one."""
    terms: Any = (status["allocation"].get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values: list[str] = field.get("values") or []
    named = field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1
    return str(values[0]) if named else ""


def _on_the_node(user: User, node: str) -> bool:
    """Whether the user is a service account whose token says that it is used on this node."""
    if not node or subdomain(node) or account_of(user.name) is None:
        return False
    return user.values(NODE_NAME) == (node,)
