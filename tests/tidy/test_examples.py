"""Each example is short, is tried, and has a page that says so."""

import re
from pathlib import PurePosixPath
from typing import Final

from tests.tidy import made_pages, tree

LINES_MAX: Final = 80
HEADINGS: Final = ["Why", "The program", "How to run it", "How it is tested", "In production"]
PROGRAMS: Final = [
    path
    for path in tree.files()
    if path.startswith("docs/examples/") and path.endswith((".py", ".ipynb"))
]


def test_examples_are_short_and_each_is_on_its_page() -> None:
    shown = [path for page in made_pages.EXAMPLES for path in made_pages.programs_of(page)]
    assert sorted(shown) == PROGRAMS
    assert len(made_pages.EXAMPLES) >= 9
    long = {
        path: lines
        for path in PROGRAMS
        if path.endswith(".py") and (lines := tree.text(path).count("\n")) >= LINES_MAX
    }
    assert long == {}


def test_pages_of_examples_say_why_how_and_what_tests_them() -> None:
    tests = {
        name
        for path in tree.files_named(".py")
        if path.startswith("tests/clients/")
        for name in re.findall(r"^(?:async )?def (test_\w+)", tree.text(path), re.MULTILINE)
    }
    for page in made_pages.EXAMPLES:
        text = tree.text(page)
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^## (.*)$", prose, re.MULTILINE) == HEADINGS, page
        tried_by = prose.split("## How it is tested")[1].split("\n## ")[0]
        named = set(re.findall(r"`(test_\w+)`", tried_by))
        assert named, page
        assert named <= tests, page


def test_programs_of_examples_are_run_by_the_tests_that_their_pages_name() -> None:
    sources = [tree.text(path) for path in tree.files_named(".py") if "/clients/test_" in path]
    for path in PROGRAMS:
        name = PurePosixPath(path)
        loaded = f'"{name.stem}"' if name.suffix == ".py" else name.name
        assert any(loaded in text for text in sources), path


def test_table_of_examples_links_to_each_page() -> None:
    table = tree.text("docs/guides/examples.md")
    pages = {PurePosixPath(page).name for page in made_pages.EXAMPLES}
    assert set(re.findall(r"^\| \[.*?\]\(\.\./examples/(\S+?)\)", table, re.MULTILINE)) == pages
