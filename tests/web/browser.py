"""A real browser, and pages that are served from a thread of their own while it looks at them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dray.web.guard import Guard
from dray.web.moments import Scene
from dray.web.server import Page

TOKEN = "a-token"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# The canvas of the map.
MAP = ".stage canvas[role=application]"


def found() -> str:
    """Where a browser is, or nothing."""
    named = os.environ.get("DRAY_BROWSER", "")
    return named or next((path for name in BROWSERS if (path := shutil.which(name))), "")


def missing() -> str:
    """Why no browser can be used, or nothing."""
    if not found():
        return "needs Chromium: apt-get install chromium, or DRAY_BROWSER=/path/to/it"
    if importlib.util.find_spec("playwright") is None:
        return "needs Playwright: pip install -e '.[page]'"
    return ""


class Served:
    """``url`` is what to open. ``run`` does something in the loop that serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, base: str) -> None:
        self._loop, self.base = loop, base

    @property
    def url(self) -> str:
        return f"{self.base}/#token={TOKEN}"

    def at(self, address: str) -> str:
        return f"{self.base}/{address}"

    def run(self, job: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(30)


@contextmanager
def in_a_thread(make: Any, **options: Any) -> Iterator[Served]:
    """Serves what ``make`` gives, at once or when awaited: a scene."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    sock = socket.create_server(("127.0.0.1", 0))
    served = Served(loop, f"http://127.0.0.1:{sock.getsockname()[1]}")

    async def begin() -> Page:
        scene: Scene = await make() if asyncio.iscoroutinefunction(make) else make()
        page = Page(scene, Guard(TOKEN), **options)
        await page.serve(sock)
        page.keep_warm()
        return page

    page = served.run(begin())
    try:
        yield served
    finally:
        served.run(page.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@contextmanager
def looking(chromium: Any, served: Served, address: str = "", **options: Any) -> Iterator[Any]:
    """A fresh browser that has opened the page. Trouble on it, and requests to others, fail the test."""
    options.setdefault("viewport", {"width": 1280, "height": 800})
    context = chromium.new_context(**options)
    page = context.new_page()
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text) if _bad(message) else None)
    page.on("request", lambda asked: None if asked.url.startswith(served.base) else trouble.append(f"asked {asked.url}"))
    page.on("dialog", lambda dialog: (trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.goto(served.url)
    page.wait_for_selector("header.top")
    if address:
        page.goto(served.at(address))
    yield page
    assert not trouble
    context.close()


def _bad(message: Any) -> bool:
    """An answer that something is not there is one, and browsers log it."""
    return message.type == "error" and not re.search(r"status of 4\d\d", message.text)


def picture(page: Any, name: str) -> None:
    """What is on the screen, where DRAY_SEEN names a folder for those who want to look."""
    if folder := os.environ.get("DRAY_SEEN"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def settled(page: Any) -> None:
    page.wait_for_selector("main :is(h1, canvas, table)")
    for words in ("loading …", "reading the cluster …"):
        while page.get_by_text(words, exact=True).count():
            page.wait_for_timeout(20)
