"""The page in a real browser, against those who would use it to read or to run something."""

from __future__ import annotations

import http.server
import threading
from typing import Any

import pytest

from tests.web import browser
from tests.web.clusters import DRIVER, claim, node, pod, resource_slice, small
from tests.web.conftest import still
from tests.web.test_server import ATTACK

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())]


class _Evil(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><h1>evil</h1>")

    def log_message(self, *_: Any) -> None:
        pass


def test_a_page_of_another_origin_reads_nothing_even_with_the_token(chromium: Any, shown: browser.Served) -> None:
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{evil.server_port}/")
    asked = """async ([base, token]) => {
      const answers = [];
      for (const init of [{}, {headers: {Authorization: `Bearer ${token}`}}, {credentials: "include"}, {mode: "no-cors"}])
        answers.push(await fetch(`${base}/api/map`, init).then((answer) => answer.text(), () => "refused"));
      return answers;
    }"""
    answers = page.evaluate(asked, [shown.base, browser.TOKEN])
    assert answers == ["refused"] * 4
    page.evaluate(
        "base => { const frame = document.createElement('iframe'); frame.src = base; document.body.append(frame); }", shown.base
    )
    page.wait_for_timeout(300)
    assert not [frame for frame in page.frames if frame.url.startswith(shown.base) and frame.query_selector("header")]
    context.close()
    evil.shutdown()


def hostile() -> list[dict[str, Any]]:
    """Script wherever a cluster lets people write something."""
    name = ATTACK.replace("/", "\\u2215")
    attacked = pod("attacked", "wants", labels={"a": ATTACK}, annotations={"b": ATTACK})
    condition = {"type": "PodScheduled", "status": "False", "reason": ATTACK, "message": ATTACK}
    attacked["status"]["conditions"] = [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    device = {
        "name": name,
        "attributes": {"note": {"string": ATTACK}},
        "taints": [{"key": name, "value": name, "effect": "NoSchedule"}],
    }
    slice = resource_slice(f"node-{name}", [device], driver=DRIVER, pool=f"pool-{name}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "team"},
        "involvedObject": {"kind": "Pod", "namespace": "team", "name": "attacked"},
        "reason": ATTACK,
        "message": ATTACK,
        "lastTimestamp": "2026-01-01T00:00:01Z",
    }
    return [*small(), claim("wants", count=9), attacked, node(f"node-{name}", labels={"rack": ATTACK}), slice, event]


def test_script_in_names_labels_annotations_and_messages_stays_text(chromium: Any) -> None:
    objects = hostile()
    name = ATTACK.replace("/", "\\u2215")
    with browser.in_a_thread(lambda: still(objects)) as served, browser.looking(chromium, served) as page:
        page.goto(served.at("#/map?group=rack&zoom=20"))
        page.wait_for_selector(browser.MAP)
        for address in ("#/pod/team/attacked", "#/waiting", "#/map?as=table", "#/taints", "#/health"):
            page.goto(served.at(address))
            browser.settled(page)
            assert page.locator("main img, main script, main iframe").count() == 0
        for what, called in (("node", f"node-{name}"), ("device", f"{DRIVER}/pool-{name}/{name}")):
            page.evaluate(
                "([what, called]) => { location.hash = `#/map?on=${what}:${encodeURIComponent(called)}` }", [what, called]
            )
            page.locator(".panel dl").first.wait_for()
            assert "<script>" in page.locator(".panel").inner_text()
            assert page.locator(".panel img, .panel script").count() == 0
        page.goto(served.at("#/pod/team/attacked"))
        page.get_by_text("<img src=x").first.wait_for()


def test_an_address_can_carry_no_script(chromium: Any, shown: browser.Served) -> None:
    with browser.looking(chromium, shown) as page:
        for address in (
            "#/map?filter=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
            "#/pod/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
            "#/javascript:alert(1)",
        ):
            page.goto(shown.at(address))
            page.wait_for_timeout(200)
            assert page.locator("main img, main script").count() == 0
