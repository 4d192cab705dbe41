"""The broker for tests of users: a real node, and a clock that only the test moves."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hourwheel import (
    App,
    Broadcast,
    Consumer,
    DeadLetterReason,
    Message,
    MessageContext,
    Producer,
    Reject,
    Retry,
    Sql,
    Times,
    errors,
)
from hourwheel.testing import Broker, Clock
from hourwheel.workers.payloads import InvalidPayload
from hourwheel.workers.results import ResultKind

HOUR_MS = 3_600_000


def outline(broker: Broker) -> list[tuple[int, str, int, str]]:
    """What was handled: (ms since the start, body, attempt, result)."""
    start_ms = 1_893_456_000_000
    return [
        (one.at_ms - start_ms, one.context.body.decode(), one.context.attempt, one.result.name)
        for one in broker.handled
    ]


def test_each_message_is_handled_at_its_due_time(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")
    seen: list[tuple[int, datetime]] = []

    @app.handler("orders")
    def close_unpaid(order: dict[str, int]) -> None:
        seen.append((order["id"], hourwheel_clock.now))
        if order["id"] == 1:
            app.publish("later", 17, in_="1d")

    @app.handler("later")
    async def later(number: int) -> None:
        seen.append((number, hourwheel_clock.now))

    hourwheel_broker.run(app)
    for number, wait in ((2, "3d"), (1, "30m"), (3, "3d"), (4, "4d")):
        app.publish("orders", {"id": number}, in_=wait, key=f"order-{number}")
    app.publish("later", 0)
    begin = hourwheel_clock.now
    hourwheel_clock.advance(0)
    assert seen == [(0, begin)]
    assert app.cancel("orders", "order-3").name == "CANCELLED"
    hourwheel_clock.advance("3d")
    half = begin + timedelta(minutes=30)
    assert seen[1:] == [
        (1, half),
        (17, half + timedelta(days=1)),
        (2, begin + timedelta(days=3)),
    ]
    hourwheel_clock.advance_to(begin + timedelta(days=4))
    assert seen[4] == (4, begin + timedelta(days=4))
    app.close()


def test_retries_go_by_the_clock_until_the_message_is_a_dead_letter(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")

    @app.handler("orders")
    def fail(body: str) -> None:
        if body == "busy":
            raise Retry(delay=timedelta(minutes=5))
        raise ValueError(body)

    hourwheel_broker.admin.put_group("shop", attempts_max=3, retry_delay_ms=10_000)
    hourwheel_broker.run(app, raise_errors=False)
    app.publish("orders", "bad")
    app.publish("orders", "busy")
    hourwheel_clock.advance("1h")
    assert outline(hourwheel_broker) == [
        (0, "bad", 1, "FAILED"),
        (0, "busy", 1, "RETRY"),
        (10_000, "bad", 2, "FAILED"),
        (30_000, "bad", 3, "FAILED"),
        (300_000, "busy", 2, "RETRY"),
        (600_000, "busy", 3, "RETRY"),
    ]
    assert [type(one.error) for one in hourwheel_broker.handled[:2]] == [ValueError, Retry]
    letters = list(hourwheel_broker.admin.list_dead_letters("shop"))
    assert {one.reason for one in letters} == {DeadLetterReason.ATTEMPTS_USED_UP}
    assert len(letters) == 2
    app.close()


def test_what_a_handler_raises_is_raised_in_the_test(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")
    seen: list[str] = []

    @app.handler("orders")
    async def fail(body: str) -> None:
        seen.append(body)
        if len(seen) == 1:
            raise ValueError(body)

    hourwheel_broker.run(app)
    app.publish("orders", "first", in_="1h")
    app.publish("orders", "second", in_="2h")
    with pytest.raises(ValueError, match="first"):
        hourwheel_clock.advance("3h")
    assert hourwheel_clock.now_ms % (24 * HOUR_MS) == HOUR_MS, "it stands where that was"
    hourwheel_clock.advance("3h")
    assert seen == ["first", "first", "second"]
    app.close()


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("is_coroutine", [True, False])
def test_what_would_end_a_process_is_told_in_the_test(
    hourwheel_broker: Broker, ends: type[BaseException], *, is_coroutine: bool
) -> None:
    app = App(group="shop")

    def function() -> None:
        raise ends

    async def coroutine() -> None:
        raise ends

    app.handler("orders")(coroutine if is_coroutine else function)
    hourwheel_broker.run(app)
    app.publish("orders", b"")
    with pytest.raises(RuntimeError, match=ends.__name__):
        hourwheel_broker.settle()
    with pytest.raises(errors.InvalidArgument, match="already"):
        hourwheel_broker.run(app)
    app.close()


def test_a_handler_past_its_time_limit_is_told_in_the_test(hourwheel_broker: Broker) -> None:
    app = App(group="shop")

    @app.handler("orders", time_limit="1ms")
    async def wait() -> None:
        await asyncio.Event().wait()

    hourwheel_broker.run(app)
    app.publish("orders", b"")
    with pytest.raises(RuntimeError, match="longer than 1 ms"):
        hourwheel_broker.settle()
    app.close()


class Order(BaseModel):
    id: int


def test_what_is_rejected_is_a_dead_letter_at_once_with_its_reason(
    hourwheel_broker: Broker,
) -> None:
    app = App(group="shop")

    @app.handler("orders")
    def check(order: Order) -> None:
        raise Reject(f"no order {order.id}" + "!" * 2_000)

    hourwheel_broker.run(app)
    app.publish("orders", {"id": 17})
    hourwheel_broker.settle()
    app.publish("orders", {"id": "x"})
    with pytest.raises(InvalidPayload):
        hourwheel_broker.settle()
    assert [one.result for one in hourwheel_broker.handled] == [ResultKind.REJECTED] * 2
    first, second = hourwheel_broker.admin.list_dead_letters("shop")
    assert first.rejected_because == ("no order 17" + "!" * 2_000)[:1_024]
    assert "id: Input should be a valid integer" in second.rejected_because
    assert [first.attempts, second.attempts] == [1, 1]
    app.close()


def test_a_lease_ends_by_the_clock(hourwheel_broker: Broker, hourwheel_clock: Clock) -> None:
    with Consumer(
        hourwheel_broker.server,
        group="shop",
        topic="orders",
        invisible_ms=60_000,
        prefetch_messages=0,
    ) as consumer:
        hourwheel_broker.admin.create_topic("orders")
        app = App(hourwheel_broker.server)
        app.publish("orders", b"x")
        (first,) = consumer.receive()
        hourwheel_clock.advance("59s")
        assert consumer.receive(wait_ms=0) == []
        hourwheel_clock.advance("1h")
        (again,) = consumer.receive()
        assert (first.attempt, again.attempt) == (1, 2)
        consumer.ack(again)
        app.close()


async def test_handlers_that_are_coroutines_run_in_the_loop_of_a_test_that_is_one(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")
    loops: list[Any] = []

    @app.handler("orders")
    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    hourwheel_broker.run(app)
    await app.publish_async("orders", b"")
    await hourwheel_broker.settle_async()
    await app.publish_async("orders", b"", in_="1h")
    await hourwheel_clock.advance_async("30m")
    assert len(loops) == 1
    await hourwheel_clock.advance_to_async(hourwheel_clock.now + timedelta(minutes=30))
    assert loops == [asyncio.get_running_loop()] * 2
    await asyncio.to_thread(app.close)


def test_occurrences_come_one_by_one(hourwheel_broker: Broker, hourwheel_clock: Clock) -> None:
    app = App(group="shop")
    at: list[datetime] = []

    @app.handler("reports")
    def report(context: MessageContext) -> None:
        at.append(datetime.fromtimestamp(context.due_ms / 1_000, UTC))

    hourwheel_broker.run(app)
    hourwheel_broker.admin.create_topic("reports")
    night = Times(cron="0 3 * * *", time_zone="Europe/Berlin")
    hourwheel_broker.admin.put_recurrence("reports", "nightly", Message(b""), night)
    hourwheel_clock.advance_to(datetime(2030, 4, 2, tzinfo=UTC))
    assert len(at) == 91
    assert {one.hour for one in at[:89]} == {2}
    assert [one.hour for one in at[89:]] == [1, 1], "summer time has begun"


def test_a_program_that_would_never_end_is_told_so(
    hourwheel_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.testing.broker.AT_ONCE_MAX", 20)
    app = App(group="shop")

    @app.handler("orders")
    def again(number: int) -> None:
        app.publish("orders", number + 1)

    hourwheel_broker.run(app)
    app.publish("orders", 0)
    with pytest.raises(errors.FailedPrecondition, match="for ever"):
        hourwheel_broker.settle()
    app.close()


def test_a_handler_cannot_move_the_clock(hourwheel_broker: Broker, hourwheel_clock: Clock) -> None:
    app = App(group="shop")

    @app.handler("orders")
    def move() -> None:
        hourwheel_clock.advance("1ms")

    hourwheel_broker.run(app)
    app.publish("orders", 0)
    with pytest.raises(errors.FailedPrecondition, match="a handler cannot"):
        hourwheel_broker.settle()
    app.close()


@pytest.mark.parametrize("by", ["soon", -1, 1_000, timedelta(seconds=-1), 1.5, None])
def test_a_clock_moves_on_and_by_durations_only(hourwheel_clock: Clock, by: Any) -> None:
    before_ms = hourwheel_clock.now_ms
    with pytest.raises(errors.InvalidArgument):
        hourwheel_clock.advance(by)
    with pytest.raises(errors.InvalidArgument):
        hourwheel_clock.advance_to(hourwheel_clock.now - timedelta(seconds=1))
    assert hourwheel_clock.now_ms == before_ms


def test_without_its_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    """With the core of the package alone, which has no parser of durations."""
    program = """
import sys
from pathlib import Path

sys.modules["pytimeparse2"] = None
import hourwheel.testing.plugin
from hourwheel import errors
from hourwheel.testing import Broker

try:
    Broker(Path(sys.argv[1])).__enter__()
except errors.FailedPrecondition as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "a broker needs pytimeparse2: pip install 'hourwheel[testing]'\n"


def test_an_app_with_credentials_runs_without_them_and_has_them_again(tmp_path: Path) -> None:
    app = App("127.0.0.1:1", group="shop", tls=True, user=("shop", "secret"))
    seen: list[str] = []
    app.handler("orders")(seen.append)
    with Broker(tmp_path) as broker:
        broker.run(app)
        app.publish("orders", "x")
        broker.settle()
    assert seen == ["x"]
    assert app.credentials == {"tls": True, "token": None, "user": ("shop", "secret")}


def report() -> None: ...


@pytest.mark.parametrize("wanted", ["paid &&", Sql("x >"), Sql("x >", check_at_client=True)])
async def test_a_worker_names_the_handler_whose_filter_is_none(
    hourwheel_broker: Broker, wanted: Any
) -> None:
    app = App(hourwheel_broker.server, group="shop")
    await asyncio.to_thread(hourwheel_broker.admin.create_topic, "orders")
    app.handler("orders", filter=wanted)(report)
    with pytest.raises(errors.InvalidFilter, match=r"test_broker\.report: ") as raised:
        await app.serve()
    assert raised.value.params["position"]


def test_a_second_app_of_a_group_that_wants_other_messages_is_refused(
    hourwheel_broker: Broker,
) -> None:
    one, two = App(group="shop"), App(group="shop")
    seen: list[str] = []
    one.handler("orders", filter="paid")(seen.append)
    two.handler("orders", filter="unpaid")(seen.append)
    hourwheel_broker.run(one)
    one.publish("orders", "first", tags=["paid"])
    hourwheel_broker.settle()

    def run() -> None:
        hourwheel_broker.run(two)
        hourwheel_broker.settle()

    with pytest.raises(errors.SubscriptionMismatch, match="wants tags 'paid' of topic 'orders'"):
        run()
    assert seen == ["first"]


def test_a_recurrence_that_cannot_be_is_named(hourwheel_broker: Broker) -> None:
    app = App(group="shop")
    app.recurring("61 * * * *")(report)
    with pytest.raises(errors.InvalidRecurrence, match="recurrence 'report' of topic"):
        hourwheel_broker.run(app)


def test_an_app_is_connected_to_where_it_was_when_the_broker_has_ended(tmp_path: Any) -> None:
    app = App("127.0.0.1:1", group="shop")
    with Broker(tmp_path, start=datetime(2031, 5, 1, tzinfo=UTC)) as broker:
        broker.run(app)
        assert (app.server, broker.clock.now.year) == (broker.server, 2031)
    assert app.server == "127.0.0.1:1"


def test_a_group_with_a_rate_goes_on_as_the_clock_is_moved(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")

    @app.handler("orders")
    def handle(number: int) -> None:
        """Nothing."""

    hourwheel_broker.admin.put_group("shop", per_second_max=2)
    hourwheel_broker.run(app)
    for number in range(4):
        app.publish("orders", number)
    app.publish("orders", 4, in_="1h")
    hourwheel_clock.advance("1d")
    assert outline(hourwheel_broker) == [
        (500, "0", 1, "DONE"),
        (1_000, "1", 1, "DONE"),
        (1_500, "2", 1, "DONE"),
        (2_000, "3", 1, "DONE"),
        (HOUR_MS, "4", 1, "DONE"),
    ]


def test_what_a_program_gives_back_that_it_has_not_begun_with_is_no_attempt(
    hourwheel_broker: Broker,
) -> None:
    """By its word, or because it has fetched it ahead and ends."""
    consume = partial(Consumer, hourwheel_broker.server, group="shop", topic="orders")
    with Producer(hourwheel_broker.server) as producer:
        producer.publish_many("orders", [Message(b"%d" % number) for number in range(20)])
    for _ in range(3):
        with consume() as consumer:
            (message,) = consumer.receive(1)
            assert message.attempt == 1
            consumer.nack(message, not_begun=True)
    found = list[tuple[bytes, int]]()
    with consume() as consumer:
        while len(found) < 20:
            found += [(one.body, one.attempt) for one in consumer.receive(32)]
    assert sorted(found) == sorted((b"%d" % number, 1) for number in range(20))


def test_each_member_of_a_broadcast_gets_every_message_from_its_beginning_on(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    """However far the clock leaps; with the member that the app names, and of several topics."""
    seen = {"a": list[str](), "b": list[str](), "shared": list[str]()}
    apps = {name: App(group="caches") for name in ("a", "b")}
    hourwheel_broker.admin.create_topic("changes")
    for name, app in apps.items():
        member = Broadcast(member=name) if name == "a" else True
        app.handler(["changes", "later"], broadcast=member)(seen[name].append)
        hourwheel_broker.run(app)
    shared = App(group="shared")
    shared.handler("changes")(seen["shared"].append)
    hourwheel_broker.run(shared)
    for wait in ("0s", "6m", "40d"):
        shared.publish("changes", wait, in_=wait)
        shared.publish("later", wait, in_=wait)
    hourwheel_clock.advance("41d")
    twice = ["0s", "0s", "6m", "6m", "40d", "40d"]
    assert seen == {"a": twice, "b": twice, "shared": ["0s", "6m", "40d"]}
    assert {one.result for one in hourwheel_broker.handled} == {ResultKind.DONE}
    for app in (*apps.values(), shared):
        app.close()
