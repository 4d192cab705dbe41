import sys
from types import ModuleType

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.mark.parametrize(
    ("command", "module", "handed_over"),
    [
        ("node", "node.__main__", ["--config", "x", "--help"]),
        ("inspect", "node.__main__", ["inspect", "--config", "x", "--help"]),
        ("demo", "node.demo", ["--config", "x", "--help"]),
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


@pytest.mark.parametrize("command", ["node", "demo", "inspect", "audit"])
def test_hand_over_when_only_the_client_is_installed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in {"node", "spark_jobs"}]:
        monkeypatch.delitem(sys.modules, name)
    real = __import__("importlib").import_module

    def without_server(name: str) -> ModuleType:
        if name.startswith(("node.", "spark_jobs.")):
            raise ModuleNotFoundError(
                f"No module named {name!r}", name=name.split(".", maxsplit=1)[0]
            )
        module: ModuleType = real(name)
        return module

    monkeypatch.setattr("hourwheel.cli.handover.import_module", without_server)
    done = cli(command)
    assert done.exit_code == ExitCode.UNAVAILABLE
    assert "needs the server's code: run it in a checkout or the image" in done.stderr


def test_hand_over_when_the_server_lacks_something_of_its_own(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'structlog'", name="structlog")

    monkeypatch.setattr("hourwheel.cli.handover.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="structlog"):
        cli("node")
