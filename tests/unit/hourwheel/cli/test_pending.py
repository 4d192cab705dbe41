import json
from typing import Any

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node import STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.fixture(autouse=True)
def five_messages(cli: Cli) -> None:
    """Due after 10 to 50 s; the first three have a tag."""
    for number in range(1, 6):
        tag = ("--tag", "unpaid") if number <= 3 else ()
        prop = ("--property", f"n={number}", "--key", f"k{number}")
        cli("publish", "orders", f"body {number}", "--in", f"{number * 10}s", *tag, *prop)


def listed(cli: Cli, *options: str) -> list[dict[str, Any]]:
    done = cli("pending", "list", "orders", "--json", *options)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def delays(rows: list[dict[str, Any]]) -> list[int]:
    return [(row["due_ms"] - STORE_MS) // 1_000 for row in rows]


def test_list_when_for_scripts(cli: Cli) -> None:
    rows = listed(cli)
    assert delays(rows) == [10, 20, 30, 40, 50]
    first = rows[0]
    assert (first["tags"], first["keys"], first["properties"]) == (["unpaid"], ["k1"], {"n": "1"})
    assert (first["body_bytes"], first["is_corrupt"]) == (6, False)
    assert delays(listed(cli, "--limit", "0")) == [10, 20, 30, 40, 50]


def test_list_when_for_people(cli: Cli) -> None:
    shown = cli("pending", "list", "orders", "--limit", "2").stdout
    assert "the first 2" in shown
    assert "unpaid" in shown
    assert "n=2" in shown
    assert "n=3" not in shown
    assert "the first" not in cli("pending", "list", "orders", "--limit", "5").stdout
    ids = [row["message_id"] for row in listed(cli)]
    lines = cli("pending", "list", "orders").stdout.splitlines()
    assert [message_id in line for message_id, line in zip(ids, lines, strict=True)] == [True] * 5
    nothing = cli("pending", "list", "orders", "--filter", "no-such-tag").stdout
    assert nothing == "nothing is pending in orders that matches\n"


def test_list_when_filtered_and_in_a_range(cli: Cli) -> None:
    assert delays(listed(cli, "--filter", "!unpaid")) == [40, 50]
    assert delays(listed(cli, "--sql", "n BETWEEN 2 AND 4")) == [20, 30, 40]
    assert delays(listed(cli, "--from", "20s", "--to", "40s")) == [20, 30]
    assert delays(listed(cli, "--from", "2023-11-14T22:14:00Z")) == [40, 50]


def test_list_when_damaged(cli: Cli, fake: FakeNodeThread) -> None:
    fake.do(lambda node: setattr(node.messages[0], "crc", 0))
    assert listed(cli)[0]["is_corrupt"] is True
    assert "(damaged)" in cli("pending", "list", "orders").stdout


def test_list_when_the_filter_is_wrong(cli: Cli) -> None:
    done = cli("pending", "list", "orders", "--filter", "a &&")
    assert done.exit_code == ExitCode.REFUSED
    assert "^" in done.stderr
    assert cli("pending", "list", "bills").exit_code == ExitCode.NOT_FOUND
    both = cli("pending", "list", "orders", "--filter", "a", "--sql", "n = 1")
    assert both.exit_code == ExitCode.USAGE


def test_count_when_asked(cli: Cli) -> None:
    done = cli("pending", "count", "orders", "--filter", "unpaid", "--json")
    assert json.loads(done.stdout) == {"matching": 3, "looked_at": 5, "damaged": 0}
    assert "looked at" in cli("pending", "count", "orders").stdout


def test_cancel_when_rehearsed_asked_and_done(cli: Cli) -> None:
    rehearsed = cli("pending", "cancel", "orders", "--filter", "unpaid", "--dry-run", "--json")
    assert json.loads(rehearsed.stdout)["matching"] == 3
    refused = cli("pending", "cancel", "orders", "--filter", "unpaid", stdin="n\n")
    assert refused.exit_code == 1
    assert len(listed(cli)) == 5
    done = cli("pending", "cancel", "orders", "--filter", "unpaid", "--yes", "--json")
    assert done.exit_code == ExitCode.OK
    assert json.loads(done.stdout)["cancelled"] == 3
    assert delays(listed(cli)) == [40, 50]


def test_cancel_when_no_filter_is_given(cli: Cli) -> None:
    done = cli("pending", "cancel", "orders", "--yes")
    assert done.exit_code == ExitCode.USAGE
    assert len(listed(cli)) == 5


def test_keys_may_be_chosen_by_what_they_begin_with(cli: Cli) -> None:
    assert delays(listed(cli, "--key-prefix", "k3")) == [30]
    assert delays(listed(cli, "--key-prefix", "k")) == [10, 20, 30, 40, 50]
    both = cli("pending", "list", "orders", "--key-prefix", "k", "--filter", "unpaid")
    assert both.exit_code == ExitCode.USAGE
    keys = cli("pending", "list", "orders", "--key-prefix", "k", "--key", "k1")
    assert keys.exit_code == ExitCode.USAGE
    counted = json.loads(cli("pending", "count", "orders", "--key-prefix", "k3", "--json").stdout)
    assert counted["matching"] == 1
    keys = cli("pending", "count", "orders", "--key-prefix", "k", "--key", "k1")
    assert keys.exit_code == ExitCode.USAGE
    rehearsed = cli("pending", "cancel", "orders", "--key-prefix", "k3", "--dry-run", "--json")
    assert json.loads(rehearsed.stdout)["matching"] == 1
    done = cli("pending", "cancel", "orders", "--key-prefix", "k3", "--yes", "--json")
    assert json.loads(done.stdout)["cancelled"] == 1
    assert delays(listed(cli)) == [10, 20, 40, 50]


def test_reschedule_when_counted_asked_and_done(cli: Cli) -> None:
    move = ("pending", "reschedule", "orders", "--filter", "unpaid", "--in", "40s")
    refused = cli(*move, stdin="n\n")
    assert "Move 3 messages: what matches 'unpaid'" in refused.stdout
    assert refused.exit_code == 1
    assert delays(listed(cli)) == [10, 20, 30, 40, 50]
    done = cli(*move, "--yes", "--json")
    assert done.exit_code == ExitCode.OK
    facts = json.loads(done.stdout)
    assert (facts["rescheduled"], facts["missed"]) == (3, 0)
    assert facts["due"] == STORE_MS + 40_000
    assert delays(listed(cli)) == [40, 40, 40, 40, 50]
    again = json.loads(cli(*move, "--yes", "--json").stdout)
    assert again["rescheduled"] == 0, "they are there"
    by_key = cli(
        "pending", "reschedule", "orders", "--key-prefix", "k5", "--in", "60s", stdin="y\n"
    )
    assert by_key.exit_code == ExitCode.OK
    assert delays(listed(cli)) == [40, 40, 40, 40, 60]


def test_reschedule_when_in_a_range(cli: Cli) -> None:
    move = ("pending", "reschedule", "orders", "--filter", "*", "--in", "90s")
    refused = cli(*move, "--from", "20s", "--to", "50s", stdin="n\n")
    assert "Move 3 messages" in refused.stdout
    done = cli(*move, "--from", "20s", "--to", "50s", "--yes", "--json")
    assert json.loads(done.stdout)["rescheduled"] == 3
    assert delays(listed(cli)) == [10, 50, 90, 90, 90]


def test_reschedule_when_nothing_is_chosen(cli: Cli) -> None:
    done = cli("pending", "reschedule", "orders", "--in", "40s", "--yes")
    assert done.exit_code == ExitCode.USAGE
