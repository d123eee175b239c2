"""What a command loads before it does anything: a scheduler that is restarted is missed until it is back."""

from __future__ import annotations

import subprocess
import sys

SCHEDULER = "dray.cli, dray.cli.scheduler, dray.runtime.meter, dray.scheduling.configuration, dray.scheduling.scheduler"


def test_the_scheduler_loads_no_server_and_no_general_http_client() -> None:
    heavy = ("aiohttp", "uvicorn", "rich", "cryptography", "dray.apiserver")
    code = f"import sys, {SCHEDULER}; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
