"""What a request is about, in the words of authorization: verb, resource, name; or verb and path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.selectors import parse_field_selector
from dray.apiserver.authentication.users import User
from dray.apiserver.errors import ApiError
from dray.apiserver.queries import flag

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES: Final = ("status", "finalize")


class Attributes(msgspec.Struct, frozen=True):
    """``path`` is given for what is no resource; the rest then says nothing."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None

    @property
    def combined(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(method: str, path: str, parts: list[str], query: Mapping[str, str]) -> Attributes:
    """As upstream reads a request: ``parts`` are those of the path."""
    if parts[0] == "api" and len(parts) > 2:
        return _resource(method, "", parts[2:], query)
    if parts[0] == "apis" and len(parts) > 3:
        return _resource(method, parts[1], parts[3:], query)
    return Attributes(method.lower(), path=path)


def _resource(method: str, group: str, rest: list[str], query: Mapping[str, str]) -> Attributes:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    verb = _VERBS.get(method, "")
    if verb == "get" and not subresource:
        verb = "watch" if watches(query) else "get" if name else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    if not name and verb in ("list", "watch"):
        name = _selected(query.get("fieldSelector", ""))
    return Attributes(verb, group, rest[0], subresource, namespace, name)


def watches(query: Mapping[str, str]) -> bool:
    """Whether a GET asks for a watch: what is authorized is what is then done."""
    return flag(query, "watch") or False


def _selected(selector: str) -> str:
    """The one name that a field selector leaves: rights for this object are then enough."""
    if "metadata.name" not in selector:
        return ""
    try:
        found = parse_field_selector(selector)
    except ValueError:
        return ""
    return next((value for field, operator, value in found if field == "metadata.name" and operator != "!="), "")


def forbidden(user: User, wanted: Attributes, reason: str) -> ApiError:
    """403 in the words of Kubernetes."""
    message = _sanitised(_refusal(user, wanted))
    message = f"{message}: {reason}" if reason else message
    parts = {"name": wanted.name, "group": wanted.group, "kind": wanted.resource}
    about: dict[str, Any] = {field: value for field, value in parts.items() if value}
    shown = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    if wanted.name:
        shown = f'{shown} "{wanted.name}"'
    head = f"{shown} is forbidden" if wanted.path is None else "forbidden"
    return ApiError(403, "Forbidden", f"{head}: {message}", about)


def _refusal(user: User, wanted: Attributes) -> str:
    who = f"User {quoted(user.name)} cannot {wanted.verb}"
    if wanted.path is not None:
        return f"{who} path {quoted(wanted.path)}"
    what = f"{who} resource {quoted(wanted.combined)} in API group {quoted(wanted.group)}"
    return f"{what} in the namespace {quoted(wanted.namespace)}" if wanted.namespace else f"{what} at the cluster scope"


def quoted(text: str) -> str:
    """As Go's %q."""
    return msgspec.json.encode(text).decode()


def _sanitised(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
