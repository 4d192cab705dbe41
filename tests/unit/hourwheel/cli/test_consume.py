import json

import pytest

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.client.blocking import Producer
from hourwheel.client.message import Message
from tests.support.fake_node import EPOCH, SHARD, STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_consume_when_people_read_it(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"feed the [cat]", b"two\nlines", b"\xff")
    done = cli("consume", "orders", "--group", "kitchen", "--max", "3")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2023-11-14 22:13:20.000Z +0s 0000000300000007")
    assert [line.split(" ", 4)[4] for line in lines] == ["feed the [cat]", "two\\nlines", "0xff"]
    assert len(fake.acked()) == 3


def test_consume_when_a_script_reads_it(cli: Cli, fake: FakeNodeThread) -> None:
    with Producer(fake.address) as producer:
        message_id = producer.publish(
            "orders", Message("é".encode(), due_ms=STORE_MS - 5, tags=("a",), properties={"p": "v"})
        )
    fake.add_topic("orders", b"\xff")
    done = cli("consume", "orders", "-g", "kitchen", "--wait", "0s", "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == {
        "message_id": str(message_id),
        "body": "é",
        "topic": "orders",
        "due_ms": STORE_MS - 5,
        "store_ms": STORE_MS,
        "receive_ms": STORE_MS,
        "attempt": 1,
        "tags": ["a"],
        "keys": [],
        "properties": {"p": "v"},
        "client_message_id": "",
        "content_type": "",
        "ordering_key": "",
        "priority": 0,
    }
    assert "body" not in second
    assert second["body_base64"] == "/w=="
    assert second["message_id"].startswith(f"{SHARD:08x}{EPOCH:08x}")


def test_consume_when_messages_are_only_looked_at(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one")
    done = cli("consume", "orders", "-g", "g", "--wait", "0s", "--no-ack", "--invisible", "5s")
    assert "one" in done.stdout
    assert fake.acked() == set()
    assert fake.do(lambda node: node.calls["Receive"][0].invisible_ms) == 5_000


def test_consume_when_there_is_less_than_asked_for(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one")
    done = cli("consume", "orders", "-g", "g", "--max", "5", "--wait", "1ms")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1


def test_consume_when_the_lease_is_over_before_the_ack(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one")
    fake.fail_next("Ack", errors.StaleReceipt())
    done = cli("consume", "orders", "-g", "g", "--max", "1")
    assert done.exit_code == ExitCode.REFUSED
    assert "StaleReceipt" in done.stderr
    assert "one" in done.stdout


def test_consume_when_refused(cli: Cli, fake: FakeNodeThread) -> None:
    fake.fail_next("Receive", errors.UnknownTopic("there is no topic orders"))
    done = cli("consume", "orders", "-g", "g")
    assert done.exit_code == ExitCode.NOT_FOUND
    assert "there is no topic orders" in done.stderr


def test_consume_when_the_group_is_missing(cli: Cli) -> None:
    assert cli("consume", "orders").exit_code == ExitCode.USAGE


def test_consume_when_the_node_filters(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one")
    assert "one" in cli("consume", "orders", "-g", "g", "-n", "1", "--sql", "a = 1").stdout
    (request,) = fake.do(lambda node: node.calls["Receive"])
    assert (request.filter.text, request.filter.check_at_client) == ("a = 1", False)
    other = cli("consume", "orders", "-g", "g", "--filter", "a")
    assert other.exit_code == ExitCode.REFUSED
    assert "SubscriptionMismatch" in other.stderr


def test_consume_when_filtered_here(cli: Cli, fake: FakeNodeThread) -> None:
    with Producer(fake.address) as producer:
        tagged = [Message(b"no", tags=["a"]), Message(b"yes", tags=["b"]), Message(b"never")]
        producer.publish_many("orders", tagged)
    asked = ("--wait", "0s", "--filter", "b", "--check-at-client")
    done = cli("consume", "orders", "-g", "g", "--json", *asked)
    assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == ["yes"]
    assert fake.acked() == {b"no", b"yes", b"never"}


@pytest.mark.parametrize(
    ("asked", "caret"),
    [
        (("--filter", "a && )", "--check-at-client"), "       ^"),
        (("--sql", "a = = 1", "--check-at-client"), "      ^"),
    ],
)
def test_consume_when_the_filter_is_malformed(
    cli: Cli, fake: FakeNodeThread, asked: tuple[str, ...], caret: str
) -> None:
    done = cli("consume", "orders", "-g", "g", *asked)
    assert done.exit_code == ExitCode.REFUSED
    assert done.stderr.splitlines()[-2:] == [f"  {asked[1]}", caret]
    assert not fake.do(lambda node: node.calls["Receive"])


@pytest.mark.parametrize("asked", [("--filter", "a", "--sql", "b"), ("--check-at-client",)])
def test_consume_when_the_options_do_not_fit(cli: Cli, asked: tuple[str, ...]) -> None:
    assert cli("consume", "orders", "-g", "g", *asked).exit_code == ExitCode.USAGE
