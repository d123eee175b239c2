"""Requests through an HTTP proxy, where a kubeconfig or the environment names one.

Only there is a general HTTP client worth its loading time.

Always true: ``ask`` and ``stream`` behave as those of ``dray.cluster.connections``, and raise the same.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import aiohttp
from yarl import URL

from dray.cluster.connections import Answer, Broken, NotSent, TooMuch
from dray.cluster.proxies import without_password

Headers = Sequence[tuple[str, str]]

_NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)
_BROKEN: Final = (aiohttp.ClientError, TimeoutError, ConnectionError)


class ProxiedStream:
    """An answer that is read as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except _BROKEN as error:
            raise Broken(_words(error)) from error

    def close(self) -> None:
        self._response.close()


class Proxied:
    """One session through one proxy."""

    def __init__(
        self, proxy: str, server: str, *, limit: int, connect_seconds: float, answer_seconds: float, silence_seconds: float
    ) -> None:
        self._proxy, self._server = proxy, server
        self._watching = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=silence_seconds)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=90),
            timeout=aiohttp.ClientTimeout(total=answer_seconds, sock_connect=connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
        )

    async def ask(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | None,
        tls: ssl.SSLContext | None,
        server_name: str,
    ) -> Answer:
        try:
            async with await self._send(method, target, headers, body, tls, server_name) as response:
                return Answer(response.status, await response.read(), response.headers.get("Retry-After", ""))
        except _NOT_SENT as error:
            raise NotSent(self._why(error), _hopeless(error)) from error
        except TimeoutError as error:
            raise TooMuch(_words(error)) from error
        except _BROKEN as error:
            raise Broken(_words(error)) from error

    async def stream(self, target: str, headers: Headers, tls: ssl.SSLContext | None, server_name: str) -> ProxiedStream:
        try:
            response = await self._send("GET", target, headers, None, tls, server_name, timeout=self._watching)
        except _NOT_SENT as error:
            raise NotSent(self._why(error), _hopeless(error)) from error
        except _BROKEN as error:
            raise Broken(_words(error)) from error
        return ProxiedStream(response)

    def _why(self, error: Exception) -> str:
        """Why nothing was sent; whose fault it is, because there are two that could not be reached."""
        proxy = without_password(self._proxy)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"the proxy {proxy} refused: {error.status} {error.message}"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"no connection to the proxy {proxy}: {error.os_error}"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"{error.os_error} (through the proxy {proxy})"
        return _words(error)

    async def close(self) -> None:
        await self._session.close()

    async def _send(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | None,
        tls: ssl.SSLContext | None,
        server_name: str,
        **options: Any,
    ) -> aiohttp.ClientResponse:
        if server_name:
            options["server_hostname"] = server_name
        if tls is not None:
            options["ssl"] = tls
        # Objects may name redirect targets nowhere in this API; following one would carry our token to somebody else.
        return await self._session.request(
            method,
            URL(self._server + target, encoded=True),
            headers=headers,
            data=body,
            proxy=self._proxy,
            allow_redirects=False,
            **options,
        )


def _hopeless(error: Exception) -> bool:
    """Whether the same would be refused a second later: a certificate that is not trusted, or a proxy that wants to know us."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return 400 <= error.status < 500
    return isinstance(error, ssl.SSLCertVerificationError)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
