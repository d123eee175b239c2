"""Filters and scores, one module per subject. Each is compiled for a demand once and then asked per node."""
