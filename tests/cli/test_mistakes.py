"""What people get wrong on the command line is told in one line that says what to do; what is piped is never cut."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dray.apiserver.journal import Journal
from dray.cli import root
from dray.cli.output import console, table
from dray.cli.running import to_the_end
from dray.runtime import logs
from dray.runtime.leader import LeadershipLost


def dray(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    result = dray("wyh")
    assert result.exit_code == 2
    assert "Did you mean 'why'?" in result.output


def test_a_command_like_no_other_is_refused_without_a_guess() -> None:
    result = dray("zzz")
    assert result.exit_code == 2
    assert "Did you mean" not in result.output


@pytest.mark.parametrize("address", ["nonsense", "8080", "127.0.0.1:port", "127.0.0.1:²", "127.0.0.1:99999"])
@pytest.mark.parametrize("command", [("up", "--ephemeral"), ("scheduler",), ("controllers",), ("fabric",)])
def test_an_address_to_serve_on_must_be_host_and_port(command: tuple[str, ...], address: str) -> None:
    result = dray(*command, "--serve", address)
    assert result.exit_code == 2
    assert f"'{address}' is not HOST:PORT" in result.output


def test_a_root_certificate_must_be_one(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("not a certificate")
    result = dray("controllers", "--only", "namespaces", "--root-ca-file", str(file))
    assert result.exit_code == 2
    assert "contains no PEM certificate" in " ".join(result.output.split())


def test_a_data_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path, lambda *_: None, lambda *_: None)
    try:
        result = dray("up", "--data", str(tmp_path))
    finally:
        journal.close()
    assert result.exit_code == 1
    assert "is in use by another Dray" in result.output
    assert "Traceback" not in result.output


def test_a_port_that_is_taken_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = dray("up", "--ephemeral", "--kubeconfig", str(tmp_path / "kc"), "--port", port)
    assert result.exit_code == 1
    assert port in result.output
    assert "stop the process that listens there, or choose another port" in result.output
    assert "Errno" not in result.output


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = dray("up", "--data", str(tmp_path / "file" / "data"))
    assert result.exit_code == 1
    assert result.output.strip() == f"Error: {tmp_path}/file/data: Not a directory"


def test_a_ready_file_of_an_earlier_run_is_not_believed(tmp_path: Path) -> None:
    ready, refused = tmp_path / "ready", tmp_path / "pod.yaml"
    ready.write_text("https://127.0.0.1:1\n")
    refused.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}")
    result = dray("up", "--ephemeral", "--kubeconfig", str(tmp_path / "kc"), "--ready-file", str(ready), "-f", str(refused))
    assert result.exit_code == 1
    assert "spec.containers: Required value" in result.output
    assert not ready.exists()


def test_a_manifest_for_a_namespace_that_is_not_there_is_named(tmp_path: Path) -> None:
    manifest = tmp_path / "c.yaml"
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: absent}}")
    result = dray("up", "--ephemeral", "--kubeconfig", str(tmp_path / "kc"), "-f", str(manifest))
    assert result.exit_code == 1
    assert result.output.strip() == 'Error: ConfigMap c: namespaces "absent" not found'


def test_a_question_over_several_lines_is_one_question(tmp_path: Path) -> None:
    question = tmp_path / "question.json"
    question.write_text('{"node": {},\n "claims": []}\n')
    result = dray("allocate", str(question))
    assert result.exit_code == 2
    assert result.output == '{"ok":false,"invalid":["node: metadata.name: required"]}\n'


def test_lines_that_are_piped_are_neither_folded_nor_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a reason " * 60
    console().print(table(("node", "why"), [("n1", long.strip())]))
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NODE", "WHY"]
    assert row.split("  ", 1)[1].strip() == long.strip()


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("profilez: []", "unknown field 'profilez'"),
        ("leaderElection: {leaderElect: true, leaseDuration: 5s}", "leaseDuration (5.0) must be larger than renewDeadline"),
        ("profiles: [{plugins: {filter: {enabled: [{name: Fancy}]}}}]", "unknown plugin 'Fancy'"),
        ("profiles: [{plugins: {filter: {enabled: [{name: [NodeName]}]}}}]", "unknown plugin ['NodeName']"),
        ("extenders: [{urlPrefix: http://x}]", "scheduler extenders are not supported"),
        ("{", "cannot be read at line 4, column 1: "),
        ("parallelism: !!int x", "cannot be read at line 3, column 14: "),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named_with_its_file(tmp_path: Path, extra: str, says: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{extra}\n")
    result = dray("scheduler", "--config", str(file))
    assert result.exit_code == 1
    assert says in result.output
    assert str(file) in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [("scheduler",), ("why", "p", "-f", "FILE"), ("controllers", "--only", "exporter")])
def test_a_configuration_that_is_no_text_is_named_with_its_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    file, objects = tmp_path / "scheduler.yaml", tmp_path / "objects.yaml"
    file.write_bytes(b"apiVersion: \x8f")
    objects.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    asked = [str(objects) if each == "FILE" else each for each in command]
    option = "--scheduler-config" if command[0] == "controllers" else "--config"
    result = dray(*asked, option, str(file))
    assert result.exit_code in (1, 2)
    assert str(file) in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: b\n c: d\n", "cannot be read at line 2, column 3: mapping values are not allowed in this context"),
        (b"a: 1\nb: \xff\n", "cannot be read at line 2, column 4: byte 0xff is not UTF-8 text"),
        (b'a: "\x01"\n', "cannot be read at character 5: 0x01 is not allowed in YAML"),
    ],
)
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("why", "p"), "--config"),
        (("why", "p"), "--snapshot"),
        (("why", "p"), "--kubeconfig"),
        (("plan",), "--node-template"),
        (("up", "--ephemeral"), "--hardware"),
        (("scheduler",), "--config"),
    ],
)
def test_every_option_says_in_the_same_words_where_its_file_is_wrong(
    tmp_path: Path, command: tuple[str, ...], option: str, content: bytes, says: str
) -> None:
    """On one line, so that an editor or a script finds the place."""
    file, objects = tmp_path / "wrong.yaml", tmp_path / "objects.yaml"
    file.write_bytes(content)
    objects.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    also = ("--snapshot", str(objects)) if option in ("--config", "--node-template") and command[0] != "scheduler" else ()
    result = dray(*command, *also, option, str(file))
    assert result.exit_code in (1, 2)
    last = result.output.strip().splitlines()[-1]
    assert str(file) in last
    assert last.endswith(says)


def test_a_file_of_a_template_is_named_once(tmp_path: Path) -> None:
    objects, empty, absent = tmp_path / "objects.yaml", tmp_path / "empty.yaml", tmp_path / "absent.yaml"
    objects.write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
    empty.touch()
    options = ("plan", "--snapshot", str(objects), "--node-template")
    for file, why in ((empty, "there is no object in it"), (absent, "No such file or directory")):
        assert dray(*options, str(file)).output.splitlines()[-1] == f"Error: --node-template: {file}: {why}"


def test_settings_without_effect_are_told_when_the_scheduler_starts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 4\n")
    result = dray("scheduler", "--config", str(file), "--kubeconfig", str(tmp_path / "absent"))
    assert result.exit_code == 1
    assert "parallelism has no effect" in result.output + capfd.readouterr().err


@pytest.mark.parametrize("gate", ["DRANodeAllocatableResources", "GenericWorkload", "DRAWorkloadResourceClaims"])
def test_a_gate_for_which_nothing_is_done_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str], gate: str) -> None:
    result = dray("scheduler", "--feature-gates", f"{gate}=true", "--kubeconfig", str(tmp_path / "absent"))
    assert f"warning: feature gate {gate} has no effect" in result.output + capfd.readouterr().err


@pytest.mark.parametrize("option", ["--attach-seconds", "--idle-seconds"])
def test_no_time_is_less_than_none(option: str) -> None:
    result = dray("fabric", option, "-1")
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.output


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        (
            400,
            "Client sent an HTTP request to an HTTPS server.",
            "the kubeconfig uses http://, but the API server expects https://",
        ),
        (
            429,
            '{"kind":"Status","code":429,"reason":"TooManyRequests","message":"wait"}',
            "is too busy (429 TooManyRequests: wait)",
        ),
        (503, "no healthy upstream", "the API server failed (503 Unknown: no healthy upstream)"),
        (200, "<html>log in first</html>", "is this a Kubernetes API server? It begins with '<html>log in first</html>'"),
    ],
)
def test_what_the_api_server_says_is_told_with_what_to_do(tmp_path: Path, code: int, body: str, says: str) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {"token": "t"}}]
        kubeconfig.write_text(json.dumps({"current-context": "c", "clusters": [cluster], "contexts": [context], "users": users}))
        result = dray("verify", "--kubeconfig", str(kubeconfig))
        server.shutdown()
    assert result.exit_code == 2
    assert says in result.output


def test_a_scheduler_that_is_not_there_is_told_in_plain_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        server = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = dray("story", "train", "--server", server)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: cannot connect to {server}: ")
    assert "ssl" not in result.output


def test_yaml_that_cannot_be_read_is_told_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("kind: Pod\n  foo: [\n")
    for command in (("plan", "--snapshot", str(file), "-f", str(file)), ("simulate", str(file)), ("why", "-f", str(file))):
        result = dray(*command)
        assert result.exit_code == 2
        assert (
            result.output
            == f"Error: {file}: cannot be read at line 2, column 6: mapping values are not allowed in this context\n"
        )


def test_a_configuration_that_does_not_exist_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n}}")
    file = tmp_path / "none.yaml"
    result = dray("why", "-f", str(tmp_path / "pod.yaml"), "--config", str(file))
    assert result.exit_code == 2
    assert result.output.endswith(f"Error: {file}: No such file or directory\n")


def test_a_duration_that_is_none_is_told_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n}}")
    result = dray("simulate", str(tmp_path / "node.yaml"), "--until", "5x")
    assert result.exit_code == 2
    assert result.output == "Error: --until: '5x' is not a duration; write 30s, 1m30s or 500ms\n"


def test_a_pod_whose_name_is_mistyped_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("{apiVersion: v1, kind: Pod, metadata: {name: train-0, namespace: default}, spec: {containers: []}}")
    for name, meant in (("trian-0", "; did you mean train-0?"), ("other", "")):
        result = dray("why", name, "-f", str(file))
        assert result.output.endswith(f'Error: pod "{name}" not found in namespace "default"{meant}\n')


def test_a_replica_that_loses_its_lease_says_so_as_it_says_everything(capfd: pytest.CaptureFixture[str]) -> None:
    async def lose() -> None:
        raise LeadershipLost("a lost the lease x/y: it is held by b; another instance may lead now")

    logs.configure("json")
    with pytest.raises(SystemExit) as ended:
        to_the_end(lose)
    assert ended.value.code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["level"] == "error"
    assert json.loads(line)["error"].startswith("a lost the lease x/y: it is held by b")


@pytest.mark.parametrize(
    ("context", "levels"),
    [
        # As uvloop tells it when a connection breaks while it is being closed.
        ({"message": "Fatal error on SSL protocol", "transport": object(), "protocol": object()}, ["DEBUG"]),
        ({"message": "Task exception was never retrieved", "future": object()}, ["ERROR"]),
    ],
)
def test_a_connection_that_broke_is_no_error_of_the_program(
    context: dict[str, Any], levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    handled = {**context, "exception": RuntimeError("the handler is closed")}

    async def fail() -> None:
        asyncio.get_running_loop().call_exception_handler(handled)

    to_the_end(fail)
    assert [record.levelname for record in caplog.records if "selector" not in record.message] == levels
