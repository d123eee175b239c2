"""Builds the upstream programs once per version and machine.

The cache is ``~/.cache/dray/upstream/<version>`` (``DRAY_UPSTREAM_CACHE`` moves it). A file lock makes parallel tests wait
for one build; a program appears under its name only when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

MODULE = Path(__file__).parent
OLDEST = MODULE / "oldest"  # the go.mod of the oldest Kubernetes that Dray serves
OPERATORS = MODULE.parent / "operators"
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "e2e.test": "k8s.io/kubernetes/test/e2e",
}


class Unavailable(Exception):
    """An upstream program cannot be had on this machine; the message says what is missing."""


def version(module: Path = MODULE) -> str:
    """The Kubernetes version that go.mod asks for."""
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{module}/go.mod names no k8s.io/kubernetes version"
    return found[1]


def cache(module: Path = MODULE) -> Path:
    root = os.environ.get("DRAY_UPSTREAM_CACHE") or Path.home() / ".cache/dray/upstream"
    return Path(root) / version(module)


def binary(name: str, module: Path = MODULE) -> Path:
    """The path of an upstream program, built now if this machine has not built it before (minutes, once)."""
    return built(cache(module) / name, PACKAGES[name], module)


def sources(module: str = "k8s.io/kubernetes", within: Path = MODULE) -> Path:
    """The source tree of a Go module in the version that ``within`` asks for: manifests and definitions are read from it."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"Go is not installed; the files of {module} come from its module cache")
    environment = {**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    subprocess.run([go, "mod", "download", module], cwd=within, env=environment, capture_output=True, check=False)
    asked = [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module]
    return Path(subprocess.run(asked, cwd=within, env=environment, capture_output=True, text=True, check=True).stdout.strip())


def driver() -> Path:
    """A DRA driver of our own on the upstream library, built again when its source changes."""
    return built(cache() / f"driver-{_digest(MODULE / 'driver/main.go')}", "./driver", MODULE)


def operator() -> Path:
    """An operator of our own on controller-runtime, built again when its source or a version changes."""
    return built(cache() / f"operator-{_digest(OPERATORS / 'operator/main.go', OPERATORS / 'go.mod')}", "./operator", OPERATORS)


def helm() -> Path:
    return built(cache() / f"helm-{_digest(OPERATORS / 'go.mod')}", "helm.sh/helm/v4/cmd/helm", OPERATORS)


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def built(path: Path, package: str, module: Path) -> Path:
    """``path``, built now if it is not there; of several processes one builds and the others wait."""
    if path.exists():
        return path
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"{path.name} ({version()}) is not in {path.parent} and Go is not installed to build it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _build(go, package, module, path)
    return path


def _build(go: str, package: str, module: Path, output: Path) -> None:
    """Builds one Go program; the output appears only when it is whole."""
    partial = output.with_suffix(f".{os.getpid()}")
    linked = "-s -w"
    if output.name == "kubectl":  # it refuses to say its version where that is not one
        linked += f" -X k8s.io/component-base/version.gitVersion={version()} -X k8s.io/component-base/version.gitCommit=0"
    flags = ["-trimpath", "-mod=readonly", f"-ldflags={linked}"]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    command = [go, "test", "-c", "-vet=off"] if output.name.endswith(".test") else [go, "build"]
    done = subprocess.run(
        [*command, *flags, "-o", str(partial), package], cwd=module, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        partial.unlink(missing_ok=True)
        raise Unavailable(f"go build {package} failed:\n{done.stderr[-2000:]}")
    partial.rename(output)
