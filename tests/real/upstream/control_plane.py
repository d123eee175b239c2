"""A real etcd and kube-apiserver on loopback, with every DRA feature on: the newest, or the oldest that Dray serves.

Unless told otherwise, admission leaves out ServiceAccount, TaintNodesByCondition and Priority, which need controllers;
authorisation is RBAC, with an admin token in ``system:masters`` and a token without rights, to which tests bind roles.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.real.upstream import binaries, pki
from tests.real.upstream.process import Program, free_port

ADMIN_TOKEN = "dray-test-admin"
PLAIN_TOKEN = "dray-test-plain"
PLAIN_USER = "plain"

GATES = (
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceBindingConditions",
    "DRADeviceCompatibilityGroups",
    "DRADeviceTaintRules",
    "DRADeviceTaints",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevices",
    "DRASchedulerFilterTimeout",
)
FEATURE_GATES = ",".join(f"{gate}=true" for gate in GATES)


class Release(NamedTuple):
    """A version of Kubernetes, and what switches its DRA features on."""

    module: Path
    gates: Sequence[str] = ()
    arguments: Sequence[str] = ()

    def flags(self) -> list[str]:
        gates = ",".join(f"{gate}=true" for gate in self.gates)
        return [*([f"--feature-gates={gates}"] if gates else ()), *self.arguments]


NEWEST = Release(binaries.MODULE, GATES)
OLDEST = Release(
    binaries.OLDEST,
    (
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAPartitionableDevices",
    ),
    ("--runtime-config=resource.k8s.io/v1alpha3=true",),
)
NEED_CONTROLLERS = ("ServiceAccount", "TaintNodesByCondition", "Priority")


class Server(NamedTuple):
    """An API server that answers: where, with which files, and the programs behind it."""

    url: str
    kubeconfig: Path
    programs: tuple[Program, ...]
    seconds_to_ready: float

    def memory_bytes(self) -> int:
        return sum(p.memory_bytes() for p in self.programs)

    def cpu_seconds(self) -> float:
        return sum(p.cpu_seconds() for p in self.programs)


@contextmanager
def control_plane(
    folder: Path,
    *,
    release: Release = NEWEST,
    durable: bool = False,
    without_admission: Sequence[str] = NEED_CONTROLLERS,
    arguments: Sequence[str] = (),
) -> Iterator[Server]:
    """etcd and kube-apiserver in ``folder`` until the context ends. ``durable`` makes etcd sync every write to disk."""
    etcd, apiserver = binaries.binary("etcd"), binaries.binary("kube-apiserver", release.module)
    folder.mkdir(parents=True, exist_ok=True)
    pki.write_keys(folder)
    began = time.monotonic()
    with ExitStack() as stack:
        etcd_url, store = _start_etcd(etcd, folder, durable)
        stack.enter_context(store)
        url, api = _start_apiserver(apiserver, folder, etcd_url, without_admission, [*release.flags(), *arguments])
        stack.enter_context(api)
        trusted = ssl.create_default_context(cafile=folder / "ca.crt")
        api.wait_until(lambda: answers(f"{url}/readyz", trusted), seconds=120)
        kubeconfig = write_kubeconfig(folder / "kubeconfig", url, folder / "ca.crt", ADMIN_TOKEN)
        yield Server(url, kubeconfig, (store, api), time.monotonic() - began)


def _start_etcd(program: Path, folder: Path, durable: bool) -> tuple[str, Program]:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    flags = [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--heartbeat-interval=50",
        "--election-timeout=250",
        "--log-level=warn",
        *([] if durable else ["--unsafe-no-fsync"]),
    ]
    running = Program("etcd", [program, *flags], folder / "etcd.log")
    running.wait_until(lambda: answers(f"{client}/health"), seconds=60)
    return client, running


def _start_apiserver(
    program: Path, folder: Path, etcd_url: str, without: Sequence[str], arguments: Sequence[str]
) -> tuple[str, Program]:
    port = free_port()
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n{PLAIN_TOKEN},{PLAIN_USER},{PLAIN_USER}\n')
    flags = [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'sa.pub'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        *([f"--disable-admission-plugins={','.join(without)}"] if without else ()),
        f"--cert-dir={folder}",
        "--shutdown-delay-duration=0s",
        *arguments,
    ]
    return f"https://127.0.0.1:{port}", Program("kube-apiserver", [program, *flags], folder / "kube-apiserver.log")


def answers(url: str, trusted: ssl.SSLContext | None = None) -> bool:
    """Whether a GET gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=trusted) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def write_kubeconfig(path: Path, url: str, ca: Path, token: str) -> Path:
    """A kubeconfig (JSON is YAML) for one server and one token."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path
