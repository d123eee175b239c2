"""IP addresses, networks and URLs, read as strictly as Kubernetes reads them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from dray.cel.errors import Failure
from dray.cel.values import URL, register_name

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class IP:
    address: Address


@dataclass(frozen=True, slots=True)
class CIDR:
    """An address and a prefix length; bits after the prefix are kept."""

    address: Address
    bits: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address, self.bits), strict=False)


register_name(IP, "net.IP")
register_name(CIDR, "net.CIDR")


def _address(text: str) -> Address:
    if "%" in text:
        raise Failure(f"IP address {text[:80]!r} with zone value is not allowed")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise Failure(f"IP Address {text[:80]!r} parse error during conversion from string") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise Failure(f"IPv4-mapped IPv6 address {text[:80]!r} is not allowed")
    return address


def parse_ip(text: str) -> IP:
    return IP(_address(text))


def parse_cidr(text: str) -> CIDR:
    address_text, slash, bits = text.rpartition("/")
    if not slash or not re.fullmatch(r"0|[1-9][0-9]{0,2}", bits, re.ASCII):
        raise Failure(f"network address parse error during conversion from string: {text[:80]!r}")
    address = _address(address_text)
    if int(bits) > address.max_prefixlen:
        raise Failure(f"network address parse error during conversion from string: {text[:80]!r}, prefix length out of range")
    return CIDR(address, int(bits))


def _succeeds(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            read(text)
        except Failure:
            return False
        return True

    return test


def contains_ip(network: CIDR, ip: IP) -> bool:
    return network.address.version == ip.address.version and ip.address in network.network


def contains_cidr(outer: CIDR, inner: CIDR) -> bool:
    if outer.address.version != inner.address.version or outer.bits > inner.bits:
        return False
    return outer.network.overlaps(inner.network)


def _is_global_unicast(ip: IP) -> bool:
    address = ip.address
    broadcast = address.version == 4 and int(address) == 0xFFFFFFFF
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local or broadcast)


def _is_link_local_multicast(ip: IP) -> bool:
    if isinstance(ip.address, ipaddress.IPv4Address):
        return ip.address in ipaddress.IPv4Network("224.0.0.0/24")
    return ip.address.packed[0] == 0xFF and ip.address.packed[1] & 0x0F == 0x02


# --------------------------------------------------------------------------------------------------------- URLs

_URL: Final = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(//([^/?#]*))?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_HOST: Final = r"(?:\[[0-9A-Fa-f:.%a-zA-Z_~-]*\]|[A-Za-z0-9._~!$&'()*+,;=:%\"<>\u0080-\U0010ffff-]*)"
"""Compiled when it is first used: that takes longer than all the rest of this module."""
_PATH_SAFE: Final = "!$&'()*+,/:;=@-._~[]"


def _bad_url(text: str, why: str) -> Failure:
    return Failure(f"URL parse error during conversion from string: parse {text[:80]!r}: {why}")


def _split_host(host: str, text: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, ""
    if port and not (port.isascii() and port.isdigit()):
        raise _bad_url(text, f"invalid port {':' + port!r} after host")
    return name.removeprefix("[").removesuffix("]") if name.startswith("[") else name, port


def parse_url(text: str) -> URL:
    """An absolute URL or an absolute path, as Go's ParseRequestURI takes them; a fragment is dropped."""
    if not text:
        raise _bad_url(text, "empty url")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise _bad_url(text, "net/url: invalid control character in URL")
    found = _URL.fullmatch(text)
    assert found is not None
    scheme, host, path, query = (found[1] or "").lower(), found[3] or "", found[4], (found[5] or "?")[1:]
    if not scheme and not path.startswith("/") and found[2] is None:
        raise _bad_url(text, "invalid URI for request")
    if text.startswith("//"):
        # A request URI without a scheme is a path, whatever it looks like.
        return URL(text, "", host, *_split_host(host, text), path, query)
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise _bad_url(text, "invalid URL escape")
    host = host.rpartition("@")[2]
    if not re.fullmatch(_HOST, host.partition(":")[0] if not host.startswith("[") else host.partition("]")[0] + "]"):
        raise _bad_url(text, "invalid character in host name")
    hostname, port = _split_host(host, text)
    return URL(text, scheme, host, hostname, port, _escaped(path), query)


def _escaped(path: str) -> str:
    """The path as it was written, if that is a valid encoding of it; encoded otherwise."""
    if re.fullmatch(rf"(?:[A-Za-z0-9{re.escape(_PATH_SAFE)}]|%[0-9A-Fa-f]{{2}})*", path):
        return path
    return quote(unquote_to_bytes(path), safe=_PATH_SAFE)


def _query(url: URL) -> dict[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    for key, value in parse_qsl(url.query, keep_blank_values=True, max_num_fields=10_000):
        values[key] = (*values.get(key, ()), value)
    return values


DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    ("ip", "string_to_ip", "(string) -> ip", parse_ip),
    ("ip", "cidr_ip", "cidr.() -> ip", lambda network: IP(network.address)),
    ("isIP", "is_ip", "(string) -> bool", _succeeds(parse_ip)),
    ("ip.isCanonical", "ip_is_canonical", "(string) -> bool", lambda text: str(_address(text)) == text),
    ("family", "ip_family", "ip.() -> int", lambda ip: ip.address.version),
    ("isUnspecified", "ip_is_unspecified", "ip.() -> bool", lambda ip: ip.address.is_unspecified),
    ("isLoopback", "ip_is_loopback", "ip.() -> bool", lambda ip: ip.address.is_loopback),
    ("isLinkLocalMulticast", "ip_is_link_local_multicast", "ip.() -> bool", _is_link_local_multicast),
    ("isLinkLocalUnicast", "ip_is_link_local_unicast", "ip.() -> bool", lambda ip: ip.address.is_link_local),
    ("isGlobalUnicast", "ip_is_global_unicast", "ip.() -> bool", _is_global_unicast),
    ("string", "ip_to_string", "(ip) -> string", lambda ip: str(ip.address)),
    ("cidr", "string_to_cidr", "(string) -> cidr", parse_cidr),
    ("isCIDR", "is_cidr", "(string) -> bool", _succeeds(parse_cidr)),
    ("containsIP", "cidr_contains_ip_string", "cidr.(string) -> bool", lambda net, text: contains_ip(net, parse_ip(text))),
    ("containsIP", "cidr_contains_ip_ip", "cidr.(ip) -> bool", contains_ip),
    (
        "containsCIDR",
        "cidr_contains_cidr_string",
        "cidr.(string) -> bool",
        lambda net, text: contains_cidr(net, parse_cidr(text)),
    ),
    ("containsCIDR", "cidr_contains_cidr", "cidr.(cidr) -> bool", contains_cidr),
    ("prefixLength", "cidr_prefix_length", "cidr.() -> int", lambda network: network.bits),
    ("masked", "cidr_masked", "cidr.() -> cidr", lambda network: CIDR(network.network.network_address, network.bits)),
    ("string", "cidr_to_string", "(cidr) -> string", lambda network: f"{network.address}/{network.bits}"),
    ("url", "string_to_url", "(string) -> url", parse_url),
    ("isURL", "is_url_string", "(string) -> bool", _succeeds(parse_url)),
    ("getScheme", "url_get_scheme", "url.() -> string", lambda url: url.scheme),
    ("getHost", "url_get_host", "url.() -> string", lambda url: url.host),
    ("getHostname", "url_get_hostname", "url.() -> string", lambda url: url.hostname),
    ("getPort", "url_get_port", "url.() -> string", lambda url: url.port),
    ("getEscapedPath", "url_get_escaped_path", "url.() -> string", lambda url: url.path),
    ("getQuery", "url_get_query", "url.() -> map(string, list(string))", _query),
]
