"""The pages about the configuration are those that the code makes."""

import tomllib
from pathlib import Path

from node.config import pages
from node.config.model import NodeConfig
from node.config.sources import load

DOCS = Path(__file__).parents[4] / "docs"


def test_configuration_page_is_up_to_date() -> None:
    command = "python -m node config --markdown > docs/CONFIGURATION.md"
    assert (DOCS / "CONFIGURATION.md").read_text() == pages.markdown(), command


def test_example_file_is_up_to_date() -> None:
    command = "python -m node config --toml > docs/hourwheel.toml"
    assert (DOCS / "hourwheel.toml").read_text() == pages.toml(), command


def test_example_file_is_the_defaults_when_its_comments_are_taken_away(tmp_path: Path) -> None:
    lines = pages.toml().splitlines()
    text = "\n".join(line[1:] if line[:1] == "#" and line[1:2] != " " else line for line in lines)
    given = tomllib.loads(text)
    path = tmp_path / "example.toml"
    path.write_text(text)
    assert load(path, {}) == NodeConfig.of()
    assert {section: set(keys) for section, keys in given.items()} == {
        section: set(type(field.default).model_fields)
        for section, field in NodeConfig.model_fields.items()
    }


def test_example_file_is_valid_as_it_is() -> None:
    assert load(DOCS / "hourwheel.toml", {}) == NodeConfig.of()
