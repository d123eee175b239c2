"""Dray decides where work that needs devices runs on Kubernetes, and says why."""

__version__ = "0.1.0"
