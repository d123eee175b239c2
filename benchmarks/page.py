"""What the page costs on a large cluster: nodes with eight devices each, two thirds of them in use.

With a browser (see tests/web/browser.py) also what it takes to see the map for the first time, and again.
"""

from __future__ import annotations

import gc
import gzip
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.table import Table
from dray.api.kinds import RESOURCE_CLAIMS
from dray.web import views
from dray.web.moments import Still
from dray.web.picture import Painter
from tests.web import browser
from tests.web.clusters import large
from tests.web.conftest import still

FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def page(quick: bool) -> Table:
    nodes = 20 if quick else 5_000
    scene = still(large(nodes))
    gc.collect()
    gc.freeze()
    table = Table(
        f"The page with {nodes:,} nodes of eight devices each, two thirds in use", ("what", "processor", "by the clock")
    )
    served(scene, table)
    if missing := browser.missing():
        table.notes.append(f"Not seen in a browser: {missing}.")
    else:
        seen(scene, table)
    gc.unfreeze()
    return table


def served(scene: Still, table: Table) -> None:
    painter, moment = Painter(), scene.moment()
    picture = _told(table, "first painting", lambda: painter.paint(moment))
    claim = next(iter(moment.world.all(RESOURCE_CLAIMS).values()))
    changed = msgspec.structs.replace(moment, number=2, world=moment.world.copy())
    changed.world.forget(RESOURCE_CLAIMS, claim.key, claim.uid)
    _told(table, "painting after a change", lambda: painter.paint(changed))
    text = _told(table, "as JSON", lambda: msgspec.json.encode(picture))
    packed = _told(table, "packed", lambda: gzip.compress(text, 1))
    table.notes.append(f"{len(text) / 1e6:.1f} MB of JSON, {len(packed) / 1e6:.2f} MB packed.")
    _told(table, "checking everything (verify)", lambda: views.verify(moment))


def _told(table: Table, name: str, question: Callable[[], Any]) -> Any:
    began = time.thread_time()
    answer = question()
    table.add(name, f"{time.thread_time() - began:.3f} s", "")
    return answer


def seen(scene: Still, table: Table) -> None:
    from playwright.sync_api import sync_playwright

    with browser.in_a_thread(lambda: scene) as served, sync_playwright() as playwright:
        time.sleep(3)  # it paints when it starts
        chromium = playwright.chromium.launch(executable_path=browser.found(), args=["--no-sandbox"])
        for visit in ("first visit", "second visit", "third visit"):
            context = chromium.new_context(viewport={"width": 1600, "height": 1000})
            tab = context.new_page()
            measured = context.new_cdp_session(tab)
            measured.send("Performance.enable", {"timeDomain": "threadTicks"})
            began = time.monotonic()
            tab.goto(served.url)
            tab.wait_for_selector(".stage canvas[role=application]", timeout=60_000)
            tab.evaluate(FRAMES)
            wall = time.monotonic() - began
            numbers = {each["name"]: each["value"] for each in measured.send("Performance.getMetrics")["metrics"]}
            table.add(visit, f"{numbers['TaskDuration']:.2f} s", f"{wall:.2f} s")
            context.close()
        chromium.close()


TABLES = {"page": page}
