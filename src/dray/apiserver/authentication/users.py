"""Users: a name, groups, and what else is known of them. Where they come from is decided elsewhere."""

from __future__ import annotations

from typing import Any, Final

import msgspec

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
VIEWERS: Final = "dray:viewers"
_ACCOUNT: Final = "system:serviceaccount:"

Extra = tuple[tuple[str, tuple[str, ...]], ...]


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = ()

    @property
    def privileged(self) -> bool:
        """May do everything, whatever the roles say."""
        return MASTERS in self.groups

    def values(self, key: str) -> tuple[str, ...]:
        return dict(self.extra).get(key, ())

    @property
    def info(self) -> dict[str, Any]:
        """As authentication.k8s.io shows it."""
        info: dict[str, Any] = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra}
        return info


ADMIN: Final = User("dray-admin", (MASTERS, AUTHENTICATED))
VIEWER: Final = User("dray-viewer", (VIEWERS, AUTHENTICATED))
ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


def account_name(namespace: str, name: str) -> str:
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def account_of(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user name stands for."""
    if not user.startswith(_ACCOUNT):
        return None
    namespace, _, name = user[len(_ACCOUNT) :].partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None
