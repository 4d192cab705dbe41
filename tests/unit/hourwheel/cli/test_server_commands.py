import errno
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.mark.parametrize(
    ("command", "module", "handed_over"),
    [
        ("node", "node.process.command", ["--config", "x", "--help"]),
        ("inspect", "node.process.command", ["inspect", "--config", "x", "--help"]),
        ("repair", "node.process.command", ["repair", "--config", "x", "--help"]),
        ("demo", "node.tools.demo.command", ["--config", "x", "--help"]),
        ("audit", "spark_jobs.run", ["audit", "--config", "x", "--help"]),
        ("export", "spark_jobs.run", ["export", "--config", "x", "--help"]),
        ("forecast", "spark_jobs.run", ["forecast", "--config", "x", "--help"]),
        ("schedule", "spark_jobs.run", ["schedule", "--config", "x", "--help"]),
    ],
)
def test_hand_over_when_the_server_is_there(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, module: str, handed_over: list[str]
) -> None:
    seen: list[list[str]] = []

    def main(arguments: list[str], program: str = "") -> int:
        assert program == ("hourwheel node" if command == "node" else "")
        seen.append(arguments)
        return 78

    fake = ModuleType(module)
    fake.__dict__["main"] = main
    monkeypatch.setitem(sys.modules, module, fake)
    assert cli(command, "--config", "x", "--help").exit_code == 78
    assert seen == [handed_over]


def lacking(name: str) -> Callable[[str], ModuleType]:
    """`import_module` where something is not installed."""

    def load(_: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return load


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("node", "structlog", "server"),
        ("demo", "pysyncobj.encoders", "server"),
        ("inspect", "node", "server"),
        ("audit", "pyspark", "spark"),
    ],
)
def test_hand_over_when_only_the_client_is_installed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, module: str, extra: str
) -> None:
    monkeypatch.setattr("hourwheel.rooms.import_module", lacking(module))
    done = cli(command)
    assert done.exit_code == ExitCode.UNAVAILABLE
    package = module.split(".", maxsplit=1)[0]
    assert f"needs {package}: pip install 'hourwheel[{extra}]'" in done.stderr


def failing(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Let the demo fail so."""

    def main(_: list[str]) -> int:
        raise error

    fake = ModuleType("node.tools.demo.command")
    fake.__dict__["main"] = main
    monkeypatch.setitem(sys.modules, fake.__name__, fake)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "kept"), "kept: Permission denied\n"),
        (PermissionError(errno.EACCES, "Permission denied", b"kept"), "kept: Permission denied\n"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device\n"),
    ],
)
def test_hand_over_when_a_file_cannot_be_used(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    failing(monkeypatch, error)
    done = cli("demo", "--keep", "kept")
    assert (done.exit_code, done.stderr) == (ExitCode.USAGE, said)


def test_hand_over_when_something_else_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, OSError(errno.EBADF, "Bad file descriptor"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        cli("demo")


def test_hand_over_when_a_module_of_ours_is_gone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourwheel.rooms.import_module", lacking("storage.gone"))
    with pytest.raises(ModuleNotFoundError, match=r"storage\.gone"):
        cli("node")


def test_rooms_of_a_wheel_come_before_packages_of_the_same_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("hourwheel.rooms.FOLDER", tmp_path)
    monkeypatch.setattr("hourwheel.rooms.import_module", lacking("structlog"))
    cli("node")
    cli("demo")
    assert sys.path[0] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1
