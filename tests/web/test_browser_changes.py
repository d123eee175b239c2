"""Changes that are made from the page, in a real browser, on a cluster that runs."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import POD_DISRUPTION_BUDGETS, PODS
from dray.cluster.port import Write
from dray.web.live import Live
from tests.web import browser
from tests.web.test_draining import NODE, OBJECTS
from tests.web.test_live import running

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())]


def test_a_node_is_drained_after_the_preview_and_what_a_budget_says_is_shown(chromium: Any) -> None:
    started = running()
    scenes = list[Live]()

    async def scene() -> Live:
        local, onlooker = await started.__aenter__()
        scenes.append(Live(local.port, "live", onlooker=onlooker))
        return scenes[0]

    with browser.in_a_thread(scene, allow_changes=True) as served:
        cluster = scenes[0].cluster
        assert cluster is not None
        with browser.looking(chromium, served, "#/what-if") as page:
            page.get_by_label("manifests to apply").fill(OBJECTS)
            page.get_by_role("button", name="preview").click()
            page.get_by_role("button", name="apply").click()
            page.get_by_text("Done: apply Deployment web; apply DaemonSet agent; apply Pod alone").wait_for()
            page.get_by_label("manifests to apply").fill("")
            while not _all_run(scenes[0]):
                page.wait_for_timeout(50)
            page.goto(served.at(f"#/map?on=node:{NODE}"))
            page.get_by_role("link", name="drain it").click()
            page.get_by_text(f"drain {NODE}: cordon it and evict 3 pods").wait_for()
            page.get_by_role("button", name="apply").click()
            drains = page.get_by_role("region", name="drains")
            drains.get_by_text("is being drained").wait_for()
            drains.get_by_text("disruption budget web needs 1 healthy pods").wait_for()
            browser.picture(page, "drain")
            served.run(cluster.write(Write("delete", POD_DISRUPTION_BUDGETS, "default", "web")))
            drains.get_by_text("is drained", exact=False).wait_for()
            drains.get_by_text("3 pods evicted, 0 left").wait_for()
        served.run(started.__aexit__(None, None, None))


def _all_run(scene: Live) -> bool:
    world = scene.moment().world
    budget = world.get(POD_DISRUPTION_BUDGETS, "default/web")
    allowed = budget is not None and budget.status.disruptions_allowed == 1
    return allowed and sum(pod.status.phase == "Running" for pod in world.all(PODS).values()) == 4
