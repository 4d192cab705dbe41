"""Each command says what it does, and what each of its options and arguments means."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer.main

from hourwheel.cli.app import EXAMPLES, app
from tests.unit.hourwheel.cli.conftest import Cli

SERVER: Final = ("node", "cluster", "demo", "inspect", "audit", "export", "forecast", "schedule")
"""Commands that hand all their arguments on to a parser of the server's."""


def commands(command: Any, *words: str) -> Iterator[tuple[str, Any]]:
    """A command and all below it, each with the words that call it."""
    yield " ".join(words), command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *words, name)


OWN: Final = dict(commands(typer.main.get_command(app), "hourwheel"))


@pytest.mark.parametrize("words", OWN)
def test_command_says_what_it_is_and_what_all_its_parameters_are(words: str) -> None:
    command = OWN[words]
    assert command.help
    silent = [one.name for one in command.params if not getattr(one, "help", "")]
    assert silent == []
    texts = [command.help, *(getattr(one, "help", "") for one in command.params)]
    assert [text for text in texts if re.search(r"\[[a-z\[]", text)] == []  # rich drops it


LEAVES: Final = {
    words: command
    for words, command in OWN.items()
    if not hasattr(command, "commands") and command.add_help_option
}
"""Those that do not hand their arguments on."""


@pytest.mark.parametrize("words", LEAVES)
def test_command_has_an_example_that_it_understands(cli: Cli, words: str) -> None:
    name = words.removeprefix("hourwheel ")
    example = EXAMPLES[name]
    assert example.startswith(name)
    assert f"Example: hourwheel {example}" in " ".join(cli(*name.split(), "--help").stdout.split())
    arguments = shlex.split(example)[len(name.split()) :]
    LEAVES[words].make_context(words, arguments)


def parser_of(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> argparse.ArgumentParser:
    """The parser that a command of the server reads its arguments with."""
    found: list[argparse.ArgumentParser] = []

    def give_up(parser: argparse.ArgumentParser, *_: object) -> argparse.Namespace:
        found.append(parser)
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", give_up)
    assert cli(command).exit_code == 0
    return found[0]


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of the commands below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


@pytest.mark.parametrize("command", SERVER)
def test_command_of_the_server_says_what_it_is_and_what_all_its_arguments_are(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    silent = []
    for parser in parsers(parser_of(cli, monkeypatch, command)):
        if not parser.add_help:  # it stands for a parser of its own, which is looked at as such
            continue
        assert parser.prog.startswith(f"hourwheel {command}")
        silent += [parser.prog] * (not parser.description)
        silent += [
            f"{parser.prog}: {action.dest}"
            for action in parser._actions
            if not action.help and not isinstance(action, argparse._SubParsersAction)
        ]
    assert silent == []


@pytest.mark.parametrize("command", SERVER)
def test_command_of_the_server_shows_its_help(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"usage: hourwheel {command}")


def test_help_of_the_node_says_how_it_listens_elsewhere(cli: Cli) -> None:
    assert "HOURWHEEL_NODE__LISTEN=127.0.0.1:7500" in cli("node", "--help").stdout


# --- completion -----------------------------------------------------------------------------------


def completed(shell: str, **words: str) -> str:
    """What `hourwheel` tells a shell that asks what may come next."""
    asked = {**os.environ, "_HOURWHEEL_COMPLETE": f"complete_{shell}", **words}
    command = [sys.executable, "-m", "hourwheel.cli"]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
    return done.stdout


def test_shells_are_told_which_commands_there_are() -> None:
    begun = "hourwheel p"
    told = {
        "bash": completed("bash", COMP_WORDS=begun, COMP_CWORD="1"),
        "zsh": completed("zsh", _TYPER_COMPLETE_ARGS=begun),
        "fish": completed(
            "fish", _TYPER_COMPLETE_ARGS=begun, _TYPER_COMPLETE_FISH_ACTION="get-args"
        ),
    }
    for shell, said in told.items():
        assert "publish" in said, shell
        assert "pending" in said, shell
        assert "consume" not in said, shell


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_a_shell(shell: str) -> None:
    environ = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "hourwheel.cli", "--show-completion", shell],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"_HOURWHEEL_COMPLETE=complete_{shell}" in done.stdout
