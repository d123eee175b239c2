"""What is in the package is what the sources in web/ make, and it is small."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from dray.web.server import ASSETS

WEB = Path(__file__).parents[2] / "web"


def test_the_page_is_small() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in ASSETS.iterdir()}
    assert {"index.html", "app.js", "style.css", "icon.svg", "licences.txt"} == set(sizes)
    assert sum(sizes.values()) < 300_000


def test_the_page_asks_no_other_host() -> None:
    for name in ("index.html", "app.js", "style.css"):
        text = (ASSETS / name).read_text()
        foreign = [word for word in text.replace('"', " ").replace("'", " ").replace("`", " ").split() if "://" in word]
        assert [word for word in foreign if "www.w3.org" not in word] == [], name


def test_no_script_is_made_out_of_text() -> None:
    source = "".join(path.read_text() for path in (WEB / "src").glob("*.ts*"))
    assert not [word for word in ("innerHTML", "dangerouslySetInnerHTML", "eval(", "document.write") if word in source]


@pytest.mark.skipif(not (WEB / "node_modules" / "esbuild").exists(), reason="needs node and `make web`")
def test_what_is_shipped_is_what_is_built(tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None
    subprocess.run([node, str(WEB / "build.mjs"), str(tmp_path / "assets")], check=True, capture_output=True)
    built = {path.name: path.read_bytes() for path in (tmp_path / "assets").iterdir()}
    shipped = {path.name: path.read_bytes() for path in ASSETS.iterdir()}
    assert built == shipped, "run `make web` and commit what it makes"
