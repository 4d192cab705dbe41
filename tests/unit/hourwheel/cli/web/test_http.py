import sys
from pathlib import Path

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli


def test_http_says_what_it_needs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("command", "port", "exchange", "site"):
        monkeypatch.delitem(sys.modules, f"hourwheel.gateway.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)
    found = cli("http")
    assert found.exit_code == ExitCode.UNAVAILABLE
    assert "hourwheel[http]" in found.stderr


def test_http_with_a_configuration_that_is_wrong(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "http.toml"
    file.write_text("[http]\nlissen = 1\n")
    found = cli("http", "--config", str(file))
    assert found.exit_code == ExitCode.USAGE
    assert "http.lissen" in found.stderr.replace("\n", "")
    assert cli("http", "--listen", "0.0.0.0:1").exit_code == ExitCode.USAGE


def test_http_with_credentials_of_its_own(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "login").write_text("a:b\n")
    login = ("--login-file", str(tmp_path / "login"))
    found = cli(*login, "http", "--listen", "127.0.0.1:0")
    assert found.exit_code == ExitCode.REFUSED
    assert "callers bring their credentials" in found.stderr
