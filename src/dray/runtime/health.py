"""The HTTP endpoints of a running part: /healthz, /livez, /readyz, /metrics and /story.

A check is a function that gives None, or why it fails. ``?verbose`` lists the checks, ``?exclude=NAME`` leaves one out, and
each has its own path, as in every Kubernetes component.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

from dray.api.digits import whole
from dray.cluster.numbers import FORMAT
from dray.runtime.metrics import Metrics
from dray.runtime.stories import Stories

Check = Callable[[], str | None]


def ping() -> str | None:
    return None


class Health:
    """Serves until closed. ``health``, ``live`` and ``ready`` are the checks by name."""

    def __init__(
        self,
        *,
        health: Mapping[str, Check] | None = None,
        live: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        metrics: Metrics | None = None,
        stories: Stories | None,
    ) -> None:
        self._checks = {"healthz": health or {"ping": ping}, "livez": live or {"ping": ping}, "readyz": ready or {"ping": ping}}
        self._metrics, self._stories = metrics, stories
        self._runner: web.AppRunner | None = None

    async def serve(self, address: str) -> str:
        """Listen on ``host:port`` (port 0: any) and return the URL."""
        host, _, port = address.rpartition(":")
        if whole(port) is None:
            raise ValueError(f"{address!r} is not HOST:PORT")
        app = web.Application()
        app.router.add_get("/{endpoint:healthz|livez|readyz}", self._endpoint)
        app.router.add_get("/{endpoint:healthz|livez|readyz}/{check}", self._single)
        if self._metrics is not None:
            app.router.add_get("/metrics", self._serve_metrics)
        if self._stories is not None:
            app.router.add_get("/story", self._serve_story)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host.strip("[]") or "127.0.0.1", int(port))
        await site.start()
        listening = self._runner.addresses[0]
        shown = f"[{listening[0]}]" if ":" in listening[0] else listening[0]
        return f"http://{shown}:{listening[1]}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _endpoint(self, request: web.Request) -> web.Response:
        endpoint = request.match_info["endpoint"]
        status, body = report(endpoint, self._checks[endpoint], request.query.getall("exclude", []), "verbose" in request.query)
        return web.Response(status=status, text=body)

    async def _single(self, request: web.Request) -> web.Response:
        endpoint, name = request.match_info["endpoint"], request.match_info["check"]
        check = self._checks[endpoint].get(name)
        if check is None:
            return web.Response(status=404, text=f"no check {name!r}; known: {', '.join(self._checks[endpoint])}\n")
        failure = check()
        return web.Response(status=200, text="ok") if failure is None else web.Response(status=500, text=f"{failure}\n")

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        assert self._metrics is not None
        return web.Response(body=self._metrics.text(), headers={"Content-Type": FORMAT})

    async def _serve_story(self, request: web.Request) -> web.Response:
        assert self._stories is not None
        key = request.query.get("key", "")
        answer = {"key": key, "story": self._stories.story(key)}
        status = 200 if answer["story"] else 404
        return web.Response(status=status, body=msgspec.json.encode(answer), content_type="application/json")


def report(endpoint: str, checks: Mapping[str, Check], exclude: list[str], verbose: bool) -> tuple[int, str]:
    """The status and text of an endpoint."""
    lines, failed = [], False
    for name, check in checks.items():
        if name in exclude:
            lines.append(f"[+]{name} excluded: ok")
            continue
        failure = check()
        failed = failed or failure is not None
        lines.append(f"[+]{name} ok" if failure is None else f"[-]{name} failed: {failure}")
    if unknown := sorted(set(exclude) - set(checks)):
        named = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
    if failed:
        return 500, "\n".join([*lines, f"{endpoint} check failed", ""])
    return 200, "\n".join([*lines, f"{endpoint} check passed", ""]) if verbose else "ok"
