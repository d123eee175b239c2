"""Every example, in pages and in the demo, is accepted by the API server; scenarios and configurations are readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.cluster.port import Invalid, Write
from dray.nodes.hardware import hardware
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock
from dray.simulate.scenario import read
from tests.docs.pages import EXAMPLES, PAGES, Block, blocks

YAML_BLOCKS = [block for page in PAGES for block in blocks(page) if block.language == "yaml"]


def is_object(found: Any) -> bool:
    return isinstance(found, dict) and {"apiVersion", "kind"} <= found.keys()


def create_all(file: Path) -> int:
    """Create what the file, or a step of its scenario, applies; how many objects that were."""
    server = InProcess(Clock())
    applied = [action for action in read([file]).actions if action.verb == "apply"]
    for action in applied:
        assert action.kind is not None
        namespace = action.body["metadata"].get("namespace", "default") if action.kind.namespaced else ""
        server.write(Write("create", action.kind, namespace, action.body["metadata"]["name"], action.body))
    return len(applied)


@pytest.mark.parametrize("block", YAML_BLOCKS, ids=lambda block: block.where)
def test_every_yaml_block_is_accepted(block: Block, tmp_path: Path) -> None:
    documents = [found for found in yaml.safe_load_all(block.text) if found is not None]
    assert documents
    file = tmp_path / "block.yaml"
    objects = [found for found in documents if is_object(found)]
    file.write_text(yaml.safe_dump_all(made for found in objects for made in made_of(found, tmp_path)))
    create_all(file)


def made_of(found: dict[str, Any], tmp_path: Path) -> list[dict[str, Any]]:
    """The objects of a description of hardware; anything else is itself."""
    if found["kind"] != "Hardware":
        return [found]
    file = tmp_path / "hardware.yaml"
    file.write_text(yaml.safe_dump(found))
    made = hardware([f"{file}:2"])
    return [*made.nodes, *made.objects]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_of_the_demo_is_accepted(file: Path) -> None:
    assert create_all(file) > 0


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_of_the_demo_says_what_it_shows(file: Path) -> None:
    assert file.read_text().startswith("# ")


def test_a_wrong_example_would_be_noticed(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec: {containers: []}\n")
    with pytest.raises(Invalid, match=r"spec\.containers"):
        create_all(file)
