"""What holds for every test: generated examples may take their time on a busy machine, and are the same ones in CI."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("dray", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("dray")
