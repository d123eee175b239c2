"""Kubeconfig files: what is found, what is merged, what is refused and in which words."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from dray.cluster.kubeconfig import Access, Files, KubeconfigError, in_cluster, load
from dray.cluster.port import Unreachable
from dray.cluster.remote import Remote


def config(path: Path, **sections: Any) -> Path:
    content: dict[str, Any] = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://one.example:6443/", "tls-server-name": "api"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps({**content, **{key.replace("_", "-"): value for key, value in sections.items()}}))
    return path


def user(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "u", "user": {key.replace("_", "-"): value for key, value in fields.items()}}]


async def test_the_current_context_gives_server_user_and_namespace(tmp_path: Path) -> None:
    access = load(config(tmp_path / "config"))
    assert (access.server, access.namespace, access.tls_server_name) == ("https://one.example:6443", "team", "api")
    assert (await access.credentials.identity()).headers() == {"Authorization": "Bearer secret"}


def test_another_context_can_be_asked_for(tmp_path: Path) -> None:
    other = [
        {"name": "main", "context": {"cluster": "c", "user": "u"}},
        {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "else"}},
    ]
    assert load(config(tmp_path / "config", contexts=other), "other").namespace == "else"


def test_of_several_files_the_first_that_sets_a_name_wins(tmp_path: Path) -> None:
    first = config(tmp_path / "one", clusters=[])
    again = [{"name": "c", "cluster": {"server": "https://two.example"}}]
    second = config(tmp_path / "two", current_context="else", clusters=again)
    access = load(environment={"KUBECONFIG": f"{first}:{tmp_path / 'absent'}:{second}"})
    assert (access.context, access.server) == ("main", "https://two.example")


def rotating(access: Access, now: list[float]) -> Files:
    """Its credentials, by a clock of the test."""
    assert isinstance(access.credentials, Files)
    access.credentials._clock = lambda: now[0]
    return access.credentials


async def test_a_token_file_is_beside_its_config_and_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    now = [0.0]
    credentials = rotating(load(config(tmp_path / "config", users=user(tokenFile="token"))), now)
    assert (await credentials.identity()).token == "first"
    (tmp_path / "token").write_text("second\n")
    assert (await credentials.identity()).token == "first"
    now[0] = 61.0
    assert (await credentials.identity()).token == "second"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"], ids=["absent", "empty", "blank", "binary"])
async def test_while_a_token_file_is_replaced_the_old_token_stays_in_use(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a token the server would take us for system:anonymous, which has no rights: a 403, and no 401."""
    file, now = tmp_path / "token", [0.0]
    file.write_text("first")
    credentials = rotating(load(config(tmp_path / "config", users=user(tokenFile="token"))), now)
    await credentials.identity()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    for now[0] in (61.0, 67.0, 73.0):
        assert (await credentials.identity()).token == "first"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    file.write_text("second")
    now[0] = 79.0
    assert (await credentials.identity()).token == "second"


@pytest.mark.parametrize(("content", "words"), [(b" ", "is empty"), (b"\xff\xfe", "contains no token")])
def test_a_token_file_without_a_token_is_said_at_once(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(KubeconfigError, match=words):
        load(config(tmp_path / "config", users=user(tokenFile="token")))


def headers(path: Path) -> list[tuple[str, str]]:
    return list(load(path).impersonation)


def test_who_is_impersonated_is_asked_of_the_server(tmp_path: Path) -> None:
    asked = user(
        token="t", **{"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"example.org/x": ["1", "2"]}}
    )
    assert headers(config(tmp_path / "config", users=asked)) == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-example.org%2Fx", "1"),
        ("Impersonate-Extra-example.org%2Fx", "2"),
    ]
    assert headers(config(tmp_path / "config", users=user(token="t"))) == []


def plugin(path: Path, script: str) -> dict[str, Any]:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{path.name}", "args": ["x"], "installHint": "get it"}


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})


async def test_an_exec_plugin_is_asked_once_until_its_answer_expires(tmp_path: Path) -> None:
    answer = credential(token="made", expirationTimestamp="2999-01-01T00:00:00Z")
    spec = plugin(tmp_path / "helper", f"echo run >> {tmp_path}/runs; echo '{answer}'")
    credentials = load(config(tmp_path / "config", users=user(exec=spec))).credentials
    assert (await credentials.identity()).token == "made"
    assert (await credentials.identity()).token == "made"
    assert (tmp_path / "runs").read_text() == "run\n"
    refused = await credentials.identity()
    for _ in range(3):  # so many requests were on their way with it
        credentials.refresh(refused)
        await credentials.identity()
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


async def test_an_expired_answer_of_a_plugin_is_not_used_again(tmp_path: Path) -> None:
    answer = credential(token="made", expirationTimestamp="2001-01-01T00:00:00Z")
    spec = plugin(tmp_path / "helper", f"echo run >> {tmp_path}/runs; echo '{answer}'")
    credentials = load(config(tmp_path / "config", users=user(exec=spec))).credentials
    await credentials.identity()
    await credentials.identity()
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


async def test_a_plugin_is_told_the_cluster_where_it_asks_for_it(tmp_path: Path) -> None:
    spec = plugin(tmp_path / "helper", f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info; echo '{credential(token='t')}'")
    await load(config(tmp_path / "config", users=user(exec={**spec, "provideClusterInfo": True}))).credentials.identity()
    told = json.loads((tmp_path / "info").read_text())
    assert told["spec"]["cluster"]["server"] == "https://one.example:6443"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo broken >&2; exit 3", "exited with 3: broken"),
        ("echo nonsense", "did not print an ExecCredential"),
        ("echo '" + credential() + "'", "neither a token nor a client certificate"),
    ],
)
async def test_a_plugin_that_fails_says_how(tmp_path: Path, script: str, words: str) -> None:
    credentials = load(config(tmp_path / "config", users=user(exec=plugin(tmp_path / "helper", script)))).credentials
    with pytest.raises(KubeconfigError, match=words) as failure:
        await credentials.identity()
    assert "user 'u'" in str(failure.value)


async def test_a_plugin_that_fails_is_not_run_for_each_of_many_requests(tmp_path: Path) -> None:
    spec = plugin(tmp_path / "helper", f"echo run >> {tmp_path}/runs; exit 3")
    remote = Remote(load(config(tmp_path / "config", users=user(exec=spec))))
    failures = await asyncio.gather(*(remote.raw(f"/apis/{number}") for number in range(5)), return_exceptions=True)
    assert all(isinstance(failure, Unreachable) and "exited with 3" in str(failure) for failure in failures)
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_a_plugin_that_hangs_ends_when_who_asked_gives_up(tmp_path: Path) -> None:
    """It closes the pipe that it was started with when it ends."""
    os.mkfifo(tmp_path / "alive")
    spec = plugin(tmp_path / "helper", f"sleep 0.2; exec sleep 600 > {tmp_path}/alive")
    asked = asyncio.create_task(load(config(tmp_path / "config", users=user(exec=spec))).credentials.identity())
    async with asyncio.timeout(20):
        alive = await asyncio.to_thread((tmp_path / "alive").open, "rb")  # once it writes to it
        asked.cancel()
        await asyncio.wait({asked})
        with alive:
            assert await asyncio.to_thread(alive.read) == b""
    assert asked.cancelled()


async def test_a_missing_plugin_gives_the_hint_how_to_install_it(tmp_path: Path) -> None:
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./absent", "installHint": "run: get-helper"}
    with pytest.raises(KubeconfigError, match="get-helper"):
        await load(config(tmp_path / "config", users=user(exec=spec))).credentials.identity()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current_context": "gone"}, "current-context names context 'gone', which is not there (known: main)"),
        ({"current_context": ""}, "no current-context is set"),
        ({"clusters": []}, "context 'main' names cluster 'c', which is not there (known: none)"),
        ({"users": []}, "context 'main' names user 'u'"),
        ({"clusters": [{"name": "c", "cluster": {"server": "one.example"}}]}, "cluster 'c': server 'one.example' is not"),
        ({"users": user(client_certificate_data="x!", client_key_data="eA==")}, "client-certificate-data is not base64"),
        ({"users": user(client_certificate="absent.pem")}, "client-certificate: cannot read"),
        ({"users": user(client_certificate_data=base64.b64encode(b"x").decode())}, "must be given together"),
        ({"users": user(auth_provider={"name": "gcp"})}, "use an exec plugin"),
        ({"users": user(exec={"apiVersion": "v9", "command": "x"})}, "exec.apiVersion is 'v9'"),
        ({"users": user(as_groups=["a"])}, "as-groups, as-uid and as-user-extra need `as`"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://one.example:99999"}}]}, "is not an http(s) URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://[::1"}}]}, "is not an http(s) URL"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = config(tmp_path / "config", **change)
    with pytest.raises(KubeconfigError) as refused:
        load(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_that_is_absent_or_not_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="absent does not exist"):
        load(tmp_path / "absent")
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(KubeconfigError, match="bad cannot be read"):
        load(tmp_path / "bad")


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", ""), ("namespace", "mine")):
        (tmp_path / name).write_text(text)
    access = in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "mine")
    assert (await access.credentials.identity()).token == "t"


def test_nowhere_to_go_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="--kubeconfig FILE"):
        load(environment={"HOME": str(tmp_path)})
