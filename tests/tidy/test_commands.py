"""Commands and options that pages name exist, as `hourwheel --help` has them."""

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

import pytest
from typer.main import get_command

from hourwheel.cli.app import app
from tests.tidy import tree

ROOT: Final[Any] = get_command(app)
CALL: Final = re.compile(
    r"(?:`|^\s+(?:\$ )?|\.venv/bin/)hourwheel ((?:[^`\n\\]|\\.|\\\n)*)", re.MULTILINE
)
"""A call in backticks, or at the beginning of an indented or fenced line."""
COMMENT: Final = re.compile(r"  +\S.*|\s#\s.*|\s[&|;].*", re.DOTALL)
"""What stands behind a call in its line."""
EVERYWHERE: Final = {"--server", "--json", "--help"}
HISTORY: Final = ("CHANGELOG.md", "docs/decisions/")


def words_of(call: str) -> list[str]:
    """The words of a call, without what is said of it behind."""
    text = COMMENT.sub("", call.replace("\\\n", " ").replace("    ", "\n").split("\n")[0])
    try:
        return shlex.split(text)
    except ValueError:  # quotation marks that go on elsewhere
        return text.split()


def find_wrong(words: list[str]) -> str | None:
    """The first word of a call that is no command or option, if one is not."""
    command, path = ROOT, list(words)
    while path and hasattr(command, "commands"):
        if path[0].startswith("-") or not re.fullmatch(r"[a-z-]+", path[0]):
            return None  # options before the command, or a placeholder
        if path[0] not in command.commands:
            return path[0]
        command = command.commands[path.pop(0)]
    if command.context_settings.get("ignore_unknown_options"):
        return None  # of the server: it has a parser of its own
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    named = (word.partition("=")[0] for word in path if re.match(r"--\w", word))
    return next((one for one in named if one not in known | EVERYWHERE), None)


def calls_on(page: str) -> Iterator[tuple[int, list[str]]]:
    """(line, words) of each call of `hourwheel` on a page."""
    text = tree.text(page)
    for found in CALL.finditer(text):
        yield text.count("\n", 0, found.start(1)) + 1, words_of(found[1])


def test_commands_named_on_pages_exist() -> None:
    pages = [page for page in tree.files_named(".md") if not page.startswith(HISTORY)]
    calls = [(page, line, words) for page in pages for line, words in calls_on(page)]
    assert len(calls) > 200
    wrong = [
        f"{page}:{line}: {word}: hourwheel {' '.join(words)}"
        for page, line, words in calls
        if (word := find_wrong(words)) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("show ID", "show"),
        ("groups shwo billing", "shwo"),
        ("describe ID --histroy", "--histroy"),
        ("describe ID --history --json", None),
        ("groups reset billing orders --to first --yes   # or now", None),
        ("node --config a.toml            runs the node", None),
        ("--server a:7400 status", None),
        ("TOPIC", None),
    ],
)
def test_word_is_found_when_it_is_no_command(call: str, wrong: str | None) -> None:
    assert find_wrong(words_of(call)) == wrong
