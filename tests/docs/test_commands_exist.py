"""Every ``dray`` command line that is shown, in pages and in help texts, would be understood."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dray.cli import COMMANDS, root
from tests.docs.pages import PAGES, ROOT, blocks, prose

_ENDS = re.compile(r"\s&&\s|\s[|;&>]\s|\s&$|\s{3,}|\s#\s")


def shown(text: str) -> Iterator[str]:
    """Command lines in a shell block or a help text: one for each ``dray`` at the beginning of a command."""
    for line in text.splitlines():
        for part in re.split(r"&&|\||;|\s&\s", line):
            if found := re.match(r"\s*(?:\$ )?(?:kubectl )?(dray [a-z].*)", part):
                yield _ENDS.split(found[1])[0]


def inline(text: str) -> Iterator[str]:
    yield from (found[1] for found in re.finditer(r"`(?:kubectl )?(dray [a-z][^`]*)`", text))


def in_page(page: Path) -> list[str]:
    found = [line for block in blocks(page) if block.language in ("", "sh", "console") for line in shown(block.text)]
    return [*found, *(" ".join(line.split()) for line in inline(prose(page)))]


def understood(line: str) -> None:
    """Raise click's error where it would say so; what stands for something else (``…``, ``[FILE]``) is passed over."""
    words = [word for word in shlex.split(line, comments=True) if "…" not in word and not word.startswith("[")]
    context = click.Context(root, info_name="dray")
    _, command, arguments = root.resolve_command(context, words[1:])  # type: ignore[attr-defined]
    while isinstance(command, click.Group) and not (command.invoke_without_command and (arguments or ["-"])[0].startswith("-")):
        context = click.Context(command, info_name=command.name, parent=context)
        _, command, arguments = command.resolve_command(context, arguments)
    inner = click.Context(command, info_name=words[1], parent=context)
    values, left, _ = command.make_parser(inner).parse_args(arguments)
    assert not left, f"{line}: nothing takes {left}"
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and values.get(parameter.name) is not None:
            parameter.type_cast_value(inner, values[parameter.name])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_page_is_understood(page: Path) -> None:
    for line in in_page(page):
        understood(line)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_in_a_help_text_is_understood(name: str) -> None:
    command = root.get_command(click.Context(root), name)  # type: ignore[attr-defined]
    examples = list(shown(command.help or ""))
    assert examples or name == "allocate", f"dray {name} --help shows no example"
    for line in examples:
        understood(line)


def test_the_pages_show_every_command() -> None:
    seen = {line.split()[1] for page in PAGES for line in in_page(page)}
    assert set(COMMANDS) <= seen


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        understood("dray why --no-such-option pod")
    with pytest.raises(click.BadParameter):
        understood("dray why pod -o xml")
    with pytest.raises(click.UsageError):
        understood("dray whi pod")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_usage_shows_in_brackets_what_may_be_left_out(name: str) -> None:
    command = root.get_command(click.Context(root), name)  # type: ignore[attr-defined]
    context = click.Context(command, info_name=name)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            shown_as = parameter.make_metavar(context)
            assert shown_as.startswith("[") == (not parameter.required), f"dray {name}: {shown_as}"
