"""From what a client shows to a user: the tokens of the cluster's own kubeconfigs, tokens of service accounts, certificates."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from dray.apiserver.authentication.accounts import ISSUER, Accounts
from dray.apiserver.authentication.users import ANONYMOUS, AUTHENTICATED, User

_INVALID: Final = "invalid bearer token"


class Authenticator:
    """``tokens`` are the tokens that are known by heart."""

    def __init__(self, tokens: Mapping[str, User], accounts: Accounts) -> None:
        self._tokens = [(token.encode(), user) for token, user in tokens.items()]
        self._accounts = accounts

    def user(self, authorization: str) -> User | None:
        """Who an Authorization header belongs to; nobody in particular without one, None when it is not to be believed."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        found = self.by_token(token.strip())
        return None if isinstance(found, str) else found[0]

    def by_token(self, token: str, audiences: tuple[str, ...] = ()) -> tuple[User, tuple[str, ...]] | str:
        """Whose token it is and for which audiences, or why it is nobody's."""
        given = token.encode("utf-8", "replace")
        for known, user in self._tokens:
            if hmac.compare_digest(given, known):
                return (user, (ISSUER,)) if not audiences or ISSUER in audiences else _INVALID
        if token.count(".") != 2:
            return _INVALID
        found = self._accounts.user(token, audiences)
        return f"[{_INVALID}, {found}]" if isinstance(found, str) else found


def certified(subject: tuple[tuple[tuple[str, str], ...], ...], der: bytes) -> User | None:
    """The user that a verified client certificate stands for: its common name, with its organizations as groups."""
    said: dict[str, list[str]] = {}
    for part in subject:
        for name, value in part:
            said.setdefault(name, []).append(value)
    names: list[Any] = said.get("commonName", [])
    if not names or not names[-1]:
        return None
    extra = (("authentication.kubernetes.io/credential-id", (f"X509SHA256={sha256(der).hexdigest()}",)),)
    return User(names[-1], (*said.get("organizationName", ()), AUTHENTICATED), "", extra)
