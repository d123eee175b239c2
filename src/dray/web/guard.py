"""Who may ask: the token, the host that was asked for, and where the asking page is from.

Always true: an answer with anything of the cluster in it needs the token in a header, which no page of another origin can send
without being asked about it first, and is refused then; there is no cookie. A host name that is not ours is refused, so that a
name that somebody points at this machine is of no use to them. The files of the page itself hold no secret.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# What every answer carries. Scripts, styles and requests are ours alone, and no script is made out of text.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Refusal(NamedTuple):
    status: int
    message: str


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """``hosts``: names beside the local ones under which the page may be asked for."""

    def __init__(self, token: str, hosts: frozenset[str] = frozenset()) -> None:
        self.token = token
        self._hosts = LOCAL | hosts

    def refuses(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is not answered, or None. ``headers`` are looked up without regard to case."""
        host = headers.get("Host", "")
        if _name(host) not in self._hosts:
            return Refusal(421, f"this is not {host[:100]!r}; open the page by the address that was printed, or see --allow-host")
        if not _same_origin(headers, host):
            return Refusal(403, "requests from other origins are not allowed")
        if path.startswith("/api/") and not self._knows(headers.get("Authorization", "")):
            return Refusal(401, "the token is missing or wrong; it is in the address that was printed at startup")
        return None

    def _knows(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


def _name(host: str) -> str:
    """The name in a Host header; nothing for one that makes no sense."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same_origin(headers: Mapping[str, str], host: str) -> bool:
    if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return False
    origin = headers.get("Origin")
    return origin is None or (origin.startswith(("http://", "https://")) and urlsplit(origin).netloc == host)
