"""The stories beside this file: each command must do what the file says.

    STORIES_WRITE=1 .venv/bin/python -m pytest -q tests/stories

writes what the commands do now into the files; `git diff` then shows what has changed.
"""

import os
from pathlib import Path

import pytest

from tests.support.story import Story, read_steps, written

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
IS_WRITING = os.environ.get("STORIES_WRITE", "") not in {"", "0"}


@pytest.mark.parametrize("name", NAMES)
def test_story_goes_as_it_is_told(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    text = path.read_text()
    steps = read_steps(text)
    story = Story()
    for step in steps:
        if step.command:
            step.output = story.run(step.command)
    if IS_WRITING:
        path.write_text(written(steps))
    else:
        assert written(steps) == text


@pytest.mark.parametrize("name", NAMES)
def test_story_begins_with_what_it_shows(name: str) -> None:
    """Two sentences or more above the first command; and it looks at what came of it."""
    text = (FOLDER / f"{name}.txt").read_text()
    head = text.split("\n\n")[0].replace("\n# ", " ")
    assert head.startswith("# ")
    assert head.count(". ") + head.endswith(".") >= 2
    assert len([step for step in read_steps(text) if step.output]) >= 3


def test_there_are_stories() -> None:
    assert len(NAMES) >= 25


def test_command_without_a_line_below_it_is_told() -> None:
    with pytest.raises(ValueError, match="no ---- below it: publish a x"):
        read_steps("nodes a\n----\n\npublish a x\n")
