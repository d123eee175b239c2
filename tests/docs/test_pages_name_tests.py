"""Every test that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

NAMED = {page: set(re.findall(r"`(test_[a-z0-9_]+)`", page.read_text())) for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if NAMED[page]], ids=lambda page: page.name)
def test_every_named_test_exists(page: Path) -> None:
    written = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_[a-z0-9_]+)\(", file.read_text())
    }
    assert not NAMED[page] - written


def test_the_pages_that_rest_on_tests_name_some() -> None:
    assert all(NAMED[ROOT / "docs" / name] for name in ("fidelity.md", "numa-design.md"))
