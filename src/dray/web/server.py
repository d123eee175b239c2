"""The page over HTTP: files of the page, JSON for each view, and a stream that tells what changes.

A thin shell: what is answered is in ``views`` and ``picture``, who may ask in ``guard``. Always true: every answer carries the
guard's headers; what one client does not read is not kept for it, it gets the difference to what it has; streams and questions
are bounded in number. What is served under /api is described in docs/page-api.md.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import mimetypes
import secrets
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from dray import __version__
from dray.api.digits import whole
from dray.api.kinds import DEVICE_TAINT_RULES, PODS
from dray.cluster.port import Cluster, Refused, Write
from dray.explain.plan import PlanError
from dray.explain.snapshot import SnapshotError
from dray.explain.targets import MANAGER, TargetError
from dray.web import views, workloads
from dray.web.applying import NotDone, Step, apply, stays_a_thought, steps
from dray.web.asking import Asking, TooMuch
from dray.web.doors import Doors
from dray.web.draining import Drains
from dray.web.guard import HEADERS, Guard
from dray.web.meters import Meters, Read, follow
from dray.web.moments import Moment, Scene
from dray.web.picture import Changed, Painter, Picture, changed
from dray.web.series import Series

ASSETS: Final = Path(__file__).parent / "assets"
STREAMS_MAX: Final = 64
BODY_MAX: Final = 8 << 20
# What comes within this time is told together.
GATHER_SECONDS: Final = 0.25
PING_SECONDS: Final = 15.0
# How long a picture may be old while nobody looks.
UNSEEN_SECONDS: Final = 10.0
# Painting takes one part in so many of a processor, whatever happens in the cluster.
PAINT_SHARE: Final = 10
# So does checking in so many.
VERIFY_SHARE: Final = 20
PICTURES_KEPT: Final = 16
TICKETS_KEPT: Final = 32
POINTS_RECORDED: Final = 300
# A client that does not take what it is sent within this time is let go.
STUCK_SECONDS: Final = 30.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class Page:
    """``serve`` on a bound socket, ``close`` in the end."""

    def __init__(self, scene: Scene, guard: Guard, *, allow_changes: bool = False, metrics: Read | None = None) -> None:
        """``metrics``: where the numbers of a scheduler are read, if anywhere."""
        self._scene, self._guard = scene, guard
        self._changes = allow_changes and scene.cluster is not None
        self._placing = views.Placing(scene.config, scene.gates)
        self._asking = Asking()
        # Apart, so that nobody waits for the map, or for what changes on it, because somebody asks what takes long.
        self._painting = Asking()
        self._painter = Painter(scene.config, scene.gates)
        self._pictures: deque[Picture] = deque(maxlen=PICTURES_KEPT)
        self._series = Series()
        self._tickets: dict[str, list[Step]] = {}
        self._drains = Drains(lambda: scene.moment().world.all(PODS).values())
        self._streams = 0
        self._stirred = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._doors: Doors | None = None
        self._listening: asyncio.Server | None = None
        self._telling: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._metrics, self._meters = metrics, Meters()
        self._metering: asyncio.Task[None] | None = None
        self._paint_after = self._verify_after = 0.0
        self._verify_turn = 0
        # Changes so far, and how many of them the newest picture has.
        self._stirs = self._shown = 0
        scene.listen(self._stir)

    async def serve(self, sock: socket.socket) -> None:
        app = web.Application(middlewares=[self._guarded], client_max_size=BODY_MAX)
        app.add_routes(self._routes())
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=30.0, handler_cancellation=True, shutdown_timeout=0.5
        )
        await self._runner.setup()
        assert self._runner.server is not None
        self._doors = Doors(self._runner.server)
        self._listening = await asyncio.get_running_loop().create_server(self._doors, sock=sock, backlog=256)
        if self._metrics is not None:
            self._metering = asyncio.ensure_future(follow(self._metrics, self._meters, time.time))

    def keep_warm(self) -> None:
        """Reads and paints now what the first one who looks would have to wait for, and keeps it current."""
        self._warming = asyncio.ensure_future(self._warm())

    async def _warm(self) -> None:
        # What is read and painted stays: looking through it for garbage again and again would take as long as painting it.
        gc.disable()
        try:
            await self._scene.begin()
            if self._scene.mode == "run":
                return
            await self._picture()
            gc.freeze()
        finally:
            gc.enable()
        while True:
            await asyncio.sleep(UNSEEN_SECONDS)
            await self._quiet(self._pictures[-1].number, None)
            await self._picture()

    async def close(self) -> None:
        """What is read from ends next: the watches stop first."""
        for task in (self._warming, self._metering):
            if task is not None:
                task.cancel()
        await self._drains.close()
        await self._scene.close()
        self._asking.close()
        self._painting.close()
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        files = {f"/{path.name}": path for path in sorted(ASSETS.iterdir()) if path.is_file()}
        served = [web.get(name, _file(path)) for name, path in files.items()]
        placing = self._placing
        return [
            web.get("/", _file(ASSETS / "index.html")),
            *served,
            web.get("/api/about", self._about),
            web.get("/api/map", self._map),
            web.get("/api/stream", self._stream),
            web.get("/api/waiting", self._view(lambda moment, _: views.waiting_pods(moment, placing))),
            web.get("/api/verify", self._verify),
            web.get("/api/queues", self._view(lambda moment, _: workloads.queues(moment, placing))),
            web.get("/api/taints", self._view(lambda moment, _: views.taints(moment, placing))),
            web.post("/api/taints/preview", self._preview),
            web.delete("/api/taints", self._untaint),
            web.get("/api/series", self._numbers),
            web.get("/api/metrics", self._metered),
            web.post("/api/plan", self._plan),
            web.post("/api/apply", self._apply),
            web.get("/api/drains", self._draining),
            web.delete("/api/drains", self._undrain),
            web.get("/api/node", self._view(lambda moment, asked: views.node(moment, asked["name"], placing), "name")),
            web.get("/api/device", self._view(lambda moment, asked: views.device(moment, asked["name"], placing), "name")),
            web.get("/api/pod", self._view(lambda moment, asked: views.pod(moment, asked["name"], placing), "name")),
        ]

    # ------------------------------------------------------------------------------------------------------------- asking

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = self._guard.refuses(request.path, request.headers)
        if refusal is not None:
            return _error(refusal.status, refusal.message)
        assert self._doors is not None
        try:
            with self._doors.answering(request.protocol):
                answer = await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except views.Unknown as error:
            return _error(404, str(error))
        except (TargetError, PlanError, SnapshotError) as error:
            return _error(400, str(error))
        except Refused as error:
            return _error(error.code, error.message)
        except NotDone as error:
            return _error(409, str(error))
        except TooMuch:
            return _error(503, "too many requests at once; try again in a moment")
        except Exception:
            log.exception("internal error: this is a bug in Dray", extra={"path": request.path})
            return _error(500, "internal error: this is a bug in Dray; see its log")
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    def _view(self, question: Callable[[Moment, Mapping[str, str]], Any], *needs: str) -> Handler:
        """A question about a moment, answered once for each moment, as often as it is asked."""

        async def handler(request: web.Request) -> web.Response:
            if missing := [name for name in needs if not request.query.get(name)]:
                return _error(400, f"{missing[0]} is missing")
            moment = await self._moment(request)
            key = (request.path_qs, moment.number, int(moment.at // 5))
            # Schedulers that are asked put indexes on their world; they must not pile up on one that stays.
            asked = msgspec.structs.replace(moment, world=moment.world.copy())
            return await _sent(request, await self._asking.once(key, lambda: msgspec.json.encode(question(asked, request.query))))

        return handler

    async def _verify(self, request: web.Request) -> web.Response:
        """Every open page asks this whenever something changes, and in a large cluster the answer takes a second. So one serves
        them all for a time, which is short where the answer is had quickly."""
        moment = await self._moment(request)
        live = self._scene.mode == "live"
        if live and time.monotonic() >= self._verify_after:
            self._verify_after, self._verify_turn = inf, self._verify_turn + 1

        def question() -> bytes:
            began = time.thread_time()
            try:
                return msgspec.json.encode(views.verify(moment))
            finally:
                self._verify_after = time.monotonic() + (VERIFY_SHARE - 1) * (time.thread_time() - began)

        key = ("verify", self._verify_turn if live else moment.number)
        return await _sent(request, await self._asking.once(key, question))

    async def _moment(self, request: web.Request) -> Moment:
        await self._scene.begin()
        return self._scene.moment(_at(request))

    async def _about(self, request: web.Request) -> web.Response:
        scene = self._scene
        await scene.begin()
        about = {
            "title": scene.title,
            "mode": scene.mode,
            "changes": self._changes,
            "version": __version__,
            "notices": scene.notices,
            "span": scene.span,
        }
        return await _sent(request, msgspec.json.encode(about))

    async def _numbers(self, request: web.Request) -> web.Response:
        await self._scene.begin()
        until = self._scene.span.length if self._scene.span is not None else 0.0
        recorded = await self._asking.once(("points", until), lambda: self._scene.points(POINTS_RECORDED))
        if recorded is None:
            await self._picture()
        points = self._series.points() if recorded is None else recorded
        return await _sent(request, msgspec.json.encode({"points": points}))

    async def _metered(self, request: web.Request) -> web.Response:
        meters = self._meters
        told = {"read": self._metrics is not None, "trouble": meters.trouble, "plots": meters.plots()}
        return await _sent(request, msgspec.json.encode(told))

    async def _plan(self, request: web.Request) -> web.Response:
        """What would come of a change. Nothing is changed by asking, so everybody who may look may ask."""
        change = await _body(request, views.Change)
        moment = await self._moment(request)
        found = await self._scene.snapshot(_at(request))
        answer = await self._asking.now(lambda: views.planned(found, change, moment.at, self._placing))
        why_not = stays_a_thought(change)
        able: dict[str, Any] = {"ticket": None, "does": [], "whyNot": why_not}
        if self._changes and not why_not:
            done = await self._asking.now(lambda: list(steps(change, moment.world, self._drains)))
            able.update(ticket=self._ticket(done), does=[told for told, _ in done])
        return await _sent(request, msgspec.json.encode({**answer, **able}))

    # ------------------------------------------------------------------------------------------------------------- changes

    def _ticket(self, change: list[Step]) -> str:
        """For doing once what was looked at."""
        ticket = secrets.token_urlsafe(12)
        self._tickets[ticket] = change
        while len(self._tickets) > TICKETS_KEPT:
            del self._tickets[next(iter(self._tickets))]
        return ticket

    async def _apply(self, request: web.Request) -> web.Response:
        cluster = self._writable()
        change = self._tickets.pop((await _body(request, Ticket)).ticket, None)
        if change is None:
            raise web.HTTPConflict(reason="preview the change first: the preview is missing or too old")
        return await _sent(request, msgspec.json.encode({"done": await apply(cluster, change)}))

    async def _preview(self, request: web.Request) -> web.Response:
        """What a taint would do; with a ticket, because only what was looked at can be done."""
        asked = await _body(request, Tainting)
        rule = views.taint_rule(asked.target, asked.taint)
        moment = await self._moment(request)
        seen = msgspec.structs.replace(moment, world=moment.world.copy())
        answer = await self._asking.now(lambda: views.preview(seen, rule, self._placing))
        ticket = self._ticket(list(steps(views.Change(taint_devices=[(asked.target, asked.taint)]), moment.world, self._drains)))
        return await _sent(request, msgspec.json.encode({**answer, "ticket": ticket}))

    async def _untaint(self, request: web.Request) -> web.Response:
        cluster, name = self._writable(), request.query.get("rule", "")
        await cluster.write(Write("delete", DEVICE_TAINT_RULES, name=name, field_manager=MANAGER))
        return await _sent(request, msgspec.json.encode({"rule": name}))

    async def _draining(self, request: web.Request) -> web.Response:
        await self._scene.begin()
        return await _sent(request, msgspec.json.encode({"drains": self._drains.told()}))

    async def _undrain(self, request: web.Request) -> web.Response:
        self._writable()
        node = request.query.get("node", "")
        if not self._drains.stop(node):
            raise views.Unknown(f"no drain of node {node} was started here")
        return await _sent(request, msgspec.json.encode({"node": node}))

    def _writable(self) -> Cluster:
        if not self._changes or self._scene.cluster is None:
            raise web.HTTPForbidden(reason="this page is read-only; start it with --allow-changes to make changes")
        return self._scene.cluster

    # ------------------------------------------------------------------------------------------------------------ the map

    async def _map(self, request: web.Request) -> web.Response:
        moment = await self._moment(request)
        if self._scene.mode == "run":
            paint = lambda: _packed(self._painter.paint(moment))  # noqa: E731
            return _unpacked(request, await self._painting.once(("map", moment.number), paint))
        picture = await self._picture()
        return _unpacked(request, await self._painting.once(("map", picture.number), lambda: _packed(picture)))

    async def _picture(self) -> Picture:
        """The newest. One that shows nothing new is the one before; so is one that it is too early for."""
        if self._pictures and time.monotonic() < self._paint_after:
            return self._pictures[-1]
        moment, stirs = self._scene.moment(), self._stirs
        key = ("picture", moment.number, int(moment.at // PING_SECONDS))
        picture = await self._painting.once(key, lambda: self._painted(moment))
        self._shown = max(self._shown, stirs)
        return picture

    def _painted(self, moment: Moment) -> Picture:
        began = time.thread_time()
        picture = self._painter.paint(moment)
        last = self._pictures[-1] if self._pictures else None
        picture.number = last.number + 1 if last is not None else 1
        same = last is not None and (told := changed(last, picture)) is not None and not _shows(last, told)
        if not same:
            self._pictures.append(picture)
            self._series.add(picture)
        self._paint_after = time.monotonic() + (PAINT_SHARE - 1) * (time.thread_time() - began)
        return last if same and last is not None else picture

    def _stir(self) -> None:
        """A thousand changes at once wake those who wait once."""
        self._stirs += 1
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self._stirred:
            self._stirred.notify_all()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= STREAMS_MAX:
            return _error(503, f"{STREAMS_MAX} pages are open already; close one")
        await self._scene.begin()
        number = whole(request.query.get("since", "")) or 0
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        self._streams += 1
        try:
            await response.prepare(request)
            await self._tell(response, number)
        except (ConnectionError, TimeoutError):
            pass  # whoever listened has gone
        finally:
            self._streams -= 1
        return response

    async def _tell(self, response: web.StreamResponse, number: int) -> None:
        await _event(response, "hello", {"number": number})
        while True:
            new = await self._picture()
            if new.number != number:
                old = next((each for each in self._pictures if each.number == number), None)
                told = changed(old, new) if old is not None else None
                await _event(response, "change" if told is not None else "reset", told or {"number": new.number})
                number = new.number
            if await self._quiet(number, PING_SECONDS):
                await _event(response, "ping", {})
            else:
                await asyncio.sleep(max(GATHER_SECONDS, self._paint_after - time.monotonic() + 0.001))

    async def _quiet(self, number: int, most: float | None) -> bool:
        """Waits for something that the picture of this number does not show; whether nothing came for so long."""

        def stirred() -> bool:
            return self._stirs != self._shown or self._pictures[-1].number != number

        async with self._stirred:
            try:
                await asyncio.wait_for(self._stirred.wait_for(stirred), most)
            except TimeoutError:
                return True
        return False


class Tainting(msgspec.Struct):
    """``DRIVER/POOL/DEVICE`` and ``key=value:Effect``, as for `dray taint`."""

    target: str
    taint: str


class Ticket(msgspec.Struct):
    ticket: str


T = TypeVar("T")


async def _body(request: web.Request, kind: type[T]) -> T:
    """Only as JSON, which no form of another page can send."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="the body must be application/json")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise web.HTTPBadRequest(reason=str(error)) from None


def _at(request: web.Request) -> float | None:
    at = request.query.get("at")
    try:
        return float(at) if at else None
    except ValueError:
        raise web.HTTPBadRequest(reason="at is not a number of seconds") from None


def _shows(last: Picture, told: Changed) -> bool:
    return bool(told.pools or told.nodes or (told.waiting, told.pods) != (last.waiting, last.pods))


async def _event(response: web.StreamResponse, name: str, data: Any) -> None:
    message = b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
    await asyncio.wait_for(response.write(message), STUCK_SECONDS)


async def _sent(request: web.Request, body: bytes) -> web.Response:
    headers = {}
    if len(body) > 1024 and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await asyncio.to_thread(gzip.compress, body, 1) if len(body) > 100_000 else gzip.compress(body, 1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type="application/json", headers=headers)


def _packed(picture: Picture) -> bytes:
    """A picture of a large cluster is megabytes of text that is much alike; so it is kept, and sent to nearly everybody."""
    return gzip.compress(msgspec.json.encode(picture), 1)


def _unpacked(request: web.Request, packed: bytes) -> web.Response:
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=gzip.decompress(packed), content_type="application/json")
    return web.Response(body=packed, content_type="application/json", headers={"Content-Encoding": "gzip"})


def _error(status: int, message: str) -> web.Response:
    headers = {**HEADERS, **({"Retry-After": "5"} if status == 503 else {})}
    return web.Response(
        status=status, body=msgspec.json.encode({"error": message}), content_type="application/json", headers=headers
    )


def _file(path: Path) -> Handler:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    small = gzip.compress(body, 9, mtime=0)

    async def handler(request: web.Request) -> web.Response:
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {"Content-Encoding": "gzip"} if packed else {}
        charset = "utf-8" if kind.startswith("text/") else None
        return web.Response(body=small if packed else body, content_type=kind, charset=charset, headers=headers)

    return handler
