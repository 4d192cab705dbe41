"""What guides and READMEs tell a reader to give Helm: each command and each file renders."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.support.guide_commands import commands_of, fenced
from tests.support.helm_chart import Object, objects, only, render
from tests.tidy import tree

GUIDE: Final = "docs/guides/kubernetes.md"
PAGES: Final = (GUIDE, "helm/hourwheel/README.md", "helm/hourwheel/UPGRADING.md")
CHART: Final = "helm/hourwheel"
INSTALLS: Final = [
    (page, words)
    for page in PAGES
    for words in commands_of(page, "helm")
    if words[0] in {"install", "upgrade"}
]


def values_of(words: list[str]) -> list[str]:
    """Of a command's words those that say values."""
    return [
        f"{one}={words[at + 1]}" for at, one in enumerate(words) if one in {"--set", "--values"}
    ]


@pytest.mark.parametrize(("page", "words"), INSTALLS)
def test_command_of_a_page_renders_as_it_stands(
    page: str, words: list[str], tmp_path: Path
) -> None:
    assert words[2] == CHART
    (tmp_path / "values.yaml").write_text("".join(fenced(GUIDE, "yaml")))
    here = [
        one.replace("--values=values.yaml", f"--values={tmp_path / 'values.yaml'}")
        for one in values_of(words)
    ]
    assert objects(render(*here)), page


def test_pages_install_the_chart() -> None:
    assert {page for page, _ in INSTALLS} >= set(PAGES[:2])


def test_values_of_the_guide_are_found_in_what_is_rendered(tmp_path: Path) -> None:
    (text,) = fenced(GUIDE, "yaml")
    file = tmp_path / "values.yaml"
    file.write_text(text)
    values = yaml.safe_load(text)
    rendered = render(f"--values={file}")
    nodes: Object = only(rendered, "StatefulSet")["spec"]
    (claim,) = nodes["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == values["persistence"]["storageClass"]
    assert claim["spec"]["resources"]["requests"]["storage"] == values["persistence"]["size"]
    image = nodes["template"]["spec"]["containers"][0]["image"]
    assert image.startswith(values["image"]["repository"])
    assert f"retention_ms = {values['config']['log']['retention_ms']}" in rendered


def test_files_that_pages_name_are_there() -> None:
    for page in PAGES:
        for words in commands_of(page, "podman"):
            named = [words[at + 1] for at, one in enumerate(words) if one == "-f"]
            assert all((tree.ROOT / name).exists() for name in named), page
