import json
import subprocess
import sys

import pytest

import hourwheel
from hourwheel.cli import options, publish
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
    monkeypatch.setattr(publish, "CALL_TIMEOUT_MS", 50.0)
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


@pytest.mark.parametrize(
    "command",
    [
        ("topics",),
        ("topics", "list"),
        ("topics", "show", "t"),
        ("groups", "list"),
        ("pending", "list", "t"),
        ("pending", "count", "t"),
        ("publish", "t", "x"),
        ("consume", "t", "-g", "g", "--wait", "0s"),
        ("status",),
        ("topics", "show", "none"),
    ],
)
def test_json_when_it_stands_anywhere(cli: Cli, command: tuple[str, ...]) -> None:
    cli("topics", "create", "t")
    codes = set[int]()
    places = [[*command[:at], "--json", *command[at:]] for at in range(len(command) + 1)]
    for place in places:
        if place[-1] == "--json" or "-g" not in place[: place.index("--json")]:
            done = cli(*place)
            for line in (done.stdout + done.stderr).splitlines():
                json.loads(line)
            codes.add(done.exit_code)
    assert len(codes) == 1


@pytest.mark.parametrize("at", range(4))
def test_server_when_it_stands_anywhere(cli: Cli, fake: FakeNodeThread, at: int) -> None:
    """Between the two words of a command it was swallowed, and the default server was asked."""
    with FakeNodeThread() as other:
        cli("topics", "create", "t", "--server", other.address)
        command = ["topics", "show", "t"]
        command[at:at] = ["--server", other.address]
        assert cli(*command).exit_code == 0
    command = ["--server", "127.0.0.1:1", "topics", "show", "none", "--server", fake.address]
    assert cli(*command).exit_code == ExitCode.NOT_FOUND  # the last one counts


def test_options_when_they_stand_before_a_command_of_the_server(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []

    class Room:
        @staticmethod
        def main(arguments: list[str], *_: str) -> int:
            told.append(arguments)
            return 0

    monkeypatch.setattr("hourwheel.rooms.import_module", lambda _: Room)
    assert cli("--json", "--server", "a:1", "inspect", "--x", "y").exit_code == 0
    assert cli("demo").exit_code == 0
    assert told == [["inspect", "--x", "y", "--server", "a:1", "--json"], []]
