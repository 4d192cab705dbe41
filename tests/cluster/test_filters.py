"""Filters as a user has them: the whole client and command line against a real node."""

import asyncio
import http.client
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    FilterExpression,
    GeneKind,
    GeneSpec,
    Message,
    Sql,
    Tags,
    errors,
)
from hourwheel.cli.app import app
from tests.support.embedded_node import EmbeddedNode

COUNT = 600
IN_TIME_MS = 20_000.0


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, AsyncAdmin]]:
    """The address of a node, and its administrator."""
    async with EmbeddedNode(folder) as node, AsyncAdmin(node.address) as admin:
        yield node.address, admin


def message(number: int, delay_ms: int = 1) -> Message:
    """Every third is paid, every sixth a test, every seventh from the north; all have an amount."""
    tags = [f"n{number % 10}"]
    tags += ["paid"] if number % 3 == 0 else []
    tags += ["test"] if number % 6 == 0 else []
    properties = {"amount": str(number)} | ({"region": "north"} if number % 7 == 0 else {})
    return Message(b"%d" % number, delay_ms=delay_ms, tags=tags, properties=properties)


async def publish(address: str, topic: str = "orders", count: int = COUNT) -> None:
    """In several batches, so that the producer has heard how the topic wants its genes."""
    async with AsyncProducer(address) as producer:
        for first in range(0, count, 100):
            await producer.publish_many(topic, [message(n) for n in range(first, first + 100)])


async def drain(consumer: AsyncConsumer, count: int) -> set[int]:
    """`count` messages, acknowledged; and there are no more."""
    found: list[int] = []
    while len(found) < count:
        received = await consumer.receive(100, IN_TIME_MS)
        assert received, f"{len(found)} of {count} came"
        found += [int(one.body) for one in received]
        await consumer.ack(received)
    assert await consumer.receive(1, 50) == []
    assert len(set(found)) == len(found)
    await consumer.flush_acks()
    return set(found)


async def becomes(expected: int, ask: Callable[[], Awaitable[int]]) -> None:
    """Ask a node again until it says so."""
    async with asyncio.timeout(IN_TIME_MS / 1_000):
        found = await ask()
        while found != expected:
            found = await ask()


async def lag_of(admin: AsyncAdmin, group: str) -> int:
    """What the group has still to do in all topics."""
    return sum(lag.unresolved_count for lag in (await admin.get_group(group)).lags)


def is_paid(number: int) -> bool:
    return number % 6 == 3


def is_rich_north(number: int) -> bool:
    return number % 7 == 0 and number > 100


CASES: tuple[tuple[str, FilterExpression, Callable[[int], bool]], ...] = (
    ("tags", Tags("paid && !test"), is_paid),
    ("sql", Sql("region = 'north' AND amount > 100"), is_rich_north),
    ("rare", Tags("n0 && test"), lambda number: number % 30 == 0),
    ("none", Tags("n3 && test"), lambda number: False),
    ("null", Sql("region IS NULL"), lambda number: number % 7 != 0),
)
SPECS = (
    None,
    GeneSpec(GeneKind.SPARSE, 2, ("region",)),
    GeneSpec(GeneKind.HASH_SET),
    GeneSpec(GeneKind.OR_GENE),
    GeneSpec(GeneKind.BLOOM, 3, ("amount", "region")),
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.text if spec else "default")
async def test_groups_get_what_they_want_whatever_the_gene(
    tmp_path: Path, spec: GeneSpec | None
) -> None:
    async with serving(tmp_path) as (address, admin):
        made = await admin.create_topic("orders", queue_count=2, gene=spec)
        assert made.gene == (spec or GeneSpec())
        await publish(address)
        for name, wanted, is_wanted in CASES:
            for is_here in (False, True):
                group = f"{name}-{is_here}"
                given = FilterExpression(wanted.kind, wanted.text, is_here)
                expected = {number for number in range(COUNT) if is_wanted(number)}
                settings: dict[str, Any] = {"group": group, "topic": "orders", "filter": given}
                if not expected:  # no message says that the first poll has come, and subscribed
                    await admin.put_subscription(group, "orders", given)
                async with AsyncConsumer(address, **settings) as consumer:
                    assert await drain(consumer, len(expected)) == expected
                    assert is_here or consumer.filtered_count == 0
                    await becomes(0, partial(lag_of, admin, group))
        assert await admin.get_topic("orders") == await admin.create_topic(
            "orders", queue_count=2, gene=spec
        )
        with pytest.raises(errors.AlreadyExists):
            await admin.create_topic("orders", queue_count=2, gene=GeneSpec(bits_per_item=7))


def counted(node: EmbeddedNode, name: str) -> int:
    """A counter on the node's page of metrics."""
    connection = http.client.HTTPConnection(node.metrics_address, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    (line,) = [one for one in text.splitlines() if one.startswith(name)]
    return int(float(line.split()[-1]))


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (GeneSpec(GeneKind.BLOOM, 2), Tags("nobody")),
        (GeneSpec(GeneKind.SPARSE, 5, ("region",)), Sql("region = 'south'")),
    ],
    ids=["tags", "sql"],
)
async def test_producers_make_genes_that_let_the_node_pass_over_messages_unread(
    tmp_path: Path, spec: GeneSpec, wanted: FilterExpression
) -> None:
    settings: dict[str, Any] = {"group": "g", "topic": "orders", "filter": wanted}
    async with EmbeddedNode(tmp_path) as node, AsyncAdmin(node.address) as admin:
        await admin.create_topic("orders", gene=spec)
        await publish(node.address)
        async with AsyncConsumer(node.address, **settings) as consumer:
            assert await consumer.receive(1, 500) == []
            await becomes(0, partial(lag_of, admin, "g"))
        read = await asyncio.to_thread(counted, node, "hourwheel_filter_checked_messages_total")
    assert 100 <= read < 200  # the first batch was made before the producer knew


async def test_consumers_of_a_group_must_agree(tmp_path: Path) -> None:
    async with serving(tmp_path) as (address, admin):
        await publish(address, count=100)

        def consumer_of(given: Any) -> AsyncConsumer:
            return AsyncConsumer(address, group="g", topic="orders", filter=given)

        async with consumer_of("paid || test") as first:
            assert await first.receive(1, IN_TIME_MS)
        async with consumer_of(" test||(paid) ") as same:
            assert await same.receive(1, IN_TIME_MS)
        for other in ("paid", Sql("amount > 1"), Tags("paid || test", check_at_client=True)):
            async with consumer_of(other) as second:
                for _ in range(2):
                    with pytest.raises(errors.SubscriptionMismatch, match="paid"):
                        await second.receive(1, IN_TIME_MS)
        (subscription,) = (await admin.get_group("g")).subscriptions
        assert subscription.filter == FilterExpression.tags("paid || test").canonical()


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ("paid &&", 7),
        ("a b", 2),
        (Sql("amount >"), 8),
        (Sql("sqrt(amount) > 1"), 4),
        (Sql("amount > 'x'"), 7),
        ("(" * 40 + "a" + ")" * 40, 32),
    ],
)
async def test_malformed_filters_are_refused_at_once(
    tmp_path: Path, given: Any, position: int
) -> None:
    async with serving(tmp_path) as (address, admin):
        async with AsyncConsumer(address, group="g", topic="orders", filter=given) as consumer:
            for _ in range(2):
                with pytest.raises(errors.InvalidFilter) as refused:
                    await consumer.receive(1, IN_TIME_MS)
                assert refused.value.params["position"] == str(position)
        with pytest.raises(errors.InvalidFilter) as refused:
            await admin.put_subscription("g", "orders", given)
        assert refused.value.params["position"] == str(position)


@pytest.mark.parametrize("is_here", [False, True])
async def test_a_consumer_that_says_nothing_gets_what_its_group_wants(
    tmp_path: Path, *, is_here: bool
) -> None:
    async with serving(tmp_path) as (address, admin):
        await publish(address)
        wanted = Tags("paid && !test", check_at_client=is_here)
        put = await admin.put_subscription("g", "orders", wanted)
        assert put.filter == wanted.canonical()
        expected = {number for number in range(COUNT) if is_paid(number)}
        async with AsyncConsumer(address, group="g", topic="orders") as consumer:
            assert await drain(consumer, len(expected)) == expected


async def test_a_changed_subscription_holds_from_then_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as (address, admin):
        await publish(address, count=100)
        await admin.put_subscription("g", "orders", "paid")
        async with AsyncConsumer(address, group="g", topic="orders") as consumer:
            assert len(await drain(consumer, 34)) == 34
        await admin.put_subscription("g", "orders", "test")
        await publish(address, count=100)
        async with AsyncConsumer(address, group="g", topic="orders", filter="test") as consumer:
            assert await drain(consumer, 17) == set(range(0, 100, 6))
        assert (await admin.put_subscription("g", "orders")).filter == FilterExpression.everything()


async def test_a_consumer_that_waits_is_told_when_its_filter_is_changed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"group": "g", "topic": "orders", "prefetch_messages": 0}
    async with (
        EmbeddedNode(tmp_path) as node,
        AsyncAdmin(node.address) as admin,
        AsyncConsumer(node.address, **settings, filter="nothing") as named,
        AsyncConsumer(node.address, **settings) as silent,
    ):
        await admin.create_topic("orders")
        assert await named.receive(1, 0) == []
        waits = [asyncio.ensure_future(one.receive(1, IN_TIME_MS)) for one in (named, silent)]
        await becomes(2, partial(asyncio.to_thread, counted, node, "hourwheel_long_polls"))
        await admin.put_subscription("g", "orders", "paid")
        with pytest.raises(errors.SubscriptionMismatch, match="paid"):
            await waits[0]
        await publish(node.address, count=10)
        (found,) = await waits[1]
        assert found.body == b"0"


@pytest.mark.parametrize("is_here", [False, True])
async def test_what_was_given_back_comes_again_and_dead_letters_can_be_filtered(
    tmp_path: Path, *, is_here: bool
) -> None:
    async with serving(tmp_path) as (address, admin):
        await admin.put_group("g", attempts_max=2, retry_delay_ms=1)
        await publish(address, count=100)
        wanted = {number for number in range(100) if is_paid(number)}
        tags = Tags("paid && !test", check_at_client=is_here)
        attempts: list[tuple[int, int]] = []
        async with AsyncConsumer(address, group="g", topic="orders", filter=tags) as consumer:
            while len(attempts) < 2 * len(wanted):
                received = await consumer.receive(10, IN_TIME_MS)
                assert received
                attempts += [(int(one.body), one.attempt) for one in received]
                await consumer.nack(received, delay_ms=1)
        assert sorted(attempts) == sorted((number, n) for number in wanted for n in (1, 2))

        dead = {"group": "undertaker", "topic": "%DLQ%g"}
        chosen = Tags("n3", check_at_client=is_here)
        expected = {number for number in wanted if number % 10 == 3}

        async def dead_count() -> int:
            topics = await admin.topics(include_internal=True)
            return sum(one.released_count for one in topics if one.name == "%DLQ%g")

        await becomes(len(wanted), dead_count)
        async with AsyncConsumer(address, **dead, filter=chosen) as consumer:
            assert await drain(consumer, len(expected)) == expected


async def run(address: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error of the command line."""
    runner = CliRunner(env={"COLUMNS": "140", "NO_COLOR": "1", "HOURWHEEL_SERVER": address})
    done = await asyncio.to_thread(runner.invoke, app, arguments, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


async def test_the_command_line_filters(tmp_path: Path) -> None:
    async with serving(tmp_path) as (address, _):
        gene = ("--gene", "bloom", "--gene-bits", "2", "--gene-property", "amount")
        code, out, said = await run(address, "topics", "create", "orders", *gene)
        assert (code, said) == (0, "")
        assert "bloom, 2 bits each, with amount" in out
        for number in ("5", "50"):
            tags = ("--tag", "paid", "--tag", f"n{number}", "--property", f"amount={number}")
            code, _, said = await run(address, "publish", "orders", f"order {number}", *tags)
            assert (code, said) == (0, "")
        sql = ("--sql", "amount > 10", "--max", "1", "--json")
        code, out, said = await run(address, "consume", "orders", "-g", "rich", *sql)
        assert (code, said) == (0, "")
        assert '"body": "order 50"' in out
        here = ("--filter", "n5 && !n50", "--check-at-client", "--max", "1")
        code, out, said = await run(address, "consume", "orders", "-g", "here", *here)
        assert (code, said) == (0, "")
        assert "order 5\n" in out
        code, out, _ = await run(address, "groups", "subscribe", "g", "orders", "--filter", "b||a")
        assert code == 0
        assert "a || b" in out
        code, out, _ = await run(address, "groups", "describe", "g")
        assert code == 0
        assert "a || b" in out
        code, out, said = await run(address, "consume", "orders", "-g", "g", "--filter", "a && )")
        assert (code, out) == (65, "")
        assert said.splitlines()[-2:] == ["  a && )", "       ^"]
        code, out, said = await run(address, "consume", "orders", "-g", "g", "--filter", "c")
        assert (code, out) == (65, "")
        assert "SubscriptionMismatch" in said
