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


def test_a_scheduler_is_made_without_looking_through_what_is_installed() -> None:
    """Only a configuration with plugins of others needs that; a kubeconfig is read where there is one, and numbers are counted
    without the client of Prometheus."""
    code = "from dray.cluster.world import World; from dray.scheduling.scheduler import KINDS, Scheduler; Scheduler(World(KINDS))"
    modules = f"dray.cli.scheduler, dray.runtime.meter; {code}"
    assert loaded(modules, "importlib.metadata", "email", "http.client", "prometheus_client", "yaml", "tempfile") == "[]"


def test_a_cluster_in_this_process_loads_what_it_runs() -> None:
    """An API server alone needs no scheduler, no controllers, no nodes and, until there is an expression, no compiler; neither
    needs, until it is up, what serves the page."""
    parts = ("dray.scheduling", "dray.controllers.sets", "dray.nodes", "dray.devices", "dray.cel.compiler")
    never = ("aiohttp", "dray.explain.plan", "prometheus_client", "rich")
    assert loaded("dray.cli.up, dray.runtime.local, dray.runtime.onlooker", *parts, *never) == "[]"
    assert loaded("dray.cli.up, dray.runtime.local, dray.runtime.parts", "dray.cel.compiler", *never) == "[]"


def test_a_command_that_has_a_typo_is_still_told_which_one_is_near() -> None:
    answer = subprocess.run([sys.executable, "-m", "dray", "schedular"], capture_output=True, text=True, check=False)
    assert "Did you mean 'scheduler'?" in answer.stderr


def loaded(modules: str, *names: str) -> str:
    code = f"import sys; import {modules}; print([name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
