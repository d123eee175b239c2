"""From a request to an answer: paths, verbs, content, and which operation they mean. No sockets here.

``Api.handle`` never raises: whatever goes wrong is an answer with a Status. An answer names the revision that must be
durable before it is sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from dray.api.kinds import PODS, Kind
from dray.apiserver import metrics
from dray.apiserver.admission.request import CONNECT, CREATE, connection_options
from dray.apiserver.authentication.accounts import Accounts
from dray.apiserver.authentication.authenticator import Authenticator
from dray.apiserver.authentication.impersonation import impersonated, wanted_user
from dray.apiserver.authentication.users import ANONYMOUS, User
from dray.apiserver.authorization.attributes import Attributes, attributes_of, watches
from dray.apiserver.authorization.caller import Caller
from dray.apiserver.authorization.policy import Policy
from dray.apiserver.deletion import DeleteOptions
from dray.apiserver.discovery import VERSION, Discovery, Document
from dray.apiserver.errors import (
    ApiError,
    bad_request,
    no_container,
    no_such_path,
    not_allowed,
    success,
    too_large_resource_version,
)
from dray.apiserver.intake import media_type, read_body
from dray.apiserver.openapi import OpenApi
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.options import delete_options, write_options
from dray.apiserver.patch import APPLY
from dray.apiserver.patching import Patching
from dray.apiserver.presentation import JSON, Form, Presentation, negotiate, not_acceptable
from dray.apiserver.reading import list_options, parse_revision, read_page
from dray.apiserver.registry import Resource
from dray.apiserver.reviews import Reviews
from dray.apiserver.schema import WRONG_TYPE
from dray.apiserver.store import Entry, encode
from dray.apiserver.subresources import BINDING_KIND, EVICTION_KIND, SCALE_KIND, Subresources
from dray.apiserver.watching import Stream, watch_options
from dray.cluster import numbers

log = logging.getLogger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
PATHS: Final = (
    "/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"
)  # fmt: skip
# The checks by name. What clients know as etcd is the journal here.
PING, STORAGE = "ping", "etcd"
_OF_CONTAINERS: Final = ("log", "exec", "attach", "portforward", "proxy", "ephemeralcontainers")
_CONNECTIONS: Final = {
    "attach": Kind("", "v1", "", "PodAttachOptions", True),
    "exec": Kind("", "v1", "", "PodExecOptions", True),
    "portforward": Kind("", "v1", "", "PodPortForwardOptions", True),
    "proxy": Kind("", "v1", "", "PodProxyOptions", True),
}
_DURATION: Final = re.compile(r"[+-]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+", re.ASCII)
TOKEN_REQUESTS: Final = Kind("authentication.k8s.io", "v1", "", "TokenRequest", False)
POD_ACTIONS: Final = {"binding": BINDING_KIND, "eviction": EVICTION_KIND}
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Request(msgspec.Struct, frozen=True):
    """``query`` holds the first value of each parameter, ``impersonate`` the headers of that name, in lower case; ``user`` is
    None when the client showed something that is not to be believed."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    if_none_match: str = ""
    impersonate: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    user: User | None = ANONYMOUS


class Answer(msgspec.Struct, frozen=True):
    code: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    revision: int = 0


class Target(msgspec.Struct, frozen=True):
    """What a path names."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Api:
    def __init__(self, operations: Operations, policy: Policy, authenticator: Authenticator, accounts: Accounts) -> None:
        self.operations, self.store = operations, operations.store
        self._registry = operations.registry
        self._policy, self._accounts = policy, accounts
        self._reviews = Reviews(policy, authenticator.by_token)
        self._discovery = Discovery(self._registry)
        self._openapi = OpenApi(self._registry, operations.schemas)
        self._documented = self._registry.changes
        self._subresources = Subresources(operations)
        self._patching = Patching(operations)
        self.healthy: Callable[[], str] = lambda: ""

    def handle(self, request: Request) -> Answer | Stream:
        try:
            return self._route(request)
        except ApiError as error:
            return refusal(error)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return refusal(ApiError(500, "InternalError", "internal error; see the server's log"))

    # ----------------------------------------------------------------------------------------------------------- routing

    def _route(self, request: Request) -> Answer | Stream:
        path = request.path
        parts = path.strip("/").split("/")
        request = self._admitted(request, parts)
        if parts == ["metrics"] and request.method == "GET":
            return Answer(200, metrics.page(self._registry, self.store, self.operations.gates), numbers.FORMAT)
        if parts[0] in HEALTH:
            return self._health(parts[0], "/".join(parts[1:]), request.query)
        if "timeout" in request.query:
            _timely(request.query["timeout"])
        root = parts[0]
        if root == "api" and len(parts) > 2:
            return self._resource("", parts[1], parts[2:], request)
        if root == "apis" and len(parts) > 3:
            return self._resource(parts[1], parts[2], parts[3:], request)
        return self._document(path, parts, request)

    def _admitted(self, request: Request, parts: list[str]) -> Request:
        """The request as whom it is made, if that user may make it."""
        user = request.user
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if user.privileged and not request.impersonate:
            return request
        asked = attributes_of(request.method, request.path, parts, request.query)
        wanted = wanted_user(request.impersonate) if request.impersonate else None
        if wanted is not None:
            user = impersonated(self._policy, user, wanted, asked)
            request = msgspec.structs.replace(request, user=user, impersonate=())
        self._policy.require(user, asked)
        return request

    def _caller(self, request: Request) -> Caller:
        assert request.user is not None, "whoever is not believed does not come so far"
        return Caller(self._policy, request.user, lambda: _attributes(request))

    def _health(self, name: str, check: str, query: Mapping[str, str]) -> Answer:
        """All checks, or the one that is named; told one by one if asked for, and whenever something is wrong."""
        problems = {PING: "", STORAGE: self.healthy()}
        if check:
            if check not in problems:
                raise no_such_path()
            said = f"internal server error: {problems[check]}\n" if problems[check] else "ok"
            return Answer(500 if problems[check] else 200, said.encode(), TEXT)
        asked = {each: problem for each, problem in problems.items() if query.get("exclude") != each}
        failed = any(asked.values())
        if not failed and "verbose" not in query:
            return Answer(200, b"ok", TEXT)
        lines = [f"[-]{each} failed: {problem}" if problem else f"[+]{each} ok" for each, problem in asked.items()]
        lines += [f"[+]{each} excluded: ok" for each in problems if each not in asked]
        end = f"{name} check {'failed' if failed else 'passed'}"
        return Answer(500 if failed else 200, "\n".join([*lines, end, ""]).encode(), TEXT)

    def _document(self, path: str, parts: list[str], request: Request) -> Answer:
        if request.method != "GET":
            raise no_such_path() if parts[0] not in ("api", "apis", "version", "openapi") else not_allowed()
        document = self._find_document(parts, request)
        if document is None:
            raise no_such_path()
        headers = (("ETag", document.etag), ("Vary", "Accept"))
        if request.if_none_match and document.etag in request.if_none_match:
            return Answer(304, b"", document.content_type, headers)
        return Answer(200, document.body, document.content_type, headers)

    def _find_document(self, parts: list[str], request: Request) -> Document | None:
        if self._documented != self._registry.changes:
            self._documented = self._registry.changes
            self._discovery = Discovery(self._registry)
            self._openapi.refresh()
        discovery = self._discovery
        aggregated = discovery.wants_aggregated(request.accept)
        match parts:
            case ["api"]:
                return discovery.aggregated_core if aggregated else discovery.core
            case ["apis"]:
                return discovery.aggregated_groups if aggregated else discovery.groups
            case ["api", version]:
                return discovery.resources("", version)
            case ["apis", group]:
                return discovery.group(group)
            case ["apis", group, version]:
                return discovery.resources(group, version)
            case [".well-known", "openid-configuration"]:
                return Document(self._accounts.discovery)
            case ["openid", "v1", "jwks"]:
                return Document(self._accounts.key_set, "application/jwk-set+json")
            case ["version"]:
                return Document(VERSION)
            case ["openapi", "v2"]:
                return self._openapi.v2(protobuf="proto" in request.accept)
            case ["openapi", "v3"]:
                return self._openapi.index
            case ["openapi", "v3", *path]:
                return self._openapi.v3("/".join(path))
            case [""]:
                return Document({"paths": list(PATHS)})
            case _:
                return None

    def _resource(self, group: str, version: str, rest: list[str], request: Request) -> Answer | Stream:
        target = self._target(group, version, rest)
        verb = _verb(request, target)
        allowed: tuple[str, ...] = target.resource.verbs
        if target.subresource:
            sub = target.resource.subresource(target.subresource)
            if sub is None:
                raise self._unserved(target, request)
            allowed = sub.verbs
        if verb not in allowed:
            raise not_allowed()
        answer = self._do(verb, target, request)
        if target.resource.warning and isinstance(answer, Answer):
            return msgspec.structs.replace(answer, headers=(*answer.headers, *_warnings([target.resource.warning])))
        return answer

    def _unserved(self, target: Target, request: Request) -> ApiError:
        if target.resource.kind != PODS or target.subresource not in _OF_CONTAINERS:
            return no_such_path()
        self.operations.get(target.resource, target.namespace, target.name)
        options = WriteOptions(caller=self._caller(request), query=request.query)
        kind = _CONNECTIONS.get(target.subresource)
        admission, place = self.operations.admission, (target.resource, target.namespace, target.name)
        if kind is not None:
            asked, below = connection_options(kind, request.query), target.subresource
            if admission.mutates(target.resource, options):
                asked = admission.mutate(CONNECT, *place, asked, None, options, subresource=below, kind=kind)
            if admission.asks(target.resource, options):
                admission.validate(CONNECT, *place, asked, None, options, subresource=below, kind=kind)
        return no_container(target.name, target.subresource)

    def _target(self, group: str, version: str, rest: list[str]) -> Target:
        if "" in rest:
            raise no_such_path()
        namespace = ""
        if (
            rest[0] == "namespaces"
            and len(rest) > 2
            and not (group == "" and rest[2] in ("status", "finalize") and len(rest) == 3)
        ):
            namespace, rest = rest[1], rest[2:]
        resource = self._registry.find(group, version, rest[0])
        if resource is None or len(rest) > 3 or bool(namespace) > resource.kind.namespaced:
            raise no_such_path()
        if resource.kind.namespaced and len(rest) > 1 and not namespace:
            raise no_such_path()
        name, subresource = [*rest[1:], "", ""][:2]
        return Target(resource, namespace, name, subresource)

    def _do(self, verb: str, target: Target, request: Request) -> Answer | Stream:
        if target.resource.verbs == ("create",):
            return self._review(target, request)
        if verb == "get" and target.subresource != "scale":
            return self._get(target, request)
        if verb == "list":
            return self._list(target, request)
        if verb == "watch":
            return self._watch(target, request)
        return self._write(verb, target, request)

    # ------------------------------------------------------------------------------------------------------------- reads

    def _get(self, target: Target, request: Request) -> Answer:
        version = request.query.get("resourceVersion", "")
        if version and version != "0" and (asked := parse_revision(version)) > self.store.revision:
            raise too_large_resource_version(asked, self.store.revision)
        form = _form(request)
        entry = self.operations.get(target.resource, target.namespace, target.name)
        return self._shown(200, target.resource, entry, form)

    def _list(self, target: Target, request: Request) -> Answer:
        form = _form(request)
        page = read_page(self.store, target.resource, target.namespace, list_options(request.query))
        body = Presentation(target.resource, form, self.operations.clock).many(page)
        return Answer(200, body, revision=self.store.revision)

    def _watch(self, target: Target, request: Request) -> Answer | Stream:
        options = watch_options(request.query)
        if target.name:
            named = f"metadata.name={target.name}"
            options = msgspec.structs.replace(options, fields=f"{options.fields},{named}" if options.fields else named)
        present = Presentation(target.resource, _form(request), self.operations.clock)
        try:
            return Stream(self.store, target.resource, target.namespace, options, present)
        except ApiError as error:
            if error.code != 410:
                raise
            return Answer(200, b'{"type":"ERROR","object":%s}\n' % encode(error.status()))

    def _shown(self, code: int, resource: Resource, entry: Entry, form: Form, warnings: list[str] | None = None) -> Answer:
        body = Presentation(resource, form, self.operations.clock).one(entry)
        return Answer(code, body, headers=_warnings(warnings) if warnings else (), revision=self.store.revision)

    # ------------------------------------------------------------------------------------------------------------ writes

    def _write(self, verb: str, target: Target, request: Request) -> Answer:
        form = _form(request)
        apply = verb == "patch" and media_type(request.content_type) == APPLY
        deletes = verb in ("delete", "deletecollection")
        options = WriteOptions() if deletes else write_options(verb, request.query, request.user_agent, apply=apply)
        options.caller, options.query = self._caller(request), request.query
        try:
            return self._written(verb, target, request, options, form)
        except ApiError as error:
            error.warnings = options.warnings
            raise

    def _written(self, verb: str, target: Target, request: Request, options: WriteOptions, form: Form) -> Answer:
        if verb == "delete":
            return self._delete(target, request, options, form)
        if verb == "deletecollection":
            return self._delete_collection(target, request, options, form)
        if target.subresource == "token":
            return self._token(target, request, options)
        if target.subresource in ("binding", "eviction"):
            return self._pod_action(target, request, options)
        if target.subresource == "scale":
            return self._scale(verb, target, request, options)
        if verb == "patch":
            code, entry = self._patching.patch(
                target.resource, target.namespace, target.name, target.subresource, request, options
            )
        elif verb == "create":
            _asked = "fieldValidation" in request.query
            given = read_body(request.body, request.content_type, options if _asked else None)
            code, entry = 201, self.operations.create(target.resource, target.namespace, given, options)
        else:
            code, entry = self._update(target, request, options)
        return self._shown(code, target.resource, entry, form, options.warnings)

    def _update(self, target: Target, request: Request, options: WriteOptions) -> tuple[int, Entry]:
        asked = "fieldValidation" in request.query
        given = read_body(request.body, request.content_type, options if asked else None)
        resource, namespace, name = target.resource, target.namespace, target.name
        if resource.create_on_update and not target.subresource and self.operations.find(resource, namespace, name) is None:
            return 201, self.operations.create(resource, namespace, given, options)
        entry = self.operations.update(resource, namespace, name, lambda old: given, options, subresource=target.subresource)
        return 200, entry

    def _delete(self, target: Target, request: Request, options: WriteOptions, form: Form) -> Answer:
        given, resource = _delete_options(request), target.resource
        options.dry_run = bool(given.dry_run)
        removal = self.operations.delete(resource, target.namespace, target.name, given, options)
        if removal.now and not resource.returns_deleted:
            kind, metadata = resource.kind, removal.entry.object["metadata"]
            group = {"group": kind.group} if kind.group else {}
            details = {"name": target.name, **group, "kind": kind.plural, "uid": metadata["uid"]}
            return Answer(200, encode(success(details)), headers=_warnings(options.warnings), revision=self.store.revision)
        code = 202 if not removal.now and given.orphan_dependents is False else 200
        return self._shown(code, resource, removal.entry, form, options.warnings)

    def _delete_collection(self, target: Target, request: Request, options: WriteOptions, form: Form) -> Answer:
        """The answer lists what was chosen, as it was before."""
        given, resource = _delete_options(request), target.resource
        options.dry_run = bool(given.dry_run)
        page = read_page(self.store, resource, target.namespace, list_options(request.query))
        self.operations.delete_all(resource, page.entries, given, options)
        body = Presentation(resource, form, self.operations.clock).many(page)
        return Answer(200, body, headers=_warnings(options.warnings), revision=self.store.revision)

    def _pod_action(self, target: Target, request: Request, options: WriteOptions) -> Answer:
        asked = "fieldValidation" in request.query
        body, kind = read_body(request.body, request.content_type, options if asked else None), POD_ACTIONS[target.subresource]
        if not isinstance(body, dict) or body.get("kind", "") not in ("", kind.kind):
            raise bad_request(f"the body must be a {kind.kind}")
        given = self._typed(kind, body)
        if target.subresource == "binding":
            self._subresources.bind(target.namespace, target.name, given, options)
        else:
            self._subresources.evict(target.namespace, target.name, given, options)
        return Answer(201, encode(success(code=201)), headers=_warnings(options.warnings), revision=self.store.revision)

    def _scale(self, verb: str, target: Target, request: Request, options: WriteOptions) -> Answer:
        resource, namespace, name = target.resource, target.namespace, target.name
        if verb == "get":
            scale = self._subresources.scale_of(resource, self.operations.get(resource, namespace, name).object)
        else:
            change = self._patching.change_of_scale(request) if verb == "patch" else (lambda old: _object(request))
            scale = self._subresources.rescale(
                resource, namespace, name, lambda old: self._typed(SCALE_KIND, change(old)), options
            )
        return Answer(200, encode(scale), headers=_warnings(options.warnings), revision=self.store.revision)

    def _review(self, target: Target, request: Request) -> Answer:
        kind = target.resource.kind
        if _form(request).as_:
            raise not_acceptable("application/json")
        given = _object(request) if request.body.strip() else {}
        review = self.operations.normalised(target.resource, given, WriteOptions())
        assert request.user is not None, "whoever is not believed does not come so far"
        return Answer(201, encode(self._reviews.answer(kind, target.namespace, review, request.user)))

    def _token(self, target: Target, request: Request, options: WriteOptions) -> Answer:
        given = self._typed(TOKEN_REQUESTS, _object(request))
        admission, place = self.operations.admission, (target.resource, target.namespace, target.name)
        below: dict[str, Any] = {"subresource": "token", "kind": TOKEN_REQUESTS}
        if admission.mutates(target.resource, options):
            given = admission.mutate(CREATE, *place, _of_kind(TOKEN_REQUESTS, given), None, options, **below)
        if admission.asks(target.resource, options):
            admission.validate(CREATE, *place, _of_kind(TOKEN_REQUESTS, given), None, options, **below)
        made = self._accounts.request(target.namespace, target.name, given)
        return Answer(201, encode(made), headers=_warnings(options.warnings))

    def _typed(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        """A body that is not stored, with every field of the type that its kind says."""
        given, problems = self.operations.schemas.normalise(kind, body)
        if wrong := [problem.message for problem in problems if problem.category == WRONG_TYPE]:
            raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong[0]}')
        return given


def _of_kind(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "kind": kind.kind, "apiVersion": kind.api_version}


def _attributes(request: Request) -> Attributes:
    return attributes_of(request.method, request.path, request.path.strip("/").split("/"), request.query)


def _timely(timeout: str) -> None:
    """How long a client wants to wait is checked, and then not needed: nothing here takes long."""
    if timeout and not _DURATION.fullmatch(timeout):
        raise bad_request(f'invalid timeout specified in the request URL - time: invalid duration "{timeout}"')


def _verb(request: Request, target: Target) -> str:
    verb = _VERBS.get(request.method)
    if verb is None:
        raise not_allowed()
    if verb == "get" and not target.subresource:
        if watches(request.query):
            return "watch"
        return "get" if target.name else "list"
    if verb == "delete" and not target.name:
        if target.resource.kind.namespaced and not target.namespace:
            raise not_allowed()
        return "deletecollection"
    if (verb == "create") == bool(target.name) and not target.subresource:
        raise not_allowed()
    if verb == "create" and target.resource.kind.namespaced and not target.namespace:
        raise not_allowed() if target.resource.verbs != ("create",) else no_such_path()
    return verb


def _form(request: Request) -> Form:
    return negotiate(request.accept, request.query.get("includeObject", ""))


def _delete_options(request: Request) -> DeleteOptions:
    """A body counts alone. A form is none: what it has is in the query."""
    if not request.body.strip() or media_type(request.content_type) == "application/x-www-form-urlencoded":
        return delete_options(request.query)
    return delete_options(request.query, read_body(request.body, request.content_type))


def _object(request: Request) -> dict[str, Any]:
    given = read_body(request.body, request.content_type)
    if not isinstance(given, dict):
        raise bad_request("the body must be an object")
    return given


def _warnings(warnings: list[str] | tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    def quoted(text: str) -> str:
        clean = "".join(c if c.isprintable() else " " for c in text)[:400]
        return '299 - "' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return tuple(("Warning", quoted(warning)) for warning in dict.fromkeys(warnings))


def refusal(error: ApiError) -> Answer:
    headers: tuple[tuple[str, str], ...] = ()
    retry = (error.details or {}).get("retryAfterSeconds")
    if retry:
        headers = (("Retry-After", str(retry)),)
    if error.code == 401:
        headers = (("WWW-Authenticate", "Bearer"),)
    return Answer(error.code, encode(error.status()), headers=(*headers, *_warnings(error.warnings)))
