"""A browser, and three nodes with messages, for the tests of the console."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, errors
from hourwheel.client.access import Limits
from node.tools.local_cluster.nodes import LocalCluster
from tests.console.scenes import HOUR_MS, WAIT_MS, Opened
from tests.support.eventually import before_the_next_look

expect.set_options(timeout=WAIT_MS)

VALUES: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}


EXPECTED: Final = ("Failed to load resource", "Cross-Origin-Opener-Policy header has been ignored")
"""Of a request that fails, for some tests the subject; and of a page that is not on loopback."""


async def grant_alice(admin: AsyncAdmin) -> None:
    """A user with a grant and a quota; as soon as the cluster follows the rules that know them."""
    async with asyncio.timeout(60):
        while True:
            try:
                await admin.put_user("alice", "of alice")
                break
            except (errors.Unavailable, errors.FailedPrecondition):
                await before_the_next_look()
    await admin.grant("alice", ["publish", "look"], "topic", "ord*")
    await admin.put_quota("alice", Limits(messages_per_s=5_000))


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert chromium is not None, "chromium is not installed"
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=chromium,
            args=[
                *("--no-sandbox", "--disable-dev-shm-usage"),
                "--host-resolver-rules=MAP rebound.example 127.0.0.1",
            ],
        )
        yield opened
        await opened.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "cluster", 3, values=VALUES) as started:
        await started.wait_for_master(in_sync=3)
        yield started


@pytest.fixture
async def filled(cluster: LocalCluster) -> LocalCluster:
    """With topics, scheduled messages, groups and dead letters."""
    async with AsyncAdmin(cluster.servers) as admin, AsyncProducer(cluster.servers) as producer:
        await admin.put_group("billing", attempts_max=1)
        await grant_alice(admin)
        for topic, spans_ms in (
            ("orders", (HOUR_MS // 60, HOUR_MS, 24 * HOUR_MS)),
            ("reminders", (24 * HOUR_MS, 300 * 24 * HOUR_MS)),
        ):
            messages = [
                Message(
                    json.dumps({"order": number}).encode(),
                    delay_ms=30_000 + span_ms * (number % 60) // 60,
                    tags=["unpaid" if number % 3 else "paid"],
                    keys=[str(number)],
                )
                for span_ms in spans_ms
                for number in range(300)
            ]
            await producer.publish_many(topic, messages)
        await producer.publish_many("orders", [Message(b"due now")] * 5)
        async with AsyncConsumer(cluster.servers, group="billing", topic="orders") as consumer:
            (given_up,) = await consumer.receive(max_messages=1)
            await consumer.nack(given_up)
    return cluster


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[Opened]:
    """Opens pages; what a page complains of fails the test."""
    complaints: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(
            words in message.text for words in EXPECTED
        ):
            complaints.append(message.text)

    async def make(url: str, *, is_dark: bool = False, width: int = 1280) -> Page:
        context = await browser.new_context(
            viewport={"width": width, "height": 900 if width > 500 else 740},
            color_scheme="dark" if is_dark else "light",
        )
        page = await context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", on_console)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(url)
        return page

    yield make
    assert complaints == []
