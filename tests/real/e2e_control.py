"""The control of the e2e specs: the same list on a real kube-apiserver with etcd, where everything else is Dray's.

A spec that fails here and not on ``dray up``, or the other way round, tells the two API servers apart. Scheduler, controllers and
simulated nodes are the same on both. Takes half an hour on two cores, so it runs on request: ``make e2e-control``,
``make e2e-control ARGS="--only sig-auth --lanes 2"``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.real.upstream.control_plane import Server, control_plane
from tests.real.upstream.dray import dray_part
from tests.real.upstream.e2e import NODES, listed, run

# What ``dray up`` serves and is off by default.
SERVED = (
    "--feature-gates=GenericWorkload=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
)
CONTROLLERS = "claims,eviction,workloads,services,volumes,namespaces,garbage,access,quota,nodes"


@contextmanager
def real_cluster(folder: Path) -> Iterator[Server]:
    """A kube-apiserver with the admission that it has by default, and Dray's parts."""
    with ExitStack() as stack:
        server = stack.enter_context(control_plane(folder, without_admission=(), arguments=SERVED))
        parts = (
            ("controllers", "--only", CONTROLLERS, "--root-ca-file", folder / "ca.crt"),
            ("nodes", "--hardware", NODES, "--no-taint"),
        )
        for command, *arguments in (*parts, ("scheduler", "--scheduler-name", "default-scheduler")):
            stack.enter_context(dray_part(command, server.kubeconfig, folder, *arguments))
        yield server


def main() -> int:
    parser = argparse.ArgumentParser(description="Upstream's e2e specs on a real kube-apiserver with Dray's other parts.")
    parser.add_argument("--lanes", type=int, default=4, help="clusters at a time")
    parser.add_argument("--only", default="", help="specs that match this regular expression")
    parser.add_argument("--out", type=Path, help="write what failed here, as JSON")
    options = parser.parse_args()
    specs = [spec for spec in listed() if re.search(options.only, spec)]
    with tempfile.TemporaryDirectory(prefix="dray-e2e-") as temporary:
        failed = run(specs, real_cluster, options.lanes, 6, Path(temporary) / "first")
        if failed:
            failed = run(list(failed), real_cluster, min(2, options.lanes), 1, Path(temporary) / "again")
    for said in failed.values():
        print(f"FAIL {said}", flush=True)
    print(f"{len(specs) - len(failed)} passed, {len(failed)} failed")
    if options.out is not None:
        options.out.write_text(json.dumps(failed, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
