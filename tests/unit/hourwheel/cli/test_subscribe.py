import json

import pytest

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.subscribe import subscription_row
from hourwheel.client.catalog import Subscription
from hourwheel.filter_language.inputs import Sql
from hourwheel.v1 import filter_pb2
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_subscribe_when_a_script_asks(cli: Cli, fake: FakeNodeThread) -> None:
    done = cli("groups", "subscribe", "g", "orders", "--sql", "amount > 100", "--json")
    assert json.loads(done.stdout) == {
        "group": "g",
        "topic": "orders",
        "filter": {"kind": "sql", "text": "amount > 100", "check_at_client": False},
    }
    (request,) = fake.do(lambda node: node.calls["PutSubscription"])
    assert (request.group, request.topic) == ("g", "orders")
    assert request.filter == filter_pb2.FilterExpression(
        kind=filter_pb2.FILTER_KIND_SQL, text="amount > 100"
    )


def test_subscribe_when_people_ask(cli: Cli, fake: FakeNodeThread) -> None:
    shown = cli("groups", "subscribe", "g", "orders").stdout
    assert "checked by" in shown
    assert "*" in shown
    (request,) = fake.do(lambda node: node.calls["PutSubscription"])
    assert not request.HasField("filter")


def test_subscribe_when_the_node_cannot_read_the_filter(cli: Cli, fake: FakeNodeThread) -> None:
    failure = errors.InvalidFilter("an unexpected ) at character 5", position=5)
    fake.fail_next("PutSubscription", failure, failure)
    done = cli("groups", "subscribe", "g", "orders", "--filter", "a && )")
    assert done.exit_code == ExitCode.REFUSED
    assert done.stderr.splitlines() == [
        "InvalidFilter: an unexpected ) at character 5",
        "  a && )",
        "       ^",
    ]
    done = cli("groups", "subscribe", "g", "orders", "--filter", "a && )", "--json")
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["error"]["params"] == {"position": "5"}


@pytest.mark.parametrize(
    "asked", [("--filter", "a", "--sql", "b = 1"), ("--check-at-client",), ("--filter",)]
)
def test_subscribe_when_the_options_do_not_fit(cli: Cli, asked: tuple[str, ...]) -> None:
    assert cli("groups", "subscribe", "g", "orders", *asked).exit_code == ExitCode.USAGE


def test_subscription_row_when_the_client_checks() -> None:
    row = subscription_row(Subscription("orders", Sql("a = 1", check_at_client=True)))
    assert row == {"topic": "orders", "kind": "sql", "filter": "a = 1", "checked_by": "client"}
