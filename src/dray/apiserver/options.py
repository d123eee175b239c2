"""The options of writes and deletes, in the query or the body of a request: read and refused as kube-apiserver does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.api.validation.errors import FieldError
from dray.apiserver.deletion import DeleteOptions
from dray.apiserver.errors import ApiError, bad_request, invalid
from dray.apiserver.operations import WriteOptions
from dray.apiserver.queries import flag, number

_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_LONGEST_MANAGER: Final = 128
_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


def options_invalid(kind: str, problems: Sequence[FieldError]) -> ApiError:
    return invalid(Kind("meta.k8s.io", "v1", "", kind, False), "", problems)


def unsupported(path: str, value: Any, *supported: str) -> FieldError:
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError(path, "NotSupported", value, f"supported values: {listed}")


def write_options(verb: str, query: Mapping[str, str], user_agent: str, *, apply: bool = False) -> WriteOptions:
    """Of a create, an update or a patch."""
    if not query:
        return WriteOptions(manager=_agent(user_agent))
    problems = list(_manager_problems(query.get("fieldManager", ""), apply))
    if "force" in query and verb == "patch" and not apply:
        problems.insert(0, FieldError("force", "Forbidden", "", "may not be specified for non-apply patch"))
    problems += _dry_run_problems([query["dryRun"]] if "dryRun" in query else ())
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        problems.append(unsupported("fieldValidation", validation, *_VALIDATIONS))
    if problems:
        raise options_invalid(_KINDS.get(verb, "CreateOptions"), problems)
    return WriteOptions("dryRun" in query, query.get("fieldManager", "") or _agent(user_agent), validation or "Warn")


def delete_options(query: Mapping[str, str], given: Any = None) -> DeleteOptions:
    """From the body where there is one, else from the query."""
    options = read_delete_options(_queried(query) if given is None else given)
    if problems := list(_delete_problems(options)):
        raise options_invalid("DeleteOptions", problems)
    return options


def read_delete_options(given: Any) -> DeleteOptions:
    """Not checked: those in an eviction are not."""
    if not isinstance(given, dict):
        raise bad_request("the body must be DeleteOptions")
    kind, version = given.get("kind") or "DeleteOptions", given.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{version}"')
    try:
        return msgspec.convert(given, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions: {error}") from error


def _queried(query: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "orphanDependents": flag(query, "orphanDependents"),
    }
    if "propagationPolicy" in query:
        given["propagationPolicy"] = query["propagationPolicy"]
    if "dryRun" in query:
        given["dryRun"] = [query["dryRun"]]
    return given


def _delete_problems(options: DeleteOptions) -> Iterator[FieldError]:
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        message = "orphanDependents and deletionPropagation cannot be both set"
        yield FieldError("propagationPolicy", "Invalid", policy, message)
    elif policy is not None and policy not in _POLICIES:
        yield unsupported("propagationPolicy", policy, *_POLICIES, "nil")
    yield from _dry_run_problems(options.dry_run or ())


def _dry_run_problems(given: Sequence[str]) -> Iterator[FieldError]:
    if any(each != "All" for each in given):
        yield unsupported("dryRun", list(given), "All")


def _manager_problems(manager: str, apply: bool) -> Iterator[FieldError]:
    if apply and not manager:
        yield FieldError("fieldManager", "Required", "", "is required for apply patch")
    if len(manager.encode("utf-8", "surrogatepass")) > _LONGEST_MANAGER:
        yield FieldError("fieldManager", "TooLong", "", f"may not be more than {_LONGEST_MANAGER} bytes")
    for position, letter in enumerate(manager):
        if not letter.isprintable():
            message = f"invalid character U+{ord(letter):04X} (at position {position})"
            yield FieldError("fieldManager", "Invalid", manager, message)
            return


def _agent(user_agent: str) -> str:
    agent = user_agent.partition("/")[0][:_LONGEST_MANAGER]
    return (agent if agent.isprintable() else "") or "unknown"
