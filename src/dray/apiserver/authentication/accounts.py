"""Tokens of service accounts: asked for with a TokenRequest, bound to an audience, a time and, if wanted, an object.

Always true: a token is worth something only while its service account, and the pod, secret or node that it is bound to, exist
with the uid that they had. What is remembered of tokens is bounded.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dray.api.kinds import SERVICE_ACCOUNTS
from dray.api.times import format_time, parse_time
from dray.api.validation.errors import FieldError
from dray.apiserver.authentication.tokens import InvalidToken, Signer
from dray.apiserver.authentication.users import AUTHENTICATED, User, account_groups, account_name
from dray.apiserver.errors import bad_request, conflict, invalid, not_found
from dray.apiserver.metadata import new_uid
from dray.apiserver.operations import Operations

Object = dict[str, Any]

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
SHORTEST, LONGEST = 600, 1 << 32
DEFAULT_SECONDS: Final = 3600
_PREFIX: Final = "authentication.kubernetes.io/"
_LEEWAY: Final = 60.0
_REMEMBERED, _LONG = 1024, 8192
_BOUND: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_REQUEST: Final = msgspec.structs.replace(SERVICE_ACCOUNTS, group="authentication.k8s.io", kind="TokenRequest")


class Ref(msgspec.Struct):
    name: str = ""
    uid: str = ""


class Private(msgspec.Struct):
    """What Kubernetes adds to a token."""

    namespace: str
    serviceaccount: Ref
    pod: Ref | None = None
    secret: Ref | None = None
    node: Ref | None = None


class Claims(msgspec.Struct):
    iss: str
    sub: str
    aud: list[str]
    exp: float
    nbf: float
    kubernetes: Private = msgspec.field(name="kubernetes.io")
    jti: str = ""


class Accounts:
    def __init__(self, operations: Operations, signer: Signer) -> None:
        self._operations, self._signer = operations, signer
        self._known: dict[str, Claims] = {}

    # ----------------------------------------------------------------------------------------------------------- requests

    def request(self, namespace: str, name: str, given: Object) -> Object:
        """The TokenRequest with a token in its status."""
        account = self._found("serviceaccounts", namespace, name)
        if account is None:
            raise not_found(SERVICE_ACCOUNTS, name)
        metadata, spec = given.get("metadata") or {}, dict(given.get("spec") or {})
        _names_the_account(metadata, namespace, name, account)
        spec["audiences"] = spec.get("audiences") or [ISSUER]
        seconds = spec.setdefault("expirationSeconds", DEFAULT_SECONDS)
        if not SHORTEST <= seconds <= LONGEST:
            limit = "less than 10 minutes" if seconds < SHORTEST else "larger than 2^32 seconds"
            problem = FieldError("spec.expirationSeconds", "Invalid", seconds, f"may not specify a duration {limit}")
            raise invalid(_REQUEST, "", [problem])
        now = self._operations.clock()
        about = {"namespace": namespace, "serviceaccount": _ref(account)}
        claims = {
            "aud": spec["audiences"],
            "exp": int(now) + seconds,
            "iat": int(now),
            "iss": ISSUER,
            "jti": new_uid(self._operations.randomness),
            "kubernetes.io": about | self._bound(namespace, name, spec.get("boundObjectRef")),
            "nbf": int(now),
            "sub": account_name(namespace, name),
        }
        created = {"name": name, "namespace": namespace, "uid": account["metadata"]["uid"], "creationTimestamp": format_time(now)}
        status = {"token": self._signer.signed(claims), "expirationTimestamp": format_time(now + seconds)}
        kind = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        return {**kind, "metadata": {**metadata, **created}, "spec": spec, "status": status}

    def _bound(self, namespace: str, account: str, wanted: Object | None) -> Object:
        """What a token says of the object that it is bound to."""
        if not wanted:
            return {}
        kind, name = wanted.get("kind") or "", wanted.get("name") or ""
        if kind not in _BOUND or wanted.get("apiVersion") not in ("v1", "", None):
            raise bad_request(f"cannot bind token to object of type {wanted.get('apiVersion', '')}, Kind={kind}")
        resource = self._operations.registry.named(_BOUND[kind])
        found = self._found(_BOUND[kind], "" if kind == "Node" else namespace, name)
        if found is None:
            raise not_found(resource.kind, name)
        uid = found["metadata"]["uid"]
        if wanted.get("uid") and wanted["uid"] != uid:
            why = f"the UID in the bound object reference ({wanted['uid']}) does not match the UID in record."
            raise conflict(resource.kind, name, f"{why} The object might have been deleted and then recreated")
        bound = {kind.lower(): _ref(found)}
        if kind == "Pod":
            bound |= self._of_pod(found, account)
        return bound

    def _of_pod(self, pod: Object, account: str) -> Object:
        if pod["spec"].get("serviceAccountName", "default") != account:
            message = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            raise bad_request(message)
        name = pod["spec"].get("nodeName")
        if not name:
            return {}
        node = self._found("nodes", "", name)
        return {"node": _ref(node) if node is not None else {"name": name}}

    @property
    def discovery(self) -> Object:
        """Where verifiers of tokens find the key, in the words of OpenID."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    @property
    def key_set(self) -> Object:
        return self._signer.key_set

    # ------------------------------------------------------------------------------------------------------------- tokens

    def user(self, token: str, audiences: tuple[str, ...]) -> tuple[User, tuple[str, ...]] | str:
        """Whose token it is and for which of the audiences it is good, or what is wrong with it."""
        try:
            claims = self._read(token)
        except InvalidToken as error:
            return str(error)
        wanted = audiences or (ISSUER,)
        meant = tuple(audience for audience in wanted if audience in claims.aud)
        if not meant:
            return f"token audiences {claims.aud} is invalid for the target audiences {list(wanted)}"
        problem = self._problem(claims, self._operations.clock())
        return problem or (_user(claims), meant)

    def _read(self, token: str) -> Claims:
        found = self._known.get(token)
        if found is not None:
            return found
        try:
            claims = msgspec.convert(self._signer.verified(token), Claims, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidToken(f"not a token of a service account: {error}") from error
        if len(token) <= _LONG:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[token] = claims
        return claims

    def _problem(self, claims: Claims, now: float) -> str:
        if now > claims.exp + _LEEWAY:
            return "service account token has expired"
        if now < claims.nbf - _LEEWAY:
            return "service account token is not valid yet"
        about = claims.kubernetes
        account = self._found("serviceaccounts", about.namespace, about.serviceaccount.name)
        if account is None:
            return f'serviceaccounts "{about.serviceaccount.name}" not found'
        if account["metadata"]["uid"] != about.serviceaccount.uid:
            uid = account["metadata"]["uid"]
            return f"service account UID ({uid}) does not match claim ({about.serviceaccount.uid})"
        if _gone(account, now):
            return f"service account {about.namespace}/{about.serviceaccount.name} has been deleted"
        for resource, namespace, ref in _bound_objects(about):
            found = self._found(resource, namespace, ref.name)
            if found is None or found["metadata"]["uid"] != ref.uid or _gone(found, now):
                return "service account token has been invalidated"
        return ""

    def _found(self, resource: str, namespace: str, name: str) -> Object | None:
        entry = self._operations.find(self._operations.registry.named(resource), namespace, name)
        return entry.object if entry is not None else None


def _names_the_account(metadata: Object, namespace: str, name: str, account: Object) -> None:
    """Whatever the request says about the account must be true."""
    for field, expected in (("name", name), ("namespace", namespace)):
        given = metadata.get(field)
        if given and given != expected:
            problem = FieldError(f"metadata.{field}", "Invalid", given, f"must match the service account {field} if specified")
            raise invalid(_REQUEST, name, [problem])
    uid, given = account["metadata"]["uid"], metadata.get("uid")
    if given and given != uid:
        why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        raise conflict(_REQUEST, name, why)


def _bound_objects(about: Private) -> list[tuple[str, str, Ref]]:
    """What must still be there. The node of a pod is only told: it may go before the pod does."""
    found = []
    if about.pod is not None:
        found.append(("pods", about.namespace, about.pod))
    if about.secret is not None:
        found.append(("secrets", about.namespace, about.secret))
    if about.node is not None and about.pod is None:
        found.append(("nodes", "", about.node))
    return found


def _gone(obj: Object, now: float) -> bool:
    deleted = obj["metadata"].get("deletionTimestamp")
    return bool(deleted) and parse_time(deleted) < now - _LEEWAY


def _ref(obj: Object) -> Object:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def _user(claims: Claims) -> User:
    about = claims.kubernetes
    extra: list[tuple[str, tuple[str, ...]]] = []
    if claims.jti:
        extra.append((f"{_PREFIX}credential-id", (f"JTI={claims.jti}",)))
    for kind, ref in (("node", about.node), ("pod", about.pod)):
        if ref is not None:
            extra.append((f"{_PREFIX}{kind}-name", (ref.name,)))
            if ref.uid:
                extra.append((f"{_PREFIX}{kind}-uid", (ref.uid,)))
    groups = (*account_groups(about.namespace), AUTHENTICATED)
    return User(account_name(about.namespace, about.serviceaccount.name), groups, about.serviceaccount.uid, tuple(extra))
