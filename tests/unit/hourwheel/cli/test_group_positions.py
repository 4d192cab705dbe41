import json

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.formats.message_id import MessageId
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_start(cli: Cli, fake: FakeNodeThread) -> None:
    cli("groups", "put", "g")
    assert cli("groups", "start", "g", "now").exit_code == 0
    assert cli("groups", "start", "g", "2027-03-01T00:00:00Z").exit_code == 0
    sent = [one.settings for one in fake.node.calls["UpdateGroup"]]
    assert [(one.start_at, one.start_ms) for one in sent] == [(2, 0), (3, 1_803_859_200_000)]
    for wrong in ("soon", "90s"):
        assert cli("groups", "start", "g", wrong).exit_code == ExitCode.USAGE


def test_skip(cli: Cli, fake: FakeNodeThread) -> None:
    assert cli("groups", "skip", "g", "orders", stdin="n\n").exit_code != 0
    assert not fake.node.calls["Skip"]
    done = cli("groups", "skip", "g", "orders", "--yes", "--json")
    assert json.loads(done.stdout) == {"skipped": 7, "goes_on_at": [5, 6]}
    cli("groups", "skip", "g", "orders", "--before", "2027-03-01T00:00:00Z", "--yes")
    cli("groups", "skip", "g", "orders", "--position", "5", "--position", "6", "--yes")
    asked = [(one.before_ms, list(one.positions)) for one in fake.node.calls["Skip"]]
    assert asked == [(0, []), (1_803_859_200_000, []), (0, [5, 6])]
    both = ("--before", "2027-03-01T00:00:00Z", "--position", "5", "--yes")
    assert cli("groups", "skip", "g", "orders", *both).exit_code == ExitCode.USAGE
    assert cli("groups", "skip", "g", "orders", "--before", "2h", "--yes").exit_code == (
        ExitCode.USAGE
    )


def test_reset(cli: Cli, fake: FakeNodeThread) -> None:
    asked = cli("groups", "reset", "g", "orders", "--to", "first", stdin="n\n")
    assert asked.exit_code != 0
    assert "1 messages again, has 4 to do, does not get 2" in asked.output
    done = cli("groups", "reset", "g", "orders", "--to", "now", "--yes", "--json")
    expected = {"again": 1, "to_do": 4, "skipped": 2, "retries_dropped": 3, "begins_at": [5, 6]}
    assert json.loads(done.stdout) == expected
    message = str(MessageId(0, 1, 7, 1_803_859_200_000))
    for instant in ("2027-03-01T00:00:00Z", message):
        assert cli("groups", "reset", "g", "orders", "--to", instant, "--yes").exit_code == 0
    cli("groups", "reset", "g", "orders", "--position", "5", "--position", "6", stdin="y\n")
    sent = [
        (one.to, one.to_ms, list(one.positions), one.count_only)
        for one in fake.node.calls["ResetGroup"]
    ]
    assert sent == [
        (1, 0, [], True),
        (2, 0, [], False),
        *2 * [(3, 1_803_859_200_000, [], False)],
        (0, 0, [5, 6], True),
        (0, 0, [5, 6], False),
    ]
    for wrong in ((), ("--to", "now", "--position", "5"), ("--to", "soon"), ("--to", "2h")):
        wrong_call = cli("groups", "reset", "g", "orders", *wrong, "--yes")
        assert wrong_call.exit_code == ExitCode.USAGE


def test_order(cli: Cli, fake: FakeNodeThread) -> None:
    cli("groups", "put", "g")
    done = cli("groups", "order", "g", "dead-letter", "--json")
    assert json.loads(done.stdout) == {"name": "g", "order": "dead-letter"}
    assert [one.settings.order for one in fake.node.calls["UpdateGroup"]] == [3]
    assert cli("groups", "order", "g", "fifo").exit_code == ExitCode.USAGE


def test_unblock(cli: Cli, fake: FakeNodeThread) -> None:
    text = "0" * 47 + "1"
    done = cli("groups", "unblock", "g", "orders", "retry", text, "--json")
    assert json.loads(done.stdout) == {"unblocked": 7}
    (sent,) = fake.node.calls["Skip"]
    assert (sent.group, sent.topic, list(sent.message_ids), sent.action) == (
        "g",
        "orders",
        [text],
        1,
    )
