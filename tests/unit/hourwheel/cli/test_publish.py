import json
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.formats.meta import MessageMeta, decode
from tests.support.fake_node import STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def metas(fake: FakeNodeThread) -> list[MessageMeta]:
    return fake.do(lambda node: [decode(one.blob[: one.meta_bytes]) for one in node.messages])


def dues(fake: FakeNodeThread) -> list[int]:
    return fake.do(lambda node: [message.due_ms for message in node.messages])


def test_publish_when_one_message(cli: Cli, fake: FakeNodeThread) -> None:
    done = cli("publish", "orders", "feed the cat", "--in", "90s")
    assert done.exit_code == 0, done.output
    assert fake.bodies() == [b"feed the cat"]
    assert dues(fake) == [STORE_MS + 90_000]
    (message_id,) = fake.do(lambda node: [message.id for message in node.messages])
    assert f"scheduled {message_id}, due 2023-11-14 22:14:50.000Z" in done.stdout


def test_publish_when_everything_is_given(cli: Cli, fake: FakeNodeThread) -> None:
    done = cli(
        *("publish", "orders", "x", "--at", "2027-03-01T09:00:00+01:00", "--json"),
        *("--tag", "a", "--tag", "b", "--key", "k", "--property", "p=v=w", "--property", "q="),
        *("--content-type", "text/plain"),
    )
    assert done.exit_code == 0
    assert metas(fake) == [
        MessageMeta(("a", "b"), ("k",), (("p", "v=w"), ("q", "")), "", "text/plain")
    ]
    assert json.loads(done.stdout)["due_ms"] == dues(fake)[0] == 1_803_888_000_000


def test_publish_when_the_body_comes_on_standard_input(cli: Cli, fake: FakeNodeThread) -> None:
    assert cli("publish", "orders", "-", stdin=b"\x00\xff").exit_code == 0
    assert fake.bodies() == [b"\x00\xff"]
    assert dues(fake) == [STORE_MS]


def test_publish_when_a_file_of_lines(cli: Cli, fake: FakeNodeThread, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\r\n" % n for n in range(12_345)))
    done = cli("publish", "orders", "--file", str(file), "--in", "1h", "--tag", "t")
    assert done.exit_code == 0
    assert "published 12,345 messages to orders" in done.stdout
    assert sorted(map(int, fake.bodies())) == list(range(12_345))
    assert set(metas(fake)) == {MessageMeta(("t",))}


def test_publish_when_lines_are_json(cli: Cli, fake: FakeNodeThread) -> None:
    lines = [
        {"body": "é", "when": "5s", "tags": ["x"]},
        {"body_base64": "AP8=", "when": "2027-03-01T08:00:00Z", "keys": ["k"]},
        {"body": "", "properties": {"p": "v"}, "client_message_id": "c", "content_type": "t"},
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n\n"
    done = cli(
        *("publish", "orders", "--file", "-", "--format", "json", "--in", "1h", "--json"),
        stdin=text,
    )
    assert done.exit_code == 0, done.output
    printed = [json.loads(line)["due_ms"] for line in done.stdout.splitlines()]
    assert printed == [STORE_MS + 5_000, 1_803_888_000_000, STORE_MS + 3_600_000]
    by_body = dict(zip(fake.bodies(), metas(fake), strict=True))
    assert by_body == {
        "é".encode(): MessageMeta(("x",)),
        b"\x00\xff": MessageMeta((), ("k",)),
        b"": MessageMeta((), (), (("p", "v"),), "c", "t"),
    }


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense", "[]", "{}", '{"body": 5}', '{"body": "a", "body_base64": ""}'),
        *('{"body_base64": "!"}', '{"body": "a", "due": 5}', '{"body": "a", "when": "soon"}'),
    ],
)
def test_publish_when_a_line_is_no_message(cli: Cli, fake: FakeNodeThread, line: str) -> None:
    text = '{"body": "good"}\n' + line + "\n"
    done = cli("publish", "orders", "--file", "-", "--format", "json", stdin=text)
    assert done.exit_code == ExitCode.REFUSED
    assert "line 2" in done.stderr
    assert fake.bodies() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders",), "BODY or --file"),
        (("orders", "x", "--file", "y"), "BODY or --file"),
        (("orders", "x", "--in", "soon"), "no due time"),
        (("orders", "x", "--at", "2027-03-01T09:00:00"), "no time zone"),
        (("orders", "x", "--property", "p"), "NAME=VALUE"),
    ],
)
def test_publish_when_the_command_line_is_wrong(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    done = cli("publish", *arguments)
    assert done.exit_code == ExitCode.USAGE
    assert said in done.stderr


def test_publish_when_the_file_is_not_there(cli: Cli) -> None:
    done = cli("publish", "orders", "--file", "no/such/file")
    assert done.exit_code == ExitCode.REFUSED
    assert "no/such/file cannot be read" in done.stderr


def test_publish_when_refused(cli: Cli, fake: FakeNodeThread) -> None:
    fake.fail_next("PublishStream", errors.BeyondHorizon("too far", horizon_ms=5))
    done = cli("publish", "orders", "x", "--in", "9999d", "--json")
    assert done.exit_code == ExitCode.REFUSED
    assert json.loads(done.stderr) == {
        "error": {
            "reason": "BEYOND_HORIZON",
            "message": "too far",
            "params": {"horizon_ms": "5"},
        }
    }


def test_publish_when_a_file_is_refused_in_part(cli: Cli, fake: FakeNodeThread) -> None:
    fake.fail_next("PublishStream", errors.InvalidTopic("[no] topic"))
    done = cli("publish", "orders", "--file", "-", stdin="1\n2\n")
    assert done.exit_code == ExitCode.REFUSED
    assert "InvalidTopic: [no] topic" in done.stderr
    assert "published 0 messages before the failure" in done.stdout


def test_cancel_when_some_are_unknown(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one", b"two")
    ids = fake.do(lambda node: [message.id for message in node.messages])
    assert cli("cancel", *ids).exit_code == ExitCode.OK
    unknown = f"{3:08x}{7:08x}{99:016x}{5:016x}"
    done = cli("cancel", "-", "--json", stdin="\n".join([ids[0], unknown]))
    assert done.exit_code == ExitCode.PARTLY
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"message_id": ids[0], "outcome": "CANCELLED"},
        {"message_id": unknown, "outcome": "UNKNOWN"},
    ]
    table = cli("cancel", unknown)
    assert unknown in table.stdout
    assert "UNKNOWN" in table.stdout


def test_cancel_when_it_is_by_key(cli: Cli) -> None:
    assert cli("publish", "orders", "x", "--key", "k7", "--in", "90s").exit_code == 0
    done = cli("cancel", "--topic", "orders", "--key", "k7", "--key", "k8", "--json")
    assert done.exit_code == ExitCode.PARTLY
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"key": "k7", "outcome": "CANCELLED", "cancelled": 1},
        {"key": "k8", "outcome": "UNKNOWN", "cancelled": 0},
    ]
    assert cli("cancel", "--topic", "orders", "--key", "k7").exit_code == ExitCode.OK


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--key", "k"),
        ("--topic", "t"),
        ("id", "--key", "k", "--topic", "t"),
        ("id", "--topic", "t"),
    ],
)
def test_cancel_when_it_is_not_clear_what(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("cancel", *arguments).exit_code == 2  # as of any wrong option


def test_cancel_when_it_is_no_id(cli: Cli) -> None:
    done = cli("cancel", "nonsense")
    assert done.exit_code == ExitCode.REFUSED
    assert "InvalidMessageId: not a message id: 'nonsense'" in done.stderr


def test_publish_when_it_expires(cli: Cli, fake: FakeNodeThread) -> None:
    assert cli("publish", "orders", "x", "--in", "1m", "--expires", "30s").exit_code == 0
    instant = "2027-03-01T09:00:00+01:00"
    assert cli("publish", "orders", "x", "--expires", instant).exit_code == 0
    assert [meta.expires_ms for meta in metas(fake)] == [-90_000, 1_803_888_000_000]
    refused = cli("publish", "orders", "x", "--at", instant, "--expires", instant)
    assert refused.exit_code != 0


def test_publish_when_it_has_a_priority(cli: Cli, fake: FakeNodeThread, tmp_path: Path) -> None:
    assert cli("publish", "orders", "x", "--priority", "9").exit_code == 0
    assert cli("publish", "orders", "x", "--priority", "10").exit_code == ExitCode.USAGE
    lines = tmp_path / "lines"
    lines.write_text('{"body": "a", "priority": 3}\n{"body": "b"}\n')
    told = ("--file", str(lines), "--format", "json", "--priority", "1")
    assert cli("publish", "orders", *told).exit_code == 0
    assert [meta.priority for meta in metas(fake)] == [9, 3, 1]
