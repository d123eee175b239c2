"""URLs of servers and proxies, and which proxy the environment asks for: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, read as Go's
clients, and so kubectl, read them.

Upper-case names win over lower-case ones. This machine is never reached through a proxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def is_http(url: str) -> bool:
    """Whether this is the URL of something that speaks HTTP: with a host, and a port that there can be."""
    try:
        parts = urlsplit(url)
        return parts.scheme in _PORTS and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def without_password(url: str) -> str:
    """As much of a URL as may be shown to anybody."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """The URL of the proxy to reach ``server`` through; "" for none."""
    url = urlsplit(server)
    found = _value(environment, f"{url.scheme}_proxy")
    if not found or not _proxied(url.hostname or "", url.port or _PORTS.get(url.scheme, 0), _value(environment, "no_proxy")):
        return ""
    return found if "://" in found else f"http://{found}"


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _proxied(host: str, port: int, exceptions: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    return not any(_excepts(exception.strip().lower(), host, port, address) for exception in exceptions.split(","))


def _excepts(exception: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if exception in ("", "*"):
        return exception == "*"
    if "/" in exception:
        try:
            return address is not None and address in ipaddress.ip_network(exception, strict=False)
        except ValueError:
            return False
    name, given = _split(exception)
    if given and given != str(port):
        return False
    if (listed := _address(name)) is not None:
        return listed == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split(exception: str) -> tuple[str, str]:
    """A host and a port, where there is one; an IPv6 address with a port is in brackets."""
    if exception.startswith("["):
        name, _, rest = exception[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = exception.rpartition(":")
    return (name, port) if name and ":" not in name else (exception, "")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
