import json

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli

LATER = "2033-05-18T03:33:20Z"
LATER_MS = 2_000_000_000_000


def test_reschedule_when_some_are_unknown(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one", b"two")
    ids = fake.do(lambda node: [message.id for message in node.messages])
    assert cli("reschedule", *ids, "--in", "90s").exit_code == ExitCode.OK
    unknown = f"{3:08x}{7:08x}{99:016x}{5:016x}"
    lines = "\n".join([ids[0], unknown])
    done = cli("reschedule", "-", "--at", LATER, "--json", stdin=lines)
    assert done.exit_code == ExitCode.PARTLY
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"message_id": ids[0], "outcome": "RESCHEDULED", "due": LATER_MS},
        {"message_id": unknown, "outcome": "UNKNOWN", "due": None},
    ]
    table = cli("reschedule", ids[0], unknown, "--at", LATER)
    assert "2033-05-18" in table.stdout
    assert "UNKNOWN" in table.stdout


def test_reschedule_when_it_is_by_key(cli: Cli) -> None:
    assert cli("publish", "orders", "x", "--key", "k7", "--in", "90s").exit_code == 0
    keys = ("--topic", "orders", "--key", "k7")
    done = cli("reschedule", *keys, "--key", "k8", "--at", LATER, "--json")
    assert done.exit_code == ExitCode.PARTLY
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"key": "k7", "outcome": "RESCHEDULED", "rescheduled": 1, "due": LATER_MS},
        {"key": "k8", "outcome": "UNKNOWN", "rescheduled": 0, "due": None},
    ]
    assert cli("reschedule", *keys, "--in", "1h").exit_code == ExitCode.OK


@pytest.mark.parametrize(
    "arguments",
    [
        ("--in", "1h"),
        ("--in", "1h", "--key", "k"),
        ("--in", "1h", "--topic", "t"),
        ("--in", "1h", "id", "--key", "k", "--topic", "t"),
        ("id",),
        ("id", "--at", "soon"),
    ],
)
def test_reschedule_when_it_is_not_clear_what_or_when(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("reschedule", *arguments).exit_code == 2  # as of any wrong option
