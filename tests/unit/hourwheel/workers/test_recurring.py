"""Recurrences that a program brings with it, at a real node whose clock the test moves."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hourwheel import App, AsyncAdmin, Channel, MessageContext, Missed, errors
from hourwheel.testing import Broker, Clock
from hourwheel.workers.recurring import put_all, put_patiently


def nightly(cron: str = "0 3 * * *", **settings: Any) -> App:
    app = App(group="shop")

    @app.recurring(cron, **settings)
    def report() -> None: ...

    return app


def test_functions_are_called_at_their_times(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")
    seen: list[tuple[str, datetime]] = []

    @app.recurring("0 3 * * *", zone="Europe/Berlin")
    def report() -> None:
        seen.append(("report", hourwheel_clock.now))

    @app.recurring(timedelta(hours=10), topic="sales", name="pulse", payload={"kind": "sales"})
    @app.handler(["sales", "returns"])
    async def count(kind: dict[str, str], context: MessageContext) -> None:
        seen.append((f"{kind['kind']} of {context.topic}", hourwheel_clock.now))

    hourwheel_broker.run(app)
    app.publish("returns", {"kind": "toys"}, in_="1h")
    begin = hourwheel_clock.now
    hourwheel_clock.advance("23h")
    assert seen == [
        ("toys of returns", begin + timedelta(hours=1)),
        ("report", begin + timedelta(hours=2)),
        ("sales of sales", begin + timedelta(hours=10)),
        ("sales of sales", begin + timedelta(hours=20)),
    ]
    app.close()


async def test_workers_that_begin_put_a_recurrence_once_and_anew_when_it_changes(
    hourwheel_broker: Broker,
) -> None:
    async with Channel(hourwheel_broker.server) as channel:
        admin = AsyncAdmin(channel)
        await asyncio.gather(*(put_all(admin, nightly().recurrences) for _ in range(8)))
        first = await admin.get_recurrence("shop.report", "report")
        assert (first.times.cron, first.missed) == ("0 3 * * *", Missed.ALL)
        await put_all(admin, nightly().recurrences)
        assert await admin.get_recurrence("shop.report", "report") == first

        changes: list[App] = [
            nightly("0 4 * * *"),
            nightly(zone="Asia/Tokyo"),
            nightly(missed=Missed.LAST),
            nightly(payload=17),
            nightly(payload=17, priority=7),
        ]
        versions = {first.version}
        for app in changes:
            await put_all(admin, app.recurrences)
            versions.add((await admin.get_recurrence("shop.report", "report")).version)
        assert len(versions) == 6
        assert (await admin.get_recurrence("shop.report", "report")).meta.priority == 7

        await admin.pause_recurrence("shop.report", "report")
        await put_all(admin, changes[-1].recurrences)
        assert (await admin.get_recurrence("shop.report", "report")).is_paused


async def test_a_recurrence_is_put_in_a_topic_that_has_been_made_otherwise(
    hourwheel_broker: Broker,
) -> None:
    async with Channel(hourwheel_broker.server) as channel:
        admin = AsyncAdmin(channel)
        await admin.create_topic("shop.report", queue_count=3)
        await put_all(admin, nightly().recurrences)
        assert len(await admin.recurrences("shop.report")) == 1


class Absent:
    """An administrator of nodes that are not there yet."""

    def __init__(self, error: errors.HourwheelError, stopping: asyncio.Event) -> None:
        self.tries, self._error, self._stopping = 0, error, stopping

    async def get_recurrence(self, _topic: str, _name: str) -> None:
        self.tries += 1
        if self.tries == 3:
            self._stopping.set()
        raise self._error


async def test_a_worker_waits_for_nodes_and_not_for_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hourwheel.workers.recurring.AGAIN_S", 0)
    for error, tries in ((errors.Unavailable("no node"), 3), (errors.InvalidRecurrence("no"), 1)):
        stopping = asyncio.Event()
        absent: Any = Absent(error, stopping)
        putting = put_patiently(absent, nightly().recurrences, stopping)
        if error.retriable:
            await putting
        else:
            with pytest.raises(errors.InvalidRecurrence):
                await putting
        assert absent.tries == tries


def test_recurrences_that_make_no_sense_are_refused() -> None:
    app = nightly()

    def report() -> None: ...

    with pytest.raises(errors.InvalidArgument, match="two recurrences"):
        app.recurring("0 4 * * *")(report)
    with pytest.raises(errors.InvalidArgument, match="consumer group"):
        App().recurring("0 4 * * *")
    with pytest.raises(errors.InvalidArgument):
        app.recurring(timedelta(seconds=-1))
    with pytest.raises(errors.InvalidArgument, match="JSON"):
        app.recurring("0 4 * * *", payload={1, 2})
    with pytest.raises(errors.InvalidArgument, match="has a topic"):
        app.handler([])


def test_a_cron_expression_that_is_none_is_told_as_the_program_begins(
    hourwheel_broker: Broker,
) -> None:
    with pytest.raises(errors.InvalidRecurrence):
        hourwheel_broker.run(nightly("0 99 * * *"))


def test_a_message_is_moved_by_its_key(hourwheel_broker: Broker, hourwheel_clock: Clock) -> None:
    app = App(group="shop")
    seen: list[datetime] = []

    @app.handler("orders")
    def note() -> None:
        seen.append(hourwheel_clock.now)

    hourwheel_broker.run(app)
    app.publish("orders", 1, in_="1h", key="a")
    app.publish("orders", 2, in_="1h", key="b")
    assert app.move("orders", "a", in_="3h").name == "RESCHEDULED"
    assert app.move("orders", "b", at=datetime(2030, 1, 1, 2, tzinfo=UTC)).name == "RESCHEDULED"
    hourwheel_clock.advance("1d")
    assert [one.hour for one in seen] == [2, 3]
    assert app.move("orders", "a", in_="3h").name == "ALREADY_RELEASED"
    for when in ({}, {"in_": "1h", "at": hourwheel_clock.now}):
        with pytest.raises(errors.InvalidArgument):
            app.move("orders", "a", **when)  # type: ignore[arg-type]
    app.close()
