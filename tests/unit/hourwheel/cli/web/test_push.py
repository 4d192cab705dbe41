from pathlib import Path

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli

ONE = """
[[subscriptions]]
name = "shop"
group = "hooks"
topics = ["orders"]
url = "https://shop.example/"
secret_env = "NO_SUCH_VARIABLE"
"""


@pytest.mark.parametrize(("text", "why"), [("", "subscriptions"), ("[", "no TOML")])
def test_push_with_a_configuration_that_is_wrong(
    cli: Cli, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "push.toml").write_text(text)
    found = cli("push", "--config", str(tmp_path / "push.toml"))
    assert found.exit_code == ExitCode.USAGE
    assert why in found.stderr
    assert cli("push", "--config", str(tmp_path / "none")).exit_code == ExitCode.USAGE


def test_push_without_a_secret_or_with_a_wrong_address(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "push.toml").write_text(ONE)
    options = ("push", "--config", str(tmp_path / "push.toml"))
    found = cli(*options)
    assert found.exit_code != ExitCode.OK
    assert "shop: 1 to 4 secrets are needed" in found.stderr.replace("\n", " ")
    assert cli(*options, "--health", "here").exit_code == ExitCode.USAGE
