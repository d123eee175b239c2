"""The pictures in the README and in docs are of the page as it is, made by this run. With DRAY_PICTURES=1 they are put there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dray.simulate.recording import Recorder
from dray.simulate.run import simulate
from dray.simulate.scenario import read as scenario_of
from dray.web.recorded import Recorded
from tests.web import browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())]

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
PARTED = "gpu.nvidia.com/h100-8-1/gpu-6"
MORE = """apiVersion: v1
kind: Pod
metadata: {name: more, namespace: default}
spec:
  containers: [{name: main, image: train, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: two-gpus}]"""


class Picture(NamedTuple):
    """``shows``: words that are on it; ``asks``: objects that are pasted and rehearsed for it."""

    name: str
    address: str
    shows: str
    scheme: str = "light"
    width: int = 1200
    height: int = 720
    asks: str = ""


ALL = (
    Picture("map", "#/map?at=255&on=device:gpu.dray.dev/gpu8-5/gpu-7", "example.com/broken=ecc:NoExecute"),
    Picture("partitions", f"#/map?at=255&zoom=26&filter=node%3Dh100-8-1&on=device:{PARTED}", "counters of gpu-6", "dark"),
    Picture("waiting", "#/waiting?at=255", "podgroup default/speech-large cannot start as a whole", height=880),
    Picture("pod", "#/pod/default/late-13?at=255", "kubectl uncordon gpu8-0", "dark", height=860),
    Picture("queues", "#/queues?at=255", "Preempted by pod default/speech-train", height=700),
    Picture("what-if", "#/what-if?at=110&cordon=gpu8-2", "before", "dark", height=900, asks=MORE),
    Picture("story", "#/pod/default/attached?at=300", "BindingConditionsPending", height=880),
    Picture("narrow", "#/map?at=255", "being attached", width=320, height=640),
)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Served]:
    path = tmp_path_factory.mktemp("day") / "day.gz"
    with Recorder(path) as recorder:
        simulate(scenario_of([Path(__file__).parent / "day.yaml"]), recorder)
    with browser.in_a_thread(lambda: Recorded(path)) as served:
        yield served


@pytest.mark.parametrize("picture", ALL, ids=lambda picture: picture.name)
def test_a_picture_shows_what_it_is_for(chromium: Any, day: browser.Served, picture: Picture, tmp_path: Path) -> None:
    size = {"width": picture.width, "height": picture.height}
    made = tmp_path / f"{picture.name}.png"
    with browser.looking(chromium, day, picture.address, viewport=size, color_scheme=picture.scheme) as page:
        browser.settled(page)
        if picture.asks:
            page.get_by_label("manifests to apply").fill(picture.asks)
            page.get_by_role("button", name="preview").click()
        page.get_by_text(picture.shows).first.wait_for()
        page.locator(".badge.ok").wait_for()
        page.wait_for_timeout(300)
        page.screenshot(path=made)
    if os.environ.get("DRAY_PICTURES"):
        shutil.copy(made, PICTURES / made.name)


def test_every_picture_that_pages_show_is_one_of_these_and_the_other_way_round() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+)\.png", page.read_text())}
    assert shown == {picture.name for picture in ALL} == {path.stem for path in PICTURES.iterdir()}
