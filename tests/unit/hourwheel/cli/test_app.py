import subprocess
import sys

import pytest

import hourwheel
from hourwheel.cli import options, publishing
from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli

COMMANDS = (
    *("publish", "consume", "cancel", "topics", "groups", "status", "transfer", "describe"),
    *("node", "cluster", "demo", "inspect"),
)


def test_app_when_asked_for_help(cli: Cli) -> None:
    shown = cli("--help").stdout
    assert all(command in shown for command in COMMANDS)
    assert "Exit codes: 0 done" in shown


@pytest.mark.parametrize("command", COMMANDS[:8])
def test_commands_when_asked_for_help(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.exit_code == 0
    assert "HOURWHEEL_SERVER" in done.stdout


def test_app_when_nothing_is_said(cli: Cli) -> None:
    assert "Usage" in cli().output


def test_app_when_asked_for_its_version(cli: Cli) -> None:
    assert cli("--version").stdout.strip() == hourwheel.__version__


def test_app_when_there_is_no_node(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeNodeThread() as gone:
        address = gone.address
    monkeypatch.setattr(options, "CALL_TIMEOUT_MS", 50.0)
    monkeypatch.setattr(publishing, "CALL_TIMEOUT_MS", 50.0)
    for command in (("topics", "delete", "t", "-y"), ("status",), ("publish", "t", "x")):
        done = cli(*command, "--server", address)
        assert done.exit_code == ExitCode.UNAVAILABLE
        assert done.stderr.startswith("Unavailable: ")


def test_app_when_given_several_servers(cli: Cli, fake: FakeNodeThread) -> None:
    with FakeNodeThread() as gone:
        servers = f"{gone.address},{fake.address}"
    assert cli("publish", "t", "x", "--server", servers).exit_code == 0
    consumed = cli("consume", "t", "-g", "g", "--wait", "0s", "--server", servers)
    assert consumed.exit_code == 0
    assert fake.acked() == {b"x"}
    done = cli("status", "--server", "a:1,,b:1")
    assert done.exit_code == ExitCode.USAGE
    assert "host:port" in done.stderr


def test_main_when_only_the_client_is_installed() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['hourwheel'];"
        "import hourwheel.cli; hourwheel.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.UNAVAILABLE
    assert done.stderr == "The command line needs typer: pip install 'hourwheel[cli]'\n"
