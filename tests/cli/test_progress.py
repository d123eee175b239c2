"""Whoever waits at a terminal longer than two seconds is told what for; scripts are not."""

from __future__ import annotations

import sys
import time

import pytest

from dray.cli import trouble


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "PATIENCE_SECONDS", 0.05)


def waited(seconds: float) -> None:
    with trouble.patience("still at it …"):
        time.sleep(seconds)


def test_a_long_wait_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    waited(0.5)
    assert capsys.readouterr() == ("", "still at it …\n")


def test_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    waited(0)
    time.sleep(0.2)
    assert capsys.readouterr() == ("", "")


def test_scripts_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    waited(0.5)
    assert capsys.readouterr() == ("", "")
