"""Clusters of ``dray up`` that run now, so that other commands find them: one small file for each process, gone when it ends.

Always true: what kubectl would use comes first; a cluster is only found where the user names none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "dray" / "running"


@contextmanager
def findable(kubeconfig: Path) -> Iterator[None]:
    """While this lasts, other commands of the same user find the cluster. Where nothing can be written, they do not."""
    file = _folder() / str(os.getpid())
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(str(kubeconfig.absolute()))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def running() -> list[Path]:
    """The kubeconfigs of the clusters that run now; what a process left that was killed is cleared away."""
    found = []
    for file in sorted(_folder().glob("*")):
        if not file.name.isdigit():
            continue
        if not _alive(int(file.name)):
            file.unlink(missing_ok=True)
            continue
        kubeconfig = Path(file.read_text())
        if kubeconfig.exists():
            found.append(kubeconfig)
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
