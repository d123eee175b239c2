"""Roles, bindings, accounts and their tokens are what they were after a restart and after a kill."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from dray.api.kinds import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dray.apiserver.authentication.users import User
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.port import Write
from tests.apiserver.test_hostile_clients import Client, bearer

LIST = Attributes("list", "", "pods", namespace="default")
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PROCESS = """
import asyncio, sys
from pathlib import Path
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from tests.apiserver.access.test_rights_survive import grant

async def main():
    server = ApiServer(Path(sys.argv[1]))
    await server.start()
    for number in range(1000000):
        await grant(Embedded(server), f"user{number}")
        print(number, flush=True)

asyncio.run(main())
"""


async def grant(port: Embedded, user: str) -> None:
    """A role and a binding of its own for one user, who may then list pods."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    await port.write(Write("create", ROLES, "default", body={"metadata": {"name": user}, "rules": rules}))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
    await port.write(Write("create", ROLE_BINDINGS, "default", body=body))


def may(server: ApiServer, user: str) -> bool:
    return server.core.policy.allowed(User(user), LIST)[0]


async def test_after_a_restart_everybody_may_what_they_might(tmp_path: Path) -> None:
    first = ApiServer(tmp_path)
    await first.start()
    port = Embedded(first)
    await grant(port, "bob")
    await grant(port, "eve")
    await port.write(Write("delete", ROLE_BINDINGS, "default", "eve"))
    await port.write(Write("create", SERVICE_ACCOUNTS, "default", body={"metadata": {"name": "robot"}}))
    made = await (await Client.connect(first)).request(
        "POST", f"{ACCOUNTS}/robot/token", b'{"spec":{}}', Authorization=bearer(first.identity.admin_token)
    )
    token = made[1].decode().partition('"token":"')[2].partition('"')[0]
    await first.stop()

    second = ApiServer(tmp_path)
    await second.start()
    assert (may(second, "bob"), may(second, "eve")) == (True, False)
    client = await Client.connect(second)
    code, said = await client.request("GET", "/api/v1/namespaces/default/pods", Authorization=bearer(token))
    assert code == 403
    assert b"system:serviceaccount:default:robot" in said, "the token is still worth its account"
    await second.stop()


def grants_before_the_kill(directory: Path) -> int:
    with subprocess.Popen([sys.executable, "-c", PROCESS, directory], stdout=subprocess.PIPE, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
    return len(answered)


async def test_what_was_granted_before_a_kill_is_granted(tmp_path: Path) -> None:
    granted = await asyncio.to_thread(grants_before_the_kill, tmp_path)
    server = ApiServer(tmp_path)
    await server.start()
    assert [number for number in range(granted) if not may(server, f"user{number}")] == []
    assert not may(server, "somebody")
    await server.stop()
