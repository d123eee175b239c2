"""The data recorded from KAI-Scheduler, read where it lies. Tests that need it are skipped where it is not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "vectors" / "kai"


def lines(name: str) -> list[dict[str, Any]]:
    file = FOLDER / f"{name}.jsonl.gz"
    if not file.exists():
        pytest.skip(f"{file} is not there: answers recorded from KAI-Scheduler cannot be compared")
    with gzip.open(file, "rt") as text:
        return [json.loads(line) for line in text]
