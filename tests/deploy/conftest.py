"""The manifests as kubectl builds them, and a real API server to apply them to."""

from tests.real.conftest import real_server, server, upstream

__all__ = ["real_server", "server", "upstream"]
