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


def test_what_is_not_asked_for_yet_is_not_loaded() -> None:
    """The compiler of expressions comes with the first expression, the reader of configurations with a configuration, and the
    scheduler itself while the cluster is asked what it serves."""
    assert loaded("dray.cli.scheduler", "dray.devices", "dray.scheduling.scheduler", "dray.scheduling.config", "difflib") == "[]"
    later = ("dray.cel.compiler", "dray.cel.library", "dray.scheduling.configuration", "dray.api.validation", "dray.explain")
    assert loaded("dray.cli.scheduler, dray.scheduling.scheduler, dray.runtime.meter", *later) == "[]"


def test_a_command_that_has_a_typo_is_still_told_which_one_is_near() -> None:
    answer = subprocess.run([sys.executable, "-m", "dray", "schedular"], capture_output=True, text=True, check=False)
    assert "Did you mean 'scheduler'?" in answer.stderr


def loaded(modules: str, *names: str) -> str:
    code = f"import sys, {modules}; print([name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
