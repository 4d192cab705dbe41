import json
from dataclasses import asdict
from typing import Any

import pytest

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.filter_language.wire import gene_from_wire
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec
from hourwheel.v1 import admin_pb2, groups_pb2
from tests.support.fake_node import EPOCH, SHARD, STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_topics_when_made_listed_and_deleted(cli: Cli) -> None:
    created = cli("topics", "create", "orders", "--queues", "4", "--json")
    gene = {**asdict(DEFAULT_SPEC), "properties": []}
    topic = {"name": "orders", "queue_count": 4, "released_count": 5, "gene": gene}
    topic |= {"description": "", "is_paused": False, "version": 0, "dispatch_tolerance_ms": 0}
    topic["retention_ms"] = 0
    assert json.loads(created.stdout) == topic
    kept = cli("topics", "create", "kept", "--retention", "30d", "--json")
    assert json.loads(kept.stdout)["retention_ms"] == 30 * 86_400_000
    cli("topics", "delete", "kept", "--yes")
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
    lag: dict[str, Any] = {
        "topic": "orders",
        "unresolved_count": 12,
        "leased_count": 2,
        "damaged_count": 0,
    }
    lag |= {"oldest_age_ms": 0, "blocked_count": 0, "blocked_message_ids": []}
    assert group["lags"] == [lag]
    (listed,) = [json.loads(line) for line in cli("groups", "--json").stdout.splitlines()]
    assert group["subscriptions"] == []
    del group["lags"], group["subscriptions"]
    assert listed == group
    assert "60,000" in cli("groups", "list").stdout
    shown = cli("groups", "show", "g").stdout
    assert "unresolved count" in shown
    plan = cli("groups", "put", "g", "--retries", "10s,1m+20%", "--json")
    retries = json.loads(plan.stdout)
    assert (retries["retry_delays_ms"], retries["retry_jitter_percent"]) == ([10_000, 60_000], 20)
    assert cli("groups", "put", "g", "--retries", "soon").exit_code == ExitCode.USAGE
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
        "is_damaged": False,
        "dead_letters": [],
        "dead_letter_search_is_complete": True,
    }
    unknown = f"{SHARD:08x}{EPOCH:08x}{99:016x}{5:016x}"
    assert cli("describe", unknown).exit_code == ExitCode.PARTLY


def test_describe_when_it_is_a_dead_letter(cli: Cli, fake: FakeNodeThread) -> None:
    fake.add_topic("orders", b"one")
    letter = admin_pb2.DeadLetter(
        group="billing",
        topic="orders",
        attempts=3,
        reason=groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP,
    )
    unsaid = admin_pb2.DeadLetter(group="audit", attempts=1)
    fake.do(lambda node: node.dead_letters.update({0: [letter, unsaid]}))
    text = f"{SHARD:08x}{EPOCH:08x}{0:016x}{STORE_MS:016x}"
    shown = " ".join(cli("describe", text).stdout.split())
    assert "dead letter of billing" in shown
    assert "published to orders, 3 attempts: its attempts are used up" in shown
    assert "a topic that was deleted, 1 attempt: rejected, or given up" in shown
    assert "there may be more" in shown
    described = json.loads(cli("describe", text, "--json").stdout)
    assert described["dead_letters"][0] == {
        "group": "billing",
        "topic": "orders",
        "attempts": 3,
        "reason": "ATTEMPTS_USED_UP",
    }
    assert described["dead_letter_search_is_complete"] is False


@pytest.mark.parametrize("command", ["describe"])
def test_describe_when_it_is_no_id(cli: Cli, command: str) -> None:
    done = cli(command, "nonsense", "--json")
    assert done.exit_code == ExitCode.REFUSED
    assert json.loads(done.stderr)["error"]["reason"] == "INVALID_MESSAGE_ID"


def test_topics_when_made_with_a_gene(cli: Cli, fake: FakeNodeThread) -> None:
    asked = ("--gene", "bloom", "--gene-bits", "2", "--gene-property", "b", "--gene-property", "a")
    shown = cli("topics", "create", "orders", *asked)
    assert shown.exit_code == 0, shown.output
    assert "bloom, 2 bits each, with a, b" in shown.stdout
    (request,) = fake.do(lambda node: node.calls["CreateTopic"])
    assert gene_from_wire(request.settings.gene) == GeneSpec(GeneKind.BLOOM, 2, ("a", "b"))
    assert "bloom" in cli("topics", "show", "orders").stdout
    cli("topics", "create", "bills", "--gene-property", "region")
    cli("topics", "create", "plain")
    _, bills, plain = fake.do(lambda node: node.calls["CreateTopic"])
    assert gene_from_wire(bills.settings.gene) == GeneSpec(properties=("region",))
    assert not plain.settings.HasField("gene")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (("--gene", "none"), ExitCode.USAGE),
        (("--gene-bits", "9"), ExitCode.USAGE),
        (("--gene", "hash-set", "--gene-bits", "2"), ExitCode.REFUSED),
        (("--gene-property", "a", "--gene-property", "a"), ExitCode.REFUSED),
    ],
)
def test_topics_when_the_gene_cannot_be(
    cli: Cli, fake: FakeNodeThread, asked: tuple[str, ...], code: ExitCode
) -> None:
    assert cli("topics", "create", "orders", *asked).exit_code == code
    assert not fake.do(lambda node: node.calls["CreateTopic"])


def test_groups_when_subscribed_are_shown_so(cli: Cli) -> None:
    cli("groups", "subscribe", "g", "orders", "--filter", "a || b")
    cli("groups", "subscribe", "g", "bills", "--sql", "amount > 5", "--check-at-client")
    cli("groups", "subscribe", "g", "all")
    for command in ("describe", "show"):
        shown = cli("groups", command, "g").stdout
        for text in ("subscriptions", "a || b", "amount > 5", "sql", "client", "node", "*"):
            assert text in shown
    group = json.loads(cli("groups", "describe", "g", "--json").stdout)
    assert group["subscriptions"] == [
        {"topic": topic, "filter": {"kind": kind, "text": text, "check_at_client": is_here}}
        for topic, kind, text, is_here in (
            ("orders", "tags", "a || b", False),
            ("bills", "sql", "amount > 5", True),
            ("all", "tags", "*", False),
        )
    ]


def test_topics_and_groups_when_changed(cli: Cli) -> None:
    cli("topics", "create", "orders", "--queues", "4")
    cli("groups", "put", "g", "--attempts", "3")
    changed = cli("topics", "update", "orders", "--description", "of the shop", "--pause", "--json")
    topic = json.loads(changed.stdout)
    assert (topic["description"], topic["is_paused"], topic["version"]) == ("of the shop", True, 8)
    spread = cli("topics", "update", "orders", "--dispatch-tolerance", "1500ms", "--json")
    assert json.loads(spread.stdout)["dispatch_tolerance_ms"] == 1_500
    kept = cli("topics", "update", "orders", "--retention", "30d", "--json")
    assert json.loads(kept.stdout)["retention_ms"] == 30 * 86_400_000
    options = ("--resume", "--attempts", "4", "--if-version", "7", "--json")
    group = json.loads(cli("groups", "update", "g", *options).stdout)
    assert (group["is_paused"], group["attempts_max"], group["version"]) == (False, 4, 8)
