"""Example workloads for the catalogue of simulated hardware: what ``dray demo`` applies, one idea to a file."""

from __future__ import annotations

from pathlib import Path


def files() -> list[Path]:
    """The examples, in the order in which they are shown."""
    return sorted(Path(__file__).parent.glob("*.yaml"))
