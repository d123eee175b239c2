"""``dray scheduler`` on a real kube-apiserver when things break: it is killed, the server goes away, its leader stops.

Whatever happens in between, at the end every pod has its devices, no device has two owners, and ``dray verify`` agrees.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.upstream import manifests
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.control_plane import Server
from tests.real.upstream.process import Program

NODES, DEVICES = 20, 8
DRAY = Path(sys.executable).with_name("dray")
ELECTION = ("--leader-elect", *(f"--leader-elect-{name}" for name in ("lease-duration=4", "renew-deadline=3", "retry-period=1")))


@pytest.fixture
def client(server: Server) -> Client:
    made = Client(server.kubeconfig)
    for body in manifests.nodes_with_devices(NODES, DEVICES):
        made.create(body)
    return made


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts a scheduler that ends with the test."""
    with ExitStack() as stack:
        started: list[Program] = []

        def made(*flags: str) -> Program:
            argv: list[str | Path] = [DRAY, "scheduler", "--kubeconfig", server.kubeconfig, *flags]
            log = tmp_path / f"dray-scheduler-{len(started)}.log"
            started.append(stack.enter_context(Program("dray scheduler", argv, log)))
            return started[-1]

        yield made


def ask(client: Client, names: range) -> None:
    for name in (f"pod-{number}" for number in names):
        client.create(manifests.claim(name))
        client.create(manifests.pod(name, name, scheduler="dray"))


def bound(client: Client) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in client.list("Pod"))


def assert_all_is_well(client: Client, server: Server) -> None:
    node_of = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in client.list("Pod")}
    owners: Counter[tuple[str, str]] = Counter()
    for claim in client.list("ResourceClaim"):
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        (user,) = claim["status"]["reservedFor"]
        assert result["pool"] == node_of[user["name"]]
        owners[result["pool"], result["device"]] += 1
    assert set(owners.values()) == {1}
    found = subprocess.run(
        [DRAY, "verify", "--strict", "--kubeconfig", server.kubeconfig, "-o", "json"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_scheduler_that_is_killed_again_and_again_finishes_the_work(
    client: Client, server: Server, start: Callable[..., Program]
) -> None:
    pods, rounds = NODES * DEVICES, 20
    moments = random.Random(5)
    for number in range(rounds):
        done = bound(client)
        ask(client, range(number * pods // rounds, (number + 1) * pods // rounds))
        # One write at a time, and killed somewhere among those of the first few pods.
        scheduler = start("--writes-in-flight=1")
        aim = done + moments.randrange(1, pods // rounds)
        eventually(lambda aim=aim: bound(client) >= aim, f"{aim} pods are bound", every=0.02)  # type: ignore[misc]
        scheduler.process.send_signal(signal.SIGKILL)
        scheduler.process.wait()
    start()
    eventually(lambda: bound(client) == pods, "all pods are bound")
    assert_all_is_well(client, server)


def test_an_api_server_that_is_gone_for_a_while_delays_and_breaks_nothing(
    client: Client, server: Server, start: Callable[..., Program], tmp_path: Path
) -> None:
    half = NODES * DEVICES // 2
    ask(client, range(half))
    scheduler = start()
    eventually(lambda: bound(client) >= half // 4, "the first pods are bound", every=0.02)
    api = server.programs[-1]
    api.process.kill()
    api.process.wait()
    time.sleep(20)
    assert scheduler.process.poll() is None, scheduler.text()[-3000:]
    with Program("kube-apiserver", list(api.process.args), tmp_path / "kube-apiserver-again.log") as again:  # type: ignore[arg-type]
        again.wait_until(lambda: answers(client), seconds=60)
        ask(client, range(half, 2 * half))
        eventually(lambda: bound(client) == 2 * half, f"all pods are bound; log:\n{scheduler.text()[-3000:]}", seconds=60)
        assert_all_is_well(client, server)


def answers(client: Client) -> bool:
    try:
        return bool(client.call("GET", "api/v1/namespaces/default"))
    except OSError:
        return False


def holder(client: Client) -> str:
    leases = client.call("GET", "apis/coordination.k8s.io/v1/namespaces/kube-system/leases")["items"]
    specs = [lease["spec"] for lease in leases if lease["metadata"]["name"] == "dray-scheduler"]
    return specs[0].get("holderIdentity") or "" if specs else ""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_the_other_instance_takes_over_in_seconds(
    how: signal.Signals, client: Client, server: Server, start: Callable[..., Program]
) -> None:
    first = start(*ELECTION)
    leader = eventually(lambda: holder(client), f"somebody leads; log:\n{first.text()[-2000:]}")
    second = start(*ELECTION)
    ask(client, range(10))
    eventually(lambda: bound(client) == 10, f"the leader works; log:\n{first.text()[-2000:]}")
    first.process.send_signal(how)
    ask(client, range(10, 20))
    eventually(lambda: bound(client) == 20, f"the other works; log:\n{second.text()[-2000:]}", seconds=30)
    assert holder(client) != leader
    if how is signal.SIGSTOP:
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(20) != 0, "an instance that lost its lease ends"
    assert_all_is_well(client, server)
