"""What the page costs on a large cluster: nodes with eight devices each, two thirds of them in use.

``python -m benchmarks.page [NODES]``; prints one line of JSON for each question, in seconds of one processor unless it says
otherwise. With a browser (see tests/web/browser.py) also what it takes to see the map for the first time, and again.
"""

from __future__ import annotations

import gc
import gzip
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from dray.api.kinds import RESOURCE_CLAIMS
from dray.web import views
from dray.web.moments import Still
from dray.web.picture import Painter
from tests.web import browser
from tests.web.clusters import large
from tests.web.conftest import still

FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def main(nodes: int) -> None:
    scene = still(large(nodes))
    gc.collect()
    gc.freeze()
    served(scene)
    if not browser.missing():
        seen(scene)


def served(scene: Still) -> None:
    painter, moment = Painter(), scene.moment()
    picture = _told("first painting", lambda: painter.paint(moment))
    claim = next(iter(moment.world.all(RESOURCE_CLAIMS).values()))
    changed = msgspec.structs.replace(moment, number=2, world=moment.world.copy())
    changed.world.forget(RESOURCE_CLAIMS, claim.key, claim.uid)
    _told("painting after a change", lambda: painter.paint(changed))
    text = _told("as JSON", lambda: msgspec.json.encode(picture))
    packed = _told("packed", lambda: gzip.compress(text, 1))
    print(json.dumps({"MB": round(len(text) / 1e6, 1), "MB packed": round(len(packed) / 1e6, 2)}))
    _told("verify", lambda: views.verify(moment))


def _told(name: str, question: Callable[[], Any]) -> Any:
    began = time.thread_time()
    answer = question()
    print(json.dumps({name: round(time.thread_time() - began, 3)}))
    return answer


def seen(scene: Still) -> None:
    from playwright.sync_api import sync_playwright

    with browser.in_a_thread(lambda: scene) as served, sync_playwright() as playwright:
        time.sleep(3)  # it paints when it starts
        chromium = playwright.chromium.launch(executable_path=browser.found(), args=["--no-sandbox"])
        for visit in ("first visit", "second visit", "third visit"):
            context = chromium.new_context(viewport={"width": 1600, "height": 1000})
            page = context.new_page()
            measured = context.new_cdp_session(page)
            measured.send("Performance.enable", {"timeDomain": "threadTicks"})
            began = time.monotonic()
            page.goto(served.url)
            page.wait_for_selector(".stage canvas[role=application]", timeout=60_000)
            page.evaluate(FRAMES)
            wall = time.monotonic() - began
            numbers = {each["name"]: each["value"] for each in measured.send("Performance.getMetrics")["metrics"]}
            print(json.dumps({visit: round(numbers["TaskDuration"], 2), "by the clock": round(wall, 2)}))
            context.close()
        chromium.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
