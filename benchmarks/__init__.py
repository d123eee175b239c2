"""Benchmarks: Dray beside what it is compared with, on the same inputs, in the same run. ``python -m benchmarks --help``."""
