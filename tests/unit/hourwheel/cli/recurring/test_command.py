import json

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli


def test_recurring_when_it_is_made_shown_and_deleted(cli: Cli) -> None:
    put = ("recurring", "put", "orders", "nightly", "body", "--tag", "t")
    done = cli(*put, "--every", "10m", "--count", "3", "--exclude", "2027-12-24", "--json")
    assert json.loads(done.stdout) == {"version": 1, "next_ms": 1_800_000_000_000}
    assert "next: 2027-01-15" in cli(*put, "--every", "10m", "--missed", "last").stdout
    (row,) = [json.loads(line) for line in cli("recurring", "list", "--json").stdout.splitlines()]
    assert (row["name"], row["times"], row["paused"]) == ("nightly", "every 0:10:00", False)
    assert cli("recurring", "pause", "orders", "nightly").exit_code == ExitCode.OK
    shown = cli("recurring", "show", "orders", "nightly").stdout
    assert "last" in shown
    assert "yes" in shown
    assert cli("recurring", "resume", "orders", "nightly").exit_code == ExitCode.OK
    assert json.loads(cli("recurring", "show", "orders", "nightly", "--json").stdout)["tags"] == "t"
    assert len(cli("recurring", "next", "orders", "nightly").stdout.splitlines()) == 10
    assert cli("recurring", "delete", "orders", "nightly").exit_code == ExitCode.OK
    assert cli("recurring", "list").exit_code == ExitCode.OK


def test_next_times_of_options(cli: Cli) -> None:
    done = cli("recurring", "next", "orders", "--every", "1h", "--count", "2", "--json")
    first, second = (json.loads(line)["due_ms"] for line in done.stdout.splitlines())
    assert second - first == 3_600_000


def test_recurring_when_options_are_wrong(cli: Cli) -> None:
    put = ("recurring", "put", "orders", "a")
    for wrong in (("--missed", "some"), ("--exclude", "soon"), ("--start", "5m")):
        assert cli(*put, "--every", "10m", *wrong).exit_code == 2
