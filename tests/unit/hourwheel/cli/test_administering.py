import json

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node import EPOCH, SHARD, STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_topics_when_made_listed_and_deleted(cli: Cli) -> None:
    created = cli("topics", "create", "orders", "--queues", "4", "--json")
    topic = {"name": "orders", "queue_count": 4, "released_count": 5}
    assert json.loads(created.stdout) == topic
    cli("topics", "create", "%DLQ%g")
    assert [json.loads(line) for line in cli("topics", "--json").stdout.splitlines()] == [topic]
    assert len(cli("topics", "--all", "--json").stdout.splitlines()) == 2
    table = cli("topics", "list").stdout
    assert "orders" in table
    assert "queue count" in table
    assert "queue count" in cli("topics", "show", "orders").stdout
    assert cli("topics", "delete", "orders", stdin="n\n").exit_code == 1
    assert cli("topics", "show", "orders").exit_code == ExitCode.OK
    assert "deleted topic orders" in cli("topics", "delete", "orders", stdin="y\n").stdout
    gone = cli("topics", "delete", "orders", "--yes")
    assert gone.exit_code == ExitCode.NOT_FOUND
    assert "UnknownTopic" in gone.stderr


def test_groups_when_made_listed_and_forgotten(cli: Cli, fake: FakeNodeThread) -> None:
    put = cli("groups", "put", "g", "--attempts", "3", "--invisible", "1m", "--json")
    group = json.loads(put.stdout)
    assert (group["name"], group["attempts_max"], group["invisible_ms"]) == ("g", 3, 60_000)
    assert group["lags"] == [{"topic": "orders", "unresolved_count": 12, "leased_count": 2}]
    (listed,) = [json.loads(line) for line in cli("groups", "--json").stdout.splitlines()]
    assert listed == {name: value for name, value in group.items() if name != "lags"}
    assert "60,000" in cli("groups", "list").stdout
    shown = cli("groups", "show", "g").stdout
    assert "unresolved count" in shown
    assert "forgot group g" in cli("groups", "delete", "g", "-y").stdout
    assert cli("groups", "show", "g").exit_code == ExitCode.NOT_FOUND


def test_describe_when_pending_and_unknown(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one")
    text = f"{SHARD:08x}{EPOCH:08x}{0:016x}{STORE_MS + 90_000:016x}"
    shown = cli("describe", text)
    assert shown.exit_code == ExitCode.OK
    assert "PENDING" in shown.stdout
    assert "1m30s" in shown.stdout
    described = json.loads(cli("describe", text, "--json").stdout)
    assert described == {
        "message_id": text,
        "state": "PENDING",
        "shard": SHARD,
        "epoch": EPOCH,
        "sequence": 0,
        "due_ms": STORE_MS + 90_000,
    }
    unknown = f"{SHARD:08x}{EPOCH:08x}{99:016x}{5:016x}"
    assert cli("describe", unknown).exit_code == ExitCode.PARTLY


@pytest.mark.parametrize("command", ["describe"])
def test_describe_when_it_is_no_id(cli: Cli, command: str) -> None:
    done = cli(command, "nonsense", "--json")
    assert done.exit_code == ExitCode.REFUSED
    assert json.loads(done.stderr)["error"]["reason"] == "INVALID_MESSAGE_ID"
