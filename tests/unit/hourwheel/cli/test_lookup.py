import json

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.fixture(autouse=True)
def five_messages(cli: Cli) -> None:
    """Of which the first four have a key, and the third is cancelled."""
    for number in range(5):
        key = ("--key", "17") if number < 4 else ()
        done = cli("publish", "orders", f"body {number}", "--in", "10s", *key, "--json")
        if number == 2:
            cli("cancel", json.loads(done.stdout)["message_id"])


def states(cli: Cli, *command: str) -> list[str]:
    done = cli(*command, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line)["state"] for line in done.stdout.splitlines()]


def test_describe_when_a_key_is_given(cli: Cli) -> None:
    command = ("describe", "--topic", "orders", "--key", "17")
    assert states(cli, *command) == ["PENDING", "CANCELLED", "PENDING", "PENDING"]
    assert states(cli, *command, "--limit", "2") == ["PENDING", "CANCELLED"]
    assert "the first 2" in cli(*command, "--limit", "2").stdout
    lines = cli(*command).stdout.splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == states(cli, *command)
    for due in ("5s..1h", "5s..", "..1h"):
        assert states(cli, *command, "--due", due) == states(cli, *command)
    for due in ("1h..", "..2020-01-01T00:00:00Z"):
        assert cli(*command, "--due", due).exit_code == ExitCode.PARTLY
    none = cli("describe", "--topic", "orders", "--key", "18")
    assert (none.exit_code, none.stdout) == (
        ExitCode.PARTLY,
        "nothing with the key 18 is known\n",
    )


@pytest.mark.parametrize(
    "command",
    [
        ("describe",),
        ("describe", "--key", "17"),
        ("describe", "--topic", "orders"),
        ("describe", "00", "--topic", "orders", "--key", "17"),
        ("describe", "00", "--due", "2h.."),
        ("describe", "--topic", "orders", "--key", "17", "--due", ".."),
        ("describe", "--topic", "orders", "--key", "17", "--due", "2h"),
        ("describe", "--topic", "orders", "--key", "17", "--due", "x..2h"),
        ("pending", "list", "orders", "--key", "17", "--filter", "a"),
        ("pending", "count", "orders", "--key", "17", "--to", "3d"),
    ],
)
def test_commands_when_they_are_wrong(cli: Cli, command: tuple[str, ...]) -> None:
    assert cli(*command).exit_code == ExitCode.USAGE


def test_pending_when_a_key_is_given(cli: Cli) -> None:
    command = ("pending", "list", "orders", "--key", "17")
    assert states(cli, *command) == ["PENDING"] * 3
    nothing = cli("pending", "list", "orders", "--key", "18")
    assert (nothing.exit_code, nothing.stdout) == (0, "nothing with the key 18 is pending\n")
    counted = cli("pending", "count", "orders", "--key", "17", "--json")
    assert json.loads(counted.stdout)["matching"] == 3


def test_describe_when_its_history_is_asked_for(cli: Cli) -> None:
    published = cli("publish", "orders", "x", "--in", "10s", "--json")
    of = json.loads(published.stdout)["message_id"]
    found = json.loads(cli("describe", of, "--history", "--json").stdout)["history"]
    assert [one["kind"] for one in found["events"]] == ["PUBLISHED", "RELEASED", "ACKED"]
    assert found["is_complete"] is True
    shown = cli("describe", of, "--history").stdout
    for text in ("PUBLISHED", "topic orders", "at some time", "ACKED", "group g", "attempt 1"):
        assert text in shown
    assert "history" not in cli("describe", of).stdout
