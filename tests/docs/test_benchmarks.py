"""``python -m benchmarks`` is the way to measure, as docs/performance.md says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.__main__ import PARTS

ROOT = Path(__file__).parents[2]


def test_there_is_one_command_for_all_benchmarks() -> None:
    """A module that measures something is a part of it, and prints nothing by itself."""
    parts = {part.__name__.rpartition(".")[2] for part in PARTS}
    for file in (ROOT / "benchmarks").glob("*.py"):
        text = file.read_text()
        assert ("\nTABLES" in text) == (file.stem in {*parts, "__main__"}), file
        assert "__name__ ==" not in text or file.stem not in parts, file
