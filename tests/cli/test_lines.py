"""Commands that answer line by line: whatever a line is, it has an answer, and so have the lines after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dray.cli import root

QUESTIONS = {
    ("allocate",): {"id": 1, "node": {"metadata": {"name": "n"}}, "classes": [], "slices": [], "claims": []},
    ("numa", "check"): {
        "id": 1,
        "topology": {"metadata": {"name": "n"}, "zones": []},
        "pod": {"metadata": {"name": "p"}, "spec": {}},
    },
    ("numa", "merge"): {"id": 1, "policy": "none", "numaNodes": [0, 1], "providersHints": [None]},
    ("queues", "shares"): {"id": 1, "total": {"gpu": 4}, "queues": [{"name": "a", "resources": {"gpu": {"quota": 4}}}]},
    ("queues", "settle"): {"id": 1, "world": {"nodes": [], "queues": [], "podgroups": []}},
}
COMMANDS = pytest.mark.parametrize("command", QUESTIONS)


def asked(command: tuple[str, ...], text: bytes) -> Result:
    return CliRunner().invoke(root, [*command, "-"], input=text, catch_exceptions=False)


@COMMANDS
@pytest.mark.parametrize("broken", [b'{"id": "\xff\xfe"}', b"\x00\x01", b"[" * 100_000])
def test_a_line_that_is_no_text_is_told_and_the_next_is_answered(command: tuple[str, ...], broken: bytes) -> None:
    question = json.dumps(QUESTIONS[command]).encode()
    result = asked(command, broken + b"\n" + question + b"\n")
    first, second = (json.loads(line) for line in result.output.splitlines())
    assert first["invalid"]
    assert second["id"] == 1
    assert "invalid" not in second
    assert result.exit_code == 2


@COMMANDS
def test_a_name_that_is_no_text_is_told(command: tuple[str, ...]) -> None:
    """Also where it stands deep in an object that is read later."""
    question = json.dumps(QUESTIONS[command]).encode().replace(b'"n"', b'"\xef"').replace(b'"a"', b'"\xef"')
    answer = json.loads(asked(command, question).output)
    assert ("invalid" in answer) == (b"\xef" in question)


@COMMANDS
def test_an_object_over_several_lines_is_one_question(command: tuple[str, ...]) -> None:
    result = asked(command, json.dumps(QUESTIONS[command], indent=2).encode())
    assert result.exit_code == 0
    assert json.loads(result.output)["id"] == 1


@COMMANDS
def test_a_line_with_nothing_in_it_is_no_question(command: tuple[str, ...]) -> None:
    """Files end with them, and a pretty-printed object may have them inside."""
    question = json.dumps(QUESTIONS[command]).encode()
    result = asked(command, b"\n" + question + b"\n\n  \n" + question + b"\n\n")
    assert [json.loads(line)["id"] for line in result.output.splitlines()] == [1, 1]
    assert result.exit_code == 0


@COMMANDS
def test_what_is_no_json_is_told_with_what_a_question_is(command: tuple[str, ...]) -> None:
    [told] = json.loads(asked(command, b"foo").output)["invalid"]
    assert told.startswith("not JSON: ")
    assert told.endswith("a question is a JSON object, on one line or pretty-printed")


@pytest.mark.parametrize("name", ["cpuManagerPolicy", "memoryManagerPolicy"])
def test_a_policy_that_no_kubelet_has_is_told_by_its_field(name: str) -> None:
    question = QUESTIONS["numa", "check"]
    assert invalid(("numa", "check"), {**question, "kubelet": {name: "statik"}}) == (
        f"kubelet.{name}: 'statik' is not one of none, static"
    )
    for known in ("none", "static", "None", "Static"):
        assert asked(("numa", "check"), json.dumps({**question, "kubelet": {name: known}}).encode()).exit_code == 0


def invalid(command: tuple[str, ...], question: dict[str, Any]) -> str:
    result = asked(command, json.dumps(question).encode())
    assert result.exit_code == 2
    (told,) = json.loads(result.output)["invalid"]
    return str(told)


POD = {"name": "p"}


@pytest.mark.parametrize(
    ("world", "says"),
    [
        ({"queues": [{"name": ""}]}, "Expected `str` of length >= 1 - at `$.world.queues[0].name`"),
        ({"nodes": [{"name": "n"}, {"name": "n"}]}, "node 'n' is given twice"),
        ({"podgroups": [{"name": "g", "queue": "q", "pods": [POD, POD]}]}, "pod 'p' is given twice"),
        ({"podgroups": [{"name": "g", "queue": "q", "pods": [], "priority": 10**30}]}, "Expected `int` <= 2147483647"),
        ({"podgroups": [{"name": "g", "queue": "q", "pods": [], "age_s": 1e30}]}, "Expected `float` <= 1000000000.0"),
        ({"nodes": [{"name": "n", "allocatable": {"gpu": -1}}]}, "Expected `float` >= 0.0"),
        ({"podgroups": [{"name": "g", "queue": "q", "pods": [POD | {"requests": {"gpu": 1e80}}]}]}, "Expected `float` <= 9"),
        ({"session_config": {"default_staleness_grace_s": {}}}, "Expected `float`, got `object`"),
    ],
)
def test_a_world_that_makes_no_sense_is_told(world: dict[str, Any], says: str) -> None:
    question = {"world": {"nodes": [], "queues": [], "podgroups": [], **world}}
    assert says in invalid(("queues", "settle"), question)


def test_a_queue_without_a_name_is_told() -> None:
    """It would be its own parent, and nobody would ever be done with it."""
    assert invalid(("queues", "shares"), {"total": {"gpu": 4}, "queues": [{"name": ""}]}) == "a queue has no name"
