"""The real kube-scheduler against any API server, with every DRA feature on and JSON as content type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.upstream.binaries import binary
from tests.real.upstream.control_plane import FEATURE_GATES
from tests.real.upstream.process import Program


def configuration(kubeconfig: Path, qps: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            "contentType": "application/json",
            "acceptContentTypes": "application/json",
            "qps": qps,
            "burst": 2 * qps,
        },
    }


@contextmanager
def kube_scheduler(kubeconfig: Path, folder: Path, *, qps: int = 5000) -> Iterator[Program]:
    """kube-scheduler until the context ends; its log is in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "kube-scheduler.json"
    config.write_text(json.dumps(configuration(kubeconfig, qps)))
    flags = [f"--config={config}", f"--feature-gates={FEATURE_GATES}", "--secure-port=0", "--v=1"]
    with Program("kube-scheduler", [binary("kube-scheduler"), *flags], folder / "kube-scheduler.log") as program:
        yield program
