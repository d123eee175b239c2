"""Every test that the documentation names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT


def _named(text: str) -> set[str]:
    return set(re.findall(r"`(test_[a-z0-9_]+)`", text))


@pytest.fixture(scope="module")
def written() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"def (test_[a-z0-9_]+)\(", file.read_text())}


@pytest.mark.parametrize("page", [page for page in PAGES if _named(page.read_text())], ids=lambda page: page.name)
def test_every_named_test_exists(page: Path, written: set[str]) -> None:
    assert not _named(page.read_text()) - written


def test_the_pages_that_show_by_tests_are_looked_at() -> None:
    assert {"fidelity.md", "keps-5055-5004.md", "numa-design.md"} <= {page.name for page in PAGES if _named(page.read_text())}
