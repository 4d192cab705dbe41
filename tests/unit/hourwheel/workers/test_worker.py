"""A worker one of whose handlers cannot go on."""

import asyncio
from collections import Counter

import pytest

from hourwheel import App, Sql, errors
from hourwheel.testing import Broker
from tests.support.eventually import until


class Shop:
    """Orders are held in work; what the other handler gets is for its filter, which is none."""

    def __init__(self, broker: Broker) -> None:
        self.app = App(broker.server, group="shop")
        self.admin = broker.admin
        self.seen: Counter[str] = Counter()
        self.may_end = asyncio.Event()
        self.app.handler("orders")(self.hold)
        self.app.handler("late-*", filter=Sql("x >"))(self.never)

    async def hold(self, body: str) -> None:
        self.seen[f"begun {body}"] += 1
        await self.may_end.wait()
        self.seen[f"done {body}"] += 1

    def never(self) -> None:
        """Its topic is not there at first, and so its filter is unknown to the node."""

    async def serve_until_the_failure(self) -> "asyncio.Task[None]":
        """With two messages in work."""
        serving = asyncio.create_task(self.app.serve())
        await self.app.publish_async("orders", "a")
        await self.app.publish_async("orders", "b")
        await until(lambda: self.seen.total() == 2)
        await asyncio.to_thread(self.admin.create_topic, "late-1")
        return serving


async def test_what_others_have_in_work_is_done_before_a_failure_is_raised(
    hourwheel_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hourwheel.workers.pattern.REFRESH_S", 0.01)
    shop = Shop(hourwheel_broker)
    serving = await shop.serve_until_the_failure()
    await until(lambda: "cannot go on" in caplog.text)
    assert not serving.done()
    shop.may_end.set()
    with pytest.raises(errors.InvalidFilter, match=r"test_worker\.Shop\.never"):
        await serving
    assert shop.seen == {"begun a": 1, "begun b": 1, "done a": 1, "done b": 1}
    await asyncio.to_thread(shop.app.close)


async def test_what_does_not_end_within_the_bound_is_given_back_when_another_handler_fails(
    hourwheel_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.workers.pattern.REFRESH_S", 0.01)
    monkeypatch.setattr("hourwheel.workers.app.STOP_MS", 1)
    shop = Shop(hourwheel_broker)
    serving = await shop.serve_until_the_failure()
    with pytest.raises(errors.InvalidFilter):
        await serving
    assert shop.seen == {"begun a": 1, "begun b": 1}
    await asyncio.to_thread(shop.app.close)
