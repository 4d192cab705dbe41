"""The node's own commands, in this process."""

import io
import tomllib
from pathlib import Path

import pytest

from node.process import lifecycle
from node.process.command import main


def test_pages_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--toml"]) == lifecycle.EXIT_OK
    assert "node" in tomllib.loads(capsys.readouterr().out)
    assert main(["config", "--markdown"]) == main(["metrics", "--markdown"]) == lifecycle.EXIT_OK
    assert "hourwheel_" in capsys.readouterr().out


def test_configuration_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[node]\ndrain_ms = 5\n")
    assert main(["config", "--check", str(file)]) == lifecycle.EXIT_OK
    file.write_text("[node]\nno_such_key = 5\n")
    assert main(["config", "--check", str(file)]) == lifecycle.EXIT_CONFIG
    assert "no_such_key" in capsys.readouterr().err


@pytest.mark.parametrize(("user", "secret"), [("a:b", "hush"), ("alice", ""), ("", "hush")])
def test_hash_of_a_secret_when_there_is_none(
    monkeypatch: pytest.MonkeyPatch, user: str, secret: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(secret + "\n"))
    assert main(["hash-secret", user]) == lifecycle.EXIT_CONFIG


def test_hash_of_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\n"))
    assert main(["hash-secret", "alice"]) == lifecycle.EXIT_OK
    user, _, made = capsys.readouterr().out.strip().partition(":")
    assert (user, made.startswith("$argon2id$"), "hush" in made) == ("alice", True, False)
