"""Handlers of all topics that fit a pattern: in tests of users, and in a worker."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from hourwheel import App, MessageContext
from hourwheel.testing import Broker, Clock
from hourwheel.workers.service import Slots
from tests.support.eventually import until


def test_topics_that_fit_are_handled_as_they_come(
    hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    app = App(group="shop")
    seen: list[str] = []

    @app.handler("orders-*", concurrency=1)
    def note(context: MessageContext) -> None:
        seen.append(context.topic)

    hourwheel_broker.run(app)
    hourwheel_broker.settle()
    for topic in ("orders-eu", "orders", "orders-us", "orders-eu"):
        app.publish(topic, b"", in_="1h")
    hourwheel_clock.advance("1h")
    assert sorted(seen) == ["orders-eu", "orders-eu", "orders-us"]
    app.close()


async def test_a_worker_serves_topics_that_fit_and_those_that_are_made_later(
    hourwheel_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them together have the handler's concurrency."""
    monkeypatch.setattr("hourwheel.workers.pattern.REFRESH_S", 0.01)
    app = App(hourwheel_broker.server, group="shop")
    seen: Counter[str] = Counter()
    running, most = 0, 0

    @app.handler("orders-*", concurrency=2)
    async def note(context: MessageContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        seen[context.topic] += 1
        running -= 1

    stopping = asyncio.Event()
    serving = asyncio.create_task(app.serve(stopping))
    for number in range(5):
        await app.publish_async(f"orders-{number % 4}", b"")
    await app.publish_async("parcels", b"")
    await until(lambda: seen.total() == 5)
    await app.publish_async("orders-late", b"")
    await until(lambda: seen["orders-late"] == 1)
    await asyncio.to_thread(hourwheel_broker.admin.delete_topic, "orders-late")
    await app.publish_async("orders-0", b"")
    await until(lambda: seen.total() == 7)
    stopping.set()
    await serving
    assert "parcels" not in seen
    assert most <= 2
    await asyncio.to_thread(app.close)


async def test_slots_are_shared_and_waited_for() -> None:
    slots: Any = Slots(4)
    slots.sharer_count = 2
    assert slots.share == 2
    for _ in range(3):
        slots.add()
    assert slots.share == 1
    slots.add()
    assert slots.share == 0
    waiting = asyncio.create_task(slots.wait_for_free())
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.remove()
    await waiting
